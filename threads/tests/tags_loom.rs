//! Every interleaving of small cases of `TagQueue` (up to a bound on preemptions), as loom finds them.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --profile model -p fairlift-threads --test tags_loom
//! ```
//! `MORE=1` allows one preemption more in each, for hours instead of seconds. A lost wake-up is a deadlock, which loom reports. That these models would find one is shown by the last tests: the old
//! two-step algorithm, and our own with a rule left out, must fail in them.

#![cfg(loom)]

use std::process::Command;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use fairlift_core::tags::{Hint, Users};
use fairlift_threads::tags::{Settings, TagQueue};
use loom::thread;

mod two_step;

/// Whose locks and atomics the counter-example uses.
mod sync {
    pub use fairlift_core::sync::agree;
    pub use loom::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
    pub use loom::sync::{Condvar, Mutex, MutexGuard};

    /// Waits; nobody loses patience here.
    pub fn wait<'a, T>(bell: &Condvar, guard: MutexGuard<'a, T>) -> (MutexGuard<'a, T>, bool) {
        (bell.wait(guard).unwrap(), false)
    }
}

/// Runs a model with so many preemptions, and as many more as `MORE` says.
fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let more: usize = std::env::var("MORE").map_or(0, |more| more.parse().expect("a number of preemptions"));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions + more);
    builder.max_branches = 100_000;
    builder.check(model);
}

fn tags(depth: usize) -> Arc<TagQueue> {
    TagQueue::new(Settings::new(depth)).unwrap()
}

#[test]
fn two_callers_share_one_tag() {
    check(3, || {
        let tags = tags(1);
        let other = thread::spawn({
            let tags = Arc::clone(&tags);
            move || {
                let tag = tags.caller().get();
                tags.put(tag);
            }
        });
        let tag = tags.caller().get();
        tags.put(tag);
        other.join().unwrap();
        assert_eq!((tags.busy_count(), tags.waiting()), (0, 0));
    });
}

#[test]
fn three_callers_share_two_tags() {
    check(2, || {
        let tags = tags(2);
        let others: Vec<_> = (0..2)
            .map(|_| {
                let tags = Arc::clone(&tags);
                thread::spawn(move || {
                    let tag = tags.caller().get();
                    tags.put(tag);
                })
            })
            .collect();
        let tag = tags.caller().get();
        tags.put(tag);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!((tags.busy_count(), tags.waiting()), (0, 0));
    });
}

/// The seed's case: two completions at once, one nested in the other's bookkeeping, and a waiter for each.
#[test]
fn nested_completions_wake_a_waiter_each() {
    check(3, || {
        let tags = tags(2);
        let mut device = tags.caller();
        let (one, two) = (device.get(), device.get());
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let tags = Arc::clone(&tags);
                // They keep their tags: nobody but the device completes.
                thread::spawn(move || tags.caller().get())
            })
            .collect();
        let nested = thread::spawn({
            let tags = Arc::clone(&tags);
            move || tags.put(two)
        });
        tags.put(one);
        nested.join().unwrap();
        let held: Vec<_> = waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect();
        assert_ne!(held[0], held[1]);
        assert_eq!(tags.waiting(), 0);
    });
}

#[test]
fn a_larger_depth_wakes_who_waits() {
    check(3, || {
        let tags = TagQueue::new(Settings { capacity: 2, ..Settings::new(1) }).unwrap();
        let held = tags.caller().get();
        let waiter = thread::spawn({
            let tags = Arc::clone(&tags);
            move || tags.caller().get()
        });
        tags.resize(2).unwrap();
        assert_ne!(waiter.join().unwrap(), held);
    });
}

/// A user that holds its share waits though another could have a tag: with more tags its share is larger.
#[test]
fn a_larger_depth_wakes_a_user_at_its_share() {
    check(3, || {
        let tags = TagQueue::new(Settings { capacity: 4, users: 2, ..Settings::new(2) }).unwrap();
        let held = [0, 1].map(|user| tags.caller_of(user).get());
        let waiter = thread::spawn({
            let tags = Arc::clone(&tags);
            move || tags.caller_of(0).get()
        });
        tags.resize(4).unwrap();
        assert!(!held.contains(&waiter.join().unwrap()));
    });
}

