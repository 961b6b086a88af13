//! Sockets of virtual machines: `--vhost-user`, and the key `vhost_user` of an export.

use std::path::{Path, PathBuf};

use clap::Args;
use fairlift::config::Ways;
use fairlift::export::vhost_user::GuestSocket;

use crate::config::row::Put::Text;
use crate::config::row::Row;

pub(super) const ROW: Row<Ways> = Row::<Ways>::new("vhost_user", Text(put))
    .takes("a path")
    .usual("`--vhost-user` DIR with the export's name, else none")
    .says("a socket at which a virtual machine finds the export as a vhost-user block device");

fn put(ways: &mut Ways, path: &str) -> Result<(), String> {
    ways.set(GuestSocket(path.into()));
    Ok(())
}

#[derive(Clone, Default, Debug, Args)]
#[group(skip)]
pub(super) struct Flag {
    /// A directory for sockets of virtual machines: each export becomes a vhost-user block device at DIR/NAME
    #[arg(long, value_name = "DIR")]
    vhost_user: Option<PathBuf>,
}

impl super::Flag for Flag {
    const IS_OF_ADDED: bool = true;

    fn put(&self, export: &str, to: &mut Ways) -> Result<(), String> {
        let socket = self.vhost_user.as_ref().map(|directory| socket_in(directory, export)).transpose()?;
        socket.into_iter().for_each(|path| to.set(GuestSocket(path)));
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
