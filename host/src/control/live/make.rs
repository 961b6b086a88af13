//! The second half of a transaction: what was prepared is done, and cannot fail.

use std::sync::Arc;

use fairlift_core::Sector;

use super::Live;
use super::prepare::{Draft, Prepared};
use crate::clock;
use crate::disk::Disk;
use crate::export::Export;
use crate::export::clients::Served;
use crate::export::front::Opening;
use crate::export::service::Exports;
use crate::worker::Backend;

impl Live {
    pub(super) fn make(&mut self, backend: &Backend, served: &Served, draft: Draft) {
        let Draft { config, groups, disks, made, opened, files, prepared, suited, .. } = draft;
        (self.config, self.groups, self.disks, self.opened, self.files) =
            (Arc::new(config), groups, disks, opened, files);
        let before = std::mem::replace(&mut self.made, made);
        let there = served.service.exports();
        let mut exports = Listed { list: there.list.clone(), openings: Vec::new() };
        // A weight is told to the queues, and what they have for workers comes with the ends of requests.
        let wakes = prepared.iter().any(|step| !matches!(step, Prepared::SetWeight { .. }));
        prepared.into_iter().for_each(|step| self.carry_out(backend, served, &mut exports, step));
        suited.iter().for_each(|line| tracing::info!("{line}"));
        for name in before.difference(&self.made) {
            tracing::debug!(disk = name, "goes with its last export");
        }
        let Listed { list, openings } = exports;
        if list.len() != there.list.len() || list.iter().zip(&there.list).any(|(now, before)| !Arc::ptr_eq(now, before))
        {
            served.follow(&list);
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

    fn carry_out(&mut self, backend: &Backend, served: &Served, exports: &mut Listed, step: Prepared) {
        let list = &mut exports.list;
        let now = clock::now();
        match step {
            Prepared::SetDisk { number, disk } => self.set_disk(backend, number, disk),
            Prepared::Put { opened } => {
                let one = &mut self.opened[opened];
                one.file.iter().for_each(|file| backend.helpers.set_file(*file, one.disk));
                let registered = (Arc::clone(&one.device), one.file);
                one.start = backend.disks.get(one.disk).add(&registered).expect("there was a place just now");
            }
            Prepared::RemoveDisk { number } => self.leaving.disks.push(number),
            Prepared::AddGroup { id, group } => {
                backend.disks.all().iter().filter(|(_, disk)| !disk.has_group(id)).for_each(|(_, disk)| {
                    disk.add_group(now, id, &group);
                });
            }
            Prepared::RemoveGroup { id } => self.leaving.groups.push(id),
            Prepared::SetWeight { id, weight } => {
                backend.disks.all().iter().for_each(|(_, disk)| disk.set_weight(now, id, weight));
            }
            Prepared::SetBounds { id, bounds } => backend.disks.set_bounds(now, id, &bounds),
            Prepared::Turn { disk, to } => disk.turn(now, to),
            Prepared::Export { mut export, opened, openings } => {
                self.exports_made += 1;
                export.id = self.exports_made;
                export.start = Sector(export.start.0 + self.opened[opened].start.0);
                let export = Arc::new(export);
                exports.openings.extend(openings.into_iter().map(|open| (open, Arc::clone(&export))));
                list.push(export);
            }
            Prepared::Become { name, to } => {
                if let Some(there) = list.iter_mut().find(|export| export.name == name) {
                    let mut export = Export::clone(there);
                    to(&mut export);
                    export.facts = export.device.facts();
                    *there = Arc::new(export);
                }
            }
            Prepared::RemoveExport { name, how } => {
                if let Some(at) = list.iter().position(|export| export.name == name) {
                    let export = list.remove(at);
                    served.leave(export.id);
                    self.leaving.exports.push((export, how));
                }
            }
            Prepared::Grown { opened } => {
                let one = &self.opened[opened];
                one.device.grow();
                backend.disks.get(one.disk).grown(&one.device);
            }
            Prepared::Faults { opened, faults } => self.opened[opened].device.set_faults(&faults),
            Prepared::Listen(listening) => {
                served.service.listeners.add(listening, self.listeners_made);
                served.service.changed();
                self.listeners_made += 1;
            }
            Prepared::Certificate(tls) => served.service.listeners.set_tls(tls),
            Prepared::Leave { address } => {
                self.leaving.listeners.extend(served.service.listeners.remove(&address));
                served.service.changed();
            }
        }
    }

    /// A disk that is new, or in place of one that had nothing on it.
    fn set_disk(&mut self, backend: &Backend, number: usize, disk: Arc<Disk>) {
        backend.helpers.set_disk(number, &disk.concurrency);
        self.leaving.disks.retain(|leaving| *leaving != number);
        for one in self.opened.iter_mut().filter(|one| one.disk == number) {
            if let Some(place) = disk.place_of(&one.device) {
                one.start = place.start;
                one.file.iter().for_each(|file| backend.helpers.set_file(*file, number));
            }
        }
        backend.disks.set(number, Some(disk));
    }

    pub(super) fn publish(&self, served: &Served, list: Vec<Arc<Export>>) {
        let leaving = self.leaving.exports.iter().map(|(export, how)| (export.id, *how)).collect();
        served.service.set_exports(Exports { list, leaving, request_max: served.service.limits.request_max });
    }
}

/// Exports as they will be published, and what opens those that are new.
struct Listed {
    list: Vec<Arc<Export>>,
    openings: Vec<(Opening, Arc<Export>)>,
}
