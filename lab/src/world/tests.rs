//! The rules of the world, one scenario each.

use std::sync::{Arc, Mutex};

use fairlift_core::model::Model;
use fairlift_core::program::Meter;
use fairlift_core::queue::Settings;
use fairlift_core::sched::Kind;
use fairlift_core::time::{ms, us};
use fairlift_core::{Extent, Flags, GroupId, Limits, Op, Priority, Sector};

use super::*;
use crate::program::{Direct, Pattern, Region, direct};
use crate::{fixed_time, given_times};

const LIMITS: Limits = Limits::new(1 << 20);

fn stream() -> Stream {
    Stream { group: GroupId::ROOT, priority: Priority::default(), context: CONTEXT }
}

fn world(change: impl FnOnce(&mut Settings), model: impl Model + 'static) -> World {
    let mut settings = Settings::new(Kind::None, LIMITS);
    change(&mut settings);
    World::new(Queue::new(settings), Box::new(model))
}

fn at(micros: u64) -> Instant {
    Instant::ZERO + us(micros)
}

/// The answers to programs, in order: (program, time, token, outcome).
type Heard = Arc<Mutex<Vec<(char, Instant, u32, Outcome)>>>;

/// Reads the given places one after another, or all at once.
struct Reads {
    name: char,
    places: Vec<u64>,
    next: usize,
    at_once: bool,
    starts: Instant,
    is_waiting: bool,
    heard: Heard,
    meter: Meter,
}

fn reads(name: char, places: &[u64], at_once: bool, heard: &Heard) -> Box<Reads> {
    Box::new(Reads {
        name,
        places: places.into(),
        next: 0,
        at_once,
        starts: Instant::ZERO,
        is_waiting: false,
        heard: heard.clone(),
        meter: Meter::default(),
    })
}

impl Program for Reads {
    fn poll_ask(&mut self, now: Instant) -> Option<Ask> {
        if now < self.starts || self.is_waiting && !self.at_once {
            return None;
        }
        let place = *self.places.get(self.next)?;
        let token = self.next as u32;
        self.next += 1;
        self.is_waiting = true;
        Some(Ask { token, op: Op::Read, flags: Flags::NONE, extent: Extent::new(Sector(place), 8) })
    }

    fn handle_end(&mut self, now: Instant, token: u32, outcome: Outcome) {
        self.is_waiting = false;
        self.heard.lock().unwrap().push((self.name, now, token, outcome));
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (self.next == 0).then_some(self.starts)
    }

    fn meter(&self) -> &Meter {
        &self.meter
    }
}

fn heard(heard: &Heard) -> Vec<(char, u64)> {
    heard.lock().unwrap().iter().map(|(name, at, ..)| (*name, at.as_nanos() / 1000)).collect()
}

/// world.1, world.2
#[test]
fn time_goes_from_event_to_event_and_those_of_one_time_keep_their_order() {
    let news = Heard::default();
    let mut world = world(|_| (), fixed_time(LIMITS, us(100)));
    world.add(stream(), reads('a', &[0, 800], false, &news));
    world.add(stream(), reads('b', &[400], false, &news));
    world.run_until(at(150));
    assert_eq!((heard(&news), world.now()), (vec![('a', 100), ('b', 100)], at(150)));
    world.run_until(at(200));
    assert_eq!(heard(&news)[2..], [('a', 200)], "what happens at the end happens");
}

#[test]
fn a_program_is_asked_when_it_said() {
    let news = Heard::default();
    let mut world = world(|_| (), fixed_time(LIMITS, us(100)));
    world.add(stream(), Box::new(Reads { starts: at(33), ..*reads('a', &[0], false, &news) }));
    world.run_until(at(500));
    assert_eq!(heard(&news), [('a', 133)]);
}

/// Notes when its clock rang.
struct Alarms(char, VecDeque<Instant>, Heard, Meter);

impl Program for Alarms {
    fn poll_ask(&mut self, now: Instant) -> Option<Ask> {
        while self.1.pop_front_if(|at| *at <= now).is_some() {
            self.2.lock().unwrap().push((self.0, now, 0, Outcome::Done));
        }
        None
    }

    fn handle_end(&mut self, _now: Instant, _token: u32, _outcome: Outcome) {}

    fn poll_timeout(&self) -> Option<Instant> {
        self.1.front().copied()
    }

    fn meter(&self) -> &Meter {
        &self.3
    }
}

/// world.2: b said 50 before a did.
#[test]
fn clocks_that_ring_together_ring_in_the_order_in_which_they_were_set() {
    let news = Heard::default();
    let mut world = world(|_| (), fixed_time(LIMITS, us(100)));
    world.add(stream(), Box::new(Alarms('a', [at(10), at(50)].into(), news.clone(), Meter::default())));
    world.add(stream(), Box::new(Alarms('b', [at(50)].into(), news.clone(), Meter::default())));
    world.run_until(at(100));
    assert_eq!(heard(&news), [('a', 10), ('b', 50), ('a', 50)]);
}

