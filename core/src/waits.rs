//! Waits: where the time of requests goes.
//!
//! A tenant whose reads take 5 ms wants to know why. The device may be slow, a neighbour may have the disk, or a flush may hold
//! everything up; a histogram of latencies looks the same in all three. So the time of each bio is divided into [`Part`]s, and
//! the parts are added up for each stream and operation.
//!
//! Looking at each request at each moment would cost more than the request. Instead the queue keeps a few clocks of the disk's activities,
//! each a sum that only grows; a bio notes them when it comes and its request notes them when it goes to the device. Example: a read comes
//! when the disk has been busy for 700 ms in all and goes when it has been busy for 704 ms; in the meantime the clock of its own tenant
//! went on by 1 ms. So it waited 1 ms behind requests of its own, and 3 ms behind others'.
//!
//! waits.1  At each moment the disk does one thing: it flushes, or it is busy with requests, or it is held idle on purpose, or none
//!          of these. Each of the first three has a clock.
//! waits.2  While it is busy, each of the n requests in flight has 1/n of its time. The sum over a group's requests is the clock of that
//!          group: the device time that the group has had.
//! waits.3  The parts of a bio add up to its latency, whatever the clocks say: each part is at most what is left.
//! waits.4  In the root group each stream is a tenant, and has a clock of its own.
//! waits.5  A client that keeps fewer bios outstanding than it does at times is not held up by the disk alone. Between two looks a stream
//!          could have had the most that it had at once, for all the time since its first bio; what it had is the sum of the parts.

use serde::{Deserialize, Serialize};

use crate::record::any_length;
use crate::request::named;
use crate::{Duration, Instant};

named! {
    /// The cause of a part of a bio's time, in the order in which a bio may pass them.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Part {
        /// Payload memory was missing: it waited before the queue.
        Memory = "memory",
        /// A place was missing: a request of its connection or queue, a tag, or a turn of its worker.
        Room = "room",
        /// A ceiling of its own group held it.
        Limit = "limit",
        /// The disk was busy with requests of others.
        Others = "others",
        /// The disk was busy with requests of its own tenant.
        Own = "own",
        /// The disk was held idle on purpose.
        Idling = "idling",
        /// The disk was being flushed, or its own flush had not ended.
        Flush = "flush",
        /// The device had it.
        Device = "device",
        /// The reply to the ended bio was not sent yet.
        Reply = "reply",
    }
}

/// Time by [`Part`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Times(#[serde(deserialize_with = "any_length")] [u64; Part::COUNT]);

impl Times {
    /// The time of a part.
    #[must_use]
    pub const fn of(&self, part: Part) -> Duration {
        Duration::from_nanos(self.0[part as usize])
    }

    /// All parts together.
    #[must_use]
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.0.iter().fold(0, |sum, part| sum.saturating_add(*part)))
    }

    /// Adds time to a part.
    #[inline]
    pub fn spend(&mut self, part: Part, time: Duration) {
        let sum = &mut self.0[part as usize];
        *sum = sum.saturating_add(time.as_nanos());
    }

    /// Adds another's time.
    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine = mine.saturating_add(theirs));
    }

    /// The difference to `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self(core::array::from_fn(|part| self.0[part].saturating_sub(before.0[part])))
    }
}

/// The activity of a disk since the start (waits.1).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Doing {
    /// It was being flushed.
    pub flushing: Duration,
    /// It was not, and had requests.
    pub busy: Duration,
    /// It had none, and was held idle on purpose.
    pub idling: Duration,
}

impl core::ops::Add for Doing {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            flushing: self.flushing + other.flushing,
            busy: self.busy + other.busy,
            idling: self.idling + other.idling,
        }
    }
}

/// The clocks of a disk.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Clock {
    at: Instant,
    requests: u32,
    flushes: u32,
    /// Whether the disk is held idle on purpose, while it has no request.
    pub(crate) is_idling: bool,
    flushing: u64,
    busy: u64,
    idle: u64,
    /// The time that each request in flight has had of it (waits.2), in parts of a nanosecond; it starts anew at the end.
    each: u64,
}

