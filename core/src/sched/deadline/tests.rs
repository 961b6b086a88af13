//! Scenarios, one rule each.

use alloc::string::String;
use alloc::string::ToString;

use super::*;
use crate::sched::{RequestEnd, Tune};
use crate::{ContextId, Extent, Flags, GroupId, Op, Priority};

use PriorityClass::{BestEffort, Idle, RealTime};

/// A scheduler, a clock, and requests with names. Each method does one thing or checks one answer.
struct Scenario {
    deadline: Deadline,
    now: Instant,
    class: PriorityClass,
    stream: StreamId,
    /// By id.
    requests: Vec<(String, Waiting)>,
}

/// Where the first of some requests of 8 sectors lies, and how far from one to the next.
struct Places {
    start: u64,
    step: u64,
}

fn sector(start: u64) -> Places {
    Places { start, step: 0 }
}

impl Places {
    fn step(self, step: u64) -> Self {
        Self { step, ..self }
    }
}

fn scenario(settings: Settings) -> Scenario {
    let deadline = Deadline::new(64, settings);
    let stream = StreamId(0);
    Scenario { deadline, now: Instant::ZERO, class: BestEffort, stream, requests: Vec::new() }
}

fn default() -> Settings {
    Settings::default()
}

impl Scenario {
    fn read(self, name: &str, at: Places) -> Self {
        self.ask(Op::Read, name, at)
    }

    fn reads(self, names: &str, at: Places) -> Self {
        self.ask(Op::Read, names, at)
    }

    fn write(self, name: &str, at: Places) -> Self {
        self.ask(Op::Write, name, at)
    }

    fn writes(self, names: &str, at: Places) -> Self {
        self.ask(Op::Write, names, at)
    }

    fn ask(mut self, op: Op, names: &str, Places { mut start, step }: Places) -> Self {
        for name in names.split_whitespace() {
            let request = self.request(op, start);
            self.requests.push((name.to_string(), request));
            self.deadline.insert(self.now, &request);
            start += step;
        }
        self
    }

    fn request(&self, op: Op, start: u64) -> Waiting {
        Waiting {
            id: RequestId(u32::try_from(self.requests.len()).unwrap()),
            op,
            flags: Flags::NONE,
            extent: Extent::new(Sector(start), 8),
            stream: self.stream,
            group: GroupId::ROOT,
            priority: Priority { class: self.class, level: 4 },
        }
    }

    fn named(&self, name: &str) -> Waiting {
        self.requests.iter().find(|(other, _)| other == name).expect("a request of that name").1
    }

    /// Requests from here on have this class.
    fn class(self, class: PriorityClass) -> Self {
        Self { class, ..self }
    }

    /// Requests from here on are of this stream.
    fn stream(self, number: u32) -> Self {
        Self { stream: StreamId(number), ..self }
    }

    /// A stream is of another class now.
    fn moves(mut self, number: u32, class: PriorityClass) -> Self {
        let priority = Priority { class, level: 4 };
        let stream = Stream { group: GroupId::ROOT, priority, context: ContextId(0) };
        self.deadline.change_stream(self.now, StreamId(number), &stream);
        self
    }

    /// The time is now `since_start`.
    fn at(self, since_start: Duration) -> Self {
        Self { now: Instant::ZERO + since_start, ..self }
    }

    fn set(mut self, name: &str, value: &str) -> Self {
        self.deadline.set(name, value).unwrap();
        self
    }

    /// These go next, in this order; a `|` is for the eye, where a batch ends.
    fn dispatches(mut self, names: &str) -> Self {
        for (nth, name) in names.split_whitespace().filter(|&name| name != "|").enumerate() {
            let Next::Request(id) = self.deadline.dispatch(self.now) else { panic!("nothing instead of {name}") };
            let went = &self.requests[id.0 as usize].0;
            assert_eq!(went, name, "number {nth} of \"{names}\"");
        }
        self
    }

    fn dispatches_nothing(mut self) -> Self {
        assert_eq!(self.deadline.dispatch(self.now), Next::Empty);
        self
    }

    /// These come out, in this order, and nothing is left.
    fn drains(mut self, names: &str) -> Self {
        for name in names.split_whitespace() {
            assert_eq!(self.deadline.drain(self.now), Some(self.named(name).id), "{name}");
        }
        assert_eq!(self.deadline.drain(self.now), None);
        self
    }

