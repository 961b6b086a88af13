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

use super::super::activity::seconds;
use super::super::shares::Share;
use super::lines::SampleValue::{Count, Number, Time};
use super::lines::{Lines, MetricRow, labels};
use super::{BUCKETS, Format};

pub(super) struct TenantRow<'a> {
    pub(super) disk: &'a str,
    pub(super) group: &'a GroupView,
    pub(super) entitled: Option<f64>,
    pub(super) share: Option<Share>,
    pub(super) latency: Option<Standing>,
    /// The tenant's part of the pool that the disk is of.
    pub(super) pool: Option<Due>,
}

impl TenantRow<'_> {
    /// Its reads through the page cache, if it has some.
    fn cache(&self) -> Option<Cache> {
        Some(self.group.figures.stats.cache).filter(|cache| *cache != Cache::default())
    }
}

/// The ends of the buckets in seconds, as labels' values, the last one's too.
fn ends() -> Vec<String> {
    let ends = BUCKETS.map(|power| format!(",le=\"{:?}\"", (1_u64 << power) as f64 / 1e9));
    ends.chain([",le=\"+Inf\"".to_owned()]).collect()
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

pub(super) fn lines(rows: Vec<TenantRow<'_>>, bounds: &[(&String, &Bounds)], format: Format) -> Lines {
    let labelled = rows.into_iter().map(|row| (labels([("disk", row.disk), ("tenant", &row.group.path)]), row));
    let rows: Vec<_> = labelled.collect();
    let used = rows.iter().flat_map(|(labels, row)| {
        let stats = &row.group.figures.stats;
        let used = Op::ALL.into_iter().filter(|op| stats.of(*op).ops > 0);
        used.map(move |op| (format!("{labels},operation=\"{}\"", op.name()), (stats, op)))
    });
    let operations: Vec<_> = used.collect();
    let mut out = Lines::new(format, 8192 + 112 * (10 * rows.len() + 30 * operations.len()));
    of_tenants(&rows, &mut out);
    of_bounds(bounds, &mut out);
    of_operations(&operations, &mut out);
    out
}

fn of_tenants(rows: &[(String, TenantRow<'_>)], out: &mut Lines) {
    let gauges: [MetricRow<TenantRow<'_>>; 13] = [
        ("fairlift_tenant_weight", "The weight of the tenant among its siblings.", |row| {
            Some(Number(row.group.weight.get().into()))
        }),
        (
            "fairlift_tenant_entitled",
            "The tenant's part of the disk by weights alone, among the tenants that are connected.",
            |row| row.entitled.map(Number),
        ),
        ("fairlift_tenant_had", "The tenant's part of the disk's time since an earlier scrape.", |row| {
            Some(Number(row.share.map_or(0.0, |share| share.had)))
        }),
        (
            "fairlift_tenant_due",
            "The part due to the tenant since an earlier scrape, by weight, floor, ceiling and demand.",
            |row| Some(Number(row.share?.due)),
        ),
        ("fairlift_tenant_score", "The tenant's part of the disk's time, divided by its due.", |row| {
            Some(Number(row.share?.score()?))
        }),
        ("fairlift_tenant_pool_had", "The tenant's part of the service of all gateways of the disk's pool.", |row| {
            Some(Number(row.pool?.served))
        }),
        ("fairlift_tenant_pool_due", "The part of that service due to the tenant.", |row| Some(Number(row.pool?.due))),
        ("fairlift_tenant_connections", "Connections of the tenant.", |row| {
            Some(Number(row.group.figures.streams.into()))
        }),
        ("fairlift_tenant_in_flight", "Requests of the tenant in flight.", |row| {
            Some(Number(row.group.figures.in_flight.into()))
        }),
        ("fairlift_tenant_waiting", "Operations of the tenant waiting for the disk.", |row| {
            Some(Number(row.group.figures.open.saturating_sub(row.group.figures.in_flight).into()))
        }),
        ("fairlift_tenant_latency_target_seconds", "The tenant's latency target.", |row| {
            Some(Number(seconds(row.latency?.target)))
        }),
        (
            "fairlift_tenant_latency_met",
            "The part of the last 60 seconds with operations in which the latency target was met.",
            |row| Some(Number(row.latency?.met()?)),
        ),
        (
            "fairlift_tenant_latency_given_up",
            "Whether the latency target is given up (1), because the disk cannot meet it.",
            |row| Some(Number((row.latency?.room == Room::GivenUp).into())),
        ),
    ];
    out.table("gauge", rows, &gauges);
    let counters: [MetricRow<TenantRow<'_>>; 6] = [
        ("fairlift_tenant_device_seconds", "Device time of the tenant.", |row| Some(Time(row.group.figures.had))),
        (
            "fairlift_tenant_active_seconds",
            "Time the tenant's connections had operations outstanding, added up.",
            |row| Some(Time(row.group.figures.stats.active)),
        ),
        ("fairlift_tenant_cached_reads", "Reads that the page cache answered.", |row| Some(Count(row.cache()?.hits))),
        ("fairlift_tenant_cached_bytes", "Bytes that the page cache answered.", |row| {
            Some(Count(row.cache()?.hit_bytes))
        }),
        ("fairlift_tenant_missed_reads", "Reads through the page cache that the disk answered.", |row| {
            Some(Count(row.cache()?.misses))
        }),
        ("fairlift_tenant_missed_bytes", "Bytes read through the page cache that the disk answered.", |row| {
            Some(Count(row.cache()?.miss_bytes))
        }),
    ];
    out.table("counter", rows, &counters);
}

type OfBounds = fn(&Bounds) -> Rates;

/// The bounds of groups, on all disks together.
fn of_bounds(bounds: &[(&String, &Bounds)], out: &mut Lines) {
    let kinds: [(&str, &str, OfBounds); 2] = [
        ("fairlift_tenant_max", "The tenant's ceiling, in bytes or operations a second.", |bounds| bounds.ceiling.max),
        ("fairlift_tenant_min", "The tenant's floor, in bytes or operations a second.", |bounds| bounds.floor),
    ];
    for (name, says, of) in kinds {
        out.metric("gauge", name, says);
        for (group, bounds) in bounds {
            for (rate, amount) in of(bounds).iter() {
                out.sample("", &[&labels([("tenant", group), ("rate", rate.name())])], Number(amount as f64));
            }
        }
    }
}

/// The operations of tenants (metrics.1).
fn of_operations(operations: &[(String, (&Stats, Op))], out: &mut Lines) {
    let counters: [MetricRow<(&Stats, Op)>; 4] = [
        ("fairlift_operations", "Completed operations.", |(stats, op)| Some(Count(stats.of(*op).ops))),
        ("fairlift_operation_bytes", "Bytes of successful operations.", |(stats, op)| Some(Count(stats.of(*op).bytes))),
        ("fairlift_operation_errors", "Failed operations.", |(stats, op)| Some(Count(stats.of(*op).failed))),
        ("fairlift_operation_merges", "Operations merged into another's request.", |(stats, op)| {
            Some(Count(stats.of(*op).merges))
        }),
    ];
    out.table("counter", operations, &counters);
    let says = "Latency of operations, from arrival to completion, without the reply.";
    out.metric("histogram", "fairlift_operation_seconds", says);
    let ends = ends();
    for (labels, (stats, op)) in operations {
        let Some(latency) = stats.latency(*op) else { continue };
        let times = stats.times(*op);
        out.sample("_sum", &[labels], Time(times.sum() - times.of(Part::Reply)));
        let counts = below(latency);
        out.sample("_count", &[labels], Count(counts.last().copied().unwrap_or_default()));
        for (end, count) in ends.iter().zip(counts) {
            out.sample("_bucket", &[labels, end], Count(count));
        }
    }
    let says = "Time of operations by the cause of the wait; all parts but the reply add up to the latency.";
    out.metric("counter", "fairlift_operation_part_seconds", says);
    for (labels, (stats, op)) in operations {
        let times = stats.times(*op);
        for part in Part::ALL.into_iter().filter(|part| times.of(*part) > Duration::ZERO) {
            out.sample("_total", &[labels, ",part=\"", part.name(), "\""], Time(times.of(part)));
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
        let (entitled, share) = (Some(0.75), Some(share));
        let row = || TenantRow { disk: "d", group: &group, entitled, share, latency: None, pool: None };
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
            let text = lines(vec![row()], &[], format).end();
            for line in wanted {
                assert!(text.contains(&line), "{line}: {text}");
            }
        }
    }
}
