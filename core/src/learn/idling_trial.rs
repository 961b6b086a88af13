//! Idling trial: does the device do more when it idles for the stream in service, or when it serves many streams at once?
//!
//! A lone disk that rotates does most when it reads on in one place: with two readers it moves 63 MB/s if it idles for the one in
//! service, and 19 MB/s if it goes back and forth. An array rotates too, but has a dozen arms, and idling leaves eleven of them
//! without work. Flash has no arm at all. Nothing that a device declares tells these apart.
//!
//! So both ways are tried, on the requests that come anyway. For 100 ms the device works the present way, for 100 ms the other way,
//! and so on; sectors per second are compared. A difference of two or three times is clear after one or two such pairs of windows; a
//! small one takes more and longer windows. The better way stays, and the trial comes again after 10 s, 20 s, 40 s …
//!
//! idling.1  Two ways are compared by sectors per time, in windows that alternate, so that a load that changes slowly is the same for
//!           both. A window begins when as many requests have ended as waited or were in the device at the change, for those were
//!           shaped by the other way; no earlier than `SETTLE` after it, and no later than the window is long.
//! idling.2  A window counts if at seven in eight of its completions another stream had something to do as well: a lone stream says
//!           nothing about many. After `SPOILT_MAX` windows that do not count, the trial is given up for a while.
//! idling.3  Windows are short at first, but so long that `ENDS` requests, and twice those that wait, would end in one, up to `LONGEST`. A
//!           short window may be off by the part of a round over all streams that does not fit into it, so it tells only large differences:
//!           a difference must exceed `BIAS` / length, besides three deviations of the mean. If `PAIRS` pairs leave it open, windows of
//!           twice the length follow, up to `LONGEST`; then the mean decides. They do not follow if the present way is the guess and the
//!           other does not look better by then; where the guess is not to idle, by the first pair. Two pairs that agree on nearly twice as
//!           much are enough; so is one that says three times (as much as before the trial, too, if that is known). The present way's rate
//!           is that of its windows, or of the time before the trial if that was more, because a way needs a while to be as good as it can
//!           be. So if idling is the present way of a load that reads on, and nothing is known from before, the other way is taken only if
//!           it does `EARLY` more, by the first length alone; else the trial comes again after `REST_OPEN`. (With less, lone disks that
//!           turns were right for went the other way for nine seconds.)
//! idling.4  The other way must do `MARGIN` more to be taken, so that two equal ways do not alternate; `MARGIN_FLASH` where not idling
//!           was the guess, for there idling costs streams that seek more than it can bring.
//! idling.5  A trial costs what the present way would have done in its time and was not done. The credit for that is at most
//!           `CREDIT_MAX` of device time, and one part in `COST` of the time under load is added to it. A trial that uses it up ends,
//!           and the way stays. So no more than one part in `COST` is lost, beyond the credit and a window.
//! idling.6  After a trial there is a rest: `REST_MIN`, or `REST_FLASH` where not idling was the guess and is right, or is right for a
//!           load that nearly all seeks. If nothing changed, the next rest is twice as long, up to `REST_MAX`.
//! idling.7  A rest ends early when the load or the device changes: for four windows of `WATCH` in a row the present way does a fifth
//!           more or less than it did (and more than its usual ups and downs explain), or another part of the requests seeks; or when
//!           the scheduler says so (`IdlingTrial::review`).
//! idling.8  Nothing is random: the same completions at the same times give the same ways.

use super::comparison::{Comparison, Proof, Rate, difference};
use crate::time::{ms, secs};
use crate::{Duration, Instant};

// Where nothing else is said, values are ours, and `benches/auto.py` holds them to `auto` within 5 % of the better fixed setting: 176 cells
// of 4 workloads, 11 disks and 1 to 8 jobs; the figures are in docs/tuning.md.

