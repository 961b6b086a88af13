//! Metrics: what a server does, in the text format of OpenMetrics and of Prometheus.
//!
//! A scrape reads the same view as `fairlift status`: nothing is counted for it, and workers learn nothing of it. With ten
//! thousand tenants its answer has tens of megabytes, and a scraper may take it a byte at a time.
//!
//! metrics.1  A tenant's series are those of its group on each disk, by operations that it has used: never of a connection.
//! metrics.2  A text is made whole and then sent piece by piece. Of texts that are being sent at most [`TEXTS`] are kept, which have
//!            [`BYTES`] together or are one: for another one the readers of the oldest are cut off.
//! metrics.3  The had and due of tenants are of the time since an earlier scrape, the last one that is at least [`LOOK`] ago,
//!            or the one before it; at first since the start.

mod tenants;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use fairlift::access::Grant;
use fairlift::control::view::{DiskView, GroupView};
use fairlift::control::{State, View};
use fairlift::gateways::{GatewayView, PoolView};
use fairlift_core::{Duration, Instant};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::activity::{Activity, seconds};
use super::pools;
use super::shares::{self, Share};
use tenants::TenantRow;

/// How many answers are kept for scrapers that have not read them. Chosen: two scrapers that overlap, and some by hand.
const TEXTS: usize = 8;
/// How much such answers have together. Chosen: two of ten thousand tenants.
const BYTES: usize = 128 << 20;
/// How much of an answer is given to the connection at a time.
const PIECE: usize = 64 << 10;
/// How long shares are looked at, at least. Chosen: as `fairlift status` does.
const LOOK: Duration = fairlift_core::time::secs(1);

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The buckets of latencies: from 16 µs to 4.3 s, each twice the one before. Powers of two nanoseconds are ends of the buckets in
/// which they are counted, so nothing is estimated.
const BUCKETS: std::ops::RangeInclusive<u32> = 14..=32;

/// The answers that are being sent.
#[derive(Clone, Default)]
pub(super) struct Texts(Arc<Mutex<VecDeque<Arc<Text>>>>);

/// An answer and its length. `None`: its reader was too slow (metrics.2).
struct Text(Mutex<Option<Bytes>>, usize);

/// In which format a scraper wants it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Format {
    OpenMetrics,
    /// As it was before OpenMetrics; what people get who do not ask for another.
    Prometheus,
}

impl Format {
    pub(super) fn wanted(headers: &HeaderMap) -> Self {
        let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if accept.contains("application/openmetrics-text") { Self::OpenMetrics } else { Self::Prometheus }
    }
}

impl Texts {
    /// Answers with a text, piece by piece.
    pub(super) fn answer(&self, text: String, format: Format) -> Response {
        let length = text.len();
        let text = Arc::new(Text(Mutex::new(Some(Bytes::from(text))), length));
        {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|text| Arc::strong_count(text) > 1);
            while all.len() == TEXTS || all.iter().map(|text| text.1).sum::<usize>() + length > BYTES {
                let Some(oldest) = all.pop_front() else { break };
                oldest.cut_off();
            }
            all.push_back(Arc::clone(&text));
        }
        let pieces = futures_util::stream::unfold((text, 0), |(text, at)| async move {
            match text.piece(at) {
                Ok(piece) if piece.is_empty() => None,
                Ok(piece) => {
                    let next = at + piece.len();
                    Some((Ok(piece), (text, next)))
                }
                Err(why) => Some((Err(why), (text, at))),
            }
        });
        let kind = if format == Format::OpenMetrics { OPENMETRICS } else { PROMETHEUS };
        ([(header::CONTENT_TYPE, kind)], Body::from_stream(pieces)).into_response()
    }
}

