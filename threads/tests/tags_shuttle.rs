//! Many random interleavings of larger cases of `TagQueue` than loom can try out.
//!
//! ```text
//! RUSTFLAGS="--cfg shuttle" cargo test --release -p fairlift-threads --test tags_shuttle
//! ```
//! Schedules are random, and by priority (PCT), which finds other bugs; a lost wake-up is a deadlock, which shuttle
//! reports with the seed to repeat it.

#![cfg(shuttle)]

use std::sync::Arc;

use fairlift_threads::tags::{Settings, TagQueue};
use shuttle::{check_pct, check_random, thread};

/// `threads` callers, of two classes, take and return a tag so many times each.
fn crowd(settings: Settings, threads: usize, times: usize) {
    let tags = TagQueue::new(settings).unwrap();
    let callers: Vec<_> = (0..threads)
        .map(|n| {
            let tags = Arc::clone(&tags);
            thread::spawn(move || {
                let user = n % settings.users;
                let caller = tags.caller_of(user);
                let mut caller = if n % 3 == 0 && settings.shallow.is_some() { caller.shallow() } else { caller };
                for _ in 0..times {
                    let tag = caller.get();
                    thread::yield_now();
                    tags.put_of(user, tag);
                }
            })
        })
        .collect();
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    assert_eq!((tags.busy_count(), tags.waiting()), (0, 0));
}

#[test]
fn six_callers_share_two_tags() {
    check_random(|| crowd(Settings::new(2), 6, 3), 5000);
    check_pct(|| crowd(Settings::new(2), 6, 3), 2000, 3);
}

#[test]
fn two_callers_share_one_tag() {
    check_random(|| crowd(Settings::new(1), 2, 4), 5000);
    check_pct(|| crowd(Settings::new(1), 2, 4), 5000, 3);
}

#[test]
fn shallow_callers_and_others_share_three_tags() {
    check_random(|| crowd(Settings { shallow: Some(1), ..Settings::new(3) }, 6, 3), 5000);
    check_pct(|| crowd(Settings { shallow: Some(1), ..Settings::new(3) }, 4, 3), 2000, 3);
}

#[test]
fn two_users_share_five_tags() {
    check_random(|| crowd(Settings { users: 2, ..Settings::new(5) }, 8, 2), 3000);
    check_pct(|| crowd(Settings { users: 2, ..Settings::new(5) }, 8, 2), 1000, 3);
}

#[test]
fn the_depth_changes_while_six_callers_share() {
    let resized = || {
        let settings = Settings { capacity: 4, ..Settings::new(2) };
        let tags = TagQueue::new(settings).unwrap();
        let callers: Vec<_> = (0..5)
            .map(|_| {
                let tags = Arc::clone(&tags);
                thread::spawn(move || {
                    let mut caller = tags.caller();
                    for _ in 0..3 {
                        let tag = caller.get();
                        thread::yield_now();
                        tags.put(tag);
                    }
                })
            })
            .collect();
        for depth in [4, 1, 3] {
            tags.resize(depth).unwrap();
            thread::yield_now();
        }
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        assert!(tags.is_settled() && tags.busy_count() == 0);
    };
    check_random(resized, 5000);
    check_pct(resized, 2000, 3);
}
