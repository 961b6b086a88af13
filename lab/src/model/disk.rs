//! Hard disk (to be written: takes the same time for everything).

use std::collections::VecDeque;

use fairlift_core::model::{Asked, Character, Ended, Model, Work};
use fairlift_core::time::{ms, secs, us};
use fairlift_core::tunable::{self, Tunable, TunableInfo};
use fairlift_core::{Duration, Instant, Limits, Outcome};

/// Its numbers.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long every request takes.
    pub latency: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { latency: ms(1) }
    }
}

impl Settings {
    /// What can be changed.
    pub const TUNABLES: &[Tunable<Self>] = &Self::ROWS;
    /// The same, described.
    pub const INFO: &[TunableInfo] = &tunable::infos(&Self::ROWS);
    const ROWS: [Tunable<Self>; 1] =
        [Tunable::duration("latency", (us(1), secs(1)), |s| &mut s.latency, "how long every request takes")];

    pub(crate) fn check(&self, _size: u64) -> Result<(), String> {
        Ok(())
    }
}

/// The model.
pub struct Disk {
    settings: Settings,
    sectors: u64,
    under_way: VecDeque<Ended>,
    work: Work,
}

impl Disk {
    /// At rest.
    #[must_use]
    pub fn new(settings: Settings, sectors: u64, _seed: u64) -> Self {
        Self { settings, sectors, under_way: VecDeque::new(), work: Work::default() }
    }
}

impl Model for Disk {
    fn limits(&self) -> Limits {
        Limits::new(self.sectors)
    }

    fn character(&self) -> Character {
        Character { rotational: true, volatile_cache: true }
    }

    fn submit(&mut self, now: Instant, asked: &Asked) {
        self.under_way.push_back(Ended { at: now + self.settings.latency, id: asked.id, outcome: Outcome::Done });
    }

    fn poll_event(&self) -> Option<Instant> {
        self.under_way.front().map(|ended| ended.at)
    }

    fn advance(&mut self, now: Instant, ended: &mut Vec<Ended>) {
        while let Some(first) = self.under_way.pop_front_if(|first| first.at <= now) {
            self.work.requests += 1;
            ended.push(first);
        }
    }

    fn work(&self) -> Work {
        self.work
    }
}
