//! The suite `order`: `mq-deadline` against a model of its rules that is as dull as can be, request by request.
//!
//! The model keeps what waits in a list, in the order in which it came, and looks through all of it each time: deadline.1 to
//! deadline.6 and deadline.9. Both are asked what goes next, and must say the same.

use std::collections::BTreeSet;

use fairlift_core::sched::deadline::{Deadline, Settings};
use fairlift_core::sched::traits::*;
use fairlift_core::sched::{Next, RequestEnd, RequestId, Served, Waiting};
use fairlift_core::time::{ms, us};
use fairlift_core::{
    Direction, Duration, Extent, Flags, GroupId, Instant, Op, Priority, PriorityClass, Sector, StreamId,
};

use super::Tried;
use crate::tally::{Count, Tally, broken};
use fairlift_lab::Random;

/// Requests that wait or are at the device.
const CAPACITY: u32 = 96;

struct Waits {
    request: Waiting,
    arrived: Instant,
}

#[derive(Clone, Copy, Default)]
struct ClassModel {
    /// By direction: where the last request of a batch began.
    position: [u64; 2],
    /// The present event, and the number of those gone.
    batch: Option<(Direction, u32)>,
    starved: u32,
}

/// The dull model.
struct Model {
    settings: Settings,
    /// In the order in which they came.
    waiting: Vec<Waits>,
    out: Vec<Waiting>,
    classes: [ClassModel; 3],
}

impl Model {
    fn of(&self, class: usize, direction: Direction) -> impl Iterator<Item = (usize, &Waits)> {
        let is_it =
            move |request: &Waiting| request.priority.class as usize == class && request.op.direction() == direction;
        self.waiting.iter().enumerate().filter(move |(_, waits)| is_it(&waits.request))
    }

    /// The next event, by its place in the list.
    fn next(&mut self, now: Instant) -> Option<usize> {
        let writes_out = self.out.iter().filter(|request| request.op.direction() == Direction::Write).count();
        let may_write = self.settings.async_depth == 0 || writes_out < self.settings.async_depth as usize;
        let may_go = |direction: Direction| direction == Direction::Read || may_write;
        let class_of = |request: &Waiting| request.priority.class as usize;
        let highest =
            self.waiting.iter().map(|waits| class_of(&waits.request)).chain(self.out.iter().map(class_of)).min()?;
        // deadline.6
        let lower = self.waiting.iter().enumerate().filter(|(_, waits)| class_of(&waits.request) > highest);
        // Of those that came at one time the higher class goes first, and reads.
        let age = |waits: &Waits| (waits.arrived, class_of(&waits.request), waits.request.op.direction() as usize);
        let aged = lower.filter(|(_, waits)| may_go(waits.request.op.direction())).min_by_key(|(_, waits)| age(waits));
        if let Some((at, waits)) = aged
            && now.since(waits.arrived) >= self.settings.prio_aging_expire
        {
            return Some(at);
        }
        // deadline.1
        let mut class = self.classes[highest];
        let ahead = |direction: Direction, position: u64| {
            let ahead = self.of(highest, direction).filter(|(_, waits)| waits.request.extent.start.0 >= position);
            ahead.min_by_key(|(_, waits)| waits.request.extent.start.0).map(|(at, _)| at)
        };
        let batch =
            class.batch.filter(|(direction, served)| *served < self.settings.fifo_batch.max(1) && may_go(*direction));
        let goes_on = batch.and_then(|(direction, served)| {
            Some((direction, served, ahead(direction, class.position[direction as usize])?))
        });
        let (direction, served, at) = match goes_on {
            Some(goes_on) => goes_on,
            None => {
                // deadline.2
                let waits = |direction| may_go(direction) && self.of(highest, direction).next().is_some();
                let direction = match (waits(Direction::Read), waits(Direction::Write)) {
                    (false, false) => return None,
                    (true, false) => Direction::Read,
                    (true, true) if class.starved < self.settings.writes_starved => {
                        class.starved += 1;
                        Direction::Read
                    }
                    (_, true) => {
                        class.starved = 0;
                        Direction::Write
                    }
                };
                // deadline.3
                let expire =
                    if direction == Direction::Read { self.settings.read_expire } else { self.settings.write_expire };
                let (oldest, waits) = self.of(highest, direction).next()?;
                let is_expired = now.since(waits.arrived) >= expire;
                let next = ahead(direction, class.position[direction as usize]).filter(|_| !is_expired);
                (direction, 0, next.unwrap_or(oldest))
            }
        };
        class.batch = Some((direction, served + 1));
        class.position[direction as usize] = self.waiting[at].request.extent.start.0;
        self.classes[highest] = class;
        Some(at)
    }
}