/// The shortest time from a change of way to the next window (idling.1): a seek and a revolution of a disk.
const SETTLE: Duration = ms(10);
/// The first length of a window (idling.3): CFQ's `slice_sync`, so that a turn fits into it.
const WINDOW: Duration = ms(100);
/// The longest length: the first, twice doubled.
const LONGEST: Duration = ms(400);
/// The most pairs of one length.
const PAIRS: u32 = 4;
/// The pairs that are enough for a trial that comes too early, if they do not point to a change.
const PAIRS_EARLY: u32 = 2;
/// By how much a window of one second may be off for its length (idling.3), as [`Comparison`] counts: 15 % in 100 ms, which is one turn of
/// 64 readers on `sata-7200`.
const BIAS: f64 = 0.015;
/// The difference that proves one pair, and each of two (idling.3): 3 times and 1.9 times.
const PLAIN: [f64; 2] = [0.5, 0.31];
/// The difference that an early trial needs to take another way (idling.3): 1.4 times. Lone disks that turns were right for looked as if
/// 1.21 to 1.24 times as much were to be had, and an array that gained from many at once 1.6 times and more.
const EARLY: f64 = difference(1.4);
/// The fewest completions of a window, if it need not be too long for that (idling.3).
const ENDS: u64 = 20;
/// The other way is taken from 4 % more on (idling.4), (1.04 − 1) / (1.04 + 1).
const MARGIN: f64 = 0.0196;
/// The same from 8 % on.
const MARGIN_FLASH: f64 = 0.0385;
/// Windows that do not count, until a trial is given up (idling.2).
const SPOILT_MAX: u32 = 4;
/// The credit of a trial (idling.5): a window of `LONGEST` in which the other way does nothing, and half of it again.
const CREDIT_MAX: Duration = ms(600);
/// The credit grows by one part in `COST` of the time under load: 2 %, the bound of docs/slice-idle.md.
const COST: u64 = 50;
/// The least credit with which a trial begins: a short window in which the other way does nothing, and half of it again.
const CREDIT_MIN: Duration = ms(150);
/// The shortest rest (idling.6).
const REST_MIN: Duration = secs(10);
/// The longest rest: the shortest, doubled four times.
const REST_MAX: Duration = secs(160);
/// The rest where not idling was the guess and is right: idling costs few bytes there, but milliseconds for streams that seek.
const REST_FLASH: Duration = secs(40);
/// The rest after a trial that came to nothing (idling.2).
const REST_SPOILT: Duration = secs(1);
/// The rest after a trial that came too early to tell (idling.3).
const REST_OPEN: Duration = secs(5);
/// The length of the windows between trials (idling.7): with four in a row, a second until a change is seen.
const WATCH: Duration = ms(250);
/// Windows in a row that must be unusual.
const UNUSUAL: u32 = 4;
/// The windows after a trial in which what is less than before it is part of its cost (idling.5): 2 s.
const AFTER: u32 = 8;

/// How to use a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// The device is held idle for a stream that will ask again soon.
    Idle,
    /// It is not: many are served at once.
    Parallel,
}

impl Way {
    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Idle => Self::Parallel,
            Self::Parallel => Self::Idle,
        }
    }
}

/// As reports call it: `idle`, `parallel`.
impl core::fmt::Display for Way {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Idle => "idle",
            Self::Parallel => "parallel",
        })
    }
}

/// The result of a trial.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Finding {
    /// When.
    pub at: Instant,
    /// The best way before and after.
    pub from: Way,
    /// See `from`.
    pub to: Way,
    /// Throughput with the device held idle, in KiB a second.
    pub idle: u64,
    /// Throughput without, in KiB a second.
    pub parallel: u64,
}

/// A request that ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct End {
    pub(crate) sectors: u64,
    /// Requests that wait or are in the device still.
    pub(crate) open: u32,
    /// Somebody else has something waiting or in the device (idling.2), and the way is in force.
    pub(crate) several: bool,
    /// The last request of its stream was a seek.
    pub(crate) seeks: bool,
}

/// By how much windows of such length may be off (idling.3).
fn bias(length: Duration) -> f64 {
    BIAS * 1e9 / length.as_nanos() as f64
}

#[derive(Clone, Copy, Debug)]
struct Window {
    /// It has begun, with a completion that is not counted. Before that `skip` requests of the other way are to end, and some time is to
    /// pass (idling.1).
    is_open: bool,
    skip: u32,
    start: Instant,
    until: Instant,
    rate: Rate,
    ends: u32,
    alone: u32,
    seeks: u32,
}

impl Window {
    /// A window that begins with the completion just seen.
    fn new(now: Instant, length: Duration) -> Self {
        Self { is_open: true, ..Self::later(now, length, 0) }
    }

    /// A window that begins once the requests of the other way have completed.
    const fn later(start: Instant, length: Duration, skip: u32) -> Self {
        let until = Instant::from_nanos(start.as_nanos().saturating_add(length.as_nanos()));
        Self { is_open: false, skip, start, until, rate: Rate { sectors: 0, nanos: 0 }, ends: 0, alone: 0, seeks: 0 }
    }

