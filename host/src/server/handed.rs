//! A server hands on, beside clients, its learned state and counts, and the debts of groups.
//!
//! The same goes to a file or to systemd every second, without what was counted, for a server that is killed (`fairlift serve`).

use std::collections::BTreeMap;

use fairlift_core::record::{Record, Unreadable};
use fairlift_core::stats::Stats;
use fairlift_core::{Duration, GroupId};

use super::{Handle, Server, Shared};
use crate::clock;
use crate::disk::take;
use crate::sync::lock;

/// Of the record. Another one is not read: parts that change in meaning get another name instead.
const VERSION: u32 = 1;

impl Handle {
    /// The state with which another server is to begin; `counted`: with all that was counted, so that counters go on there. `None`: the server has
    /// ended.
    #[must_use]
    pub fn hand_on(&self, counted: bool) -> Option<Record> {
        let shared = self.shared.upgrade()?;
        let paths = shared.live().groups().into_iter().collect();
        Some(shared.hand_on(&paths, counted))
    }
}

impl Server {
    /// Begins where another one was, which told this so long ago; before it runs. Returns the parts that could not be taken in: they are
    /// left out.
    pub fn take_on(&self, record: Record, age: Duration) -> Vec<Unreadable> {
        self.shared.take_on(record, age)
    }
}

impl Shared {
    /// The state, with the debts of groups that have these paths.
    pub(super) fn hand_on(&self, paths: &BTreeMap<GroupId, String>, counted: bool) -> Record {
        let (mut record, now) = (Record::default(), clock::now());
        record.put("version", &VERSION);
        let mut disks = Record::default();
        for (_, disk) in self.backend.disks.all() {
            let mut of_disk = Record::default();
            disk.hand_on_learned(&mut of_disk);
            if counted {
                disk.hand_on_past(now, &mut of_disk);
            }
            disks.put(&disk.name, &of_disk);
        }
        record.put("disks", &disks);
        drop(disks);
        let mut owed = Record::default();
        for (id, budget) in self.backend.disks.budgets() {
            let mut of_group = Record::default();
            budget.hand_on(now, &mut of_group);
            if let Some(path) = paths.get(&id).filter(|_| !of_group.is_empty()) {
                owed.put(path, &of_group);
            }
        }
        record.put("ceilings", &owed);
        if counted {
            let mut exports = Record::default();
            for export in &self.served.service.exports().list {
                if let Some(stats) = &*lock(&export.stats) {
                    exports.put(&export.name, stats);
                }
            }
            record.put("exports", &exports);
            record.put("events", &self.served.service.events.after(None).1);
        }
        record
    }

    pub(super) fn take_on(&self, mut record: Record, age: Duration) -> Vec<Unreadable> {
        let mut all = Vec::new();
        let left_out = &mut all;
        match record.take::<u32>("version") {
            Ok(Some(VERSION)) => {}
            Ok(version) => {
                let version = version.map_or("none".into(), |version| version.to_string());
                let why = format!("it is {version}, and this server reads {VERSION}");
                return vec![Unreadable { part: "version".into(), why }];
            }
            Err(why) => return vec![why],
        }
        let now = clock::now();
        let mut disks: BTreeMap<String, Record> = take(record.take("disks"), left_out).unwrap_or_default();
        for (_, disk) in self.backend.disks.all() {
            disks.remove(&disk.name).iter_mut().for_each(|of_disk| disk.take_on(of_disk, left_out));
        }
        let mut owed: BTreeMap<String, Record> = take(record.take("ceilings"), left_out).unwrap_or_default();
        let paths: BTreeMap<GroupId, String> = self.live().groups().into_iter().collect();
        for (id, budget) in self.backend.disks.budgets() {
            if let Some(mut of_group) = paths.get(&id).and_then(|path| owed.remove(path)) {
                left_out.extend(budget.take_on(now, age, &mut of_group).err());
            }
        }
        let mut exports: BTreeMap<String, Stats> = take(record.take("exports"), left_out).unwrap_or_default();
        for export in &self.served.service.exports().list {
            if let Some(stats) = exports.remove(&export.name).filter(Stats::is_possible) {
                *lock(&export.stats) = Some(Box::new(stats));
            }
        }
        self.served.service.events.begin_after(take(record.take("events"), left_out).unwrap_or_default());
        left_out.extend(record.rest().map(|part| Unreadable { part: part.into(), why: "not known here".into() }));
        all
    }
}
