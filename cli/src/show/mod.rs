//! What the command shows about itself: tunables, completions, manual pages.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;

use clap::CommandFactory as _;
use fairlift_core::model::Character;
use fairlift_core::sched::{Kind, Setup};
use fairlift_core::{flush, tunable};
use fairlift_lab::model::{Spec, profiles};

use crate::args::Cli;

/// Writes to standard output; a reader that has seen enough is no error.
///
/// # Errors
/// Standard output cannot be written to, for instance because the disk is full.
pub(crate) fn print(text: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// The tunables of one scheduler or of all, for a terminal.
pub(crate) fn tunables(only: Option<Kind>) -> String {
    let mut out = String::new();
    for kind in Kind::ALL.into_iter().filter(|kind| only.is_none_or(|only| only == *kind)) {
        if !out.is_empty() {
            out.push('\n');
        }
        let rows = rows(kind);
        if rows.is_empty() {
            let _ = writeln!(out, "{}: nothing to turn", kind.name());
            continue;
        }
        let _ = writeln!(out, "{}:", kind.name());
        write_rows(&mut out, &rows);
    }
    out.push_str("\nwith every scheduler:\n");
    write_rows(&mut out, &flush_rows());
    out
}

/// Two lines for each row: what it does, and what it takes.
fn write_rows(out: &mut String, rows: &[Row]) {
    let width = |cell: fn(&Row) -> &str| rows.iter().map(|row| cell(row).chars().count()).max().unwrap_or(0);
    let (name, default) = (width(|row| &row.name), width(|row| &row.default));
    for row in rows {
        let _ = writeln!(out, "  {:name$}  {:>default$}  {}", row.name, row.default, row.says);
        let _ = writeln!(out, "  {:name$}  {:default$}  {}", "", "", row.takes);
    }
}

/// One tunable in words.
struct Row {
    name: String,
    default: String,
    takes: String,
    says: String,
}

fn rows(kind: Kind) -> Vec<Row> {
    // Defaults that follow from the device are those of one that rotates; what they are for others is in the row's words.
    let character = Character { rotational: true, volatile_cache: true };
    let scheduler = kind.build(&Setup { character, ..Setup::new(1) });
    let row = |info: &tunable::TunableInfo| Row {
        name: info.name.into(),
        default: scheduler.get(info.name).unwrap_or_default(),
        takes: info.range.to_string(),
        says: info.says.into(),
    };
    kind.tunables().iter().map(row).collect()
}

/// What can be turned on flushes, whatever the scheduler.
fn flush_rows() -> Vec<Row> {
    let usual = flush::Settings::default();
    let row = |info: &tunable::TunableInfo| Row {
        name: info.name.into(),
        default: tunable::get(flush::Settings::TUNABLES, &usual, info.name).unwrap_or_default(),
        takes: info.range.to_string(),
        says: info.says.into(),
    };
    flush::Settings::INFO.iter().map(row).collect()
}

/// The modelled disks, or one with its parameters.
///
/// # Errors
/// There is no such model.
pub(crate) fn models(only: Option<&str>) -> Result<String, String> {
    let mut out = String::new();
    let Some(name) = only else {
        pairs(&mut out, &profiles().map(|profile| (profile.name, profile.about)).collect::<Vec<_>>());
        out.push_str("\n`fairlift models MODEL` shows what can be changed, as in sim:MODEL,size=100g\n");
        return Ok(out);
    };
    let name = name.strip_prefix("sim:").unwrap_or(name);
    let spec = Spec::parse(name).map_err(|error| error.to_string())?;
    let about = profiles().find(|profile| profile.name == spec.name).map_or("", |profile| profile.about);
    let _ = writeln!(out, "sim:{}: {about}", spec.name);
    let mut rows = vec![Row {
        name: "size".into(),
        default: format!("{:.1} GB", spec.size as f64 / 1e9),
        takes: "bytes in whole sectors, as 500g or 1t (powers of 1024), up to 64t".into(),
        says: "how much it holds".into(),
    }];
    rows.extend(spec.settings.infos().iter().map(|info| Row {
        name: info.name.into(),
        default: spec.settings.get(info.name).unwrap_or_default(),
        takes: info.range.to_string(),
        says: info.says.into(),
    }));
    write_rows(&mut out, &rows);
    Ok(out)
}

/// Two columns, indented; the second is broken between words to fit in a terminal of 80.
pub(crate) fn pairs(out: &mut String, rows: &[(&str, &str)]) {
    const LINE: usize = 80;
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    for (name, says) in rows {
        let _ = write!(out, "  {name:width$} ");
        let mut column = width + 3;
        for word in says.split(' ') {
            let letters = word.chars().count();
            if column + 1 + letters > LINE && column > width + 3 {
                let _ = write!(out, "\n  {:width$} ", "");
                column = width + 3;
            }
            let _ = write!(out, " {word}");
            column += 1 + letters;
        }
        out.push('\n');
    }
}

/// A completion script.
pub(crate) fn completions(shell: clap_complete::Shell) -> Vec<u8> {
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "fairlift", &mut out);
    out
}

