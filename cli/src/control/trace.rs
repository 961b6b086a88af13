//! Trace: what happens to requests, from a server that runs, as records of blktrace.
//!
//! The answer begins at once and ends after the seconds that were asked for. A client that reads too slowly loses events, and is told
//! how many; requests do not wait for it.

use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use fairlift::control::Trace;
use fairlift::control::trace::Traced;
use fairlift_core::Instant;
use fairlift_core::trace::Item;

use crate::blktrace::Record;

/// How often events are taken out. Chosen: a queue keeps those of 13 ms at a million requests a second.
const OFTEN: Duration = Duration::from_millis(10);

struct Taking {
    trace: Trace,
    export: Option<Traced>,
    end: tokio::time::Instant,
    /// By the server's clock.
    began: Option<Instant>,
    lost: u64,
    begun: bool,
    over: bool,
    may_go_on: Box<dyn Fn() -> bool + Send>,
}

/// Takes a trace for so long, of an export or of all, while the client may go on.
pub(super) fn answer(
    trace: Trace,
    export: Option<Traced>,
    time: Duration,
    may_go_on: Box<dyn Fn() -> bool + Send>,
) -> Response {
    let end = tokio::time::Instant::now() + time;
    let taking = Taking { trace, export, end, began: None, lost: 0, begun: false, over: false, may_go_on };
    let pieces = futures_util::stream::unfold(taking, |mut taking| async move {
        loop {
            if taking.over || !(taking.may_go_on)() {
                return None;
            }
            if taking.begun {
                tokio::time::sleep(OFTEN).await;
            }
            let piece = taking.piece();
            if !piece.is_empty() {
                return Some((Ok::<_, std::convert::Infallible>(piece), taking));
            }
        }
    });
    ([(header::CONTENT_TYPE, "application/octet-stream")], Body::from_stream(pieces)).into_response()
}

impl Taking {
    fn piece(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        if !std::mem::replace(&mut self.begun, true) {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            Record::began(now).encode(0, &mut out);
            for (group, path) in &self.trace.groups {
                Record::name(*group, path).encode(0, &mut out);
            }
            for (disk, name) in self.trace.disks() {
                Record::disk_name(disk, &name).encode(0, &mut out);
            }
        }
        let mut items: Vec<(usize, Item)> = Vec::new();
        self.lost += self.trace.take(&mut |disk, item| items.push((disk, item)));
        items.sort_by_key(|(_, item)| item.at());
        for (disk, item) in items {
            // A message may be fetched later than an event that it is older than.
            let began = *self.began.get_or_insert(item.at());
            let start = match &self.export {
                None => 0,
                Some(export) if export.is_about(disk, &item) => export.start.0,
                Some(_) => continue,
            };
            if let Some(record) = Record::of(&item, disk, began, start) {
                record.encode(0, &mut out);
            }
        }
        if tokio::time::Instant::now() >= self.end {
            self.over = true;
            Record::message(0, &format!("lost={}", self.lost)).encode(0, &mut out);
        }
        out
    }
}

/// Where an export is.
pub(super) fn find(trace: &Trace, name: &str) -> Option<Traced> {
    trace.exports.iter().find(|export| export.name == name).cloned()
}
