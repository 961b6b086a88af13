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

mod lines;
mod server;
mod tenants;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use fairlift::access::Grant;
use fairlift::control::view::{DiskView, GroupView};
use fairlift::control::{State, View};
use fairlift::gateways::PoolView;
use fairlift_core::{Duration, Instant};

use super::activity::{Activity, seconds};
use super::shares::{self, Share};
use super::{lock, pools};
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

/// An answer; empty if its reader was too slow (metrics.2).
type Text = Mutex<Bytes>;

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
        let text = Arc::new(Text::new(Bytes::from(text)));
        {
            let mut all = lock(&self.0);
            all.retain(|text| Arc::strong_count(text) > 1);
            while all.len() == TEXTS || all.iter().map(|text| lock(text).len()).sum::<usize>() + length > BYTES {
                let Some(oldest) = all.pop_front() else { break };
                lock(&oldest).clear();
            }
            all.push_back(Arc::clone(&text));
        }
        let pieces = futures_util::stream::try_unfold(0, move |at| {
            let next = piece(&lock(&text), at, length).map(|piece| Some((piece.clone()?, at + piece?.len())));
            std::future::ready(next)
        });
        let kind = if format == Format::OpenMetrics { OPENMETRICS } else { PROMETHEUS };
        ([(header::CONTENT_TYPE, kind)], Body::from_stream(pieces)).into_response()
    }
}

/// The next piece of a text of this length; `None`: it has been sent.
fn piece(text: &Bytes, at: usize, length: usize) -> Result<Option<Bytes>, std::io::Error> {
    if text.len() < length {
        return Err(std::io::Error::other("other scrapes came, and this one was not read"));
    }
    // A copy, or a piece would keep the whole.
    Ok((at < length).then(|| Bytes::copy_from_slice(&text[at..length.min(at + PIECE)])))
}

/// The metrics of a server, as text, as far as a client may see them: those not of a tenant are for clients that see all.
pub(super) fn text(
    role: &Grant,
    state: &State,
    view: &View,
    looks: &Looks,
    pools: &[PoolView],
    format: Format,
) -> String {
    let mut rows = rows(state, view, looks, pools);
    rows.retain(|row| role.sees(&row.group.path));
    let bounds = state.config.bounds.iter().filter(|(path, _)| role.sees(path));
    let mut out = tenants::lines(rows, &bounds.collect::<Vec<_>>(), format);
    if role.sees_all() {
        server::add(view, pools, &mut out);
    }
    out.end()
}

/// The work of groups at the last two scrapes that were at least [`LOOK`] apart, by disk: shares are those since one of them (metrics.3).
#[derive(Clone, Default)]
pub(super) struct Looks(Arc<Mutex<[Option<Look>; 2]>>);

struct Look {
    at: Instant,
    disks: BTreeMap<String, BTreeMap<String, Activity>>,
}

impl Looks {
    fn shares<'a>(&self, state: &State, view: &'a View) -> Vec<BTreeMap<&'a str, Share>> {
        let mut looks = lock(&self.0);
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
                // A group that has come since, by an upgrade too, begins with what it had before.
                let began = || group.began.as_ref().map(|began| Activity::of(began));
                let was = was.and_then(|was| was.get(&group.path).cloned()).or_else(began);
                (&*group.path, activity.since(&was.unwrap_or_default()))
            };
            let rows = disk.groups.iter().map(of_group).collect();
            shares.push(shares::shares(state, disk, &rows, length));
            disks.insert(disk.name.clone(), now);
        }
        looks[1].get_or_insert(Look { at: view.at, disks });
        shares
    }
}

fn rows<'a>(state: &State, view: &'a View, looks: &Looks, pools: &[PoolView]) -> Vec<TenantRow<'a>> {
    let of_disk = |(disk, shares): (&'a DiskView, BTreeMap<&'a str, Share>)| {
        let there = disk.groups.iter().filter(|group| group.figures.streams > 0);
        let entitled = shares::by_weight(disk.scheduler, state, there.map(|group| &*group.path));
        let row = |group: &'a GroupView| {
            let path = &*group.path;
            TenantRow {
                disk: &disk.name,
                group,
                entitled: entitled.get(path).copied(),
                share: shares.get(path).copied(),
                latency: disk.objective(path).map(|(_, standing)| *standing),
                pool: pools::of(pools, &disk.name, path).copied(),
            }
        };
        disk.groups.iter().map(row).collect::<Vec<_>>()
    };
    view.disks.iter().zip(looks.shares(state, view)).flat_map(of_disk).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reader_of_the_oldest_text_is_cut_off_when_there_is_one_more() {
        let length = |at| piece(&Bytes::from(vec![7; PIECE + 3]), at, PIECE + 3).unwrap().map(|piece| piece.len());
        assert_eq!([0, PIECE, PIECE + 3].map(length), [Some(PIECE), Some(3), None]);
        let texts = Texts::default();
        let answers: Vec<_> = (0..=TEXTS).map(|_| texts.answer("x".into(), Format::Prometheus)).collect();
        let all = texts.0.lock().unwrap();
        assert_eq!((all.len(), answers.len()), (TEXTS, TEXTS + 1));
        drop((all, answers));
        let large = || texts.answer(String::from_utf8(vec![b'x'; BYTES / 2]).unwrap(), Format::Prometheus);
        let _two = (large(), large());
        let first = Arc::clone(&texts.0.lock().unwrap()[0]);
        let is_whole = || piece(&lock(&first), 0, BYTES / 2).is_ok();
        assert!(is_whole(), "there is room for two");
        let _third = large();
        assert!(!is_whole(), "and not for three");
    }
}
