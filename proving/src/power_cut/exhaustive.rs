//! Every order: all sequences of few requests, with all ways in which they, the disk and time may take turns.
//!
//! exhaustive.1  Requests are asked for in the order of the sequence, each by its own connection, whether or not those before have
//!     ended; one is asked for together with the one before, or after the disk has been given that.
//! exhaustive.2  The disk ends what it has in any order, flushes well or, once in a sequence, badly.
//! exhaustive.3  Another request's operation under way lands before it or after it.
//! exhaustive.4  The power may fail after every step.

use fairlift_core::{
    ContextId, Dispatch, Errno, Extent, Finished, Flags, GroupId, Instant, Op, Outcome, Priority, Sector, Stream,
};

use super::{Bench, Landing, OnFailure, Subject, Tally};

/// The requests that sequences are made of, on three sectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestKind {
    /// Writes the first two sectors.
    Write,
    /// Writes the last two.
    WriteOverlap,
    /// Writes the first two, durably.
    Fua,
    /// Flushes.
    Flush,
    /// Discards the first two.
    Trim,
    /// Zeroes the last two.
    Zeroes,
}

impl RequestKind {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Write, Self::WriteOverlap, Self::Fua, Self::Flush, Self::Trim, Self::Zeroes];

    const fn asks(self) -> (Op, Flags, Extent) {
        let (first, last) = (Extent::new(Sector(0), 2), Extent::new(Sector(1), 2));
        match self {
            Self::Write => (Op::Write, Flags::NONE, first),
            Self::WriteOverlap => (Op::Write, Flags::NONE, last),
            Self::Fua => (Op::Write, Flags::FUA, first),
            Self::Flush => (Op::Flush, Flags::NONE, Extent::NONE),
            Self::Trim => (Op::Discard, Flags::NONE, first),
            Self::Zeroes => (Op::WriteZeroes, Flags::NONE, last),
        }
    }
}

/// Sectors of the disk.
pub const SECTORS: u64 = 3;

/// How far a search went.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Searched {
    /// Sequences of requests, by the connection that asks for them.
    pub sequences: u64,
    /// Orders of events, over all sequences.
    pub orders: u64,
    /// The events of all of them.
    pub tally: Tally,
}

impl Searched {
    /// Adds what another search did.
    pub fn add(&mut self, other: &Self) {
        self.sequences += other.sequences;
        self.orders += other.orders;
        self.tally.add_all(&other.tally);
    }
}

/// Runs every order of every sequence of `length` of these requests against a subject of two contexts, made anew for each.
///
/// # Errors
/// The broken promise, with the sequence and its events.
pub fn run<S: Subject>(
    requests: &[RequestKind],
    length: u32,
    on_failure: OnFailure,
    mut subject: impl FnMut() -> S,
) -> Result<Searched, String> {
    let mut searched = Searched::default();
    for number in 0..requests.len().pow(length) {
        let sequence: Vec<_> =
            (0..length).map(|place| requests[number / requests.len().pow(place) % requests.len()]).collect();
        // Which of two connections asks; the first is always the same one's.
        for askers in 0..1_u16 << (length - 1) {
            searched.sequences += 1;
            let mut choices = Choices::default();
            loop {
                let mut order = Interleaving::new(&sequence, askers << 1, on_failure, subject());
                let result = order.go(&mut choices);
                searched.orders += 1;
                searched.tally.add_all(&order.bench.tally);
                if let Err(says) = result {
                    return Err(format!("{sequence:?} asked by {:?}: {says}; {:?}", order.askers(), order.happened));
                }
                if !choices.next() {
                    break;
                }
            }
        }
    }
    Ok(searched)
}

/// A path through a tree of choices, and the one after it.
#[derive(Default)]
struct Choices {
    /// (what was chosen, of how many).
    path: Vec<(u32, u32)>,
    at: usize,
}

impl Choices {
    fn choose(&mut self, of: u32) -> u32 {
        if self.at == self.path.len() {
            self.path.push((0, of));
        }
        let (chosen, before) = self.path[self.at];
        assert!(
            before == of,
            "the same choices led to {before} ways and now to {of}: the subject is not deterministic"
        );
        self.at += 1;
        chosen
    }

    /// Whether there is another path.
    fn next(&mut self) -> bool {
        self.at = 0;
        while let Some((chosen, of)) = self.path.pop() {
            if chosen + 1 < of {
                self.path.push((chosen + 1, of));
                return true;
            }
        }
        false
    }
}

/// The possible next events.
#[derive(Clone, Copy, Debug)]
enum Choice {
    Requested,
    AskedTogether,
    Ended(Dispatch, Landing),
    Failed(Dispatch),
    TimePassed(Instant),
}

/// One order of a sequence.
struct Interleaving<'a, S> {
    sequence: &'a [RequestKind],
    /// A bit for each request: which connection asks.
    askers: u16,
    streams: [fairlift_core::StreamId; 2],
    subject: S,
    bench: Bench,
    wanted: usize,
    over: Vec<bool>,
    under_way: Vec<Dispatch>,
    may_fail: bool,
    now: Instant,
    happened: Vec<String>,
}

