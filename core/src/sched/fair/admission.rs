//! Admission: how many requests of each tenant may be in the device.
//!
//! Virtual time alone does not share a disk that queues. A virtual disk may take 64 requests, work for 800 µs, and answer all at
//! once: then 64 places are free, and the waiting requests take them. Requests whose clients are about to ask again find the disk
//! full. So each tenant has places of its own. How many it needs for its share cannot be reckoned: that depends on how long its
//! clients take from an answer to the next request, and on how the disk orders what is in it. It can be found by a closed loop.
//! Example: weights 300 and 100, 64 reads outstanding each. With 48 and 16 places the first has 72 % of the disk, because 6 of
//! its 64 reads are on their way at any time. The loop takes places from the second until the first has 75 %. The first's empty
//! places stay empty, and the disk stays busy.
//!
//! admission.1  A period is [`LAPS`] times as many ends as there are places, more where there are more tenants. In a period a tenant
//!              had a part of the disk's time, and is due a part (`entitlement`). The rate that a tenant can use is the disk's rate
//!              with as many requests as the tenant keeps outstanding ([`Depth::does`]), less the time for which its clients are away
//!              between an answer and the next request; if none of its requests waited, at most twice the rate that it had. Example:
//!              each of four readers with one request was thought to be able to use half of the disk. It could use a third.
//!              A tenant with c requests outstanding on average and a part s has that part while the disk holds c / s (Little's law).
//!              Where the disk does at least half of its best ([`FEW`]) with the fewest of these, whichever tenant's they are, each
//!              tenant is due its weight's part. Example: of a tenant of 3/4 by weight 48 reads are outstanding, and the disk does
//!              0.6 of its best with 48, 0.7 with 64, and all with 128. Of the best it could use 0.6, less than its part; but with 64 in
//!              the disk it has 3/4. Not so where no tenant waits for places of its own, for then none could have fewer, nor where one owed for a
//!              flush (admission.5): its part is not of reads and writes alone.
//!              A tenant that seldom has anything outstanding is due the part that it had. So is a tenant that its ceiling keeps
//!              below its weight's part: no other tenant's fewer places would bring it more.
//! admission.2  At the end of a period the places of a tenant are multiplied by e to the power of [`GAIN`] · (due − had) ÷ due:
//!              integral control, so what remains of an error is corrected again. Up to three times the due it is linear in `had`, so that too
//!              much in one period and too little in the next are nothing together. Example: a disk answers in lumps, and
//!              in every second period a tenant has three times as much as in the others. With an exponent of (due − had) ÷ (due + had)
//!              and a due of 0.25 it has 0.29 in the end. If it is due more or less than before, because a weight was changed or another
//!              tenant has come or gone, its places are multiplied by that first. A part between the two is no error. Places
//!              that a tenant does not fill do not become more.
//!              Service by its floor says nothing of its places: of those fewer and fewer would be left.
//!              A tenant has one place at least. A new tenant has no bound until the first period ends. Nor has a tenant that its
//!              ceiling keeps below its part: the ceiling is one.
//! admission.3  Weights divide the places; throughput and `isolation_cost` bound their sum. It is no more than throughput needs
//!              ([`Depth::wanted`]), and while no tenant needs less it grows to that. A tenant with nothing waiting and less than
//!              its due needs less: others lose places by admission.2, and it cannot gain any. Where it could use its weight's part
//!              alone, it gets that. For tenants that could use far less ([`FEW`]) the sum is no less than the depth at which the disk
//!              does all but `isolation_cost` of its best ([`Depth::floor`]). Their share would often take a single request in the
//!              device. That least holds too where no tenant waits for places of its own, but all for the device. Where each
//!              tenant is due its weight's part, half of the requests that this takes are enough, unless a setting gives the depth.
//! admission.4  While another depth is tried, all places are multiplied, so that the disk has that depth. With many more places
//!              some tenants have more than their part, for others cannot fill theirs: admission.2 makes up for that.
//! admission.5  A flush that took w of the disk's work is paid for once the disk has done w / s, s the tenant's part by weight. Until
//!              then the tenant owes, as long as others have something outstanding, and its next flush waits. Virtual time alone does
//!              not tell: where all have their places full nobody waits in the order, and a tenant that commits had up to 0.6 of the
//!              disk beside its part. Charges while it owes (for another's flush that it shares, or for one that has waited for too
//!              long) do not add up beyond twice one charge.
//!              Its requests are not held for it. Two ways were tried: places divided by the part that flushes leave, and reads to be
//!              paid for before its next flush. The first took a fifth of a committing tenant's due on a real disk; with the second a
//!              tenant that reads much hardly ever flushed.
//!
//! admission.6  A period goes on while a tenant has large requests in the device, without an end, for [`LONG`] at most; then it had
//!              half of one. Example: of 16 places a reader of 256 KiB has one, beside a reader of 4 KiB. One of its requests ends with a
//!              thousand of the others, and in that period it had its whole due: by that period alone it never had a second place.
//! admission.7  A tenant that has had nothing outstanding for [`LONG`] is gone, and keeps no places once tenants that are gone have more than the
//!              others. Example: of 128 places a light group has two, and all others go. A period is 512 ends, for which two places take 4 s:
//!              for so long the disk ran at a fiftieth of its speed.
//!
//! A tenant is a group with streams of its own; a stream in the root is one by itself.
//!
//! Integral control of shares by the service had: PARDA (Gulati et al., FAST 2009) for hosts of one array; the vrate and donations of
//! Linux's io.cost (Heo et al., ASPLOS 2022).

