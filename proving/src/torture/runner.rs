//! Runs, one after the other on each processor, until the time is over.

use std::sync::Mutex;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use super::{Broken, SUITES, Suite, Tally};

/// The suites to run.
#[derive(Clone, Copy, Debug)]
pub struct Campaign<'a> {
    /// Of these suites: all, if none is named.
    pub only: &'a [&'static str],
    /// The seed of each suite's first run; the next ones follow.
    pub seed: u64,
    /// For so long.
    pub time: Option<Duration>,
    /// The number of runs of each suite, whatever the time.
    pub runs: Option<u64>,
    /// The number of threads.
    pub threads: usize,
}

/// The result of a suite.
#[derive(Clone, Default, Debug)]
pub struct Done {
    /// Its name.
    pub suite: &'static str,
    /// The attempts.
    pub tally: Tally,
    /// The runs in which a promise was broken, by seed.
    pub broken: Vec<(u64, Broken)>,
    /// Time of all threads together.
    pub time: Duration,
    /// Runs that were begun.
    pub begun: u64,
}

/// The longest that a run takes, in real time. Chosen: a second is usual, and a machine that is busy with other work was seen to give a
/// run of 0.2 s a minute.
const RUN_MAX: Duration = Duration::from_secs(600);

/// After this many runs that fail there is nothing more to learn.
const ENOUGH: usize = 8;

/// Runs what is asked; `progress` hears now and then how far it is, and says whether to stop. A run that does not end, for it
/// makes no event that could be counted, is told to `hangs`, by suite and seed: no thread can be stopped, so that should end the process.
pub fn run(
    campaign: &Campaign<'_>,
    progress: &(dyn Fn(&[Done]) -> bool + Sync),
    hangs: &(dyn Fn(&'static str, u64) + Sync),
) -> Vec<Done> {
    let is_asked = |suite: &&Suite| campaign.only.is_empty() || campaign.only.contains(&suite.name);
    let suites: &Vec<&Suite> = &SUITES.iter().filter(is_asked).collect();
    let new = |suite: &&Suite| Done { suite: suite.name, ..Done::default() };
    let done = Mutex::new(suites.iter().map(new).collect::<Vec<_>>());
    let lock = &|| done.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let start = Instant::now();
    let next = &|| {
        let mut done = lock();
        let is_over = campaign.time.is_some_and(|time| start.elapsed() >= time) || progress(&done);
        if is_over || done.iter().map(|one| one.broken.len()).sum::<usize>() >= ENOUGH {
            return None;
        }
        // The one that is furthest behind its part.
        let behind = |at: &usize| done[*at].time.as_nanos() / u128::from(suites[*at].part);
        let left = (0..suites.len()).filter(|at| campaign.runs.is_none_or(|runs| done[*at].begun < runs));
        let at = left.min_by_key(|at| (behind(at), done[*at].begun))?;
        done[at].begun += 1;
        Some((at, campaign.seed.wrapping_add(done[at].begun - 1)))
    };
    let under_way = Mutex::new(vec![None; campaign.threads.max(1)]);
    let under_way = &|| under_way.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    thread::scope(|scope| {
        let worker = |thread: usize| {
            scope.spawn(move || {
                while let Some((at, seed)) = next() {
                    let since = Instant::now();
                    under_way()[thread] = Some((suites[at].name, seed, since));
                    let ended = suites[at].run_all(seed);
                    under_way()[thread] = None;
                    let mut done = lock();
                    done[at].time += since.elapsed();
                    done[at].tally.add_all(&ended.tally);
                    done[at].broken.extend(ended.broken.map(|broken| (seed, broken)));
                }
            })
        };
        let workers: Vec<_> = (0..campaign.threads.max(1)).map(worker).collect();
        while !workers.iter().all(ScopedJoinHandle::is_finished) {
            thread::sleep(Duration::from_millis(20));
            let late = under_way().iter().flatten().find(|(.., since)| since.elapsed() > RUN_MAX).copied();
            if let Some((suite, seed, _)) = late {
                hangs(suite, seed);
            }
        }
    });
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.iter_mut().for_each(|one| one.broken.sort_by_key(|(seed, _)| *seed));
    done
}
