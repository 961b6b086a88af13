//! The flags of `fairlift serve`.

use std::path::PathBuf;

use clap::Args;
use fairlift::config::{Engine, Tls};
use fairlift::confine::Capability;
use fairlift_core::ceiling::Rates;
use fairlift_core::{Duration, Weight, sched};

use super::log::Format;
use crate::config::given::{Amiss, Given};
use crate::control::ControlPlace;
use crate::control::place::parse_control;
use crate::syntax::backing::{Named, parse_one_of_several};
use crate::syntax::place::{self, ListenAt};
use crate::syntax::scheduler::{parse_setting, scheduler_help, schedulers};
use crate::syntax::units;
use crate::ways;

/// Serve files, block devices and RAM to NBD clients
///
/// Without a backing and a config file this serves a RAM disk of 1 GiB. Without --listen it listens at a unix socket:
/// $XDG_RUNTIME_DIR/fairlift.sock, /run/fairlift.sock for root, or fairlift-UID/fairlift.sock in the temporary
/// directory. Sockets from systemd (LISTEN_FDS) are served as well.
///
/// SIGHUP: read the config file again and apply the differences, all or none; the log lists the changes, or the reason why
/// there are none. SIGTERM, Ctrl-C: accept no new clients, finish the requests in flight, flush, exit 0. A second one: stop at once.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ServeArgs {
    /// The backing to serve: null:SIZE[,delay=TIME], mem:SIZE, file:PATH[,direct=auto|on|off][,in_use=allow][,format=raw][,shared], sim:PROFILE[,size=SIZE],
    /// nbd://HOST/EXPORT, nbd+unix:///EXPORT?socket=PATH, rbd:POOL/IMAGE, overlay:base=PATH,top=PATH, qcow2:PATH (read-only), fault:RULES,inner=BACKING, or a path
    ///
    /// Clients ask for NAME; without it, the export is named after the file or the model, "ram" or "null". A
    /// single export also answers to the empty name. Sizes count in powers of 1024: 512, 64k, 10g, 1t. A block device that
    /// is mounted, or held by another program, is refused unless `in_use=allow` follows it; a file that another export writes to
    /// unless `shared` does. A file that begins as a qcow2, VMDK, VHDX or LUKS image is refused unless `format=raw` follows it.
    #[arg(value_name = "NAME=BACKING", value_parser = parse_one_of_several)]
    pub(crate) exports: Vec<Named>,

    /// A config file with exports, disks, weights and settings (`fairlift config` prints an example); flags override it
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// An address for clients: unix:PATH or tcp:HOST:PORT; may be given several times. `,tls=off|on|require` overrides
    /// --tls for that address; `,mode=0660,group=NAME,owner=NAME` set the permissions of a unix socket
    #[arg(short, long, value_name = "ADDRESS", value_parser = place::parse_place)]
    pub(crate) listen: Vec<ListenAt>,

    /// The scheduler of every disk for which the config file names none
    #[arg(short, long, value_name = "S", value_parser = schedulers())]
    #[arg(help = scheduler_help("The scheduler of every disk for which the config file names none"))]
    pub(crate) scheduler: Option<sched::Kind>,

    /// Set a tunable of the scheduler, as in read_expire=20ms; `fairlift tunables` lists them
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_setting)]
    pub(crate) set: Vec<(String, String)>,

    /// Give an export a share of its disk, relative to the others: alice=300 has three times the share of bob=100. 1 to 1000; may
    /// be given several times [default: 100]
    ///
    /// Each export that names no group has one of its own, /NAME. Of another this sets the weight of its group; a NAME that
    /// starts with / is that of a group.
    #[arg(long, value_name = "NAME=N", value_parser = parse_weight)]
    pub(crate) weight: Vec<(String, Weight)>,

    /// Limit the rates of an export, a second: alice=riops=3000 or "alice=riops=3000 wbps=50m"; of rbps, wbps, riops, wiops, bps
    /// and iops; may be given several times [default: no limit]
    ///
    /// The limit is that of the export's group. A NAME that starts with / is that of a group.
    #[arg(long, value_name = "NAME=LIMITS", value_parser = parse_max)]
    pub(crate) max: Vec<(String, Rates)>,

    /// Limit on requests in flight on a disk [default: 128]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) depth: Option<u16>,

    /// The number of worker threads [default: one for each CPU, as far as memory allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) workers: Option<u16>,

    /// The kernel interface: io_uring, poll (epoll and threads), or auto: io_uring, or poll where it is refused [default: auto]
    #[arg(long, value_name = "auto|io_uring|poll", env = "FAIRLIFT_ENGINE", value_parser = place::parse_engine)]
    pub(crate) engine: Option<Engine>,

    /// Make all exports read-only
    #[arg(short, long)]
    pub(crate) read_only: bool,

    /// A directory that must contain all files, also those that are added later; may be given several times [default: anywhere]
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Vec<PathBuf>,

    /// Install a filter of system calls once the server has started; off is for debugging [default: on]
    #[arg(long, value_name = "on|off", value_parser = parse_switch)]
    pub(crate) seccomp: Option<bool>,

    /// A capability to keep once the server has started, such as CAP_DAC_OVERRIDE; may be given several times
    /// [default: all are dropped]
    ///
    /// Without CAP_DAC_OVERRIDE even root is subject to file permissions; this matters for exports added after the start.
    #[arg(long, value_name = "NAME")]
    pub(crate) keep_capability: Vec<Capability>,

    /// How clients reach each export beside listeners.
    #[command(flatten)]
    pub(crate) ways: ways::Flags,

    /// Encryption: off, on (if the client asks) or require [default: off]
    #[arg(long, value_name = "off|on|require", value_parser = place::parse_tls)]
    pub(crate) tls: Option<Tls>,

    /// A directory with server-cert.pem and server-key.pem, and ca-cert.pem (and ca-crl.pem) to verify clients
    #[arg(long, value_name = "DIR")]
    pub(crate) tls_certificates: Option<PathBuf>,

    /// Serve only clients with a certificate signed by ca-cert.pem
    #[arg(long)]
    pub(crate) tls_verify_peer: bool,

    /// Listen on addresses that other machines can reach, even without TLS
    #[arg(long)]
    pub(crate) insecure: bool,

    /// Limit on connections, all addresses together [default: 4096]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub(crate) max_connections: Option<u32>,

    /// Time limit for a step of a client's handshake; six times that for all of it [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = parse_timeout)]
    pub(crate) handshake_timeout: Option<Duration>,

    /// Address of the control API, for `status`, `set`, … and the web page: unix:PATH[,mode=0660][,owner=NAME][,group=NAME][,read_only],
    /// tcp:HOST:PORT,token=FILE, tcp:HOST:PORT,certificates=DIR or off; may be given several times [default: beside the
    /// first unix socket]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_control)]
    pub(crate) control: Vec<ControlPlace>,

    /// The format of the log. Under systemd it goes to the journal, with fields [default: auto]
    #[arg(long, value_name = "FORMAT", default_value = "auto", hide_default_value = true)]
    pub(crate) log: Format,

    /// Run a command in a shell once clients are served, end the server when the command ends, and exit with the command's code
    ///
    /// The server listens at a private unix socket unless --listen is given. The command finds it by these variables: uri (of the first
    /// export), unixsocket, nbd (as older programs write it), port, exportname, FAIRLIFT_CONTROL. Only warnings are logged.
    #[arg(long, value_name = "COMMAND")]
    pub(crate) run: Option<String>,

    /// Check flags and config, and exit
    #[arg(long)]
    pub(crate) check: bool,

    /// The control socket of a running server from which this one takes over, `PATH[,token=FILE]`: `fairlift upgrade` gives it.
    #[arg(long, value_name = "PATH", hide = true)]
    pub(crate) take_over: Option<PathBuf>,

    /// Only check whether it could take over.
    #[arg(long, hide = true, requires = "take_over")]
    pub(crate) take_over_look: bool,
}

fn parse_switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("takes on or off".into()),
    }
}

fn parse_max(text: &str) -> Result<(String, Rates), String> {
    let (name, rates) = text.split_once('=').ok_or("a limit has the form NAME=LIMITS, as in alice=riops=3000")?;
    let rates = Given::Word(rates.into()).rates().map_err(Amiss::into_text)?;
    Ok((name.to_owned(), rates))
}

fn parse_weight(text: &str) -> Result<(String, Weight), String> {
    let (name, weight) = text.rsplit_once('=').ok_or("a weight has the form NAME=N, as in alice=300")?;
    Ok((name.into(), weight.parse()?))
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    units::parse_time(text).and_then(units::some_time)
}
