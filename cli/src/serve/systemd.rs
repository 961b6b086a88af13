//! What systemd hands to a service and wants to hear from it. Without systemd, nothing happens here.

use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use listenfd::ListenFd;

/// The listening sockets that were passed in (`LISTEN_FDS`).
///
/// # Errors
/// One of them is not a listening stream socket.
pub(crate) fn inherited() -> Result<Vec<OwnedFd>, String> {
    let mut passed = ListenFd::from_env();
    (0..passed.len()).filter_map(|place| take(&mut passed, place).transpose()).collect()
}

fn take(passed: &mut ListenFd, place: usize) -> Result<Option<OwnedFd>, String> {
    let unix = passed.take_unix_listener(place);
    if let Ok(Some(socket)) = unix {
        return Ok(Some(socket.into()));
    }
    match passed.take_tcp_listener(place) {
        Ok(socket) => Ok(socket.map(OwnedFd::from)),
        Err(error) => Err(format!("inherited file descriptor {}: not a listening stream socket: {error}", place + 3)),
    }
}

/// The server accepts clients.
pub(crate) fn ready() {
    tell("READY=1");
}

/// The server reads its config file again; [`ready`] says that it has done so.
pub(crate) fn reloading() {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    tell(&format!("RELOADING=1\nMONOTONIC_USEC={}", now.tv_sec * 1_000_000 + now.tv_nsec / 1000));
}

/// The server no longer does.
pub(crate) fn stopping() {
    tell("STOPPING=1");
}

/// Sends a word to `NOTIFY_SOCKET`: a path, or after `@` a name in the abstract namespace, which the crates for this do not
/// know.
pub(crate) fn tell(word: &str) {
    // Set and empty means as much as not set.
    let Some(address) = std::env::var_os("NOTIFY_SOCKET").filter(|address| !address.is_empty()) else { return };
    let address = match address.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&address),
    };
    let send = |address: SocketAddr| UnixDatagram::unbound()?.send_to_addr(word.as_bytes(), &address);
    if let Err(error) = address.and_then(send) {
        tracing::warn!("cannot tell systemd {word}: {error}");
    }
}
