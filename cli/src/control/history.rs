//! History: the share, rate and latency of tenants over the last ten minutes, for a page that is opened after the trouble.
//!
//! Example: alice was slow at 10:04, and the page is opened at 10:09. Its graphs begin at 9:59, with the changes made since.
//!
//! history.1  Every [`EVERY`] the control thread compares two looks at the server, as `fairlift status` does. A request does nothing
//!            for it.
//! history.2  Memory is bounded: there are [`SAMPLES`] samples, each with the [`TENANTS`] busiest tenants in 32 bytes each. The last look's
//!            figures of all groups are kept for the next one; above [`GROUPS`] groups there is no history.
//! history.3  Only clients that may see the whole server are answered: a tenant's name may have been another tenant's some minutes ago.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use fairlift::Handle;
use fairlift::access::Grant;
use fairlift::control::{Event, View};
use fairlift_core::Instant;
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::activity::seconds;
use super::{lock, status};

/// The time between two samples. Chosen: 120 points across a graph, three pixels from each other on a phone.
pub(super) const EVERY: Duration = Duration::from_secs(5);
/// Ten minutes of samples.
const SAMPLES: usize = 120;
/// The tenants of a sample. Chosen: ten times the lines of the page, and a quarter of a MiB for all samples.
const TENANTS: usize = 64;
/// The groups of a server that keeps a history. Chosen: for as many a look takes 5 ms and 5 MB (docs/measured/observability.md).
const GROUPS: usize = 256;
/// The keys of a tenant in `status` that are kept.
const KEYS: [&str; 6] = ["had", "due", "iops", "bps", "p99_us", "latency_target_us"];

#[derive(Clone, Default)]
pub(super) struct History(Arc<Mutex<Recorded>>);

#[derive(Default)]
struct Recorded {
    before: Option<View>,
    samples: VecDeque<Sample>,
}

struct Sample {
    at: Instant,
    rows: Box<[SampleRow]>,
}

struct SampleRow {
    /// The path and the disk, shared by the rows of a tenant.
    of: Arc<[String; 2]>,
    /// By [`KEYS`]; `NaN`: there is no such figure.
    figures: [f32; KEYS.len()],
}

impl History {
    /// Looks at the server, and adds a sample of the time since the last look.
    pub(super) fn look(&self, handle: &Handle) {
        let Some(state) = handle.state() else { return };
        if state.config.groups.len() > GROUPS {
            *lock(&self.0) = Recorded::default(); // history.2
            return;
        }
        let Some(after) = handle.view(true) else { return };
        let mut kept = lock(&self.0);
        if let Some(before) = kept.before.take() {
            let status = status::status(&Grant::See, &state, [&before, &after], &[]);
            kept.add(after.at, status["tenants"].as_array().map_or(&[], Vec::as_slice));
        }
        kept.before = Some(after);
    }

    /// The samples up to `now`, and the changes among `events`.
    pub(super) fn show(&self, now: Instant, events: &[Event]) -> Box<RawValue> {
        #[derive(serde::Serialize)]
        struct Shown<'a> {
            every_seconds: u64,
            samples: Vec<Moment<'a>>,
            changes: Vec<Value>,
        }
        #[derive(serde::Serialize)]
        struct Moment<'a> {
            ago_seconds: f64,
            tenants: &'a [SampleRow],
        }
        let kept = lock(&self.0);
        let samples = kept
            .samples
            .iter()
            .map(|sample| Moment { ago_seconds: seconds(now.since(sample.at)), tenants: &sample.rows });
        let change = |event: &Event| {
            let ago = SystemTime::now().duration_since(event.at).unwrap_or_default();
            let (_, what) = event.of.iter().find(|(key, _)| *key == "what")?;
            let is_shown = event.kind == "changed" && ago < EVERY * SAMPLES as u32;
            is_shown.then(|| json!({"ago_seconds": ago.as_secs_f64(), "what": what}))
        };
        let shown = Shown {
            every_seconds: EVERY.as_secs(),
            samples: samples.collect(),
            changes: events.iter().filter_map(change).collect(),
        };
        serde_json::value::to_raw_value(&shown).expect("keys are text")
    }
}

impl Recorded {
    fn add(&mut self, at: Instant, tenants: &[Value]) {
        let number = |tenant: &Value, key| tenant[key].as_f64().map_or(f32::NAN, |number| number as f32);
        let last: &[SampleRow] = self.samples.back().map_or(&[], |sample| &sample.rows);
        let row = |tenant: &Value| {
            let of = ["path", "disk"].map(|key| tenant[key].as_str().unwrap_or_default().to_owned());
            let same = last.iter().find(|row| *row.of == of).map(|row| Arc::clone(&row.of));
            SampleRow { of: same.unwrap_or_else(|| Arc::new(of)), figures: KEYS.map(|key| number(tenant, key)) }
        };
        let mut busiest: Vec<&Value> = tenants.iter().collect();
        busiest.sort_by_cached_key(|tenant| Reverse((1e9 * number(tenant, "had")) as u64));
        let rows = busiest.into_iter().take(TENANTS).map(row).collect();
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample { at, rows });
    }
}

impl Serialize for SampleRow {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        ["path", "disk"].iter().zip(&*self.of).try_for_each(|(key, name)| map.serialize_entry(key, name))?;
        KEYS.iter().zip(&self.figures).try_for_each(|(key, figure)| map.serialize_entry(key, figure))?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(history: &History, now: u64, events: &[Event]) -> Value {
        serde_json::from_str(history.show(Instant::from_nanos(now * 1_000_000_000), events).get()).unwrap()
    }

    /// history.2
    #[test]
    fn ten_minutes_of_the_busiest_tenants_are_kept_with_the_changes_in_them() {
        assert_eq!(size_of::<SampleRow>(), 32);
        let history = History::default();
        let tenant =
            |number: usize, had: f64| json!({"path": format!("/t/{number}"), "disk": "d", "had": had, "p99_us": null});
        let tenants: Vec<_> = (0..TENANTS + 9).map(|number| tenant(number, number as f64 / 100.0)).collect();
        for sample in 1..=SAMPLES as u64 + 3 {
            lock(&history.0).add(Instant::from_nanos(5_000_000_000 * sample), &tenants);
        }
        let all = shown(&history, 620, &[]);
        let samples = all["samples"].as_array().unwrap();
        assert_eq!((samples.len(), &samples[0]["ago_seconds"]), (SAMPLES, &json!(600.0)));
        let rows = samples[7]["tenants"].as_array().unwrap();
        assert_eq!(
            (rows.len(), &rows[0]["path"], &rows[TENANTS - 1]["path"]),
            (TENANTS, &json!("/t/72"), &json!("/t/9"))
        );
        assert_eq!((&rows[22]["had"], &rows[0]["p99_us"]), (&json!(0.5), &Value::Null));
        let names = lock(&history.0).samples.iter().map(|sample| Arc::as_ptr(&sample.rows[0].of)).collect::<Vec<_>>();
        assert!(names.windows(2).all(|two| two[0] == two[1]), "a name is kept once");
        let event = |kind, seconds| Event {
            number: 1,
            at: SystemTime::now() - Duration::from_secs(seconds),
            kind,
            of: vec![("what", "group \"/t/9\": weight 300 (was 100)".into()), ("group", "/t/9".into())],
        };
        let events = [event("changed", 700), event("left", 3), event("changed", 3)];
        let changes = shown(&history, 620, &events)["changes"].as_array().unwrap().len();
        assert_eq!(changes, 1, "not of eleven minutes ago, and no client that left");
    }
}