    fn completes(mut self, names: &str) -> Self {
        for name in names.split_whitespace() {
            let served = Served { request: self.named(name), dispatched: self.now, end: RequestEnd::Done };
            self.deadline.completed(self.now, &served);
        }
        self
    }

    /// The device cannot take `name`, which was dispatched.
    fn turns_back(mut self, name: &str) -> Self {
        let request = self.named(name);
        self.deadline.requeue(self.now, &request);
        self
    }

    /// A newcomer at `start` finds `host` to join, and is joined to it; then `host` joins what it now touches.
    fn joins(mut self, op: Op, start: u64, host: &str, side: Side) -> Self {
        let newcomer = self.request(op, start);
        let mut host = self.named(host);
        assert_eq!(self.deadline.merge_candidate(&newcomer), Some((host.id, side)));
        host.extent.sectors += 8;
        if side == Side::Front {
            host.extent.start = newcomer.extent.start;
        }
        self.deadline.grown(&host, side);
        if let Some(next) = self.deadline.neighbour_after(&host) {
            host.extent.sectors += self.requests[next.0 as usize].1.extent.sectors;
            self.deadline.absorbed(&host, next);
        }
        self.requests[host.id.0 as usize].1 = host;
        self
    }

    /// A newcomer at `start` has nothing to join.
    fn joins_nothing(self, op: Op, start: u64) -> Self {
        assert_eq!(self.deadline.merge_candidate(&self.request(op, start)), None);
        self
    }

    fn holds(self, count: usize) -> Self {
        assert_eq!((self.deadline.len(), self.deadline.is_empty()), (count, count == 0));
        self
    }

    fn next_timeout_is(self, expected: Option<Duration>) -> Self {
        assert_eq!(self.deadline.next_timeout(), expected.map(|after| Instant::ZERO + after));
        self
    }
}

/// deadline.1: a request that comes in ahead of the sweep joins the batch, one that comes in behind it does not.
#[test]
fn a_batch_goes_up() {
    scenario(default())
        .reads("d a", sector(400))
        .reads("b e", sector(410).step(90))
        .dispatches("d a b")
        .read("behind", sector(405))
        .read("between", sector(499))
        .dispatches("between e | behind")
        .holds(0);
}

/// deadline.1: positions wrap to the oldest, but only when the batch is used up is the other direction looked at.
#[test]
fn a_batch_ends_after_fifo_batch_requests() {
    scenario(Settings { fifo_batch: 3, writes_starved: 1, ..default() })
        .write("W", sector(900))
        .reads("a b c d e", sector(0).step(8))
        .dispatches("a b c | W | d e")
        .dispatches_nothing();
}

/// deadline.2: two batches of reads, then the write that was waiting.
#[test]
fn a_waiting_write_goes_after_two_batches_of_reads() {
    scenario(Settings { fifo_batch: 2, writes_starved: 2, ..default() })
        .write("W", sector(900))
        .reads("a b c d e f", sector(0).step(8))
        .dispatches("a b | c d | W | e f");
}

/// deadline.2: the count starts again with each batch of writes.
#[test]
fn writes_are_patient_again_once_served() {
    scenario(Settings { fifo_batch: 1, writes_starved: 2, ..default() })
        .writes("V W X", sector(900).step(8))
        .reads("a b c d e", sector(0).step(8))
        .dispatches("a | b | V | c | d | W | e | X");
}

/// deadline.2: reads that go while no write waits use up nobody's patience.
#[test]
fn only_a_write_that_waits_is_passed_over() {
    scenario(Settings { fifo_batch: 1, writes_starved: 2, ..default() })
        .reads("a b c d e", sector(0).step(8))
        .dispatches("a | b")
        .write("W", sector(900))
        .dispatches("c | d | W | e");
}

/// deadline.2: whatever changes the disk is a write.
#[test]
fn discards_and_zeroes_give_way_to_reads() {
    scenario(default())
        .ask(Op::Discard, "D", sector(0))
        .ask(Op::WriteZeroes, "Z", sector(8))
        .read("a", sector(900))
        .dispatches("a | D Z");
}

/// deadline.3: the next batch of a direction starts where the last one ended, not at the lowest sector.
#[test]
fn a_direction_goes_on_where_it_stopped() {
    scenario(Settings { fifo_batch: 1, writes_starved: 1, ..default() })
        .read("a", sector(100))
        .write("W", sector(0))
        .dispatches("a | W")
        .reads("low high", sector(50).step(100))
        .dispatches("high | low");
}

