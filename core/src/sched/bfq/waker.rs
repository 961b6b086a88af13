//! Wakers: who makes another one ask.
//!
//! A database writes its log, and when that has ended a client goes on; a file system's journal ends its commit, and those
//! who synced go on. To hold the device for the one who is woken, and the waker back, makes both wait: so a waker's requests
//! are the first to be injected ([`inject`](super::inject)).
//!
//! K1  A stream that takes long to ask again, and has nothing in flight, is woken by the one whose request ended last, if
//!     that was less than 4 ms before. After three times in a row by the same one, within a second, that one is its waker.
//! K2  It stays so until another one is, or either goes. Nobody is his own waker.
//! K3  A queue that several share wakes nobody: who of them it was is not known. The caller leaves its ends out.

use alloc::vec::Vec;

use crate::time::ms;
use crate::{Duration, Instant};

/// The longest time from a waker's end (K1).
const SOON: Duration = ms(4);
/// The longest time from the first to the last of the three (K1).
const WITHIN: Duration = ms(1024);
/// How many times in a row (K1).
const TIMES: u8 = 3;
/// No stream.
const NIL: u32 = u32::MAX;

/// Who wakes whom; streams are numbers.
#[derive(Clone, Debug)]
pub struct Wakers {
    rows: Vec<Row>,
    /// Whose request ended last, or [`NIL`], and when.
    last: u32,
    last_end: Instant,
}

/// 32 bytes.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// When the candidate was first seen.
    since: Instant,
    candidate: u32,
    waker: u32,
    /// The first of those whom this one wakes.
    woken: u32,
    /// Those with the same waker before and after this one.
    prev: u32,
    next: u32,
    /// How many times in a row the candidate was seen.
    times: u8,
}

const EMPTY: Row = Row { since: Instant::ZERO, candidate: NIL, waker: NIL, woken: NIL, prev: NIL, next: NIL, times: 0 };

impl Wakers {
    /// No streams yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { rows: Vec::new(), last: NIL, last_end: Instant::ZERO }
    }

    /// A stream comes; the table grows to its number if need be.
    pub fn add(&mut self, stream: u32) {
        let wanted = stream as usize + 1;
        if self.rows.len() < wanted {
            self.rows.resize(wanted, EMPTY);
        }
    }

    /// A request of a stream ended whose queue is its own (K3).
    #[inline]
    pub const fn ended(&mut self, now: Instant, stream: u32) {
        (self.last, self.last_end) = (stream, now);
    }

    /// A stream asks that takes long to do so and has nothing in flight. Answers whether it has a new waker.
    pub fn asked(&mut self, now: Instant, stream: u32) -> bool {
        let by = self.last;
        let row = &mut self.rows[stream as usize];
        if by == NIL || by == stream || by == row.waker || now.since(self.last_end) >= SOON {
            return false;
        }
        if by != row.candidate || now.since(row.since) > WITHIN {
            (row.candidate, row.since, row.times) = (by, now, 0);
        }
        row.times += 1;
        if row.times < TIMES {
            return false;
        }
        (row.candidate, row.times) = (NIL, 0);
        self.unlink(stream);
        self.link(stream, by);
        true
    }

    /// Who wakes a stream.
    #[must_use]
    pub fn waker(&self, stream: u32) -> Option<u32> {
        some(self.rows[stream as usize].waker)
    }

    /// Whom a stream wakes, the latest first.
    pub fn woken(&self, stream: u32) -> impl Iterator<Item = u32> {
        let next = |&stream: &u32| some(self.rows[stream as usize].next);
        core::iter::successors(some(self.rows[stream as usize].woken), next)
    }

    /// A stream has gone (K2).
    pub fn remove(&mut self, stream: u32) {
        self.unlink(stream);
        while let Some(woken) = some(self.rows[stream as usize].woken) {
            self.unlink(woken);
        }
        self.rows[stream as usize] = EMPTY;
        if self.last == stream {
            self.last = NIL;
        }
        // Whoever has it for a candidate begins with another as soon as one is seen, or with its number's next owner: one
        // chance in many, and three times in a row still make it true.
    }

    fn link(&mut self, stream: u32, waker: u32) {
        let first = core::mem::replace(&mut self.rows[waker as usize].woken, stream);
        let row = &mut self.rows[stream as usize];
        (row.waker, row.prev, row.next) = (waker, NIL, first);
        if first != NIL {
            self.rows[first as usize].prev = stream;
        }
    }

    fn unlink(&mut self, stream: u32) {
        let Row { waker, prev, next, .. } = self.rows[stream as usize];
        if waker == NIL {
            return;
        }
        match some(prev) {
            Some(prev) => self.rows[prev as usize].next = next,
            None => self.rows[waker as usize].woken = next,
        }
        if next != NIL {
            self.rows[next as usize].prev = prev;
        }
        let row = &mut self.rows[stream as usize];
        (row.waker, row.prev, row.next) = (NIL, NIL, NIL);
    }
}

impl Default for Wakers {
    fn default() -> Self {
        Self::new()
    }
}

