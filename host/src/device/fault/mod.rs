//! Fault: a backing that fails some requests, by the rules of a file.
//!
//! How does a program take a disk that fails? Real ones fail seldom, and not when asked. So this stands before any other backing,
//! and lets its requests fail, wait or hang. Example: `fault:rules.toml,inner=file:disk.img`, and in the file `op = "read"`,
//! `from = "1m"`, `to = "2m"`, `error = "EIO"`.
//!
//! fault.1  A fault reaches a client by the way of real ones: the lane answers, now or when the time has come; timeouts, merging and log
//!          lines are those of all devices. A backing without rules has no lane of ours.
//! fault.2  A request is held before the device sees it. A request that hangs has its memory until it is answered, also if its client was
//!          told that it failed.
//! fault.3  Rules can be changed at any time. Requests that hang then are judged anew; delayed ones stay delayed.

mod judge;
mod lane;
pub(super) mod syntax;

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fairlift_core::record::Record;
use fairlift_core::{Errno, Op};

use super::file::faults::Faults as FaultReports;
use super::handed::OpenFile;
use super::lane::{Address, Lane};
use super::{Device, Facts, Fault, Link, Run};
use crate::sync::{Mutex, lock};
use judge::Judge;
use lane::BeforeFaults;
use syntax::{Faults, Faulty};

pub(super) struct BeforeDevice {
    inner: Arc<dyn Device>,
    name: String,
    judge: Mutex<Judge>,
    /// How often the rules were changed.
    changes: AtomicU64,
    failures: FaultReports,
}

impl BeforeDevice {
    pub(super) fn new(faulty: &Faulty, inner: Arc<dyn Device>) -> Self {
        tracing::warn!(
            backing = faulty.name,
            rules = faulty.faults.rules.len(),
            "requests of this backing fail on purpose"
        );
        let judge = Mutex::new(Judge::new(&faulty.faults));
        Self { inner, name: faulty.name.clone(), judge, changes: AtomicU64::new(0), failures: FaultReports::default() }
    }
}

impl Device for BeforeDevice {
    /// It is asked to flush whatever the device says, for a rule may be about that.
    fn facts(&self) -> Facts {
        Facts { flush: true, volatile_cache: true, ..self.inner.facts() }
    }

    fn foreign(&self) -> Option<&str> {
        self.inner.foreign()
    }

    fn called(&self) -> String {
        self.inner.called()
    }

    fn lane(self: Arc<Self>, address: Address) -> Box<dyn Lane> {
        let inner = Arc::clone(&self.inner).lane(address);
        Box::new(BeforeFaults::new(self, inner))
    }

    fn is_shared_out(&self) -> bool {
        self.inner.is_shared_out()
    }

    fn hand_over(self: Arc<Self>) -> Result<Vec<OpenFile>, String> {
        Arc::clone(&self.inner).hand_over()
    }

    fn links(&self, says: &mut Record) -> Vec<OpenFile> {
        self.inner.links(says)
    }

    fn hand_on(&self, says: &mut Record) -> Result<Vec<u8>, String> {
        self.inner.hand_on(says)
    }

    fn take_on(&self, says: &mut Record, bytes: &[u8]) -> Result<(), String> {
        self.inner.take_on(says, bytes)
    }

    fn let_go(&self) {
        self.inner.let_go();
    }

    fn has_gone_over(&self) -> bool {
        self.inner.has_gone_over()
    }

    fn run(&self, at: u64, len: u64) -> io::Result<Run> {
        self.inner.run(at, len)
    }

    fn changes(&self) -> Option<&'static str> {
        self.inner.changes()
    }

    fn changed(&self, at: u64, len: u64) -> (u64, bool) {
        self.inner.changed(at, len)
    }

    fn flush_now(&self) -> io::Result<()> {
        self.inner.flush_now()
    }

    fn look_at_size(&self) -> io::Result<u64> {
        self.inner.look_at_size()
    }

    fn was_resized(&self) -> bool {
        self.inner.was_resized()
    }

    fn grow(&self, size: u64) {
        self.inner.grow(size);
    }

    fn failed(&self, op: Op, errno: Errno) {
        self.failures.failed(Path::new(&self.name), op, errno);
    }

    fn take_faults(&self) -> VecDeque<Fault> {
        let mut all = self.failures.take();
        all.extend(self.inner.take_faults());
        all
    }

    fn set_faults(&self, faults: &Faults) {
        *lock(&self.judge) = Judge::new(faults);
        self.changes.fetch_add(1, Ordering::Release);
    }

    fn can_discard(&self) -> bool {
        self.inner.can_discard()
    }

    fn can_zero_fast(&self) -> bool {
        self.inner.can_zero_fast()
    }

    fn needs_helpers(&self) -> bool {
        self.inner.needs_helpers()
    }

    fn descriptor(&self) -> Option<RawFd> {
        self.inner.descriptor()
    }

    fn path(&self) -> Option<&Path> {
        Some(Path::new(&self.name))
    }

    fn is_direct(&self) -> bool {
        self.inner.is_direct()
    }

    fn is_in_ram(&self) -> bool {
        self.inner.is_in_ram()
    }

    fn link(&self) -> Option<Link> {
        self.inner.link()
    }

    fn maps_by_lane(&self) -> bool {
        self.inner.maps_by_lane()
    }
}
