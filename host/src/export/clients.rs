//! All that serves clients of a server: a front that holds those of the protocols.
//!
//! Whose something is shows in its number: that of a request ([`service::is_ticket`]) and that of a completion
//! ([`service::is_event`]).

use fairlift_core::Instant;
use io_uring::cqueue;

use super::front::Front;
use super::nbd::front::Nbd;
use super::vhost_user::front::VhostUser;
use super::vhost_user::service;
use crate::disk::engine::{Engine, News};

/// The clients of a worker.
pub(crate) struct Clients {
    pub(crate) nbd: Nbd,
    pub(crate) vhost_user: VhostUser,
}

impl Front for Clients {
    const ASKS_BY_ITSELF: bool = false;

    type Done = ();

    fn completed(&mut self, engine: &mut Engine, now: Instant, what: u64, entry: &cqueue::Entry) {
        if service::is_event(what) {
            self.vhost_user.completed(engine, now, what, entry);
        } else {
            self.nbd.completed(engine, now, what, entry);
        }
    }

    fn woken(&mut self, engine: &mut Engine, now: Instant) {
        self.nbd.woken(engine, now);
        self.vhost_user.woken(engine, now);
    }

    fn look_at_clock(&mut self, engine: &mut Engine, now: Instant) {
        self.nbd.look_at_clock(engine, now);
        self.vhost_user.look_at_clock(engine, now);
    }

    #[inline(always)]
    fn news(&mut self, engine: &mut Engine, now: Instant, ticket: usize, news: News) {
        if service::is_ticket(engine.owner(ticket)) {
            self.vhost_user.news(engine, now, ticket, news);
        } else {
            self.nbd.news(engine, now, ticket, news);
        }
    }

    fn go_on(&mut self, engine: &mut Engine, now: Instant) -> bool {
        self.nbd.go_on(engine, now) | self.vhost_user.go_on(engine, now)
    }

    fn arm(&mut self, engine: &mut Engine, now: Instant) {
        self.nbd.arm(engine, now);
        self.vhost_user.arm(engine, now);
    }

    fn watch(&mut self, sleeps: bool) -> bool {
        self.vhost_user.watch(sleeps)
    }

    fn waits_for_memory(&self) -> bool {
        self.nbd.waits_for_memory() || self.vhost_user.waits_for_memory()
    }

    fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        [self.nbd.poll_timeout(now), self.vhost_user.poll_timeout(now)].into_iter().flatten().min()
    }

    fn gives_up_at(&self) -> Option<Instant> {
        [self.nbd.gives_up_at(), self.vhost_user.gives_up_at()].into_iter().flatten().max()
    }

    fn is_over(&self, engine: &Engine) -> bool {
        self.nbd.is_over(engine) && self.vhost_user.is_over(engine)
    }

    fn finish(&mut self) {}
}