use alloc::vec;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::cost::{Costs, KINDS, Shape};
use super::depth::{Depth, LONG, WINDOW};
use crate::entitlement::{Entitlement, OWN};
use crate::record::{Record, Unreadable};
use crate::{Group, GroupId, Instant};

/// Ends in a period: for each place, and for each tenant (admission.1); no fewer than in a window. Chosen: a correction has reached the device's answers
/// by the end of the next period, and half of a small tenant's ends are more than chance.
const LAPS: u32 = 4;
const EACH: u32 = 16;
/// A request is large from this many times the usual cost on: a period may see no completion of it. Chosen.
const LARGE: u64 = 4;
/// How much of an error is corrected in a period (admission.2). A tenant with more than three times its due counts as one with three times.
/// From a simulation: with 0.3 an error is down to a tenth after seven periods, and answers in lumps move places by 2 %.
const GAIN: f64 = 0.3;
/// A tenant with places for this part of its outstanding requests has nearly all. Chosen: the sum of places moves by that in a period
/// or two, and a tenant with nearly all gains nothing from others' loss.
const NEARLY: f64 = 0.94;
/// A tenant with less than this part of its due is short (depth.4). Chosen, as for `fairlift why` (share.7).
const SHORT: f64 = 0.8;
/// The least places of a tenant. Chosen: it has one in any case, and this is one again after ten periods.
const LEAST: f64 = 0.0625;
/// By how much the sum of all places grows in a period while nobody needs less, at most, or shrinks (admission.3). Chosen: doubled in 14
/// periods.
const GROWTH: f64 = 0.05;
/// Steps in which places are fitted to a depth that is tried (admission.4). Chosen: where tenants cannot fill theirs, those of the others become
/// more with each step.
const FITS: u32 = 4;
/// A tenant has few requests if it could use less than this much of its weight's part (admission.3). Chosen: one that could use most of its
/// part has it at a depth that the disk does most of its best at. Weights are exact where the disk does this part of its best with
/// the requests that this takes (admission.1): of a greater loss most is nobody's gain. And so many of these requests there may always be (admission.3).
const FEW: f64 = 0.5;
/// A tenant's service in a period, and its places.
#[derive(Clone, Debug, Default)]
struct Tenant {
    /// The group that it is, or whose stream it is.
    group: GroupId,
    /// Its queue and its weight, if it is a stream in the root.
    stream: Option<(u32, u32)>,
    /// How many groups are below it.
    below: u32,
    /// Requests that wait or are in the device; the most of them in this period and in the one before. Of this period, up to the last
    /// change: their number times the time that it lasted, and the time with any.
    open: u32,
    most: u32,
    most_before: u32,
    opens: u64,
    present: u64,
    since: Instant,
    /// Requests that ended in this period, their cost, and at how many of these ends more of it waited.
    requests: u32,
    served: u64,
    waited: u32,
    /// Its requests of this period that went to the device for its floor's sake, whatever its places are (floor.5).
    beyond: u32,
    /// Its part of all completions, in the disk's time and in requests (admission.1).
    had: f64,
    part: f64,
    /// Its part of the disk by weight, in the last period in which it asked; and up to which of the disk's work it owes
    /// (admission.5).
    share: f64,
    owes_until: u64,
    /// The part of the disk that it was due in the last period, its places (admission.2), and these as whole requests, at the present
    /// depth (admission.4). Before its first period has ended its due is 0, and its places are without bound.
    due: f64,
    /// How much of its weight's part it could use at least (admission.3), and which part of the disk at most (admission.1).
    could: f64,
    asks: f64,
    places: f64,
    room: u32,
    /// Its requests in the device, and the shape of the last one sent.
    out: u32,
    last: Shape,
    is_held: bool,
    is_touched: bool,
    /// The periods, from this one on, in which it counts as held back by a ceiling; and whether that keeps it below its part.
    limited: u8,
    is_capped: bool,
    node: u32,
}

