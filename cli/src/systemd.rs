//! What systemd hands to a service and wants to hear from it. Without systemd, nothing happens here.

use std::io;
use std::os::fd::OwnedFd;

use listenfd::ListenFd;
use sd_notify::NotifyState;

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
    tell(&[NotifyState::Ready]);
}

/// The server no longer does.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(state: &[NotifyState<'_>]) {
    match sd_notify::notify(state) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => tracing::warn!("systemd was not told: {error}"),
        _ => {}
    }
}
