//! What can be said on the command line.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use fairlift::config::Tls;
use fairlift_core::{Duration, sched};

use crate::config;
use crate::iostest::IostestArgs;
use crate::iostune::IostuneArgs;
use crate::words::backing::{Named, parse_named};
use crate::words::place::ListenAt;
use crate::words::{place, units};

/// The example config file, which explains itself.
pub(crate) const EXAMPLE: &str = include_str!("config/example.toml");

const EXAMPLES: &str = "\
Examples:
  fairlift serve                                      a RAM disk to play with
  fairlift serve disk.img                             one image file
  fairlift serve a=a.img b=b.img --listen tcp:127.0.0.1:10809
                                                      two, over TCP
  fairlift serve --config fairlift.toml               tenants with weights
  fairlift config > fairlift.toml                     a config to start from
  fairlift tunables                                   what --set can turn
  fairlift iostest --device sim:sata-7200 -w bsr -G   how groups share a modelled disk
  fairlift iostune /dev/sdb --quick                   what a disk is like, and what to set

Then, in another terminal:
  nbdinfo 'nbd+unix:///ram?socket=/run/fairlift.sock'
";

/// Serve block devices fairly: exports over NBD, with schedulers and weights as the Linux block layer has them
#[derive(Debug, Parser)]
#[command(name = "fairlift", version, after_help = EXAMPLES, max_term_width = 110)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Serve(ServeArgs),
    /// Show an example config file that explains every key
    #[command(visible_alias = "config-help", after_long_help = EXAMPLE)]
    Config,
    /// Show what can be turned on each scheduler, with defaults and ranges
    Tunables {
        /// Only this scheduler
        #[arg(value_parser = schedulers())]
        scheduler: Option<sched::Kind>,
    },
    Iostest(Box<IostestArgs>),
    Iostune(Box<IostuneArgs>),
    /// List the modelled disks (sim:MODEL), or the parameters of one
    Models {
        /// Only this model, with all that can be changed, as in sim:MODEL,PARAMETER=VALUE
        model: Option<String>,
    },
    /// Write a completion script for a shell to standard output
    Completions {
        /// For which shell
        shell: clap_complete::Shell,
    },
    /// Write the manual page to standard output, or one page for each command to a directory
    Man {
        /// Where to write fairlift.1, fairlift-serve.1 and so on
        directory: Option<PathBuf>,
    },
}

/// Serve files, block devices and RAM to NBD clients
///
/// Without a backing and a config file this serves a RAM disk of 1 GiB. Without --listen it listens at a unix socket:
/// $XDG_RUNTIME_DIR/fairlift.sock, /run/fairlift.sock for root, or fairlift-UID/fairlift.sock in the temporary
/// directory. Sockets from systemd (LISTEN_FDS) are served in any case.
///
/// Ctrl-C or SIGTERM: accept nobody new, finish what is under way, flush, exit 0. A second one: stop at once.
/// SIGUSR1: log what each group has had so far of each disk. SIGUSR2: after a flush failed, all later ones of that file
/// fail too; this says that the operator has taken note, and flushes succeed again.
#[derive(Debug, Default, Args)]
pub(crate) struct ServeArgs {
    /// What to serve: null:SIZE[,delay=TIME], mem:SIZE, file:PATH[,direct=auto|on|off], sim:PROFILE[,size=SIZE], or a path
    ///
    /// The name is what clients ask for; without one, the export is called after the file, the model, "ram" or "null". A
    /// single export also answers to the empty name. Sizes count in powers of 1024: 512, 64k, 10g, 1t.
    #[arg(value_name = "NAME=BACKING", value_parser = parse_named)]
    pub(crate) exports: Vec<Named>,

    /// Read exports, disks, weights and settings from a file; see `fairlift config`. Flags win
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Where clients connect, unix:PATH or tcp:HOST:PORT; may be given several times. With ,tls=off|on|require behind it,
    /// --tls does not count there
    #[arg(short, long, value_name = "ADDRESS", value_parser = place::parse_place)]
    pub(crate) listen: Vec<ListenAt>,

    /// Who goes next, on every disk for which the config file names no scheduler
    #[arg(short, long, value_name = "S", value_parser = schedulers())]
    #[arg(help = scheduler_help("Who goes next, on every disk for which the config file names no scheduler"))]
    pub(crate) scheduler: Option<sched::Kind>,

    /// Turn a knob of the scheduler, as in read_expire=20ms; see `fairlift tunables`
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_setting)]
    pub(crate) set: Vec<(String, String)>,

    /// Requests in flight on a disk [default: 128]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) depth: Option<u16>,

    /// Worker threads [default: one for each CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) workers: Option<u16>,

    /// Let clients only read, whatever the export
    #[arg(short, long)]
    pub(crate) read_only: bool,

    /// Whether traffic is encrypted: off, on (if the client asks) or require [default: off]
    #[arg(long, value_name = "off|on|require", value_parser = config::parse_tls)]
    pub(crate) tls: Option<Tls>,

    /// A directory with server-cert.pem and server-key.pem, and ca-cert.pem to verify clients
    #[arg(long, value_name = "DIR")]
    pub(crate) tls_certificates: Option<PathBuf>,

    /// Serve only clients with a certificate signed by ca-cert.pem
    #[arg(long)]
    pub(crate) tls_verify_peer: bool,

    /// Listen beyond the loopback though traffic may be in plain text
    #[arg(long)]
    pub(crate) insecure: bool,

    /// Connections at once, all listeners together [default: 4096]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub(crate) max_connections: Option<u32>,

    /// How long a client may take to negotiate [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = parse_timeout)]
    pub(crate) handshake_timeout: Option<Duration>,

    /// Only say whether flags and config are right
    #[arg(long)]
    pub(crate) check: bool,
}

/// With the scheduler that this build takes if none is named.
pub(crate) fn scheduler_help(says: &str) -> String {
    let [one, several, rotating] = [(1, false), (2, false), (2, true)]
        .map(|(n, rotates)| crate::serve::plan::scheduler_default(n, rotates).name());
    format!("{says} [default: {several} where groups share a disk, {rotating} if it rotates, else {one}]")
}

fn schedulers() -> impl TypedValueParser<Value = sched::Kind> {
    PossibleValuesParser::new(sched::Kind::ALL.map(sched::Kind::name)).try_map(|name| config::parse_scheduler(&name))
}

/// Reads `KEY=VALUE`.
pub(crate) fn parse_setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a setting is KEY=VALUE, as in read_expire=20ms")?;
    Ok((name.trim().into(), value.trim().into()))
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    units::parse_time(text).and_then(units::some_time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn serve_is_what_the_design_says() {
        let line =
            "fairlift serve a=mem:1g b=null:1g --listen unix:/a --listen tcp:127.0.0.1:1 --scheduler none --set k=v";
        let Command::Serve(args) = Cli::try_parse_from(line.split(' ')).unwrap().command else { panic!("serve") };
        let names: Vec<_> = args.exports.iter().map(|named| named.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(args.listen.len(), 2);
        assert_eq!(args.scheduler, Some(sched::Kind::None));
        assert_eq!(args.set, [("k".to_owned(), "v".to_owned())]);
    }
}
