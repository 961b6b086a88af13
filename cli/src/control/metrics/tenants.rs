//! The shares and counters of tenants, as text.
//!
//! Ten thousand tenants have 600,000 lines. An encoder that escapes a tenant's name for each of them takes half a second; here a name is
//! escaped once, and a line is put together from pieces that are ready.

use fairlift::control::view::GroupView;
use fairlift::gateways::Due;
use fairlift_core::ceiling::{Bounds, Rates};
use fairlift_core::objective::{Room, Standing};
use fairlift_core::stats::{Cache, Histogram, Stats};
use fairlift_core::waits::Part;
use fairlift_core::{Duration, Op};

use super::super::shares::Share;
use super::lines::{Described, Lines, escaped};
use super::{BUCKETS, Format};

pub(super) struct TenantRow<'a> {
    pub(super) group: &'a GroupView,
    pub(super) entitled: Option<f64>,
    pub(super) share: Option<Share>,
    pub(super) latency: Option<Standing>,
    /// The tenant's part of the pool that the disk is of.
    pub(super) pool: Option<Due>,
    pub(super) disk: &'a str,
    labels: String,
    /// Those of the operations that it has used.
    operations: Vec<(Op, String)>,
}

impl<'a> TenantRow<'a> {
    pub(super) fn new(
        disk: &'a str,
        group: &'a GroupView,
        entitled: Option<f64>,
        share: Option<Share>,
        latency: Option<Standing>,
    ) -> Self {
        let labels = format!("disk=\"{}\",tenant=\"{}\"", escaped(disk), escaped(&group.path));
        let used = Op::ALL.into_iter().filter(|op| group.figures.stats.of(*op).ops > 0);
        let operations = used.map(|op| (op, format!("{labels},operation=\"{}\"", op.name()))).collect();
        Self { group, entitled, share, latency, pool: None, disk, labels, operations }
    }

    fn stats(&self) -> &Stats {
        &self.group.figures.stats
    }
}

/// The ends of the buckets in seconds, as labels' values, the last one's too.
fn ends() -> Vec<String> {
    let ends = BUCKETS.map(|power| format!(",le=\"{:?}\"}} ", (1_u64 << power) as f64 / 1e9));
    ends.chain([",le=\"+Inf\"} ".to_owned()]).collect()
}

/// How many latencies are at most as long as each of the ends.
fn below(latency: &Histogram) -> Vec<u64> {
    let mut all = vec![0; BUCKETS.count() + 1];
    for (end, count) in latency.buckets() {
        // The power of two that is not below the end.
        let power = end.as_nanos().next_power_of_two().trailing_zeros();
        all[(power.max(*BUCKETS.start()) - BUCKETS.start()).min(BUCKETS.count() as u32) as usize] += count;
    }
    for at in 1..all.len() {
        all[at] += all[at - 1];
    }
    all
}

