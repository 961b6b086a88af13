//! The flags of the commands that look at a running server and change it.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap_complete::engine::ArgValueCandidates;

use super::client::At;
use super::complete;
use super::top::rows::Sort;
use crate::control::{KINDS, Kind, parse_kind};

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "takes a number, such as 7".into())
}

fn seconds(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|seconds| *seconds > 0.0).ok_or_else(|| "takes a number of seconds, such as 0.5".into())
}

/// The time that a server looks at its work for (`routes/look.rs`). It refuses others, and a screen would go on without.
fn look(text: &str) -> Result<f64, String> {
    let is_it = |seconds: &f64| (0.05..=60.0).contains(seconds);
    seconds(text).ok().filter(is_it).ok_or_else(|| "takes a number of seconds from 0.05 to 60, such as 0.5".into())
}

fn kinds(of: impl IntoIterator<Item = Kind>) -> impl TypedValueParser<Value = Kind> {
    PossibleValuesParser::new(of.into_iter().map(Kind::name)).try_map(|kind| parse_kind(&kind))
}

/// Show the share of each disk that each tenant had, and the share it was due
///
/// All figures are averages over the time measured, except IN FLIGHT and WAITING, which are of its last moment. If tenants had less than 95 % of
/// a disk's time, a line below gives its idle time.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// The time to measure
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = look)]
    pub(crate) seconds: f64,
    #[command(flatten)]
    pub(crate) at: At,
}

/// Watch tenants live: share, rate, latency, and the cause of each one's waits
///
/// Keys sort by had, rate, p99, score, wait or name; the same key again reverses the order. `/` filters tenants, disks, exports and
/// causes by text. Arrows choose a tenant, Enter shows why it waits, space pauses, q quits.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Print once, in plain text
    #[arg(long)]
    pub(crate) once: bool,
    /// The order of tenants
    #[arg(long, value_name = "BY", default_value = "had")]
    pub(crate) sort: Sort,
    /// Show only tenants, disks, exports and causes with this text
    #[arg(long, value_name = "TEXT")]
    pub(crate) filter: Option<String>,
    /// The time between refreshes
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = look)]
    pub(crate) seconds: f64,
    #[command(flatten)]
    pub(crate) at: At,
}

/// Explain in plain words why the requests of one tenant, or of each, wait
#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// An export, or a tenant's path, as in alice or /tenants/alice [default: all tenants, a line each]
    #[arg(value_name = "EXPORT|PATH", add = ArgValueCandidates::new(|| complete::of(&[Kind::Export, Kind::Group])))]
    pub(crate) of: Option<String>,
    /// The time to measure
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = look)]
    pub(crate) seconds: f64,
    #[command(flatten)]
    pub(crate) at: At,
}

/// Record each step of each request, for blkparse, btt, fio or ui.perfetto.dev
///
/// A FILE that ends in .json is for ui.perfetto.dev and chrome://tracing. Any other name is a prefix for files in blktrace's
/// format, one for each worker: `-o t` writes t.blktrace.0, t.blktrace.1 and so on, and `blkparse -i t` reads them. They contain the
/// scheduler's messages, such as the end of a queue's turn; --messages shows only these, as they happen.
#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// Record only the requests of this export, with sectors counted from its start
    #[arg(long, value_name = "NAME")]
    pub(crate) export: Option<String>,
    /// The time to record
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// The file to write, or a prefix
    #[arg(short, long, value_name = "FILE", required_unless_present = "messages")]
    pub(crate) output: Option<PathBuf>,
    /// Write no file: show the messages of schedulers, as they happen
    #[arg(short, long, conflicts_with = "output")]
    pub(crate) messages: bool,
    #[command(flatten)]
    pub(crate) at: At,
}

/// Show the current settings: all, all of one kind, or one object's
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// The kind of object
    #[arg(value_parser = PossibleValuesParser::new(["export", "disk", "group", "listener", "client", "connection", "server"]))]
    pub(crate) kind: Option<String>,
    /// Its name: an export's, disk's or client's, or a group's path
    #[arg(add = ArgValueCandidates::new(complete::names))]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) at: At,
}

