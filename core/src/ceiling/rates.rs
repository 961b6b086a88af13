//! Rates as people write them: an amount of this a second.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::request::named;
use crate::stats::Counters;
use crate::time::secs;
use crate::{Direction, Duration};

named! {
    /// A kind of rate, in the words of the kernel's `io.max` and QEMU's totals.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum Rate {
        /// Bytes read.
        Rbps = "rbps",
        /// Bytes written.
        Wbps = "wbps",
        /// Reads.
        Riops = "riops",
        /// Writes, and all else that changes the disk.
        Wiops = "wiops",
        /// Bytes read and written.
        Bps = "bps",
        /// Reads, writes, and all else that changes the disk.
        Iops = "iops",
    }
}

impl Rate {
    /// Its amount of counted reads and writes.
    #[must_use]
    pub const fn amount(self, [reads, writes]: &[Counters; 2]) -> u64 {
        match self {
            Self::Rbps => reads.bytes,
            Self::Wbps => writes.bytes,
            Self::Riops => reads.ops,
            Self::Wiops => writes.ops,
            Self::Bps => reads.bytes + writes.bytes,
            Self::Iops => reads.ops + writes.ops,
        }
    }

    /// Whether it counts bytes, and not I/Os.
    #[must_use]
    pub const fn counts_bytes(self) -> bool {
        matches!(self, Self::Rbps | Self::Wbps | Self::Bps)
    }

    /// Whether it counts what goes this way.
    #[must_use]
    pub const fn counts(self, direction: Direction) -> bool {
        match self {
            Self::Rbps | Self::Riops => matches!(direction, Direction::Read),
            Self::Wbps | Self::Wiops => matches!(direction, Direction::Write),
            Self::Bps | Self::Iops => true,
        }
    }

    /// The largest that can be said. Chosen: beyond any device, and the time of one byte or I/O is still known to 1 %.
    #[must_use]
    pub const fn most(self) -> u64 {
        if self.counts_bytes() { 1_000_000_000_000 } else { 1_000_000_000 }
    }
}

/// Rates of some kinds, a second; of the others nothing is said.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Rates([u64; Rate::COUNT]);

impl Rates {
    /// Nothing is said.
    pub const NONE: Self = Self([0; Rate::COUNT]);

    /// The same, and this rate.
    #[must_use]
    pub const fn with(mut self, rate: Rate, amount: u64) -> Self {
        self.0[rate as usize] = amount;
        self
    }

    /// The amount of a rate, if it has one.
    #[must_use]
    pub const fn get(&self, rate: Rate) -> Option<u64> {
        match self.0[rate as usize] {
            0 => None,
            amount => Some(amount),
        }
    }

    /// Whether nothing is said.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// All that is said.
    pub fn iter(&self) -> impl Iterator<Item = (Rate, u64)> + '_ {
        Rate::ALL.into_iter().filter_map(|rate| Some((rate, self.get(rate)?)))
    }
}

/// As in the kernel's `io.max`: `rbps=104857600 wiops=3000`; `max` where nothing is said.
impl fmt::Display for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return f.write_str("max");
        }
        for (index, (rate, amount)) in self.iter().enumerate() {
            write!(f, "{}{}={amount}", if index > 0 { " " } else { "" }, rate.name())?;
        }
        Ok(())
    }
}

/// An amount a second at most, and a larger one for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ceiling {
    /// At most.
    pub max: Rates,
    /// At most, during a burst; each is at least that of `max`, which says it too.
    pub burst: Rates,
    /// How long a burst at those rates may be.
    pub length: Duration,
}

impl Ceiling {
    /// No ceiling at all.
    pub const NONE: Self = Self { max: Rates::NONE, burst: Rates::NONE, length: secs(1) };
    /// The longest burst: a day. Chosen: no longer one is a burst.
    pub const LENGTH_MAX: Duration = secs(86_400);

    /// A ceiling without bursts.
    #[must_use]
    pub const fn of(max: Rates) -> Self {
        Self { max, ..Self::NONE }
    }

    /// Whether it binds nothing.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.max.is_none()
    }
}

impl Default for Ceiling {
    fn default() -> Self {
        Self::NONE
    }
}

/// The bounds of a group: ceiling, floor and latency.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Bounds {
    /// At most.
    pub ceiling: Ceiling,
    /// At least, as far as the disk can.
    pub floor: Rates,
    /// How long its reads and writes take at most, 99 of 100 of them ([`objective`](crate::objective)).
    pub latency: Option<Duration>,
}

impl Bounds {
    /// Each kind of bound as it is written, without its name; `None`: there is none of it.
    #[must_use]
    pub fn named(&self) -> [(&'static str, Option<String>); 4] {
        let Ceiling { max, burst, length } = self.ceiling;
        let rates = |rates: Rates| (!rates.is_none()).then(|| rates.to_string());
        let burst = rates(burst).map(|burst| format!("{burst} seconds={}", length.as_millis() / 1000));
        let latency = self.latency.map(|latency| latency.to_string());
        [("max", rates(max)), ("burst", burst), ("min", rates(self.floor)), ("latency", latency)]
    }
}

/// As it is written: `max riops=3000, burst riops=30000 seconds=5`.
impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return f.write_str("no limits");
        }
        let all = self.named().into_iter().filter_map(|(name, is)| Some(format!("{name} {}", is?)));
        f.write_str(&all.collect::<Vec<_>>().join(", "))
    }
}

