use alloc::vec::Vec;

use super::*;
use crate::time::us;

/// A backing that serves up to `servers` requests at once, each in about `each`, and the others after them.
struct Backing {
    servers: usize,
    each: Duration,
    /// The cost that each request beyond the first adds to all: threads that fight for a lock.
    friction: f64,
    random: u64,
    now: Instant,
    /// When those that are out end.
    out: Vec<Instant>,
}

impl Backing {
    fn new(servers: usize, each: Duration) -> Self {
        Self { servers, each, friction: 0.0, random: 1, now: Instant::ZERO, out: Vec::new() }
    }

    /// Asks as much as is allowed, for so long; how many requests ended.
    fn keep_busy(&mut self, concurrency: &mut Concurrency, length: Duration) -> u64 {
        let end = self.now + length;
        let mut ended = 0;
        while self.now < end {
            while self.out.len() < usize::from(concurrency.allowed()) {
                self.launch();
            }
            let first = (0..self.out.len()).min_by_key(|index| self.out[*index]).unwrap();
            self.now = self.now.max(self.out.swap_remove(first));
            concurrency.ended(self.now, 8, true);
            ended += 1;
        }
        ended
    }

    fn launch(&mut self) {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let jitter = 0.8 + 0.4 * (self.random >> 40) as f64 / (1 << 24) as f64;
        let slow = jitter * (1.0 + self.friction * self.out.len() as f64);
        let time = Duration::from_nanos((self.each.as_nanos() as f64 * slow) as u64);
        let mut ends = self.out.clone();
        ends.sort();
        let free = if ends.len() < self.servers { self.now } else { self.now.max(ends[ends.len() - self.servers]) };
        self.out.push(free + time);
    }
}

fn learned(backing: &mut Backing, settings: Settings) -> u16 {
    let mut concurrency = Concurrency::new(settings);
    backing.keep_busy(&mut concurrency, Duration::from_nanos(backing.each.as_nanos() * 8000));
    concurrency.level
}

/// concurrency.4
#[test]
fn a_backing_that_serves_one_at_a_time_is_given_one() {
    for each in [us(50), ms(1), ms(10)] {
        assert_eq!(learned(&mut Backing::new(1, each), Settings::default()), 1, "{each}");
    }
}

/// concurrency.1, concurrency.2
#[test]
fn a_backing_is_given_as_many_as_it_serves_at_once_and_no_more_than_allowed() {
    for (servers, level) in [(2, 2), (4, 4), (8, 8), (16, 16), (64, 16)] {
        assert_eq!(learned(&mut Backing::new(servers, ms(1)), Settings::default()), level, "{servers}");
    }
    let twelve = Settings { most: 12, ..Settings::default() };
    assert_eq!(learned(&mut Backing::new(64, ms(1)), twelve), 12);
}

#[test]
fn where_threads_fight_there_are_few() {
    let mut backing = Backing { friction: 0.2, ..Backing::new(2, us(100)) };
    assert_eq!(learned(&mut backing, Settings::default()), 2);
}

#[test]
fn what_is_fixed_is_not_learned() {
    let mut backing = Backing::new(1, us(100));
    assert_eq!(learned(&mut backing, Settings { most: 7, fixed: true }), 7);
}

/// concurrency.5
#[test]
fn a_backing_that_changes_is_learned_anew() {
    let mut backing = Backing::new(1, ms(1));
    let mut concurrency = Concurrency::new(Settings::default());
    backing.keep_busy(&mut concurrency, secs(10));
    assert_eq!(concurrency.level, 1);
    backing.servers = 16;
    backing.keep_busy(&mut concurrency, secs(10));
    assert_eq!(concurrency.level, 16);
    backing.servers = 2;
    backing.keep_busy(&mut concurrency, secs(10));
    assert_eq!(concurrency.level, 2);
}

/// concurrency.5: what is tried costs little once the level is found.
#[test]
fn trials_cost_a_backing_less_than_a_fiftieth_of_what_it_can_do() {
    for servers in [1, 2, 4, 16] {
        let mut backing = Backing::new(servers, us(200));
        let mut concurrency = Concurrency::new(Settings::default());
        backing.keep_busy(&mut concurrency, secs(5));
        let changes = concurrency.changes;
        let ended = backing.keep_busy(&mut concurrency, secs(10));
        let possible = servers as f64 * 10.0 / 200e-6;
        assert!(ended as f64 > 0.98 * possible, "{servers} at once: {ended} of {possible}");
        assert_eq!(concurrency.changes, changes, "hysteresis: a level that was found stays");
    }
}

/// concurrency.3
#[test]
fn a_load_that_never_fills_the_backing_teaches_nothing() {
    let mut concurrency = Concurrency::new(Settings::default());
    for n in 0..100_000 {
        concurrency.ended(Instant::ZERO + us(100 * n), 8, n % 7 != 0);
    }
    assert_eq!((concurrency.level, concurrency.changes), (4, 0));
}

/// concurrency.3
#[test]
fn a_trial_of_more_than_there_ever_is_ends() {
    let mut concurrency = Concurrency::new(Settings::default());
    let mut longest = 0;
    let mut row = 0;
    for n in 0..100_000 {
        let most = concurrency.allowed();
        row = if most > 4 { row + 1 } else { 0 };
        longest = longest.max(row);
        concurrency.ended(Instant::ZERO + us(100 * n), 8, most <= 4);
    }
    assert_eq!((concurrency.level, concurrency.changes), (4, 0));
    assert!(longest <= 64 * 8 + 1, "{longest} requests in a trial that could not end");
}