impl Text {
    fn cut_off(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn piece(&self, at: usize) -> Result<Bytes, std::io::Error> {
        let text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text =
            text.as_ref().ok_or_else(|| std::io::Error::other("other scrapes came, and this one was not read"))?;
        // A copy, or a piece would keep the whole.
        Ok(Bytes::copy_from_slice(&text[at..text.len().min(at + PIECE)]))
    }
}

/// The metrics of a server, as text, as far as a client may see them: those not of a tenant are for clients that see all.
pub(super) fn text(
    role: &Grant,
    state: &State,
    mut view: View,
    looks: &Looks,
    pools: Vec<PoolView>,
    format: Format,
) -> String {
    let mut rows = rows(state, &view, looks);
    rows.iter_mut().for_each(|row| row.pool = pools::of(&pools, row.disk, &row.group.path).copied());
    rows.retain(|row| role.sees(&row.group.path));
    let bounds = state.config.bounds.iter().filter(|(path, _)| role.sees(path));
    let mut text = tenants::text(&rows, &bounds.collect::<Vec<_>>(), format);
    view.disks.iter_mut().for_each(|disk| disk.groups = Vec::new());
    let mut registry = Registry::default();
    if role.sees("/") {
        registry.register_collector(Box::new(Figures { view, pools }));
    }
    let mut rest = String::new();
    encode(&mut rest, &registry).expect("writing to memory does not fail");
    text += &match format {
        Format::OpenMetrics => rest,
        Format::Prometheus => before_openmetrics(&rest),
    };
    text
}

/// The work of groups at the last two scrapes that were at least [`LOOK`] apart, by disk: shares are those since one of them (metrics.3).
#[derive(Clone, Default)]
pub(super) struct Looks(Arc<Mutex<[Option<Look>; 2]>>);

struct Look {
    at: Instant,
    disks: BTreeMap<String, BTreeMap<String, Activity>>,
}

impl Looks {
    /// The shares of each disk.
    fn shares<'a>(&self, state: &State, view: &'a View) -> Vec<BTreeMap<&'a str, Share>> {
        let mut looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = |look: &Look| view.at.since(look.at) >= LOOK;
        if looks[1].as_ref().is_some_and(is_old) {
            looks[0] = looks[1].take();
        }
        let since_start = view.started.elapsed().unwrap_or_default().as_secs_f64();
        let length = looks[0].as_ref().map_or(since_start, |look| seconds(view.at.since(look.at)));
        let mut shares = Vec::new();
        let mut disks = BTreeMap::new();
        for disk in &view.disks {
            let was = looks[0].as_ref().and_then(|look| look.disks.get(&disk.name));
            let mut now = BTreeMap::new();
            let of_group = |group: &'a GroupView| {
                let activity = Activity::of(&group.figures);
                now.insert(group.path.clone(), activity.clone());
                let was = was.and_then(|was| was.get(&group.path));
                (&*group.path, was.map_or_else(|| activity.clone(), |was| activity.clone().since(was)))
            };
            let rows = disk.groups.iter().map(of_group).collect();
            shares.push(shares::shares(state, disk, &rows, length));
            disks.insert(disk.name.clone(), now);
        }
        looks[1].get_or_insert(Look { at: view.at, disks });
        shares
    }
}

/// The tenants of each disk.
fn rows<'a>(state: &State, view: &'a View, looks: &Looks) -> Vec<TenantRow<'a>> {
    let of_disk = |(disk, shares): (&'a DiskView, BTreeMap<&'a str, Share>)| {
        let there = disk.groups.iter().filter(|group| group.figures.streams > 0);
        let entitled = shares::by_weight(state, there.map(|group| &*group.path));
        let row = |group: &'a GroupView| {
            let path = &*group.path;
            let latency = disk.objective(path).map(|(_, standing)| *standing);
            TenantRow::new(&disk.name, group, entitled.get(path).copied(), shares.get(path).copied(), latency)
        };
        disk.groups.iter().map(row).collect::<Vec<_>>()
    };
    view.disks.iter().zip(looks.shares(state, view)).flat_map(of_disk).collect()
}

