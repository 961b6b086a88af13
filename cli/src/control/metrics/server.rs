//! The figures of the server: its disks, the gateways of its pools, its workers, connections and process.

use fairlift::control::View;
use fairlift::control::view::DiskView;
use fairlift::gateways::{GatewayView, PoolView};
use fairlift_core::Duration;

use super::super::activity::seconds;
use super::super::show;
use super::lines::{Described, Lines};

type OfDisk = fn(&DiskView) -> f64;
type OfGateway = fn(&GatewayView) -> f64;

/// All that is not of a tenant.
pub(super) fn add(view: &View, pools: &[PoolView], out: &mut Lines) {
    of_disks(&view.disks, out);
    if !pools.is_empty() {
        of_gateways(pools, out);
    }
    of_server(view, out);
    of_process(view, out);
}

fn of_disks(disks: &[DiskView], out: &mut Lines) {
    let gauges: [Described<OfDisk>; 4] = [
        ("fairlift_disk_depth", "Limit on requests in flight", |disk| disk.depth.into()),
        ("fairlift_disk_requests", "Limit on requests waiting or in flight", |disk| disk.nr_requests.into()),
        ("fairlift_disk_in_flight", "Requests in flight", |disk| disk.in_flight.into()),
        ("fairlift_disk_waiting", "Requests that wait for the disk", |disk| disk.waiting.into()),
    ];
    for (name, says, of) in gauges {
        out.all("gauge", name, says, disks.iter().map(|disk| ([("disk", &*disk.name)], of(disk))));
    }
    let info = disks.iter().map(|disk| ([("disk", &*disk.name), ("scheduler", disk.scheduler.name())], 1));
    out.all("info", "fairlift_disk", "The disk's scheduler", info);
    let knobs = disks.iter().flat_map(|disk| {
        disk.knobs.iter().map(|knob| ([("disk", &*disk.name), ("knob", knob.name), ("value", &*knob.value)], 1))
    });
    out.all("info", "fairlift_disk_knob", "The disk's settings", knobs);
    let says = "Time the disk was busy, flushing or held idle, added up over the queues of `none`";
    let doing = disks.iter().flat_map(|disk| {
        let doing = disk.doing;
        let all = [("flushing", doing.flushing), ("busy", doing.busy), ("idling", doing.idling)];
        all.map(|(what, time)| ([("disk", &*disk.name), ("doing", what)], seconds(time)))
    });
    out.all("counter", "fairlift_disk_seconds", says, doing);
    let says = "Flushes: asked by clients, sent to the device, spared, failed, waited for others";
    let flushes = disks.iter().flat_map(|disk| {
        let known = FLUSHES.iter().filter_map(|(name, what)| Some((*what, *disk.counters.get(name)?)));
        known.map(|(what, count)| ([("disk", &*disk.name), ("kind", what)], count))
    });
    out.all("counter", "fairlift_disk_flushes", says, flushes);
    let says = "Counters and learned values of the scheduler, by its own names";
    let counters = disks.iter().flat_map(|disk| {
        let own = disk.counters.iter().filter(|(name, _)| FLUSHES.iter().all(|(flush, _)| flush != *name));
        let labels = |name| [("disk", &*disk.name), ("scheduler", disk.scheduler.name()), ("name", name)];
        own.map(move |(name, count)| (labels(*name), *count as f64))
    });
    out.all("gauge", "fairlift_scheduler", says, counters);
    let says = "Throughput with and without idling, as slice_idle=auto last found it";
    let found = disks.iter().filter_map(|disk| Some((disk, disk.findings.last()?)));
    let found: Vec<_> = found.map(|(disk, finding)| (disk, finding, finding.to.to_string())).collect();
    let rates = found.iter().flat_map(|(disk, finding, chosen)| {
        let labels = |idling| [("disk", &*disk.name), ("idling", idling), ("chosen", &**chosen)];
        let rates = [("true", finding.idle), ("false", finding.parallel)];
        rates.map(|(idling, kib)| (labels(idling), kib as f64 * 1024.0))
    });
    out.all("gauge", "fairlift_auto_bytes_per_second", says, rates);
}

fn of_gateways(pools: &[PoolView], out: &mut Lines) {
    let gauges: [Described<OfGateway>; 4] = [
        ("fairlift_gateway_up", "Whether the gateway's reports arrive (1) or it is gone (0)", |seen| {
            f64::from(u8::from(!seen.is_gone))
        }),
        ("fairlift_gateway_age_periods", "Periods since the gateway's last report", |seen| seen.age.into()),
        ("fairlift_gateway_depth", "Requests that the gateway may have outstanding, on average", |seen| seen.depth),
        ("fairlift_gateway_due", "The part of the pool's service that the gateway's groups are due", |seen| seen.due),
    ];
    for (name, says, of) in gauges {
        let samples = pools.iter().flat_map(|pool| {
            pool.gateways.iter().map(move |seen| ([("disk", &*pool.disk), ("gateway", &*seen.name)], of(seen)))
        });
        out.all("gauge", name, says, samples);
    }
    let heard = pools.iter().map(|pool| ([("disk", &*pool.disk)], f64::from(u8::from(pool.trouble.is_none()))));
    out.all("gauge", "fairlift_pool_heard", "Whether reports of the other gateways arrive (1)", heard);
}

