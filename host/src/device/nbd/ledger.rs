//! Ledger: the promise of a flush when connections come and go, and the requests that are repeated.
//!
//! A server answers a write when it has it in its memory, and a flush when all answered writes are durable. Between the two the
//! server may be killed and started anew. A client that connects again and flushes gets the answer "done": the new server has
//! nothing to flush. Example: a database writes, its server restarts within 2 s, the database flushes, is told that all is
//! durable, and throws its log away; the writes are gone. So that flush must fail, and the database recovers from its log.
//!
//! ledger.1  A flush promises the writes that were answered before it was asked for. It is believed if its connection began before the first of
//!           them was given to a connection: a connection does not outlive its server, so the server that executed the writes is
//!           the one that flushed them. Nothing depends on when a loss is noticed, or when an answer is read.
//! ledger.2  A flush that another connection can speak for, an older one, is asked again there. Where there is none it fails, and so
//!           do those that were asked for before it failed. Then the loss has been told, and later flushes are of later writes. (The disk's queue goes on failing flushes until an operator takes
//!           note: flush.7.)
//! ledger.3  When a connection is lost, what changes no data is asked again on the next one, a flush too: ledger.1 judges it.
//! ledger.4  A request that changes data is asked again if the server cannot have had it whole, or if the server itself ended the connection:
//!           then it executes nothing more of it. If the connection was cut otherwise, the server may execute the first request
//!           after the second one, and after later writes to the same place; so the request fails, and its client knows that
//!           either is there.
//! ledger.5  Nothing is asked again of a server that broke the protocol: it would do so again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The beginning of a connection: the number of connections before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(super) struct Birth(u64);

/// The time at which a write was given to a connection: the number of connections by then.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Given(u64);

/// The promise of a flush: the number of first writes answered, and the number of losses reported by then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Promise {
    answered: u64,
    losses: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Worth {
    /// The promised writes are durable.
    Believed,
    /// This connection, in this slot, can speak for all that it promises.
    AskAt(Birth, usize),
    /// No connection can.
    Lost,
}

/// The writes of a device that a server has answered, on all connections together.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub(super) struct Ledger {
    births: u64,
    /// Connections that are not known to be lost, with their slots.
    alive: Vec<(Birth, usize)>,
    answered: u64,
    /// Those that are not durable, nor told to be lost, by when they were given: the first and the last one.
    owed: BTreeMap<u64, (u64, u64)>,
    /// How often a flush failed because writes may be lost.
    #[serde(rename = "told")]
    losses: u64,
}

impl Ledger {
    pub(super) fn born(&mut self, slot: usize) -> Birth {
        let birth = Birth(self.births);
        self.births += 1;
        self.alive.push((birth, slot));
        birth
    }

    /// Connections that are not known to be lost, with their slots.
    pub(super) fn alive(&self) -> &[(Birth, usize)] {
        &self.alive
    }

    /// Whether it can have come about: another server has told it.
    pub(super) fn is_possible(&self) -> bool {
        let is_born = |(birth, _): &(Birth, usize)| birth.0 < self.births;
        let is_ordered = |(given, (first, last)): (&u64, &(u64, u64))| {
            *given <= self.births && (1..=*last).contains(first) && *last <= self.answered
        };
        self.alive.iter().all(is_born) && self.owed.iter().all(is_ordered)
    }

    /// A write is given to a connection now.
    pub(super) const fn given(&self) -> Given {
        Given(self.births)
    }

    /// A write was answered, which is durable only once it is flushed.
    pub(super) fn wrote(&mut self, given: Given) {
        self.answered += 1;
        self.owed.entry(given.0).or_insert((self.answered, 0)).1 = self.answered;
    }

    pub(super) fn is_owed(&self) -> bool {
        !self.owed.is_empty()
    }

