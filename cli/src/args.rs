//! The command line; each command's own flags are in its folder.

pub(crate) mod refusal;

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use fairlift_core::sched;

use crate::config::EXAMPLE;
use crate::iostest::IostestArgs;
use crate::iostune::IostuneArgs;
use crate::overlay::OverlayArgs;
use crate::remote::{
    AddArgs, At, EventsArgs, ForkArgs, GetArgs, How, RemoveArgs, SetArgs, StatusArgs, TopArgs, TraceArgs, UpgradeArgs,
    WhyArgs,
};
use crate::serve::ServeArgs;
use crate::syntax::scheduler::schedulers;
use crate::ublk::UblkArgs;

const EXAMPLES: &str = "\
Examples:
  fairlift serve                                      a RAM disk, to try things out
  fairlift serve disk.img                             one image file
  fairlift serve a=a.img b=b.img --listen tcp:127.0.0.1:10809
                                                      two image files, over TCP
  fairlift serve --config fairlift.toml               the same from a file, and more
  fairlift config > fairlift.toml                     an example config
  fairlift tunables                                   the settings of each scheduler
  fairlift status                                     each tenant's share of each disk
  fairlift top                                        the same, live; keys sort and filter
  fairlift why                                        the cause of each tenant's waits
  fairlift set group /a weight=300                    three times b's share, at once
  fairlift add export carol=carol.img                 one more image, a tenant of its own
  fairlift iostest --device sim:sata-7200 -w bsr -G   how groups share a modelled disk
  fairlift iostune /dev/sdb --quick                   measure a disk, get settings for it

`fairlift serve` prints the URI of each export, for nbdinfo and other clients.
";

/// Serve block devices fairly: NBD exports, with the schedulers and weights of the Linux block layer
#[derive(Debug, Parser)]
#[command(name = "fairlift", version, after_help = EXAMPLES, max_term_width = 110)]
pub(crate) struct Cli {
    /// The command.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Serve(Box<ServeArgs>),
    Status(StatusArgs),
    Top(TopArgs),
    Why(WhyArgs),
    /// Show the other servers before the same pool, and each one's part of it
    ///
    /// For disks with `shares`. DUE is the share of the pool due to the groups with work at a gateway, DEPTH the number of requests that it may
    /// have outstanding for that, and AGE the number of periods since its last report.
    Gateways(At),
    Trace(TraceArgs),
    Get(GetArgs),
    Set(SetArgs),
    Add(AddArgs),
    Fork(ForkArgs),
    Remove(RemoveArgs),
    Events(EventsArgs),
    /// Acknowledge failed flushes, so that later flushes may succeed
    ///
    /// After a failed flush all flushes of that backing fail, because unflushed writes may be lost. Acknowledge it when you know which.
    Acknowledge(At),
    /// Re-read the config file and apply the differences
    Reload(How),
    Upgrade(UpgradeArgs),
    Ublk(UblkArgs),
    Overlay(OverlayArgs),
    /// Show an example config file that explains every key
    #[command(visible_alias = "config-help", after_long_help = EXAMPLE)]
    Config,
    /// Show the tunables of each scheduler, with defaults and ranges
    Tunables {
        /// Show only the tunables of this scheduler
        #[arg(value_parser = schedulers())]
        scheduler: Option<sched::Kind>,
    },
    Iostest(Box<IostestArgs>),
    Iostune(Box<IostuneArgs>),
    /// Make a token for a client of control, and the line for the config file that knows it
    ///
    /// The first line is the token: 256 random bits, which the client sends (Authorization: Bearer TOKEN). It is shown only once. The second
    /// line is its digest, which does not reveal the token. Put it into the client's table, [client.NAME], beside control = "see", "change" or
    /// "tenant"; `fairlift reload` applies it. Replace the line to revoke the token.
    Token,
    /// List the modelled disks (sim:MODEL), or the parameters of one
    Models {
        /// Show the parameters of this model, as in sim:MODEL,PARAMETER=VALUE
        model: Option<String>,
    },
    /// Show the version, and the commit that it is built from
    Version,
    /// Write a completion script for a shell to standard output
    Completions {
        /// The shell that reads the script
        shell: clap_complete::Shell,
    },
    /// Write the manual page to standard output, or one page for each command to a directory
    Man {
        /// The directory for fairlift.1, fairlift-serve.1 and so on
        directory: Option<PathBuf>,
    },
    /// Write the systemd unit of the service to standard output, or all units to a directory
    ///
    /// They start this program where it is, as the user fairlift: useradd --system --user-group fairlift. The service reads
    /// /etc/fairlift/fairlift.toml, fairlift@NAME.service reads /etc/fairlift/NAME.toml. fairlift-ublk.service is for block devices of this
    /// machine: as root, with /etc/fairlift/ublk.toml.
    Units {
        /// The directory for fairlift.service, fairlift@.service, fairlift-ublk.service and fairlift.socket, as in /etc/systemd/system
        directory: Option<PathBuf>,
    },
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
