//! Another server's queue goes on where this one was.
//!
//! queue.18  A queue that begins anew takes in the knowledge of another one's scheduler of the disk and of groups. Groups are the same by
//!     their paths. Knowledge of another kind of scheduler is left out; so is a value that cannot be (record.2).

use alloc::borrow::ToOwned as _;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::Queue;
use crate::GroupId;
use crate::record::{Record, Unreadable};

/// Takes a part in, or adds why not to `left_out`.
fn take<T>(part: Result<Option<T>, Unreadable>, left_out: &mut Vec<Unreadable>) -> Option<T> {
    part.unwrap_or_else(|why| {
        left_out.push(why);
        None
    })
}

impl Queue {
    /// The state with which another server's queue begins (queue.18).
    #[must_use]
    pub fn hand_on(&self) -> Record {
        let (mut learned, mut groups) = (Record::default(), BTreeMap::new());
        self.scheduler.hand_on(&mut learned);
        for (id, group) in self.groups.iter() {
            let mut of_group = Record::default();
            self.scheduler.hand_on_group(id, &mut of_group);
            if !of_group.is_empty() {
                groups.insert(&group.path, of_group);
            }
        }
        let mut record = Record::default();
        record.put("scheduler", &self.settings.scheduler.name());
        record.put("learned", &learned);
        record.put("groups", &groups);
        record
    }

    /// Goes on where another server's queue was (queue.18); before the first request. Parts that could not be used are added to `left_out`.
    pub fn take_on(&mut self, record: &mut Record, left_out: &mut Vec<Unreadable>) {
        let kind: Option<String> = take(record.take("scheduler"), left_out);
        if kind.as_deref() != Some(self.settings.scheduler.name()) {
            return;
        }
        if let Some(mut learned) = take(record.take::<Record>("learned"), left_out) {
            left_out.extend(self.scheduler.take_on(&mut learned).err());
            name_rest("learned", &learned, left_out);
        }
        let mut groups: BTreeMap<String, Record> = take(record.take("groups"), left_out).unwrap_or_default();
        let there: Vec<(GroupId, Record)> =
            self.groups.iter().filter_map(|(id, group)| Some((id, groups.remove(&group.path)?))).collect();
        for (id, mut of_group) in there {
            left_out.extend(self.scheduler.take_on_group(id, &mut of_group).err());
            name_rest("groups", &of_group, left_out);
        }
        name_rest("queue", record, left_out);
    }
}

/// record.1
fn name_rest(whole: &str, record: &Record, left_out: &mut Vec<Unreadable>) {
    left_out.extend(
        record.rest().map(|part| Unreadable { part: format!("{whole}: {part}"), why: "not known here".to_owned() }),
    );
}
