//! Front: what serves clients, as the loop of a worker sees it.
//!
//! A front has requests of its own kind: commands of NBD connections, asks of programs. The engine below knows nothing of
//! them: it is given a ticket (the front's number for the request, and its memory) and a bio, and tells the front by that
//! ticket how it ended. So what belongs to a protocol (cookies, connections that wait for memory, when a client is given up) is in
//! its front, and another protocol is another front on the same loop.
//!
//! The loop ([`Worker`](crate::worker::Worker)) calls a front in this order, each turn:
//!
//! ```text
//! completed*  woken?  look_at_clock  ( news*  go_on )* until neither has anything  arm  poll_timeout  watch*
//! ```
//!
//! There is one type of front for each loop, so that no call of a request goes through a table: a server with several
//! protocols has a front that holds them, made from the registry in [`clients`](super::clients).
//!
//! A [`Protocol`] is a server's part of one way to reach its exports: its life beside the fronts of its workers. An export is checked or
//! prepared, then opened; it is followed where it changes; it is left. Workers' fronts are told the same, each in its own thread
//! ([`Clients`]).

use std::io;
use std::sync::Arc;

use fairlift_core::Instant;

use super::hold::HeldClient;
use super::service::{Exports, Service};
use super::{DeviceView, Export};
use crate::disk::engine::{Engine, News};
use crate::kernel::ring::{Choice, Completion};
use crate::{Error, config};

/// Servers of clients.
pub(crate) trait Front {
    /// Whether it asks by itself, without the kernel in between: the clock is then read for each of its rounds, and not
    /// once in a turn.
    const ASKS_BY_ITSELF: bool = false;

    /// The kernel has done what the front asked it for as [`Source::Front`](crate::kernel::ring::Source::Front).
    fn completed(&mut self, _engine: &mut Engine, what: u64, _completion: &Completion) {
        unreachable!("it asks the kernel for nothing: {what}")
    }

    /// The worker was woken: another thread may have something for the front.
    fn woken(&mut self, _engine: &mut Engine) {}

    /// It is [`Engine::now`]: the front ends what has taken too long.
    fn look_at_clock(&mut self, _engine: &mut Engine) {}

    /// There is news of one of its requests. After [`News::Ended`] and [`News::Released`] it
    /// [releases](Engine::release) the ticket, when it needs the memory no more.
    fn news(&mut self, engine: &mut Engine, ticket: usize, news: News);

    /// Goes on with held requests, and asks for more; whether there was anything.
    fn go_on(&mut self, engine: &mut Engine) -> bool;

    /// Nobody has news for anybody: the front tells the kernel what to do for it next.
    fn arm(&mut self, _engine: &mut Engine) {}

    /// Whether there is something to do that the kernel does not know of. If the worker `sleeps` after that, the front sees to it that
    /// events wake the worker.
    fn watch(&mut self, _sleeps: bool) -> bool {
        false
    }

    /// Whether it has requests that wait for memory of the pool.
    fn waits_for_memory(&self) -> bool {
        false
    }

    /// Others wait for memory: what could be given back is given back at once.
    fn make_room(&mut self, _engine: &mut Engine) {}

    /// When to look at the clock though nothing completed.
    fn poll_timeout(&self, _engine: &Engine, _now: Instant) -> Option<Instant> {
        None
    }

    /// Once it is ending: when the worker goes, though the devices have requests of it.
    fn gives_up_at(&self, _engine: &Engine) -> Option<Instant> {
        None
    }

    /// Whether it has ended, and has no requests any more.
    fn is_over(&self, engine: &Engine) -> bool;
}

/// A front of clients that come and go with exports.
pub(crate) trait Clients: Front {
    /// Exports or listeners have come, changed or gone.
    fn follow(&mut self, engine: &mut Engine, exports: &Exports);

    /// The server ends: nobody is let in any more, and requests of clients are answered.
    fn drain(&mut self, engine: &mut Engine);

