//! Reports to the operator: flush errors, shares and counters, in the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fairlift_core::{Op, stats::Stats};

use super::Shared;
use crate::clock;
use crate::control::view;
use crate::export::Export;
use crate::sync::{Mutex, lock};

/// How many devices are flushed at once at the end. Chosen: as many may hang before one waits for another.
const FLUSHERS: usize = 16;

impl Shared {
    /// Makes durable all that was written to any device; blocks. A device that fails, or hangs, keeps no other from it.
    pub(crate) fn flush_all(&self) -> Result<(), crate::Error> {
        let disks = self.backend.disks.all();
        let devices: Vec<_> = disks.iter().flat_map(|(_, disk)| disk.devices()).collect();
        let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let flush = || {
            while let Some(device) = devices.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(source) = device.flush_now() {
                    lock(&failed).push((Arc::clone(device), source));
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..devices.len().min(FLUSHERS) {
                // Where there can be no thread more, those that there are do all.
                let _ = std::thread::Builder::new().name("flush".into()).spawn_scoped(scope, flush);
            }
            flush();
        });
        let mut failed = std::mem::take(&mut *lock(&failed));
        // That the last one succeeded proves nothing if one before it failed.
        for (device, errno) in disks.iter().flat_map(|(_, disk)| disk.flush_errors()) {
            if !failed.iter().any(|(one, _)| Arc::ptr_eq(one, &device)) {
                failed.push((device, std::io::Error::from_raw_os_error(errno.0)));
            }
        }
        let mut failed = failed.into_iter().map(|(device, source)| {
            let path = device.path().unwrap_or_else(|| "memory".as_ref()).to_owned();
            crate::Error::LastFlush { path, source }
        });
        let first = failed.next();
        failed.for_each(|error| tracing::error!("{error}"));
        first.map_or(Ok(()), Err)
    }

    /// Takes note of all flush errors and logs each; answers how many there were.
    pub(crate) fn acknowledge_flush_errors(&self) -> usize {
        let mut count = 0;
        for (_, disk) in self.backend.disks.all() {
            for (device, errno) in disk.acknowledge_flush_errors() {
                let path = view::name(&*device);
                let error = std::io::Error::from_raw_os_error(errno.0);
                tracing::warn!(%path, %error, "a flush error was acknowledged: from now on flushes succeed again");
                count += 1;
            }
        }
        count
    }

    /// The service of each group on each disk since the start, one line each; its weight may have been another for most of that time.
    pub(crate) fn log_shares(&self) {
        for (_, disk) in self.backend.disks.all() {
            let groups = disk.stats_by_group(clock::now());
            let bytes = |stats: &Stats| Op::ALL.iter().map(|op| stats.of(*op).bytes).sum::<u64>();
            let all: u64 = groups.iter().map(|(_, stats)| bytes(stats)).sum();
            for (group, stats) in groups {
                tracing::info!(
                    "share since the start disk={:?} group={:?} read={}/{} write={}/{} bytes={:.1}% weight now={}",
                    disk.name,
                    group.path,
                    stats.of(Op::Read).ops,
                    stats.of(Op::Read).bytes,
                    stats.of(Op::Write).ops,
                    stats.of(Op::Write).bytes,
                    100.0 * bytes(&stats) as f64 / all.max(1) as f64,
                    group.weight,
                );
            }
        }
    }

    /// The counters of disks that were flushed and of exports, one line each, when all connections are closed.
    pub(crate) fn log_stats(&self) {
        for (_, disk) in self.backend.disks.all() {
            let mut counts = std::collections::BTreeMap::<&str, u64>::new();
            disk.counters(&mut |name, count| *counts.entry(name).or_default() += count);
            tracing::debug!(disk = disk.name, ?counts, "counts of the scheduler and the queue");
            if counts.contains_key("flushes_asked") {
                let of = |name| counts.get(name).copied().unwrap_or_default();
                tracing::info!(
                    "stats disk={:?} flushes asked={} sent={} spared={} failed={} waits={}",
                    disk.name,
                    of("flushes_asked"),
                    of("flushes_sent"),
                    of("flushes_spared"),
                    of("flushes_failed"),
                    of("flush_waits"),
                );
            }
        }
        let most = self.backend.helpers.most();
        if most > 0 {
            tracing::info!("stats helpers busy_most={most} of={}", self.served.service.limits.helpers);
        }
        for (number, disk) in self.backend.disks.all() {
            if disk.devices().iter().any(|device| device.facts().needs_helpers) {
                let (level, changes) = self.backend.helpers.learned(number);
                tracing::info!("stats disk={:?} concurrency={level} changes={changes}", disk.name);
            }
        }
        for export in &self.served.service.exports().list {
            let Export { name, stats, .. } = &**export;
            let stats = lock(stats).clone().unwrap_or_default();
            let of = |op| format!("{}/{}", stats.of(op).ops, stats.of(op).bytes);
            tracing::info!(
                "stats export={name:?} read={} write={} flush={} discard={} write-zeroes={}",
                of(Op::Read),
                of(Op::Write),
                stats.of(Op::Flush).ops,
                of(Op::Discard),
                of(Op::WriteZeroes),
            );
        }
    }
}
