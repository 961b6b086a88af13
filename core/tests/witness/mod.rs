//! A scheduler that lets another decide, and holds the queue to what [`Scheduler`] says a scheduler is told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use fairlift_core::sched::traits::*;
use fairlift_core::sched::{Kind, Next, RequestId, Served, Setup, Side, Waiting};
use fairlift_core::{Duration, Group, GroupId, Instant, Priority, Stream, StreamId};

/// What was told that a test may want to know, one line each.
pub(crate) type EventLog = Arc<Mutex<Vec<String>>>;

/// Lets a scheduler of `kind` decide.
pub(crate) struct Witness {
    inner: Box<dyn Scheduler>,
    groups: BTreeMap<GroupId, Group>,
    streams: BTreeMap<StreamId, Stream>,
    waiting: BTreeMap<RequestId, Waiting>,
    out: BTreeMap<RequestId, Waiting>,
    log: EventLog,
}

impl Witness {
    pub(crate) fn new(kind: Kind, setup: &Setup<'_>, log: &EventLog) -> Self {
        let groups = setup.groups.iter().enumerate().map(|(id, group)| (GroupId(id as u16), group.clone()));
        Self {
            inner: kind.build(setup),
            groups: groups.collect(),
            streams: BTreeMap::new(),
            waiting: BTreeMap::new(),
            out: BTreeMap::new(),
            log: Arc::clone(log),
        }
    }

    fn note(&self, line: String) {
        self.log.lock().unwrap().push(line);
    }

    fn is_its_streams(&self, request: &Waiting) {
        let stream = self.streams.get(&request.stream).unwrap_or_else(|| panic!("{:?} is not known", request.stream));
        assert_eq!(member(request), (stream.group, stream.priority), "a request that waits is its stream's (Q8)");
    }

    fn is_unused(&self, what: &str, mine: impl Fn(&Waiting) -> bool) {
        assert!(!self.waiting.values().any(&mine), "{what} goes, and something of it waits");
        assert!(!self.out.values().any(&mine), "{what} goes, and something of it is in flight");
    }
}

fn member(request: &Waiting) -> (GroupId, Priority) {
    (request.group, request.priority)
}

impl Scheduler for Witness {
    fn insert(&mut self, now: Instant, request: &Waiting) {
        self.is_its_streams(request);
        assert!(!self.out.contains_key(&request.id), "{:?} is in flight", request.id);
        assert_eq!(self.waiting.insert(request.id, *request), None, "{:?} waits already", request.id);
        self.inner.insert(now, request);
    }

    fn dispatch(&mut self, now: Instant) -> Next {
        let next = self.inner.dispatch(now);
        if let Next::Request(id) = next {
            let request = self.waiting.remove(&id).unwrap_or_else(|| panic!("{id:?} does not wait"));
            self.out.insert(id, request);
        }
        next
    }

    fn requeue(&mut self, now: Instant, request: &Waiting) {
        self.is_its_streams(request);
        assert_eq!(self.out.remove(&request.id), Some(*request), "it comes back as it went");
        self.waiting.insert(request.id, *request);
        self.inner.requeue(now, request);
    }

    fn drain(&mut self, now: Instant) -> Option<RequestId> {
        let id = self.inner.drain(now)?;
        assert!(self.waiting.remove(&id).is_some(), "{id:?} does not wait");
        Some(id)
    }

    fn len(&self) -> usize {
        assert_eq!(self.inner.len(), self.waiting.len(), "how many wait");
        self.waiting.len()
    }

    fn completed(&mut self, now: Instant, served: &Served) {
        assert_eq!(self.out.remove(&served.request.id), Some(served.request), "it ends as it went (Q9, Q12)");
        let Waiting { stream, group, .. } = served.request;
        let how = if served.ok() { "done" } else { "failed" };
        self.note(format!("request of stream {} in group {} {how}", stream.0, group.0));
        self.inner.completed(now, served);
    }

    fn resize(&mut self, capacity: usize, depth: u16) {
        self.inner.resize(capacity, depth);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.inner.next_timeout()
    }
}

