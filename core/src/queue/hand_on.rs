//! What a queue hands to the queue of another server, which goes on where this one was.
//!
//! queue.18  A queue that begins anew takes in what another one was: what each group has done, so that counters only rise, and what the
//!     scheduler had learned of the disk and of groups. Groups are the same by their paths. What another kind of scheduler had learned is
//!     left out; so is what cannot be (record.2).

use alloc::borrow::ToOwned as _;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::Queue;
use crate::record::{Record, Unreadable};
use crate::stats::Stats;
use crate::{GroupId, Instant};

/// Takes a part in, or adds why not to `left_out`.
fn take<T>(part: Result<Option<T>, Unreadable>, left_out: &mut Vec<Unreadable>) -> Option<T> {
    part.unwrap_or_else(|why| {
        left_out.push(why);
        None
    })
}

impl Queue {
    /// What another server's queue begins with (queue.18). What its streams have done counts for their groups.
    #[must_use]
    pub fn hand_on(&self) -> Record {
        let group = |(id, group, stats): (GroupId, &crate::Group, Stats)| {
            let mut record = Record::default();
            record.put("done", &stats);
            self.scheduler.hand_on_group(id, &mut record);
            (group.path.clone(), record)
        };
        let groups: BTreeMap<String, Record> = self.groups.stats_by_group().into_iter().map(group).collect();
        let mut learned = Record::default();
        self.scheduler.hand_on(&mut learned);
        let mut record = Record::default();
        record.put("groups", &groups);
        record.put("gone", self.groups.gone());
        record.put("scheduler", &self.settings.scheduler.name());
        record.put("learned", &learned);
        record
    }

    /// Goes on where another server's queue was (queue.18); before the first request. What could not be taken in is added to `left_out`.
    pub fn take_on(&mut self, now: Instant, record: &mut Record, left_out: &mut Vec<Unreadable>) {
        let kind: Option<String> = take(record.take("scheduler"), left_out);
        let is_same = kind.as_deref() == Some(self.settings.scheduler.name());
        if let Some(mut learned) = take(record.take::<Record>("learned"), left_out).filter(|_| is_same) {
            left_out.extend(self.scheduler.take_on(now, &mut learned).err());
            tell_rest("learned", &learned, left_out);
        }
        if let Some(gone) = take(record.take("gone"), left_out) {
            left_out.extend(self.groups.did_before(None, &gone).err());
        }
        let groups: BTreeMap<String, Record> = take(record.take("groups"), left_out).unwrap_or_default();
        let there: BTreeMap<String, GroupId> = self.groups.iter().map(|(id, group)| (group.path.clone(), id)).collect();
        for (path, mut record) in groups {
            let id = there.get(&path).copied();
            if let Some(done) = take(record.take("done"), left_out) {
                left_out.extend(self.groups.did_before(id, &done).err());
            }
            if let Some(id) = id.filter(|_| is_same) {
                left_out.extend(self.scheduler.take_on_group(id, &mut record).err());
                tell_rest(&path, &record, left_out);
            }
        }
        tell_rest("queue", record, left_out);
    }
}

/// record.1
fn tell_rest(whole: &str, record: &Record, left_out: &mut Vec<Unreadable>) {
    left_out.extend(
        record.rest().map(|part| Unreadable { part: format!("{whole}: {part}"), why: "not known here".to_owned() }),
    );
}
