//! What can be said to `fairlift serve`.

use std::path::PathBuf;

use clap::Args;
use fairlift::config::Tls;
use fairlift_core::{Duration, sched};

use crate::words::backing::{Named, parse_named};
use crate::words::place::{self, ListenAt};
use crate::words::scheduler::{parse_setting, scheduler_help, schedulers};
use crate::words::units;

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
    #[arg(long, value_name = "off|on|require", value_parser = place::parse_tls)]
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

fn parse_timeout(text: &str) -> Result<Duration, String> {
    units::parse_time(text).and_then(units::some_time)
}
