//! A disk on paper, probed in virtual time.

use fairlift_core::Sector;
use fairlift_core::sched::Kind;

use super::{Area, Facts, UnderTest, Way};
use crate::iostest::{Case, Failure, Measured, Modelled, Runner as _, Watch};
use crate::model::Spec;

/// Runs probes on a model.
#[derive(Clone, Debug)]
pub struct Paper {
    /// The disk.
    pub spec: Spec,
    /// Whether it is written to as well.
    pub write: bool,
}

impl UnderTest for Paper {
    fn facts(&self) -> Facts {
        let limits = self.spec.build(1).limits();
        let bytes = limits.capacity * Sector::SIZE;
        let block = limits.block * Sector::SIZE as u32;
        Facts { bytes, block, scratch: self.write.then_some(bytes), at_rest: true }
    }

    fn run(&mut self, way: Way, _place: Area, case: &Case, watch: Watch<'_>) -> Result<Measured, Failure> {
        let (scheduler, set) = way.setting();
        let set = set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Modelled { spec: self.spec.clone(), scheduler, set, depth: None }.run(case, watch)
    }
}

impl Way {
    /// The scheduler and its tunables, where all goes through a queue.
    #[must_use]
    pub const fn setting(self) -> (Kind, &'static [(&'static str, &'static str)]) {
        match self {
            Self::Straight => (Kind::None, &[("flush_coordinate", "0")]),
            Self::Idling => (Kind::Cfq, &[("slice_idle", "8ms")]),
            Self::NotIdling => (Kind::Cfq, &[("slice_idle", "0")]),
            Self::Shared => (Kind::None, &[]),
        }
    }
}