/// A tenant's due and its part by weight, its places, and how much of the disk's work it owes: for another server.
#[derive(Serialize, Deserialize)]
struct HandedPlaces {
    due: f64,
    share: f64,
    places: f64,
    owes: u64,
}

const PART: &str = "places";

/// A tenant's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TenantId(pub(super) u32);

/// All tenants of a disk.
#[derive(Debug)]
pub(super) struct Admission {
    tenants: Vec<Tenant>,
    free: Vec<u32>,
    /// By group: the one above, and its weight.
    groups: Vec<(GroupId, u32)>,
    /// Those that asked in the period or the one before.
    touched: Vec<u32>,
    entitlement: Entitlement,
    /// How many asked in the period before.
    before: usize,
    left: u32,
    start: Instant,
    /// When tenants that are gone are looked for (admission.7).
    look: Instant,
    /// Tenants that have something outstanding.
    present: u32,
    /// All that the disk did, in cost.
    work: u64,
}

/// The result of a period.
#[derive(Clone, Copy, Debug)]
pub(super) struct Period {
    /// The places that tenants can fill (admission.3), and all of them.
    pub(super) places: f64,
    pub(super) all: f64,
    /// Some tenant lacks, and they would be fewer, were it not for the least that there may be.
    pub(super) is_pressed: bool,
    /// And one of them is short ([`SHORT`]) that perhaps could do its part alone.
    pub(super) is_urgent: bool,
    /// Whether those are more or fewer than before, by more than an eighth.
    pub(super) changed: bool,
}

/// How many places there may be (admission.3).
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// As many as throughput needs.
    pub(super) most: f64,
    /// As many as leave all but `isolation_cost` of it; and as few as are of use to any tenant.
    pub(super) least: f64,
    pub(super) least_exact: f64,
}

impl Tenant {
    /// Time passes, and its outstanding requests are about to change.
    #[inline]
    fn passes(&mut self, now: Instant) {
        if self.open > 0 {
            let time = now.since(self.since).as_nanos();
            self.present += time;
            self.opens += u64::from(self.open) * time;
        }
        self.since = now;
    }

    /// A request of it ended, of such a cost.
    #[inline]
    fn ended(&mut self, cost: u32) {
        self.served += u64::from(cost);
        self.requests += 1;
        self.waited += u32::from(self.open >= self.out);
    }

    /// Whether it may have another request in the device.
    #[inline]
    fn has_room(&self) -> bool {
        self.out < self.room || self.below > 0
    }

    /// The most that it keeps outstanding.
    fn keeps(&self) -> u32 {
        self.most.max(self.most_before)
    }

    /// Its places that it can fill.
    fn filled(&self) -> f64 {
        self.places.min(self.keeps().into())
    }

    /// Whether its requests wait for places, and not for one or two that it has not at the moment.
    fn waits(&self) -> bool {
        8 * self.waited > self.requests && self.places < NEARLY * f64::from(self.keeps())
    }

    /// Whether it has requests in the device, and none of them has ended in this period.
    fn is_slow(&self) -> bool {
        self.requests == 0 && self.out > 0
    }

    /// Whether its clients or its ceiling bound it: it has nothing outstanding for most of a period of such a length, or its ceiling keeps it
    /// below its part.
    fn is_content(&self, length: u64) -> bool {
        4 * self.present < length || self.is_capped
    }

    /// admission.2: its places, of `all`, now that this is its due.
    fn corrected(&self, due: f64, all: f64) -> f64 {
        if self.due == 0.0 {
            return (self.part * due / self.had * all).max(LEAST);
        }
        let had = if 2 * self.beyond > self.requests { self.had.min(self.due) } else { self.had };
        let right = had.clamp(due.min(self.due), due.max(self.due));
        let step = GAIN * ((right - had) / right).max(-2.0);
        let places = self.places * (due / self.due) * libm::exp(step);
        // It cannot fill more, or could not before.
        places.min(self.places.max(self.keeps().into())).max(LEAST)
    }
}

