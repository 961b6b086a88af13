//! `fairlift ublk`: the block devices of this machine that servers have, or had.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use fairlift::config::Address;
use fairlift::export::ublk::Ublk;
use fairlift::export::ublk::orphans::{self, Orphan};
use serde_json::json;

use crate::serve::{self, ServeArgs};
use crate::syntax::backing::{Named, parse_named};
use crate::syntax::place::{self, ListenAt};
use crate::syntax::units::show_size;
use crate::terminal::{columns, complaint, output};
use crate::ways::Flags;

/// List block devices (ublk), and take over or remove those whose server has died
///
/// A device whose server was killed keeps its requests until a server takes it over; the same `fairlift serve`, started again, does so by
/// itself. These commands are for devices that no server takes over.
#[derive(Debug, Args)]
pub(crate) struct UblkArgs {
    #[command(subcommand)]
    command: UblkCommand,
}

#[derive(Debug, Subcommand)]
enum UblkCommand {
    /// List the ublk devices of this machine, of any server
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Serve one device whose server has died, under any name, until Ctrl-C
    Recover {
        /// Its number: 3 is /dev/ublkb3
        id: u32,
        /// The backing with its data, as for `fairlift serve`
        #[arg(value_name = "NAME=BACKING", value_parser = parse_named)]
        export: Named,
        /// An address for NBD clients [default: a unix socket of its own, fairlift-ublkID.sock]
        #[arg(short, long, value_name = "ADDRESS", value_parser = place::parse_place)]
        listen: Option<ListenAt>,
    },
    /// Remove a device whose server has died; its waiting requests fail
    Remove {
        /// Its number: 3 is /dev/ublkb3
        id: u32,
        /// Remove it even if it is served or mounted
        #[arg(long)]
        force: bool,
    },
}

pub(crate) fn ublk(args: &UblkArgs) -> ExitCode {
    let done = match &args.command {
        UblkCommand::List { json } => orphans::list().map(|all| if *json { as_json(&all) } else { table(&all) }),
        UblkCommand::Recover { id, export, listen } => match recover(*id, export, listen.as_ref()) {
            Ok(flags) => return serve::serve(&flags),
            Err(why) => Err(why),
        },
        UblkCommand::Remove { id, force } => orphans::remove(*id, *force).map(|()| format!("removed /dev/ublkb{id}\n")),
    };
    complaint::done(done.and_then(|text| output::print(text.as_bytes()).map_err(|error| error.to_string())))
}

/// A server of that device alone.
fn recover(id: u32, export: &Named, listen: Option<&ListenAt>) -> Result<ServeArgs, String> {
    let own = || {
        let usual = place::default_socket()?;
        Ok::<_, String>(Address::Unix(usual.with_file_name(format!("fairlift-ublk{id}.sock"))).into())
    };
    Ok(ServeArgs {
        exports: vec![export.clone()],
        ways: Flags::of_block_device(Ublk { id: Some(id), adopt: true, ..Ublk::default() }),
        listen: vec![listen.cloned().map_or_else(own, Ok)?],
        ..ServeArgs::default()
    })
}

fn table(all: &[Orphan]) -> String {
    let columns: [columns::Column<Orphan>; 6] = [
        ("device", '<', |one| one.path.clone()),
        ("export", '<', |one| {
            one.name.clone().unwrap_or_else(|| if one.is_ours { "?" } else { "(not Fairlift's)" }.into())
        }),
        ("size", '<', |one| one.size.map_or_else(|| "?".into(), show_size)),
        ("queues", '<', |one| format!("{}x{}", one.queues.0, one.queues.1)),
        ("state", '<', |one| one.state.to_owned()),
        ("server", '<', |one| match (one.server, one.state) {
            (Some(pid), _) => format!("process {pid}"),
            (None, "quiesced") => "none: it waits for one".into(),
            (None, _) => "none".into(),
        }),
    ];
    let mut out = String::new();
    columns::table(&mut out, &columns, all);
    out
}

fn as_json(all: &[Orphan]) -> String {
    let one = |one: &Orphan| {
        json!({
            "id": one.id,
            "device": one.path,
            "export": one.name,
            "fairlift": one.is_ours,
            "state": one.state,
            "server": one.server,
            "size": one.size,
            "queues": one.queues.0,
            "depth": one.queues.1,
        })
    };
    format!("{:#}\n", all.iter().map(one).collect::<serde_json::Value>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_waits_is_told_from_one_that_is_served() {
        let one = Orphan {
            id: 0,
            path: "/dev/ublkb0".into(),
            name: Some("alice".into()),
            is_ours: true,
            state: "live",
            server: Some(7),
            size: Some(1 << 30),
            queues: (2, 128),
        };
        let waits =
            Orphan { id: 1, path: "/dev/ublkb1".into(), name: None, state: "quiesced", server: None, ..one.clone() };
        let shown = table(&[one.clone(), waits]);
        let lines: Vec<_> = shown.lines().collect();
        assert!(lines[1].starts_with("/dev/ublkb0  alice") && lines[1].ends_with("live      process 7"), "{shown}");
        assert!(lines[2].ends_with("quiesced  none: it waits for one"), "{shown}");
        let json: serde_json::Value = serde_json::from_str(&as_json(&[one])).unwrap();
        assert_eq!((json[0]["device"].as_str(), json[0]["server"].as_i64()), (Some("/dev/ublkb0"), Some(7)));
    }
}
