//! Depth: how many requests throughput needs in the device, and the cost of fewer.
//!
//! The scheduler orders waiting requests by weight; the device orders its own. Two examples, on a disk that does 11,000 reads a
//! second with one request in it, 50,000 with 8, 79,000 with 32 and 99,000 with 64. A tenant with 40 % of the weight and 32
//! requests has 40 % of the requests in the device as long as these are no more than 80; of 128 it has a quarter. And a tenant with
//! a single request gets a tenth of its speed alone beside 63 others, and nearly half beside 7. The first is helped for nothing;
//! for the second throughput is given up, up to a bound.
//!
//! depth.1  A depth is one of some rungs, three for each doubling. For some rungs the disk's speed is known, relative to the others.
//!          Between two known rungs it is interpolated.
//! depth.2  The measure is the cost of the requests that ended in a window, by its time. A window is long enough for a disk that
//!          answers in lumps, each as large as the depth, to do so some times; twice, if it is slow. With few requests in it a disk
//!          does less than its best. Costs are those of a disk at its best, so for them such a window counts as shorter in proportion.
//! depth.3  Windows at the present depth and at another are compared as pairs, one right after the other, so that a disk
//!          that drifts is the same for both. A pair counts if at the lesser of the two depths requests waited for room.
//!          Requests that were sent at another depth are not counted.
//! depth.4  Twice and half the present depth are compared in turn, and sometimes the best known rung. Half
//!          as deep a disk does a fifth less, where a rung less would do 5 %: that is seen in a few pairs, though any two
//!          windows differ by as much. Where nothing waits, half of it alone is, and only for the sake of tenants. The more pairs in a row change nothing, the rarer they are: from every window to
//!          one in [`REST_MAX`]. But where a tenant is short that perhaps could do its part alone, half of the present depth is compared in every second window
//!          until it is known. Example: a tenant with 8 requests beside 32 was given two thirds of a slow disk, and had half of it for five
//!          seconds, because no depth below 16 was known.
//! depth.5  Throughput needs the least rung that does all but [`SLACK`] of the best rung's speed. For the sake of tenants there may be
//!          fewer (admission.3). Two depths bound that where weights are not exact. One does all but a stated part of the best, and lies
//!          on the line between two rungs that are known. The other is where the disk's speed bends: below it half as many requests do
//!          nearly half as much.
//!          Each is then served as soon as among all, and a tenant with few gains nothing by the others' loss.
//! depth.6  There may be fewer places than tenants that ask: the order says whose request has one. Example: a hundred tenants of weights
//!          1 to 4 with four requests each, and a disk that is full with 32. With a place for each they had shares by their outstanding requests,
//!          whatever their weights.
//! depth.7  A depth that the load does not reach is no limit, and is not compared.
//! depth.8  Time lost to a flush does not count in a window. A disk that stands still for 1 ms in every 2 seems slower at the depth
//!          at which it did so more often, and a reader beside commits had half of its share.
//! depth.9  A window in which far fewer requests were in the device than usual is not used to learn costs, though requests waited. Where
//!          large tenants go, their places are empty until the others have them, and the disk is half as fast as it can be meanwhile.
//!          Costs learned from such windows stayed wrong by a factor of ten for seconds.

mod handed;

use super::admission::Period;
use crate::time::ms;
use crate::{Duration, Instant};

