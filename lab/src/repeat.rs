//! How a run that failed is repeated: one command, with the seed and the commit.
//!
//! A random test fails once in a thousand runs, on a machine that is gone by the time a developer looks. Its output is left. So whatever is
//! random here asks this module for its seeds, and a failure ends with two lines:
//!
//! ```text
//! to repeat it, at commit 65c8df81f2c3:
//!   FAIRLIFT_SEED=17 cargo test -p fairlift-core --test bfq -- --exact nothing_is_lost
//! ```
//!
//! repeat.1  [`seeds`] gives a test its seeds; with `FAIRLIFT_SEED` there is that one only. `FAIRLIFT_SEEDS` is how many
//!           there are otherwise.
//! repeat.2  [`proptest!`](crate::proptest) draws one seed, from which all cases of the test follow.
//! repeat.3  The lines come on the way out of a panic, behind what the panic says.

use std::fmt::Write as _;
use std::hash::{BuildHasher as _, RandomState};
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::{env, thread};

/// The seeds of a random test: those in `usual`, unless the environment says otherwise (repeat.1).
///
/// ```
/// for seed in fairlift_lab::repeat::seeds(0..60) {
///     assert!(seed < 60);
/// }
/// ```
#[must_use]
pub fn seeds(usual: Range<u64>) -> Seeds {
    let many = number("FAIRLIFT_SEEDS").map_or(usual.clone(), |count| usual.start..usual.start + count);
    Seeds { left: named().map_or(many, |seed| seed..seed + 1), now: None }
}

/// One seed, drawn anew for each run of the program, unless the environment names it.
#[must_use]
pub fn drawn() -> Seeds {
    let seed = named().unwrap_or_else(|| RandomState::new().hash_one(0) >> 1);
    Seeds { left: seed..seed + 1, now: None }
}

/// The seed that the environment asks for: what a test says of many runs together is then not to be expected.
#[must_use]
pub fn named() -> Option<u64> {
    number("FAIRLIFT_SEED")
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} takes a number, not {text:?}")))
}

/// Seeds, and at a panic what repeats the run of the last one.
#[derive(Debug)]
pub struct Seeds {
    left: Range<u64>,
    now: Option<u64>,
}

impl Iterator for Seeds {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.now = self.left.next();
        self.now
    }
}

impl Drop for Seeds {
    fn drop(&mut self) {
        if let Some(seed) = self.now.filter(|_| thread::panicking()) {
            eprintln!("{}", lines(&test(seed), &commit()));
        }
    }
}

/// The command that repeats a run that is no test; printed at a panic while this exists.
#[derive(Debug)]
pub struct Guard<'a> {
    /// The command line.
    pub command: &'a str,
    /// The commit that the program was built from.
    pub commit: &'a str,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", lines(self.command, self.commit));
        }
    }
}

/// The two lines with which a failure ends.
#[must_use]
pub fn lines(command: &str, commit: &str) -> String {
    format!("to repeat it, at commit {commit}:\n  {command}")
}

/// The command that runs the test of this thread again, with that seed.
fn test(seed: u64) -> String {
    let mut command = format!("FAIRLIFT_SEED={seed} ");
    for (name, value) in env::vars().filter(|(name, _)| name.starts_with("PROPTEST_")) {
        let _ = write!(command, "{name}={value} ");
    }
    let program = env::current_exe().unwrap_or_default();
    match env::var("CARGO_PKG_NAME") {
        Ok(package) => {
            let release = if cfg!(debug_assertions) { "" } else { " --release" };
            let _ = write!(command, "cargo test{release} -p {package} {} --", target(&package, &program));
        }
        Err(_) => command.push_str(&program.display().to_string()),
    }
    // Tests have the name of their thread; with --test-threads=1 they have none of their own.
    if let Some(name) = thread::current().name().filter(|name| *name != "main") {
        let _ = write!(command, " --exact {name}");
    }
    command
}

/// `--lib`, `--bin NAME` or `--test NAME`, from where cargo puts the program: `target/debug/deps/NAME-0123456789abcdef`.
fn target(package: &str, program: &Path) -> String {
    let stem = program.file_stem().unwrap_or_default().to_string_lossy();
    let name = stem.rsplit_once('-').map_or(&*stem, |(name, _)| name);
    let folder = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let is_test = |file: String| Path::new(&folder).join("tests").join(file).exists();
    if is_test(format!("{name}.rs")) || is_test(format!("{name}/main.rs")) {
        format!("--test {name}")
    } else if name == package.replace('-', "_") {
        "--lib".into()
    } else {
        format!("--bin {name}")
    }
}

/// The commit that is checked out, and whether more than that was compiled.
#[must_use]
pub fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown (no git here)".into() };
    let is_changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|changes| !changes.is_empty());
    commit + if is_changed { ", with changes that are not committed" } else { "" }
}

/// As `proptest::proptest!`, with all cases drawn from one seed, which a failure names (repeat.2).
///
#[macro_export]
macro_rules! proptest {
    (
        #![proptest_config($config:expr)]
        $($(#[$meta:meta])* fn $name:ident($($arguments:tt)+) $body:block)*
    ) => {
        $(
            $(#[$meta])*
            fn $name() {
                for seed in $crate::repeat::drawn() {
                    let rng_seed = ::proptest::test_runner::RngSeed::Fixed(seed);
                    let config = ::proptest::test_runner::Config { rng_seed, ..$config };
                    ::proptest::proptest!(config, |($($arguments)+)| $body);
                }
            }
        )*
    };
    ($($(#[$meta:meta])* fn $name:ident($($arguments:tt)+) $body:block)*) => {
        $crate::proptest! {
            #![proptest_config(::proptest::test_runner::Config::default())]
            $($(#[$meta])* fn $name($($arguments)+) $body)*
        }
    };
}
