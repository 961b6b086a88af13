//! Trace: the steps of each request and the messages of schedulers, taken out of the queues while they are served.
//!
//! A queue keeps its latest events in a ring while it is traced, and tests one word when it is not. The caller takes them out,
//! some at a time, so that a worker that wants the queue meanwhile waits for a few microseconds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use fairlift_core::trace::Item;
use fairlift_core::{GroupId, Sector};

use crate::disk::{Disk, Disks, EVENTS};

/// How many are taken while a queue is locked.
const TAKEN: usize = 1024;

/// A trace that is being taken, of all disks; there is one at a time. It ends when this is dropped.
pub struct Trace {
    disks: Weak<Disks>,
    is_taken: Arc<AtomicBool>,
    /// The groups that there were when it began, by the numbers that events have.
    pub groups: Vec<(GroupId, String)>,
    /// The exports that there were when it began.
    pub exports: Vec<Traced>,
}

/// Where an export is on its disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Traced {
    /// Its name.
    pub name: String,
    /// The number of the disk.
    pub disk: usize,
    /// Its first sector there.
    pub start: Sector,
    /// How many it has.
    pub sectors: u64,
    /// Its group.
    pub group: GroupId,
}

impl Traced {
    /// Whether an event of a disk is about its sectors, or a message about its group.
    #[must_use]
    pub fn is_about(&self, disk: usize, item: &Item) -> bool {
        self.disk == disk
            && match item {
                Item::Event(event) => (self.start.0..self.start.0 + self.sectors).contains(&event.extent.start.0),
                Item::Message(message) => message.group == self.group,
            }
    }
}

impl Trace {
    /// Begins, unless a trace is being taken.
    pub(crate) fn begin(
        disks: &Arc<Disks>,
        is_taken: &Arc<AtomicBool>,
        groups: Vec<(GroupId, String)>,
        exports: Vec<Traced>,
    ) -> Option<Self> {
        if is_taken.swap(true, Ordering::AcqRel) {
            return None;
        }
        let this = Self { disks: Arc::downgrade(disks), is_taken: Arc::clone(is_taken), groups, exports };
        this.each(|_, disk| disk.set_trace(EVENTS));
        Some(this)
    }

    /// Takes what has happened since this was asked last, with the numbers of the disks, and tells how much was lost.
    pub fn take(&self, tell: &mut dyn FnMut(usize, Item)) -> u64 {
        let mut lost = 0;
        self.each(|number, disk| {
            disk.set_trace(EVENTS); // queues that have come meanwhile
            lost += disk.take_trace(TAKEN, &mut |item| tell(number, item));
        });
        lost
    }

    /// The disks that there are, by the numbers that [`Trace::take`] tells.
    #[must_use]
    pub fn disks(&self) -> Vec<(usize, String)> {
        let mut all = Vec::new();
        self.each(|number, disk| all.push((number, disk.name.clone())));
        all
    }

    fn each(&self, mut act: impl FnMut(usize, &Disk)) {
        let disks = self.disks.upgrade().map_or_else(Vec::new, |disks| disks.all());
        disks.iter().for_each(|(number, disk)| act(*number, disk));
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.each(|_, disk| disk.set_trace(0));
        self.is_taken.store(false, Ordering::Release);
    }
}