/// The rungs (depth.1): 1 and 2^(n/3), each a whole number.
const RUNGS: [u16; 47] = [
    1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 32, 40, 51, 64, 81, 102, 128, 161, 203, 256, 323, 406, 512, 645, 813,
    1024, 1290, 1625, 2048, 2580, 3251, 4096, 5161, 6502, 8192, 10_321, 13_004, 16_384, 20_643, 26_008, 32_768, 41_285,
    52_016, 65_534, 65_535,
];
/// Where a device starts, in rungs. Chosen: 32, which a SATA disk's queue takes.
const FIRST: usize = 12;
/// The number of rungs from a depth down to half of it.
const HALF: usize = 3;
/// Fewer requests are of use to a tenant while half of a depth does at least this part of it (depth.5). The square root of a half: with
/// fewer it gains as much as all lose together.
const BENT: f64 = 0.71;
/// The throughput that may be lost for the sake of a lesser depth (depth.5): two windows in a row differ by more than that.
const SLACK: f64 = 0.02;
/// How much better another rung has to be. Chosen: enough that two that are alike do not alternate.
const BETTER: f64 = 0.005;
/// Pairs before a rung is known. Chosen.
const KNOWN: u32 = 4;
/// By how much a pair may differ from the known speed, as a factor. Chosen: far more than
/// noise, and far less than a disk that stalls for 10 ms, which makes one window ten times as long.
const STALL: f64 = 1.4;
/// A pair moves the known speed of a rung by at least one part in this many. Chosen: a disk that changed is known anew after some dozen
/// pairs.
const MEMORY: u32 = 12;
/// The most windows between two pairs (depth.4). Half as deep for one window in 32 costs less than 1 %.
const REST_MAX: u32 = 32;
/// The requests in a window: a multiple of the depth (depth.2), and a least number, as in a period of shares (admission.1). Chosen.
const LUMPS: u32 = 6;
pub(super) const WINDOW: u32 = 64;
/// A window that has lasted so long has enough with fewer lumps. Example: a disk does 230 reads of 256 KiB a second, and 192 of them
/// are most of a second; until some twenty such windows are over, weights hardly act. A period goes on for as long for a tenant without a
/// completion in it (admission.6). Chosen: a disk that moves an arm does some ten requests in that time.
pub(super) const LONG: Duration = ms(100);
const LUMPS_OF_LONG: u32 = 2;
/// The least time of a window, and the most requests by which it is made longer for that: what a disk does in less than 2 ms says
/// more about who was awake.
const WINDOW_TIME: Duration = ms(2);
const WINDOW_MOST: u32 = 4096;

/// A window with less than this part of the usual requests in the device is not used to learn costs; and each window moves the usual number
/// by one part in this many, or by half where it had more (depth.9). Chosen.
const FILLED: f64 = 0.65;
const USUAL: f64 = 32.0;

/// The learned depth: see the [module](self).
#[derive(Clone, Debug)]
pub(super) struct Depth {
    /// The highest rung that the device has.
    top: usize,
    /// The rung that throughput needs (depth.5).
    wanted: usize,
    /// How many places tenants fill at present, how many they have, and the rung nearest to the first.
    places: f64,
    all: f64,
    base: usize,
    /// The rung that the present window compares with `base`.
    probe: Option<usize>,
    rungs: [Rung; RUNGS.len()],
    /// The throughput of the last window at `base`, and whether requests waited in it.
    before: f64,
    before_is_full: bool,
    /// Windows to go before the next pair, and how many there are between two.
    left: u32,
    rest: u32,
    /// Which of the rungs of depth.4 is next.
    next: u32,
    /// The depth is given by a setting: no other is tried.
    given: Option<u32>,
    /// See [`Depth::set_held`].
    is_held: bool,
    /// The least rung that is no limit to the load.
    enough: usize,
    /// Tenants would have fewer places if it were known what that costs (depth.4).
    is_pressed: bool,
    /// And one of them is short that perhaps could do its part alone.
    is_urgent: bool,
    window: Window,
    trials: u64,
    /// How many are in the device in a window, of late (depth.9).
    usual: f64,
}

/// The findings on a rung (depth.1).
#[derive(Clone, Copy, Default, Debug)]
struct Rung {
    /// The disk's speed there, relative to the others.
    speed: f64,
    /// The number of pairs that it was found by.
    pairs: u32,
}

/// A measurement at one depth.
#[derive(Clone, Copy, Debug)]
struct Window {
    /// Requests still to end before it begins (depth.3).
    skip: u32,
    left: u32,
    size: u32,
    start: Instant,
    /// Nanoseconds of it that were lost to flushes and the like (depth.8).
    lost: u64,
    all: u64,
    /// Requests that ended while none waited.
    slack: u32,
    /// How many were in the device or waited, added up over all that ended.
    open: u64,
    /// How many were in the device, likewise.
    inside: u64,
}

/// The result of a window.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ended {
    /// It goes on.
    Open,
    /// It is over, and is not used, nor are the sums of its costs.
    Void,
    /// It is over: the time that its requests take a disk at its best, and the time that flushes took beside that (depth.8).
    Full { time: Duration, lost: Duration },
}