impl Admission {
    pub(super) fn new() -> Self {
        Self {
            tenants: Vec::new(),
            free: Vec::new(),
            groups: vec![(GroupId::ROOT, 0)],
            touched: Vec::new(),
            entitlement: Entitlement::new(),
            before: 0,
            left: WINDOW,
            start: Instant::ZERO,
            look: Instant::ZERO,
            present: 0,
            work: 0,
        }
    }

    /// A group was added, or has another weight.
    pub(super) fn set_group(&mut self, id: GroupId, group: &Group) {
        let at = usize::from(id.0);
        if self.groups.len() <= at {
            self.groups.resize(at + 1, (GroupId::ROOT, 0));
        }
        self.groups[at] = (group.parent.unwrap_or(GroupId::ROOT), group.weight.into());
        self.entitlement.reserve(self.groups.len(), self.tenants.len());
    }

    /// A tenant: a group, or a stream in the root, by its queue and weight.
    pub(super) fn add(&mut self, group: GroupId, stream: Option<(u32, u32)>) -> TenantId {
        let tenant = Tenant { group, stream, room: u32::MAX, ..Tenant::default() };
        if let Some(at) = self.free.pop() {
            self.tenants[at as usize] = tenant;
            return TenantId(at);
        }
        self.tenants.push(tenant);
        // So that nothing is allocated for on the way of a request.
        self.touched.reserve(self.tenants.len() - self.touched.len());
        self.entitlement.reserve(self.groups.len(), self.tenants.len());
        TenantId(self.tenants.len() as u32 - 1)
    }

    /// A stream in the root has another weight.
    pub(super) fn set_weight(&mut self, id: TenantId, weight: u32) {
        self.tenants[id.0 as usize].stream.iter_mut().for_each(|stream| stream.1 = weight);
    }

    /// A tenant has one more group below it: it is not held from now on. Answers whether it is.
    pub(super) fn never_hold(&mut self, id: TenantId) -> bool {
        let tenant = &mut self.tenants[id.0 as usize];
        tenant.below += 1;
        core::mem::take(&mut tenant.is_held)
    }

    /// A group below a tenant has gone.
    pub(super) fn has_less_below(&mut self, id: TenantId) {
        self.tenants[id.0 as usize].below -= 1;
    }

    /// The group above.
    pub(super) fn above(&self, group: GroupId) -> GroupId {
        self.groups[usize::from(group.0)].0
    }

    /// The queue of a tenant that is a stream, and the group that it is or is in.
    pub(super) fn home(&self, id: TenantId) -> (u32, GroupId) {
        let Tenant { group, stream, .. } = self.tenants[id.0 as usize];
        (stream.map_or(u32::MAX, |(queue, _)| queue), group)
    }

    pub(super) fn remove(&mut self, id: TenantId) {
        self.touched.retain(|at| *at != id.0);
        self.free.push(id.0);
    }

    /// A request of a tenant came.
    #[inline]
    pub(super) fn came(&mut self, now: Instant, id: TenantId) {
        let tenant = &mut self.tenants[id.0 as usize];
        tenant.passes(now);
        if tenant.open == 0 {
            self.present += 1;
            if !tenant.is_touched {
                tenant.is_touched = true;
                self.touched.push(id.0);
            }
        }
        tenant.open += 1;
        tenant.most = tenant.most.max(tenant.open);
    }

    /// A request of a tenant is not there any more.
    #[inline]
    pub(super) fn left(&mut self, now: Instant, id: TenantId) {
        let tenant = &mut self.tenants[id.0 as usize];
        tenant.passes(now);
        tenant.open -= 1;
        self.present -= u32::from(tenant.open == 0);
    }

    /// Two requests of a tenant are one now.
    pub(super) fn merged(&mut self, id: TenantId) {
        self.tenants[id.0 as usize].open -= 1;
    }

    /// A request of a tenant goes to the device. Answers whether its places are taken now.
    #[inline]
    pub(super) fn sent(&mut self, id: TenantId, shape: Shape) -> bool {
        let tenant = &mut self.tenants[id.0 as usize];
        (tenant.out, tenant.last) = (tenant.out + 1, shape);
        tenant.is_held = !tenant.has_room();
        tenant.is_held
    }

