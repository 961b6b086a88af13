//! Queue merging: streams that read one place in turns share a queue.
//!
//! Several streams may each read every second block, and together all of them: helper threads of one application, requests handed to the
//! next free thread. Served one stream at a time the arm seeks, and the stream in service soon has nothing to ask. In one queue, in sector
//! order, it is one sequential reader.
//!
//! merge.1  Each stream has a queue of its own, its home, and uses one queue: its home or another's.
//! merge.2  When a stream asks, it joins the queue in service if its request is within 4 MiB of where that one was served last;
//!     else the queue whose next request is closest to its own, if that is within 4 MiB ([`position`](super::position)).
//! merge.3  It joins only where the caller says that both belong together: same group, same priority (so nobody gets another's
//!     weight), not of the idle class, synchronous, and both sequential, each by itself.
//! merge.4  Both queues are fresh: no more than 100 ms have passed since they were first served after they had become busy.
//!     Streams that cooperate are found at once; two that meet later do so by chance.
//! merge.5  It joins no queue that fewer use than its present one, so that two shared queues do not trade users for ever.
//! merge.6  A shared queue that turns out to seek is parted: each stream that uses it goes home when it asks next.
//! merge.7  Off, everybody is at home, and of all this nothing is kept: no positions, no times, no sharing. Off is for devices
//!     that do not rotate and queue: they sort their requests themselves, and merging would cost a tenth of every request
//!     and make loads uneven. On again, the caller tells the next requests of all busy queues anew.
//!
//! Not here: Linux's "stable merge" of queues that are made at almost the same time. It merges on fast devices as well, to
//! save processor time, which merge.7 saves entirely; and here two streams that are made at the same time are two clients.

use alloc::vec::Vec;

use super::position::Positions;
use crate::time::ms;
use crate::{Duration, Instant, Sector};

/// The farthest that is close, in sectors: 4 MiB (merge.2); the kernel's `BFQQ_CLOSE_THR`.
pub(super) const CLOSE: u64 = 8192;
/// For how long a queue is fresh (merge.4); the kernel's value.
const FRESH: Duration = ms(100);
/// Not served since it became busy.
const NEVER: Instant = Instant::MAX;

/// The users of each queue; see the [module](self) for the rules. Streams, queues and groups are numbers.
#[derive(Default, Debug)]
pub(super) struct Merging {
    pub(super) on: bool,
    pub(super) positions: Positions,
    queues: Vec<Row>,
    streams: Vec<Use>,
    /// How many times a stream joined another's queue, and went home again other than because merging was switched off.
    pub(super) merges: u64,
    pub(super) partings: u64,
}

/// Of a queue.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// When it was first served after it had become busy (merge.4); the kernel's value.
    served: Instant,
    users: u32,
    /// Its users go home (merge.6).
    parting: bool,
}

/// Of a stream (merge.1).
#[derive(Clone, Copy, Debug)]
struct Use {
    home: u32,
    queue: u32,
}

/// A stream that uses another queue now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Moved {
    /// The queue that it used; it may have no user left.
    pub(super) from: u32,
    /// The one it uses now.
    pub(super) to: u32,
}

/// A stream that asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker {
    pub(super) stream: u32,
    pub(super) group: u16,
    /// Where its request starts.
    pub(super) position: Sector,
    /// The queue in service, and where the last request from it ended.
    pub(super) in_service: Option<(u32, Sector)>,
}

const NO_ROW: Row = Row { served: NEVER, users: 0, parting: false };
const NO_USE: Use = Use { home: u32::MAX, queue: u32::MAX };

impl Merging {
    /// Switches it (merge.7). Answers whether that changed anything: if so and it is on, the next requests of all busy queues
    /// must be told with [`Self::set_head`]; if it is off, what streams left in others' queues is served there.
    pub(super) fn set_on(&mut self, on: bool) -> bool {
        if self.on == on {
            return false;
        }
        self.on = on;
        if !on {
            self.positions.clear();
            for row in &mut self.queues {
                *row = NO_ROW;
            }
            for using in self.streams.iter_mut().filter(|using| using.home != NO_USE.home) {
                using.queue = using.home;
                self.queues[using.home as usize].users = 1;
            }
        }
        true
    }

    /// Makes room for a group.
    pub(super) fn add_group(&mut self, group: u16) {
        self.positions.add_group(group);
    }

    /// Makes room for a queue of any kind.
    pub(super) fn add_queue(&mut self, queue: u32) {
        self.queues.resize(self.queues.len().max(queue as usize + 1), NO_ROW);
        self.positions.add_queue(queue);
    }