impl Depth {
    /// For a device that takes `most` at once.
    pub(super) fn new(most: u32) -> Self {
        let top = top_of(most);
        let base = FIRST.min(top);
        let mut rungs = [Rung::default(); RUNGS.len()];
        rungs[base] = Rung { speed: 1.0, pairs: KNOWN };
        let (window, places) = (Window::new(RUNGS[base].into(), 0), f64::from(RUNGS[base]));
        Self {
            top,
            wanted: base,
            places,
            all: places,
            base,
            probe: None,
            rungs,
            before: 0.0,
            before_is_full: false,
            left: 1,
            rest: 1,
            next: 0,
            given: None,
            is_held: false,
            enough: top,
            is_pressed: false,
            is_urgent: false,
            window,
            trials: 0,
            usual: 0.0,
        }
    }

    /// How many may be in the device now.
    #[inline]
    pub(super) fn limit(&self) -> u32 {
        let all = || ((self.all + 0.5) as u32).clamp(1, RUNGS[self.top].into());
        self.given.or(self.probe.map(|probe| RUNGS[probe].into())).unwrap_or_else(all)
    }

    /// The depth on trial, if there is one.
    pub(super) fn trial(&self) -> Option<f64> {
        self.probe.map(|probe| RUNGS[probe].into())
    }

    /// How many throughput needs (depth.5).
    pub(super) fn wanted(&self) -> u32 {
        self.given.unwrap_or(RUNGS[self.wanted].into())
    }

    /// The requests with which the disk does all but this part of its best, as far as rungs are known; a depth that
    /// is given is that (depth.5). A whole number: of 2.4 requests two would be in the device, which lose more than may be lost.
    pub(super) fn floor(&self, part: f64) -> f64 {
        if let Some(given) = self.given {
            return given.into();
        }
        let lowest = self.lowest();
        let enough = self.at(self.best().min(self.enough)) * (1.0 - part);
        let mut at = self.wanted;
        while at > lowest && self.at(at - 1) >= enough {
            at -= 1;
        }
        let (mut depth, does) = (f64::from(RUNGS[at]), self.at(at));
        if at > lowest && does > enough {
            let (less, low) = (f64::from(RUNGS[at - 1]), self.at(at - 1));
            depth = less + (depth - less) * (enough - low) / (does - low);
        }
        let whole = f64::from(depth as u32);
        if whole < depth { whole + 1.0 } else { whole }
    }

    /// The least depth whose half still does most of its work (depth.5); at most the floor for this part.
    pub(super) fn bend(&self, part: f64) -> f64 {
        if self.given.is_some() {
            return self.floor(part);
        }
        let lowest = self.lowest();
        let mut at = self.wanted;
        while at >= lowest + HALF && self.at(at - HALF) >= BENT * self.at(at) {
            at -= 1;
        }
        f64::from(RUNGS[at]).min(self.floor(part))
    }

    /// The least rung that is known.
    fn lowest(&self) -> usize {
        (0..=self.top).find(|at| self.is_known(*at)).unwrap_or(self.wanted.min(self.top))
    }

    /// The part of its best that the disk does at a depth, least and most. Below the lowest known rung each request is served as fast as
    /// there, or faster, but all together are not.
    pub(super) fn does(&self, open: f64) -> (f64, f64) {
        let best = self.rungs[self.best()].speed;
        let lowest = self.lowest();
        let least = f64::from(RUNGS[lowest]);
        if open < least {
            let most = self.at(lowest) / best;
            return (most * open / least, most);
        }
        let above = self.rung(open).max(1);
        let (less, more) = (f64::from(RUNGS[above - 1]), f64::from(RUNGS[above]));
        let (low, high) = (self.at(above - 1), self.at(above));
        let speed = low + (high - low) * ((open - less) / (more - less)).clamp(0.0, 1.0);
        let part = (speed / best).min(1.0);
        (part, part)
    }

    /// How many places tenants fill, as a whole number.
    pub(super) fn present(&self) -> u32 {
        (self.places + 0.5) as u32
    }

    /// How many places tenants have.
    pub(super) fn set_places(&mut self, period: &Period) {
        self.is_pressed = period.is_pressed;
        self.is_urgent = period.is_urgent;
        self.place(period.places, period.all);
    }

