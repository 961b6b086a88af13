//! RepeatFilter: a line that is told over and over is told a few times and then counted.
//!
//! A client that connects in a loop to a server that is full would write a thousand lines a second, and the line that matters is
//! lost among them. Example: of 415 such lines within ten seconds three are told, and at the end `412 more times in 10 s`.
//!
//! repeats.1  Lines are the same if level, text and fields are; the number of a connection makes no difference.
//! repeats.2  Of the same line [`SHOWN`] are told within [`WINDOW`]. The rest are counted, and the count is told when the window ends.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// How often a line is told in a window. Chosen: what repeats is seen to repeat.
const SHOWN: u64 = 3;
const WINDOW: Duration = Duration::from_secs(10);
/// Lines that are remembered at most; others are told each time.
const LINES: usize = 1024;
/// How often it is looked which of them can be forgotten. Chosen: a server that opens 10,000 files tells of each.
const LOOK: Duration = Duration::from_secs(1);
/// A line with a count, which is not counted itself.
const TARGET: &str = "fairlift::repeats";

/// The lines of the last seconds.
#[derive(Clone, Default)]
pub(super) struct RepeatFilter(Arc<Mutex<Repeats>>);

#[derive(Default)]
struct Repeats {
    seen: HashMap<(Level, String), Seen>,
    /// When old lines were last forgotten.
    looked: Option<Instant>,
    /// Whether a thread waits for the end of a window.
    is_waited: bool,
}

struct Seen {
    first: Instant,
    count: u64,
}

/// A line that was counted: its level and text, how often it was not told, and in how long.
type Counted = (Level, String, u64, Duration);

impl Repeats {
    /// Whether a line is told (repeats.2).
    fn tell(&mut self, now: Instant, level: Level, line: String) -> bool {
        if self.seen.len() >= LINES && self.looked.is_none_or(|at| now - at >= LOOK) {
            self.looked = Some(now);
            self.seen.retain(|_, seen| seen.count > SHOWN || now - seen.first < WINDOW);
        }
        if self.seen.len() >= LINES && !self.seen.contains_key(&(level, line.clone())) {
            return true;
        }
        let seen = self.seen.entry((level, line)).or_insert(Seen { first: now, count: 0 });
        if now - seen.first >= WINDOW && seen.count <= SHOWN {
            *seen = Seen { first: now, count: 0 };
        }
        seen.count += 1;
        seen.count <= SHOWN
    }

    /// The lines whose window has ended, all of them if `all`.
    fn take(&mut self, now: Instant, all: bool) -> Vec<Counted> {
        let mut taken = Vec::new();
        self.seen.retain(|(level, line), seen| {
            let stays = !all && now - seen.first < WINDOW;
            if !stays && seen.count > SHOWN {
                taken.push((*level, line.clone(), seen.count - SHOWN, now - seen.first));
            }
            stays
        });
        taken
    }

    /// When the next window ends of a line that was counted.
    fn next(&self) -> Option<Instant> {
        self.seen.values().filter(|seen| seen.count > SHOWN).map(|seen| seen.first + WINDOW).min()
    }
}

impl RepeatFilter {
    fn lines(&self) -> MutexGuard<'_, Repeats> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells what has been counted.
    pub(super) fn finish(&self) {
        let counted = self.lines().take(Instant::now(), true);
        counted.into_iter().for_each(tell);
    }

    /// Waits for the ends of windows, as long as there are any.
    fn wait(&self) {
        loop {
            let next = {
                let mut lines = self.lines();
                let next = lines.next();
                lines.is_waited = next.is_some();
                next
            };
            let Some(next) = next else { return };
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            let counted = self.lines().take(Instant::now(), false);
            counted.into_iter().for_each(tell);
        }
    }
}

fn tell((level, line, times, passed): Counted) {
    let seconds = passed.as_secs_f64().ceil();
    macro_rules! tell {
        ($level:expr) => {
            tracing::event!(target: TARGET, $level, times, "{line}: {times} more times in {seconds} s")
        };
    }
    match level {
        Level::ERROR => tell!(Level::ERROR),
        Level::WARN => tell!(Level::WARN),
        Level::INFO => tell!(Level::INFO),
        Level::DEBUG => tell!(Level::DEBUG),
        Level::TRACE => tell!(Level::TRACE),
    }
}

impl<S: Subscriber> Layer<S> for RepeatFilter {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        if event.metadata().target() == TARGET {
            return true;
        }
        let mut line = Line::default();
        event.record(&mut line);
        let (printed, waits) = {
            let mut lines = self.lines();
            let printed = lines.tell(Instant::now(), *event.metadata().level(), line.0 + &line.1);
            let waits = !printed && !std::mem::replace(&mut lines.is_waited, true);
            (printed, waits)
        };
        if waits {
            let filter = self.clone();
            // Without a thread the count is told at the end.
            let _ = std::thread::Builder::new().name("log".into()).spawn(move || filter.wait());
        }
        printed
    }
}

/// An event's text, and its fields behind it (repeats.1).
#[derive(Default)]
struct Line(String, String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            "connection" => Ok(()),
            name => write!(self.1, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    fn tell(lines: &mut Repeats, now: Instant, text: &str) -> bool {
        lines.tell(now, Level::WARN, text.into())
    }

    /// repeats.2
    #[test]
    fn of_many_same_lines_three_are_told_and_the_rest_is_a_number() {
        let (start, mut lines) = (Instant::now(), Repeats::default());
        let printed = (0..415).filter(|_| tell(&mut lines, start, "full")).count();
        assert!(tell(&mut lines, start, "another"));
        assert!(lines.tell(start, Level::ERROR, "full".into()), "of another level");
        assert_eq!(printed, 3);
        assert!(lines.take(at(start, 9), false).is_empty(), "its window has not ended");
        assert_eq!(lines.next(), Some(at(start, 10)));
        let counted = lines.take(at(start, 10), false);
        assert_eq!(counted, [(Level::WARN, "full".to_owned(), 412, Duration::from_secs(10))]);
        assert_eq!((lines.next(), lines.seen.len()), (None, 0));
        assert!(tell(&mut lines, at(start, 11), "full"), "a new window");
    }

    #[test]
    fn a_line_that_comes_now_and_then_is_told_each_time() {
        let (start, mut lines) = (Instant::now(), Repeats::default());
        assert!((0..20).all(|n| tell(&mut lines, at(start, 4 * n), "now and then")));
        assert!(lines.take(at(start, 100), true).is_empty());
    }

    #[test]
    fn many_different_lines_are_told_and_take_bounded_memory() {
        let (start, mut lines) = (Instant::now(), Repeats::default());
        assert!((0..5000).all(|n| tell(&mut lines, start, &format!("line {n}"))));
        assert!(lines.seen.len() <= LINES);
        assert!((0..10).all(|_| tell(&mut lines, start, "line 4000")), "not remembered, so not counted");
    }
}
