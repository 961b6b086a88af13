//! Real threads on a `TagQueue`, watched: nobody may wait while a tag is free.
//!
//! Each test of load takes 1.5 s, or the seconds that are given. The twelve hours that the kernel's change was run for, over its three:
//! ```text
//! cargo test --release -p fairlift-threads --test tags_stress -- 14400
//! ```
//!
//! A plain program, so that ThreadSanitizer can look too (under the test harness it reports a race of the harness):
//! ```text
//! cargo test --release -p fairlift-threads --test tags_stress
//! TSAN_OPTIONS=suppressions=$PWD/threads/tests/tsan.supp RUSTFLAGS="--cfg tsan -Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" \
//!     cargo +nightly test --target x86_64-unknown-linux-gnu -p fairlift-threads --test tags_stress
//! ```

#[cfg(any(loom, shuttle))]
fn main() {}

/// Runs for so long; answers how many tags came back while a caller waited.
#[cfg(not(any(loom, shuttle)))]
type Test = fn(std::time::Duration) -> usize;

#[cfg(not(any(loom, shuttle)))]
fn main() {
    let long = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(1.5);
    let long = std::time::Duration::from_secs_f64(long);
    let tests: [(&str, Test); 4] = [
        ("forty threads share two tags", forty_threads_share_two_tags),
        ("users, classes and sizes change under way", users_classes_and_sizes_change),
        ("tasks give up while they wait", tasks_give_up),
        ("the watchdog sees who waits while a tag is free", the_watchdog_sees),
    ];
    for (name, test) in tests {
        let returned = test(long);
        println!("test {name} ... ok ({returned} tags came back while a caller waited)");
    }
    println!("test result: ok. {} passed; 0 failed; 0 ignored", tests.len());
}

#[cfg(not(any(loom, shuttle)))]
use stress::{forty_threads_share_two_tags, tasks_give_up, the_watchdog_sees, users_classes_and_sizes_change};

#[cfg(not(any(loom, shuttle)))]
mod stress {
    use std::cell::UnsafeCell;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::task::{Context, Poll, Waker};
    use std::thread::ScopedJoinHandle;
    use std::time::{Duration, Instant};

    use fairlift_core::Tag;
    use fairlift_threads::tags::{Settings, TagQueue};

    /// How long someone may be seen waiting beside a free tag with nothing else going on: many time slices.
    const PATIENCE: Duration = Duration::from_secs(2);

    /// Something that only the holder of its tag may touch: ThreadSanitizer sees if another does.
    struct Slots(Vec<UnsafeCell<u64>>);

    // SAFETY: each slot is touched only by who holds the tag of its number; that this is so is what is tested here.
    unsafe impl Sync for Slots {}

    impl Slots {
        fn new(count: usize) -> Self {
            Self((0..count).map(|_| UnsafeCell::new(0)).collect())
        }

        fn touch(&self, tag: Tag) {
            // SAFETY: the caller holds the tag.
            unsafe { *self.0[usize::from(tag.0)].get() += 1 }
        }
    }

    /// Waits for them one by one, which ThreadSanitizer sees; that a scope waits for all it does not.
    fn join(threads: Vec<ScopedJoinHandle<'_, ()>>) {
        threads.into_iter().for_each(|thread| thread.join().expect("its own assertions held"));
    }

