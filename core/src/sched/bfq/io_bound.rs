//! I/O-bound: whose time goes into I/O, so that holding the device for him is no waste.
//!
//! O1  A stream is I/O-bound if at most 20 % of the time it had nothing waiting or in flight.
//! O2  The time looked at is short: once it exceeds 200 ms it counts half, and so does what of it was idle.
//! O3  A pause of a second or more is the only thing that counts.
//! O4  A new stream is not I/O-bound before it was seen for the first time.

use crate::time::{ms, secs};
use crate::{Duration, Instant};

const WINDOW: Duration = ms(200);
const LONG: Duration = secs(1);

/// Whether a stream is I/O-bound.
#[derive(Clone, Copy, Debug)]
pub struct IoBound {
    /// Since when it is looked at.
    since: Instant,
    /// How much of that time it was idle, in nanoseconds.
    idle: u32,
    is_bound: bool,
}

impl IoBound {
    /// A stream that comes now (O4).
    #[must_use]
    pub const fn new(now: Instant) -> Self {
        Self { since: now, idle: 0, is_bound: false }
    }

    /// Whether it is.
    #[must_use]
    pub const fn is_bound(&self) -> bool {
        self.is_bound
    }

    /// It asks again; `pause` is for how long nothing of it was waiting or in flight.
    pub fn became_busy(&mut self, now: Instant, pause: Duration) {
        if pause >= LONG {
            let half = WINDOW.as_nanos() / 2;
            self.since = Instant::from_nanos(now.as_nanos().saturating_sub(half));
            self.idle = half as u32;
            self.is_bound = false; // O3
            return;
        }
        let window = now.since(self.since).as_nanos();
        // Less than a second was added to less than 200 ms, or so: 2^32 ns are 4.3 s.
        self.idle = self.idle.saturating_add(pause.as_nanos() as u32);
        self.is_bound = u64::from(self.idle) * 5 <= window; // O1
        if window > WINDOW.as_nanos() {
            self.since = Instant::from_nanos(now.as_nanos() - window / 2);
            self.idle /= 2; // O2
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::us;

    /// Busy and idle in turn, so many times; answers whether it is I/O-bound then.
    fn turns(bound: &mut IoBound, now: &mut Instant, times: u32, busy: Duration, idle: Duration) -> bool {
        for _ in 0..times {
            *now += busy + idle;
            bound.became_busy(*now, idle);
        }
        bound.is_bound()
    }

    /// O1
    #[test]
    fn four_fifths_of_the_time_make_io_bound() {
        let mut now = Instant::ZERO + secs(9);
        let mut bound = IoBound::new(now);
        assert!(!bound.is_bound(), "O4");
        assert!(turns(&mut bound, &mut now, 1000, us(800), us(200)));
        assert!(!turns(&mut bound, &mut now, 1000, us(790), us(210)));
    }

    /// O2
    #[test]
    fn half_a_second_of_other_habits_is_enough() {
        let mut now = Instant::ZERO;
        let mut bound = IoBound::new(now);
        turns(&mut bound, &mut now, 10_000, ms(1), us(0));
        assert!(!turns(&mut bound, &mut now, 250, ms(1), ms(1)));
        assert!(turns(&mut bound, &mut now, 500, ms(1), us(0)));
    }

    /// O3
    #[test]
    fn after_an_hour_of_rest_a_short_while_is_enough() {
        let mut now = Instant::ZERO;
        let mut bound = IoBound::new(now);
        assert!(!turns(&mut bound, &mut now, 1, ms(1), secs(3600)));
        assert!(!turns(&mut bound, &mut now, 100, ms(1), us(0)));
        assert!(turns(&mut bound, &mut now, 300, ms(1), us(0)));
    }

    #[test]
    fn it_takes_16_bytes() {
        assert_eq!(size_of::<IoBound>(), 16);
    }
}
