//! placeholder, being written
use super::*;
use crate::time::{ms, secs};
use crate::tunable::{Tunable, infos};
/// x
#[derive(Clone)]
pub struct Settings {
    read_expire: Duration,
}
impl Default for Settings {
    fn default() -> Self {
        Self { read_expire: ms(500) }
    }
}
const ROWS: [Tunable<Settings>; 1] = [Tunable::duration("read_expire", (ms(0), secs(60)), |s| &mut s.read_expire, "x")];
impl Settings {
    /// x
    pub const INFO: &[TunableInfo] = &infos(&ROWS);
}
/// x
pub struct Deadline(super::none::None);
impl Deadline {
    /// x
    pub fn new(c: usize, _s: Settings) -> Self {
        Self(super::none::None::new(c))
    }
}
impl Scheduler for Deadline {
    fn insert(&mut self, n: Instant, r: &Waiting) {
        self.0.insert(n, r)
    }
    fn dispatch(&mut self, n: Instant) -> Next {
        self.0.dispatch(n)
    }
    fn requeue(&mut self, n: Instant, r: &Waiting) {
        self.0.requeue(n, r)
    }
    fn len(&self) -> usize {
        self.0.len()
    }
}