fn of_server(view: &View, out: &mut Lines) {
    let View { worked, clients, exports, flush_errors, version, turned_away, links, .. } = view;
    let worked: Vec<_> = worked.iter().enumerate().map(|(number, worked)| (number.to_string(), worked)).collect();
    let says = "CPU time of the worker";
    let ran = worked.iter().map(|(number, worked)| ([("worker", &**number)], seconds(worked.ran)));
    out.all("counter", "fairlift_worker_busy_seconds", says, ran);
    let says = "Time the worker waited for a CPU";
    let delayed = worked.iter().map(|(number, worked)| ([("worker", &**number)], seconds(worked.delayed)));
    out.all("counter", "fairlift_worker_delayed_seconds", says, delayed);
    let turns = worked.iter().map(|(number, worked)| ([("worker", &**number)], worked.turns));
    out.all("counter", "fairlift_worker_turns", "Turns of the worker's loop", turns);
    let says = "Completions the worker received; divided by its turns, the mean batch";
    let completions = worked.iter().map(|(number, worked)| ([("worker", &**number)], worked.completions));
    out.all("counter", "fairlift_worker_completions", says, completions);
    let says = "Requests found waiting without a reason, which is a fault of the server";
    let stuck = worked.iter().map(|(number, worked)| ([("worker", &**number)], worked.stuck));
    out.all("counter", "fairlift_worker_stuck", says, stuck);
    let connections = (0_u16..).zip(&worked).map(|(at, (number, _))| {
        let count = clients.iter().filter(|client| client.worker == at).count();
        ([("worker", &**number)], count as f64)
    });
    out.all("gauge", "fairlift_worker_connections", "Connections that the worker serves", connections);
    let says = "Clients disconnected before they opened an export, by the limit of their address";
    let turned_away = turned_away.iter().map(|(why, count)| ([("limit", &**why)], *count));
    out.all("counter", "fairlift_clients_turned_away", says, turned_away);
    let server = [([("version", env!("CARGO_PKG_VERSION"))], 1)];
    out.all("info", "fairlift_server", "The version of the server", server);
    out.all("gauge", "fairlift_exports", "Exports", [([], exports.len() as f64)]);
    let says = "Changes of the configuration since the start";
    out.all("gauge", "fairlift_config_version", says, [([], *version as f64)]);
    let says = "Backings with a failed flush that has not been acknowledged";
    out.all("gauge", "fairlift_flush_errors", says, [([], flush_errors.len() as f64)]);
    let connections = links.iter().flat_map(|(backing, link)| {
        [("there", link.up), ("wanted", link.of)]
            .map(|(kind, count)| ([("backing", &**backing), ("kind", kind)], f64::from(count)))
    });
    let says = "Connections to a remote backing: present and wanted";
    out.all("gauge", "fairlift_remote_connections", says, connections);
    let says = "Time since a connection to a remote backing went missing; 0 if none is";
    let degraded = links.iter().map(|(backing, link)| {
        let since = link.since.elapsed().unwrap_or_default().as_secs_f64();
        ([("backing", &**backing)], if link.up < link.of { since } else { 0.0 })
    });
    out.all("gauge", "fairlift_remote_degraded_seconds", says, degraded);
    let lost = links.iter().map(|(backing, link)| ([("backing", &**backing)], link.lost));
    out.all("counter", "fairlift_remote_lost", "Lost connections to a remote backing", lost);
}

/// The kernel's figures of the process.
fn of_process(view: &View, out: &mut Lines) {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let cpu = Duration::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64);
    let says = "Time on CPUs, of user and kernel";
    out.all("counter", "process_cpu_seconds", says, [([], seconds(cpu))]);
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or_default();
    let resident = pages * rustix::param::page_size() as u64;
    out.all("gauge", "process_resident_memory_bytes", "Memory in use", [([], resident as f64)]);
    let files = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    out.all("gauge", "process_open_fds", "Open files", [([], files as f64)]);
    let says = "Start time of the server, in seconds since 1970";
    out.all("gauge", "process_start_time_seconds", says, [([], show::seconds(view.started))]);
}

/// The queue's names of its counters of flushes, and their names here.
const FLUSHES: [(&str, &str); 5] = [
    ("flushes_asked", "asked"),
    ("flushes_sent", "sent"),
    ("flushes_spared", "spared"),
    ("flushes_failed", "failed"),
    ("flush_waits", "waited"),
];