/// Change a group, an export, a disk or a client of a running server
///
/// Keys of a group: weight; max, min and burst, as in max="riops=3000 wbps=50m" or max=none (all limits of one key are given together:
/// those that are not named go); latency, as in latency=2ms or latency=none. Of an export: group, ioprio, read_only, size (larger; `auto`: up to the end of its backing), description, faults (a
/// file of rules). Of a disk: scheduler, depth, nr_requests, and the tunables of its scheduler. Of a client: those of `[client.NAME]`, as in
/// exports=alice,carol; KEY=default takes one back.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fairlift set group /alice weight=300 max=\"riops=3000 wbps=50m\"
  fairlift set group /alice max=riops=3000 burst=\"riops=30000 seconds=5\"
  fairlift set group /alice max=none latency=2ms
  fairlift set export alice size=auto
  fairlift set disk ssd0 scheduler=fair device_depth=32
  fairlift set client backup exports=alice,carol read_only=true")]
pub(crate) struct SetArgs {
    /// The kind of object
    #[arg(value_parser = kinds([Kind::Group, Kind::Export, Kind::Disk, Kind::Client]))]
    pub(crate) kind: Kind,
    /// Its name: an export's, disk's or client's, or a group's path
    #[arg(add = ArgValueCandidates::new(complete::names))]
    pub(crate) name: String,
    /// A key and its new value, as in weight=300
    #[arg(required = true, value_name = "KEY=VALUE", add = ArgValueCandidates::new(complete::settings))]
    pub(crate) keys: Vec<String>,
    #[command(flatten)]
    pub(crate) how: How,
}

/// Add an export, group, disk, listener or client to a running server
///
/// `export NAME=BACKING [group=PATH] [disk=NAME] [size=SIZE] [offset=SIZE] [ioprio=be/4] [read_only=true] [description=TEXT]`,
/// `group PATH [weight=N]`, `disk NAME [scheduler=S] [depth=N] …`, `listener ADDRESS [tls=off|on|require]`,
/// `client NAME [uid=N] [certificate=CN=NAME] [address=RANGE] … [exports=NAME,NAME] [group=PATH] [read_only=true] [control=see] …`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fairlift add export carol=carol.img group=/tenants/carol
  fairlift add group /tenants/dave weight=300
  fairlift add listener tcp:127.0.0.1:10809
  fairlift add client backup uid=1001 exports=alice,carol read_only=true")]
pub(crate) struct AddArgs {
    /// The kind of object
    #[arg(value_parser = kinds(KINDS.map(|(_, kind)| kind)))]
    pub(crate) kind: Kind,
    /// Its name; NAME=BACKING for an export
    pub(crate) name: String,
    /// A key and its value, as in group=/tenants/carol
    #[arg(value_name = "KEY=VALUE", add = ArgValueCandidates::new(complete::settings))]
    pub(crate) keys: Vec<String>,
    #[command(flatten)]
    pub(crate) how: How,
}

/// Remove an export, group, disk, listener or client from a running server
///
/// Clients of a removed export get the answers to their outstanding requests, then they are disconnected. So do connections that only a
/// removed client was allowed.
#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// The kind of object
    #[arg(value_parser = kinds(KINDS.map(|(_, kind)| kind)))]
    pub(crate) kind: Kind,
    /// Its name; the address of a listener
    #[arg(add = ArgValueCandidates::new(complete::names))]
    pub(crate) name: String,
    /// Disconnect the clients of an export at once
    #[arg(long)]
    pub(crate) now: bool,
    #[command(flatten)]
    pub(crate) how: How,
}

/// Fork an export of a running server: the new export begins with the present content of the first
///
/// After that, neither sees writes to the other. Clients of the first see a pause of some milliseconds. The fork
/// is durable when the command ends. The first must be an overlay (overlay:base=PATH,top=PATH), or a file on a file system with reflinks (XFS, btrfs).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fairlift fork alice bob
  fairlift fork alice bob --group /tenants/bob --top /srv/tops/bob.top
  fairlift fork alice bob ublk=true
  fairlift fork alice bob --ephemeral")]