/// deadline.3: with nothing further on, the sweep starts at the oldest, wherever it is.
#[test]
fn past_the_last_sector_the_oldest_is_next() {
    scenario(default())
        .read("far", sector(900))
        .dispatches("far")
        .read("old", sector(500))
        .read("low", sector(100))
        .dispatches("old | low");
}

/// deadline.3.
#[test]
fn an_expired_read_starts_the_next_batch() {
    scenario(Settings { fifo_batch: 2, ..default() })
        .read("far", sector(900))
        .dispatches("far")
        .read("old", sector(500))
        .at(ms(1))
        .reads("a b c", sector(908).step(8))
        .at(ms(499))
        .dispatches("a | b c")
        .at(ms(500))
        .reads("d", sector(932))
        .dispatches("old d");
}

/// deadline.3: an expired request waits until the batch is over.
#[test]
fn an_expired_read_does_not_break_a_batch() {
    scenario(Settings { fifo_batch: 4, ..default() })
        .read("far", sector(900))
        .dispatches("far")
        .read("old", sector(500))
        .reads("a b c d", sector(908).step(8))
        .at(secs(1))
        .dispatches("a b c | old d");
}

/// deadline.3: writes have a deadline of their own.
#[test]
fn an_expired_write_starts_the_next_batch_of_writes() {
    scenario(Settings { fifo_batch: 1, ..default() })
        .write("far", sector(900))
        .dispatches("far")
        .write("old", sector(500))
        .writes("A B", sector(908).step(8))
        .at(ms(4_999))
        .dispatches("A")
        .at(secs(5))
        .dispatches("old | B");
}

/// deadline.3: a request that waits has the deadline that is set now.
#[test]
fn a_shorter_expiry_counts_for_those_that_wait() {
    scenario(Settings { fifo_batch: 1, ..default() })
        .read("far", sector(900))
        .dispatches("far")
        .reads("old", sector(500))
        .reads("a b", sector(908).step(8))
        .at(ms(20))
        .dispatches("a")
        .set("read_expire", "20")
        .dispatches("old | b");
}

/// deadline.4: one class's writes do not make another's wait longer.
#[test]
fn each_class_counts_its_own_passed_over_writes() {
    scenario(Settings { fifo_batch: 1, writes_starved: 2, ..default() })
        .write("W", sector(900))
        .reads("a b c", sector(0).step(8))
        .dispatches("a")
        .class(RealTime)
        .write("R", sector(700))
        .dispatches("R")
        .completes("R")
        .dispatches("b | W | c");
}

/// deadline.5: waiting or at the device, a higher request holds lower ones back.
#[test]
fn a_lower_class_waits_until_a_higher_one_is_done() {
    scenario(default())
        .class(Idle)
        .read("i", sector(0))
        .class(BestEffort)
        .read("b", sector(8))
        .class(RealTime)
        .read("r", sector(16))
        .dispatches("r")
        .dispatches_nothing()
        .completes("r")
        .dispatches("b")
        .dispatches_nothing()
        .completes("b")
        .dispatches("i");
}

/// deadline.6: all others of its class still wait, and the higher class's batch goes on.
#[test]
fn an_aged_request_goes_before_the_higher_class() {
    scenario(Settings { fifo_batch: 4, ..default() })
        .write("old", sector(100))
        .at(secs(1))
        .reads("young", sector(108))
        .class(RealTime)
        .at(ms(9_999))
        .reads("r s t", sector(900).step(8))
        .dispatches("r")
        .at(secs(10))
        .dispatches("old s t")
        .dispatches_nothing();
}

/// deadline.6: among lower classes age decides, not class.
#[test]
fn of_aged_requests_the_oldest_goes_first() {
    scenario(default())
        .class(Idle)
        .reads("i", sector(0))
        .at(ms(1))
        .class(BestEffort)
        .reads("b", sector(8))
        .class(RealTime)
        .at(secs(11))
        .read("r", sector(16))
        .dispatches("i b r");
}

/// deadline.6: what has the device to itself goes in sector order, however old.
#[test]
fn the_highest_class_in_use_does_not_age() {
    scenario(default())
        .reads("far", sector(900))
        .reads("near", sector(8))
        .at(secs(11))
        .set("read_expire", "60s")
        .dispatches("near far");
}

/// deadline.6: a lower class that is held back asks to be looked at again when its oldest will have aged.
#[test]
fn the_time_at_which_a_request_ages_is_announced() {
    scenario(default())
        .next_timeout_is(None)
        .at(secs(1))
        .write("w", sector(0))
        .class(RealTime)
        .read("r", sector(0))
        .dispatches("r")
        .dispatches_nothing()
        .next_timeout_is(Some(secs(11)))
        .at(secs(11))
        .dispatches("w")
        .next_timeout_is(None);
}

