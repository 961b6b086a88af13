//! The queue under any order of commands, news and questions, with streams that move, groups that come and go, and every
//! scheduler in turn: its own assertions must hold, and every bio that was accepted must end exactly once.

#![no_main]

use std::collections::BTreeSet;

use fairlift_core::queue::Settings;
use fairlift_core::sched::Kind;
use fairlift_core::time::{ms, secs};
use fairlift_core::*;
use libfuzzer_sys::fuzz_target;

const CONTEXTS: u16 = 2;

fn scheduler(number: usize) -> Kind {
    Kind::ALL[number % Kind::ALL.len()]
}

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = bytes.iter().copied();
    let mut byte = || bytes.next();
    let Some(shape) = byte() else { return };
    let limits = Limits {
        rw_max: 1 + u32::from(shape & 7) * 4,
        boundary: if shape & 8 == 0 { 0 } else { 12 },
        segments_max: 3,
        discard_max: 64,
        ..Limits::new(4096)
    };
    let depth = 1 + u16::from(shape >> 6);
    let kind = scheduler(usize::from(shape >> 4 & 3));
    let settings = Settings { depth, nr_requests: 8, contexts: CONTEXTS, ..Settings::new(kind, limits) };
    let mut queue = Queue::new(settings);
    let class = [PriorityClass::RealTime, PriorityClass::BestEffort, PriorityClass::Idle];
    let streams: Vec<_> = (0..6)
        .map(|n| {
            let priority = Priority { class: class[n % 3], level: 4 };
            let context = ContextId(n as u16 % CONTEXTS);
            queue.add_stream(Stream { group: GroupId::ROOT, priority, context })
        })
        .collect();
    let mut groups = vec![GroupId::ROOT];
    let mut now = Instant::ZERO;
    let mut token = 0;
    let mut open = BTreeSet::new();
    let mut held = BTreeSet::new();
    let mut in_flight: Vec<Tag> = vec![];
    let mut fetch = |queue: &mut Queue, open: &mut BTreeSet<u64>| {
        for context in (0..CONTEXTS).map(ContextId) {
            while let Some(news) = queue.poll_finished(context) {
                match news {
                    Finished::Done(Token(t), _) => assert!(open.remove(&t), "{t} ended twice"),
                    Finished::TimedOut(Token(t)) => {
                        assert!(open.remove(&t), "{t} ended twice");
                        held.insert(t);
                    }
                    Finished::Released(Token(t)) => assert!(held.remove(&t), "{t} was not held"),
                }
            }
        }
    };
    while let Some(what) = byte() {
        match what % 10 {
            0..=2 => {
                let (Some(place), Some(len)) = (byte(), byte()) else { break };
                let op = Op::ALL[usize::from(what >> 3) % Op::COUNT];
                let extent = match op {
                    Op::Flush => Extent::NONE,
                    _ => Extent::new(Sector(u64::from(place) * 16), u64::from(len)),
                };
                let stream = streams[usize::from(len) % streams.len()];
                let bio = Bio { op, flags: Flags::NONE, extent, stream, token: Token(token) };
                if queue.submit(now, bio).is_ok() {
                    open.insert(token);
                }
                token += 1;
            }
            3 => {
                let context = ContextId(u16::from(what >> 3) % CONTEXTS);
                while let Some(dispatch) = queue.poll_dispatch(now, context) {
                    in_flight.push(dispatch.tag);
                }
            }
            4 if !in_flight.is_empty() => {
                let tag = in_flight.swap_remove(usize::from(what >> 3) % in_flight.len());
                queue.handle_completion(now, tag, Outcome::Done);
            }
            5 if !in_flight.is_empty() => {
                let tag = in_flight.swap_remove(usize::from(what >> 3) % in_flight.len());
                queue.handle_busy(now, tag);
            }
            6 => now += ms(u64::from(what >> 3) * 100),
            7 => {
                now += secs(u64::from(what >> 3));
                queue.handle_timeout(now);
            }
            8 => {
                let Some(whom) = byte() else { break };
                let group = groups[usize::from(what >> 3) % groups.len()];
                let id = streams[usize::from(whom & 7) % streams.len()];
                let priority = Priority { class: class[usize::from(whom >> 3) % 3], level: whom >> 5 };
                queue.change_stream(now, id, Stream { group, priority, ..queue.groups().stream(id).stream() });
            }
            9 => {
                let Some(which) = byte() else { break };
                let nth = usize::from(which) % groups.len();
                match what >> 3 {
                    0..=7 => {
                        let group = Group {
                            path: format!("/{which}"),
                            parent: Some(groups[nth]),
                            weight: Weight::new(1 + u16::from(which)),
                        };
                        let id = queue.groups().free();
                        queue.add_group(now, id, group);
                        groups.push(id);
                    }
                    8..=15 => {
                        if queue.remove_group(now, groups[nth]).is_ok() {
                            groups.swap_remove(nth);
                        }
                    }
                    16..=21 => queue.set_weight(now, groups[nth], Weight::new(1 + u16::from(which))),
                    22..=23 => {
                        let depth = 1 + u16::from(which & 15);
                        queue.set_bounds(now, depth, u32::from(depth) + u32::from(which >> 4));
                    }
                    _ => queue.set_scheduler(now, scheduler(usize::from(which))),
                }
            }
            _ => {}
        }
        fetch(&mut queue, &mut open);
    }
    // Whatever happened, it all ends once the device answers. That nothing is in flight is not enough: a scheduler may
    // be holding the device idle while parts of a bio that timed out still wait.
    for _ in 0..10_000 {
        now += ms(10);
        for tag in in_flight.drain(..) {
            queue.handle_completion(now, tag, Outcome::Done);
        }
        for context in (0..CONTEXTS).map(ContextId) {
            while let Some(dispatch) = queue.poll_dispatch(now, context) {
                in_flight.push(dispatch.tag);
            }
        }
        fetch(&mut queue, &mut open);
        if in_flight.is_empty() && queue.load().waiting == 0 {
            break;
        }
    }
    assert!(open.is_empty(), "{} bios never ended", open.len());
    assert!(held.is_empty(), "{} bios that timed out were never released", held.len());
    assert_eq!((queue.load().in_flight, queue.load().waiting), (0, 0));
});
