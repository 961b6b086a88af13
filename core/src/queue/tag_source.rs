//! Where tags come from, and which request has which (queue.2).

use alloc::vec;
use alloc::vec::Vec;

use super::{NIL, Settings, SharedTags};
use crate::Tag;
use crate::sched::RequestId;
use crate::tags::Hint;

/// The tags of a queue: its own, or those that it takes from [shared ones](Settings::tags).
pub(super) struct TagSource {
    /// Where the next tag is looked for, where tags are shared.
    hint: Hint,
    /// Tags of its own that no request has, and the first that none ever had.
    spare: Vec<Tag>,
    fresh: u16,
    /// How many requests have one.
    pub(super) in_flight: u16,
    /// The last time a request could have gone, no tag was free.
    pub(super) lacks: bool,
    owners: Vec<RequestId>,
}

impl TagSource {
    pub(super) fn new(settings: &Settings) -> Self {
        let (tags, user) = match &settings.tags {
            Some(shared) => (shared.bitmap.capacity(), shared.user),
            None => (settings.depth.into(), 0),
        };
        Self {
            hint: Hint::of(user),
            spare: Vec::with_capacity(settings.depth.into()),
            fresh: 0,
            in_flight: 0,
            lacks: false,
            owners: vec![RequestId(NIL); tags],
        }
    }

    /// Sets the number of tags (queue.14).
    pub(super) fn resize(&mut self, settings: &Settings, depth: u16) {
        match &settings.tags {
            Some(shared) => assert!(usize::from(depth) <= shared.bitmap.capacity(), "more than there are shared tags"),
            None => {
                let tags = self.owners.len().max(depth.into());
                self.owners.resize(tags, RequestId(NIL));
                self.spare.reserve(tags - self.spare.len());
            }
        }
        self.lacks = false;
    }

    /// Whether a request waits, or a flush does: a context without one does not ask for a tag, and so lacks none.
    #[inline]
    pub(super) fn are_needed(&mut self, requests: usize, flush: bool) -> bool {
        let needed = requests > usize::from(self.in_flight) || flush;
        if !needed {
            self.lacks = false;
        }
        needed
    }

    /// A tag for the next request, or `None` while there is none (queue.2).
    #[inline]
    pub(super) fn next(&mut self, settings: &Settings) -> Option<Tag> {
        let tag = match &settings.tags {
            None if self.in_flight >= settings.depth => None,
            None => Some(self.spare.pop().unwrap_or_else(|| {
                self.fresh += 1;
                Tag(self.fresh - 1)
            })),
            Some(shared) if !shared.users.hold(shared.user, shared.bitmap.depth()) => None,
            Some(shared) => {
                let tag = shared.bitmap.get(&mut self.hint);
                if tag.is_none() {
                    shared.users.release(shared.user);
                }
                tag
            }
        };
        self.lacks = tag.is_none();
        tag
    }

    /// A tag is free again: it is kept for the next request, warm as it is, unless others could use it meanwhile.
    #[inline(always)]
    pub(super) fn put_back(&mut self, settings: &Settings, tag: Tag) {
        match &settings.tags {
            None => self.spare.push(tag),
            Some(shared) => shared.put_back(tag, &mut self.hint),
        }
        self.lacks = false;
    }

    /// A request has this tag from now on.
    #[inline(always)]
    pub(super) fn give(&mut self, tag: Tag, id: RequestId) {
        self.in_flight += 1;
        self.owners[usize::from(tag.0)] = id;
    }

    /// Its request has it no more, and is answered.
    ///
    /// # Panics
    /// If no request has it.
    #[inline(always)]
    pub(super) fn take_back(&mut self, settings: &Settings, tag: Tag) -> RequestId {
        let id = self.owner(tag);
        self.owners[usize::from(tag.0)] = RequestId(NIL);
        self.in_flight -= 1;
        self.put_back(settings, tag);
        id
    }

    /// The request that has it.
    ///
    /// # Panics
    /// If there is none.
    #[inline(always)]
    pub(super) fn owner(&self, tag: Tag) -> RequestId {
        let id = self.owners.get(usize::from(tag.0)).filter(|id| id.0 != NIL);
        *id.unwrap_or_else(|| panic!("tag {} is not in flight", tag.0))
    }

    pub(super) fn owners(&self) -> impl Iterator<Item = RequestId> {
        self.owners.iter().copied().filter(|id| id.0 != NIL)
    }
}

impl SharedTags {
    fn put_back(&self, tag: Tag, hint: &mut Hint) {
        self.bitmap.put_now(tag);
        self.users.release(self.user);
        hint.warm(tag);
    }
}