/// In the older format a counter is described by the name that its samples have, and there are neither units nor an end.
fn before_openmetrics(text: &str) -> String {
    let mut all = String::with_capacity(text.len() + text.len() / 64);
    let mut help = None;
    for line in text.split_inclusive('\n') {
        let mut fields = line.splitn(4, ' ');
        match (fields.next(), fields.next(), fields.next(), fields.next()) {
            (Some("#"), Some("HELP"), Some(name), Some(says)) => help = Some((name, says)),
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                let (name, kind) = match kind.trim_end() {
                    "counter" => (format!("{name}_total"), "counter"),
                    "info" => (format!("{name}_info"), "gauge"),
                    kind => (name.to_owned(), kind),
                };
                if let Some((_, says)) = help.take() {
                    all += &format!("# HELP {name} {says}");
                }
                all += &format!("# TYPE {name} {kind}\n");
            }
            (Some("#"), ..) => {}
            _ => all += line,
        }
    }
    all
}

struct Figures {
    view: View,
    pools: Vec<PoolView>,
}

impl fmt::Debug for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Figures")
    }
}

/// The name of a metric, what it says, and where its value is.
type Described<F> = (&'static str, &'static str, F);
type OfDisk = fn(&DiskView) -> f64;
type OfGateway = fn(&GatewayView) -> f64;

/// One metric, to which samples are written.
struct Metric<'a>(MetricEncoder<'a>);

impl Metric<'_> {
    fn count(&mut self, labels: &[(&str, &str)], value: u64) -> fmt::Result {
        self.0.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    fn seconds(&mut self, labels: &[(&str, &str)], time: Duration) -> fmt::Result {
        self.0.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&seconds(time), None)
    }

    fn gauge(&mut self, labels: &[(&str, &str)], value: f64) -> fmt::Result {
        self.0.encode_family(&labels)?.encode_gauge(&value)
    }
}

/// How a metric begins: its name, what it says, its unit and kind.
struct Encoder<'a, 'b>(&'a mut DescriptorEncoder<'b>);

