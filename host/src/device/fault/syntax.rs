//! The rules of a backing with faults: the requests that fail, the fault, and how often.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use fairlift_core::{Duration, Errno, Op};

use super::BeforeDevice;
use crate::device::backing::{About, BackingKind, Outside, Sharing, Syntax, path_of};
use crate::device::roots::Roots;
use crate::device::{Backing, Device};

/// A backing that fails some requests, by rules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Faulty {
    /// As the user wrote it when it was opened: `fault:rules.toml,inner=mem:1g`.
    pub name: String,
    /// Where the rules were read.
    pub path: PathBuf,
    /// The rules.
    pub faults: Faults,
    /// The backing below the faults: of any kind.
    pub inner: Backing,
}

/// Rules, asked in this order: the first one that strikes decides.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Faults {
    /// The seed of all chance.
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
    /// The number of fitting requests that pass before one is struck.
    pub after: u64,
    /// The largest number of struck requests; `None`: all.
    pub times: Option<u64>,
    /// How likely it is that one is struck, of [`Rule::SURE`].
    pub chance: u64,
    /// How long it is held before anything happens to it.
    pub delay: Duration,
    /// The fault.
    pub then: Then,
}

/// The fault of a request that a rule has struck.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// The device does it.
    Go,
    /// It fails; the device has not seen it.
    Fail(Errno),
    /// The device moves at most this number of bytes, by whole blocks; then it fails with `EIO`, as does a request on a file that was cut.
    Short(u64),
    /// Nothing, until there are other rules: they are asked for it anew.
    Hang,
}

impl Rule {
    /// The [`chance`](Self::chance) of a rule that leaves nothing to it.
    pub const SURE: u64 = 1 << 53;

    /// A rule that strikes each request.
    #[must_use]
    pub const fn each(then: Then) -> Self {
        Self { ops: Vec::new(), range: None, after: 0, times: None, chance: Self::SURE, delay: Duration::ZERO, then }
    }
}

pub(in crate::device) const SYNTAX: Syntax =
    Syntax { schemes: &["fault"], form: "fault:RULES,inner=BACKING", takes: "fault:RULES,inner=BACKING", parse };

impl BackingKind for Faulty {
    fn about(&self) -> About<'_> {
        let inner = self.inner.about();
        About {
            written: format!("fault:{},inner={}", self.path.display(), inner.written),
            name: self.name.clone(),
            shown: format!("{}, with faults", inner.shown),
            ..inner
        }
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        let mut all = vec![&mut self.path];
        all.extend(self.inner.paths());
        all
    }

    fn sharing(&self, _disk: Option<usize>) -> Sharing {
        Sharing::Name(self.name.clone())
    }

    fn open(&self, read_only: bool, roots: &Roots) -> Result<Arc<dyn Device>, String> {
        Ok(Arc::new(BeforeDevice::new(self, self.inner.kind().open(read_only, roots)?)))
    }

    fn try_open(&self, read_only: bool, roots: &Roots) -> Result<Arc<dyn Device>, String> {
        Ok(Arc::new(BeforeDevice::new(self, self.inner.kind().try_open(read_only, roots)?)))
    }
}

/// Reads `RULES,inner=BACKING`: all that follows is the inner backing's. The rules themselves are read when it is known where they are.
fn parse(text: &str, outside: &Outside) -> Result<Backing, String> {
    const FORM: &str = "fault:RULES,inner=BACKING, as in fault:rules.toml,inner=file:disk.img";
    let needs = || format!("fault: needs a file with rules, and the backing that they are for: {FORM}");
    let (rules, inner) = text.split_once(",inner=").ok_or_else(needs)?;
    let path = path_of(rules, needs)?;
    let inner = Backing::parse(inner, outside).map_err(|why| format!("fault: inner: {why}"))?;
    let faults = Faults::default();
    Ok(Faulty { name: format!("fault:{text}"), path, faults, inner }.into())
}