    fn place(&mut self, places: f64, all: f64) {
        let most = f64::from(RUNGS[self.top]);
        self.all = all.min(self.wanted().into()).clamp(1.0, most);
        self.places = places.clamp(1.0, self.all);
        let above = self.rung(self.places);
        let is_below = above > 0 && f64::from(RUNGS[above]) * f64::from(RUNGS[above - 1]) > self.places * self.places;
        self.base = above - usize::from(is_below);
    }

    /// The device takes `most` at once from now on. Findings on rungs stay, also on rungs beyond `most`.
    pub(super) fn set_most(&mut self, most: u32) {
        let top = top_of(most);
        if self.enough == self.top || self.enough > top {
            self.enough = top;
        }
        let has_less = self.limit() > RUNGS[top].into() || self.wanted > top;
        self.top = top;
        if has_less {
            self.wanted = self.wanted.min(top);
            self.know(self.wanted);
            self.place(self.places, self.all);
            self.resume();
        }
    }

    /// It was not asked for a while, or its limit is another: what was being measured is measured anew.
    pub(super) fn resume(&mut self) {
        self.probe = None;
        let depth = self.limit();
        self.window = Window::new(depth, depth);
    }

    /// Whether a setting gives the depth, and which. Then no other is tried, and costs are learned at this one.
    pub(super) fn set_given(&mut self, given: Option<u32>) {
        self.given = given;
        if given.is_some() {
            self.probe = None;
        }
    }

    /// Whether a setting gives the depth.
    pub(super) const fn is_given(&self) -> bool {
        self.given.is_some()
    }

    /// Whether no other depth is tried, for the sake of a latency (fair.12).
    pub(super) fn set_held(&mut self, is_held: bool) {
        if core::mem::replace(&mut self.is_held, is_held) != is_held && is_held {
            self.resume();
        }
    }

    #[inline]
    pub(super) const fn is_held(&self) -> bool {
        self.is_held
    }

    /// How many windows were compared.
    pub(super) const fn trials(&self) -> u64 {
        self.trials
    }

    /// The load is another: what is known says less, and is measured again soon.
    pub(super) fn review(&mut self) {
        for rung in &mut self.rungs {
            rung.pairs = rung.pairs.min(KNOWN);
        }
        self.rest = 1;
        self.left = self.left.min(1);
    }

    /// A flush, or the like, took so long until now, and kept the disk from all else for a part of it (depth.8).
    pub(super) fn lost(&mut self, now: Instant, took: Duration, lost: Duration) {
        let within = now.since(self.window.start).as_nanos().min(took.as_nanos());
        let lost = u128::from(lost.as_nanos()) * u128::from(within) / u128::from(took.as_nanos().max(1));
        self.window.lost += lost as u64;
    }

    /// A request of this cost ended, while `in_flight` were in the device and `waiting` waited.
    #[inline]
    pub(super) fn ended(&mut self, now: Instant, cost: u32, in_flight: u32, waiting: u32) -> Ended {
        let window = &mut self.window;
        if window.skip > 0 {
            window.skip -= 1;
            (window.start, window.lost) = (now, 0);
            return if window.skip == 0 { Ended::Void } else { Ended::Open };
        }
        window.all += u64::from(cost);
        window.slack += u32::from(waiting == 0);
        window.open += u64::from(in_flight + waiting);
        window.inside += u64::from(in_flight);
        window.left -= 1;
        if window.left > 0 && !window.is_cut(now) {
            return Ended::Open;
        }
        if now.since(window.start) < WINDOW_TIME && window.size < WINDOW_MOST {
            window.left = WINDOW;
            window.size += WINDOW;
            return Ended::Open;
        }
        self.window_ends(now)
    }