pub(crate) struct ForkArgs {
    /// The export to fork
    #[arg(value_name = "EXPORT", add = ArgValueCandidates::new(|| complete::of(&[Kind::Export])))]
    pub(crate) of: String,
    /// The name of the new export
    #[arg(value_name = "NEW")]
    pub(crate) name: String,
    /// Another key of the new export and its value, as for `fairlift add export`
    #[arg(value_name = "KEY=VALUE")]
    pub(crate) keys: Vec<String>,
    /// The group of the new export [default: that of EXPORT]
    #[arg(long, value_name = "PATH", add = ArgValueCandidates::new(|| complete::of(&[Kind::Group])))]
    pub(crate) group: Option<String>,
    /// The file for the writes of the fork; of a file with reflinks, the whole copy [default: NEW with the ending of EXPORT's file, beside it]
    #[arg(long, value_name = "PATH", value_hint = clap::ValueHint::FilePath)]
    pub(crate) top: Option<PathBuf>,
    /// Keep the writes of the fork in a file without a name, in this directory, which disappears with the export or the server
    /// [default: the directory of EXPORT's top]. Once written, such a fork cannot be forked itself
    #[arg(
        long,
        value_name = "DIRECTORY",
        num_args = 0..=1,
        require_equals = true,
        conflicts_with = "top",
        value_hint = clap::ValueHint::DirPath
    )]
    pub(crate) ephemeral: Option<Option<PathBuf>>,
    #[command(flatten)]
    pub(crate) how: How,
}

/// The flags of a change.
#[derive(Debug, Clone, Args)]
pub(crate) struct How {
    /// Only check whether the change is possible
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Refuse the change if the server's config has another version, because it was changed since
    #[arg(long, value_name = "VERSION", value_parser = number)]
    pub(crate) if_version: Option<u64>,
    #[command(flatten)]
    pub(crate) at: At,
}

/// Show the last events, then new ones as they happen: clients, changes, findings of `auto`
#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    /// The number of past events to show first
    #[arg(long, value_name = "COUNT", value_parser = number, default_value = "10", conflicts_with = "after")]
    pub(crate) last: u64,
    /// Show events after this number
    #[arg(long, value_name = "NUMBER", value_parser = number)]
    pub(crate) after: Option<u64>,
    #[command(flatten)]
    pub(crate) at: At,
}

/// Start another server that takes over from the running one, without disconnecting clients
///
/// The new server starts with the arguments and the config file of the running one, and receives its open files, listeners and connections.
/// Clients see a pause of some milliseconds. If the takeover is refused or fails, the running server goes on. Where the kernel has no TLS (modprobe
/// tls), clients with TLS get their answers, are disconnected, and connect again. An upgrade is refused with writable exports of another NBD server
/// over TLS, and with block devices that do not outlive their server; --dry-run names each obstacle.
#[derive(Debug, Args)]
pub(crate) struct UpgradeArgs {
    /// The program of the new server [default: this one]
    #[arg(long, value_name = "PATH", value_hint = clap::ValueHint::FilePath)]
    pub(crate) program: Option<PathBuf>,
    /// Only check whether a new server could take over
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do nothing if the program has not been replaced since the running server started
    #[arg(long)]
    pub(crate) if_changed: bool,
    /// Time limit for the start of the new server
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = seconds)]
    pub(crate) within: f64,
    #[command(flatten)]
    pub(crate) at: At,
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::args::Cli;

    #[test]
    fn a_look_is_as_long_as_a_server_looks() {
        for command in ["status", "top", "why"] {
            let is_taken = |seconds: &str| Cli::try_parse_from(["fairlift", command, "--seconds", seconds]).is_ok();
            assert_eq!(["0.05", "60"].map(is_taken), [true; 2], "{command}");
            assert_eq!(["0.04", "61", "inf", "NaN"].map(is_taken), [false; 4], "{command}");
        }
    }
}
