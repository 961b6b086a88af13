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

/// Questions that the device behind answers for itself.
macro_rules! as_behind {
    ($($name:ident($($of:ident: $kind:ty),*) $(-> $answer:ty)?;)*) => {
        $(fn $name(&self, $($of: $kind),*) $(-> $answer)? {
            self.inner.$name($($of),*)
        })*
    };
}

impl Device for BeforeDevice {
    as_behind! {
        foreign() -> Option<&str>;
        called() -> String;
        is_remote() -> bool;
        links(says: &mut Record) -> Vec<OpenFile>;
        hand_on(says: &mut Record) -> Result<Vec<u8>, String>;
        take_on(says: &mut Record, bytes: &[u8]) -> Result<(), String>;
        let_go();
        has_gone_over() -> bool;
        run(at: u64, len: u64) -> io::Result<Run>;
        changes() -> Option<&'static str>;
        changed(at: u64, len: u64) -> (u64, bool);
        flush_now() -> io::Result<()>;
        look_at_size() -> io::Result<u64>;
        was_resized() -> bool;
        grow(size: u64);
        can_discard() -> bool;
        can_zero_fast() -> bool;
        descriptor() -> Option<RawFd>;
        is_direct() -> bool;
        link() -> Option<Link>;
    }

    /// It is asked to flush whatever the device says, for a rule may be about that.
    fn facts(&self) -> Facts {
        Facts { flush: true, volatile_cache: true, ..self.inner.facts() }
    }

    fn lane(self: Arc<Self>, address: Address) -> Box<dyn Lane> {
        let inner = Arc::clone(&self.inner).lane(address);
        Box::new(BeforeFaults::new(self, inner))
    }

    fn hand_over(self: Arc<Self>) -> Result<Vec<OpenFile>, String> {
        Arc::clone(&self.inner).hand_over()
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

    fn path(&self) -> Option<&Path> {
        Some(Path::new(&self.name))
    }
}
