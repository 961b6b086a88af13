//! Workers that have one queue, or a queue each, as under `none`, and then share the flushes of each device.

use std::sync::{Arc, Mutex, PoisonError};

use super::Subject;
use fairlift_core::flush::{Flush, SharedFlush};
use fairlift_core::queue::{Backing, Segment, Settings};
use fairlift_core::sched::Kind;
use fairlift_core::{
    Bio, ContextId, Dispatch, Finished, GroupId, Instant, Outcome, Queue, Refused, Stream, StreamId, Tag, Weight,
};
use fairlift_lab::Random;

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

/// Tags of a queue, at most.
const TAGS: u16 = 1 << 12;

/// See the [module](self).
pub struct Workers {
    /// By context, or one for all.
    queues: Vec<Queue>,
    /// Which queue has a stream, and its name there.
    streams: Vec<(usize, StreamId)>,
    /// Whether a queue may get another scheduler, weight or depth.
    may_change: bool,
}

impl Workers {
    /// One queue of these settings for all contexts.
    #[must_use]
    pub fn together(settings: &Settings) -> Self {
        let mut queue = Queue::new(settings.clone());
        hold_never(&mut queue);
        Self { queues: vec![queue], streams: Vec::new(), may_change: true }
    }

    /// A queue of these settings for each context.
    #[must_use]
    pub fn apart(settings: &Settings) -> Self {
        assert!(settings.depth <= TAGS && settings.contexts < u16::MAX / TAGS, "each tag has a name of its own");
        let settings = with_shared_flushes(settings);
        let queues = (0..settings.contexts).map(|_| Queue::new(settings.clone())).collect();
        Self { queues, streams: Vec::new(), may_change: false }
    }

    /// Which queue a context has.
    fn number(&self, context: ContextId) -> usize {
        usize::from(context.0) % self.queues.len()
    }

    /// The queue that has a tag, and its name there.
    const fn place(tag: Tag) -> (usize, Tag) {
        ((tag.0 / TAGS) as usize, Tag(tag.0 % TAGS))
    }

    fn of(&mut self, context: ContextId) -> &mut Queue {
        let number = self.number(context);
        &mut self.queues[number]
    }
}

/// The disk is never held idle: that would look like one that nobody woke.
fn hold_never(queue: &mut Queue) {
    for name in ["slice_idle", "group_idle"] {
        if queue.tunable(name).is_some() {
            queue.set_tunable(name, "0").unwrap_or_else(|error| panic!("{error}"));
        }
    }
}

impl Subject for Workers {
    fn add_stream(&mut self, stream: Stream) -> StreamId {
        let id = self.of(stream.context).add_stream(stream);
        self.streams.push((self.number(stream.context), id));
        StreamId(self.streams.len() as u32 - 1)
    }

    fn submit(&mut self, now: Instant, bio: Bio) -> Result<(), Refused> {
        let (queue, stream) = self.streams[bio.stream.0 as usize];
        self.queues[queue].submit(now, Bio { stream, ..bio })
    }

    fn poll_dispatch(&mut self, now: Instant, context: ContextId) -> Option<Dispatch> {
        let number = self.number(context);
        let dispatch = self.queues[number].poll_dispatch(now, context)?;
        Some(Dispatch { tag: Tag(dispatch.tag.0 + number as u16 * TAGS), ..dispatch })
    }

    fn segments(&self, tag: Tag) -> Vec<Segment> {
        let (queue, tag) = Self::place(tag);
        self.queues[queue].segments(tag).collect()
    }

    fn handle_completion(&mut self, now: Instant, tag: Tag, outcome: Outcome) {
        let (queue, tag) = Self::place(tag);
        self.queues[queue].handle_completion(now, tag, outcome);
    }

    fn handle_busy(&mut self, now: Instant, tag: Tag) {
        let (queue, tag) = Self::place(tag);
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
        self.queues[self.number(context)].poll_timeout()
    }

    fn change(&mut self, now: Instant, random: &mut Random) {
        let [queue] = &mut self.queues[..] else { return };
        if !self.may_change {
            return;
        }
        match random.below(3) {
            0 => {
                queue.set_scheduler(now, Kind::ALL[random.below(Kind::ALL.len() as u64) as usize]);
                hold_never(queue);
            }
            1 => {
                let group = GroupId(random.below(queue.groups().iter().count() as u64) as u16);
                queue.set_weight(now, group, Weight::new(1 + random.below(1000) as u16));
            }
            _ => {
                let depth = 1 + random.below(16) as u16;
                queue.set_bounds(now, depth, u32::from(depth) + random.below(32) as u32);
            }
        }
    }
}