    /// A stream comes, with its home.
    pub(super) fn add_stream(&mut self, stream: u32, home: u32) {
        self.streams.resize(self.streams.len().max(stream as usize + 1), NO_USE);
        let using = &mut self.streams[stream as usize];
        assert!(using.home == NO_USE.home, "stream {stream} is there already");
        *using = Use { home, queue: home };
        let row = &mut self.queues[home as usize];
        assert!(row.users == 0, "queue {home} is used already, and cannot be a new stream's home");
        *row = Row { users: 1, ..NO_ROW };
    }

    /// A stream goes. Its home may be used by others still ([`Self::users`]); then it must stay until they have left it,
    /// and so must the queue that it used, if that is another one. Answers the latter.
    pub(super) fn remove_stream(&mut self, stream: u32) -> u32 {
        let Use { queue, .. } = core::mem::replace(&mut self.streams[stream as usize], NO_USE);
        self.lose_user(queue);
        queue
    }

    #[inline]
    pub(super) fn queue_of(&self, stream: u32) -> u32 {
        self.streams[stream as usize].queue
    }

    pub(super) fn users(&self, queue: u32) -> u32 {
        self.queues[queue as usize].users
    }

    pub(super) fn has_several_users(&self, queue: u32) -> bool {
        self.users(queue) > 1
    }

    /// The users of a queue; looks at all streams.
    pub(super) fn users_of(&self, queue: u32) -> impl Iterator<Item = u32> {
        (0..).zip(&self.streams).filter(move |(_, using)| using.queue == queue).map(|(stream, _)| stream)
    }

    /// A queue had nothing waiting and is served anew (merge.4); the kernel's value.
    #[inline]
    pub(super) fn became_busy(&mut self, queue: u32) {
        if self.on {
            self.queues[queue as usize].served = NEVER;
        }
    }

    /// A request of a queue went to the device.
    #[inline]
    pub(super) fn served(&mut self, now: Instant, queue: u32) {
        if self.on {
            let served = &mut self.queues[queue as usize].served;
            *served = now.min(*served);
        }
    }

    /// A queue's next request starts at `head`; `None`: nothing of it waits.
    #[inline]
    pub(super) fn set_head(&mut self, queue: u32, group: u16, head: Option<Sector>) {
        if self.on {
            self.positions.set(queue, group, head);
        }
    }

    /// The turn of a queue ended; it seeks, or not (merge.6).
    #[inline]
    pub(super) fn turn_ended(&mut self, queue: u32, is_seeky: bool) {
        if self.on && is_seeky && self.has_several_users(queue) {
            self.queues[queue as usize].parting = true;
        }
    }

    /// A stream is about to ask: it goes home if the queue that it uses is being parted (merge.6).
    pub(super) fn enter(&mut self, stream: u32) -> Option<Moved> {
        let is_parting = self.on && self.queues[self.queue_of(stream) as usize].parting;
        if is_parting { self.leave(stream) } else { None }
    }

    /// A stream goes home; `None` if it is there.
    pub(super) fn leave(&mut self, stream: u32) -> Option<Moved> {
        let Use { home, queue } = self.streams[stream as usize];
        (home != queue).then(|| {
            self.partings += 1;
            self.go(stream, home)
        })
    }

    /// A stream starts to use a queue that [`Self::cooperator`] named.
    pub(super) fn join(&mut self, stream: u32, queue: u32) -> Moved {
        self.merges += 1;
        self.go(stream, queue)
    }

    fn go(&mut self, stream: u32, to: u32) -> Moved {
        let from = core::mem::replace(&mut self.streams[stream as usize].queue, to);
        assert!(from != to, "stream {stream} uses queue {to} already");
        self.queues[to as usize].users += 1;
        self.lose_user(from);
        Moved { from, to }
    }

    fn lose_user(&mut self, queue: u32) {
        let row = &mut self.queues[queue as usize];
        row.users -= 1;
        row.parting &= row.users > 1;
    }

    /// The queue that a stream that asks had better join (merge.2–5); `may` says whether it belongs together with its own (merge.3).
    pub(super) fn cooperator(&mut self, now: Instant, asker: &Asker, may: impl Fn(u32) -> bool) -> Option<u32> {
        let own = self.queue_of(asker.stream);
        if !self.on || !self.is_fresh(now, own) {
            return None;
        }
        let users = self.users(own);
        let fits = |merging: &Self, queue: u32| {
            let row = &merging.queues[queue as usize];
            queue != own && !row.parting && row.users >= users && merging.is_fresh(now, queue) && may(queue)
        };
        if let Some((queue, last)) = asker.in_service
            && asker.position.0.abs_diff(last.0) <= CLOSE
            && fits(self, queue)
        {
            return Some(queue);
        }
        let (queue, distance) = self.positions.closest(asker.group, asker.position, own)?;
        (distance <= CLOSE && fits(self, queue)).then_some(queue)
    }