#[test]
fn a_smaller_depth_holds_once_what_is_above_it_is_back() {
    check(3, || {
        let tags = tags(2);
        let low = tags.caller().get();
        assert_eq!(low.0, 0);
        let other = thread::spawn({
            let tags = Arc::clone(&tags);
            move || tags.caller().try_get()
        });
        tags.resize(1).unwrap();
        let settled = tags.is_settled();
        let high = other.join().unwrap();
        assert!(!settled || high.is_none(), "{high:?} was given out after it was said that nobody has it");
        assert!(high.is_some() || tags.is_settled());
    });
}

/// Two tags in one word: who swaps the returned ones back frees one for another, who may just have looked in vain.
#[test]
fn what_a_swap_frees_is_not_missed() {
    check(3, || {
        let tags = TagQueue::new(Settings::new(8)).unwrap();
        let mut device = tags.caller();
        let all: Vec<_> = std::iter::from_fn(|| device.try_get()).collect();
        assert_eq!(all.len(), 8);
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let tags = Arc::clone(&tags);
                thread::spawn(move || tags.caller().get())
            })
            .collect();
        // Both bits of one word.
        let of_one_word = all.iter().filter(|tag| tag.0 < 2);
        of_one_word.for_each(|tag| tags.put(*tag));
        for waiter in waiters {
            assert!(waiter.join().unwrap().0 < 2);
        }
    });
}

/// A shallow caller that swaps back what it may not have frees it for others all the same, though it takes nothing.
#[test]
fn what_a_swap_in_vain_frees_is_not_missed() {
    check(3, || {
        let tags = TagQueue::new(Settings { shallow: Some(4), ..Settings::new(8) }).unwrap();
        let mut device = tags.caller();
        let mut all: Vec<_> = std::iter::from_fn(|| device.try_get()).collect();
        all.sort_unstable();
        let shallow = thread::spawn({
            let tags = Arc::clone(&tags);
            move || tags.caller().shallow().try_get()
        });
        let waiter = thread::spawn({
            let tags = Arc::clone(&tags);
            move || tags.caller().get()
        });
        // Two bits of one word, of which shallow callers may have the first.
        tags.put(all[0]);
        let mine = tags.caller().shallow().try_get();
        tags.put(all[1]);
        let theirs = shallow.join().unwrap();
        let waited = waiter.join().unwrap();
        assert!(mine != Some(waited) && theirs != Some(waited) && (mine.is_none() || mine != theirs));
    });
}

/// A caller whose turn is over sits down though a tag is free: whoever is woken for it may be itself.
#[test]
fn who_has_had_its_turn_does_not_leave_a_tag_behind() {
    check(2, || {
        let tags = tags(1);
        let waker = Waker::from(Arc::new(Nobody));
        let mut other = tags.caller();
        let mut greedy = tags.caller();
        let held = greedy.get();
        assert_eq!(other.poll_get(&mut Context::from_waker(&waker)), Poll::Pending);
        tags.put(held);
        let giving_up = thread::spawn(move || drop(other));
        for _ in 0..4 {
            let tag = greedy.get();
            tags.put(tag);
        }
        giving_up.join().unwrap();
    });
}

/// A user at its share: what it seemed to hold while it was refused another, a waiter of its own may have missed.
#[test]
fn a_refusal_hides_no_room_from_others_of_the_same_user() {
    check(3, || {
        let tags = TagQueue::new(Settings { users: 2, ..Settings::new(2) }).unwrap();
        let (mine, _theirs) = (tags.caller_of(0).get(), tags.caller_of(1).get());
        let refused = thread::spawn({
            let tags = Arc::clone(&tags);
            move || tags.caller_of(0).try_get().map(|tag| tags.put_of(0, tag))
        });
        let waiter = thread::spawn({
            let tags = Arc::clone(&tags);
            move || tags.caller_of(0).get()
        });
        tags.put_of(0, mine);
        refused.join().unwrap();
        assert_eq!(waiter.join().unwrap(), mine);
    });
}

