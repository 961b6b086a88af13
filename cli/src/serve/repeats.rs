//! RepeatFilter: a line that is told over and over is told a few times and then counted.
//!
//! A client that connects in a loop to a server that is full would write a thousand lines a second, and the line that matters is
//! lost among them. Example: of 415 such lines within ten seconds three are told, and at the end `412 more times in 10 s`.
//!
//! repeats.1  Lines are the same if level, text and fields are; the number of a connection makes no difference.
//! repeats.2  Of the same line [`SHOWN`] are told within a window of [`WINDOW`], the same for all lines. The rest are counted, and the count is told
//!            when the window ends.

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
/// A line with a count, which is not counted itself.
const TARGET: &str = "fairlift::repeats";

#[derive(Clone, Default)]
pub(super) struct RepeatFilter(Arc<Mutex<Repeats>>);

#[derive(Default)]
struct Repeats {
    began: Option<Instant>,
    /// How often each line came.
    seen: HashMap<(Level, String), u64>,
    /// Whether a thread waits for its end. Until one does, the first line behind its end begins the next.
    is_waited: bool,
}

/// A line that was counted: its level and text, how often it was not told, and in how long.
type Counted = (Level, String, u64, Duration);

impl Repeats {
    /// Whether a line is told (repeats.2).
    fn tell(&mut self, now: Instant, level: Level, line: String) -> bool {
        if !self.is_waited && self.began.is_none_or(|began| now - began >= WINDOW) {
            self.began = Some(now);
            self.seen.clear();
        }
        let line = (level, line);
        if self.seen.len() >= LINES && !self.seen.contains_key(&line) {
            return true;
        }
        let count = self.seen.entry(line).or_default();
        *count += 1;
        *count <= SHOWN
    }

    /// Ends it, and takes out the lines that were counted.
    fn end(&mut self, now: Instant) -> Vec<Counted> {
        self.is_waited = false;
        let passed = self.began.take().map_or(Duration::ZERO, |began| now - began);
        let counted = self.seen.drain().filter(|(_, count)| *count > SHOWN);
        counted.map(|((level, line), count)| (level, line, count - SHOWN, passed)).collect()
    }
}

impl RepeatFilter {
    fn window(&self) -> MutexGuard<'_, Repeats> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells what has been counted.
    pub(super) fn finish(&self) {
        let counted = self.window().end(Instant::now());
        counted.into_iter().for_each(tell);
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
        let now = Instant::now();
        let mut window = self.window();
        let is_told = window.tell(now, *event.metadata().level(), line.0 + &line.1);
        if !is_told && !window.is_waited {
            let rest = WINDOW.saturating_sub(window.began.map_or(Duration::ZERO, |began| now - began));
            let filter = self.clone();
            let wait = move || {
                std::thread::sleep(rest);
                filter.finish();
            };
            // Without a thread the lines that were counted are not told, unless the server ends first.
            window.is_waited = std::thread::Builder::new().name("log".into()).spawn(wait).is_ok();
        }
        is_told
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

    fn tell(window: &mut Repeats, now: Instant, text: &str) -> bool {
        window.tell(now, Level::WARN, text.into())
    }

    /// repeats.2
    #[test]
    fn of_many_same_lines_three_are_told_and_the_rest_is_a_number() {
        let (start, mut window) = (Instant::now(), Repeats::default());
        let printed = (0..415).filter(|_| tell(&mut window, start, "full")).count();
        assert!(tell(&mut window, start, "another"));
        assert!(window.tell(start, Level::ERROR, "full".into()), "of another level");
        assert_eq!(printed, 3);
        window.is_waited = true;
        assert!(!tell(&mut window, at(start, 11), "full"), "the thread that waits ends the window");
        let counted = window.end(at(start, 11));
        assert_eq!(counted, [(Level::WARN, "full".to_owned(), 413, Duration::from_secs(11))]);
        assert_eq!(window.seen.len(), 0);
        assert!(tell(&mut window, at(start, 11), "full"), "a new window");
    }

    #[test]
    fn a_line_that_comes_now_and_then_is_told_each_time() {
        let (start, mut window) = (Instant::now(), Repeats::default());
        assert!((0..20).all(|n| tell(&mut window, at(start, 4 * n), "now and then")));
        assert!(window.end(at(start, 100)).is_empty());
    }

    #[test]
    fn many_different_lines_are_told_and_take_bounded_memory() {
        let (start, mut window) = (Instant::now(), Repeats::default());
        assert!((0..5000).all(|n| tell(&mut window, start, &format!("line {n}"))));
        assert!(window.seen.len() <= LINES);
        assert!((0..10).all(|_| tell(&mut window, start, "line 4000")), "not remembered, so not counted");
    }
}