/// The manual page, or one for each command in `directory`.
///
/// # Errors
/// A page cannot be written.
pub(crate) fn man(directory: Option<&Path>) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    match directory {
        None => clap_mangen::Man::new(Cli::command()).render(&mut out)?,
        Some(directory) => {
            std::fs::create_dir_all(directory)?;
            clap_mangen::generate_to(Cli::command(), directory)?;
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::EXAMPLE;
    use crate::config::keys::SORTS;

    /// Compares a generated document with the file, or rewrites it: `UPDATE_DOCS=1 cargo test -p fairlift-cli`.
    fn check_document(name: &str, generated: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, generated).unwrap();
        }
        let present = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(present == generated, "docs/{name} is out of date; run UPDATE_DOCS=1 cargo test -p fairlift-cli");
    }

    #[test]
    fn the_tunables_document_is_made_from_the_rows() {
        let mut out = String::from(
            "# Tunables\n\nWhat can be turned on each scheduler: `fairlift serve --set KEY=VALUE`, or `set = { KEY = \"VALUE\" }` \
             under `[disk.NAME]`.\nNames and meanings are the kernel's. Made from the rows in `core/src/sched/` and `core/src/flush.rs` by\n\
             `UPDATE_DOCS=1 cargo test -p fairlift-cli`; do not edit.\n",
        );
        let with_all = ("With every scheduler: how flushes are shared (`docs/flush.md`)", flush_rows());
        for (name, rows) in Kind::ALL.map(|kind| (kind.name(), rows(kind))).into_iter().chain([with_all]) {
            let _ = writeln!(out, "\n## {name}\n");
            if rows.is_empty() {
                let _ = writeln!(out, "Nothing to turn.");
                continue;
            }
            let _ = writeln!(out, "| name | default | takes | what it does |\n|---|---|---|---|");
            for row in rows {
                let says = row.says.replace('|', "\\|");
                let _ = writeln!(out, "| `{}` | {} | {} | {says} |", row.name, row.default, row.takes);
            }
        }
        check_document("tunables.md", &out);
    }

    #[test]
    fn the_config_document_is_made_from_the_keys_and_the_example() {
        let mut out = String::from(
            "# The config file\n\n`fairlift serve --config FILE` reads it; `--check` only looks for mistakes and reports all of them. It is \
             TOML.\n\n\
             - Sizes are numbers of bytes, or text with `k`, `m`, `g`, `t`, `p` (also `ki`, `kib`, …): powers of 1024, as in fio. `kb` is \
             refused,\n  because some tools mean 1000 and others 1024.\n\
             - Times have a unit: `\"10s\"`, `\"250ms\"`, `\"20us\"`, `\"7ns\"`.\n\
             - Relative paths start at the directory of the file.\n\
             - Exports of the file and of the command line are served together; of other settings, the flag wins.\n\
             - Made from `cli/src/config/keys.rs` and `cli/src/config/example.toml` by `UPDATE_DOCS=1 cargo test -p fairlift-cli`; do not edit.\n",
        );
        for sort in SORTS {
            let _ = writeln!(out, "\n## `{}`\n\n{}\n", sort.header, sort.says);
            let _ = writeln!(out, "| key | takes | default | what it does |\n|---|---|---|---|");
            for key in sort.keys {
                let _ = writeln!(out, "| `{}` | {} | {} | {} |", key.name, key.takes, key.default, key.says);
            }
        }
        let _ = write!(out, "\n## An example\n\n`fairlift config` prints it.\n\n```toml\n{EXAMPLE}```\n");
        check_document("config.md", &out);
    }

    #[test]
    fn a_long_phrase_goes_on_in_its_own_column() {
        let mut out = String::new();
        pairs(&mut out, &[("a", "one"), ("long", "word ".repeat(20).trim_end())]);
        let lines: Vec<_> = out.lines().collect();
        assert_eq!(lines[0], "  a     one");
        assert_eq!(lines[2], format!("{}word word word word word word", " ".repeat(8)));
        assert!(lines.iter().all(|line| line.len() <= 80), "{out}");
    }

    #[test]
    fn the_example_shows_every_key() {
        for sort in SORTS {
            for key in sort.keys {
                let written = EXAMPLE.lines().any(|line| line.starts_with(&format!("{} = ", key.name)));
                assert!(written, "{}: {} is not in the example", sort.header, key.name);
            }
        }
    }

    #[test]
    fn a_manual_page_and_completions_can_be_made() {
        assert!(String::from_utf8(man(None).unwrap()).unwrap().contains("fairlift"));
        let dir = tempfile::tempdir().unwrap();
        man(Some(dir.path())).unwrap();
        assert!(dir.path().join("fairlift-serve.1").exists());
        assert!(!completions(clap_complete::Shell::Bash).is_empty());
    }
}
