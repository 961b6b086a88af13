//! What can be said to the commands that look at a running server and change it.

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;
use clap_complete::engine::ArgValueCandidates;

use super::complete;
use crate::control::KINDS;

/// Which server is meant.
#[derive(Debug, Clone, Args)]
pub(crate) struct At {
    /// The server's control address, as in `fairlift serve --control` [default: that of the server which listens at the usual
    /// place]
    #[arg(long, value_name = "ADDRESS", env = "FAIRLIFT_CONTROL", global = true)]
    pub(crate) control: Option<String>,

    /// Print the server's answer as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "takes a number, such as 7".into())
}

fn seconds(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|seconds| *seconds > 0.0).ok_or_else(|| "takes a number of seconds, such as 0.5".into())
}

fn kinds() -> PossibleValuesParser {
    PossibleValuesParser::new(KINDS.map(|(name, _)| name))
}

/// Show what each tenant had of which disk, and what it was due
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// How long to look
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    #[command(flatten)]
    pub(crate) at: At,
}

/// Watch tenants: how much of which disk each has, how fast it is served, and what it waits for
///
/// Keys sort by had, rate, p99, score, what is waited for, or name; the same key again reverses. `/` takes letters that a tenant,
/// disk, export or cause must have. Arrows choose a tenant, Enter says why it waits, space pauses, q quits.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Print it once, in plain text
    #[arg(long)]
    pub(crate) once: bool,
    /// What tenants are sorted by
    #[arg(long, value_name = "BY", default_value = "had")]
    pub(crate) sort: super::top::Sort,
    /// Show only tenants, disks, exports or causes with these letters
    #[arg(long, value_name = "TEXT")]
    pub(crate) filter: Option<String>,
    /// How long each look takes
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    #[command(flatten)]
    pub(crate) at: At,
}

/// Say in plain words what the requests of each tenant wait for, or of one
#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// An export, or the path of a tenant, as in alice or /tenants/alice; none: all tenants, a line each
    #[arg(value_name = "EXPORT|PATH", add = ArgValueCandidates::new(complete::exports_and_groups))]
    pub(crate) of: Option<String>,
    /// How long to look
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub(crate) seconds: f64,
    #[command(flatten)]
    pub(crate) at: At,
}

/// Record what happens to each request, for blkparse, btt, fio or ui.perfetto.dev
///
/// A name that ends in .json gets a page for ui.perfetto.dev and chrome://tracing. Any other is the beginning of files in blktrace's
/// format, one for each worker: `-o t` writes t.blktrace.0, t.blktrace.1 and so on, and `blkparse -i t` reads them.
#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// Only the requests of this export, with sectors counted from its start
    #[arg(long, value_name = "NAME")]
    pub(crate) export: Option<String>,
    /// For how long
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    pub(crate) seconds: f64,
    /// Where it goes
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) at: At,
}

/// Show what is in force: all, all of a kind, or one
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// What to show
    #[arg(value_parser = PossibleValuesParser::new(["export", "disk", "group", "listener", "connection", "server"]))]
    pub(crate) kind: Option<String>,
    /// Its name: an export's or disk's, or a group's path
    #[arg(add = ArgValueCandidates::new(complete::names))]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) at: At,
}

/// Change a group, an export or a disk of a running server
///
/// Of a group: weight, and limits: max, min, burst, as in max="riops=3000 wbps=50m" (max=max: none), latency (latency=none). Of an export: group, ioprio, read_only, size (it grows; `auto`: up to the end of its backing),
/// description, faults (another file of rules). Of a disk: scheduler, depth, nr_requests, and the tunables of its scheduler.
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// What to change
    #[arg(value_parser = PossibleValuesParser::new(["group", "export", "disk"]))]
    pub(crate) kind: String,
    /// Its name: an export's or disk's, or a group's path
    #[arg(add = ArgValueCandidates::new(complete::names))]
    pub(crate) name: String,
    /// What becomes of it, as in weight=300
    #[arg(required = true, value_name = "KEY=VALUE", add = ArgValueCandidates::new(complete::settings))]
    pub(crate) keys: Vec<String>,
    #[command(flatten)]
    pub(crate) how: How,
}

/// Add an export, group, disk or listener to a running server
///
/// `export NAME=BACKING [group=PATH] [disk=NAME] [size=SIZE] [offset=SIZE] [ioprio=be/4] [read_only=true] [description=TEXT]`,
/// `group PATH [weight=N]`, `disk NAME [scheduler=S] [depth=N] …`, `listener ADDRESS [tls=off|on|require]`
#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// What to add
    #[arg(value_parser = kinds())]
    pub(crate) kind: String,
    /// Its name; of an export NAME=BACKING
    pub(crate) name: String,
    /// What it is like, as in group=/tenants/carol
    #[arg(value_name = "KEY=VALUE", add = ArgValueCandidates::new(complete::settings))]
    pub(crate) keys: Vec<String>,
    #[command(flatten)]
    pub(crate) how: How,
}

/// Remove an export, group, disk or listener from a running server
///
/// Clients of an export that goes get answers to what they have asked, and are then disconnected.
#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// What to remove
    #[arg(value_parser = kinds())]
    pub(crate) kind: String,
    /// Its name; a listener's address
    #[arg(add = ArgValueCandidates::new(complete::names))]
    pub(crate) name: String,
    /// Disconnect the clients of an export at once
    #[arg(long)]
    pub(crate) now: bool,
    #[command(flatten)]
    pub(crate) how: How,
}

/// How a change is made.
#[derive(Debug, Clone, Args)]
pub(crate) struct How {
    /// Only say whether it could be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do it only if the server is at this version still: nobody has changed anything since
    #[arg(long, value_name = "VERSION", value_parser = number)]
    pub(crate) if_version: Option<u64>,
    #[command(flatten)]
    pub(crate) at: At,
}

/// Show what happened last and what happens: clients that come and go, changes, findings of `auto`
#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    /// Begin with so many events that were before
    #[arg(long, value_name = "COUNT", value_parser = number, default_value = "10", conflicts_with = "after")]
    pub(crate) last: u64,
    /// Go on after the event of this number
    #[arg(long, value_name = "NUMBER", value_parser = number)]
    pub(crate) after: Option<u64>,
    #[command(flatten)]
    pub(crate) at: At,
}

/// Take note of failed flushes: later ones succeed again, if the disks say so
///
/// A flush that has failed fails for all, and so do all later ones of that backing: what was not flushed may be lost. Do this once it is
/// known what that was.
#[derive(Debug, Args)]
pub(crate) struct AcknowledgeArgs {
    #[command(flatten)]
    pub(crate) at: At,
}

/// Let a running server read its config file again, and make what is different in it
#[derive(Debug, Args)]
pub(crate) struct ReloadArgs {
    #[command(flatten)]
    pub(crate) how: How,
}