    #[cold]
    fn window_ends(&mut self, now: Instant) -> Ended {
        let Window { size, start, lost, all, slack, open, inside, .. } = self.window;
        let time = Duration::from_nanos(now.since(start).as_nanos().saturating_sub(lost));
        let before = self.limit();
        let was_probe = self.probe.take();
        let is_full = slack <= size / 8;
        let nanos = (time.as_nanos() as f64).max(1.0);
        let (_, part) = self.does(was_probe.map_or(self.places, |probe| RUNGS[probe].into()));
        let speed = all as f64 / nanos;
        match was_probe {
            None => self.base_ended(speed, is_full, (open / u64::from(size)) as f64),
            // depth.3
            Some(probe) if if probe < self.here() { is_full } else { self.before_is_full } => self.learn(speed, probe),
            Some(_) => {}
        }
        let is_filled = was_probe.is_some() || self.note_filled(inside as f64 / f64::from(size));
        let after = self.limit();
        let skip = if was_probe == self.probe { 0 } else { before.max(after) };
        self.window = Window { start: now, ..Window::new(before.max(after), skip) };
        match is_full && is_filled && time > Duration::ZERO {
            true => Ended::Full { time: Duration::from_nanos((nanos * part) as u64), lost: Duration::from_nanos(lost) },
            false => Ended::Void,
        }
    }

    /// Whether a window with this many requests in the device had about as many as usual (depth.9).
    fn note_filled(&mut self, inside: f64) -> bool {
        let is_filled = inside >= FILLED * self.usual;
        self.usual += (inside - self.usual) / if inside > self.usual { 2.0 } else { USUAL };
        is_filled
    }

    /// The rung that the load reaches of the present one (depth.7).
    fn here(&self) -> usize {
        self.base.min(self.enough)
    }

    fn base_ended(&mut self, speed: f64, is_full: bool, open: f64) {
        (self.before, self.before_is_full) = (speed, is_full);
        self.enough = self.rung(open);
        // Where nothing waits, more would do nothing.
        if self.given.is_some() || self.is_held || !is_full && !self.is_pressed {
            return;
        }
        self.left = self.left.saturating_sub(1);
        let half = self.here().saturating_sub(HALF);
        if self.is_urgent && half < self.here() && !self.is_known(half) {
            self.probe = Some(half);
        } else if self.left == 0 {
            self.probe = self.choose();
            self.left = self.rest;
        }
    }

    fn learn(&mut self, speed: f64, probe: usize) {
        self.trials += 1;
        let here = self.here();
        self.know(here);
        let (base, known) = (self.rungs[here].speed, self.at(probe));
        let rung = &mut self.rungs[probe];
        rung.pairs = (rung.pairs + 1).min(MEMORY);
        let part = 1.0 / f64::from(rung.pairs);
        let found = base * speed / self.before.max(1e-9);
        rung.speed += part * (found.clamp(known / STALL, known * STALL) - rung.speed);
        let was = self.wanted;
        self.decide();
        self.rest = if self.wanted.abs_diff(was) <= 1 { (self.rest + self.rest.div_ceil(4)).min(REST_MAX) } else { 1 };
        self.left = self.rest;
    }

    /// depth.4: the next rung to compare, if there is one that the load reaches.
    fn choose(&mut self) -> Option<usize> {
        let here = self.here();
        for _ in 0..4 {
            let rung = match self.next % 8 {
                _ if !self.before_is_full => here.saturating_sub(HALF),
                3 => self.best(),
                even if even % 2 == 0 => here + HALF,
                _ => here.saturating_sub(HALF),
            };
            self.next += 1;
            let rung = rung.min(self.enough);
            if rung != here {
                return Some(rung);
            }
        }
        None
    }

    /// The device's least rung of at least this depth, or else its highest.
    fn rung(&self, depth: f64) -> usize {
        RUNGS[..self.top].iter().position(|rung| f64::from(*rung) >= depth).unwrap_or(self.top)
    }

    fn is_known(&self, at: usize) -> bool {
        at <= self.top && self.rungs[at].pairs >= KNOWN
    }

    /// A rung that is known by its neighbours counts as known by itself.
    fn know(&mut self, at: usize) {
        self.rungs[at] = Rung { speed: self.at(at), pairs: self.rungs[at].pairs.max(KNOWN) };
    }

    /// A rung's speed: its own, or one between those of the rungs above and below it that are known (depth.1).
    fn at(&self, at: usize) -> f64 {
        let below = (0..=at).rev().find(|at| self.is_known(*at));
        let above = (at..=self.top).find(|at| self.is_known(*at));
        let (Some(from), Some(to)) = (below.or(above), above.or(below)) else {
            // All that are known are beyond what the device takes now.
            return self.rungs.iter().find(|rung| rung.pairs >= KNOWN).map_or(1.0, |rung| rung.speed);
        };
        let (low, high) = (self.rungs[from].speed, self.rungs[to].speed);
        if from == to { low } else { low + (at - from) as f64 / (to - from) as f64 * (high - low) }
    }

