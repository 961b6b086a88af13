//! Bursts: streams that come together belong together, and are not raised.
//!
//! When many streams start at once (a service, a boot, a parallel job), what counts is how fast all of them get on; to
//! raise each would only raise none. A lone stream that starts is somebody who waits: see [`weight_raising`](super::weight_raising).
//!
//! burst.1  A stream that comes within 180 ms after the one before, in the same group, is of the same burst.
//! burst.2  A burst is large from its eighth stream on, and then all of its streams are in a large burst, those that came before
//!     as well.
//! burst.3  A stream leaves its burst when it was idle for ten seconds, or goes to another group: the caller says so.
//! burst.4  Remembered are the last 64 bursts of a group, so nobody has to be looked for: a stream only knows the number of its
//!     burst. (Linux has one burst at a time for all groups, and lists its members.)

use crate::time::ms;
use crate::{Duration, Instant};

/// The longest time between two arrivals in one burst (burst.1); the kernel's `bfq_burst_interval`.
const GAP: Duration = ms(180);
/// Streams that make a burst large (burst.2); the kernel's `bfq_large_burst_thresh`.
const LARGE: u8 = 8;
/// After so long without requests a stream leaves its burst (burst.3). Ours.
pub const FORGET: Duration = crate::time::secs(10);
/// A stream that was split from another's queue so short a time ago is no newcomer; the kernel's 10 ms.
pub const PARTED: Duration = ms(10);

/// Which burst a stream came in, of its group's.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Member(u32);

impl Member {
    /// In none.
    pub const NONE: Self = Self(0);
}

/// The bursts of one group.
#[derive(Clone, Debug)]
pub struct Bursts {
    last: Instant,
    /// The number of the present burst; 0 before the first.
    number: u32,
    /// How many came in it, up to [`LARGE`].
    size: u8,
    /// Which were large: bit 0 is the present one, bit 1 the one before it.
    large: u64,
}

impl Bursts {
    /// None yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { last: Instant::ZERO, number: 0, size: 0, large: 0 }
    }

    /// A stream asks for the first time, or again after it left its burst.
    pub const fn arrived(&mut self, now: Instant) -> Member {
        if self.number == 0 || now.since(self.last).as_nanos() > GAP.as_nanos() {
            self.number = if self.number == u32::MAX { 1 } else { self.number + 1 };
            self.size = 0;
            self.large <<= 1;
        }
        self.last = now;
        if self.size < LARGE {
            self.size += 1;
        }
        self.large |= (self.size == LARGE) as u64; // burst.2
        Member(self.number)
    }

    /// Whether a stream's burst is large.
    #[must_use]
    #[inline]
    pub const fn is_large(&self, member: Member) -> bool {
        // A number from before a wrap is further back than 64 (burst.4).
        let back = self.number.wrapping_sub(member.0);
        member.0 != 0 && back < u64::BITS && self.large >> back & 1 == 1
    }
}

impl Default for Bursts {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + ms(millis)
    }

    /// So many arrivals, so many milliseconds apart.
    fn arrive(bursts: &mut Bursts, start: u64, count: u64, apart: u64) -> Vec<Member> {
        (0..count).map(|turn| bursts.arrived(at(start + turn * apart))).collect()
    }

    fn large(bursts: &Bursts, members: &[Member]) -> usize {
        members.iter().filter(|&&member| bursts.is_large(member)).count()
    }

    /// burst.1, burst.2
    #[test]
    fn the_eighth_stream_makes_the_burst_large_for_all_of_them() {
        let mut bursts = Bursts::new();
        let mut members = arrive(&mut bursts, 0, 7, 180);
        assert_eq!(large(&bursts, &members), 0);
        members.push(bursts.arrived(at(7 * 180)));
        assert_eq!(large(&bursts, &members), 8);
        members.extend(arrive(&mut bursts, 7 * 180 + 1, 300, 1));
        assert_eq!(large(&bursts, &members), 308, "and for those that follow");
    }

    /// burst.1
    #[test]
    fn streams_that_come_further_apart_are_no_burst() {
        let mut bursts = Bursts::new();
        let members = arrive(&mut bursts, 0, 60, 181);
        assert_eq!(large(&bursts, &members), 0);
    }

    /// burst.2, burst.4
    #[test]
    fn a_large_burst_stays_so_after_its_end_and_the_next_one_starts_anew() {
        let mut bursts = Bursts::new();
        let first = arrive(&mut bursts, 0, 8, 1);
        let second = arrive(&mut bursts, 1_000, 7, 1);
        assert_eq!((large(&bursts, &first), large(&bursts, &second)), (8, 0));
        arrive(&mut bursts, 10_000, 62, 200);
        assert_eq!(large(&bursts, &first), 8, "63 bursts ago");
        arrive(&mut bursts, 100_000, 1, 0);
        assert_eq!(large(&bursts, &first), 0, "64 ago");
    }

    /// burst.3
    #[test]
    fn who_left_is_in_no_burst() {
        let mut bursts = Bursts::new();
        arrive(&mut bursts, 0, 8, 1);
        assert!(!bursts.is_large(Member::NONE));
        assert!(!Bursts::new().is_large(Member::NONE), "nor where none was yet");
    }

    #[test]
    fn numbers_start_again_without_being_taken_for_others() {
        let mut bursts = Bursts { number: u32::MAX - 1, ..Bursts::new() };
        arrive(&mut bursts, 1_000, 8, 1);
        let after = arrive(&mut bursts, 2_000, 1, 1);
        assert_eq!((after[0], large(&bursts, &after)), (Member(1), 0));
        assert!(!bursts.is_large(Member::NONE), "though the last one was large, a number before");
    }
}