/// Binary places of [`Clock::each`]: with 128 requests in flight, 100 ns are 51,200 parts for each.
const PLACES: u32 = 16;

/// The clock of a group or stream (waits.2, waits.4).
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Share {
    requests: u32,
    each: u64,
    /// In the parts of [`Clock::each`].
    had: u128,
}

/// The clocks when a bio came, or when a request went to the device.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Stamp {
    flushing: u64,
    busy: u64,
    idle: u64,
    /// The lower half of a [`Share`]'s: it starts anew every three days.
    had: u64,
}

impl Clock {
    /// It is `now`. Workers read their times before they have the queue: one that is a little behind changes nothing.
    #[inline]
    pub(crate) fn go_on(&mut self, now: Instant) {
        if now > self.at {
            self.advance(now);
        }
    }

    fn advance(&mut self, now: Instant) {
        let passed = now.since(self.at).as_nanos();
        self.at = now;
        if self.flushes > 0 {
            self.flushing += passed;
        } else if self.requests > 0 {
            self.busy += passed;
            self.each = self.each.wrapping_add((passed << PLACES) / u64::from(self.requests));
        } else if self.is_idling {
            self.idle += passed;
        }
    }

    /// A request goes to the device; the clock has [gone on](Self::go_on).
    #[inline]
    pub(crate) fn begins(&mut self) {
        self.requests += 1;
    }

    /// A request has come back; the clock has [gone on](Self::go_on).
    #[inline]
    pub(crate) fn ends(&mut self) {
        self.requests -= 1;
    }

    pub(crate) fn flush_begins(&mut self) {
        self.flushes += 1;
    }

    pub(crate) fn flush_ends(&mut self) {
        self.flushes -= 1;
    }

    /// The clocks of a tenant.
    #[inline]
    pub(crate) fn stamp(&self, share: &Share) -> Stamp {
        let had = (share.had as u64).wrapping_add(share.since(self));
        Stamp { flushing: self.flushing, busy: self.busy, idle: self.idle, had }
    }

    pub(crate) fn doing(&self) -> Doing {
        let [flushing, busy, idling] = [self.flushing, self.busy, self.idle].map(Duration::from_nanos);
        Doing { flushing, busy, idling }
    }

    /// Divides `waited` of a bio that came at `from` and went to the device at `to`.
    #[inline]
    pub(crate) fn divide_wait(times: &mut Times, waited: Duration, from: &Stamp, to: &Stamp) {
        let mut left = waited.as_nanos();
        if left == 0 {
            return;
        }
        let mut take = |part: Part, time: u64| {
            if time == 0 {
                return 0;
            }
            let time = time.min(left); // waits.3
            left -= time;
            times.spend(part, Duration::from_nanos(time));
            time
        };
        take(Part::Flush, to.flushing - from.flushing);
        let own = take(Part::Own, to.had.wrapping_sub(from.had) >> PLACES);
        take(Part::Others, (to.busy - from.busy).saturating_sub(own));
        take(Part::Idling, to.idle - from.idle);
        take(Part::Room, u64::MAX);
    }

    /// Divides the time in the device since `from`.
    #[inline]
    pub(crate) fn divide_service(&self, times: &mut Times, took: Duration, from: &Stamp) {
        let mut flush = self.flushing - from.flushing;
        if flush > 0 {
            flush = flush.min(took.as_nanos());
            times.spend(Part::Flush, Duration::from_nanos(flush));
        }
        times.spend(Part::Device, Duration::from_nanos(took.as_nanos() - flush));
    }
}

impl Share {
    #[inline]
    fn since(&self, clock: &Clock) -> u64 {
        clock.each.wrapping_sub(self.each).wrapping_mul(self.requests.into())
    }

