//! Trace: what happens to requests, from a server that runs, as records of blktrace.
//!
//! The answer begins at once and ends after the seconds that were asked for. A client that reads too slowly loses events, and is told
//! how many; requests do not wait for it, and neither does the end of the trace: there is one at a time.

use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use fairlift::control::Trace;
use fairlift::control::trace::Traced;
use fairlift_core::Instant;
use fairlift_core::trace::Item;
use tokio::sync::mpsc::Sender;

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
}

/// Takes a trace for so long, of an export or of all, while the client may go on.
pub(super) fn answer(
    trace: Trace,
    export: Option<Traced>,
    time: Duration,
    may_go_on: Box<dyn Fn() -> bool + Send>,
) -> Response {
    let end = tokio::time::Instant::now() + time;
    let (say, hear) = tokio::sync::mpsc::channel(1);
    tokio::spawn(Taking { trace, export, end, began: None, lost: 0 }.tell(say, may_go_on));
    let pieces = futures_util::stream::unfold(hear, |mut hear| async {
        Some((Ok::<_, std::convert::Infallible>(hear.recv().await?), hear))
    });
    ([(header::CONTENT_TYPE, "application/octet-stream")], Body::from_stream(pieces)).into_response()
}

impl Taking {
    /// Tells a client its trace piece by piece, as fast as it reads. The trace ends in time also if the client has not read all: the last piece waits for it.
    async fn tell(mut self, say: Sender<Vec<u8>>, may_go_on: Box<dyn Fn() -> bool + Send>) {
        let mut piece = self.head();
        while may_go_on() {
            let is_over = match tokio::time::timeout_at(self.end, say.reserve()).await {
                Ok(Err(_)) => return, // it has gone
                Ok(Ok(_)) => tokio::time::Instant::now() >= self.end,
                Err(_) => true,
            };
            self.add(&mut piece);
            if is_over {
                Record::message(0, &format!("lost={}", self.lost)).encode(0, &mut piece);
                drop(self);
                let _ = say.send(piece).await; // it may have gone
                return;
            }
            if !piece.is_empty() && say.send(std::mem::take(&mut piece)).await.is_err() {
                return;
            }
            tokio::time::sleep(OFTEN).await;
        }
    }

    /// The time of day, and the names.
    fn head(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Record::began(now).encode(0, &mut out);
        self.trace.groups.iter().for_each(|(group, path)| Record::name(*group, path).encode(0, &mut out));
        self.trace.disks().into_iter().for_each(|(disk, name)| Record::disk_name(disk, &name).encode(0, &mut out));
        out
    }

    /// Adds the events since it was last asked.
    fn add(&mut self, out: &mut Vec<u8>) {
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
                record.encode(0, out);
            }
        }
    }
}
