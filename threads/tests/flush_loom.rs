//! Every interleaving of small cases of `FlushQueue` (up to a bound on preemptions), as loom finds them.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --profile model -p fairlift-threads --test flush_loom
//! ```
//! The device is two numbers: how much was written, and how much of it is durable. A lost wake-up is a deadlock, which loom
//! reports. That these models would find what they are for is shown by the last test: coordinators with one rule left out
//! must fail in them.

#![cfg(loom)]

use std::process::Command;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use fairlift_core::{Errno, Outcome};
use fairlift_threads::flush::{FlushQueue, Turn};
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

mod flush_twins;

use flush_twins::Twin;

/// Runs a model with so many preemptions, and as many more as `MORE` says.
fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let more: usize = std::env::var("MORE").map_or(0, |more| more.parse().expect("a number of preemptions"));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions + more);
    builder.max_branches = 100_000;
    builder.check(model);
}

/// A disk with a cache.
#[derive(Default)]
struct Device {
    written: AtomicUsize,
    durable: AtomicUsize,
    flushes: AtomicUsize,
}

impl Device {
    /// Writes, and says how much has been written then.
    fn write(&self) -> usize {
        self.written.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// What has been written when it begins is durable when it ends.
    fn flush(&self) -> std::io::Result<()> {
        let began = self.written.load(Ordering::SeqCst);
        thread::yield_now();
        self.durable.fetch_max(began, Ordering::SeqCst);
        self.flushes.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn assert_durable(&self, written: usize) {
        let durable = self.durable.load(Ordering::SeqCst);
        assert!(durable >= written, "told that {written} are durable, and {durable} are");
    }
}

/// Makes durable what was written: ours, and its twins.
trait Flushes: Send + Sync {
    fn wrote(&self);
    /// How many wait.
    fn waiting(&self) -> usize;
    fn flush(&self, device: &mut dyn FnMut() -> std::io::Result<()>) -> Result<(), Errno>;
}

impl Flushes for FlushQueue {
    fn wrote(&self) {
        FlushQueue::wrote(self);
    }

    fn waiting(&self) -> usize {
        FlushQueue::waiting(self)
    }

    fn flush(&self, device: &mut dyn FnMut() -> std::io::Result<()>) -> Result<(), Errno> {
        FlushQueue::flush(self, device)
    }
}

impl Flushes for Twin {
    fn wrote(&self) {}

    fn waiting(&self) -> usize {
        Twin::waiting(self)
    }

    fn flush(&self, device: &mut dyn FnMut() -> std::io::Result<()>) -> Result<(), Errno> {
        Twin::flush(self, || device().map_err(|error| Errno(error.raw_os_error().unwrap())))
    }
}

/// So many threads write and flush, each as often as is said.
fn writers(flushes: Arc<impl Flushes + 'static>, times: &[usize]) -> Arc<Device> {
    let device = Arc::new(Device::default());
    let work = |times: usize| {
        let (flushes, device) = (Arc::clone(&flushes), Arc::clone(&device));
        move || {
            for _ in 0..times {
                let written = device.write();
                flushes.wrote();
                flushes.flush(&mut || device.flush()).unwrap();
                device.assert_durable(written);
            }
        }
    };
    let threads: Vec<_> = times[1..].iter().map(|times| thread::spawn(work(*times))).collect();
    work(times[0])();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    device
}

#[test]
fn what_was_written_before_is_durable_after() {
    check(3, || {
        let flushes = Arc::new(FlushQueue::new());
        let device = writers(Arc::clone(&flushes), &[1, 1]);
        assert!((1..=2).contains(&device.flushes.load(Ordering::SeqCst)));
        assert_eq!(flushes.waiting(), 0);
    });
}

#[test]
fn three_who_flush_share_two() {
    check(2, || {
        let device = writers(Arc::new(FlushQueue::new()), &[1, 1, 1]);
        assert!((1..=3).contains(&device.flushes.load(Ordering::SeqCst)));
    });
}

/// The seed's hard spot: the next flush comes and goes before those who shared the first have been woken.
#[test]
fn the_next_flush_may_end_before_the_first_one_s_sharers_have_run() {
    check(2, || {
        writers(Arc::new(FlushQueue::new()), &[2, 1, 1]);
    });
}

/// The seed's hard spot, and outcomes: each hears of its own flush, though a later one has ended otherwise.
#[test]
fn an_error_reaches_exactly_those_who_shared_it() {
    errors_reach_their_sharers(2, || {
        let settings = fairlift_core::flush::Settings { remember: false, ..Default::default() };
        FlushQueue::with_settings(settings)
    });
}

/// Each device flush fails in a way of its own, which says which one it was. While the first is under way another thread
/// asks: it is told of the second, though the third and the fourth may come and go while it is on its way.
fn errors_reach_their_sharers<F: Flushes + 'static>(preemptions: usize, make: impl Fn() -> F + Send + Sync + 'static) {
    const FIRST: usize = 100;
    check(preemptions, move || {
        let flushes = Arc::new(make());
        let count = Arc::new(AtomicUsize::new(0));
        let fail = |count: &AtomicUsize| {
            let number = count.fetch_add(1, Ordering::SeqCst) + 1;
            Err(std::io::Error::from_raw_os_error((FIRST + number) as i32))
        };
        let error_of = |result: Result<(), Errno>| result.expect_err("all of them fail").0 as usize - FIRST;
        let mut other = None;
        flushes.wrote();
        let first = flushes.flush(&mut || {
            let (shared, count) = (Arc::clone(&flushes), Arc::clone(&count));
            let result = fail(&count);
            other = Some(thread::spawn(move || {
                shared.wrote();
                error_of(shared.flush(&mut || fail(&count)))
            }));
            while flushes.waiting() == 0 {
                thread::yield_now();
            }
            result
        });
        assert_eq!(error_of(first), 1);
        for _ in 0..3 {
            flushes.wrote();
            let mut led = None;
            let heard = error_of(flushes.flush(&mut || {
                led = Some(count.load(Ordering::SeqCst) + 1);
                fail(&count)
            }));
            assert!(led.is_none_or(|led| led == heard), "who led flush {led:?} is told of {heard}");
        }
        let other = other.expect("the first was led here").join().unwrap();
        assert_eq!(other, 2, "asked during the first, told of {other}");
    });
}

#[test]
fn a_flush_of_nothing_is_not_sent_and_a_write_is_never_missed() {
    check(3, || {
        let flushes = Arc::new(FlushQueue::new());
        let device = Arc::new(Device::default());
        flushes.flush(|| device.flush()).unwrap();
        let other = thread::spawn({
            let (flushes, device) = (Arc::clone(&flushes), Arc::clone(&device));
            move || {
                let written = device.write();
                flushes.wrote();
                flushes.flush(|| device.flush()).unwrap();
                device.assert_durable(written);
            }
        });
        // It may cover the other's write or not, and clears or leaves the mark.
        flushes.flush(|| device.flush()).unwrap();
        other.join().unwrap();
        let before = device.flushes.load(Ordering::SeqCst);
        flushes.flush(|| device.flush()).unwrap();
        assert_eq!(device.flushes.load(Ordering::SeqCst), before, "all was flushed");
    });
}

struct Nobody;
impl Wake for Nobody {
    fn wake(self: Arc<Self>) {}
}

/// A task that waits, woken to lead or not, gives up.
#[test]
fn a_task_that_gives_up_leaves_nobody_asleep() {
    check(3, || {
        let flushes = Arc::new(FlushQueue::new());
        let device = Arc::new(Device::default());
        let waker = Waker::from(Arc::new(Nobody));
        let mut context = Context::from_waker(&waker);
        let mut first = Box::pin(flushes.join());
        let Poll::Ready(Turn::Lead(lead)) = first.as_mut().poll(&mut context) else { panic!("it is alone") };
        let mut task = Box::pin(flushes.join());
        assert!(task.as_mut().poll(&mut context).is_pending());
        let thread = thread::spawn({
            let (flushes, device) = (Arc::clone(&flushes), Arc::clone(&device));
            move || {
                let written = device.write();
                flushes.wrote();
                flushes.flush(|| device.flush()).unwrap();
                device.assert_durable(written);
            }
        });
        let running = lead.begin();
        device.flush().unwrap();
        assert_eq!(running.ended(Outcome::Done), Outcome::Done);
        drop(task);
        thread.join().unwrap();
        drop(first);
        assert_eq!(flushes.waiting(), 0);
    });
}

/// A leader that gives up leaves a flush of which nothing is known: who waits leads another.
#[test]
fn a_leader_that_gives_up_is_replaced() {
    check(3, || {
        let settings = fairlift_core::flush::Settings { remember: false, ..Default::default() };
        let flushes = Arc::new(FlushQueue::with_settings(settings));
        let device = Arc::new(Device::default());
        let waker = Waker::from(Arc::new(Nobody));
        let mut first = Box::pin(flushes.join());
        let Poll::Ready(Turn::Lead(lead)) = first.as_mut().poll(&mut Context::from_waker(&waker)) else {
            panic!("it is alone")
        };
        let running = lead.begin();
        let thread = thread::spawn({
            let (flushes, device) = (Arc::clone(&flushes), Arc::clone(&device));
            move || {
                let written = device.write();
                flushes.wrote();
                flushes.flush(|| device.flush()).unwrap();
                device.assert_durable(written);
            }
        });
        drop(running);
        thread.join().unwrap();
    });
}

/// A leader that goes before it has begun hands over, and nothing is taken for lost: though failures are remembered.
#[test]
fn a_leader_that_never_begins_hands_over() {
    check(3, || {
        let flushes = Arc::new(FlushQueue::new());
        let device = Arc::new(Device::default());
        let waker = Waker::from(Arc::new(Nobody));
        let mut context = Context::from_waker(&waker);
        let mut first = Box::pin(flushes.join());
        let Poll::Ready(Turn::Lead(lead)) = first.as_mut().poll(&mut context) else { panic!("it is alone") };
        let thread = thread::spawn({
            let (flushes, device) = (Arc::clone(&flushes), Arc::clone(&device));
            move || {
                let written = device.write();
                flushes.wrote();
                flushes.flush(|| device.flush()).unwrap();
                device.assert_durable(written);
            }
        });
        drop(lead);
        thread.join().unwrap();
        assert_eq!((flushes.waiting(), flushes.counts().failed), (0, 0));
    });
}

/// Who asks after somebody was given the lead, and before the device is asked, shares that flush.
#[test]
fn who_asks_before_the_leader_begins_shares_its_flush() {
    check(3, || {
        let flushes = Arc::new(FlushQueue::new());
        let device = Arc::new(Device::default());
        let waker = Waker::from(Arc::new(Nobody));
        let mut context = Context::from_waker(&waker);
        let mut first = Box::pin(flushes.join());
        let Poll::Ready(Turn::Lead(lead)) = first.as_mut().poll(&mut context) else { panic!("it is alone") };
        let thread = thread::spawn({
            let (flushes, device) = (Arc::clone(&flushes), Arc::clone(&device));
            move || {
                let written = device.write();
                flushes.wrote();
                flushes.flush(|| device.flush()).unwrap();
                device.assert_durable(written);
            }
        });
        while flushes.waiting() < 2 {
            thread::yield_now();
        }
        let running = lead.begin();
        device.flush().unwrap();
        assert_eq!(running.ended(Outcome::Done), Outcome::Done);
        thread.join().unwrap();
        assert_eq!(device.flushes.load(Ordering::SeqCst), 1);
    });
}

// ---- what must fail ----

#[test]
#[ignore = "must fail"]
fn twin_joins_the_running_one() {
    check(2, || {
        writers(Arc::new(Twin::new(flush_twins::Breaks::JoinsTheRunningOne)), &[1, 1]);
    });
}

#[test]
#[ignore = "must fail"]
fn twin_releases_in_two_steps() {
    check(2, || {
        writers(Arc::new(Twin::new(flush_twins::Breaks::ReleasesInTwoSteps)), &[1, 1, 1]);
    });
}

#[test]
#[ignore = "must fail"]
fn twin_one_outcome_for_all() {
    errors_reach_their_sharers(2, || Twin::new(flush_twins::Breaks::OneOutcomeForAll));
}

/// The twins share all that is not broken: whole, it must not fail.
#[test]
fn the_whole_twin_is_sound() {
    check(2, || {
        writers(Arc::new(Twin::new(flush_twins::Breaks::Nothing)), &[2, 1]);
    });
    errors_reach_their_sharers(2, || Twin::new(flush_twins::Breaks::Nothing));
}

#[test]
fn each_broken_twin_is_found() {
    for (twin, says) in [
        ("twin_joins_the_running_one", "told that"),
        ("twin_releases_in_two_steps", "told that"),
        ("twin_one_outcome_for_all", "told of"),
    ] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", twin, "--ignored", "--nocapture"])
            .output()
            .unwrap();
        let output_text = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success(), "the model did not find {twin}: {output_text}");
        assert!(output_text.contains(says), "{twin}: {output_text}");
    }
}
