//! Readers of a stranger's bytes, which panic where a promise is broken: for the fuzz targets (`fuzz/`), whose seeds are tests here too.

use std::path::Path;
use std::sync::LazyLock;

use clap::{Args as _, FromArgMatches as _};
use fairlift::config::Config;
use fairlift::control::{Edit, difference};
use serde_json::Value;

use crate::blktrace::Taken;
use crate::config::read;
use crate::control::Changes;
use crate::serve::{ServeArgs, plan};
use crate::syntax::mistake::{Mistake, Source, render};
use crate::ways::Flags;

/// The configuration that changes are made of.
static SERVED: LazyLock<Config> = LazyLock::new(|| planned(SERVED_TEXT).unwrap_or_else(|shown| panic!("{shown}")));
const SERVED_TEXT: &str = r#"
disk.ssd.scheduler = "bfq"
disk.nvme = { scheduler = "none", depth = 64 }
group = { "/tenants" = { weight = 300 }, "/tenants/alice" = { weight = 200, max = "rbps=10m", burst = "rbps=20m" } }
export.alice = { backing = "null:1g", disk = "ssd", group = "/tenants/alice", ioprio = "rt/2" }
export.bob = { backing = "mem:1g", disk = "nvme", group = "/tenants/bob" }
server.listen = "unix:fairlift.sock"
"#;

/// Its flags: exports that are added have a socket for virtual machines, named after them.
static FLAGS: LazyLock<Flags> = LazyLock::new(|| {
    let matches = Flags::augment_args(clap::Command::new("serve")).get_matches_from(["serve", "--vhost-user", "/run"]);
    Flags::from_arg_matches(&matches).expect("they are its own")
});

/// Two config files, one after the other (`%%` on a line parts them), as a server reads them at its start and then again.
pub fn config(text: &str) {
    let (first, second) = text.split_once("\n%%\n").unwrap_or((text, text));
    if let (Ok(first), Ok(second)) = (planned(first), planned(second)) {
        turns(&first, &second.into());
    }
}

/// The body of a transaction, and its effect on a server.
pub fn control(body: &str) {
    let served = &*SERVED;
    let Ok(request) = serde_json::from_str::<Value>(body) else { return };
    let mut edit = Edit::from(served.clone());
    match Changes::new(&mut edit, &FLAGS, true, None).transaction(&request) {
        Ok(()) => turns(served, &edit),
        Err(says) => tells(&says),
    }
}

/// A trace as a server sends it: cut in two anywhere, it says the same.
pub fn trace(bytes: &[u8]) {
    let (mut whole, mut parts) = (Taken::default(), Taken::default());
    let cut = bytes.first().map_or(0, |first| usize::from(*first).min(bytes.len()));
    let in_parts = parts.add(&bytes[..cut]).and_then(|()| parts.add(&bytes[cut..]));
    assert_eq!(whole.add(bytes), in_parts);
    assert_eq!(whole.chrome(), parts.chrome());
}

/// The content of a file, if it is right; else its mistakes, each told well.
fn planned(text: &str) -> Result<Config, String> {
    let source = Source { name: "fairlift.toml".into(), text: text.into() };
    let mut mistakes = Vec::<Mistake>::new();
    let file = read(&source, Path::new("/srv"), &mut mistakes);
    let config = plan(&ServeArgs::default(), Some(file), Vec::new(), &mut mistakes).config;
    for mistake in &mistakes {
        tells(&mistake.line(Some(&source)));
    }
    let shown = render("error: ", Some(&source), &mistakes);
    assert!(!shown.chars().any(|c| c.is_control() && !"\n\t".contains(c)), "{shown:?} moves the cursor");
    assert!(
        shown.len() <= mistakes.len() * (4 * text.len() + 4096),
        "{} mistakes in {} bytes",
        mistakes.len(),
        shown.len()
    );
    if mistakes.is_empty() { Ok(config) } else { Err(shown) }
}

/// Checks that the steps from one to the other are told, or why there are none; and that nothing differs from itself.
fn turns(old: &Config, new: &Edit) {
    match difference(old, new) {
        Ok(steps) => steps.iter().for_each(|step| tells(&step.to_string())),
        Err(all) => return all.iter().for_each(|one| tells(&one.to_string())),
    }
    let left = difference(&new.config, &new.config.clone().into());
    assert!(left.as_ref().is_ok_and(Vec::is_empty), "it differs from itself: {left:?}");
}

/// That a line of the log or of an answer is one.
fn tells(says: &str) {
    assert!(!says.is_empty());
    assert!(!says.chars().any(char::is_control), "{says:?} is more than a line");
}

#[cfg(test)]
mod tests {
    use fairlift_lab::Random;

    use super::*;

    fn seeds(target: &str) -> impl Iterator<Item = Vec<u8>> {
        let there = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
        let all: Vec<_> =
            std::fs::read_dir(there).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect();
        assert!(!all.is_empty(), "{target} has seeds");
        all.into_iter()
    }

    /// A seed with some of it changed, as a fuzzer would.
    fn mutated(all: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
        const WORDS: [&[u8]; 8] = [b"0", b"-1", b"18446744073709551616", b"1e999", b"\"\"", b"\0", b"\xff", b"[{"];
        let below = |random: &mut Random, bound: usize| random.below(bound.max(1) as u64) as usize;
        let mut bytes = all[below(random, all.len())].clone();
        for _ in 0..=random.below(4) {
            let at = below(random, bytes.len());
            let to = (at + below(random, 12)).min(bytes.len());
            let other = &all[below(random, all.len())];
            let from = below(random, other.len());
            let put = match random.below(4) {
                0 => Vec::new(),
                1 => vec![random.below(256) as u8],
                2 => WORDS[below(random, WORDS.len())].to_vec(),
                _ => other[from..(from + below(random, 60)).min(other.len())].to_vec(),
            };
            bytes.splice(at..to, put);
        }
        bytes
    }

    /// All seeds, and 500 that are made of them: a fuzzer makes more (`FULL=1 tests/run fuzz`).
    fn each(target: &str, read: impl Fn(&[u8])) {
        let all: Vec<_> = seeds(target).collect();
        all.iter().for_each(|seed| read(seed));
        let mut random = Random::new(7);
        for _ in 0..500 {
            read(&mutated(&all, &mut random));
        }
    }

    #[test]
    fn a_file_that_anybody_wrote_is_read_or_its_mistakes_are_told_in_lines() {
        each("config", |seed| config(&String::from_utf8_lossy(seed)));
    }

    #[test]
    fn a_transaction_that_anybody_asks_for_is_made_or_refused_in_a_line() {
        each("control", |seed| control(&String::from_utf8_lossy(seed)));
    }

    #[test]
    fn a_trace_of_any_bytes_says_the_same_however_it_is_cut() {
        each("trace", trace);
    }
}