    /// A request that goes to the device may go whatever the places of its tenant are (floor.5).
    pub(super) fn goes_beyond(&mut self, id: TenantId) {
        self.tenants[id.0 as usize].beyond += 1;
    }

    /// A request is a tenant's that another one sent.
    pub(super) fn brought(&mut self, id: TenantId) {
        self.tenants[id.0 as usize].out += 1;
    }

    /// A request of a tenant is in the device no more. Answers whether it has room again, and had none.
    #[inline]
    pub(super) fn has_room_again(&mut self, id: TenantId) -> bool {
        let tenant = &mut self.tenants[id.0 as usize];
        tenant.out -= 1;
        tenant.is_held && tenant.has_room() && {
            tenant.is_held = false;
            true
        }
    }

    /// Whether the places of a tenant are taken.
    #[inline]
    pub(super) fn is_held(&self, id: TenantId) -> bool {
        self.tenants[id.0 as usize].is_held
    }

    /// The requests that a tenant may have missed while its own were in the device: as much as these could have asked for.
    pub(super) fn missed(&self, id: TenantId, costs: &Costs) -> u32 {
        let Tenant { out, last, .. } = self.tenants[id.0 as usize];
        out.max(1).saturating_mul(costs.price(last)).min(1 << 30)
    }

    /// A request of a tenant ended, of such a cost. Answers whether the period may be over.
    #[inline]
    pub(super) fn served(&mut self, now: Instant, id: TenantId, cost: u32) -> bool {
        self.tenants[id.0 as usize].ended(cost);
        self.work += u64::from(cost);
        self.left = self.left.saturating_sub(1);
        self.left == 0 || now >= self.look
    }

    /// Requests in the device, by kind: each tenant's count as the kind of its last one.
    pub(super) fn inside(&self, costs: &Costs) -> [u32; KINDS] {
        let mut inside = [0; KINDS];
        for at in &self.touched {
            let tenant = &self.tenants[*at as usize];
            inside[costs.kind(tenant.last)] += tenant.out;
        }
        inside
    }

    /// A ceiling holds a request of a tenant back. Counts in the next period too, for of those that it lets through some may come together.
    pub(super) fn limited(&mut self, id: TenantId) {
        self.tenants[id.0 as usize].limited = 2;
    }

    /// A tenant was charged for a flush (admission.5).
    pub(super) fn charge(&mut self, id: TenantId, worth: u64) {
        let tenant = &mut self.tenants[id.0 as usize];
        if tenant.share > 0.0 {
            let more = (worth as f64 / tenant.share) as u64;
            let owes = tenant.owes_until.max(self.work);
            let most = self.work.saturating_add(more.saturating_mul(2));
            tenant.owes_until = owes.saturating_add(more).min(owes.max(most));
        }
        self.work += worth;
    }

    /// Whether a tenant owes for a flush, to others that have something outstanding (admission.5).
    pub(super) fn owes(&self, id: TenantId) -> bool {
        let tenant = &self.tenants[id.0 as usize];
        self.work < tenant.owes_until && self.present > u32::from(tenant.open > 0)
    }

    /// The places of a tenant, and its debt, for another server (fair.13).
    pub(super) fn hand_on(&self, id: TenantId, into: &mut Record) {
        let Tenant { due, share, places, owes_until, .. } = self.tenants[id.0 as usize];
        if due > 0.0 {
            into.put(PART, &HandedPlaces { due, share, places, owes: owes_until.saturating_sub(self.work) });
        }
    }

    pub(super) fn take_on(&mut self, id: TenantId, from: &mut Record) -> Result<(), Unreadable> {
        let Some(HandedPlaces { due, share, places, owes }) = from.take(PART)? else { return Ok(()) };
        let is_part = |part: f64| part > 0.0 && part <= 1.0;
        if !is_part(due) || !(share == 0.0 || is_part(share)) || !(LEAST..1e6).contains(&places) || owes > 1 << 62 {
            return Err(Unreadable { part: PART.into(), why: "no tenant has such places".into() });
        }
        let tenant = &mut self.tenants[id.0 as usize];
        (tenant.due, tenant.share, tenant.places) = (due, share, places);
        tenant.room = ((places + 0.5) as u32).max(1);
        tenant.owes_until = self.work.saturating_add(owes);
        Ok(())
    }

