//! A vring: what the front-end has said of a ring, whether or not it runs.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::super::ring::{Addresses, Ring};
use super::super::service::UserData;
use crate::disk::engine::Engine;

/// The front-end's settings of a ring, and the ring while it runs.
#[derive(Default)]
pub(super) struct Vring {
    pub(super) size: u16,
    pub(super) base: u16,
    pub(super) addresses: Option<Addresses>,
    pub(super) kick: Kick,
    pub(super) call: Option<OwnedFd>,
    pub(super) calls: u32,
    /// A call that is waited for.
    pub(super) calling: bool,
    pub(super) enabled: bool,
    pub(super) ring: Option<Ring>,
}

/// By what a guest says that there is something in a ring.
#[derive(Default)]
pub(super) struct Kick {
    /// To be polled.
    pub(super) wanted: Option<OwnedFd>,
    /// The kernel polls it, until it says that it does so no more.
    pub(super) polled: Option<OwnedFd>,
    /// The poll was taken back.
    pub(super) cancelled: bool,
    /// It was heard once: the first time may not have been the guest (ring.5).
    pub(super) heard: bool,
}

impl Kick {
    pub(super) fn set(&mut self, engine: &mut Engine, event: UserData, fd: Option<OwnedFd>) {
        self.wanted = fd;
        self.heard = false;
        if self.polled.is_some() && !std::mem::replace(&mut self.cancelled, true) {
            engine.ring.cancel(event.pack());
        }
    }

    /// The kernel says so of it; whether it is the guest that kicked.
    pub(super) const fn hear(&mut self, result: i32) -> bool {
        result >= 0 && !self.cancelled && std::mem::replace(&mut self.heard, true)
    }

    /// By what the guest kicks, if that is said.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.wanted.as_ref().or(self.polled.as_ref().filter(|_| !self.cancelled)).map(AsFd::as_fd)
    }

    pub(super) fn arm(&mut self, engine: &mut Engine, event: UserData) {
        if self.polled.is_none()
            && let Some(fd) = self.wanted.take()
        {
            engine.ring.poll(fd.as_fd(), libc::POLLIN, true, event.pack());
            self.polled = Some(fd);
            self.cancelled = false;
        }
    }

    pub(super) fn ended(&mut self) {
        let fd = self.polled.take();
        if !std::mem::take(&mut self.cancelled) {
            self.wanted = fd;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ring.5: what was polled before may be heard after the new one was said, as it is cancelled or earlier.
    #[test]
    fn the_first_kick_of_a_descriptor_is_not_taken_for_the_guests() {
        let mut kick = Kick { cancelled: true, ..Kick::default() };
        assert!(!kick.hear(1) && !kick.hear(-libc::ECANCELED));
        kick.ended();
        assert!(!kick.hear(1), "QEMU's own");
        assert!(kick.hear(1) && kick.hear(1));
    }
}
