//! Torture: what is promised, under anything that can happen, drawn by chance and repeated by its seed.
//!
//! A *run* follows from its [`Suite`] and its seed alone. It draws its parts, goes through a program of steps, and ends with its counts and
//! with the broken promise, if there is one. [`runner`] makes runs on all processors until the time is over, and run number n has the seed
//! `first + n`, whoever makes it.
//!
//! | suite | trial |
//! |---|---|
//! | `queue` | the queue with every scheduler, tags, flushes and ceilings, on a disk that fails, hangs, lies and is late, while all that can be changed is changed |
//! | `flood` | the same with many small requests on a fast disk |
//! | `power` | flushes, durable writes and failed flushes, with the power failing at every instant |
//! | `shares` | weights, floors and ceilings while all tenants want more, against plain arithmetic |
//!
//! A run that fails is shrunk: steps are left out while it still fails ([`shrink()`]).

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

mod bench;
mod change;
mod device;
mod meters;
mod power;
pub mod runner;
mod sectors;
mod shares;
mod shrink;
mod step;
mod swarm;
mod watch;

use Count::{
    Aborts, Busy, Changes, Compared, Cuts, Errors, FailedFlushes, Flushes, Full, Ios, Late, Limited, Requests,
    Reserved, Shared, Switches,
};
use bench::Bench;
use step::ProgramStep;
use swarm::Setup;

pub use crate::tally::{Broken, Count, Tally};
pub use shrink::{Small, shrink};

/// A promise, and the counts of a [`Tally`] that show its trials.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// Its name in `docs/reliability.md`.
    pub name: &'static str,
    /// Its description, in a phrase.
    pub says: &'static str,
    /// The suite that tries it.
    pub tried: &'static [Count],
}

const fn promise(name: &'static str, says: &'static str, tried: &'static [Count]) -> Promise {
    Promise { name, says, tried }
}

/// The promises, as far as the suites try them.
pub const PROMISES: &[Promise] = &[
    promise("D1", "what was answered before a flush survives a power cut at any instant", &[Cuts, Flushes]),
    promise("D2", "a flush that failed is not forgotten", &[FailedFlushes]),
    promise(
        "L1",
        "every request is answered exactly once, and ends when the faults do",
        &[Ios, Requests, Switches, Changes, Aborts],
    ),
    promise("L4", "a request that hangs is answered within io_timeout and a second", &[Late]),
    promise("W1", "a tenant has its weight's part of the disk, flushes included", &[Shared]),
    promise("W2", "a ceiling is not exceeded, nor too strict, and a floor is kept", &[Limited, Reserved]),
    promise("W3", "whoever waits for room or a tag is woken", &[Full]),
    promise("F1", "the disk's error reaches the client that asked, and no other", &[Errors, Busy]),
    promise("S1", "a read returns what was written there last", &[Compared]),
];

/// How a run ended.
#[derive(Debug)]
pub struct Verdict {
    /// The attempts, up to the broken promise.
    pub tally: Tally,
    /// The promise that was broken.
    pub broken: Option<Broken>,
}

/// A kind of run.
pub struct Suite {
    /// Its name, as in `--only`.
    pub name: &'static str,
    /// Its part of the time, beside the others'.
    pub part: u32,
    /// How many steps the run of a seed has.
    pub steps: fn(u64) -> u64,
    /// The special features of the run of a seed.
    pub says: fn(u64) -> String,
    /// A step of the run of a seed.
    pub step: fn(u64, u64) -> String,
    /// Runs the steps of these numbers.
    run: fn(u64, &mut dyn Iterator<Item = u64>) -> Verdict,
}

/// All suites.
pub const SUITES: &[Suite] = &[
    Suite {
        name: "queue",
        part: 4,
        steps: |seed| Setup::draw(seed).steps,
        says: |seed| Setup::draw(seed).says(),
        step: |seed, number| ProgramStep::draw(&Setup::draw(seed), number).says(&Setup::draw(seed)),
        run: |seed, steps| queue(&Setup::draw(seed), steps),
    },
    Suite {
        name: "flood",
        part: 6,
        steps: |seed| Setup::draw_flood(seed).steps,
        says: |seed| Setup::draw_flood(seed).says(),
        step: |seed, number| ProgramStep::draw(&Setup::draw_flood(seed), number).says(&Setup::draw_flood(seed)),
        run: |seed, steps| queue(&Setup::draw_flood(seed), steps),
    },
    Suite {
        name: "power",
        part: 1,
        steps: |seed| power::PowerRun::draw(seed).bios(),
        says: |seed| power::PowerRun::draw(seed).says(),
        step: |_, number| format!("bio {number}"),
        run: |seed, steps| power::PowerRun::draw(seed).go(steps.count() as u64),
    },
    Suite {
        name: "shares",
        part: 1,
        steps: |seed| shares::SharesRun::draw(seed).requests(),
        says: |seed| shares::SharesRun::draw(seed).says(),
        step: |_, number| format!("request {number}"),
        run: |seed, steps| shares::SharesRun::draw(seed).go(steps.count() as u64),
    },
];

fn queue(setup: &Setup, steps: &mut dyn Iterator<Item = u64>) -> Verdict {
    let mut bench = Bench::new(setup);
    let broken = bench.go(steps).err();
    Verdict { tally: bench.tally, broken }
}

impl Suite {
    /// The one of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        SUITES.iter().find(|suite| suite.name == name)
    }

    /// Makes the run of a seed, with these of its steps.
    #[must_use]
    pub fn run(&self, seed: u64, steps: &mut dyn Iterator<Item = u64>) -> Verdict {
        quieten();
        let run = AssertUnwindSafe(|| (self.run)(seed, steps));
        IS_WATCHED.with_borrow_mut(|watched| *watched = Some(String::new()));
        let ended = panic::catch_unwind(run);
        let message = IS_WATCHED.take();
        match ended {
            Ok(verdict) => verdict,
            // An assertion of ours: requests are answered once, or not at all.
            Err(_) => Verdict { tally: Tally::default(), broken: Some(Broken::new("L1", message.unwrap_or_default())) },
        }
    }

    /// Makes the whole run of a seed.
    #[must_use]
    pub fn run_all(&self, seed: u64) -> Verdict {
        self.run(seed, &mut (0..(self.steps)(seed)))
    }
}

thread_local! {
    /// The message of a panic of this thread, while somebody listens.
    static IS_WATCHED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A panic of a run is a result, and is not printed.
fn quieten() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let is_ours = IS_WATCHED.with_borrow_mut(|watched| {
                let Some(message) = watched else { return false };
                let says = info.payload_as_str().unwrap_or("a panic");
                let place =
                    info.location().map_or_else(String::new, |place| format!(" ({}:{})", place.file(), place.line()));
                *message = format!("{says}{place}");
                true
            });
            if !is_ours {
                usual(info);
            }
        }));
    });
}
