//! What ceilings let through at most, by arithmetic that every user can do: so much a second, and a little.
//!
//! Counted is what goes to the disk. What was let through before may go later; so a count begins when nothing of the group is open,
//! or has room for all that is.

use fairlift_core::ceiling::{Ceiling, Rate};
use fairlift_core::time::ms;
use fairlift_core::{Bio, Duration, GroupId, Instant, Op, Sector};

/// How far ahead of its rate a group may be. That of the rules of ceilings, and one worker's lateness.
const AHEAD: Duration = ms(6);

/// A group's ceiling, and what passed it.
struct Meter {
    group: GroupId,
    ceiling: Ceiling,
    since: Instant,
    /// By rate: what passed since then, the largest single bio, and what could pass at once.
    passed: [u128; Rate::COUNT],
    largest: [u128; Rate::COUNT],
    open: [u128; Rate::COUNT],
}

/// The ceilings of a run.
#[derive(Default)]
pub(super) struct Meters(Vec<Meter>);

/// What a bio counts for a rate.
fn amount(rate: Rate, bio: &Bio) -> u128 {
    if bio.op == Op::Flush || !rate.counts(bio.op.direction()) {
        return 0;
    }
    match rate.counts_bytes() {
        false => 1,
        true if bio.op == Op::Discard => u128::from(Sector::SIZE),
        true => u128::from(bio.extent.bytes().get()),
    }
}

impl Meters {
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A group has another ceiling from now on; these bios of it, and of those below it, are open and did not go yet.
    pub(super) fn set<'a>(
        &mut self,
        now: Instant,
        group: GroupId,
        ceiling: Option<Ceiling>,
        open: impl Iterator<Item = &'a Bio>,
    ) {
        self.0.retain(|meter| meter.group != group);
        let Some(ceiling) = ceiling else { return };
        let mut meter = Meter { group, ceiling, since: now, passed: [0; 6], largest: [0; 6], open: [0; 6] };
        for bio in open {
            for rate in Rate::ALL {
                meter.open[rate as usize] += amount(rate, bio);
            }
        }
        self.0.push(meter);
    }

    /// A bio of a group goes to the disk: whether any ceiling is above it.
    ///
    /// # Errors
    /// The ceiling that lets too much through.
    pub(super) fn pass(&mut self, now: Instant, groups: &[GroupId], bio: &Bio) -> Result<bool, String> {
        let mut is_bound = false;
        for meter in self.0.iter_mut().filter(|meter| groups.contains(&meter.group)) {
            is_bound = true;
            for (rate, most) in meter.ceiling.max.iter() {
                let amount = amount(rate, bio);
                let at = rate as usize;
                meter.passed[at] += amount;
                meter.largest[at] = meter.largest[at].max(amount);
                let time = u128::from((now.since(meter.since) + AHEAD).as_nanos());
                let steady = u128::from(most) * time / 1_000_000_000;
                // What is saved for a burst, and no faster than the burst's rate.
                let burst = meter.ceiling.burst.get(rate).map_or(0, |fast| {
                    let beyond = u128::from(fast.saturating_sub(most)) * u128::from(meter.ceiling.length.as_nanos());
                    (beyond / 1_000_000_000 + 1).min(u128::from(fast) * time / 1_000_000_000)
                });
                let bound = steady + burst + meter.largest[at] + meter.open[at] + 1;
                if meter.passed[at] > bound {
                    return Err(format!(
                        "group {} may do {}={most}, and {} passed in {} where {bound} is the most",
                        meter.group.0,
                        rate.name(),
                        meter.passed[at],
                        now.since(meter.since)
                    ));
                }
            }
        }
        Ok(is_bound)
    }

    /// Nothing of any group is open: counts begin anew, for what was not used is not saved beyond a burst.
    pub(super) fn rest(&mut self, now: Instant) {
        for meter in &mut self.0 {
            // Behind a burst the group may still owe; to begin anew would only allow more, so it is no error.
            (meter.since, meter.passed, meter.largest, meter.open) = (now, [0; 6], [0; 6], [0; 6]);
        }
    }

    /// A group has gone.
    pub(super) fn remove(&mut self, group: GroupId) {
        self.0.retain(|meter| meter.group != group);
    }
}