type OfRow = fn(&TenantRow<'_>) -> Option<f64>;
type OfGroup = fn(&GroupView) -> Duration;
type OfStats = fn(&Stats, Op) -> u64;
type OfCache = fn(&Cache) -> u64;
type OfBounds = fn(&Bounds) -> Rates;

pub(super) fn lines(rows: &[TenantRow<'_>], bounds: &[(&String, &Bounds)], format: Format) -> Lines {
    let lines: usize = rows.iter().map(|row| 10 + 30 * row.operations.len()).sum();
    let mut out = Lines::new(format, 8192 + 112 * lines);
    of_tenants(rows, &mut out);
    of_cache(rows, &mut out);
    of_bounds(bounds, &mut out);
    of_operations(rows, &mut out);
    out
}

fn of_tenants(rows: &[TenantRow<'_>], out: &mut Lines) {
    let gauges: [Described<OfRow>; 13] = [
        ("fairlift_tenant_weight", "The weight of the tenant among its siblings.", |row| {
            Some(row.group.weight.get().into())
        }),
        (
            "fairlift_tenant_entitled",
            "The tenant's part of the disk by weights alone, among the tenants that are connected.",
            |row| row.entitled,
        ),
        ("fairlift_tenant_had", "The tenant's part of the disk's time since an earlier scrape.", |row| {
            Some(row.share.map_or(0.0, |share| share.had))
        }),
        (
            "fairlift_tenant_due",
            "The part due to the tenant since an earlier scrape, by weight, floor, ceiling and demand.",
            |row| row.share.map(|share| share.due),
        ),
        ("fairlift_tenant_score", "The tenant's part of the disk's time, divided by its due.", |row| {
            row.share.as_ref().and_then(Share::score)
        }),
        ("fairlift_tenant_pool_had", "The tenant's part of the service of all gateways of the disk's pool.", |row| {
            row.pool.map(|due| due.served)
        }),
        ("fairlift_tenant_pool_due", "The part of that service due to the tenant.", |row| row.pool.map(|due| due.due)),
        ("fairlift_tenant_connections", "Connections of the tenant.", |row| Some(row.group.figures.streams.into())),
        ("fairlift_tenant_in_flight", "Requests of the tenant in flight.", |row| {
            Some(row.group.figures.in_flight.into())
        }),
        ("fairlift_tenant_waiting", "Operations of the tenant waiting for the disk.", |row| {
            Some(row.group.figures.open.saturating_sub(row.group.figures.in_flight).into())
        }),
        ("fairlift_tenant_latency_target_seconds", "The tenant's latency target.", |row| {
            row.latency.map(|standing| standing.target.as_nanos() as f64 / 1e9)
        }),
        (
            "fairlift_tenant_latency_met",
            "The part of the last 60 seconds with operations in which the latency target was met.",
            |row| row.latency.as_ref().and_then(Standing::met),
        ),
        (
            "fairlift_tenant_latency_given_up",
            "Whether the latency target is given up (1), because the disk cannot meet it.",
            |row| row.latency.map(|standing| f64::from(u8::from(standing.room == Room::GivenUp))),
        ),
    ];
    for (name, says, of) in gauges {
        out.metric("gauge", name, says);
        for row in rows {
            if let Some(value) = of(row) {
                out.gauge(&row.labels, value);
            }
        }
    }
    let counters: [Described<OfGroup>; 2] = [
        ("fairlift_tenant_device_seconds", "Device time of the tenant.", |group| group.figures.had),
        (
            "fairlift_tenant_active_seconds",
            "Time the tenant's connections had operations outstanding, added up.",
            |group| group.figures.stats.active,
        ),
    ];
    for (name, says, of) in counters {
        out.metric("counter", name, says);
        rows.iter().for_each(|row| out.seconds(&row.labels, of(row.group)));
    }
}

/// Reads through the page cache, of tenants that have some.
fn of_cache(rows: &[TenantRow<'_>], out: &mut Lines) {
    let counters: [Described<OfCache>; 4] = [
        ("fairlift_tenant_cached_reads", "Reads that the page cache answered.", |cache| cache.hits),
        ("fairlift_tenant_cached_bytes", "Bytes that the page cache answered.", |cache| cache.hit_bytes),
        ("fairlift_tenant_missed_reads", "Reads through the page cache that the disk answered.", |cache| cache.misses),
        ("fairlift_tenant_missed_bytes", "Bytes read through the page cache that the disk answered.", |cache| {
            cache.miss_bytes
        }),
    ];
    for (name, says, of) in counters {
        out.metric("counter", name, says);
        for row in rows.iter().filter(|row| row.stats().cache != Cache::default()) {
            out.count(&row.labels, of(&row.stats().cache));
        }
    }
}

/// The bounds of groups, on all disks together.
fn of_bounds(bounds: &[(&String, &Bounds)], out: &mut Lines) {
    let kinds: [Described<OfBounds>; 2] = [
        ("fairlift_tenant_max", "The tenant's ceiling, in bytes or operations a second.", |bounds| bounds.ceiling.max),
        ("fairlift_tenant_min", "The tenant's floor, in bytes or operations a second.", |bounds| bounds.floor),
    ];
    for (name, says, of) in kinds {
        out.metric("gauge", name, says);
        for (group, bounds) in bounds {
            for (rate, amount) in of(bounds).iter() {
                out.gauge(&format!("tenant=\"{}\",rate=\"{}\"", escaped(group), rate.name()), amount as f64);
            }
        }
    }
}

/// The operations of tenants (metrics.1).
fn of_operations(rows: &[TenantRow<'_>], out: &mut Lines) {
    let each = || rows.iter().flat_map(|row| row.operations.iter().map(move |(op, labels)| (row.stats(), *op, labels)));
    let counters: [Described<OfStats>; 4] = [
        ("fairlift_operations", "Completed operations.", |stats, op| stats.of(op).ops),
        ("fairlift_operation_bytes", "Bytes of successful operations.", |stats, op| stats.of(op).bytes),
        ("fairlift_operation_errors", "Failed operations.", |stats, op| stats.of(op).failed),
        ("fairlift_operation_merges", "Operations merged into another's request.", |stats, op| stats.of(op).merges),
    ];
    for (name, says, of) in counters {
        out.metric("counter", name, says);
        each().for_each(|(stats, op, labels)| out.count(labels, of(stats, op)));
    }
    let says = "Latency of operations, from arrival to completion, without the reply.";
    out.metric("histogram", "fairlift_operation_seconds", says);
    let ends = ends();
    for (stats, op, labels) in each() {
        let Some(latency) = stats.latency(op) else { continue };
        let times = stats.times(op);
        out.begin("_sum", labels);
        out.text.push_str("} ");
        out.time(times.sum() - times.of(Part::Reply));
        let counts = below(latency);
        out.begin("_count", labels);
        out.text.push_str("} ");
        out.whole(counts.last().copied().unwrap_or_default());
        for (end, count) in ends.iter().zip(counts) {
            out.begin("_bucket", labels);
            out.text.push_str(end);
            out.whole(count);
        }
    }
    let says = "Time of operations by the cause of the wait; all parts but the reply add up to the latency.";
    out.metric("counter", "fairlift_operation_part_seconds", says);
    for (stats, op, labels) in each() {
        let times = stats.times(op);
        for part in Part::ALL.into_iter().filter(|part| times.of(*part) > Duration::ZERO) {
            out.begin(out.suffix, labels);
            [",part=\"", part.name(), "\"} "].into_iter().for_each(|piece| out.text.push_str(piece));
            out.time(times.of(part));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::shares::{By, Waits};
    use super::*;
    use fairlift_core::queue::Figures;
    use fairlift_core::time::us;
    use fairlift_core::{Bytes, Weight};

    #[test]
    fn a_bucket_has_what_is_no_longer_than_its_end() {
        let mut latency = Histogram::default();
        [us(10), us(16), us(17), us(33), Duration::from_nanos(1 << 40)]
            .into_iter()
            .for_each(|time| latency.record(time));
        let all = below(&latency);
        assert_eq!(all.len(), ends().len());
        assert_eq!([all[0], all[1], all[2]], [2, 3, 4]);
        assert_eq!(all[18..], [4, 5]);
    }

    #[test]
    fn a_line_has_what_the_encoder_of_the_others_would_write() {
        let mut stats = Stats::default();
        stats.ended(Op::Read, Bytes(4096), fairlift_core::Outcome::Done, us(20));
        stats.passed_cache(Bytes(4096), true);
        let figures = Figures { stats, had: Duration::from_nanos(1_000_000_007), streams: 2, ..Figures::default() };
        let group = GroupView {
            path: "/a\"\\\n😀".into(),
            weight: Weight::new(300),
            bounds: Bounds::default(),
            figures,
            began: None,
        };
        let share = Share { had: 0.25, due: 0.5, by: By::Weight, waits: Waits::NONE };
        let rows = [TenantRow::new("d", &group, Some(0.75), Some(share), None)];
        let labels = r#"disk="d",tenant="/a\"\\\n😀""#;
        for (format, wanted) in [
            (
                Format::OpenMetrics,
                vec![
                    "# TYPE fairlift_operation_bytes counter\n# UNIT fairlift_operation_bytes bytes\n".to_owned(),
                    format!("fairlift_tenant_weight{{{labels}}} 300.0\n"),
                    format!("fairlift_tenant_entitled{{{labels}}} 0.75\n"),
                    format!("fairlift_tenant_had{{{labels}}} 0.25\n"),
                    format!("fairlift_tenant_due{{{labels}}} 0.5\n"),
                    format!("fairlift_tenant_score{{{labels}}} 0.5\n"),
                    format!("fairlift_tenant_device_seconds_total{{{labels}}} 1.000000007\n"),
                    format!("fairlift_operation_bytes_total{{{labels},operation=\"read\"}} 4096\n"),
                    format!("fairlift_tenant_cached_bytes_total{{{labels}}} 4096\n"),
                    format!("fairlift_tenant_missed_reads_total{{{labels}}} 0\n"),
                    format!("fairlift_operation_seconds_bucket{{{labels},operation=\"read\",le=\"1.6384e-5\"}} 0\n"),
                    format!("fairlift_operation_seconds_bucket{{{labels},operation=\"read\",le=\"3.2768e-5\"}} 1\n"),
                    format!("fairlift_operation_seconds_bucket{{{labels},operation=\"read\",le=\"+Inf\"}} 1\n"),
                ],
            ),
            (
                Format::Prometheus,
                vec![
                    "# TYPE fairlift_operation_bytes_total counter\nfairlift_operation_bytes_total{".to_owned(),
                    "# TYPE fairlift_operation_seconds histogram\n".to_owned(),
                ],
            ),
        ] {
            let text = lines(&rows, &[], format).end();
            for line in wanted {
                assert!(text.contains(&line), "{line}: {text}");
            }
        }
    }
}