/// A user that takes a tag while a timer finds it idle counts as active.
#[test]
fn a_user_that_comes_back_while_it_retires_is_active() {
    check(3, || {
        let users = Arc::new(Users::new(1));
        users.hold(0, 4);
        users.release(0);
        let timer = thread::spawn({
            let users = Arc::clone(&users);
            move || users.retire(0)
        });
        assert!(users.hold(0, 4));
        timer.join().unwrap();
        assert_eq!(users.active(), 1);
    });
}

struct Nobody;
impl Wake for Nobody {
    fn wake(self: Arc<Self>) {}
}

/// A task that gives up, woken or not, passes on what it was woken for.
#[test]
fn a_task_that_gives_up_passes_its_wake_up_on() {
    check(2, || {
        let tags = tags(1);
        let mut device = tags.caller();
        let held = device.get();
        let mut task = tags.caller();
        let waker = Waker::from(Arc::new(Nobody));
        assert_eq!(task.poll_get(&mut Context::from_waker(&waker)), Poll::Pending);
        let thread = thread::spawn({
            let tags = Arc::clone(&tags);
            move || tags.caller().get()
        });
        let completing = thread::spawn({
            let tags = Arc::clone(&tags);
            move || tags.put(held)
        });
        drop(task);
        completing.join().unwrap();
        assert_eq!(thread.join().unwrap(), held);
    });
}

/// What the server does: tags are taken from the bitmap itself, and the task only asks to be told.
#[test]
fn who_polls_for_a_free_tag_is_told() {
    check(2, || {
        let tags = tags(1);
        let held = tags.caller().get();
        let poller = thread::spawn({
            let tags = Arc::clone(&tags);
            move || {
                let (sleeper, mut caller, mut hint) = (Sleeper::new(), tags.caller(), Hint::default());
                let waker = Waker::from(Arc::clone(&sleeper));
                loop {
                    let tag = tags.bitmap().get(&mut hint);
                    tags.look();
                    if let Some(tag) = tag {
                        return tag;
                    }
                    if caller.poll_free(&mut Context::from_waker(&waker)) == Poll::Pending {
                        sleeper.sleep();
                    }
                }
            }
        });
        tags.put(held);
        assert_eq!(poller.join().unwrap(), held);
    });
}

/// Sleeps until it is woken.
struct Sleeper(loom::sync::Mutex<bool>, loom::sync::Condvar);

impl Sleeper {
    fn new() -> Arc<Self> {
        Arc::new(Self(loom::sync::Mutex::new(false), loom::sync::Condvar::new()))
    }

    fn sleep(&self) {
        let mut woken = self.0.lock().unwrap();
        while !*woken {
            woken = self.1.wait(woken).unwrap();
        }
        *woken = false;
    }
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }
}

/// The same case as for ours, with the old algorithm. Fails: run by the test below it.
#[test]
#[ignore = "must fail"]
fn twin_two_steps() {
    check(2, || {
        let tags = Arc::new(two_step::TwoStep::new(2));
        let mut hint = Hint::default();
        let (one, two) = (tags.get(&mut hint), tags.get(&mut hint));
        let waiters: Vec<_> = (0..2)
            .map(|n| {
                let tags = Arc::clone(&tags);
                thread::spawn(move || tags.get(&mut Hint::of(n)))
            })
            .collect();
        let nested = thread::spawn({
            let tags = Arc::clone(&tags);
            move || tags.put(two)
        });
        tags.put(one);
        nested.join().unwrap();
        waiters.into_iter().for_each(|waiter| drop(waiter.join().unwrap()));
    });
}

#[test]
fn the_old_two_steps_lose_a_wake_up() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "twin_two_steps", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let output_text = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "the model did not find it: {output_text}");
    assert!(output_text.contains("deadlock"), "{output_text}");
}