const fn some(stream: u32) -> Option<u32> {
    if stream == NIL { None } else { Some(stream) }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;
    use crate::time::secs;

    /// Streams 0 to 9.
    fn ten() -> Wakers {
        let mut wakers = Wakers::new();
        wakers.add(9);
        wakers
    }

    /// `woken` asks `delay` after `waker`'s end, so many times, 100 ms apart; answers how often it had a new waker.
    fn wake(wakers: &mut Wakers, now: &mut Instant, waker: u32, woken: u32, delay: Duration, times: u32) -> usize {
        (0..times)
            .filter(|_| {
                *now += ms(100);
                wakers.ended(*now, waker);
                wakers.asked(*now + delay, woken)
            })
            .count()
    }

    fn woken(wakers: &Wakers, stream: u32) -> Vec<u32> {
        wakers.woken(stream).collect()
    }

    /// K1
    #[test]
    fn three_times_in_a_row_make_a_waker() {
        let (mut wakers, mut now) = (ten(), Instant::ZERO);
        assert_eq!(wake(&mut wakers, &mut now, 1, 2, ms(3), 2), 0);
        assert_eq!(wakers.waker(2), None);
        assert_eq!(wake(&mut wakers, &mut now, 1, 2, ms(3), 1), 1);
        assert_eq!((wakers.waker(2), woken(&wakers, 1)), (Some(1), vec![2]));
        assert_eq!(wake(&mut wakers, &mut now, 1, 2, ms(3), 9), 0, "it is so already");
    }

    /// K1
    #[test]
    fn four_milliseconds_after_are_too_late() {
        let (mut wakers, mut now) = (ten(), Instant::ZERO);
        assert_eq!(wake(&mut wakers, &mut now, 1, 2, ms(4), 100), 0);
    }

    /// K1
    #[test]
    fn another_one_in_between_starts_the_count_again() {
        let (mut wakers, mut now) = (ten(), Instant::ZERO);
        for _ in 0..10 {
            wake(&mut wakers, &mut now, 1, 2, ms(1), 2);
            wake(&mut wakers, &mut now, 3, 2, ms(1), 2);
        }
        assert_eq!(wakers.waker(2), None);
    }

    /// K1
    #[test]
    fn three_times_in_more_than_a_second_are_chance() {
        let (mut wakers, mut now) = (ten(), Instant::ZERO);
        for _ in 0..10 {
            assert_eq!(wake(&mut wakers, &mut now, 1, 2, ms(1), 2), 0);
            now += secs(1);
        }
    }

    /// K2
    #[test]
    fn a_new_waker_replaces_the_old_one_and_nobody_wakes_himself() {
        let (mut wakers, mut now) = (ten(), Instant::ZERO);
        wake(&mut wakers, &mut now, 1, 2, ms(1), 3);
        assert_eq!(wake(&mut wakers, &mut now, 2, 2, ms(1), 9), 0);
        assert_eq!(wake(&mut wakers, &mut now, 3, 2, ms(1), 3), 1);
        assert_eq!((wakers.waker(2), woken(&wakers, 1), woken(&wakers, 3)), (Some(3), vec![], vec![2]));
    }

    /// K2
    #[test]
    fn who_goes_wakes_nobody_and_is_woken_by_nobody() {
        for gone in [5, 2, 3, 4] {
            let (mut wakers, mut now) = (ten(), Instant::ZERO);
            for stream in [2, 3, 4] {
                wake(&mut wakers, &mut now, 5, stream, ms(1), 3);
            }
            assert_eq!(woken(&wakers, 5), [4, 3, 2]);
            wakers.remove(gone);
            let left: Vec<u32> = [4, 3, 2].into_iter().filter(|&stream| gone != 5 && stream != gone).collect();
            assert_eq!(woken(&wakers, 5), left, "without {gone}");
            for stream in [2, 3, 4] {
                assert_eq!(wakers.waker(stream), left.contains(&stream).then_some(5));
            }
            for stream in left {
                wakers.remove(stream); // the links are whole
            }
            assert!(woken(&wakers, 5).is_empty());
        }
    }

    /// K2
    #[test]
    fn the_next_stream_of_a_number_has_to_show_itself_as_a_waker() {
        let (mut wakers, mut now) = (ten(), Instant::ZERO);
        wake(&mut wakers, &mut now, 1, 2, ms(1), 3);
        wakers.remove(1);
        assert_eq!(wake(&mut wakers, &mut now, 1, 2, ms(1), 2), 0);
        assert_eq!(wake(&mut wakers, &mut now, 1, 2, ms(1), 1), 1);
    }

    /// K2
    #[test]
    fn the_end_of_one_who_has_gone_wakes_nobody() {
        let mut wakers = ten();
        for _ in 0..9 {
            wakers.ended(Instant::ZERO, 1);
            wakers.remove(1);
            assert!(!wakers.asked(Instant::ZERO, 2));
        }
    }

    #[test]
    fn a_stream_takes_32_bytes() {
        assert_eq!(size_of::<Row>(), 32);
    }
}