    fn is_fresh(&self, now: Instant, queue: u32) -> bool {
        // Since never is no time at all.
        now.since(self.queues[queue as usize].served) <= FRESH
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;

    const GROUP: u16 = 1;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + ms(1000 + millis)
    }

    /// Streams 0, 1, 2, … whose homes are queues 10, 11, 12, …, each with a request at the given sector.
    fn streams(heads: &[u64]) -> Merging {
        let mut merging = Merging::default();
        merging.set_on(true);
        merging.add_group(GROUP);
        for (stream, &head) in (0..).zip(heads) {
            let home = 10 + stream;
            merging.add_queue(home);
            merging.add_stream(stream, home);
            merging.became_busy(home);
            merging.set_head(home, GROUP, Some(Sector(head)));
        }
        merging
    }

    fn asker(stream: u32, position: u64) -> Asker {
        Asker { stream, group: GROUP, position: Sector(position), in_service: None }
    }

    fn find(merging: &mut Merging, stream: u32, position: u64) -> Option<u32> {
        merging.cooperator(at(0), &asker(stream, position), |_| true)
    }

    fn users(merging: &Merging, queue: u32) -> Vec<u32> {
        let users: Vec<u32> = merging.users_of(queue).collect();
        assert_eq!(users.len(), merging.users(queue) as usize);
        users
    }

    /// merge.2
    #[test]
    fn who_asks_within_4_mib_of_anothers_next_request_finds_it() {
        let mut merging = streams(&[0, 100_000]);
        for (position, found) in
            [(100_008, Some(11)), (91_808, Some(11)), (91_807, None), (108_192, Some(11)), (108_193, None)]
        {
            assert_eq!(find(&mut merging, 0, position), found, "at {position}");
        }
        assert_eq!(find(&mut merging, 0, 8), None, "and not himself");
    }

    /// merge.2
    #[test]
    fn the_queue_in_service_goes_before_the_closest() {
        let mut merging = streams(&[0, 100_000, 100_008]);
        let mut asker = Asker { in_service: Some((11, Sector(108_200))), ..asker(0, 100_008) };
        assert_eq!(merging.cooperator(at(0), &asker, |_| true), Some(11));
        asker.in_service = Some((11, Sector(108_201)));
        assert_eq!(merging.cooperator(at(0), &asker, |_| true), Some(12), "too far away");
        asker.in_service = Some((10, Sector(100_008)));
        assert_eq!(merging.cooperator(at(0), &asker, |_| true), Some(12), "his own");
    }

    /// merge.3
    #[test]
    fn who_does_not_belong_together_is_not_found() {
        let mut merging = streams(&[0, 100, 200]);
        assert_eq!(merging.cooperator(at(0), &asker(0, 0), |queue| queue != 11), None, "the closest, or nobody");
        let in_service = Some((11, Sector(0)));
        let asker = Asker { in_service, ..asker(0, 200) };
        assert_eq!(merging.cooperator(at(0), &asker, |queue| queue != 11), Some(12));
    }

    /// merge.4
    #[test]
    fn a_queue_is_fresh_for_100_ms_after_it_is_first_served() {
        for old in [10, 11] {
            let mut merging = streams(&[0, 8]);
            merging.served(at(0), old);
            merging.served(at(90), old);
            assert_eq!(merging.cooperator(at(100), &asker(0, 0), |_| true), Some(11));
            assert_eq!(merging.cooperator(at(101), &asker(0, 0), |_| true), None, "{old} is old");
            merging.became_busy(old);
            assert_eq!(merging.cooperator(at(5000), &asker(0, 0), |_| true), Some(11), "busy anew");
        }
    }

    /// merge.1
    #[test]
    fn who_joins_uses_the_others_queue_until_he_leaves() {
        let mut merging = streams(&[0, 8]);
        assert_eq!(merging.join(0, 11), Moved { from: 10, to: 11 });
        assert_eq!((merging.queue_of(0), users(&merging, 11), users(&merging, 10)), (11, vec![0, 1], vec![]));
        assert_eq!(find(&mut merging, 0, 8), None, "he is there");
        assert_eq!(merging.leave(0), Some(Moved { from: 11, to: 10 }));
        assert_eq!(merging.leave(0), None);
        assert_eq!((users(&merging, 11), users(&merging, 10)), (vec![1], vec![0]));
        assert_eq!((merging.merges, merging.partings), (1, 1));
    }

    /// merge.5
    #[test]
    fn two_shared_queues_become_one_and_do_not_trade_users() {
        let mut merging = streams(&[0, 8, 16, 24]);
        merging.join(0, 11);
        merging.join(2, 13);
        // All of them near all others, each asking in turn: they end up in one queue and stay there.
        let mut moves = 0;
        for turn in 0..40 {
            let stream = turn % 4;
            let in_service = [Some((11, Sector(0))), Some((13, Sector(0)))][turn as usize / 4 % 2];
            let asker = Asker { in_service, ..asker(stream, 8) };
            if let Some(queue) = merging.cooperator(at(0), &asker, |_| true) {
                merging.join(stream, queue);
                moves += 1;
            }
        }
        assert_eq!(merging.users(11).max(merging.users(13)), 4);
        assert_eq!(moves, 2);
    }

