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
//! protocols has a front that holds them.

use fairlift_core::Instant;

use crate::disk::engine::{Engine, News};
use crate::kernel::ring::Completion;

/// What serves clients.
pub(crate) trait Front {
    /// Whether it asks by itself, without the kernel in between: the clock is then read for each of its rounds, and not
    /// once in a turn.
    const ASKS_BY_ITSELF: bool;

    /// What it leaves behind.
    type Done;

    /// The kernel has done what the front asked it for as [`Source::Front`](crate::kernel::ring::Source::Front).
    fn completed(&mut self, engine: &mut Engine, now: Instant, what: u64, completion: &Completion);

    /// The worker was woken: another thread may have something for the front.
    fn woken(&mut self, engine: &mut Engine, now: Instant);

    /// It is `now`: the front ends what has taken too long.
    fn look_at_clock(&mut self, engine: &mut Engine, now: Instant);

    /// There is news of one of its requests. After [`News::Ended`] and [`News::Released`] it
    /// [releases](Engine::release) the ticket, when it needs the memory no more.
    fn news(&mut self, engine: &mut Engine, now: Instant, ticket: usize, news: News);

    /// Goes on with what was held back, and asks what it wants to ask; whether there was anything.
    fn go_on(&mut self, engine: &mut Engine, now: Instant) -> bool;

    /// Nobody has news for anybody: the front tells the kernel what to do for it next.
    fn arm(&mut self, engine: &mut Engine, now: Instant);

    /// Whether there is something to do that the kernel does not know of. If the worker `sleeps` after that, the front sees to it
    /// that the kernel hears of what comes.
    fn watch(&mut self, _sleeps: bool) -> bool {
        false
    }

    /// Whether it has requests that wait for memory of the pool.
    fn waits_for_memory(&self) -> bool;

    /// When to look at the clock though nothing completed.
    fn poll_timeout(&self, now: Instant) -> Option<Instant>;

    /// Once it is ending: when the worker goes, though the devices have requests of it.
    fn gives_up_at(&self) -> Option<Instant>;

    /// Whether it has ended, and has no requests any more.
    fn is_over(&self, engine: &Engine) -> bool;

    /// It is over, or given up.
    fn finish(&mut self) -> Self::Done;
}