/// A contradiction in bounds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrong {
    /// The key that it was said with.
    pub key: &'static str,
    why: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl core::error::Error for Wrong {}

impl Bounds {
    /// Whether nothing is bound.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.ceiling.is_none() && self.floor.is_none() && self.latency.is_none()
    }

    /// Whether the root can have it, which [`check`](Self::check) does not ask.
    ///
    /// # Errors
    /// Bounds that the root cannot have.
    pub fn check_root(&self) -> Result<(), Wrong> {
        if !self.floor.is_none() {
            let why = "the root has all of the disk, so that a floor of it would mean nothing".into();
            return Err(Wrong { key: "min", why });
        }
        if self.latency.is_some() {
            let why = "the root has no siblings that could make room for its latency".into();
            return Err(Wrong { key: "latency", why });
        }
        Ok(())
    }

    /// Whether all of it can be kept.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), Wrong> {
        let Self { ceiling: Ceiling { max, burst, length }, floor, latency: _ } = self;
        let wrong = |key, why| Err(Wrong { key, why });
        for (rate, amount) in max.iter().chain(burst.iter()).chain(floor.iter()) {
            if amount > rate.most() {
                return wrong("max", format!("{} takes 1 to {}, not {amount}", rate.name(), rate.most()));
            }
        }
        for (rate, amount) in burst.iter() {
            let name = rate.name();
            let Some(max) = max.get(rate) else {
                let why = format!("a burst of {name} needs a max of {name}: a rate without a limit has no bursts");
                return wrong("burst", why);
            };
            if amount < max {
                let why = format!("a burst of {name}={amount} is below the max of {max} that it is to exceed");
                return wrong("burst", why);
            }
        }
        if *length == Duration::ZERO || *length > Ceiling::LENGTH_MAX {
            return wrong(
                "burst",
                format!("a burst is above 0 and at most {} long, not {length}", Ceiling::LENGTH_MAX),
            );
        }
        for (low, min) in floor.iter() {
            // Reads are also part of all: at least 500 reads and at most 300 I/Os is impossible too.
            for (high, max) in max.iter() {
                let covers =
                    high == low || high == Rate::Iops && !low.counts_bytes() || high == Rate::Bps && low.counts_bytes();
                if covers && min > max {
                    let (low, high) = (low.name(), high.name());
                    return wrong("min", format!("min {low}={min} is above max {high}={max}: both cannot hold"));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    fn max(rate: Rate, amount: u64) -> Ceiling {
        Ceiling::of(Rates::NONE.with(rate, amount))
    }

    #[test]
    fn a_rate_counts_reads_or_writes_or_both_by_operations_or_bytes() {
        let counted = |ops, bytes| Counters { ops, bytes, ..Counters::default() };
        let done = [counted(1, 10), counted(2, 200)];
        let amount = |name: &str| Rate::ALL.into_iter().find(|rate| rate.name() == name).unwrap().amount(&done);
        assert_eq!(["riops", "wiops", "iops"].map(amount), [1, 2, 3]);
        assert_eq!(["rbps", "wbps", "bps"].map(amount), [10, 200, 210]);
    }

    #[test]
    fn what_cannot_be_kept_is_said() {
        let of = |ceiling| Bounds { ceiling, ..Bounds::default() };
        let burst = |rate, amount| Ceiling { burst: Rates::NONE.with(rate, amount), ..max(Rate::Iops, 100) };
        let at_least = |rate, amount| Bounds {
            ceiling: max(Rate::Iops, 100),
            floor: Rates::NONE.with(rate, amount),
            latency: None,
        };
        for (bounds, wanted) in [
            (of(max(Rate::Riops, 2_000_000_000)), "riops takes 1 to 1000000000, not 2000000000"),
            (
                of(burst(Rate::Riops, 200)),
                "a burst of riops needs a max of riops: a rate without a limit has no bursts",
            ),
            (of(burst(Rate::Iops, 99)), "a burst of iops=99 is below the max of 100 that it is to exceed"),
            (
                of(Ceiling { length: Duration::ZERO, ..burst(Rate::Iops, 200) }),
                "a burst is above 0 and at most 86400s long, not 0s",
            ),
            (at_least(Rate::Iops, 101), "min iops=101 is above max iops=100: both cannot hold"),
            (at_least(Rate::Riops, 101), "min riops=101 is above max iops=100: both cannot hold"),
        ] {
            assert_eq!(bounds.check().unwrap_err().to_string(), wanted);
        }
        for bounds in [
            Bounds::default(),
            of(max(Rate::Iops, 1)),
            of(max(Rate::Iops, 1_000_000_000)),
            of(burst(Rate::Iops, 100)),
            at_least(Rate::Iops, 100),
            at_least(Rate::Rbps, 1 << 30),
        ] {
            assert_eq!(bounds.check(), Ok(()), "{bounds:?}");
        }
    }

    #[test]
    fn rates_are_written_as_the_kernel_writes_them() {
        let rates = Rates::NONE.with(Rate::Wiops, 3000).with(Rate::Rbps, 104_857_600);
        assert_eq!(rates.to_string(), "rbps=104857600 wiops=3000");
        assert_eq!(Rates::NONE.to_string(), "max");
    }
}
