//! The figures of the server: its disks, the gateways of its pools, its workers, connections and process.

use std::time::SystemTime;

use fairlift::control::View;
use fairlift::control::view::{DiskView, Worked};
use fairlift::gateways::{GatewayView, PoolView};
use fairlift_core::Duration;

use super::super::show;
use super::lines::SampleValue::{Count, Number, Time};
use super::lines::{Lines, MetricRow, labels};

pub(super) fn add(view: &View, pools: &[PoolView], out: &mut Lines) {
    of_disks(&view.disks, out);
    if !pools.is_empty() {
        of_gateways(pools, out);
    }
    of_workers(view, out);
    of_server(view, out);
    of_process(view.started, out);
}

fn of_disks(disks: &[DiskView], out: &mut Lines) {
    let labelled: Vec<_> = disks.iter().map(|disk| (labels([("disk", &disk.name)]), disk)).collect();
    let gauges: [MetricRow<&DiskView>; 4] = [
        ("fairlift_disk_depth", "Limit on requests in flight", |disk| Some(Number(disk.depth.into()))),
        ("fairlift_disk_requests", "Limit on requests waiting or in flight", |disk| {
            Some(Number(disk.nr_requests.into()))
        }),
        ("fairlift_disk_in_flight", "Requests in flight", |disk| Some(Number(disk.in_flight.into()))),
        ("fairlift_disk_waiting", "Requests that wait for the disk", |disk| Some(Number(disk.waiting.into()))),
    ];
    out.table("gauge", &labelled, &gauges);
    let info =
        disks.iter().map(|disk| (labels([("disk", &disk.name), ("scheduler", disk.scheduler.name())]), Count(1)));
    out.all("info", "fairlift_disk", "The disk's scheduler", info);
    let knobs = disks.iter().flat_map(|disk| {
        let all = disk.knobs.iter();
        all.map(|knob| (labels([("disk", &disk.name), ("knob", knob.name), ("value", &knob.value)]), Count(1)))
    });
    out.all("info", "fairlift_disk_knob", "The disk's settings", knobs);
    let says = "Time the disk was busy, flushing or held idle, added up over the queues of `none`";
    let doing = disks.iter().flat_map(|disk| {
        let doing = disk.doing;
        let all = [("flushing", doing.flushing), ("busy", doing.busy), ("idling", doing.idling)];
        all.map(|(what, time)| (labels([("disk", &disk.name), ("doing", what)]), Time(time)))
    });
    out.all("counter", "fairlift_disk_seconds", says, doing);
    let says = "Flushes: asked by clients, sent to the device, spared, failed, waited for others";
    let flushes = disks.iter().flat_map(|disk| {
        let known = FLUSHES.iter().filter_map(|(name, kind)| Some((*kind, *disk.counters.get(name)?)));
        known.map(|(kind, count)| (labels([("disk", &disk.name), ("kind", kind)]), Count(count)))
    });
    out.all("counter", "fairlift_disk_flushes", says, flushes);
    let says = "Counters and learned values of the scheduler, by its own names";
    let counters = disks.iter().flat_map(|disk| {
        let own = disk.counters.iter().filter(|(name, _)| FLUSHES.iter().all(|(flush, _)| flush != *name));
        let labels = |name| labels([("disk", &disk.name), ("scheduler", disk.scheduler.name()), ("name", name)]);
        own.map(move |(name, count)| (labels(name), Number(*count as f64)))
    });
    out.all("gauge", "fairlift_scheduler", says, counters);
    let says = "Throughput with and without idling, as slice_idle=auto last found it";
    let rates = disks.iter().filter_map(|disk| Some((disk, disk.findings.last()?))).flat_map(|(disk, finding)| {
        let chosen = finding.to.to_string();
        let rates = [("true", finding.idle), ("false", finding.parallel)];
        rates.map(|(idling, kib)| {
            let labels = labels([("disk", &disk.name), ("idling", idling), ("chosen", &chosen)]);
            (labels, Number(kib as f64 * 1024.0))
        })
    });
    out.all("gauge", "fairlift_auto_bytes_per_second", says, rates);
}

fn of_gateways(pools: &[PoolView], out: &mut Lines) {
    let seen = pools.iter().flat_map(|pool| {
        pool.gateways.iter().map(|seen| (labels([("disk", &pool.disk), ("gateway", &seen.name)]), seen))
    });
    let gauges: [MetricRow<&GatewayView>; 4] = [
        ("fairlift_gateway_up", "Whether the gateway's reports arrive (1) or it is gone (0)", |seen| {
            Some(Number((!seen.is_gone).into()))
        }),
        ("fairlift_gateway_age_periods", "Periods since the gateway's last report", |seen| {
            Some(Number(seen.age.into()))
        }),
        ("fairlift_gateway_depth", "Requests that the gateway may have outstanding, on average", |seen| {
            Some(Number(seen.depth))
        }),
        ("fairlift_gateway_due", "The part of the pool's service that the gateway's groups are due", |seen| {
            Some(Number(seen.due))
        }),
    ];
    out.table("gauge", &seen.collect::<Vec<_>>(), &gauges);
    let heard = pools.iter().map(|pool| (labels([("disk", &pool.disk)]), Number(pool.trouble.is_none().into())));
    out.all("gauge", "fairlift_pool_heard", "Whether reports of the other gateways arrive (1)", heard);
}