/// world.3: neighbours that different programs of a group ask at one instant are still one request.
#[test]
fn what_is_asked_at_one_instant_is_one_batch() {
    let news = Heard::default();
    let mut world = world(|settings| settings.scheduler = Kind::MqDeadline, fixed_time(LIMITS, us(100)));
    world.remember();
    world.add(stream(), reads('a', &[0, 8, 16], true, &news));
    world.add(stream(), reads('b', &[24], true, &news));
    world.run_until(at(100));
    assert_eq!(world.dispatched().iter().map(|d| d.extent).collect::<Vec<_>>(), [Extent::new(Sector(0), 32)]);
    assert_eq!(heard(&news).len(), 4);
}

/// world.3: four sequential reads that a job keeps in the disk stay four, though all begin at once.
#[test]
fn what_is_asked_one_by_one_is_no_batch() {
    let settings = direct::Settings {
        think: fairlift_core::Duration::ZERO,
        ..direct::Settings::new(Op::Read, Pattern::Sequential, 4096, 4)
    };
    let mut world = world(|settings| settings.depth = 32, fixed_time(LIMITS, us(100)));
    world.remember();
    let file = Region { start: Sector(0), bytes: 1 << 20 };
    let index = world.add(stream(), Box::new(Direct::new(settings, file, 1)));
    world.run_until(at(250));
    assert_eq!(world.dispatched().iter().map(|d| d.extent.sectors).collect::<Vec<_>>(), [8; 12]);
    assert_eq!(world.program(index).meter().operations, 8);
}

/// world.4
#[test]
fn who_finds_no_room_waits_and_goes_in_in_order() {
    let news = Heard::default();
    let mut world = world(|settings| (settings.depth, settings.nr_requests) = (1, 2), fixed_time(LIMITS, us(100)));
    world.add(stream(), reads('a', &[0, 100, 200, 300], true, &news));
    world.add(stream(), reads('b', &[400], true, &news));
    world.add(stream(), reads('c', &[500], true, &news));
    world.run_until(at(1000));
    // Two of a's have room; its third, then b and c wait; its fourth comes when the third is in.
    assert_eq!(heard(&news), [('a', 100), ('a', 200), ('a', 300), ('b', 400), ('c', 500), ('a', 600)]);
}

/// queue.6: the program hears at once, the disk keeps the request.
#[test]
fn a_request_that_times_out_is_heard_once_and_ends_for_good_when_the_disk_answers() {
    let news = Heard::default();
    let slow = given_times(LIMITS, |_, _, _| (ms(70), Outcome::Done));
    let mut world = world(|settings| settings.io_timeout = ms(30), slow);
    world.add(stream(), reads('a', &[0], false, &news));
    world.run_until(at(50_000));
    assert_eq!(heard(&news), [('a', 30_000)]);
    assert_eq!(news.lock().unwrap()[0].3, Outcome::Failed(Errno::ETIMEDOUT));
    world.drain();
    assert_eq!((heard(&news).len(), world.now()), (1, at(70_000)));
}

#[test]
fn who_drains_lets_nobody_ask_and_waits_for_all() {
    let news = Heard::default();
    let mut world = world(|settings| (settings.depth, settings.nr_requests) = (1, 2), fixed_time(LIMITS, us(100)));
    world.add(stream(), reads('a', &[0, 100, 200, 300, 400], true, &news));
    world.run_until(at(50));
    world.drain();
    assert_eq!(heard(&news), [('a', 100), ('a', 200), ('a', 300)], "three were asked");
    assert_eq!((world.queue().load().waiting, world.queue().load().in_flight), (0, 0));
}

/// world.5
#[test]
#[should_panic(expected = "seed 12 at 0.000000000 s: a program asks what cannot be: sectors 1048576 to 1048584")]
fn a_program_that_asks_beyond_the_end_is_our_mistake() {
    let mut world = world(|_| (), fixed_time(LIMITS, us(100)));
    world.check().seed(12);
    world.add(stream(), reads('a', &[1 << 20], false, &Heard::default()));
    world.run_until(at(1));
}

/// A program whose clock never moves on.
struct Now(Meter);

impl Program for Now {
    fn poll_ask(&mut self, _now: Instant) -> Option<Ask> {
        None
    }

    fn handle_end(&mut self, _now: Instant, _token: u32, _outcome: Outcome) {}

    fn poll_timeout(&self) -> Option<Instant> {
        Some(Instant::ZERO)
    }

    fn meter(&self) -> &Meter {
        &self.0
    }
}

#[test]
#[should_panic(expected = "time does not move any more")]
fn a_program_that_never_lets_time_pass_is_found() {
    let mut world = world(|_| (), fixed_time(LIMITS, us(100)));
    world.add(stream(), Box::new(Now(Meter::default())));
    world.run_until(at(1));
}