    /// Looks on until `stop`; answers whether someone waited beside a free tag while nothing happened.
    fn watch(tags: &TagQueue, done: &AtomicU64, stop: &AtomicBool) -> bool {
        let mut since: Option<(Instant, u64)> = None;
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
            let (count, free) = (done.load(Ordering::Relaxed), tags.bitmap().free_count(None) > 0);
            since = match since {
                _ if tags.waiting() == 0 || !free => None,
                Some((when, before)) if before == count && when.elapsed() > PATIENCE => return true,
                Some((when, before)) if before == count => Some((when, before)),
                _ => Some((Instant::now(), count)),
            };
        }
        false
    }

    pub(crate) fn forty_threads_share_two_tags(long: Duration) -> usize {
        let tags = TagQueue::new(Settings::new(2)).unwrap();
        let (slots, done, stop, ended) =
            (Slots::new(2), AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let callers: Vec<_> = (0..40)
                .map(|n| {
                    let (tags, slots, done, stop) = (&tags, &slots, &done, &stop);
                    scope.spawn(move || {
                        let mut caller = tags.caller();
                        while !stop.load(Ordering::Relaxed) {
                            let tag = caller.get();
                            slots.touch(tag);
                            if n % 4 == 0 {
                                std::thread::yield_now();
                            }
                            tags.put(tag);
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            let watchdog = scope.spawn(|| watch(&tags, &done, &ended));
            std::thread::sleep(long);
            stop.store(true, Ordering::Relaxed);
            // Whoever was forgotten would be waited for here for ever: the watchdog says so instead.
            let patience = Instant::now();
            while callers.iter().any(|caller| !caller.is_finished()) {
                if watchdog.is_finished() || patience.elapsed() > Duration::from_secs(60) {
                    eprintln!("forgotten: {tags:?}");
                    std::process::exit(1);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            join(callers);
            ended.store(true, Ordering::Relaxed);
            assert!(!watchdog.join().unwrap(), "someone waited while a tag was free: {tags:?}");
        });
        assert_eq!((tags.busy_count(), tags.waiting()), (0, 0));
        let (completions, wakeups) = tags.counts();
        assert!(completions > 0 && completions == wakeups, "{tags:?}");
        completions
    }

    pub(crate) fn users_classes_and_sizes_change(long: Duration) -> usize {
        let settings = Settings { capacity: 16, reserved: 1, shallow: Some(2), users: 2, ..Settings::new(5) };
        let tags = TagQueue::new(settings).unwrap();
        let (slots, stop) = (Slots::new(17 + 64), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let mut callers = Vec::new();
            for n in 0..12 {
                let (tags, slots, stop) = (&tags, &slots, &stop);
                callers.push(scope.spawn(move || {
                    let user = n % 2;
                    let mut caller = match n % 6 {
                        0 => tags.caller().reserved(),
                        1 | 2 => tags.caller_of(user).shallow(),
                        _ => tags.caller_of(user),
                    };
                    while !stop.load(Ordering::Relaxed) {
                        let tag = caller.get();
                        assert_eq!(tag.0 == 0, n % 6 == 0, "reserved tags are for those who are entitled to them");
                        slots.touch(tag);
                        tags.put_of(user, tag);
                    }
                }));
            }
            let started = Instant::now();
            for depth in [2, 16, 3, 9].into_iter().cycle() {
                if started.elapsed() > long {
                    break;
                }
                tags.resize(depth).unwrap();
                tags.retire(0);
                std::thread::sleep(Duration::from_millis(1));
            }
            tags.resize(16).unwrap();
            stop.store(true, Ordering::Relaxed);
            join(callers);
        });
        assert!(tags.is_settled() && tags.busy_count() == 0 && tags.waiting() == 0, "{tags:?}");
        tags.counts().0
    }

    pub(crate) fn tasks_give_up(long: Duration) -> usize {
        let tags = TagQueue::new(Settings::new(2)).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let mut callers = Vec::new();
            for n in 0..8u32 {
                let (tags, stop) = (&tags, &stop);
                callers.push(scope.spawn(move || {
                    let mut caller = tags.caller();
                    let mut context = Context::from_waker(Waker::noop());
                    while !stop.load(Ordering::Relaxed) {
                        if n < 4 {
                            // Asks, and gives up whatever the answer.
                            let mut acquiring = std::pin::pin!(caller.acquire());
                            if let Poll::Ready(tag) = acquiring.as_mut().poll(&mut context) {
                                tags.put(tag);
                            }
                        } else {
                            let tag = caller.get();
                            tags.put(tag);
                        }
                    }
                }));
            }
            std::thread::sleep(long);
            stop.store(true, Ordering::Relaxed);
            join(callers);
        });
        assert_eq!((tags.busy_count(), tags.waiting()), (0, 0));
        tags.counts().0
    }

    /// That the watchdog can bite: a task that is told and never comes is what it looks for.
    pub(crate) fn the_watchdog_sees(_: Duration) -> usize {
        let tags = TagQueue::new(Settings::new(1)).unwrap();
        let mut holder = tags.caller();
        let held = holder.get();
        let mut context = Context::from_waker(Waker::noop());
        let (mut woken, mut forgotten) = (tags.caller(), tags.caller());
        assert!(woken.poll_get(&mut context).is_pending() && forgotten.poll_get(&mut context).is_pending());
        tags.put(held);
        assert!(watch(&tags, &AtomicU64::new(0), &AtomicBool::new(false)));
        drop(woken);
        assert!(forgotten.poll_get(&mut context).is_ready(), "it passed its wake-up on");
        tags.counts().0
    }
}
