//! The most that ceilings let through, by arithmetic that every user can do: a rate, and a little.
//!
//! The meters count requests that go to the disk. Requests let through before may go later; so a count begins when nothing of the group is
//! open, or has room for all that is. Each count is kept twice: since nothing was open, which sees a burst too large; and since the ceiling
//! was set, which sees what leaks a little each time.

use fairlift_core::ceiling::{Ceiling, Rate};
use fairlift_core::time::ms;
use fairlift_core::{Bio, Duration, GroupId, Instant, Op};

/// How far ahead of its rate a group may be. That of the rules of ceilings, and one worker's lateness.
const AHEAD: Duration = ms(6);

/// A group's ceiling, and the requests that passed it.
struct Meter {
    group: GroupId,
    ceiling: Ceiling,
    /// Since nothing was open.
    short: Span,
    /// Since the ceiling was set.
    long: Span,
}

/// The amount that passed since some time.
#[derive(Clone, Copy)]
struct Span {
    since: Instant,
    /// By rate: the amount since then, the largest single bio, and the amount that could pass at once.
    passed: [u128; Rate::COUNT],
    largest: [u128; Rate::COUNT],
    open: [u128; Rate::COUNT],
}

/// The ceilings of a run.
#[derive(Default)]
pub(super) struct Meters(Vec<Meter>);

/// The cost of a bio for a rate: a table of its own, because the code under test is not asked.
fn amount(rate: Rate, bio: &Bio) -> u128 {
    let bytes = match bio.op {
        Op::Discard => 512,
        _ => u128::from(bio.extent.sectors) * 512,
    };
    match (rate, bio.op) {
        (_, Op::Flush) => 0,
        (Rate::Rbps | Rate::Bps, Op::Read) => bytes,
        (Rate::Riops | Rate::Iops, Op::Read) => 1,
        (Rate::Wbps | Rate::Wiops, Op::Read) => 0,
        (Rate::Wbps | Rate::Bps, _) => bytes,
        (Rate::Wiops | Rate::Iops, _) => 1,
        (Rate::Rbps | Rate::Riops, _) => 0,
    }
}

impl Span {
    const fn new(since: Instant) -> Self {
        Self { since, passed: [0; Rate::COUNT], largest: [0; Rate::COUNT], open: [0; Rate::COUNT] }
    }

    /// Adds to the amount that passed a rate of a ceiling.
    fn pass(&mut self, now: Instant, ceiling: &Ceiling, (rate, most): (Rate, u64), amount: u128) -> Result<(), String> {
        let at = rate as usize;
        self.passed[at] += amount;
        self.largest[at] = self.largest[at].max(amount);
        let time = u128::from((now.since(self.since) + AHEAD).as_nanos());
        let steady = u128::from(most) * time / 1_000_000_000;
        // The savings for a burst, and no faster than the burst's rate.
        let burst = ceiling.burst.get(rate).map_or(0, |fast| {
            let beyond = u128::from(fast.saturating_sub(most)) * u128::from(ceiling.length.as_nanos());
            (beyond / 1_000_000_000 + 1).min(u128::from(fast) * time / 1_000_000_000)
        });
        let bound = steady + burst + self.largest[at] + self.open[at] + 1;
        if self.passed[at] <= bound {
            return Ok(());
        }
        let (name, passed, time) = (rate.name(), self.passed[at], now.since(self.since));
        Err(format!("may do {name}={most}, and {passed} passed in {time} where {bound} is the most"))
    }
}

impl Meters {
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A group has another ceiling from now on, or none, as one that is removed; these bios of it, and of those below it, are open and did not go yet.
    pub(super) fn set<'a>(
        &mut self,
        now: Instant,
        group: GroupId,
        ceiling: Option<Ceiling>,
        open: impl Iterator<Item = &'a Bio>,
    ) {
        self.0.retain(|meter| meter.group != group);
        let Some(ceiling) = ceiling else { return };
        let mut window = Span::new(now);
        for bio in open {
            for rate in Rate::ALL {
                window.open[rate as usize] += amount(rate, bio);
            }
        }
        self.0.push(Meter { group, ceiling, short: window, long: window });
    }

    /// A bio of a group goes to the disk: whether any ceiling is above it.
    ///
    /// # Errors
    /// The ceiling that lets too much through.
    pub(super) fn pass(&mut self, now: Instant, groups: &[GroupId], bio: &Bio) -> Result<bool, String> {
        let mut is_bound = false;
        for meter in self.0.iter_mut().filter(|meter| groups.contains(&meter.group)) {
            is_bound = true;
            let Meter { group, ceiling, short, long } = meter;
            for (rate, most) in ceiling.max.iter() {
                for window in [&mut *short, &mut *long] {
                    let passes = window.pass(now, ceiling, (rate, most), amount(rate, bio));
                    passes.map_err(|says| format!("group {} {says}", group.0))?;
                }
            }
        }
        Ok(is_bound)
    }

    /// Nothing of any group is open: the short counts begin anew, for unused rate is not saved beyond a burst.
    pub(super) fn rest(&mut self, now: Instant) {
        for meter in &mut self.0 {
            // Behind a burst the group may still owe; to begin anew would only allow more, so it is no error.
            meter.short = Span::new(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlift_core::{Extent, Flags, Sector, StreamId, Token};

    #[test]
    fn one_client_that_asks_for_one_thing_at_a_time_is_held_to_its_ceiling() {
        let ceiling = Ceiling { max: Ceiling::NONE.max.with(Rate::Iops, 1000), ..Ceiling::NONE };
        let read = Extent::new(Sector(0), 1);
        let bio = Bio { op: Op::Read, flags: Flags::NONE, extent: read, stream: StreamId(0), token: Token(0) };
        for (gap, is_kept) in [(ms(1), true), (Duration::from_nanos(500_000), false)] {
            let (mut meters, mut now) = (Meters::default(), Instant::ZERO);
            meters.set(now, GroupId::ROOT, Some(ceiling), std::iter::empty());
            let passes = (0..100).all(|_| {
                now += gap;
                let passes = meters.pass(now, &[GroupId::ROOT], &bio).is_ok();
                meters.rest(now); // it has ended, and nothing is open
                passes
            });
            assert_eq!(passes, is_kept, "one read each {gap}");
        }
    }
}
