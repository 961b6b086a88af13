//! Gather: the answers of a server that answers one by one are taken in some at a time.
//!
//! A server that answers each request by itself wakes the worker for each, and the worker then a client: where CPUs are short that takes
//! more of them than all else that is done for a request. So while much is under way, a lane that has taken in the present answers lets
//! more come before it looks again. Example: 64 requests are under way and take 4 ms; the lane looks every 500 µs and finds eight answers
//! each time. They are late by 250 µs on average.
//!
//! gather.1  Answers are late by a small part of a request's time, and never by much.
//! gather.2  A lane with little under way waits for no other answer: the server might have nothing to do meanwhile.

use fairlift_core::Duration;
use fairlift_core::time::us;

/// The part of a request's time that a pause takes. Measured: docs/remote.md.
const PART: u64 = 8;

/// The shortest pause. Chosen: what a timer costs.
const SHORTEST: Duration = us(20);

/// And the longest, however slow the server is. Chosen: what a client of a slow server does not notice.
const LONGEST: Duration = us(500);

/// With fewer requests under way there is none. Chosen: then a pause has less than one answer.
const MANY: usize = PART as usize;

/// How long a server takes, of late.
#[derive(Default)]
pub(super) struct Gather {
    takes: Duration,
}

impl Gather {
    /// A request has been answered after so long.
    pub(super) fn answered(&mut self, after: Duration) {
        self.takes =
            Duration::from_nanos((self.takes.as_nanos() / 8).saturating_mul(7).saturating_add(after.as_nanos() / 8));
    }

    /// The time to let answers come before they are looked for again, with `under_way` requests.
    pub(super) fn pause(&self, under_way: usize) -> Option<Duration> {
        let pause = Duration::from_nanos(self.takes.as_nanos() / PART).min(LONGEST);
        (under_way >= MANY && pause >= SHORTEST).then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlift_core::time::{ms, secs};

    fn of(takes: Duration) -> Gather {
        let mut gather = Gather::default();
        (0..100).for_each(|_| gather.answered(takes));
        gather
    }

    #[test]
    fn a_pause_is_a_part_of_what_a_request_takes_and_never_long() {
        let pause = of(ms(2)).pause(32).unwrap();
        assert!(pause > us(240) && pause <= us(250), "{pause:?}");
        assert_eq!(of(secs(5)).pause(32), Some(LONGEST), "a server that stood still");
        assert_eq!(of(us(100)).pause(32), None, "a quick server answers many at once by itself");
    }

    #[test]
    fn who_has_little_under_way_waits_for_no_other_answer() {
        assert_eq!(of(ms(2)).pause(MANY - 1), None);
    }

    #[test]
    fn one_slow_answer_is_soon_forgotten() {
        let mut gather = of(us(100));
        gather.answered(secs(1));
        (0..100).for_each(|_| gather.answered(us(100)));
        assert_eq!(gather.pause(32), None);
    }
}