    /// A request ended before it began.
    fn open(&mut self, now: Instant) {
        if self.skip > 0 && now < self.until {
            self.skip -= 1;
        } else if now >= self.start {
            let length = self.until.since(self.start);
            (self.is_open, self.start, self.until) = (true, now, now + length);
        }
    }

    /// idling.2. A window with a pause in it counts as little as one that one stream had for itself most of the time.
    const fn counts(&self) -> bool {
        let length = self.until.since(self.start).as_nanos();
        8 * self.alone as u64 <= self.ends as u64 && self.rate.nanos <= 4 * length
    }

    /// Which of three kinds the load is of: little of it seeks, some, most (idling.7).
    const fn kind(&self) -> u8 {
        let (part, ends) = (8 * self.seeks as u64, self.ends as u64);
        if part <= ends {
            0
        } else if part < 7 * ends {
            1
        } else {
            2
        }
    }
}

#[derive(Clone, Copy, Default, Debug)]
struct Trial {
    began: Instant,
    length: Duration,
    comparison: Comparison,
    /// All sectors since it began.
    sectors: u64,
    spoilt: u32,
    ends: u64,
    seeks: u64,
}

impl Trial {
    /// Whether it comes too early to tell small differences (idling.3).
    fn is_early(&self) -> bool {
        self.comparison.before == 0.0 && 8 * self.seeks <= self.ends
    }
}

/// The usual rate of the present way (idling.7).
#[derive(Clone, Copy, Default, Debug)]
struct Usual {
    rate: f64,
    deviation: f64,
    /// Of the last windows, more or less.
    recent: f64,
    watched: u32,
    kind: Option<u8>,
    windows: u32,
    /// Windows in a row that were not so: of less, of more, of another kind.
    unusual: [u32; 3],
}

impl Usual {
    /// A window of the present way is over; answers whether something has changed.
    fn watch(&mut self, rate: f64, kind: u8) -> bool {
        let away = rate - self.rate;
        let distance = away.abs();
        let is_far = self.windows >= UNUSUAL && distance > 0.2 * self.rate && distance > 3.0 * self.deviation;
        let usual_kind = *self.kind.get_or_insert(kind);
        let unusual = [is_far && away < 0.0, is_far && away > 0.0, kind != usual_kind];
        for (count, is_unusual) in self.unusual.iter_mut().zip(unusual) {
            *count = if is_unusual { *count + 1 } else { 0 };
        }
        // The rate before a change does not count for it.
        let is_first = is_far && self.unusual[0] + self.unusual[1] == 1;
        self.watched = self.watched.saturating_add(1);
        self.recent += (rate - self.recent) / if is_first { 1.0 } else { f64::from(self.watched.min(UNUSUAL)) };
        if !is_far {
            let part = if self.windows < 8 { 1.0 / f64::from(self.windows + 1) } else { 0.125 };
            self.rate += away * part;
            self.deviation += (distance - self.deviation) * part;
            self.windows += 1;
        }
        self.has_changed()
    }

    /// The rate of the present way, if known.
    fn before(&self) -> f64 {
        if self.watched >= UNUSUAL { self.recent.max(self.rate) } else { 0.0 }
    }

    fn has_changed(&self) -> bool {
        self.unusual.iter().any(|count| *count >= UNUSUAL)
    }
}

/// The estimator: see the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct IdlingTrial {
    /// The way found best, and that before any trial.
    pub(super) base: Way,
    guess: Way,
    trial: Option<Trial>,
    window: Window,
    due: Instant,
    rest: Duration,
    /// The allowed cost of a trial, in nanoseconds (idling.5).
    credit: u64,
    credited: Instant,
    /// Windows of [`WATCH`] after a trial that are still paid for, and the throughput before it.
    after: u32,
    reference: f64,
    usual: Usual,
    found: Option<Finding>,
    pub(crate) trials: u64,
}

impl IdlingTrial {
    /// With what is thought right before anything was tried.
    pub(crate) fn new(guess: Way) -> Self {
        Self {
            base: guess,
            guess,
            trial: None,
            window: Window::later(Instant::ZERO, WATCH, 0),
            due: Instant::ZERO,
            rest: REST_MIN,
            credit: CREDIT_MAX.as_nanos(),
            credited: Instant::ZERO,
            after: 0,
            reference: 0.0,
            usual: Usual::default(),
            found: None,
            trials: 0,
        }
    }