    /// All costs are `times` as great from now on (cost.5), and so are the sums counted in them.
    #[cold]
    pub(super) fn rescale(&mut self, times: f64) {
        for tenant in &mut self.tenants {
            tenant.served = (tenant.served as f64 * times) as u64;
            let owes = tenant.owes_until.saturating_sub(self.work) as f64 * times;
            tenant.owes_until = self.work.saturating_add(owes as u64);
        }
    }

    /// Ends a period with `places` places, on a disk as fast as `depth` says (admission.1 to admission.3). A period that is not
    /// over yet goes on, and so does a period in which no time passed.
    #[cold]
    pub(super) fn end_period(
        &mut self,
        now: Instant,
        places: f64,
        depth: &Depth,
        costs: &Costs,
        bounds: Bounds,
    ) -> Option<Period> {
        if self.left > 0 && !self.forget_gone(now) {
            self.look = now + LONG;
            return None;
        }
        let length = now.since(self.start).as_nanos();
        // admission.6
        let ended = self.touched.iter().map(|at| &self.tenants[*at as usize]);
        let (all, work) = ended.fold((0, 0), |sum, one| (sum.0 + u64::from(one.requests), sum.1 + one.served));
        let is_slow = |one: &Tenant| one.is_slow() && u64::from(costs.price(one.last)) * all > LARGE * work;
        if length == 0 || length < LONG.as_nanos() && self.touched.iter().any(|at| is_slow(&self.tenants[*at as usize]))
        {
            self.left = WINDOW;
            return None;
        }
        for at in &self.touched {
            let tenant = &mut self.tenants[*at as usize];
            if is_slow(tenant) {
                tenant.ended(costs.price(tenant.last) / 2);
            }
        }
        let (demanding, by_weight) = self.entitle(now, length, depth);
        let (worst, is_kept, is_short) = self.correct(length, places);
        let least = match by_weight {
            Some(holds) if !depth.is_given() => bounds.least_exact.min(FEW * holds),
            None if is_kept => bounds.least,
            _ => bounds.least_exact,
        };
        let (places, all, is_low) = self.fit(bounds.most, least);
        let (is_pressed, is_urgent) = (is_low && worst < NEARLY, is_low && is_short);
        // Where many tenants ask now and then, it is always others.
        let changed = 8 * self.before.abs_diff(demanding as usize) > self.before;
        self.before = demanding as usize;
        self.begin_period(now, places);
        Some(Period { places, all, is_pressed, is_urgent, changed })
    }

    /// admission.7. Answers whether tenants are gone.
    fn forget_gone(&mut self, now: Instant) -> bool {
        let is_gone = |tenant: &Tenant| tenant.open == 0 && now.since(tenant.since) >= LONG;
        let mut places = [0.0; 2];
        for at in &self.touched {
            let tenant = &self.tenants[*at as usize];
            places[usize::from(is_gone(tenant))] += tenant.filled();
        }
        let [left, gone] = places;
        for at in self.touched.iter().filter(|_| gone > left) {
            let tenant = &mut self.tenants[*at as usize];
            if is_gone(tenant) {
                (tenant.requests, tenant.served, tenant.most, tenant.most_before) = (0, 0, 0, 0);
            }
        }
        gone > left
    }

