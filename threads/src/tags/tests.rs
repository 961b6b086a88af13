//! The promises of a tag queue, one scenario each; interleavings are looked at by `tests/tags_*.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::*;

/// Counts how often it was woken.
#[derive(Default)]
struct WakeCount(AtomicUsize);

impl WakeCount {
    fn times(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A caller that polls.
struct Task {
    caller: Caller,
    wakes: Arc<WakeCount>,
}

impl Task {
    fn of(caller: Caller) -> Self {
        Self { caller, wakes: Arc::default() }
    }

    fn new(tags: &Arc<TagQueue>) -> Self {
        Self::of(tags.caller())
    }

    fn poll(&mut self) -> Option<Tag> {
        match self.caller.poll_get(&mut Context::from_waker(&Waker::from(Arc::clone(&self.wakes)))) {
            Poll::Ready(tag) => Some(tag),
            Poll::Pending => None,
        }
    }

    fn woken(&self) -> bool {
        self.wakes.times() > 0
    }
}

fn all(tags: &Arc<TagQueue>) -> Vec<Tag> {
    let mut caller = tags.caller();
    std::iter::from_fn(|| caller.try_get()).collect()
}

/// wake.1
#[test]
fn while_nobody_waits_neither_counter_is_touched() {
    let tags = TagQueue::new(Settings::new(4)).unwrap();
    let mut caller = tags.caller();
    for _ in 0..1000 {
        let tag = caller.get();
        tags.put(tag);
        tags.put_batch(&all(&tags));
    }
    assert_eq!(tags.counts(), (0, 0));
}

/// wake.2
#[test]
fn a_completion_counts_while_someone_waits_and_is_looked_after_once() {
    let tags = TagQueue::new(Settings::new(1)).unwrap();
    let mut caller = tags.caller();
    let held = caller.get();
    let mut task = Task::new(&tags);
    assert_eq!(task.poll(), None);
    tags.put(held);
    assert_eq!((tags.counts(), tags.waiting()), ((1, 1), 0));
    assert!(task.woken() && task.poll() == Some(held));
}

/// wake.3, wake.4
#[test]
fn the_next_one_is_woken_when_the_first_has_run() {
    let tags = TagQueue::new(Settings::new(2)).unwrap();
    let held = all(&tags);
    let mut tasks: Vec<_> = (0..2).map(|_| Task::new(&tags)).collect();
    tasks.iter_mut().for_each(|task| assert_eq!(task.poll(), None));
    held.into_iter().for_each(|tag| tags.put(tag));
    assert!(tasks[0].woken() && !tasks[1].woken(), "one is on the way");
    assert!(tasks[0].poll().is_some());
    assert!(tasks[1].woken() && tasks[1].poll().is_some(), "who arrives passes it on");
}

/// wake.4
#[test]
fn a_waiter_that_is_dropped_passes_on_what_it_was_woken_for() {
    let tags = TagQueue::new(Settings::new(1)).unwrap();
    let held = all(&tags)[0];
    let (mut first, mut second) = (Task::new(&tags), Task::new(&tags));
    assert!(first.poll().is_none() && second.poll().is_none());
    tags.put(held);
    assert!(!second.woken());
    drop(first);
    assert!(second.woken() && second.poll() == Some(held));
}

#[test]
fn a_waiter_that_is_dropped_before_it_was_woken_leaves_no_trace() {
    let tags = TagQueue::new(Settings::new(1)).unwrap();
    let held = all(&tags)[0];
    let mut caller = tags.caller();
    {
        let mut acquiring = std::pin::pin!(caller.acquire());
        assert!(acquiring.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    assert_eq!(tags.waiting(), 0);
    tags.put(held);
    assert_eq!((tags.counts(), caller.try_get()), ((0, 0), Some(held)));
}

/// wake.5
#[test]
fn many_tags_at_once_wake_a_batch() {
    let tags = TagQueue::new(Settings { wake_max: Some(8), ..Settings::new(64) }).unwrap();
    let held = all(&tags);
    let mut tasks: Vec<_> = (0..20).map(|_| Task::new(&tags)).collect();
    tasks.iter_mut().for_each(|task| assert_eq!(task.poll(), None));
    tags.put_batch(&held);
    assert_eq!(tasks.iter().filter(|task| task.woken()).count(), 8);
}

/// wake.6
#[test]
fn who_has_had_its_turn_waits_in_line_though_a_tag_is_free() {
    let tags = TagQueue::new(Settings::new(1)).unwrap();
    let mut greedy = Task::new(&tags);
    let held = greedy.poll().unwrap();
    let (mut late, mut patient) = (Task::new(&tags), Task::new(&tags));
    assert!(late.poll().is_none() && patient.poll().is_none());
    tags.put(held);
    assert!(late.woken(), "it is on the way; until it runs, the tag is of use to the greedy one");
    let turns = std::iter::from_fn(|| greedy.poll().map(|tag| tags.put(tag))).take(10_000).count();
    assert_eq!(turns, 1024);
    assert_eq!(late.poll(), Some(held));
    tags.put(held);
    assert!(patient.woken() && !greedy.woken(), "it is behind those who were there before");
}

#[test]
fn who_comes_in_vain_has_its_place_again() {
    let tags = TagQueue::new(Settings::new(1)).unwrap();
    let mut passer_by = tags.caller();
    let held = passer_by.get();
    let mut tasks: Vec<_> = (0..9).map(|_| Task::new(&tags)).collect();
    tasks.iter_mut().for_each(|task| assert_eq!(task.poll(), None));
    tags.put(held);
    assert!(tasks[0].woken() && passer_by.try_get().is_some());
    assert_eq!(tasks[0].poll(), None, "another was faster");
    tasks[0].wakes.0.store(0, Ordering::SeqCst);
    tags.put(held);
    assert!(tasks[0].woken() && !tasks[1].woken());
    assert_eq!(tasks[0].poll(), Some(held));
}

#[test]
fn reserved_tags_are_for_those_who_are_entitled_to_them() {
    let tags = TagQueue::new(Settings { reserved: 2, ..Settings::new(5) }).unwrap();
    assert_eq!(all(&tags).len(), 3);
    let mut entitled = Task::of(tags.caller().reserved());
    let (one, two) = (entitled.poll().unwrap(), entitled.poll().unwrap());
    assert_eq!([one, two].map(|tag| tag.0).into_iter().max(), Some(1));
    let mut waits = Task::new(&tags);
    assert!(entitled.poll().is_none() && waits.poll().is_none());
    tags.put(one);
    assert!(!waits.woken() && entitled.woken() && entitled.poll() == Some(one));
    tags.put(Tag(4));
    assert_eq!(waits.poll(), Some(Tag(4)));
}

#[test]
fn shallow_callers_leave_tags_for_the_others_and_do_not_stop_them() {
    let tags = TagQueue::new(Settings { shallow: Some(3), ..Settings::new(8) }).unwrap();
    let mut shallow = tags.caller().shallow();
    let held: Vec<_> = std::iter::from_fn(|| shallow.try_get()).collect();
    assert_eq!(held.len(), 3);
    let others = all(&tags);
    assert_eq!(others.len(), 5);
    let (mut low, mut full) = (Task::of(tags.caller().shallow()), Task::new(&tags));
    assert!(low.poll().is_none() && full.poll().is_none());
    tags.put(others[0]);
    assert!(!low.woken() && full.woken(), "this tag is not for shallow callers");
    assert!(full.poll().is_some());
    tags.put(held[0]);
    assert!(low.woken() && low.poll().is_some());
}

#[test]
fn each_of_two_active_users_is_assured_half() {
    let tags = TagQueue::new(Settings { users: 2, ..Settings::new(16) }).unwrap();
    let (mut a, mut b) = (tags.caller_of(0), Task::of(tags.caller_of(1)));
    let held: Vec<_> = std::iter::from_fn(|| a.try_get()).collect();
    assert_eq!(held.len(), 16, "alone, it may have all");
    assert_eq!(b.poll(), None);
    let mut greedy = Task::of(tags.caller_of(0));
    assert_eq!(greedy.poll(), None);
    let mut given = Vec::new();
    for tag in held {
        tags.put_of(0, tag);
        given.extend(b.poll());
        greedy.poll().inspect(|tag| tags.put_of(0, *tag));
        assert!(given.len() <= 8);
    }
    assert_eq!(given.len(), 8, "its part, and no more");
}

#[test]
fn a_user_that_retires_lets_the_others_have_more() {
    let tags = TagQueue::new(Settings { users: 2, ..Settings::new(16) }).unwrap();
    let mut b = tags.caller_of(1);
    let tag = b.try_get().unwrap();
    let mut a = Task::of(tags.caller_of(0));
    let held: Vec<_> = std::iter::from_fn(|| a.poll()).collect();
    assert_eq!(held.len(), 8);
    tags.put_of(1, tag);
    assert!(!a.woken());
    tags.retire(1);
    assert!(a.woken() && a.poll().is_some());
}

#[test]
fn a_larger_depth_wakes_who_waits_and_a_smaller_one_settles() {
    let tags = TagQueue::new(Settings { capacity: 4, ..Settings::new(2) }).unwrap();
    let held = all(&tags);
    let mut task = Task::new(&tags);
    assert_eq!(task.poll(), None);
    tags.resize(3).unwrap();
    assert_eq!(task.poll(), Some(Tag(2)));
    tags.resize(1).unwrap();
    assert!(!tags.is_settled());
    tags.put(Tag(2));
    held.into_iter().for_each(|tag| tags.put(tag));
    assert!(tags.is_settled());
    assert_eq!(all(&tags), [Tag(0)]);
}

#[test]
fn what_is_not_possible_is_refused_with_what_is() {
    let why = |settings| TagQueue::new(settings).unwrap_err().to_string();
    let two = Settings::new(2);
    assert_eq!(why(Settings::new(0)), "a depth of 0 is not possible: it is 1 to 1 tags");
    assert_eq!(why(Settings { reserved: 2, ..two }), "2 of 2 tags cannot be reserved: at least one is for everybody");
    let shallow = "a shallow depth of 3 is not possible: it is 1 to the depth, which is 2";
    assert_eq!(why(Settings { shallow: Some(3), ..two }), shallow);
    let tags = TagQueue::new(Settings { capacity: 8, reserved: 1, ..two }).unwrap();
    let why = |depth| tags.resize(depth).unwrap_err().to_string();
    assert_eq!(why(0), "a depth of 0 is not possible: it is 1 to 8 tags");
    assert_eq!(why(1), "1 of 1 tags cannot be reserved: at least one is for everybody");
    assert_eq!(why(9), "a depth of 9 is not possible: it is 1 to 8 tags");
    assert_eq!(tags.depth(), 2);
}

#[test]
#[should_panic(expected = "tag 0 was given back twice")]
fn a_tag_given_back_twice_stops_the_program() {
    let tags = TagQueue::new(Settings::new(1)).unwrap();
    let tag = tags.caller().get();
    tags.put(tag);
    tags.put(tag);
}

#[test]
fn it_shows_how_full_it_is_and_who_waits() {
    let tags = TagQueue::new(Settings::new(2)).unwrap();
    all(&tags);
    let mut task = Task::new(&tags);
    assert_eq!(task.poll(), None);
    let shown = format!("{tags:?}");
    assert!(shown.contains("words: \"#|#\"") && shown.contains("waiting: 1"), "{shown}");
}

#[test]
#[should_panic(expected = "tag 2 was given back twice")]
fn the_assertion_names_the_tag_as_its_holder_knows_it() {
    let tags = TagQueue::new(Settings { reserved: 2, ..Settings::new(4) }).unwrap();
    all(&tags);
    tags.put(Tag(2));
    tags.put(Tag(2));
}

#[test]
fn a_second_return_that_was_caught_gives_no_tag_out_twice() {
    let tags = TagQueue::new(Settings::new(2)).unwrap();
    let held = all(&tags);
    tags.put(held[0]);
    let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| tags.put(held[0])));
    assert!(again.is_err());
    assert_eq!(all(&tags), [held[0]]);
}

#[test]
fn who_polled_and_then_asks_as_a_thread_waits_in_one_place() {
    let tags = TagQueue::new(Settings::new(1)).unwrap();
    let held = all(&tags)[0];
    let mut task = Task::new(&tags);
    assert_eq!(task.poll(), None);
    assert_eq!((task.caller.try_get(), tags.waiting()), (None, 0));
    assert_eq!(task.poll(), None);
    tags.put(held);
    assert_eq!(task.caller.get(), held);
    let mut next = Task::new(&tags);
    assert_eq!(next.poll(), None);
    tags.put(held);
    assert!(next.woken(), "the first one left nothing behind");
}

#[test]
fn the_depth_grows_to_the_capacity_that_was_asked_and_no_further() {
    let tags = TagQueue::new(Settings { capacity: 9, reserved: 1, ..Settings::new(9) }).unwrap();
    assert_eq!(tags.resize(10).unwrap_err().to_string(), "a depth of 10 is not possible: it is 1 to 9 tags");
}

/// Reserved tags are for progress: they do not wait for a caller that was woken for another.
#[test]
fn one_on_the_way_to_another_tag_does_not_hold_up_reserved_ones() {
    let tags = TagQueue::new(Settings { reserved: 1, ..Settings::new(2) }).unwrap();
    let held = all(&tags)[0];
    let mut entitled = Task::of(tags.caller().reserved());
    let reserved = entitled.poll().unwrap();
    let (mut slow, mut next) = (Task::new(&tags), Task::of(tags.caller().reserved()));
    assert!(slow.poll().is_none() && next.poll().is_none());
    tags.put(held);
    tags.put(reserved);
    assert!(slow.woken() && next.woken() && next.poll() == Some(reserved));
}
