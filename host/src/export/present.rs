//! The whereabouts of clients: on their way to a worker, and at their exports.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use fairlift_core::ContextId;

use super::service::Exports;
use super::{Export, Leave};
use crate::access::Access;
use crate::sync::{Mutex, lock};

/// Clients that one thread has let in for the worker that serves them.
pub(crate) struct Newcomers<T>(Box<[Worker<T>]>);

struct Worker<T> {
    /// How many clients it has, with those that are on their way.
    load: AtomicU32,
    coming: Mutex<Vec<T>>,
}

impl<T> Newcomers<T> {
    pub(crate) fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| Worker { load: AtomicU32::new(0), coming: Mutex::default() }).collect())
    }

    fn of(&self, worker: ContextId) -> &Worker<T> {
        &self.0[usize::from(worker.0)]
    }

    pub(crate) fn total(&self) -> u32 {
        self.0.iter().map(|worker| worker.load.load(Ordering::Relaxed)).sum()
    }

    /// The worker with the fewest clients, which has one more from now on.
    pub(crate) fn place(&self) -> ContextId {
        let loads = self.0.iter().map(|worker| worker.load.load(Ordering::Relaxed));
        let (least, _) = loads.enumerate().min_by_key(|(_, load)| *load).expect("there is at least one worker");
        let least = ContextId(least as u16);
        self.of(least).load.fetch_add(1, Ordering::Relaxed);
        least
    }

    pub(crate) fn left(&self, worker: ContextId) {
        self.of(worker).load.fetch_sub(1, Ordering::Relaxed);
    }

    /// Sends a client to a worker, which is to be woken then.
    pub(crate) fn send(&self, worker: ContextId, client: T) {
        lock(&self.of(worker).coming).push(client);
    }

    /// Whether some were sent to a worker that it has not taken.
    pub(crate) fn has(&self, worker: ContextId) -> bool {
        !lock(&self.of(worker).coming).is_empty()
    }

    /// Those that were sent to a worker since this was asked last.
    pub(crate) fn take(&self, worker: ContextId) -> Vec<T> {
        std::mem::take(&mut lock(&self.of(worker).coming))
    }
}

#[derive(Clone)]
pub(crate) enum Fate {
    Changed(Arc<Export>),
    Removed(Leave),
}

/// The clients of a worker, by the exports that they are at. These, and the rules for clients, are as they were when that was told last.
pub(crate) struct Present {
    at: BTreeMap<u64, (Arc<Export>, Vec<usize>)>,
    access: Arc<Access>,
}

impl Present {
    pub(crate) fn new(exports: &Exports) -> Self {
        Self { at: BTreeMap::new(), access: Arc::clone(&exports.access) }
    }

    pub(crate) fn join(&mut self, export: &Arc<Export>, client: usize) {
        self.at.entry(export.id).or_insert_with(|| (Arc::clone(export), Vec::new())).1.push(client);
    }

    pub(crate) fn leave(&mut self, export: u64, client: usize) {
        let Some((_, clients)) = self.at.get_mut(&export) else { return };
        clients.retain(|there| *there != client);
        if clients.is_empty() {
            self.at.remove(&export);
        }
    }

    /// The clients of exports that have changed or gone, and the fate of each export; all clients, if the rules have changed.
    pub(crate) fn follow(&mut self, exports: &Exports) -> Vec<(usize, Fate)> {
        let rules_differ = !Arc::ptr_eq(&self.access, &exports.access);
        self.access = Arc::clone(&exports.access);
        let mut present = Vec::new();
        for (id, (known, clients)) in &mut self.at {
            let fate = match exports.get(*id) {
                Some(there) if Arc::ptr_eq(there, known) && !rules_differ => continue,
                Some(there) => {
                    known.clone_from(there);
                    Fate::Changed(Arc::clone(there))
                }
                None => Fate::Removed(exports.leaving.get(id).copied().unwrap_or_default()),
            };
            present.extend(clients.iter().map(|client| (*client, fate.clone())));
        }
        present
    }
}