fn of_workers(view: &View, out: &mut Lines) {
    let numbered = (0_u16..).zip(&view.worked);
    let workers: Vec<_> = numbered.map(|(at, worked)| (labels([("worker", &at.to_string())]), (at, worked))).collect();
    let counters: [MetricRow<(u16, &Worked)>; 5] = [
        ("fairlift_worker_busy_seconds", "CPU time of the worker", |(_, worked)| Some(Time(worked.ran))),
        ("fairlift_worker_delayed_seconds", "Time the worker waited for a CPU", |(_, worked)| {
            Some(Time(worked.delayed))
        }),
        ("fairlift_worker_turns", "Turns of the worker's loop", |(_, worked)| Some(Count(worked.turns))),
        (
            "fairlift_worker_completions",
            "Completions the worker received; divided by its turns, the mean batch",
            |(_, worked)| Some(Count(worked.completions)),
        ),
        (
            "fairlift_worker_stuck",
            "Requests found waiting without a reason, which is a fault of the server",
            |(_, worked)| Some(Count(worked.stuck)),
        ),
    ];
    out.table("counter", &workers, &counters);
    let connections = workers.iter().map(|(labels, (at, _))| {
        let count = view.clients.iter().filter(|client| client.worker == *at).count();
        (labels, Number(count as f64))
    });
    out.all("gauge", "fairlift_worker_connections", "Connections that the worker serves", connections);
}

fn of_server(view: &View, out: &mut Lines) {
    let says = "Clients disconnected before they opened an export, by the limit of their address";
    let turned_away = view.turned_away.iter().map(|(why, count)| (labels([("limit", why)]), Count(*count)));
    out.all("counter", "fairlift_clients_turned_away", says, turned_away);
    let server = labels([("version", env!("CARGO_PKG_VERSION"))]);
    out.all("info", "fairlift_server", "The version of the server", [(server, Count(1))]);
    out.all("gauge", "fairlift_exports", "Exports", [("", Number(view.exports.len() as f64))]);
    let says = "Changes of the configuration since the start";
    out.all("gauge", "fairlift_config_version", says, [("", Number(view.version as f64))]);
    let says = "Backings with a failed flush that has not been acknowledged";
    out.all("gauge", "fairlift_flush_errors", says, [("", Number(view.flush_errors.len() as f64))]);
    let says = "Connections to a remote backing: present and wanted";
    let connections = view.links.iter().flat_map(|(backing, link)| {
        let kinds = [("there", link.up), ("wanted", link.of)];
        kinds.map(|(kind, count)| (labels([("backing", backing), ("kind", kind)]), Number(count.into())))
    });
    out.all("gauge", "fairlift_remote_connections", says, connections);
    let says = "Time since a connection to a remote backing went missing; 0 if none is";
    let degraded = view.links.iter().map(|(backing, link)| {
        let since = link.since.elapsed().unwrap_or_default().as_secs_f64();
        (labels([("backing", backing)]), Number(if link.up < link.of { since } else { 0.0 }))
    });
    out.all("gauge", "fairlift_remote_degraded_seconds", says, degraded);
    let lost = view.links.iter().map(|(backing, link)| (labels([("backing", backing)]), Count(link.lost)));
    out.all("counter", "fairlift_remote_lost", "Lost connections to a remote backing", lost);
}

fn of_process(started: SystemTime, out: &mut Lines) {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let cpu = Duration::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64);
    out.all("counter", "process_cpu_seconds", "Time on CPUs, of user and kernel", [("", Time(cpu))]);
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or_default();
    let resident = pages * rustix::param::page_size() as u64;
    out.all("gauge", "process_resident_memory_bytes", "Memory in use", [("", Number(resident as f64))]);
    let files = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    out.all("gauge", "process_open_fds", "Open files", [("", Number(files as f64))]);
    let says = "Start time of the server, in seconds since 1970";
    out.all("gauge", "process_start_time_seconds", says, [("", Number(show::seconds(started)))]);
}

/// The queue's names of its counters of flushes, and their names here.
const FLUSHES: [(&str, &str); 5] = [
    ("flushes_asked", "asked"),
    ("flushes_sent", "sent"),
    ("flushes_spared", "spared"),
    ("flushes_failed", "failed"),
    ("flush_waits", "waited"),
];
