//! All that serves clients of a server: a front that holds those of the protocols.
//!
//! The protocol of a request shows in its number (`is_ticket` of each), and that of a completion too (`is_event`).

use std::sync::Arc;

use fairlift_core::Instant;

use super::front::Front;
use super::nbd::front::Nbd;
use super::nbd::service::Listeners;
use super::service::Service;
use super::ublk::front::Ublk;
use super::ublk::service::{self as blocks, Ublks};
use super::vhost_user::front::VhostUser;
use super::vhost_user::service::{self as machines, Doors};
use crate::disk::engine::{Engine, News};
use crate::kernel::ring::Completion;

/// What is served, and what all workers have of each protocol.
pub(crate) struct Served {
    pub(crate) service: Arc<Service>,
    pub(crate) nbd: Arc<Listeners>,
    pub(crate) vhost_user: Arc<Doors>,
    pub(crate) ublk: Arc<Ublks>,
}

/// The clients of a worker.
pub(crate) struct Clients {
    nbd: Nbd,
    vhost_user: VhostUser,
    ublk: Ublk,
}

impl Clients {
    /// None yet.
    ///
    /// # Errors
    /// The kernel does not take the memory that sockets receive into.
    pub(crate) fn new(engine: &mut Engine, served: &Served) -> std::io::Result<Self> {
        let service = || Arc::clone(&served.service);
        Ok(Self {
            nbd: Nbd::new(engine, service(), Arc::clone(&served.nbd))?,
            vhost_user: VhostUser::new(engine, service(), Arc::clone(&served.vhost_user)),
            ublk: Ublk::new(service(), Arc::clone(&served.ublk)),
        })
    }
}

impl Front for Clients {
    const ASKS_BY_ITSELF: bool = false;

    type Done = ();

    fn completed(&mut self, engine: &mut Engine, now: Instant, what: u64, completion: &Completion) {
        if machines::is_event(what) {
            self.vhost_user.completed(engine, now, what, completion);
        } else if blocks::is_event(what) {
            self.ublk.completed(engine, now, what, completion);
        } else {
            self.nbd.completed(engine, now, what, completion);
        }
    }

    fn woken(&mut self, engine: &mut Engine, now: Instant) {
        self.nbd.woken(engine, now);
        self.vhost_user.woken(engine, now);
        self.ublk.woken(engine, now);
    }

    fn look_at_clock(&mut self, engine: &mut Engine, now: Instant) {
        self.nbd.look_at_clock(engine, now);
        self.vhost_user.look_at_clock(engine, now);
        self.ublk.look_at_clock(engine, now);
    }

    #[inline(always)]
    fn news(&mut self, engine: &mut Engine, now: Instant, ticket: usize, news: News) {
        let owner = engine.owner(ticket);
        if machines::is_ticket(owner) {
            self.vhost_user.news(engine, now, ticket, news);
        } else if blocks::is_ticket(owner) {
            self.ublk.news(engine, now, ticket, news);
        } else {
            self.nbd.news(engine, now, ticket, news);
        }
    }

    fn go_on(&mut self, engine: &mut Engine, now: Instant) -> bool {
        self.nbd.go_on(engine, now) | self.vhost_user.go_on(engine, now) | self.ublk.go_on(engine, now)
    }

    fn arm(&mut self, engine: &mut Engine, now: Instant) {
        self.nbd.arm(engine, now);
        self.vhost_user.arm(engine, now);
        self.ublk.arm(engine, now);
        if self.waits_for_memory() {
            self.ublk.make_room(engine);
        }
    }

    fn watch(&mut self, sleeps: bool) -> bool {
        self.vhost_user.watch(sleeps)
    }

    fn waits_for_memory(&self) -> bool {
        self.nbd.waits_for_memory() || self.vhost_user.waits_for_memory() || self.ublk.waits_for_memory()
    }

    fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        [self.nbd.poll_timeout(now), self.vhost_user.poll_timeout(now)].into_iter().flatten().min()
    }

    fn gives_up_at(&self) -> Option<Instant> {
        [self.nbd.gives_up_at(), self.vhost_user.gives_up_at(), self.ublk.gives_up_at()].into_iter().flatten().max()
    }

    fn is_over(&self, engine: &Engine) -> bool {
        self.nbd.is_over(engine) && self.vhost_user.is_over(engine) && self.ublk.is_over(engine)
    }

    fn finish(&mut self) {}
}