    /// admission.1: what each tenant that asked is due. Answers how many did, and if each is due its weight's part, with how many requests in
    /// the disk all have that.
    fn entitle(&mut self, now: Instant, length: u64, depth: &Depth) -> (u32, Option<f64>) {
        let Self { tenants, touched, entitlement, groups, work: all_work, .. } = self;
        let (mut demanding, mut work, mut requests) = (0, 0, 0);
        entitlement.clear();
        for at in &*touched {
            let tenant = &mut tenants[*at as usize];
            tenant.passes(now);
            if tenant.requests > 0 {
                (demanding, work, requests) = (demanding + 1, work + tenant.served, requests + tenant.requests);
                let weight = if tenant.below > 0 { Some(OWN) } else { tenant.stream.map(|(_, weight)| weight) };
                tenant.node = entitlement.add(tenant.group, weight, |group| groups[usize::from(group.0)]);
                entitlement.demand(tenant.node, f64::INFINITY);
            }
        }
        entitlement.add_up();
        entitlement.divide(1.0);
        for at in &*touched {
            let tenant = &mut tenants[*at as usize];
            if tenant.requests > 0 {
                tenant.share = entitlement.part(tenant.node);
                tenant.had = tenant.served as f64 / work as f64;
                tenant.part = f64::from(tenant.requests) / f64::from(requests);
            }
        }
        entitlement.clear_demands();
        let (mut some_wait, mut some_owe) = (false, false);
        for at in &*touched {
            let tenant = &mut tenants[*at as usize];
            if tenant.requests > 0 {
                tenant.is_capped = tenant.limited > 0 && (tenant.had <= tenant.share || !tenant.waits());
                let is_content = tenant.is_content(length);
                let most = match (tenant.waits(), is_content) {
                    (_, true) => tenant.had,
                    (false, false) => 2.0 * tenant.had,
                    (true, false) => f64::INFINITY,
                };
                // While it had any.
                let open = tenant.opens as f64 / (tenant.present as f64).max(1.0);
                let (at_least, at_most) = depth.does(open);
                // Its clients were away this long for each nanosecond of the disk that it had, and would be for each that it could have.
                let away = length.saturating_sub(tenant.present) as f64 / (tenant.served as f64).max(1.0);
                let with_away = |part: f64| part / (1.0 + part * away);
                tenant.could = with_away(at_least) / tenant.share;
                tenant.asks = with_away(at_most).min(most);
                entitlement.demand(tenant.node, if is_content { tenant.had } else { f64::INFINITY });
                some_wait |= tenant.waits() && tenant.below == 0 && !is_content;
                some_owe |= tenant.owes_until.saturating_add(work) > *all_work; // In this period.
            }
        }
        entitlement.add_up();
        entitlement.divide(1.0);
        let asked = || touched.iter().map(|at| &tenants[*at as usize]).filter(|tenant| tenant.requests > 0);
        // By its part of this: it has a part of the rest that others leave.
        let holds = |tenant: &Tenant| tenant.opens as f64 / length as f64 / entitlement.part(tenant.node);
        let holds = asked().filter(|tenant| !tenant.is_content(length)).map(holds).fold(f64::INFINITY, f64::min);
        if demanding > 1 && some_wait && !some_owe && depth.does(holds).0 >= FEW {
            return (demanding, Some(holds));
        }
        entitlement.clear_demands();
        asked().for_each(|tenant| entitlement.demand(tenant.node, tenant.asks));
        entitlement.add_up();
        entitlement.divide(1.0);
        (demanding, None)
    }

    /// Moves places by each tenant's service (admission.2, admission.3). Answers the least part of its due that a tenant without waiting requests
    /// had, whether no tenant lacks service that could do its part alone, and whether one is short that perhaps could.
    fn correct(&mut self, length: u64, places: f64) -> (f64, bool, bool) {
        let whole = self.entitlement.whole();
        let (mut worst, mut is_kept, mut is_short) = (f64::INFINITY, true, false);
        for at in &self.touched {
            let tenant = &mut self.tenants[*at as usize];
            if tenant.requests > 0 {
                let due = self.entitlement.part(tenant.node) / whole;
                if !tenant.waits() && !tenant.is_content(length) {
                    worst = worst.min(tenant.had / due);
                    is_kept &= tenant.could < FEW || tenant.had >= due;
                    is_short |= tenant.could >= FEW / 2.0 && tenant.had < SHORT * due;
                }
                // A capped tenant has as many places as its requests fill. All its outstanding ones would be too many: some wait below the ceiling.
                tenant.places = match tenant.is_capped {
                    true => (tenant.part * places).max(LEAST),
                    false => tenant.corrected(due, places),
                };
                tenant.due = due;
            }
        }
        let growth = 1.0 + (GAIN * (worst - 1.0)).clamp(-GROWTH, GROWTH);
        for at in &self.touched {
            let tenant = &mut self.tenants[*at as usize];
            if tenant.waits() {
                tenant.places *= growth;
            }
        }
        (worst, is_kept, is_short)
    }

    /// admission.3: the places of all that they can fill, and all; whether those are fewer than the least before.
    fn fit(&mut self, most: f64, least: f64) -> (f64, f64, bool) {
        let (mut filled, mut waiting) = (0.0, 0.0);
        for at in &self.touched {
            let tenant = &self.tenants[*at as usize];
            filled += tenant.filled();
            waiting += if tenant.waits() { tenant.filled() } else { 0.0 };
        }
        let is_low = filled < least;
        let (all, only_waiting) = match () {
            () if filled > most => (most / filled, false),
            () if is_low && waiting > 0.0 => ((least - filled + waiting) / waiting, true),
            // No tenant waits for places of its own. Fewer requests than there are tenants may be in the device (depth.6).
            () if is_low => (self.times(least), false),
            () => (1.0, true),
        };
        let mut sums = (0.0, 0.0, is_low);
        for at in &self.touched {
            let tenant = &mut self.tenants[*at as usize];
            if all != 1.0 && (tenant.waits() || !only_waiting) {
                tenant.places = (tenant.filled() * all).max(LEAST);
            }
            sums = (sums.0 + tenant.filled(), sums.1 + tenant.places, is_low);
        }
        sums
    }