    #[inline]
    fn go_on(&mut self, clock: &Clock) {
        self.had += u128::from(self.since(clock));
        self.each = clock.each;
    }

    /// A request of it goes to the device: the clocks at that time.
    #[inline]
    pub(crate) fn begins(&mut self, clock: &Clock) -> Stamp {
        let stamp = clock.stamp(self);
        self.go_on(clock);
        self.requests += 1;
        stamp
    }

    #[inline]
    pub(crate) fn ends(&mut self, clock: &Clock) {
        self.go_on(clock);
        self.requests -= 1;
    }

    /// The device time that it has had.
    pub(crate) fn had(&self, clock: &Clock) -> Duration {
        let mut now = *self;
        now.go_on(clock);
        Duration::from_nanos((now.had >> PLACES) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::ms;

    fn at(n: u64) -> Instant {
        Instant::ZERO + ms(n)
    }

    fn begin(clock: &mut Clock, share: &mut Share) {
        clock.begins();
        share.begins(clock);
    }

    fn end(clock: &mut Clock, share: &mut Share) {
        clock.ends();
        share.ends(clock);
    }

    /// waits.1, waits.2: alice has one request and bob three; each has a quarter, and a flush stops them all.
    #[test]
    fn the_device_time_of_a_group_is_its_part_of_what_is_in_flight() {
        let (mut clock, mut alice, mut bob) = (Clock::default(), Share::default(), Share::default());
        begin(&mut clock, &mut alice);
        (0..3).for_each(|_| begin(&mut clock, &mut bob));
        clock.go_on(at(8));
        clock.flush_begins();
        clock.go_on(at(10));
        clock.flush_ends();
        clock.go_on(at(14));
        end(&mut clock, &mut alice);
        (0..3).for_each(|_| end(&mut clock, &mut bob));
        clock.is_idling = true;
        clock.go_on(at(15));
        assert_eq!((alice.had(&clock), bob.had(&clock)), (ms(3), ms(9)));
        assert_eq!(clock.doing(), Doing { flushing: ms(2), busy: ms(12), idling: ms(1) });
    }

    /// waits.3: a wait of 20 ms is divided, and time that no clock explains is a missing place.
    #[test]
    fn a_wait_is_divided_among_what_the_disk_did_meanwhile() {
        let (mut clock, mut alice, mut bob) = (Clock::default(), Share::default(), Share::default());
        let from = clock.stamp(&alice);
        begin(&mut clock, &mut alice);
        begin(&mut clock, &mut bob);
        clock.go_on(at(8));
        end(&mut clock, &mut alice);
        end(&mut clock, &mut bob);
        clock.go_on(at(11)); // nothing
        clock.is_idling = true;
        clock.go_on(at(15));
        clock.flush_begins();
        clock.go_on(at(20));
        let to = clock.stamp(&alice);
        let mut times = Times::default();
        Clock::divide_wait(&mut times, ms(20), &from, &to);
        let found = [Part::Own, Part::Others, Part::Room, Part::Idling, Part::Flush].map(|part| times.of(part));
        assert_eq!(found, [ms(4), ms(4), ms(3), ms(4), ms(5)]);
        let mut less = Times::default();
        Clock::divide_wait(&mut less, ms(6), &from, &to);
        assert_eq!(less.sum(), ms(6), "no more than it waited");
    }

    #[test]
    fn the_clock_of_a_group_may_start_anew() {
        let mut clock = Clock { each: u64::MAX - 5, ..Clock::default() };
        let mut share = Share { had: u128::from(u64::MAX - 7), each: u64::MAX - 5, ..Share::default() };
        let before = share.had(&clock);
        let from = clock.stamp(&share);
        begin(&mut clock, &mut share);
        clock.go_on(at(3));
        let mut times = Times::default();
        Clock::divide_wait(&mut times, ms(3), &from, &clock.stamp(&share));
        assert_eq!(times.of(Part::Own), ms(3));
        assert_eq!(share.had(&clock) - before, ms(3));
    }
}
