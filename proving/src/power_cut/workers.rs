//! Workers that have a queue each, as under `none`, and share the flushes of each device.

use std::sync::{Arc, Mutex, PoisonError};

use super::Subject;
use fairlift_core::flush::{Flush, SharedFlush};
use fairlift_core::queue::{Backing, Segment, Settings};
use fairlift_core::{Bio, ContextId, Dispatch, Finished, Instant, Outcome, Queue, Refused, Stream, StreamId, Tag};

#[derive(Debug)]
struct LockedFlush(Mutex<Flush>);

impl SharedFlush for LockedFlush {
    fn with(&self, act: &mut dyn FnMut(&mut Flush)) {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// The same, for queues that share the flushes of each backing.
#[must_use]
pub fn with_shared_flushes(settings: &Settings) -> Settings {
    let share = |backing: &Backing| {
        let flush = Flush::new(settings.flush.clone(), backing.volatile_cache);
        let flush: Arc<dyn SharedFlush> = Arc::new(LockedFlush(Mutex::new(flush)));
        Backing { flush: Some(flush), ..backing.clone() }
    };
    Settings { backings: settings.backings.iter().map(share).collect(), ..settings.clone() }
}

/// See the [module](self).
pub struct Workers {
    /// By context.
    queues: Vec<Queue>,
    /// Which queue has a stream, and its name there.
    streams: Vec<(usize, StreamId)>,
    depth: u16,
}

impl Workers {
    /// A queue of these settings for each context.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let settings = with_shared_flushes(settings);
        let queues = (0..settings.contexts).map(|_| Queue::new(settings.clone())).collect();
        Self { queues, streams: Vec::new(), depth: settings.depth }
    }

    /// The queue that has a tag, and its name there.
    const fn place(&self, tag: Tag) -> (usize, Tag) {
        ((tag.0 / self.depth) as usize, Tag(tag.0 % self.depth))
    }

    fn of(&mut self, context: ContextId) -> &mut Queue {
        &mut self.queues[usize::from(context.0)]
    }
}

impl Subject for Workers {
    fn add_stream(&mut self, stream: Stream) -> StreamId {
        let id = self.of(stream.context).add_stream(stream);
        self.streams.push((stream.context.0.into(), id));
        StreamId(self.streams.len() as u32 - 1)
    }

    fn submit(&mut self, now: Instant, bio: Bio) -> Result<(), Refused> {
        let (queue, stream) = self.streams[bio.stream.0 as usize];
        self.queues[queue].submit(now, Bio { stream, ..bio })
    }

    fn poll_dispatch(&mut self, now: Instant, context: ContextId) -> Option<Dispatch> {
        let dispatch = self.of(context).poll_dispatch(now, context)?;
        Some(Dispatch { tag: Tag(dispatch.tag.0 + context.0 * self.depth), ..dispatch })
    }

    fn segments(&self, tag: Tag) -> Vec<Segment> {
        let (queue, tag) = self.place(tag);
        self.queues[queue].segments(tag).collect()
    }

    fn handle_completion(&mut self, now: Instant, tag: Tag, outcome: Outcome) {
        let (queue, tag) = self.place(tag);
        self.queues[queue].handle_completion(now, tag, outcome);
    }

    fn handle_busy(&mut self, now: Instant, tag: Tag) {
        let (queue, tag) = self.place(tag);
        self.queues[queue].handle_busy(now, tag);
    }

    fn handle_timeout(&mut self, now: Instant, context: ContextId) {
        self.of(context).handle_timeout(now);
    }

    fn poll_finished(&mut self, context: ContextId) -> Option<Finished> {
        self.of(context).poll_finished(context)
    }

    fn poll_wake(&mut self, context: ContextId) -> Option<ContextId> {
        self.of(context).poll_wake()
    }

    fn poll_timeout(&self, context: ContextId) -> Option<Instant> {
        self.queues[usize::from(context.0)].poll_timeout()
    }
}
