//! Quiet: what happens over and over is told once, and then at most once a minute with how often it was not.

use fairlift_core::{Duration, Instant};

/// How long what was told is not told again. Chosen: a log of a bad night is a few hundred lines.
const QUIET: Duration = fairlift_core::time::secs(60);

/// How many are remembered. Strangers may come from more addresses than that: those beyond are not told.
const KEPT: usize = 1024;

/// The messages logged, their times, and the number of suppressed ones since.
#[derive(Debug)]
pub(crate) struct Quiet<K>(Vec<(K, Instant, u64)>);

impl<K> Default for Quiet<K> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: PartialEq> Quiet<K> {
    /// Whether it is told now; then, how often it was not since the last time.
    pub(crate) fn tell(&mut self, now: Instant, what: K) -> Option<u64> {
        match self.0.iter_mut().find(|(logged, ..)| *logged == what) {
            Some((_, last, untold)) if now.since(*last) < QUIET => {
                *untold += 1;
                None
            }
            Some((_, last, untold)) => {
                *last = now;
                Some(std::mem::take(untold))
            }
            None => {
                if self.0.len() == KEPT {
                    self.0.retain(|(_, last, _)| now.since(*last) < QUIET);
                }
                (self.0.len() < KEPT).then(|| self.0.push((what, now, 0))).map(|()| 0)
            }
        }
    }
}

/// The end of a line that reports `untold` repetitions.
pub(crate) fn more(untold: u64) -> String {
    if untold > 0 { format!(" ({untold} more since the last line)") } else { String::new() }
}

#[cfg(test)]
mod tests {
    use fairlift_core::time::secs;

    use super::*;

    #[test]
    fn what_repeats_is_told_once_a_minute() {
        let (mut quiet, mut logged) = (Quiet::default(), Vec::new());
        for n in 0..1300 {
            logged.extend(quiet.tell(Instant::ZERO + Duration::from_nanos(secs(1).as_nanos() / 10 * n), "a"));
        }
        assert_eq!(logged, [0, 599, 599]);
        assert_eq!(quiet.tell(Instant::ZERO + secs(130), "b"), Some(0), "something else");
    }

    #[test]
    fn only_so_much_is_remembered() {
        let (mut quiet, at) = (Quiet::default(), |seconds| Instant::ZERO + secs(seconds));
        assert_eq!((0..5000).filter(|n| quiet.tell(at(0), *n).is_some()).count(), KEPT);
        assert_eq!(quiet.tell(at(61), 5000), Some(0), "those of a minute ago are forgotten");
    }
}