impl<'a, S: Subject> Interleaving<'a, S> {
    fn new(sequence: &'a [RequestKind], askers: u16, on_failure: OnFailure, mut subject: S) -> Self {
        let streams = [0, 1].map(|context| {
            let stream = Stream { group: GroupId::ROOT, priority: Priority::default(), context: ContextId(context) };
            subject.add_stream(stream)
        });
        Self {
            sequence,
            askers,
            streams,
            subject,
            bench: Bench::new(1, SECTORS, on_failure, 1),
            wanted: 0,
            over: vec![false; sequence.len()],
            under_way: Vec::new(),
            may_fail: true,
            now: Instant::ZERO,
            happened: Vec::new(),
        }
    }

    fn askers(&self) -> Vec<usize> {
        (0..self.sequence.len()).map(|place| self.asker(place)).collect()
    }

    fn asker(&self, place: usize) -> usize {
        usize::from(self.askers >> place & 1)
    }

    fn go(&mut self, choices: &mut Choices) -> Result<(), String> {
        loop {
            let events = self.possible();
            if events.is_empty() {
                break;
            }
            let event = events[choices.choose(events.len() as u32) as usize];
            self.happened.push(format!("{event:?}"));
            self.happen(event)?;
        }
        match self.over.iter().position(|over| !over) {
            Some(place) => Err(format!("request {} never ends", place + 1)), // cut.2
            None => Ok(()),
        }
    }

    fn possible(&self) -> Vec<Choice> {
        let mut events = Vec::new();
        if self.wanted < self.sequence.len() {
            events.push(Choice::Requested);
            if self.wanted + 1 < self.sequence.len() {
                events.push(Choice::AskedTogether); // exhaustive.1
            }
        }
        for one in &self.under_way {
            let crosses = |other: &Dispatch| other.tag != one.tag && other.extent.overlaps(one.extent);
            events.push(Choice::Ended(*one, Landing::Last));
            if self.under_way.iter().any(crosses) {
                events.push(Choice::Ended(*one, Landing::First)); // exhaustive.3
            }
            if one.op == Op::Flush && self.may_fail {
                events.push(Choice::Failed(*one)); // exhaustive.2
            }
        }
        // A wait for company, or for a busy disk; not a timeout of requests in the disk.
        if let Some(at) = self.subject.poll_timeout(ContextId(0))
            && (self.under_way.is_empty() || at.since(self.now) < fairlift_core::time::secs(1))
        {
            events.push(Choice::TimePassed(at));
        }
        events
    }

    fn happen(&mut self, event: Choice) -> Result<(), String> {
        match event {
            Choice::Requested => self.ask()?,
            Choice::AskedTogether => {
                self.ask()?;
                return self.bench.cut(); // nothing is given to the disk before the next is asked for
            }
            Choice::Ended(dispatch, landing) => self.end(&dispatch, Outcome::Done, landing)?,
            Choice::Failed(dispatch) => {
                self.may_fail = false;
                self.end(&dispatch, Outcome::Failed(Errno::EIO), Landing::Last)?;
            }
            Choice::TimePassed(at) => {
                self.now = self.now.max(at);
                self.subject.handle_timeout(self.now, ContextId(0));
            }
        }
        self.turn()
    }

    fn ask(&mut self) -> Result<(), String> {
        let place = self.wanted;
        let (op, flags, extent) = self.sequence[place].asks();
        let bio = self.bench.submitted(op, flags, extent, self.streams[self.asker(place)]);
        self.wanted += 1;
        self.subject.submit(self.now, bio).map_err(|refused| format!("{bio:?} is refused: {refused}"))
    }

    fn end(&mut self, dispatch: &Dispatch, outcome: Outcome, landing: Landing) -> Result<(), String> {
        self.under_way.retain(|other| other.tag != dispatch.tag);
        self.bench.ends(dispatch.tag, outcome, landing)?;
        self.subject.handle_completion(self.now, dispatch.tag, outcome);
        Ok(())
    }

    fn turn(&mut self) -> Result<(), String> {
        let mut asks_again = true;
        while asks_again {
            asks_again = false;
            for context in [ContextId(0), ContextId(1)] {
                while let Some(dispatch) = self.subject.poll_dispatch(self.now, context) {
                    self.bench.given(&dispatch, &self.subject.segments(dispatch.tag));
                    self.under_way.push(dispatch);
                    asks_again = true;
                }
                while let Some(news) = self.subject.poll_finished(context) {
                    let Finished::Done(token, outcome) = news else { return Err(format!("{news:?} too early")) };
                    if std::mem::replace(&mut self.over[token.0 as usize - 1], true) {
                        return Err(format!("request {} ends twice", token.0)); // cut.2
                    }
                    self.bench.heard(token, outcome);
                    self.bench.cut()?;
                    asks_again = true;
                }
            }
            while self.subject.poll_wake(ContextId(0)).is_some() {}
        }
        self.bench.cut() // exhaustive.4
    }
}
