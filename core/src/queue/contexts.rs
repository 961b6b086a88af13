//! The news that each context has to fetch, and the contexts to wake.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use super::{Finished, Settings};
use crate::group::ContextId;
use crate::sched::RequestId;

/// The waiting news of one context.
struct Inbox {
    /// Requests that hold a tag and wait to be fetched.
    granted: VecDeque<RequestId>,
    finished: VecDeque<Finished>,
}

pub(super) struct Contexts {
    inboxes: Box<[Inbox]>,
    /// One bit for each context that has something to fetch and did not ask for it.
    woken: u64,
    /// One bit for each context that was told [`Refused::Full`](super::Refused::Full) and waits for room.
    starved: u64,
}

impl Contexts {
    pub(super) fn new(settings: &Settings) -> Self {
        let inbox = |_| Inbox {
            granted: VecDeque::with_capacity(usize::from(settings.depth)),
            finished: VecDeque::with_capacity(64),
        };
        Self { inboxes: (0..settings.contexts).map(inbox).collect(), woken: 0, starved: 0 }
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

    /// These wait for room.
    pub(super) const fn starve(&mut self, contexts: u64) {
        self.starved |= contexts;
    }

    /// There is room for those that wait for it.
    #[inline]
    pub(super) fn feed(&mut self) {
        if self.starved != 0 {
            self.woken |= core::mem::replace(&mut self.starved, 0);
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
