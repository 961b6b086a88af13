//! The pages under `docs/` that are made from the rows, and compared with them.

use std::fmt::Write as _;
use std::path::Path;

use fairlift_core::sched::Kind;

use super::tunables::{flush_rows, rows};
use crate::config::EXAMPLE;
use crate::config::keys::{EXPORT, SORTS, keys};
use crate::config::row::{Act, Kind as Of, Sort};

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
        "# Tunables\n\nThe settings of each scheduler: `fairlift serve --set KEY=VALUE`, or `set = { KEY = \"VALUE\" }` \
         under `[disk.NAME]`.\nNames and meanings are the kernel's. \
         A time without a unit is in milliseconds. Made from the rows in `core/src/sched/` and `core/src/flush.rs` by\n\
         `UPDATE_DOCS=1 cargo test -p fairlift-cli`; do not edit.\n",
    );
    let with_all = ("With every scheduler: how flushes are shared (`docs/flush.md`)", flush_rows());
    for (name, rows) in Kind::ALL.map(|kind| (kind.name(), rows(kind))).into_iter().chain([with_all]) {
        let _ = writeln!(out, "\n## {name}\n");
        if rows.is_empty() {
            let _ = writeln!(out, "No tunables.");
            continue;
        }
        let _ = writeln!(out, "| name | default | takes | meaning |\n|---|---|---|---|");
        for row in rows {
            let says = row.says.replace('|', "\\|");
            let takes = row.takes.replace(" (a bare number counts ms)", "");
            let _ = writeln!(out, "| `{}` | {} | {takes} | {says} |", row.name, row.default);
        }
    }
    check_document("tunables.md", &out);
}

#[test]
fn the_config_documents_are_made_from_the_keys_and_the_example() {
    let live: Vec<_> = keys(Of::Export, Act::Set).iter().map(|key| key.name).collect();
    let fixed = EXPORT.keys().into_iter().filter(|key| !live.contains(&key.name)).map(|key| format!("`{}`", key.name));
    let fixed = fixed.collect::<Vec<_>>().join(", ");
    let mut out = format!(
        "# The config file\n\n`fairlift serve --config FILE` reads it; `--check` reports all mistakes in it, and exits. It is TOML. \
         Here are exports, disks and groups; the tables\n`[client.NAME]` and `[server]` have [their own page](config-server.md).\n\n\
         - Sizes are numbers of bytes, or text with `k`, `m`, `g`, `t`, `p` (also `ki`, `kib`, …): powers of 1024, as in fio. `kb` is \
         refused,\n  because some tools mean 1000 and others 1024.\n\
         - Times have a unit: `\"10s\"`, `\"250ms\"`, `\"20us\"`, `\"7ns\"`.\n\
         - Relative paths start at the directory of the file.\n\
         - Exports of the file and of the command line are served together; for other settings, the flag overrides the file.\n\
         - {MADE}\n\n\
         ## Reloads\n\n\
         `fairlift reload`, or SIGHUP, has a running server read the file again. All changes are made, or none, and the log names them: weights, groups,\n\
         exports, listeners, clients, schedulers and their tunables, depths.\n\n\
         - Clients stay connected. Those of an export that is gone, or that they may no longer open, are answered, and leave.\n\
         - Settings that cannot change while the server runs ({fixed} of an export; `io_timeout`,\n  \
         `shared_tags` and `concurrency` of a disk; the limits and `control` of the server) are refused with their line.\n\
         - Objects added by other means stay.\n\
         - Certificates for clients of exports are read again; connected clients stay, unless their own certificate is revoked.\n",
    );
    let (here, clients_and_server) = SORTS.split_at(3);
    out.extend(here.iter().map(table));
    let _ = write!(out, "\n## An example\n\n`fairlift config` prints it.\n\n```toml\n{EXAMPLE}```\n");
    check_document("config.md", &out);

    let mut out = format!(
        "# The config file: clients and the server\n\nExports, disks, groups, reloads and an example: [the config file](config.md). {MADE}\n"
    );
    out.extend(clients_and_server.iter().map(table));
    check_document("config-server.md", &out);
}

const MADE: &str = "Made from `cli/src/config/keys.rs`, `cli/src/ways/` and `cli/src/config/example.toml` by `UPDATE_DOCS=1 cargo test -p \
                    fairlift-cli`; do not edit.";

/// The section of a table of the file, with a row for each key.
fn table(sort: &Sort) -> String {
    let mut out = format!("\n## `{}`\n\n{}\n\n", sort.header, sort.says);
    let _ = writeln!(out, "| key | takes | default | meaning |\n|---|---|---|---|");
    for key in sort.keys() {
        let _ = writeln!(out, "| `{}` | {} | {} | {} |", key.name, key.takes, key.default, key.says);
    }
    out
}

#[test]
fn the_example_shows_every_key() {
    for sort in SORTS {
        for key in sort.keys() {
            // Tables that would keep others out stand behind #.
            let mut lines = EXAMPLE.lines().map(|line| line.strip_prefix("# ").unwrap_or(line));
            let written = lines.any(|line| line.starts_with(&format!("{} = ", key.name)));
            assert!(written, "{}: {} is not in the example", sort.header, key.name);
        }
    }
}
