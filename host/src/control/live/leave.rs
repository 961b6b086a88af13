//! Removed objects are let go of, step by step (live.2).

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::{Builder, JoinHandle};

use super::{GONE, Live};
use crate::clock;
use crate::control::arrange::{self, Opened};
use crate::control::view;
use crate::device::Device;
use crate::disk::Disk;
use crate::export::clients::Served;
use crate::worker::Backend;

impl Live {
    /// Lets go of removed objects that nobody uses any more (live.2); whether something is left.
    pub(crate) fn sweep(&mut self, backend: &Backend, served: &Served) -> bool {
        let now = clock::now();
        let mut news = false;
        let list = served.service.exports().list.clone();
        let before = self.leaving.exports.len();
        self.leaving.exports.retain(|(export, _)| {
            // A client has this export, or its state before a change.
            let used = Arc::strong_count(export) > 1 || Arc::strong_count(&export.stats) > 1;
            if !used {
                served.service.events.tell("removed", vec![("export", export.name.clone())]);
            }
            used
        });
        if self.leaving.exports.len() != before {
            self.publish(served, list.clone());
        }
        let shown = list.iter().chain(self.leaving.exports.iter().map(|(export, _)| export));
        let in_use: HashSet<_> = shown.map(|export| arrange::address(&export.device)).collect();
        let go: Vec<_> = self.opened.extract_if(.., |one| !in_use.contains(&arrange::address(&one.device))).collect();
        for one in go {
            backend.disks.get(one.disk).remove(&one.device);
            self.leaving.devices.push(one);
            news = true;
        }
        if news {
            backend.notifiers.ring_all();
        }
        let is_left = |one: &mut Opened| Arc::strong_count(&one.device) == 1;
        for one in self.leaving.devices.extract_if(.., is_left).collect::<Vec<_>>() {
            backend.disks.get(one.disk).free(one.start);
            self.files.0.extend(one.file);
            if !self.disks.values().any(|number| *number == one.disk) && !self.leaving.disks.contains(&one.disk) {
                self.leaving.disks.push(one.disk);
            }
            if let Some(link) = one.device.link().filter(|link| link.lost > 0)
                && self.lost.len() < GONE
            {
                *self.lost.entry(view::name(&*one.device)).or_default() += link.lost;
            }
            self.closing.extend(close(one.device, Builder::new())); // live.3
        }
        let is_empty = |number: &mut usize| backend.disks.get(*number).is_empty();
        for number in self.leaving.disks.extract_if(.., is_empty).collect::<Vec<_>>() {
            let disk = backend.disks.get(number);
            backend.disks.set(number, None);
            self.keep_past(backend, &disk);
            news = true;
        }
        let disks = backend.disks.all();
        self.leaving.groups.retain(|id| {
            disks.iter().fold(false, |left, (_, disk)| !disk.remove_group(now, *id) || disk.has_group(*id) || left)
        });
        self.leaving.listeners.retain(|listening| Arc::strong_count(listening) > 1);
        self.closing.retain(|(_, closing)| !closing.is_finished());
        if news {
            backend.notifiers.ring_all();
        }
        self.is_leaving() || served.is_leaving()
    }

    pub(crate) fn flushed_last(&self) -> Vec<String> {
        self.closing.iter().filter(|(_, closing)| !closing.is_finished()).map(|(name, _)| name.clone()).collect()
    }

    /// Keeps what was counted on a disk that is gone, for one of its name.
    fn keep_past(&mut self, backend: &Backend, disk: &Disk) {
        let again = self.disks.get(&disk.name).map(|number| backend.disks.get(*number));
        if let Some(again) = again {
            return again.goes_on_from(disk.take_past());
        }
        if self.past.len() == GONE {
            self.past.pop_front();
        }
        self.past.push_back((disk.name.clone(), disk.take_past()));
    }
}

/// Flushes a device that nobody uses any more, and closes it (live.3). A disk that hangs shall not hang who changes others: only without a thread
/// is that done here.
fn close(device: Arc<dyn Device>, thread: Builder) -> Option<(String, JoinHandle<()>)> {
    let name = view::name(&*device);
    let (give, take) = sync_channel(1);
    let work = move || take.into_iter().for_each(flush);
    match thread.name("closing".into()).spawn(work) {
        Ok(thread) => {
            _ = give.send(device); // not before: without a thread it would be gone
            Some((name, thread))
        }
        Err(error) => {
            tracing::warn!(path = name, %error, "no thread can be made for its last flush: changes wait for that");
            flush(device);
            None
        }
    }
}

fn flush(device: Arc<dyn Device>) {
    if let Err(error) = device.flush_now() {
        let path = view::name(&*device);
        tracing::error!(%path, %error, "the last flush failed, and the writes before it may be lost");
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::device::Facts;
    use crate::device::lane::{Address, Lane};

    #[derive(Default)]
    struct Counted(AtomicU32);

    impl Device for Counted {
        fn facts(&self) -> Facts {
            Facts::plain(1 << 20)
        }

        fn called(&self) -> String {
            "counted".into()
        }

        fn lane(self: Arc<Self>, _address: Address) -> Box<dyn Lane> {
            unreachable!("nothing is asked of it by a worker")
        }

        fn flush_now(&self) -> io::Result<()> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    /// live.3
    #[test]
    fn a_device_that_goes_is_flushed_also_where_no_thread_can_be_made() {
        let device = Arc::new(Counted::default());
        let closing = close(Arc::clone(&device) as _, Builder::new());
        closing.expect("there is room for a thread").1.join().unwrap();
        assert!(close(Arc::clone(&device) as _, Builder::new().stack_size(1 << 60)).is_none(), "it has no stack");
        assert_eq!((device.0.load(Ordering::Relaxed), Arc::strong_count(&device)), (2, 1));
    }
}