    fn begin_period(&mut self, now: Instant, places: f64) {
        let tenants = &mut self.tenants;
        self.touched.retain(|at| {
            let tenant = &mut tenants[*at as usize];
            (tenant.present, tenant.served, tenant.opens) = (0, 0, 0);
            (tenant.requests, tenant.waited, tenant.beyond) = (0, 0, 0);
            tenant.limited = tenant.limited.saturating_sub(1);
            tenant.most_before = core::mem::replace(&mut tenant.most, tenant.open);
            tenant.is_touched = tenant.open > 0 || tenant.most_before > 0;
            if !tenant.is_touched {
                (tenant.due, tenant.places, tenant.room) = (0.0, 0.0, u32::MAX);
            }
            tenant.is_touched
        });
        self.left = WINDOW.max(LAPS * places as u32).max(EACH * self.before as u32);
        (self.start, self.look) = (now, now + LONG);
    }

    /// Gives each tenant its places; while another depth is tried, multiplied so that tenants fill it (admission.4). At most `limit`
    /// requests may be in the device.
    pub(super) fn give(&mut self, trial: Option<f64>, limit: u32, costs: &Costs) {
        let times = trial.map_or(1.0, |depth| self.times(depth));
        for at in &self.touched {
            let tenant = &mut self.tenants[*at as usize];
            if tenant.due > 0.0 {
                // A tenant without others would lose a part of the disk to a trial of a cost, for nothing (cost.6).
                let dearer = if self.before > 1 { costs.trial(tenant.last) } else { 1.0 };
                let whole = ((tenant.places * times * dearer + 0.5) as u32).max(1);
                // A tenant that may have all is not held: it would lose its place in the order for nothing.
                tenant.room = if whole < limit && !tenant.is_capped { whole } else { u32::MAX };
            }
        }
    }

    /// Bounds the requests in the device of all tenants whose group is not a host's, nor below one, divided as their places
    /// are, until [`Admission::give`]; each has one at least (fair.12).
    pub(super) fn make_room(&mut self, guests: u32, is_host: impl Fn(GroupId) -> bool) {
        let Self { tenants, touched, groups, .. } = self;
        let above = |group: &GroupId| (*group != GroupId::ROOT).then(|| groups[usize::from(group.0)].0);
        let is_guest = |tenant: &Tenant| !core::iter::successors(Some(tenant.group), above).any(&is_host);
        let all = touched.iter().map(|at| &tenants[*at as usize]).filter(|tenant| is_guest(tenant));
        let filled: f64 = all.map(Tenant::filled).sum();
        for at in touched {
            let tenant = &mut tenants[*at as usize];
            if is_guest(tenant) {
                // A new tenant has no places yet.
                let part = if tenant.due > 0.0 { tenant.filled() / filled } else { 1.0 };
                tenant.room = tenant.room.min((f64::from(guests) * part + 0.5) as u32).max(1);
            }
        }
    }

    /// Tells of those that have room again, and had none.
    pub(super) fn release(&mut self, released: &mut Vec<TenantId>) {
        for at in &self.touched {
            let tenant = &mut self.tenants[*at as usize];
            if tenant.is_held && tenant.has_room() {
                tenant.is_held = false;
                released.push(TenantId(*at));
            }
        }
    }

    /// How many times as many places fill such a depth.
    fn times(&self, depth: f64) -> f64 {
        let mut times = 1.0;
        for _ in 0..FITS {
            let filled = |at: &u32| {
                let tenant = &self.tenants[*at as usize];
                (tenant.places * times).min(tenant.keeps().into())
            };
            let filled: f64 = self.touched.iter().map(filled).sum();
            times *= depth / filled.max(1.0);
        }
        times
    }

    /// Each has room for all, until [`Admission::give`].
    pub(super) fn give_all(&mut self) {
        self.touched.iter().for_each(|at| self.tenants[*at as usize].room = u32::MAX);
    }
}

#[cfg(test)]
mod tests;
