//! The second half of a transaction: what was prepared is done, and cannot fail.

use std::sync::Arc;

use fairlift_core::{Group, GroupId, Sector};

use super::prepare::Draft;
use super::{Live, Making};
use crate::access::Access;
use crate::clock;
use crate::disk::Disk;
use crate::export::clients::Served;
use crate::export::front::Opening;
use crate::export::service::Exports;
use crate::export::{Export, Leave};

impl Live {
    pub(super) fn make(&mut self, draft: Draft<'_>) {
        let Draft { backend, served, config, groups, disks, made, opened, files, prepared, wakes, suited, .. } = draft;
        (self.config, self.groups, self.disks, self.opened, self.files) =
            (Arc::new(config), groups, disks, opened, files);
        let before = std::mem::replace(&mut self.made, made);
        let there = served.service.exports();
        let mut making = Making { live: self, backend, served, list: there.list.clone(), openings: Vec::new() };
        prepared.into_iter().for_each(|step| step(&mut making));
        let Making { list, openings, .. } = making;
        suited.iter().for_each(|line| tracing::info!("{line}"));
        for name in before.difference(&self.made) {
            tracing::debug!(disk = name, "goes with its last export");
        }
        let differs = list.iter().map(Arc::as_ptr).ne(there.list.iter().map(Arc::as_ptr));
        if differs {
            served.follow(&list);
        }
        if differs || !there.access.is(&self.config.clients, &self.config.revoked) {
            self.publish(served, list);
        }
        if !openings.is_empty() {
            openings.into_iter().for_each(|(open, export)| open(&export));
            served.service.changed();
        }
        if wakes {
            backend.notifiers.ring_all();
        }
    }

    pub(super) fn publish(&self, served: &Served, list: Vec<Arc<Export>>) {
        let leaving = self.leaving.exports.iter().map(|(export, how)| (export.id, *how)).collect();
        let mut access = Arc::clone(&served.service.exports().access);
        if !access.is(&self.config.clients, &self.config.revoked) {
            access = Arc::new(Access::new(&self.config.clients, &self.config.revoked, &access));
        }
        served.service.set_exports(Exports::new(list, access, leaving));
    }
}

impl Making<'_> {
    /// A disk that is new, or in place of one that had nothing on it.
    pub(super) fn set_disk(&mut self, number: usize, disk: Arc<Disk>) {
        let Self { live, backend, .. } = self;
        backend.helpers.set_disk(number, &disk.concurrency);
        live.leaving.disks.retain(|leaving| *leaving != number);
        for one in live.opened.iter_mut().filter(|one| one.disk == number) {
            if let Some(place) = disk.place_of(&one.device) {
                one.start = place.start;
                one.file.iter().for_each(|file| backend.helpers.set_file(*file, number));
            }
        }
        if let Some(before) = backend.disks.find(number).filter(|before| before.name == disk.name) {
            disk.goes_on_from(before.take_past());
        }
        if let Some(at) = live.past.iter().position(|(name, _)| *name == disk.name) {
            live.past.remove(at).into_iter().for_each(|(_, past)| disk.goes_on_from(past));
        }
        backend.disks.set(number, Some(disk));
    }

    /// A device goes to a disk that has others; it is the one of that number among those that were opened.
    pub(super) fn put(&mut self, opened: usize) {
        let Self { live, backend, .. } = self;
        let one = &mut live.opened[opened];
        one.file.iter().for_each(|file| backend.helpers.set_file(*file, one.disk));
        let registered = (Arc::clone(&one.device), one.file);
        one.start = backend.disks.get(one.disk).add(&registered).expect("there was a place just now");
    }

    pub(super) fn add_group(&mut self, id: GroupId, group: &Group) {
        let now = clock::now();
        let without = |disk: &Disk| !disk.has_group(id);
        let disks = self.backend.disks.all().into_iter().map(|(_, disk)| disk);
        disks.filter(|disk| without(disk)).for_each(|disk| disk.add_group(now, id, group));
    }

    /// `openings`: what opens it to those who do not come by listeners.
    pub(super) fn add_export(&mut self, mut export: Export, opened: usize, openings: Vec<Opening>) {
        self.live.exports_made += 1;
        export.id = self.live.exports_made;
        export.start = Sector(export.start.0 + self.live.opened[opened].start.0);
        let export = Arc::new(export);
        self.openings.extend(openings.into_iter().map(|open| (open, Arc::clone(&export))));
        self.list.push(export);
    }

    /// The export of that name becomes another one of the same life.
    pub(super) fn turn_export(&mut self, name: &str, to: impl FnOnce(&mut Export)) {
        if let Some(there) = self.list.iter_mut().find(|export| export.name == name) {
            let mut export = Export::clone(there);
            to(&mut export);
            export.facts = export.device.facts();
            *there = Arc::new(export);
        }
    }

    pub(super) fn remove_export(&mut self, name: &str, how: Leave) {
        if let Some(at) = self.list.iter().position(|export| export.name == name) {
            let export = self.list.remove(at);
            self.served.leave(export.id);
            self.live.leaving.exports.push((export, how));
        }
    }

    /// The opened device of that number has grown to `size` bytes, and its disk has room for them.
    pub(super) fn grown(&mut self, opened: usize, size: u64) {
        let one = &self.live.opened[opened];
        one.device.grow(size);
        self.backend.disks.get(one.disk).grown(&one.device);
    }
}