/// deadline.7: first within its class, before the rest of the batch too, but behind every higher class.
#[test]
fn what_the_device_could_not_take_goes_first_in_its_class() {
    scenario(default())
        .reads("a b", sector(0).step(8))
        .dispatches("a")
        .turns_back("a")
        .holds(2)
        .class(RealTime)
        .read("r", sector(900))
        .dispatches("r")
        .completes("r")
        .dispatches("a b")
        .holds(0);
}

/// deadline.7.
#[test]
fn what_the_device_could_not_take_keeps_its_age() {
    scenario(default())
        .read("a", sector(0))
        .dispatches("a")
        .at(secs(9))
        .turns_back("a")
        .class(RealTime)
        .read("r", sector(900))
        .at(secs(10))
        .dispatches("a r");
}

/// deadline.7, deadline.5, deadline.9: a completion of an earlier scheduler's request means nothing, and such a request that is turned back
/// is new.
#[test]
fn requests_of_a_replaced_scheduler_are_taken_back_and_let_go() {
    let mut new = scenario(Settings { async_depth: 1, ..default() });
    let (known, unknown) = (new.request(Op::Write, 0), new.request(Op::Write, 8));
    new.requests.push(("known".to_string(), known));
    let unknown = Waiting { id: RequestId(1), ..unknown };
    new.requests.push(("unknown".to_string(), unknown));
    new.completes("unknown")
        .turns_back("known")
        .write("w", sector(0))
        .dispatches("known")
        .dispatches_nothing()
        .completes("known")
        .dispatches("w");
}

/// deadline.5, deadline.9: nothing that waits stays behind, whatever is at the device.
#[test]
fn all_that_waits_can_be_drained() {
    scenario(Settings { async_depth: 1, ..default() })
        .writes("A B C", sector(0).step(8))
        .dispatches("A")
        .turns_back("A")
        .dispatches("A")
        .reads("a", sector(900))
        .class(RealTime)
        .reads("r s", sector(0).step(8))
        .dispatches("r")
        .drains("s B C a")
        .holds(0)
        .completes("A r")
        .class(Idle)
        .read("i", sector(0))
        .dispatches("i");
}

/// deadline.8.
#[test]
fn a_newcomer_joins_at_the_end_or_the_start() {
    scenario(default())
        .read("a", sector(100))
        .joins(Op::Read, 108, "a", Side::Back)
        .joins(Op::Read, 116, "a", Side::Back)
        .joins(Op::Read, 92, "a", Side::Front)
        .joins(Op::Read, 84, "a", Side::Front)
        .joins_nothing(Op::Read, 100)
        .holds(1);
}

/// deadline.8: only its own kind.
#[test]
fn a_newcomer_does_not_join_another_class_or_direction() {
    scenario(default())
        .read("a", sector(100))
        .joins_nothing(Op::Write, 108)
        .class(RealTime)
        .joins_nothing(Op::Read, 108)
        .class(BestEffort)
        .dispatches("a")
        .joins_nothing(Op::Read, 108);
}

/// deadline.8.
#[test]
fn front_merges_can_be_turned_off() {
    scenario(default()).read("a", sector(100)).set("front_merges", "0").joins_nothing(Op::Read, 92).joins(
        Op::Read,
        108,
        "a",
        Side::Back,
    );
}

/// deadline.8: a request that grew at its start lies where it now starts; out of the sweep's way, if it comes to that.
#[test]
fn a_request_that_grew_in_front_is_served_by_its_new_start() {
    scenario(default())
        .read("x", sector(100))
        .dispatches("x")
        .reads("a b c", sector(104).step(12))
        .joins(Op::Read, 96, "a", Side::Front)
        .dispatches("b c | a");
}

/// deadline.8: two that become one are served when the older would have been.
#[test]
fn a_merge_takes_the_place_and_the_age_of_the_older() {
    scenario(Settings { fifo_batch: 1, ..default() })
        .read("far", sector(900))
        .dispatches("far")
        .read("gone", sector(116))
        .at(ms(1))
        .read("other", sector(500))
        .read("kept", sector(100))
        .reads("a", sector(908))
        .joins(Op::Read, 108, "kept", Side::Back)
        .holds(3)
        .joins_nothing(Op::Read, 116)
        .at(ms(500))
        .dispatches("kept | other | a")
        .holds(0);
}