impl Membership for Witness {
    fn add_stream(&mut self, id: StreamId, stream: &Stream) {
        assert!(self.groups.contains_key(&stream.group), "{:?} is not known", stream.group);
        assert_eq!(self.streams.insert(id, *stream), None, "{id:?} is there already");
        self.inner.add_stream(id, stream);
    }

    fn remove_stream(&mut self, id: StreamId) {
        assert!(self.streams.remove(&id).is_some(), "{id:?} is not known");
        self.is_unused("a stream", |request| request.stream == id);
        self.inner.remove_stream(id);
    }

    fn change_stream(&mut self, now: Instant, id: StreamId, stream: &Stream) {
        assert!(self.groups.contains_key(&stream.group), "{:?} is not known", stream.group);
        let before = self.streams.insert(id, *stream).unwrap_or_else(|| panic!("{id:?} is not known"));
        assert_eq!(before.context, stream.context);
        assert_ne!(before, *stream, "nothing has changed");
        for request in self.waiting.values_mut().filter(|request| request.stream == id) {
            (request.group, request.priority) = (stream.group, stream.priority);
        }
        self.note(format!("stream {} in group {}", id.0, stream.group.0));
        self.inner.change_stream(now, id, stream);
    }

    fn set_group(&mut self, now: Instant, id: GroupId, group: &Group) {
        assert!(
            group.parent.is_none_or(|parent| self.groups.contains_key(&parent)),
            "{}: its parent is there",
            group.path
        );
        if let Some(before) = self.groups.insert(id, group.clone()) {
            assert_eq!(before.parent, group.parent, "a parent never changes");
        }
        self.note(format!("group {} of weight {}", group.path, group.weight));
        self.inner.set_group(now, id, group);
    }

    fn remove_group(&mut self, now: Instant, id: GroupId) {
        let group = self.groups.remove(&id).unwrap_or_else(|| panic!("{id:?} is not known"));
        assert!(!self.streams.values().any(|stream| stream.group == id), "{} goes, and a stream is in it", group.path);
        assert!(
            !self.groups.values().any(|other| other.parent == Some(id)),
            "{} goes, and a group is in it",
            group.path
        );
        self.is_unused(&group.path, |request| request.group == id);
        self.note(format!("group {} gone", group.path));
        self.inner.remove_group(now, id);
    }
}

impl Merge for Witness {
    fn merge_candidate(&self, newcomer: &Waiting) -> Option<(RequestId, Side)> {
        self.is_its_streams(newcomer);
        self.inner.merge_candidate(newcomer)
    }

    fn grown(&mut self, request: &Waiting, side: Side) {
        self.is_its_streams(request);
        assert!(self.waiting.insert(request.id, *request).is_some(), "{:?} does not wait", request.id);
        self.inner.grown(request, side);
    }

    fn neighbour_after(&self, request: &Waiting) -> Option<RequestId> {
        self.inner.neighbour_after(request)
    }

    fn absorbed(&mut self, kept: &Waiting, gone: RequestId) {
        let gone_was = self.waiting.remove(&gone).unwrap_or_else(|| panic!("{gone:?} does not wait"));
        assert_eq!(member(&gone_was), member(kept), "only requests of one kind are joined");
        assert!(self.waiting.insert(kept.id, *kept).is_some(), "{:?} does not wait", kept.id);
        self.inner.absorbed(kept, gone);
    }
}

impl Charge for Witness {
    fn charge(&mut self, now: Instant, stream: StreamId, group: GroupId, time: Duration) {
        assert!(self.streams.contains_key(&stream) && self.groups.contains_key(&group), "both still exist");
        self.inner.charge(now, stream, group, time);
    }
}

impl Tune for Witness {}

impl Report for Witness {
    fn counters(&self, tell: &mut dyn FnMut(&'static str, u64)) {
        self.inner.counters(tell);
    }
}

/// What was told since the last time.
pub(crate) fn news(log: &EventLog) -> Vec<String> {
    std::mem::take(&mut log.lock().unwrap())
}