impl Encoder<'_, '_> {
    fn metric(
        &mut self,
        kind: MetricType,
        name: &str,
        unit: Option<Unit>,
        says: &str,
        tell: impl FnOnce(&mut Metric<'_>) -> fmt::Result,
    ) -> fmt::Result {
        let name = match &unit {
            Some(unit) => name.strip_suffix(unit.as_str()).and_then(|name| name.strip_suffix('_')).unwrap_or(name),
            None => name,
        };
        tell(&mut Metric(self.0.encode_descriptor(name, says, unit.as_ref(), kind)?))
    }

    fn counter(&mut self, name: &str, says: &str, tell: impl FnOnce(&mut Metric<'_>) -> fmt::Result) -> fmt::Result {
        self.metric(MetricType::Counter, name, None, says, tell)
    }

    fn counter_of(
        &mut self,
        unit: Unit,
        name: &str,
        says: &str,
        tell: impl FnOnce(&mut Metric<'_>) -> fmt::Result,
    ) -> fmt::Result {
        self.metric(MetricType::Counter, name, Some(unit), says, tell)
    }

    fn gauge(&mut self, name: &str, says: &str, tell: impl FnOnce(&mut Metric<'_>) -> fmt::Result) -> fmt::Result {
        self.metric(MetricType::Gauge, name, None, says, tell)
    }
}

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut encoder = Encoder(&mut encoder);
        self.disks(&mut encoder)?;
        self.gateways(&mut encoder)?;
        self.server(&mut encoder)
    }
}

impl Figures {
    fn gateways(&self, encoder: &mut Encoder<'_, '_>) -> fmt::Result {
        if self.pools.is_empty() {
            return Ok(());
        }
        let gauges: [Described<OfGateway>; 4] = [
            ("fairlift_gateway_up", "Whether the gateway's reports arrive (1) or it is gone (0)", |seen| {
                f64::from(u8::from(!seen.is_gone))
            }),
            ("fairlift_gateway_age_periods", "Periods since the gateway's last report", |seen| seen.age.into()),
            ("fairlift_gateway_depth", "Requests that the gateway may have outstanding, on average", |seen| seen.depth),
            ("fairlift_gateway_due", "The part of the pool's service that the gateway's groups are due", |seen| {
                seen.due
            }),
        ];
        for (name, says, of) in gauges {
            encoder.gauge(name, says, |metric| {
                self.pools.iter().try_for_each(|pool| {
                    pool.gateways
                        .iter()
                        .try_for_each(|seen| metric.gauge(&[("disk", &pool.disk), ("gateway", &seen.name)], of(seen)))
                })
            })?;
        }
        encoder.gauge("fairlift_pool_heard", "Whether reports of the other gateways arrive (1)", |metric| {
            self.pools
                .iter()
                .try_for_each(|pool| metric.gauge(&[("disk", &pool.disk)], f64::from(u8::from(pool.trouble.is_none()))))
        })
    }

    fn disks(&self, encoder: &mut Encoder<'_, '_>) -> fmt::Result {
        let disks = &self.view.disks;
        let gauges: [Described<OfDisk>; 4] = [
            ("fairlift_disk_depth", "Limit on requests in flight", |disk| disk.depth.into()),
            ("fairlift_disk_requests", "Limit on requests waiting or in flight", |disk| disk.nr_requests.into()),
            ("fairlift_disk_in_flight", "Requests in flight", |disk| disk.in_flight.into()),
            ("fairlift_disk_waiting", "Requests that wait for the disk", |disk| disk.waiting.into()),
        ];
        for (name, says, of) in gauges {
            encoder.gauge(name, says, |metric| {
                disks.iter().try_for_each(|disk| metric.gauge(&[("disk", &disk.name)], of(disk)))
            })?;
        }
        encoder.metric(MetricType::Info, "fairlift_disk", None, "The disk's scheduler", |metric| {
            disks.iter().try_for_each(|disk| {
                let labels: &[_] = &[("disk", &*disk.name), ("scheduler", disk.scheduler.name())];
                metric.0.encode_info(&labels)
            })
        })?;
        encoder.metric(MetricType::Info, "fairlift_disk_knob", None, "The disk's settings", |metric| {
            disks.iter().try_for_each(|disk| {
                disk.knobs.iter().try_for_each(|knob| {
                    let labels: &[_] = &[("disk", &*disk.name), ("knob", knob.name), ("value", &*knob.value)];
                    metric.0.encode_info(&labels)
                })
            })
        })?;
        let says = "Time the disk was busy, flushing or held idle, added up over the queues of `none`";
        encoder.counter_of(Unit::Seconds, "fairlift_disk_seconds", says, |metric| {
            disks.iter().try_for_each(|disk| {
                let doing = disk.doing;
                let all = [("flushing", doing.flushing), ("busy", doing.busy), ("idling", doing.idling)];
                all.into_iter()
                    .try_for_each(|(what, time)| metric.seconds(&[("disk", &disk.name), ("doing", what)], time))
            })
        })?;
        let says = "Flushes: asked by clients, sent to the device, spared, failed, waited for others";
        encoder.counter("fairlift_disk_flushes", says, |metric| {
            disks.iter().try_for_each(|disk| {
                FLUSHES
                    .iter()
                    .filter_map(|(name, what)| Some((what, disk.counters.get(name)?)))
                    .try_for_each(|(what, count)| metric.count(&[("disk", &disk.name), ("kind", what)], *count))
            })
        })?;
        let says = "Counters and learned values of the scheduler, by its own names";
        encoder.gauge("fairlift_scheduler", says, |metric| {
            disks.iter().try_for_each(|disk| {
                let own = disk.counters.iter().filter(|(name, _)| FLUSHES.iter().all(|(flush, _)| flush != *name));
                own.into_iter().try_for_each(|(name, count)| {
                    let labels = [("disk", &*disk.name), ("scheduler", disk.scheduler.name()), ("name", name)];
                    metric.gauge(&labels, *count as f64)
                })
            })
        })?;
        let says = "Throughput with and without idling, as slice_idle=auto last found it";
        encoder.gauge("fairlift_auto_bytes_per_second", says, |metric| {
            disks.iter().filter_map(|disk| Some((disk, disk.findings.last()?))).try_for_each(|(disk, finding)| {
                let chosen = finding.to.to_string();
                [("true", finding.idle), ("false", finding.parallel)].into_iter().try_for_each(|(idle, kib)| {
                    let labels = [("disk", &*disk.name), ("idling", idle), ("chosen", &*chosen)];
                    metric.gauge(&labels, kib as f64 * 1024.0)
                })
            })
        })
    }

    fn server(&self, encoder: &mut Encoder<'_, '_>) -> fmt::Result {
        let View { worked, clients, exports, flush_errors, version, started, turned_away, .. } = &self.view;
        let numbered: Vec<_> = worked.iter().enumerate().map(|(number, worked)| (number.to_string(), worked)).collect();
        let says = "CPU time of the worker";
        encoder.counter_of(Unit::Seconds, "fairlift_worker_busy_seconds", says, |metric| {
            numbered.iter().try_for_each(|(number, worked)| metric.seconds(&[("worker", number)], worked.ran))
        })?;
        let says = "Time the worker waited for a CPU";
        encoder.counter_of(Unit::Seconds, "fairlift_worker_delayed_seconds", says, |metric| {
            numbered.iter().try_for_each(|(number, worked)| metric.seconds(&[("worker", number)], worked.delayed))
        })?;
        encoder.counter("fairlift_worker_turns", "Turns of the worker's loop", |metric| {
            numbered.iter().try_for_each(|(number, worked)| metric.count(&[("worker", number)], worked.turns))
        })?;
        let says = "Completions the worker received; divided by its turns, the mean batch";
        encoder.counter("fairlift_worker_completions", says, |metric| {
            numbered.iter().try_for_each(|(number, worked)| metric.count(&[("worker", number)], worked.completions))
        })?;
        let says = "Requests found waiting without a reason, which is a fault of the server";
        encoder.counter("fairlift_worker_stuck", says, |metric| {
            numbered.iter().try_for_each(|(number, worked)| metric.count(&[("worker", number)], worked.stuck))
        })?;
        encoder.gauge("fairlift_worker_connections", "Connections that the worker serves", |metric| {
            (0_u16..).zip(&numbered).try_for_each(|(at, (number, _))| {
                let count = clients.iter().filter(|client| client.worker == at).count();
                metric.gauge(&[("worker", number)], count as f64)
            })
        })?;
        let says = "Clients disconnected before they opened an export, by the limit of their address";
        encoder.counter("fairlift_clients_turned_away", says, |metric| {
            turned_away.iter().try_for_each(|(why, count)| metric.count(&[("limit", why)], *count))
        })?;
        encoder.metric(MetricType::Info, "fairlift_server", None, "The version of the server", |metric| {
            let labels: &[_] = &[("version", env!("CARGO_PKG_VERSION"))];
            metric.0.encode_info(&labels)
        })?;
        let one = |encoder: &mut Encoder<'_, '_>, name, says, value| {
            encoder.gauge(name, says, |metric| metric.gauge(&[], value))
        };
        one(encoder, "fairlift_exports", "Exports", exports.len() as f64)?;
        one(encoder, "fairlift_config_version", "Changes of the configuration since the start", *version as f64)?;
        let says = "Backings with a failed flush that has not been acknowledged";
        one(encoder, "fairlift_flush_errors", says, flush_errors.len() as f64)?;
        let links = &self.view.links;
        let says = "Connections to a remote backing: present and wanted";
        encoder.gauge("fairlift_remote_connections", says, |metric| {
            links.iter().try_for_each(|(backing, link)| {
                metric.gauge(&[("backing", &**backing), ("kind", "there")], link.up.into())?;
                metric.gauge(&[("backing", &**backing), ("kind", "wanted")], link.of.into())
            })
        })?;
        let says = "Time since a connection to a remote backing went missing; 0 if none is";
        encoder.metric(MetricType::Gauge, "fairlift_remote_degraded_seconds", Some(Unit::Seconds), says, |metric| {
            links.iter().try_for_each(|(backing, link)| {
                let since = link.since.elapsed().unwrap_or_default().as_secs_f64();
                metric.gauge(&[("backing", &**backing)], if link.up < link.of { since } else { 0.0 })
            })
        })?;
        encoder.counter("fairlift_remote_lost", "Lost connections to a remote backing", |metric| {
            links.iter().try_for_each(|(backing, link)| metric.count(&[("backing", &**backing)], link.lost))
        })?;
        let process = Process::look();
        encoder.counter_of(Unit::Seconds, "process_cpu_seconds", "Time on CPUs, of user and kernel", |metric| {
            metric.seconds(&[], process.cpu)
        })?;
        let bytes = |encoder: &mut Encoder<'_, '_>, name, says, value: u64| {
            encoder.metric(MetricType::Gauge, name, Some(Unit::Bytes), says, |metric| metric.gauge(&[], value as f64))
        };
        bytes(encoder, "process_resident_memory_bytes", "Memory in use", process.resident)?;
        one(encoder, "process_open_fds", "Open files", process.files as f64)?;
        let says = "Start time of the server, in seconds since 1970";
        encoder.metric(MetricType::Gauge, "process_start_time_seconds", Some(Unit::Seconds), says, |metric| {
            metric.gauge(&[], super::show::seconds(*started))
        })
    }
}

/// The queue's names of its counters of flushes, and their names here.
const FLUSHES: [(&str, &str); 5] = [
    ("flushes_asked", "asked"),
    ("flushes_sent", "sent"),
    ("flushes_spared", "spared"),
    ("flushes_failed", "failed"),
    ("flush_waits", "waited"),
];

/// The kernel's figures of the process.
struct Process {
    cpu: Duration,
    resident: u64,
    files: usize,
}

impl Process {
    fn look() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let pages: u64 = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or_default();
        Self {
            cpu: Duration::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64),
            resident: pages * rustix::param::page_size() as u64,
            files: std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_format_describes_counters_by_the_name_of_their_samples() {
        let text = "# HELP a_seconds Time.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\na_seconds_total{x=\"# HELP\"} 1.0\n\
                    # HELP b A disk.\n# TYPE b info\nb_info{x=\"y\"} 1\n# EOF\n";
        let wanted = "# HELP a_seconds_total Time.\n# TYPE a_seconds_total counter\na_seconds_total{x=\"# HELP\"} 1.0\n\
                      # HELP b_info A disk.\n# TYPE b_info gauge\nb_info{x=\"y\"} 1\n";
        assert_eq!(before_openmetrics(text), wanted);
    }

    #[test]
    fn the_reader_of_the_oldest_text_is_cut_off_when_there_is_one_more() {
        let text = Arc::new(Text(Mutex::new(Some(Bytes::from(vec![7; PIECE + 3]))), PIECE + 3));
        assert_eq!(text.piece(0).unwrap().len(), PIECE);
        assert_eq!(text.piece(PIECE).unwrap().len(), 3);
        let texts = Texts::default();
        let answers: Vec<_> = (0..=TEXTS).map(|_| texts.answer("x".into(), Format::Prometheus)).collect();
        let all = texts.0.lock().unwrap();
        assert_eq!((all.len(), answers.len()), (TEXTS, TEXTS + 1));
        drop((all, answers));
        let large = || texts.answer(String::from_utf8(vec![b'x'; BYTES / 2]).unwrap(), Format::Prometheus);
        let _two = (large(), large());
        let first = Arc::clone(&texts.0.lock().unwrap()[0]);
        assert!(first.piece(0).is_ok(), "there is room for two");
        let _third = large();
        assert!(first.piece(0).is_err(), "and not for three");
        text.cut_off();
        assert!(text.piece(0).is_err());
    }
}