/// deadline.8: it does not get younger either.
#[test]
fn a_merge_with_a_younger_request_changes_no_deadline() {
    scenario(Settings { fifo_batch: 1, ..default() })
        .read("far", sector(900))
        .dispatches("far")
        .read("kept", sector(100))
        .at(ms(1))
        .reads("gone", sector(116))
        .reads("a", sector(908))
        .joins(Op::Read, 108, "kept", Side::Back)
        .at(ms(500))
        .dispatches("kept | a")
        .dispatches_nothing();
}

/// deadline.9: neither a new batch nor one that runs; reads go all the same.
#[test]
fn writes_are_held_back_while_async_depth_are_out() {
    scenario(Settings { async_depth: 2, ..default() })
        .writes("A B C D", sector(0).step(8))
        .dispatches("A B")
        .dispatches_nothing()
        .reads("r s", sector(900).step(8))
        .dispatches("r s")
        .completes("B")
        .dispatches("C")
        .dispatches_nothing()
        .set("async_depth", "0")
        .dispatches("D");
}

/// deadline.9: a write that was turned back has its place already.
#[test]
fn a_write_that_was_turned_back_needs_no_second_place() {
    scenario(Settings { async_depth: 1, ..default() })
        .writes("A B", sector(0).step(8))
        .dispatches("A")
        .turns_back("A")
        .dispatches("A")
        .dispatches_nothing()
        .completes("A")
        .dispatches("B");
}

/// deadline.6, deadline.9: a write that may not go does not stand in the way of a read that has aged.
#[test]
fn a_held_write_does_not_hold_an_aged_read() {
    scenario(Settings { async_depth: 1, ..default() })
        .writes("A B", sector(0).step(8))
        .reads("r", sector(900))
        .set("fifo_batch", "1")
        .dispatches("r A")
        .reads("s", sector(908))
        .class(RealTime)
        .reads("t", sector(0))
        .at(secs(10))
        .dispatches("s t")
        .dispatches_nothing()
        .next_timeout_is(None);
}

#[test]
fn every_tunable_shows_the_kernels_default() {
    let deadline = Deadline::new(1, default());
    let shown = deadline.tunables().iter().map(|row| (row.name, deadline.get(row.name).unwrap()));
    let expected = [
        ("read_expire", "500ms"),
        ("write_expire", "5s"),
        ("fifo_batch", "16"),
        ("writes_starved", "2"),
        ("front_merges", "1"),
        ("prio_aging_expire", "10s"),
        ("async_depth", "0"),
    ];
    assert!(shown.eq(expected.map(|(name, value)| (name, value.to_string()))));
}

/// deadline.2: at 0, reads could wait for ever.
#[test]
fn writes_starved_is_at_least_one() {
    let refusal = Deadline::new(1, default()).set("writes_starved", "0").unwrap_err();
    assert_eq!(refusal.to_string(), "writes_starved takes a number from 1 to 2147483647, not \"0\"");
}

#[test]
#[should_panic(expected = "RequestId(0) waits or is at the device")]
fn an_id_that_is_out_cannot_be_given_to_another() {
    let mut scenario = scenario(default()).read("a", sector(0)).dispatches("a");
    let again = scenario.named("a");
    scenario.deadline.insert(Instant::ZERO, &again);
}

/// deadline.10: only what waits of that stream moves, and its age goes with it.
#[test]
fn what_waits_of_a_stream_moves_to_its_new_class_with_its_age() {
    scenario(Settings { fifo_batch: 1, ..default() })
        .read("mine", sector(500))
        .stream(1)
        .read("others", sector(0))
        .at(ms(1))
        .class(RealTime)
        .reads("far late", sector(900).step(8))
        .dispatches("far")
        .moves(0, RealTime)
        .at(ms(500))
        .dispatches("mine | late")
        .dispatches_nothing()
        .completes("far mine late")
        .dispatches("others");
}

/// deadline.10: what is at the device holds back the classes below the one with which it went there.
#[test]
fn what_is_at_the_device_stays_of_its_class_when_its_stream_moves() {
    scenario(default())
        .class(RealTime)
        .read("a", sector(0))
        .dispatches("a")
        .moves(0, Idle)
        .stream(1)
        .class(BestEffort)
        .read("b", sector(8))
        .dispatches_nothing()
        .completes("a")
        .dispatches("b")
        .completes("b")
        .holds(0);
}