    #[inline]
    pub(crate) const fn way(&self) -> Way {
        match &self.trial {
            Some(trial) if trial.comparison.is_other => self.base.other(),
            _ => self.base,
        }
    }

    pub(crate) const fn take_finding(&mut self) -> Option<Finding> {
        self.found.take()
    }

    /// The load is another, as the scheduler knows (idling.7): it is looked at again as soon as it is known what it does this way.
    pub(crate) fn review(&mut self) {
        if self.trial.is_none() {
            let soon = self.window.until + Duration::from_nanos(u64::from(UNUSUAL) * WATCH.as_nanos());
            (self.due, self.rest, self.usual) = (self.due.min(soon), REST_MIN, Usual::default());
        }
    }

    /// Takes the device for another kind, and tries it anew from that guess.
    pub(crate) fn guess(&mut self, now: Instant, guess: Way) {
        self.trial = None;
        (self.base, self.guess, self.due, self.rest) = (guess, guess, now, REST_MIN);
        (self.window, self.usual) = (Window::new(now, WATCH), Usual::default());
    }

    /// A request ended. Answers whether another way is to go from now on, or a trial found something.
    #[inline]
    pub(crate) fn ended(&mut self, now: Instant, end: End) -> bool {
        if let Some(trial) = &mut self.trial {
            trial.sectors += end.sectors;
        }
        let window = &mut self.window;
        if !window.is_open {
            window.open(now);
            return false;
        }
        window.rate.sectors += end.sectors;
        window.ends += 1;
        window.alone += u32::from(!end.several);
        window.seeks += u32::from(end.seeks);
        if now < window.until {
            return false;
        }
        self.window_is_over(now, end.open)
    }

    #[cold]
    fn window_is_over(&mut self, now: Instant, open: u32) -> bool {
        let mut window = self.window;
        window.rate.nanos = now.since(window.start).as_nanos();
        let before = self.way();
        let rate = window.rate.get();
        // A pause of hours earns no more than the window that it makes long.
        let passed = now.since(self.credited).as_nanos() / COST;
        self.credited = now;
        if window.counts() {
            self.credit = (self.credit + passed).min(CREDIT_MAX.as_nanos());
        }
        match &mut self.trial {
            Some(trial) if !window.counts() => {
                trial.spoilt += 1;
                if trial.spoilt >= SPOILT_MAX {
                    self.give_up(now);
                }
            }
            Some(trial) => {
                trial.ends += u64::from(window.ends);
                trial.seeks += u64::from(window.seeks);
                if !trial.comparison.add(window.rate) {
                    self.first_is_over(now);
                } else {
                    self.pair_is_over(now, rate);
                }
            }
            None if window.counts() => {
                self.pay_after(&window);
                let changed = self.usual.watch(rate, window.kind());
                if changed {
                    self.due = now;
                    self.rest = REST_MIN; // idling.7
                    // The present rate is the usual one from now on.
                    let recent = self.usual.recent;
                    self.usual = Usual { rate: recent, recent, watched: UNUSUAL, windows: 1, ..Usual::default() };
                }
                if now >= self.due && self.credit >= CREDIT_MIN.as_nanos() {
                    let each = window.rate.nanos / u64::from(window.ends.max(1));
                    self.start(now, Duration::from_nanos(each.saturating_mul(ENDS.max(2 * u64::from(open)))));
                }
            }
            None => {}
        }
        let length = self.trial.as_ref().map_or(WATCH, |trial| trial.length);
        self.window = match self.way() == before {
            true => Window::new(now, length),
            false => Window::later(now + SETTLE, length, open),
        };
        self.way() != before || self.found.is_some()
    }

    /// `enough` is how long it takes that [`ENDS`] requests end, and twice those that wait or are in the device: so each stream
    /// is served in a window, most likely.
    fn start(&mut self, now: Instant, enough: Duration) {
        self.trials += 1;
        self.trial = Some(Trial {
            began: now,
            length: enough.clamp(WINDOW, LONGEST),
            comparison: Comparison::new(self.usual.before()),
            ..Trial::default()
        });
    }

    /// The cost of the trial so far, in nanoseconds (idling.5).
    fn cost(trial: &Trial, now: Instant) -> u64 {
        let rate = trial.comparison.usual();
        let done = if rate > 0.0 { (trial.sectors as f64 / rate) as u64 } else { 0 };
        now.since(trial.began).as_nanos().saturating_sub(done)
    }