    /// Whether some of those may be lost.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.is_owed() && !self.alive.iter().any(|(birth, _)| self.speaks(*birth, self.promise()))
    }

    /// A flush is asked for.
    pub(super) const fn promise(&self) -> Promise {
        Promise { answered: self.answered, losses: self.losses }
    }

    /// Whether a connection can speak for all that a flush promises (ledger.1).
    pub(super) fn speaks(&self, connection: Birth, promise: Promise) -> bool {
        let first = self.owed.iter().find(|(_, (first, _))| *first <= promise.answered);
        first.is_none_or(|(given, _)| connection.0 < *given)
    }

    /// A flush that was sent on a connection succeeded there.
    pub(super) fn flushed(&mut self, connection: Birth, promise: Promise) -> Worth {
        if promise.losses != self.losses {
            return Worth::Lost; // ledger.2
        }
        let worth = match self.alive.iter().min() {
            _ if self.speaks(connection, promise) => Worth::Believed,
            Some((birth, slot)) if self.speaks(*birth, promise) => return Worth::AskAt(*birth, *slot),
            _ => Worth::Lost,
        };
        self.losses += u64::from(worth == Worth::Lost);
        self.owed.retain(|_, (first, last)| {
            *first = (*first).max(promise.answered + 1);
            *first <= *last
        });
        worth
    }

    /// A connection is lost, or not used any more.
    pub(super) fn lost(&mut self, connection: Birth) {
        self.alive.retain(|(birth, _)| *birth != connection);
        // Writes that nobody can speak for are all alike: however long nobody flushes, there are few entries.
        let oldest = self.alive.iter().min().map_or(self.births, |(birth, _)| birth.0);
        let others = self.owed.split_off(&(oldest + 1));
        let first = self.owed.values().map(|(first, _)| *first).min();
        let last = self.owed.values().map(|(_, last)| *last).max();
        self.owed = others;
        if let Some((first, last)) = first.zip(last) {
            self.owed.insert(0, (first, last));
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// The server closed it, or ended.
    ByServer,
    /// By us, or on the way: the server may still have what was sent.
    Cut,
    /// By us, because the server broke the protocol.
    Broken,
}

/// Whether a request that a lost connection did not answer is asked again (ledger.3, ledger.4); `whole`: the server may have had
/// it whole.
pub(super) fn is_asked_again(changes_data: bool, whole: bool, end: End) -> bool {
    match end {
        End::ByServer => true,
        End::Cut => !changes_data || !whole,
        End::Broken => false, // ledger.5
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, VecDeque};

    use fairlift_core::record::Record;
    use proptest::prelude::*;

    use super::*;

    /// Writes `count` times, given and answered at once.
    fn write(ledger: &mut Ledger, count: usize) {
        let given = ledger.given();
        (0..count).for_each(|_| ledger.wrote(given));
    }

    /// ledger.1, ledger.2
    #[test]
    fn a_flush_after_a_reconnect_fails_once_if_there_were_writes_that_nobody_flushed() {
        let mut ledger = Ledger::default();
        let first = ledger.born(0);
        write(&mut ledger, 3);
        assert!(!ledger.is_in_doubt());
        ledger.lost(first);
        assert!(ledger.is_in_doubt());
        let second = ledger.born(0);
        write(&mut ledger, 1);
        let promise = ledger.promise();
        assert_eq!(ledger.flushed(second, promise), Worth::Lost, "three writes may be lost");
        let promise = ledger.promise();
        assert_eq!(ledger.flushed(second, promise), Worth::Believed, "that was told");
        assert!(!ledger.is_in_doubt());
        ledger.lost(second);
        let (third, promise) = (ledger.born(0), ledger.promise());
        assert_eq!(ledger.flushed(third, promise), Worth::Believed, "nothing was owed");
    }

    /// ledger.1, ledger.2
    #[test]
    fn a_connection_that_is_older_than_the_writes_speaks_for_all() {
        let mut ledger = Ledger::default();
        let (old, other) = (ledger.born(0), ledger.born(1));
        write(&mut ledger, 5);
        ledger.lost(other);
        let (young, promise) = (ledger.born(1), ledger.promise());
        assert_eq!(ledger.flushed(young, promise), Worth::AskAt(old, 0), "perhaps it is a new server's");
        assert!(ledger.is_owed() && !ledger.is_in_doubt());
        assert_eq!(ledger.flushed(old, promise), Worth::Believed, "its server is the one that executed the writes");
        assert!(!ledger.is_owed());
    }

    /// ledger.1: neither the answer nor the loss was seen in time.
    #[test]
    fn a_write_whose_answer_is_read_after_its_server_was_replaced_is_not_spoken_for_by_the_new_one() {
        let mut ledger = Ledger::default();
        let (one, _other) = (ledger.born(0), ledger.born(1));
        let given = ledger.given();
        ledger.lost(one); // both went, and this loss was seen first
        let new = ledger.born(0);
        ledger.wrote(given); // the other one's, from what had been received
        let promise = ledger.promise();
        assert_ne!(ledger.flushed(new, promise), Worth::Believed);
    }

    #[test]
    fn what_is_owed_takes_little_memory_however_often_connections_are_lost() {
        let mut ledger = Ledger::default();
        for _ in 0..1000 {
            let birth = ledger.born(0);
            write(&mut ledger, 2);
            ledger.lost(birth);
        }
        assert_eq!((ledger.owed.len(), ledger.answered), (1, 2000));
        let (birth, promise) = (ledger.born(0), ledger.promise());
        write(&mut ledger, 1);
        assert_eq!(ledger.flushed(birth, promise), Worth::Lost);
        assert_eq!(ledger.owed.len(), 1, "the write after the flush");
    }

    /// ledger.3, ledger.4, ledger.5
    #[test]
    fn what_is_asked_again_depends_on_who_ended_the_connection() {
        let table = |end| {
            [(false, true), (true, false), (true, true)].map(|(changes, whole)| is_asked_again(changes, whole, end))
        };
        assert_eq!(table(End::ByServer), [true, true, true]);
        assert_eq!(table(End::Cut), [true, true, false]);
        assert_eq!(table(End::Broken), [false, false, false]);
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// Give a write to one of the connections.
        Write(usize),
        /// Send a flush on one.
        Flush(usize),
        /// The server executes the oldest request of one, and answers it.
        Execute(usize),
        /// The oldest answer on one is read; if there is none and the connection has ended, that is seen.
        Read(usize),
        /// A connection ends, and the server lives on.
        Drop(usize),
        /// The server is killed, and another one started.
        Restart,
        Connect,
        /// Another server of ours goes on with all connections (link.2).
        Upgrade,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0..3usize).prop_map(Step::Write),
            3 => (0..3usize).prop_map(Step::Flush),
            8 => (0..3usize).prop_map(Step::Execute),
            8 => (0..3usize).prop_map(Step::Read),
            1 => (0..3usize).prop_map(Step::Drop),
            1 => Just(Step::Restart),
            2 => Just(Step::Connect),
            1 => Just(Step::Upgrade),
        ]
    }

    /// A request or its answer; a flush with the writes that it is asked to make durable.
    #[derive(Clone)]
    enum Message {
        Write(u32, Given),
        Flush(Promise, BTreeSet<u32>),
    }

    struct Connection {
        birth: Birth,
        has_server: bool,
        queued: VecDeque<Message>,
        answered: VecDeque<Message>,
    }

    proptest! {
        /// ledger.1, ledger.2: against the dullest server, one that forgets all that was not flushed; with answers that are read late and
        /// losses that are seen late.
        #[test]
        fn a_flush_that_is_believed_made_durable_what_it_promises(steps in prop::collection::vec(step(), 1..200)) {
            let mut ledger = Ledger::default();
            let mut connections: Vec<Connection> = Vec::new();
            let (mut memory, mut stable) = (BTreeSet::new(), BTreeSet::new());
            let (mut answered, mut told_lost) = (BTreeSet::new(), BTreeSet::<u32>::new());
            let mut was_lost = false;
            for (number, step) in (0u32..).zip(steps) {
                let count = connections.len();
                let nth = |nth: usize| nth % count.max(1);
                match step {
                    Step::Connect if count < 3 => connections.push(Connection {
                        birth: ledger.born(number as usize),
                        has_server: true,
                        queued: VecDeque::new(),
                        answered: VecDeque::new(),
                    }),
                    Step::Upgrade => {
                        let mut record = Record::default();
                        record.put("ledger", &ledger);
                        ledger = Record::parse(&record.to_string()).unwrap().need("ledger").unwrap();
                        prop_assert!(ledger.is_possible());
                    }
                    Step::Drop(one) => if let Some(one) = connections.get_mut(nth(one)) {
                        (one.has_server, was_lost) = (false, true);
                    },
                    Step::Restart => {
                        was_lost = true;
                        memory.clear();
                        connections.iter_mut().for_each(|one| one.has_server = false);
                    }
                    Step::Write(one) => if let Some(one) = connections.get_mut(nth(one)) {
                        one.queued.push_back(Message::Write(number, ledger.given()));
                    },
                    Step::Flush(one) => if let Some(one) = connections.get_mut(nth(one)) {
                        let owed = answered.difference(&told_lost).copied().collect();
                        one.queued.push_back(Message::Flush(ledger.promise(), owed));
                    },
                    Step::Execute(one) => if let Some(one) = connections.get_mut(nth(one))
                        && one.has_server
                        && let Some(message) = one.queued.pop_front()
                    {
                        match &message {
                            Message::Write(write, _) => drop(memory.insert(*write)),
                            Message::Flush(..) => stable.append(&mut memory),
                        }
                        one.answered.push_back(message);
                    },
                    Step::Read(one) if count > 0 => {
                        let one = nth(one);
                        let birth = connections[one].birth;
                        match connections[one].answered.pop_front() {
                            None if connections[one].has_server => {}
                            None => {
                                ledger.lost(birth);
                                connections.remove(one);
                            }
                            Some(Message::Write(write, given)) => {
                                ledger.wrote(given);
                                answered.insert(write);
                            }
                            Some(Message::Flush(promise, owed)) => match ledger.flushed(birth, promise) {
                                Worth::Believed => {
                                    let missing: Vec<_> = owed.difference(&stable).collect();
                                    prop_assert!(missing.is_empty(), "said to be durable, and lost: {missing:?}");
                                }
                                Worth::AskAt(other, _) => {
                                    prop_assert!(other < birth, "asked again for ever");
                                    let other = connections.iter_mut().find(|one| one.birth == other);
                                    let other = other.expect("it is not known to be lost");
                                    other.queued.push_back(Message::Flush(promise, owed));
                                }
                                Worth::Lost => {
                                    prop_assert!(was_lost, "nothing was ever lost, and a flush failed");
                                    told_lost.extend(owed);
                                }
                            },
                        }
                    }
                    Step::Read(_) | Step::Connect => {}
                }
            }
        }
    }

    /// A server that may execute what it had, once, at any time after a connection was cut; not after it ended it itself.
    #[derive(Clone, Copy, Debug)]
    enum Fate {
        /// It had not all of the request.
        Partly,
        /// It had it, and executed it before it ended the connection, or never.
        Ended { executed: bool },
        /// It had it, the connection was cut, and it executes it after `after` later writes.
        Cut { after: usize },
    }

    proptest! {
        /// ledger.4: what was told to be written is there until something else is written.
        #[test]
        fn a_write_that_is_asked_again_is_not_followed_by_its_first_self(
            fate in prop_oneof![
                Just(Fate::Partly),
                any::<bool>().prop_map(|executed| Fate::Ended { executed }),
                (0..4usize).prop_map(|after| Fate::Cut { after }),
            ],
            later in 0..4usize,
        ) {
            let (whole, end) = match fate {
                Fate::Partly => (false, End::Cut),
                Fate::Ended { .. } => (true, End::ByServer),
                Fate::Cut { .. } => (true, End::Cut),
            };
            let mut there = 0; // what the block holds
            if matches!(fate, Fate::Ended { executed: true }) {
                there = 1;
            }
            let again = is_asked_again(true, whole, end);
            if again {
                there = 1;
            }
            let mut last = if again { 1 } else { 0 };
            for number in 0..later {
                if matches!(fate, Fate::Cut { after } if after == number) {
                    there = 1;
                }
                there = if number < later { number + 2 } else { there };
                last = number + 2;
            }
            if matches!(fate, Fate::Cut { after } if after >= later) {
                there = 1;
            }
            // A write that failed may be there or not, at any time; one that was told to be done must be the last one told.
            if again {
                prop_assert_eq!(there, last);
            }
        }
    }
}
