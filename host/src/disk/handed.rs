//! The disk of the same name at another server goes on where this one was: with its counters, and its learned state.
//!
//! handed.1  Counters go on there, by the paths of groups: a counter never falls. Knowledge of a worker's queue goes to the queue of
//!     the worker with its number.

use std::collections::BTreeMap;

use fairlift_core::record::{Record, Unreadable};
use fairlift_core::{Instant, Queue};

use super::Disk;
use super::handover::Past;

const PAST: &str = "past";
const QUEUES: &str = "queues";

/// A part that could be read; else adds why not to `left_out`.
pub(crate) fn take<T>(part: Result<Option<T>, Unreadable>, left_out: &mut Vec<Unreadable>) -> Option<T> {
    part.unwrap_or_else(|why| {
        left_out.push(why);
        None
    })
}

impl Disk {
    /// Tells what was learned of it, and how much of it groups may have at once.
    pub(crate) fn hand_on_learned(&self, into: &mut Record) {
        let Some(queues) = self.queues() else { return };
        let all: Vec<Record> = (0..queues.count()).map(|number| queues.nth(number).hand_on()).collect();
        into.put(QUEUES, &all);
    }

    pub(crate) fn hand_on_past(&self, now: Instant, into: &mut Record) {
        let mut figures = self.figures(now);
        let (doing, _) = self.doing(now);
        let mut counts: BTreeMap<_, _> = Queue::COUNTED.into_iter().map(|name| (name.to_owned(), 0)).collect();
        self.counters(&mut |name, count| _ = counts.get_mut(name).map(|all| *all += count));
        let state = self.state();
        let of_groups = state.all_groups().filter_map(|(id, group)| Some((group.path.clone(), figures.remove(&id)?)));
        into.put(PAST, &state.past.handed(of_groups, doing, counts));
    }

    /// Goes on where the disk of its name was, at another server; before its first request.
    pub(crate) fn take_on(&self, record: &mut Record, left_out: &mut Vec<Unreadable>) {
        if let Some(past) = take(record.take(PAST), left_out) {
            match Past::of_handed(past) {
                Some(past) => self.goes_on_from(past),
                None => left_out
                    .push(Unreadable { part: PAST.into(), why: "more than a disk does in a hundred years".into() }),
            }
        }
        if let Some(mut records) = take::<Vec<Record>>(record.take(QUEUES), left_out) {
            let queues = self.state().queues();
            for (record, mut queue) in records.iter_mut().zip(queues.each()) {
                queue.take_on(record, left_out);
            }
        }
        left_out.extend(record.rest().map(|part| Unreadable { part: part.into(), why: "not known here".into() }));
    }
}
