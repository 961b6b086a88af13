//! What a backing with faults is told: which requests fail, how, and how often.

use std::ops::Range;
use std::path::PathBuf;

use fairlift_core::{Duration, Errno, Op};

use super::Backing;

/// A backing of which some requests fail, as rules say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Faulty {
    /// As the user wrote it when it was opened: `fault:rules.toml,inner=mem:1g`.
    pub name: String,
    /// Where the rules were read.
    pub path: PathBuf,
    /// What they say.
    pub faults: Faults,
    /// What is between the faults: a backing of any kind.
    pub inner: Backing,
}

/// Rules, asked in this order: the first one that strikes decides.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Faults {
    /// What is left to chance follows from this.
    pub seed: u64,
    /// The rules.
    pub rules: Vec<Rule>,
}

/// Which requests meet a fault, and which fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Of these operations; none: of all.
    pub ops: Vec<Op>,
    /// Those that touch these bytes of the backing; `None`: wherever they are. A flush is nowhere.
    pub range: Option<Range<u64>>,
    /// So many that fit are let through before one is struck.
    pub after: u64,
    /// So many are struck at most; `None`: all.
    pub times: Option<u64>,
    /// How likely it is that one is struck, of [`Rule::SURE`].
    pub chance: u64,
    /// How long it is held before anything happens to it.
    pub delay: Duration,
    /// What happens then.
    pub then: Then,
}

/// What happens to a request that a rule has struck.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// The device does it.
    Go,
    /// It fails; the device has not seen it.
    Fail(Errno),
    /// The device moves so many bytes of it, or less, by whole blocks; then it fails with `EIO`, as does a request on a file that was cut.
    Short(u64),
    /// Nothing, until there are other rules: they are asked for it anew.
    Hang,
}

impl Rule {
    /// The [`chance`](Self::chance) of a rule that leaves nothing to it.
    pub const SURE: u64 = 1 << 53;
}
