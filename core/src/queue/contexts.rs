//! The news that each context has to fetch, and the contexts to wake; and the line of those that wait for room.
//!
//! queue.20  Places in the table of requests go in turn. A context whose bio finds none stands in a line, and so do the ceilings if they
//!     let a bio through that finds none; for each in the line one place is kept from those behind it and from all others. It leaves the line
//!     with a place, or when it was told of room and does not ask. The problem: a worker whose requests have ended asks for as many more
//!     in the same turn. With enough of them it filled the table, and another worker, which is told of room and takes its turn later,
//!     never found any; nor did a bio whose ceiling lets it through, which goes in after the others of a turn.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{Finished, Settings};
use crate::group::ContextId;
use crate::sched::RequestId;

/// The waiting news of one context.
struct Inbox {
    /// Requests that hold a tag and wait to be fetched.
    granted: VecDeque<RequestId>,
    finished: VecDeque<Finished>,
}

/// Whose bio wants a place in the table of requests (queue.20).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Seeker {
    /// A context, with a bio that is submitted.
    Context(ContextId),
    /// Ceilings, with a bio that they let through.
    Ceilings,
}

/// One of those that wait for room.
#[derive(Clone, Copy)]
struct InLine {
    who: Seeker,
    /// The contexts to wake when there is some.
    wakes: u64,
    /// It was told of room since it last found none.
    is_told: bool,
}

pub(super) struct Contexts {
    inboxes: Box<[Inbox]>,
    /// One bit for each context that has something to fetch and did not ask for it.
    woken: u64,
    /// Who waits for room, each once, in the order in which they came.
    line: Vec<InLine>,
}

impl Contexts {
    pub(super) fn new(settings: &Settings) -> Self {
        let inbox = |_| Inbox {
            granted: VecDeque::with_capacity(usize::from(settings.depth)),
            finished: VecDeque::with_capacity(64),
        };
        let line = Vec::with_capacity(usize::from(settings.contexts) + 1);
        Self { inboxes: (0..settings.contexts).map(inbox).collect(), woken: 0, line }
    }

    /// Makes room for this many requests in flight (queue.14).
    pub(super) fn resize(&mut self, depth: u16) {
        for Inbox { granted, .. } in &mut self.inboxes {
            granted.reserve(usize::from(depth).saturating_sub(granted.len()));
        }
    }

    /// A request that has a tag is a context's to fetch (queue.4).
    #[inline(never)]
    pub(super) fn grant(&mut self, context: ContextId, id: RequestId) {
        self.inboxes[usize::from(context.0)].granted.push_back(id);
        self.woken |= 1 << context.0;
    }

    #[inline]
    pub(super) fn next_granted(&mut self, context: ContextId) -> Option<RequestId> {
        self.inboxes[usize::from(context.0)].granted.pop_front()
    }

    /// News of a bio of a context.
    #[inline]
    pub(super) fn tell(&mut self, context: ContextId, news: Finished) {
        self.inboxes[usize::from(context.0)].finished.push_back(news);
        self.woken |= 1 << context.0;
    }

    #[inline]
    pub(super) fn next_finished(&mut self, context: ContextId) -> Option<Finished> {
        self.inboxes[usize::from(context.0)].finished.pop_front()
    }

    /// One bit for each context that has something to fetch.
    pub(super) fn news(&self) -> u64 {
        let bit = |inbox: &Inbox| u64::from(!inbox.granted.is_empty() || !inbox.finished.is_empty());
        self.inboxes.iter().rev().fold(0, |bits, inbox| bits << 1 | bit(inbox))
    }

    // ---- the line (queue.20) ----

    #[inline]
    pub(super) const fn are_waiting_for_room(&self) -> bool {
        !self.line.is_empty()
    }

    /// How many places are kept for those before it.
    #[inline]
    pub(super) fn kept_from(&self, who: Seeker) -> usize {
        self.line.iter().take_while(|one| one.who != who).count()
    }

    /// It found no room.
    #[cold]
    pub(super) fn wait_for_room(&mut self, who: Seeker, wakes: u64) {
        let new = InLine { who, wakes, is_told: false };
        match self.line.iter_mut().find(|one| one.who == who) {
            Some(one) => *one = new,
            None => self.line.push(new),
        }
    }

    /// It found room, or seeks none any more; whether it was in the line.
    pub(super) fn leave_line(&mut self, who: Seeker) -> bool {
        self.line.extract_if(.., |one| one.who == who).count() > 0
    }

    /// A context has submitted all that it wants to: if it has heard of room since it last found none, it seeks none any more. Whether it
    /// was in the line and no longer is.
    pub(super) fn has_asked(&mut self, context: ContextId) -> bool {
        let has_heard = self.woken >> context.0 & 1 == 0;
        has_heard && self.line.extract_if(.., |one| one.who == Seeker::Context(context) && one.is_told).count() > 0
    }

    /// There is room for those that wait for it.
    #[inline]
    pub(super) fn feed(&mut self) {
        if !self.line.is_empty() {
            self.tell_line();
        }
    }

    #[cold]
    fn tell_line(&mut self) {
        for one in &mut self.line {
            one.is_told = true;
            self.woken |= one.wakes;
        }
    }

    /// These have something to fetch or to ask for.
    pub(super) const fn wake(&mut self, contexts: u64) {
        self.woken |= contexts;
    }

    pub(super) const fn next_woken(&mut self) -> Option<ContextId> {
        if self.woken == 0 {
            return None;
        }
        let context = self.woken.trailing_zeros() as u16;
        self.woken &= self.woken - 1;
        Some(ContextId(context))
    }
}