    /// The rung where the disk does most, of those that are known.
    fn best(&self) -> usize {
        let better = |best: usize, at: usize| if self.rungs[at].speed > self.rungs[best].speed { at } else { best };
        (0..=self.top).filter(|at| self.is_known(*at)).fold(self.base, better)
    }

    /// depth.5
    fn decide(&mut self) {
        // Of what is known: what is beyond it comes when that is known.
        let known = |at: &usize| self.is_known(*at);
        let low = (0..=self.enough).find(known).unwrap_or(self.wanted);
        let high = (0..=self.enough).rev().find(known).unwrap_or(self.wanted);
        // A depth that the load does not reach is as fast as this one.
        let most = self.at(self.best().min(self.enough));
        let is_enough = |at: &usize| {
            let margin = if *at < self.wanted { 1.0 + BETTER } else { 1.0 - BETTER };
            self.at(*at) >= most * (1.0 - SLACK) * margin
        };
        let to = (low..=high).find(is_enough).unwrap_or(high);
        self.know(to);
        self.wanted = to;
    }
}

/// The highest rung of a device that takes `most` at once.
fn top_of(most: u32) -> usize {
    RUNGS.iter().rposition(|rung| u32::from(*rung) <= most.max(1)).unwrap_or(0)
}

impl Window {
    const fn new(depth: u32, skip: u32) -> Self {
        let size = if LUMPS * depth > WINDOW { LUMPS * depth } else { WINDOW };
        Self { skip, left: size, size, start: Instant::ZERO, lost: 0, all: 0, slack: 0, open: 0, inside: 0 }
    }