    /// merge.6
    #[test]
    fn a_shared_queue_that_seeks_is_parted_as_its_users_ask() {
        let mut merging = streams(&[0, 8, 16, 24]);
        merging.join(0, 11);
        merging.join(2, 11);
        merging.turn_ended(11, false);
        assert_eq!(merging.enter(0), None);
        merging.turn_ended(11, true);
        assert_eq!(find(&mut merging, 3, 8), None, "nobody joins it now");
        assert_eq!(merging.enter(1), None, "it is his");
        assert_eq!(merging.enter(0), Some(Moved { from: 11, to: 10 }));
        assert_eq!(merging.enter(2), Some(Moved { from: 11, to: 12 }));
        assert_eq!(find(&mut merging, 3, 8), Some(11), "parted, it is as any other");
    }

    /// merge.6
    #[test]
    fn a_lone_reader_that_seeks_is_not_parted_from_himself() {
        let mut merging = streams(&[0, 8]);
        merging.turn_ended(11, true);
        assert_eq!(find(&mut merging, 0, 8), Some(11));
    }

    /// merge.6
    #[test]
    fn a_queue_is_parted_when_all_others_have_gone() {
        let mut merging = streams(&[0, 8, 16]);
        merging.join(0, 11);
        merging.turn_ended(11, true);
        merging.remove_stream(0);
        assert_eq!(find(&mut merging, 2, 8), Some(11));
    }

    /// merge.6
    #[test]
    fn the_last_user_of_a_queue_whose_owner_has_gone_goes_home_if_it_seeks() {
        let mut merging = streams(&[0, 8, 16]);
        merging.join(0, 11);
        merging.join(2, 11);
        assert_eq!(merging.remove_stream(1), 11);
        assert_eq!(users(&merging, 11), [0, 2]);
        merging.turn_ended(11, true);
        assert_eq!(merging.enter(0), Some(Moved { from: 11, to: 10 }));
        assert_eq!(merging.remove_stream(2), 11);
        assert_eq!(merging.users(11), 0);
        merging.served(at(0), 11);
        merging.add_stream(7, 11); // the number is free, and nothing of the old queue is left
        assert_eq!(users(&merging, 11), [7]);
        assert_eq!(merging.cooperator(at(5000), &asker(7, 0), |_| true), Some(10));
    }

    /// merge.7
    #[test]
    fn off_nothing_is_kept_and_nobody_found() {
        let mut merging = Merging::default();
        merging.add_group(GROUP);
        for stream in 0..2 {
            merging.add_queue(stream);
            merging.add_stream(stream, stream);
        }
        for turn in 0..100 {
            for queue in 0..2 {
                merging.became_busy(queue);
                merging.set_head(queue, GROUP, Some(Sector(8 * turn)));
                assert_eq!(merging.cooperator(at(0), &asker(queue, 8 * turn), |_| panic!("not asked")), None);
                merging.served(at(turn), queue);
                merging.turn_ended(queue, true);
                assert_eq!(merging.enter(queue), None);
                merging.set_head(queue, GROUP, None);
            }
        }
        assert_eq!((merging.positions.ops, merging.merges), (0, 0));
        assert!(merging.queues.iter().all(|row| row.served == NEVER));
    }

    /// merge.7
    #[test]
    fn switched_off_everybody_is_at_home_and_on_again_all_is_as_new() {
        let mut merging = streams(&[0, 8, 16]);
        merging.join(0, 11);
        merging.join(2, 11);
        merging.turn_ended(11, true);
        merging.served(at(0), 10);
        merging.remove_stream(1);
        let ops = merging.positions.ops;
        assert!(merging.set_on(false) && !merging.set_on(false));
        assert_eq!((users(&merging, 10), users(&merging, 11), users(&merging, 12)), (vec![0], vec![], vec![2]));
        merging.set_head(10, GROUP, Some(Sector(0)));
        assert_eq!(merging.positions.ops, ops);
        assert!(merging.set_on(true));
        assert_eq!(merging.cooperator(at(5000), &asker(0, 0), |_| true), None, "nobody's next request is known");
        merging.set_head(12, GROUP, Some(Sector(16)));
        assert_eq!(merging.cooperator(at(5000), &asker(0, 0), |_| true), Some(12));
    }

    #[test]
    fn a_stream_takes_24_bytes_and_its_place_in_a_tree() {
        assert_eq!(size_of::<Row>() + size_of::<Use>(), 24);
    }
}
