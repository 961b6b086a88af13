//! The suite `power`: what was promised is on the disk, should the power fail at any instant ([`power_cut`](crate::power_cut)).

use fairlift_core::queue::{Backing, Settings};
use fairlift_core::sched::Kind;
use fairlift_core::{Group, GroupId, Limits, Sector, Weight};

use super::Verdict;
use crate::power_cut::OnFailure;
use crate::power_cut::random::{self, Faults};
use crate::power_cut::workers::Workers;
use crate::tally::{Broken, Count, Tally};
use fairlift_lab::Random;

/// The parameters of a run, and its queue.
pub(super) struct PowerRun {
    run: random::Settings,
    queue: Settings,
    /// A queue for each worker.
    are_many: bool,
}

impl PowerRun {
    pub(super) fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x706f_7765_7200);
        let r = &mut random;
        let mut one_of = |all: &[u64]| all[r.below(all.len() as u64) as usize];
        let forgetful = Faults { flush: 5, stuck: 0, on_failure: OnFailure::Forgets, remembers: true, ..Faults::SOME };
        let faults = [Faults::NONE, Faults::SOME, Faults { stuck: 20, ..Faults::SOME }, forgetful]
            [one_of(&[0, 1, 2, 3]) as usize];
        let run = random::Settings {
            clients: one_of(&[1, 2, 3, 6, 12]) as u32,
            contexts: one_of(&[1, 2, 3]) as u16,
            groups: one_of(&[1, 2, 5]) as u16,
            places: one_of(&[1, 1, 2]),
            place: one_of(&[4, 12, 24]).max(8),
            fua: one_of(&[0, 1]) == 1,
            bios: one_of(&[100, 400, 1000]),
            faults,
            ..random::Settings::new(seed)
        };
        let kind = Kind::ALL[one_of(&[0, 0, 1, 2, 3, 4]) as usize];
        // No request goes to two backings: the server has a gap between them (disk.1), here is none.
        let limits = Limits {
            rw_max: one_of(&[1, 2, 4, 8]) as u32,
            boundary: run.place,
            segments_max: one_of(&[1, 2, 16]) as u16,
            ..Limits::new(run.sectors())
        };
        let child =
            |number| Group { path: format!("/{number}"), parent: Some(GroupId::ROOT), weight: Weight::new(100) };
        let groups = std::iter::once(Group::root()).chain((1..run.groups).map(child)).collect();
        let backing = |number| Backing { start: Sector(number * run.place), fua: run.fua, ..Backing::default() };
        let depth = one_of(&[1, 2, 6, 16]) as u16;
        let mut queue = Settings {
            depth,
            nr_requests: u32::from(depth) + one_of(&[0, 2, 18, 200]) as u32,
            contexts: run.contexts,
            groups,
            nomerges: one_of(&[0, 0, 1]) == 1,
            backings: (0..run.places).map(backing).collect(),
            ..Settings::new(kind, limits)
        };
        queue.flush.remember = run.faults.remembers;
        queue.flush.ahead = one_of(&[0, 1]) == 1;
        queue.flush.charge = one_of(&[0, 1]) == 1;
        let run = random::Settings { changes: one_of(&[0, 0, 2, 20]), ..run };
        Self { run, queue, are_many: kind == Kind::None && one_of(&[0, 1, 1]) == 1 }
    }

    pub(super) const fn bios(&self) -> u64 {
        self.run.bios
    }

    pub(super) fn says(&self) -> String {
        let Settings { scheduler, depth, .. } = &self.queue;
        let random::Settings { contexts, clients, places, place, changes, faults, .. } = &self.run;
        let workers = if self.are_many { "a queue for each of" } else { "one queue for" };
        format!(
            "{}, {workers} {contexts} workers, depth {depth}, {clients} clients, {places} devices of {place} sectors, \
             changes {changes}, {faults:?}",
            scheduler.name()
        )
    }

    /// The run, until `bios` were asked for.
    pub(super) fn go(&self, bios: u64) -> Verdict {
        let run = random::Settings { bios, ..self.run };
        let mut subject = if self.are_many { Workers::apart(&self.queue) } else { Workers::together(&self.queue) };
        match random::run(&run, &mut subject) {
            Ok(mut tally) => {
                tally.one(Count::Runs);
                Verdict { tally, broken: None }
            }
            Err(says) => {
                let promise = if self.run.faults.remembers { "D2" } else { "D1" };
                Verdict { tally: Tally::default(), broken: Some(Broken::new(promise, says)) }
            }
        }
    }
}