    /// Cuts it short if it lasts so long that a few lumps are enough; whether it did.
    fn is_cut(&mut self, now: Instant) -> bool {
        let done = self.size - self.left;
        let is_enough = LUMPS * done >= LUMPS_OF_LONG * self.size && now.since(self.start) >= LONG;
        if is_enough {
            (self.size, self.left) = (done, 0);
        }
        is_enough
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::time::us;

    impl Depth {
        /// Tenants fill as many places as they may have: what throughput needs.
        fn fill(&mut self, is_pressed: bool) {
            let places = self.wanted().into();
            self.set_places(&Period { places, all: places, is_pressed, is_urgent: false, changed: false });
        }
    }

    /// A device's speed by the requests in it, in thousands a second: the rungs' figures, and between them by line.
    #[derive(Clone, Copy)]
    struct Device(&'static [(u32, f64)]);

    /// A virtual disk: reads of 4 KiB.
    const DISK: Device =
        Device(&[(1, 11.0), (2, 20.0), (4, 36.0), (8, 50.0), (16, 62.0), (32, 79.0), (64, 99.0), (256, 99.0)]);
    /// Large writes: the fewer, the better, but for the first few.
    const LARGE: Device = Device(&[(1, 2.0), (4, 5.5), (8, 6.0), (16, 5.4), (64, 4.6), (256, 4.0)]);
    /// It is full with 12.
    const EARLY: Device = Device(&[(1, 10.0), (12, 90.0), (256, 91.0)]);

    impl Device {
        fn at(self, depth: u32) -> f64 {
            let above = self.0.iter().position(|(at, _)| *at >= depth).unwrap();
            let (to, high) = self.0[above];
            if above == 0 || to == depth {
                return high;
            }
            let (from, low) = self.0[above - 1];
            low + (high - low) * f64::from(depth - from) / f64::from(to - from)
        }
    }

    /// A load that keeps a number of requests open.
    struct Load {
        depth: Depth,
        device: Device,
        open: u32,
        now: f64,
        /// How the device drifts: by which part, and in how many milliseconds there and back.
        drift: (f64, f64),
        /// Completions, and the wanted depth at each thousandth of them.
        ends: u64,
        seen: Vec<u32>,
        is_pressed: bool,
    }

    impl Load {
        fn new(device: Device, most: u32, open: u32) -> Self {
            let depth = Depth::new(most);
            Self { depth, device, open, now: 0.0, drift: (0.0, 1.0), ends: 0, seen: Vec::new(), is_pressed: false }
        }

        fn run(&mut self, ends: u32) -> &mut Self {
            for _ in 0..ends {
                let inside = self.open.min(self.depth.limit());
                let (part, period) = self.drift;
                let phase = self.now / 1e6 % period / period;
                let drift = 1.0 + part * if phase < 0.5 { 4.0 * phase - 1.0 } else { 3.0 - 4.0 * phase };
                self.now += 1e6 / (self.device.at(inside) * drift);
                let now = Instant::from_nanos(self.now as u64);
                let _ = self.depth.ended(now, 10_000, inside, self.open - inside);
                self.depth.fill(self.is_pressed);
                self.ends += 1;
                if self.ends.is_multiple_of(1000) {
                    self.seen.push(self.depth.wanted());
                }
            }
            self
        }

        /// The device's speed where the depth settled, by the most that it can do.
        fn part(&self) -> f64 {
            let most = (1..=256).map(|depth| self.device.at(depth)).fold(0.0, f64::max);
            self.device.at(self.depth.wanted()) / most
        }
    }

    /// depth.5
    #[test]
    fn the_depth_is_what_throughput_needs_while_no_tenant_needs_less() {
        for (device, depths) in [(DISK, 64..=64), (EARLY, 12..=16), (LARGE, 6..=12)] {
            for most in [64, 256] {
                let mut load = Load::new(device, most, 256);
                load.run(300_000);
                assert!(depths.contains(&load.depth.wanted()), "{} of {most}", load.depth.wanted());
                assert!(load.part() >= 0.96, "{:.2} of what it can do", load.part());
            }
        }
    }

    /// depth.2, depth.4: for a tenant that lacks, though nothing waits.
    #[test]
    fn a_disk_that_is_slow_is_known_within_seconds() {
        let slow = Device(&[(1, 0.2), (2, 0.23), (256, 0.23)]);
        let mut load = Load { is_pressed: true, ..Load::new(slow, 64, 32) };
        while load.depth.wanted() > 21 && load.now < 6e9 {
            load.run(1);
        }
        assert!(load.depth.wanted() <= 21, "still {} after {:.1} s", load.depth.wanted(), load.now / 1e9);
    }

    /// depth.5: and no deeper than the device allows.
    #[test]
    fn the_depth_is_never_more_than_the_device_takes() {
        for most in [1, 2, 5, 31, 33, 100] {
            let mut load = Load::new(DISK, most, 256);
            for _ in 0..2000 {
                load.run(20);
                assert!(load.depth.limit() <= most && load.depth.wanted() <= most, "{} of {most}", load.depth.limit());
            }
        }
    }

    /// fair.10
    #[test]
    fn what_is_known_of_the_device_outlasts_a_time_with_fewer_places() {
        let mut load = Load::new(DISK, 128, 256);
        load.run(300_000);
        assert_eq!(load.depth.wanted(), 64);
        for most in [127, 128, 70] {
            load.depth.set_most(most);
            assert_eq!(load.depth.wanted(), 64, "{most} are enough for it");
        }
        load.depth.set_most(20);
        for _ in 0..2000 {
            assert!(load.depth.limit() <= 20, "{} of 20", load.depth.limit());
            load.run(20);
        }
        load.depth.set_most(128);
        load.run(100_000);
        assert!((64..=81).contains(&load.depth.wanted()), "{}: it is found again soon", load.depth.wanted());
    }

    /// fair.10: it had a speed of zero, and so had all depths.
    #[test]
    fn a_device_that_takes_fewer_than_any_known_depth_has_a_speed() {
        let mut depth = Depth::new(20);
        depth.place(5.0, 5.0);
        depth.set_most(1);
        assert!(depth.at(0) > 0.0 && depth.does(1.0).1 == 1.0, "{} at one", depth.at(0));
    }

    /// depth.5: between the rungs that are known, and not below where the disk's speed bends.
    #[test]
    fn for_the_sake_of_tenants_there_may_be_fewer_as_far_as_is_known() {
        let mut load = Load::new(DISK, 64, 128);
        load.run(300_000);
        for (part, depths) in [(0.0, 58.0..=64.0), (0.15, 38.0..=46.0), (0.2, 30.0..=36.0)] {
            let floor = load.depth.floor(part);
            assert!(depths.contains(&floor), "{floor:.1} for {part}");
        }
        let lowest = f64::from(RUNGS[load.depth.lowest()]);
        assert!((lowest..=lowest + 1.0).contains(&load.depth.floor(0.9)), "what is not known is not tried");
        assert!(load.depth.bend(0.0) <= 2.0 * lowest, "half does four fifths everywhere: {}", load.depth.bend(0.0));
        // Half as many do half as much below 12.
        let mut load = Load::new(EARLY, 64, 128);
        load.run(300_000);
        assert!(load.depth.bend(0.0) >= 10.0, "{}", load.depth.bend(0.0));
    }

    /// depth.1: a tenant's speed alone with its outstanding requests.
    #[test]
    fn what_the_disk_does_with_fewer_requests_is_known_or_bounded() {
        let mut load = Load::new(DISK, 64, 128);
        load.run(300_000);
        let (least, most) = load.depth.does(40.0);
        assert!(least == most && (0.8..0.9).contains(&most), "{least:.2} to {most:.2}, and it does 84 of 99");
        let (least, most) = load.depth.does(1.0);
        assert!(least < 0.11 && most > 0.11, "{least:.2} to {most:.2}, and it does 11 of 99");
        assert_eq!(load.depth.does(1e6).1, 1.0);
    }

    /// depth.3: a disk that is half as fast again now and then is the same for both windows of a pair.
    #[test]
    fn a_disk_that_drifts_does_not_move_the_depth() {
        for drift in [(0.1, 700.0), (0.3, 3000.0)] {
            let mut load = Load::new(DISK, 64, 128);
            load.drift = drift;
            load.run(600_000);
            load.seen.clear();
            load.run(300_000);
            assert!(load.seen.iter().all(|depth| *depth >= 48), "{drift:?}: {:?}", load.seen);
        }
    }

    /// depth.8: of a flush that began before the window, what is in it.
    #[test]
    fn what_a_flush_took_is_no_part_of_a_window() {
        let mut depth = Depth::new(32);
        depth.set_given(Some(32));
        let mut now = Instant::ZERO;
        let mut times = Vec::new();
        for n in 0..6 * 192 {
            now += us(50);
            // The second window is half a millisecond old by the end of this.
            if n == 201 {
                now += ms(5);
                depth.lost(now, ms(7), us(3500));
            }
            if let Ended::Full { time, .. } = depth.ended(now, 10_000, 32, 8) {
                times.push(time);
            }
        }
        // It was 5.5 ms of a flush of 7 that took half of its time.
        assert_eq!(times[1].as_nanos() - times[0].as_nanos(), us(5000 - 2750).as_nanos(), "{times:?}");
        assert_eq!(times[2], times[0]);
    }

    /// depth.4: the longer nothing changes, the fewer windows are given to other depths.
    #[test]
    fn trials_become_rare() {
        let mut load = Load::new(DISK, 64, 256);
        load.run(300_000);
        let before = load.depth.trials();
        load.run(128 * 1000);
        let trials = load.depth.trials() - before;
        assert!(trials <= 40, "{trials} trials in about 1,000 windows");
        assert!(trials >= 5, "{trials}: it goes on looking");
    }

    /// depth.7: what the load does not reach is no depth.
    #[test]
    fn a_load_that_does_not_fill_the_device_teaches_nothing() {
        let mut load = Load::new(DISK, 64, 8);
        load.run(50_000);
        assert_eq!((load.depth.wanted(), load.depth.trials()), (32, 0));
    }

    /// Nothing is random, and time that stands still or leaps is no reason to panic.
    #[test]
    fn the_same_load_is_answered_in_the_same_way() {
        let seen = || {
            let mut load = Load::new(LARGE, 200, 256);
            load.run(200_000).seen.clone()
        };
        assert_eq!(seen(), seen());
        let mut depth = Depth::new(64);
        for n in 0..10_000_u64 {
            let now = Instant::from_nanos(if n % 1000 < 500 { 7 } else { n << 40 });
            let _ = depth.ended(now, u32::MAX, 64, 4096);
            assert!((1..=64).contains(&depth.limit()));
        }
    }
}
