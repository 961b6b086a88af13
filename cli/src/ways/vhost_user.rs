//! Sockets of virtual machines: `--vhost-user`, and the key `vhost_user` of an export.

use std::path::{Path, PathBuf};

use clap::Args;
use fairlift::config::{SocketMode, Ways};
use fairlift::export::vhost_user::GuestSocket;

use crate::config::row::Put::Text;
use crate::config::row::Row;
use crate::syntax::place;

pub(super) const ROW: Row<Ways> = Row::<Ways>::new("vhost_user", Text(put))
    .takes("`PATH[,mode=0660][,owner=NAME][,group=NAME]`")
        .fixed("`--vhost-user` DIR with the export's name, else none",
            "a socket at which a virtual machine finds the export as a vhost-user block device, and the users that may connect there; see `docs/vm.md`");

fn put(ways: &mut Ways, text: &str) -> Result<(), String> {
    ways.set(parse(text)?);
    Ok(())
}

/// Reads a path, and after it who may connect.
fn parse(text: &str) -> Result<GuestSocket, String> {
    let mut socket = SocketMode::default();
    let path = place::options(text, &place::MODE_OPTIONS, |name, value| place::take_mode(&mut socket, name, value))?;
    Ok(GuestSocket { path: path.into(), socket })
}

#[derive(Clone, Default, Debug, Args)]
#[group(skip)]
pub(super) struct Flag {
    /// A directory for sockets of virtual machines: each export becomes a vhost-user block device at DIR/NAME; `,mode=0660,group=NAME,owner=NAME`
    /// set its permissions
    #[arg(long, value_name = "DIR", value_parser = parse)]
    vhost_user: Option<GuestSocket>,
}

impl super::Flag for Flag {
    const IS_OF_ADDED: bool = true;

    fn put(&self, export: &str, to: &mut Ways) -> Result<(), String> {
        let Some(all) = &self.vhost_user else { return Ok(()) };
        to.set(GuestSocket { path: socket_in(&all.path, export)?, socket: all.socket });
        Ok(())
    }
}

/// The socket of an export in a directory of such sockets.
fn socket_in(directory: &Path, export: &str) -> Result<PathBuf, String> {
    if export.contains('/') || [".", "..", ""].contains(&export) {
        return Err(format!(
            "the socket of export {export:?} cannot have its name; set export.\"{export}\".vhost_user in the config file"
        ));
    }
    Ok(directory.join(export))
}

#[cfg(test)]
mod tests {
    use fairlift::config::WayIn as _;

    use super::*;

    #[test]
    fn a_path_may_have_commas_and_who_may_connect_behind_it() {
        let socket = parse("/run/a,b,mode=0660,group=0").unwrap();
        assert_eq!(socket.path, Path::new("/run/a,b"));
        assert_eq!(socket.socket, SocketMode { mode: 0o660, owner: None, group: Some(0) });
        assert_eq!(socket.written(), "/run/a,b,mode=0660,group=0");
        assert_eq!(parse(&socket.written()), Ok(socket));
        assert_eq!(parse("/run/a"), Ok(GuestSocket::from("/run/a")));
        for (text, why) in
            [("/a,mode=9", "octal"), ("/a,owner=nobody-of-that-name", "there is no"), ("/a,moed=0660", "\"mode\"?")]
        {
            assert!(parse(text).unwrap_err().contains(why), "{text}");
        }
    }
}