    /// The cost of a finished trial: turns need a while to be as good as before (idling.5).
    fn pay_after(&mut self, window: &Window) {
        let (nanos, rate) = (window.rate.nanos as f64, window.rate.get());
        if self.after > 0 {
            self.after -= 1;
            self.credit = self.credit.saturating_sub((nanos * (1.0 - rate / self.reference).max(0.0)) as u64);
        }
    }

    /// The present way's window of a pair is over: the trial goes on if it may cost more (idling.5).
    fn first_is_over(&mut self, now: Instant) {
        let Some(trial) = &self.trial else { return };
        let cost = Self::cost(trial, now);
        if trial.comparison.pairs > 0 && cost > self.credit {
            self.decide(now, false, cost);
        }
    }

    /// A pair is over, with this rate of the other way (idling.3).
    fn pair_is_over(&mut self, now: Instant, rate: f64) {
        let margin = if self.is_flash() { MARGIN_FLASH } else { MARGIN };
        let Some(trial) = &mut self.trial else { return };
        let cost = Self::cost(trial, now);
        // A single pair with a bad moment of the present way proves nothing against what that did before.
        let is_moment = trial.comparison.pairs == 1 && rate < 3.0 * trial.comparison.before;
        let (mean, pairs) = (trial.comparison.mean(), trial.comparison.pairs);
        // The early rate of turns is the least that they reach.
        let came_early = trial.is_early();
        let is_early = came_early && self.base == Way::Idle;
        let proof = Proof { margin, bias: bias(trial.length), plain: Some(PLAIN) };
        let verdict =
            trial.comparison.verdict(&proof).filter(|better| !(*better && (is_moment || is_early && mean < EARLY)));
        let is_last = match is_early {
            true => pairs >= if mean < PLAIN[1] / 2.0 { PAIRS_EARLY } else { PAIRS },
            false => pairs >= PAIRS && trial.length == LONGEST,
        };
        let is_round = pairs >= PAIRS;
        let is_hopeless = self.base == self.guess && mean < margin && (is_round || self.base == Way::Parallel);
        if let Some(better) = verdict {
            self.decide(now, better, cost);
        } else if is_last {
            self.decide(now, mean > if is_early { EARLY } else { margin }, cost);
            if is_early {
                (self.due, self.rest) = (now + REST_OPEN, REST_MIN);
            }
        } else if cost > self.credit || is_hopeless {
            self.decide(now, false, cost);
            if came_early {
                (self.due, self.rest) = (now + REST_OPEN, REST_MIN);
            }
        } else if is_round {
            trial.length = Duration::from_nanos(2 * trial.length.as_nanos()).min(LONGEST);
            trial.comparison.begin_anew();
        }
    }

    /// Not to idle was the guess, and is thought right still (idling.4, idling.6).
    fn is_flash(&self) -> bool {
        (self.base, self.guess) == (Way::Parallel, Way::Parallel)
    }

    fn decide(&mut self, now: Instant, better: bool, cost: u64) {
        let Some(trial) = self.trial.take() else { return };
        let from = self.base;
        let [present, other] = trial.comparison.rates.map(Rate::kib);
        self.credit = self.credit.saturating_sub(cost);
        (self.after, self.reference) = (if better { 0 } else { AFTER }, trial.comparison.before.max(f64::MIN_POSITIVE));
        if better {
            self.base = from.other();
            self.rest = REST_MIN;
            self.usual = Usual::default();
        }
        let (idle, parallel) = if from == Way::Idle { (present, other) } else { (other, present) };
        self.found = Some(Finding { at: now, from, to: self.base, idle, parallel });
        let all_seek = self.base == Way::Parallel && 8 * trial.seeks >= 7 * trial.ends;
        if !better && (self.is_flash() || all_seek) {
            self.rest = self.rest.max(REST_FLASH);
        }
        self.due = now + self.rest; // idling.6
        self.rest = Duration::from_nanos(2 * self.rest.as_nanos()).min(REST_MAX);
    }

    fn give_up(&mut self, now: Instant) {
        let Some(trial) = self.trial.take() else { return };
        self.credit = self.credit.saturating_sub(Self::cost(&trial, now).min(CREDIT_MAX.as_nanos()));
        self.due = now + REST_SPOILT;
    }
}

#[cfg(test)]
mod tests;
