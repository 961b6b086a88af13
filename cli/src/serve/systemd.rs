//! The exchange with systemd: its sockets for a service, and the service's messages. Without systemd, nothing happens here.

use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use listenfd::ListenFd;
use rustix::net::sockopt::socket_acceptconn;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::learned;

/// The number of the first descriptor that systemd passes.
const FIRST: usize = 3;

/// The descriptors that were passed in (`LISTEN_FDS`).
pub(crate) struct Passed {
    pub(crate) sockets: Vec<OwnedFd>,
    /// The file that a previous server had [stored](store) under [`learned::NAME`].
    pub(crate) learned: Option<File>,
}

pub(crate) fn passed() -> Result<Passed, String> {
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut passed = ListenFd::from_env();
    let named = |place: &usize| names.split(':').nth(*place) == Some(learned::NAME);
    // Opened once more by its number: the one that was passed stays open, unused.
    let file = (0..passed.len())
        .find(named)
        .and_then(|place| File::options().read(true).write(true).open(format!("/proc/self/fd/{}", place + FIRST)).ok());
    let sockets = (0..passed.len()).filter(|place| !named(place));
    let sockets: Result<_, String> = sockets.filter_map(|place| take(&mut passed, place).transpose()).collect();
    Ok(Passed { sockets: sockets?, learned: file })
}

fn take(passed: &mut ListenFd, place: usize) -> Result<Option<OwnedFd>, String> {
    let socket = match passed.take_unix_listener(place) {
        Ok(Some(socket)) => Ok(Some(OwnedFd::from(socket))),
        _ => passed.take_tcp_listener(place).map(|socket| socket.map(OwnedFd::from)),
    };
    let socket = socket.and_then(|socket| match socket.as_ref().map(socket_acceptconn) {
        Some(Ok(false)) => Err(io::Error::other("it is a connection, or nobody listens there (Accept=no of its unit)")),
        _ => Ok(socket),
    });
    socket
        .map_err(|error| format!("inherited file descriptor {}: not a listening stream socket: {error}", place + FIRST))
}

/// Has systemd keep a file for the next server; whether it was asked.
pub(super) fn store(name: &str, file: BorrowedFd<'_>) -> bool {
    let word = format!("FDSTORE=1\nFDNAME={name}");
    notify(|socket| {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        let passed = [file];
        beside.push(SendAncillaryMessage::ScmRights(&passed));
        Ok(sendmsg(socket, &[IoSlice::new(word.as_bytes())], &mut beside, SendFlags::NOSIGNAL).map(drop)?)
    })
    .is_some_and(|sent| sent.is_ok())
}

pub(crate) fn ready() {
    tell("READY=1");
}

/// The server reads its config file again; [`ready`] says that it has done so.
pub(crate) fn reloading() {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    tell(&format!("RELOADING=1\nMONOTONIC_USEC={}", now.tv_sec * 1_000_000 + now.tv_nsec / 1000));
}

/// Sends a word to `NOTIFY_SOCKET`: a path, or after `@` a name in the abstract namespace, which the crates for this do not
/// know.
pub(crate) fn tell(word: &str) {
    if let Some(Err(error)) = notify(|socket| socket.send(word.as_bytes()).map(drop)) {
        tracing::warn!("cannot tell systemd {word}: {error}");
    }
}

/// Has something sent to `NOTIFY_SOCKET`; `None`: there is none.
fn notify(send: impl FnOnce(&UnixDatagram) -> io::Result<()>) -> Option<io::Result<()>> {
    // Set and empty means as much as not set.
    let address = std::env::var_os("NOTIFY_SOCKET").filter(|address| !address.is_empty())?;
    let address = match address.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&address),
    };
    let sent = address.and_then(|address| {
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        send(&socket)
    });
    Some(sent)
}
