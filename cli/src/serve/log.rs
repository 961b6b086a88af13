//! The log of a server: to standard error or the journal, filtered by `RUST_LOG`.

use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ValueEnum;
use tracing_journald::{Priority, PriorityMappings};
use tracing_subscriber::filter::{LevelFilter, dynamic_filter_fn};
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry, fmt};

use super::repeats::RepeatFilter;

/// How lines are written.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
pub(crate) enum Format {
    /// To the journal if standard error goes there, else as text
    #[default]
    Auto,
    /// A line of text each, on standard error
    Text,
    /// A JSON object each, a line on standard error
    Json,
}

/// Whether standard error is that of the previous server: of a server that takes over it is the command's until then.
static IS_HANDED: AtomicBool = AtomicBool::new(false);

/// Tells until it is dropped, and then what has been counted and not printed.
pub(crate) struct Log(RepeatFilter);

/// Starts telling; `takes_over`: standard error will be another server's.
pub(crate) fn start(format: Format, usual: LevelFilter, takes_over: bool) -> Log {
    let filter = EnvFilter::builder().with_default_directive(usual.into()).from_env_lossy();
    let repeats = RepeatFilter::default();
    let lines = fmt::layer().with_writer(std::io::stderr).with_target(false);
    let layer: Box<dyn Layer<Registry> + Send + Sync> = match (format, journal(takes_over)) {
        (Format::Json, _) => lines.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed(),
        (Format::Auto, Some((layer, true))) => layer.boxed(),
        (Format::Auto, Some((layer, false))) => {
            let before = lines.with_ansi(false).without_time();
            let before = before.with_filter(dynamic_filter_fn(|_, _| !IS_HANDED.load(Ordering::Relaxed)));
            before.and_then(layer.with_filter(dynamic_filter_fn(|_, _| IS_HANDED.load(Ordering::Relaxed)))).boxed()
        }
        // Where the journal takes lines only, it has a time of its own for each.
        _ if std::env::var_os("JOURNAL_STREAM").is_some() => lines.with_ansi(false).without_time().boxed(),
        _ if !std::io::stderr().is_terminal() => lines.with_ansi(false).boxed(),
        _ => lines.boxed(), // colors, unless NO_COLOR is set
    };
    tracing_subscriber::registry().with(layer).with(repeats.clone()).with(filter).init();
    Log(repeats)
}

impl Drop for Log {
    fn drop(&mut self) {
        self.0.finish();
    }
}

/// Standard error is that of the previous server from now on.
pub(crate) fn handed() {
    IS_HANDED.store(true, Ordering::Relaxed);
}

/// The journal, if standard error goes there (true), or that of the previous server (false): a line's fields are its own fields there, such
/// as `FAIRLIFT_PATH`.
fn journal(takes_over: bool) -> Option<(tracing_journald::Layer, bool)> {
    let stream = std::env::var("JOURNAL_STREAM").ok()?;
    let (device, inode) = stream.split_once(':')?;
    let here = rustix::fs::fstat(std::io::stderr()).ok()?;
    // A program that was started by a service has the variable too, and may have another standard error.
    let is_it = device.parse() == Ok(here.st_dev) && inode.parse() == Ok(here.st_ino);
    if !is_it && !takes_over {
        return None; // of a server that takes over the variable is as the previous one had it
    }
    let layer = tracing_journald::layer().ok()?;
    // Messages for people are informational there; the crate would call them remarkable.
    let priorities = PriorityMappings { info: Priority::Informational, ..PriorityMappings::new() };
    let layer = layer.with_priority_mappings(priorities).with_field_prefix(Some("FAIRLIFT".into()));
    Some((layer.with_syslog_identifier("fairlift".into()), is_it))
}
