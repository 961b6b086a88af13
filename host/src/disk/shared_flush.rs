//! A coordinator of flushes that the queues of several workers share.

use std::sync::{Arc, Mutex};

use fairlift_core::flush::{Flush, Settings, SharedFlush};

/// A state machine that the queues of several workers share.
#[derive(Debug)]
pub(crate) struct DeviceFlush {
    volatile: bool,
    /// Made when it is first asked: of a thousand files on a disk, few are used.
    flush: Mutex<Option<Box<Flush>>>,
}

impl DeviceFlush {
    pub(crate) fn new(volatile: bool) -> Arc<Self> {
        Arc::new(Self { volatile, flush: Mutex::default() })
    }
}

impl SharedFlush for DeviceFlush {
    fn with(&self, act: &mut dyn FnMut(&mut Flush)) {
        // A panic in there is a broken promise about clients' data: no worker goes on after it.
        let mut flush = self.flush.lock().expect("a worker panicked while it flushed");
        act(flush.get_or_insert_with(|| Box::new(Flush::new(Settings::default(), self.volatile))));
    }
}