    /// Another server is to take the clients over: nothing is taken from them any more ([`hold`](super::hold)).
    ///
    /// A protocol whose clients cannot be handed over says so before ([`WayIn::stays`](config::WayIn::stays)), and is not asked.
    fn hold(&mut self, _engine: &mut Engine) {}

    /// The state of each client, once all stand still, or why one cannot be handed over; `None`: not yet.
    fn held(&mut self, _engine: &mut Engine) -> Option<Result<Vec<HeldClient>, String>> {
        Some(Ok(Vec::new()))
    }

    /// All clients of the worker stand still, and were told of: memory that has nothing of theirs goes back (hold.5).
    fn give_memory_back(&mut self) {}

    /// The clients stay, or are those that another server has handed over: they are served from now on.
    fn serve_on(&mut self, _engine: &mut Engine) {}
}

/// Opens what was prepared for an export: it cannot fail.
pub(crate) type Opening = Box<dyn FnOnce(&Arc<Export>)>;

/// Sends a client that was handed over to its worker: it cannot fail.
pub(crate) type Coming = Box<dyn FnOnce()>;

/// A way to reach exports: what all workers of a server have of it.
pub(crate) trait Protocol: Sized {
    /// The number in its requests and completions: below 16, and no other protocol's.
    const NUMBER: u64;

    /// Its clients at a worker.
    type Clients: Clients;

    fn new(service: &Arc<Service>) -> Self;

    /// A worker's side of it, for the calling thread.
    fn clients(self: &Arc<Self>, engine: &mut Engine) -> io::Result<Self::Clients>;

    /// Whether these exports could be opened, as far as that can be told at once; nothing is left behind.
    fn check(_exports: &[config::Export], _engine: &Choice) -> Vec<Error> {
        Vec::new()
    }

    /// The obstacle to a new export until a removed one has gone.
    fn is_in_the_way(&self, _said: &config::Export) -> Option<String> {
        None
    }

    /// Does all that can fail so that clients reach an export; `None`: there is nothing to open.
    fn prepare(
        self: &Arc<Self>,
        _said: &config::Export,
        _export: &Export,
        _engine: &Choice,
    ) -> Result<Option<Opening>, Error> {
        Ok(None)
    }

    /// The server runs.
    fn start(self: &Arc<Self>) {}

    /// Waits until all that was opened by then is there.
    fn settle(&self) {}

    /// Waits until an export that was added is there, or says why it will not be.
    fn wait(&self, _export: u64) -> Result<(), String> {
        Ok(())
    }

    /// Exports have changed.
    fn follow(self: &Arc<Self>, _exports: &[Arc<Export>]) {}

    /// The user who would lose something if an export were removed.
    fn holder(&self, _export: u64) -> Option<String> {
        None
    }

    /// An export is removed: no client finds it any more.
    fn leave(self: &Arc<Self>, _export: u64) {}

    /// Each thing of it that another server could not take over now, a line each; beside the answers of [`WayIn::stays`](config::WayIn::stays).
    fn stays(&self) -> Vec<String> {
        Vec::new()
    }

    /// Takes a client over that another server has handed over.
    fn take_over(self: &Arc<Self>, _client: HeldClient) -> Result<Coming, String> {
        Err("clients of this protocol cannot be taken over".into())
    }

    /// Whether something that was removed has not quite gone.
    fn is_leaving(&self) -> bool {
        false
    }

    /// The block devices of this machine that exports are by it.
    fn devices(&self) -> Vec<DeviceView> {
        Vec::new()
    }

    /// Why the server has to end, if it has.
    fn take_failure(&self) -> Option<Error> {
        None
    }
}

/// Where the number of a protocol is in the name of a request.
pub(crate) const OF_TICKET: u32 = 60;

/// Where it is in that of a completion.
pub(crate) const OF_EVENT: u32 = 52;