/// The parameters of a run.
fn draw(random: &mut Random) -> (Settings, u64, Duration) {
    let mut one_of = |all: &[u64]| all[random.below(all.len() as u64) as usize];
    let settings = Settings {
        read_expire: ms(one_of(&[0, 1, 5, 20, 500])),
        write_expire: ms(one_of(&[0, 1, 5, 50, 5000])),
        fifo_batch: one_of(&[0, 1, 2, 4, 16]) as u32,
        writes_starved: one_of(&[1, 2, 3]) as u32,
        prio_aging_expire: ms(one_of(&[2, 20, 10_000])),
        async_depth: one_of(&[0, 0, 1, 4]) as u32,
        ..Settings::default()
    };
    // Times are whole: so what expires, expires at an instant at which something else happens.
    (settings, one_of(&[1, 4, 32]), [us(100), us(500), ms(1)][one_of(&[0, 1, 2]) as usize])
}

/// How many steps the run of a seed has.
pub(super) const STEPS: u64 = 4000;

/// The special features of the run of a seed.
pub(super) fn says(seed: u64) -> String {
    let (settings, depth, tick) = draw(&mut Random::new(seed ^ 0x6f72_6465_7200));
    format!("depth {depth}, ticks of {tick}, {settings:?}")
}

/// The run of a seed: each step a request comes, goes or ends, or time passes.
pub(super) fn go(seed: u64, steps: &mut dyn Iterator<Item = u64>) -> Tried {
    let (settings, depth, tick) = draw(&mut Random::new(seed ^ 0x6f72_6465_7200));
    let mut real = Deadline::new(CAPACITY as usize, settings.clone());
    let mut model = Model { settings, waiting: Vec::new(), out: Vec::new(), classes: Default::default() };
    let mut tally = Tally::default();
    let (mut now, mut free, mut places) = (Instant::ZERO, (0..CAPACITY).rev().collect::<Vec<_>>(), BTreeSet::new());
    let mut dispatch = |model: &mut Model, real: &mut Deadline, now: Instant| {
        let expected = model.next(now).map(|at| model.waiting.remove(at));
        let got = real.dispatch(now);
        let wanted = expected.as_ref().map_or(Next::Empty, |waits| Next::Request(waits.request.id));
        tally.add(Count::Decisions, 1);
        if got != wanted {
            let says = format!("at {now:?} {got:?} goes, and by the rules {:?}", expected.map(|waits| waits.request));
            return broken("W3", says);
        }
        model.out.extend(expected.map(|waits| waits.request));
        Ok(got != Next::Empty)
    };
    for number in steps {
        let mut random = Random::new(seed ^ number.wrapping_mul(0xd134_2543_de82_ef95));
        match random.below(16) {
            0..6 => {
                let start = random.below(4096) * 8;
                if free.is_empty() || !places.insert(start) {
                    continue; // two that begin at one place may go in either order
                }
                let Some(id) = free.pop() else { continue };
                let class = [PriorityClass::BestEffort, PriorityClass::RealTime, PriorityClass::Idle];
                let class = class[(random.below(8) as usize).saturating_sub(5)];
                let request = Waiting {
                    id: RequestId(id),
                    op: if random.below(3) == 0 { Op::Write } else { Op::Read },
                    flags: Flags::NONE,
                    extent: Extent::new(Sector(start), 1),
                    stream: StreamId(0),
                    group: GroupId::ROOT,
                    priority: Priority { class, level: 4 },
                };
                real.insert(now, &request);
                model.waiting.push(Waits { request, arrived: now });
            }
            6..10 if (model.out.len() as u64) < depth => {
                if let Err(broken) = dispatch(&mut model, &mut real, now) {
                    return (tally, Err(broken));
                }
            }
            10..13 if !model.out.is_empty() => {
                let at = random.below(model.out.len() as u64) as usize;
                let request = model.out.swap_remove(at);
                real.completed(now, &Served { request, dispatched: now, end: RequestEnd::Done });
                free.push(request.id.0);
                places.remove(&request.extent.start.0);
            }
            13.. => now += Duration::from_nanos(tick.as_nanos() * random.below(3)),
            _ => {}
        }
    }
    // All that waits goes.
    while !model.waiting.is_empty() {
        match dispatch(&mut model, &mut real, now) {
            Ok(true) => {}
            Ok(false) if model.out.is_empty() => {
                return (tally, broken("W3", "requests wait, the device is idle, and nothing goes"));
            }
            Ok(false) => {
                for request in std::mem::take(&mut model.out) {
                    real.completed(now, &Served { request, dispatched: now, end: RequestEnd::Done });
                }
            }
            Err(broken) => return (tally, Err(broken)),
        }
    }
    tally.one(Count::Runs);
    (tally, Ok(()))
}
