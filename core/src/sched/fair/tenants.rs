//! Tenants: what each has had of the disk, what its weight entitles it to, and what room in the device it has.
//!
//! A tenant is a group with streams of its own; a stream in the root is one by itself.
//!
//! tenants.1  A period is so many requests, more where there are more tenants. A tenant's share is its weight, and those of the
//!            groups above it, among all that asked in the period.
//! tenants.2  A tenant with c requests, whose share is s of the requests in the device, has no more of it than s once that
//!            are more than c / s. The least of these is the bound. A tenant is left out that had something outstanding for less
//!            than a quarter of the period: one that thinks for longer is limited by itself. A share of time is one of requests by
//!            what they cost: beside writes of 64 KiB that take as long as five reads, a reader of half of the weight has five
//!            sixths of the requests.
//! tenants.3  What a tenant keeps outstanding is the most that it had at a time in this period and the one before.
//! tenants.4  A tenant that asks for less than its part is content. While it has nothing in the device, a place is kept for it
//!            (of all places one in eight is kept at most), and it comes back with credit for what it missed, so that it is
//!            next. The problem: rooms are measured in cost, which is learned. Of 32 places a deep tenant whose requests had just
//!            been found cheaper took 32 instead of 31, and a request that came alone waited 55 µs of 310 for a place; with both,
//!            15 µs.
//! tenants.5  A flush that took w of the disk's work is paid for once the disk has done w / s, s the tenant's part by weight. Until
//!            then the tenant owes, as long as others have something outstanding, and its next flush waits. Virtual time alone does
//!            not tell: where all have their places full nobody waits in the order, and a tenant that commits had up to 0.6 of the
//!            disk beside its part. What is charged while it owes (it shares what another asked for, or has waited for too long)
//!            does not add up beyond twice itself.
//!            Its requests are not held for it. Two ways were tried: places divided by what flushes leave of a part, and what it reads
//!            to be paid for before its next flush. The first took a fifth of what a real disk owes to a tenant that commits; with
//!            the second who reads much hardly ever flushed.

use alloc::vec;
use alloc::vec::Vec;

use super::places::Places;
use crate::{Duration, Group, GroupId, Instant};

/// Requests in a period, at least, and for each tenant. Chosen.
const PERIOD: u32 = 256;
const EACH: u32 = 16;
/// The weight of the streams of a group that has groups below it, beside those: that of one stream of level 4 (fair.2).
const OWN: u32 = 40;
/// Steps in which the rooms are fitted to the depth: a demand that is met in one step leaves more to others in the next. Chosen.
const FITS: u32 = 6;
/// One in so many places may be kept for tenants that have nothing in the device. Chosen: an eighth is half a rung of the
/// depth (depth.1), less than it is known to.
const KEPT: u32 = 8;

/// What a tenant had in a period.
#[derive(Clone, Debug, Default)]
struct Tenant {
    /// The group that it is, or whose stream it is.
    group: GroupId,
    /// Its queue and its weight, if it is a stream in the root.
    queue: u32,
    weight: Option<u32>,
    /// How many groups are below it.
    below: u32,
    /// Requests that wait or are in the device; the most of them in this period and in the one before.
    open: u32,
    most: u32,
    most_before: u32,
    /// Since when it has some, within the period, and for how long it had before that.
    since: Instant,
    present: u64,
    served: u64,
    requests: u32,
    /// The time that its requests were in the device, in this period; and of one, on average, with its cost.
    took: u64,
    latency: f64,
    cost: f64,
    /// Its part of the disk by weight, in the last period in which it asked; and up to which of the disk's work it owes (tenants.5).
    share: f64,
    owes_until: u64,
    /// The part of a request that is worth mentioning: an eighth of that cost.
    part: u64,
    is_touched: bool,
    /// The cost of what is in the device, and the most that this may be before it waits.
    out: u64,
    room: u64,
    is_held: bool,
    /// It asks for less than its part (tenants.4).
    is_content: bool,
    node: u32,
}

/// A tenant's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TenantId(pub(super) u32);

/// All tenants of a disk.
#[derive(Debug)]
pub(super) struct Tenants {
    tenants: Vec<Tenant>,
    free: Vec<u32>,
    /// By group: the one above, and its weight.
    groups: Vec<(GroupId, u32)>,
    /// Those that asked in the period or the one before.
    touched: Vec<u32>,
    places: Places,
    /// How many asked in the period before.
    before: usize,
    left: u32,
    start: Instant,
    /// Tenants that are content and have nothing in the device.
    absent: u32,
    /// Tenants that have something outstanding.
    present: u32,
    /// All that the disk did, in cost.
    work: u64,
}

/// What a period showed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Period {
    /// How many requests may be in the device so that each tenant can have its share (tenants.2).
    pub(super) bound: f64,
    /// How many tenants asked.
    pub(super) asked: u32,
    /// Whether those are more or fewer than before, by more than an eighth.
    pub(super) changed: bool,
}

impl Tenant {
    /// What it keeps outstanding (tenants.3).
    fn keeps(&self) -> u32 {
        self.most.max(self.most_before)
    }

    /// Whether a place is kept for it (tenants.4).
    #[inline]
    fn is_absent(&self) -> bool {
        self.is_content && self.out == 0
    }

    /// Whether there is room for another request, or for a part of it that is worth mentioning: what a demand of 1 leaves of 24
    /// places is 23 but for rounding, and the one that would be 24th is the other's.
    #[inline]
    fn has_room(&self) -> bool {
        self.out == 0 || self.room.saturating_sub(self.out) > self.part
    }
}

impl Tenants {
    pub(super) fn new() -> Self {
        Self {
            tenants: Vec::new(),
            free: Vec::new(),
            groups: vec![(GroupId::ROOT, 0)],
            touched: Vec::new(),
            places: Places::new(),
            before: 0,
            left: PERIOD,
            start: Instant::ZERO,
            absent: 0,
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
        self.places.reserve(self.groups.len(), self.tenants.len());
    }

    /// A tenant: a group, or a stream in the root, by its queue and weight.
    pub(super) fn add(&mut self, group: GroupId, stream: Option<(u32, u32)>) -> TenantId {
        let (queue, weight) = (stream.map_or(u32::MAX, |(queue, _)| queue), stream.map(|(_, weight)| weight));
        let tenant = Tenant { group, queue, weight, room: u64::MAX, ..Tenant::default() };
        if let Some(at) = self.free.pop() {
            self.tenants[at as usize] = tenant;
            return TenantId(at);
        }
        self.tenants.push(tenant);
        // So that nothing is allocated for on the way of a request.
        self.touched.reserve(self.tenants.len() - self.touched.len());
        self.places.reserve(self.groups.len(), self.tenants.len());
        TenantId(self.tenants.len() as u32 - 1)
    }

    /// A stream in the root has another weight.
    pub(super) fn set_weight(&mut self, id: TenantId, weight: u32) {
        self.tenants[id.0 as usize].weight = Some(weight);
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
        let tenant = &self.tenants[id.0 as usize];
        (tenant.queue, tenant.group)
    }

    pub(super) fn remove(&mut self, id: TenantId) {
        self.absent -= u32::from(self.tenants[id.0 as usize].is_absent());
        self.touched.retain(|at| *at != id.0);
        self.free.push(id.0);
    }

    /// A request of a tenant came.
    #[inline]
    pub(super) fn came(&mut self, now: Instant, id: TenantId) {
        let tenant = &mut self.tenants[id.0 as usize];
        if tenant.open == 0 {
            self.present += 1;
            tenant.since = now;
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
        tenant.open -= 1;
        if tenant.open == 0 {
            self.present -= 1;
            tenant.present += now.since(tenant.since).as_nanos();
        }
    }

    /// A request of a tenant goes to the device. Answers whether that is all that it has room for.
    #[inline]
    pub(super) fn sent(&mut self, id: TenantId, cost: u32) -> bool {
        let tenant = &mut self.tenants[id.0 as usize];
        self.absent -= u32::from(tenant.is_absent());
        tenant.out += u64::from(cost);
        tenant.is_held = !tenant.has_room() && tenant.below == 0;
        tenant.is_held
    }

    /// A request is a tenant's that another one sent.
    pub(super) fn brought(&mut self, id: TenantId, cost: u32) {
        let tenant = &mut self.tenants[id.0 as usize];
        self.absent -= u32::from(tenant.is_absent());
        tenant.out += u64::from(cost);
    }

    /// A request of a tenant is in the device no more. Answers whether it has room again, and had none.
    #[inline]
    pub(super) fn has_room_again(&mut self, id: TenantId, cost: u32) -> bool {
        let tenant = &mut self.tenants[id.0 as usize];
        tenant.out -= u64::from(cost);
        self.absent += u32::from(tenant.is_absent());
        tenant.is_held && tenant.has_room() && {
            tenant.is_held = false;
            true
        }
    }

    /// How many of `depth` places are kept (tenants.4).
    #[inline]
    pub(super) fn kept(&self, depth: u32) -> u32 {
        self.absent.min(depth / KEPT)
    }

    /// Whether a tenant has a place kept for it.
    #[inline]
    pub(super) fn has_kept(&self, id: TenantId) -> bool {
        self.tenants[id.0 as usize].is_absent()
    }

    /// Whether a tenant has all in the device that it has room for.
    #[inline]
    pub(super) fn is_held(&self, id: TenantId) -> bool {
        self.tenants[id.0 as usize].is_held
    }

    /// A request of a tenant ended, of such a cost, after so long in the device. Answers whether the period is over.
    #[inline]
    pub(super) fn served(&mut self, id: TenantId, cost: u32, took: Duration) -> bool {
        let tenant = &mut self.tenants[id.0 as usize];
        tenant.served += u64::from(cost);
        tenant.requests += 1;
        tenant.took += took.as_nanos();
        self.work += u64::from(cost);
        self.left = self.left.saturating_sub(1);
        self.left == 0
    }

    /// A tenant was charged for a flush (tenants.5).
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

    /// Whether a tenant owes for a flush, to others that have something outstanding (tenants.5).
    pub(super) fn owes(&self, id: TenantId) -> bool {
        let tenant = &self.tenants[id.0 as usize];
        self.work < tenant.owes_until && self.present > u32::from(tenant.open > 0)
    }

    /// All costs are so many times greater from now on (cost.5): so is what was counted in them. Otherwise rooms would be those
    /// of the old costs for some periods, and the disk nearly idle.
    #[cold]
    pub(super) fn rescale(&mut self, times: f64) {
        for tenant in &mut self.tenants {
            tenant.cost *= times;
            tenant.part = (tenant.part as f64 * times) as u64;
            tenant.served = (tenant.served as f64 * times) as u64;
            let owes = tenant.owes_until.saturating_sub(self.work) as f64 * times;
            tenant.owes_until = self.work + owes as u64;
            if tenant.room < u64::MAX {
                tenant.room = ((tenant.room as f64 * times) as u64).max(1);
            }
        }
    }

    /// Ends a period (tenants.1, tenants.2).
    #[cold]
    pub(super) fn end_period(&mut self, now: Instant) -> Period {
        let length = now.since(self.start);
        let asked = self.place(|tenant| tenant.requests > 0);
        self.places.divide(1.0);
        let mut each = 0.0;
        for at in 0..self.touched.len() {
            let tenant = &mut self.tenants[self.touched[at] as usize];
            if tenant.open > 0 {
                tenant.present += now.since(tenant.since).as_nanos();
                tenant.since = now;
            }
            if tenant.requests == 0 {
                continue;
            }
            let requests = f64::from(tenant.requests);
            let (latency, cost) = (tenant.took as f64 / requests, tenant.served as f64 / requests);
            let is_known = tenant.latency > 0.0;
            let part = if is_known { 0.25 } else { 1.0 };
            tenant.latency += part * (latency - tenant.latency);
            tenant.cost += part * (cost - tenant.cost);
            tenant.part = tenant.cost as u64 / 8;
            tenant.share = self.places.part(tenant.node);
            each += tenant.share / tenant.cost.max(1.0);
        }
        let mut bound = f64::INFINITY;
        for at in &self.touched {
            let tenant = &self.tenants[*at as usize];
            if tenant.requests > 0 && 4 * tenant.present >= length.as_nanos() {
                let share = tenant.share / tenant.cost.max(1.0) / each;
                bound = bound.min(f64::from(tenant.keeps()) / share);
            }
        }
        // Where many tenants ask now and then, it is always others.
        let changed = 8 * self.before.abs_diff(asked as usize) > self.before;
        self.before = asked as usize;
        self.begin_period(now);
        Period { bound, asked, changed }
    }

    fn begin_period(&mut self, now: Instant) {
        let tenants = &mut self.tenants;
        self.touched.retain(|at| {
            let tenant = &mut tenants[*at as usize];
            (tenant.present, tenant.served, tenant.requests, tenant.took) = (0, 0, 0, 0);
            tenant.most_before = core::mem::replace(&mut tenant.most, tenant.open);
            tenant.is_touched = tenant.open > 0 || tenant.most_before > 0;
            if !tenant.is_touched {
                self.absent -= u32::from(tenant.is_absent());
                tenant.is_content = false;
            }
            tenant.is_touched
        });
        self.left = PERIOD.max(EACH * self.before as u32);
        self.start = now;
    }

    /// Puts those tenants that are meant, and may have as much as they like, into the tree; says how many they are.
    fn place(&mut self, is_meant: impl Fn(&Tenant) -> bool) -> u32 {
        self.places.clear();
        let mut count = 0;
        for at in 0..self.touched.len() {
            let tenant = &mut self.tenants[self.touched[at] as usize];
            if is_meant(tenant) {
                count += 1;
                let weight = if tenant.below > 0 { Some(OWN) } else { tenant.weight };
                tenant.node = self.places.add(tenant.group, weight, |group| self.groups[usize::from(group.0)]);
                self.places.demand(tenant.node, f64::INFINITY);
            }
        }
        self.places.add_up();
        count
    }

    /// Gives each tenant its room, of `depth` requests in all (places.1 to places.3).
    pub(super) fn divide(&mut self, depth: u32) {
        let is_known = |tenant: &Tenant| tenant.latency > 0.0;
        self.place(is_known);
        self.places.clear_demands();
        let mut open = 0.0;
        for at in 0..self.touched.len() {
            let tenant = &self.tenants[self.touched[at] as usize];
            if is_known(tenant) {
                let most = f64::from(tenant.keeps());
                open += most;
                self.places.demand(tenant.node, most * tenant.cost / tenant.latency);
            }
        }
        self.places.add_up();
        let is_bounded = open > f64::from(depth);
        if is_bounded {
            let mut whole = 1.0;
            for _ in 0..FITS {
                self.places.divide(whole);
                let mut requests = 0.0;
                for at in 0..self.touched.len() {
                    let tenant = &self.tenants[self.touched[at] as usize];
                    if is_known(tenant) {
                        requests += self.places.part(tenant.node) * tenant.latency / tenant.cost;
                    }
                }
                if requests <= 0.0 {
                    break;
                }
                whole *= f64::from(depth) / requests;
            }
        }
        self.absent = 0;
        for at in 0..self.touched.len() {
            let id = self.touched[at];
            let tenant = &mut self.tenants[id as usize];
            tenant.room = match is_bounded && is_known(tenant) {
                true => ((self.places.part(tenant.node) * tenant.latency) as u64).max(1),
                false => u64::MAX,
            };
            tenant.is_content = is_bounded && is_known(tenant) && self.places.is_full(tenant.node);
            self.absent += u32::from(tenant.is_absent());
        }
    }

    /// Tenants whose group is not a host's, nor below one, have so many requests in the device together, as their rooms are to each
    /// other, until [`Tenants::divide`]; each has one at least (fair.12).
    pub(super) fn make_room(&mut self, guests: u32, is_host: impl Fn(GroupId) -> bool) {
        let Self { tenants, touched, groups, .. } = self;
        let above = |group: &GroupId| (*group != GroupId::ROOT).then(|| groups[usize::from(group.0)].0);
        let is_guest = |tenant: &Tenant| !core::iter::successors(Some(tenant.group), above).any(&is_host);
        // In requests.
        let filled =
            |tenant: &Tenant| f64::from(tenant.keeps()).min(tenant.room as f64 / tenant.cost.max(1.0)).max(1.0);
        let all = touched.iter().map(|at| &tenants[*at as usize]).filter(|tenant| is_guest(tenant));
        let sum: f64 = all.map(filled).sum();
        for at in touched {
            let tenant = &mut tenants[*at as usize];
            if is_guest(tenant) {
                let places = (f64::from(guests) * filled(tenant) / sum + 0.5) as u32;
                tenant.room = tenant.room.min((f64::from(places.max(1)) * tenant.cost) as u64).max(1);
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

    /// What a tenant may be given back of what it missed while its requests were under way: as much as it has room for.
    pub(super) fn credit(&self, id: TenantId) -> u32 {
        let tenant = &self.tenants[id.0 as usize];
        let missed = if tenant.is_content { tenant.room } else { tenant.out.max(1) };
        tenant.room.min(missed).min(1 << 30) as u32
    }

    #[cfg(test)]
    pub(super) fn room(&self, id: TenantId) -> u64 {
        self.tenants[id.0 as usize].room
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::us;

    /// What a request costs, and how long it is in the device.
    const COST: u32 = 10_000;
    const TOOK: Duration = us(300);

    struct Scene {
        tenants: Tenants,
        now: Instant,
        groups: u16,
    }

    impl Scene {
        fn new() -> Self {
            Self { tenants: Tenants::new(), now: Instant::ZERO, groups: 0 }
        }

        fn group(&mut self, parent: u16, weight: u16) -> TenantId {
            self.groups += 1;
            let group = Group { path: "/x".into(), parent: Some(GroupId(parent)), weight };
            self.tenants.set_group(GroupId(self.groups), &group);
            self.tenants.add(GroupId(self.groups), None)
        }

        /// So many come and wait or are under way.
        fn opens(&mut self, tenant: TenantId, requests: u32) {
            (0..requests).for_each(|_| self.tenants.came(self.now, tenant));
        }

        fn closes(&mut self, tenant: TenantId, requests: u32) {
            (0..requests).for_each(|_| self.tenants.left(self.now, tenant));
        }

        /// Ends of requests in such parts, one every 10 µs, until the period is over.
        fn period(&mut self, parts: &[(TenantId, u32)]) -> Period {
            let whole: u32 = parts.iter().map(|(_, part)| part).sum();
            let mut due = vec![0; parts.len()];
            loop {
                // Whoever is furthest behind its part.
                due.iter_mut().zip(parts).for_each(|(due, (_, part))| *due += i64::from(*part));
                let next = (0..parts.len()).max_by_key(|at| due[*at]).unwrap();
                due[next] -= i64::from(whole);
                self.now += us(10);
                if self.tenants.served(parts[next].0, COST, TOOK) {
                    break;
                }
            }
            self.tenants.end_period(self.now)
        }

        fn rooms(&mut self, depth: u32, tenants: &[TenantId]) -> Vec<u64> {
            self.tenants.divide(depth);
            tenants.iter().map(|tenant| self.tenants.room(*tenant)).collect()
        }
    }

    /// tenants.2: the tenant with the fewest requests for its share; one that thinks for most of the time does not count.
    #[test]
    fn the_bound_is_that_of_the_tenant_with_the_fewest_requests_for_its_share() {
        let mut scene = Scene::new();
        let [light, heavy, idle] = [100, 300, 400].map(|weight| scene.group(0, weight));
        scene.opens(light, 30);
        scene.opens(heavy, 30);
        for round in 0..3 {
            scene.opens(idle, 1);
            scene.closes(idle, 1);
            let period = scene.period(&[(light, 40), (heavy, 50), (idle, 2)]);
            // Three eighths are due to the heavy one, while the idle one asks too.
            assert!((period.bound - 30.0 * 8.0 / 3.0).abs() < 1e-6 && period.asked == 3, "{period:?}");
            assert_eq!(period.changed, round == 0, "as many as before ask");
        }
    }

    /// tenants.2: by weight, at every level.
    #[test]
    fn a_share_is_that_of_the_weight_and_of_the_groups_above_it() {
        let mut scene = Scene::new();
        let above = scene.group(0, 300);
        assert!(!scene.tenants.never_hold(above), "it was not held");
        let [a, b] = [100, 200].map(|weight| scene.group(1, weight));
        let alone = scene.group(0, 100);
        scene.opens(a, 8);
        scene.opens(b, 8);
        scene.opens(alone, 3);
        // A quarter, a half, and a quarter.
        let period = scene.period(&[(a, 25), (b, 50), (alone, 25)]);
        assert!((period.bound - 12.0).abs() < 1e-6, "{period:?}");
        scene.opens(alone, 5);
        let period = scene.period(&[(a, 25), (b, 50), (alone, 25)]);
        assert!((period.bound - 16.0).abs() < 1e-6, "{period:?}");
    }

    /// tenants.1: more tenants, longer periods.
    #[test]
    fn a_period_has_so_many_requests_for_each_tenant() {
        let mut scene = Scene::new();
        let many: Vec<TenantId> = (0..100).map(|_| scene.group(0, 100)).collect();
        many.iter().for_each(|tenant| scene.opens(*tenant, 1));
        let parts: Vec<_> = many.iter().map(|tenant| (*tenant, 1)).collect();
        let _ = scene.period(&parts);
        let before = scene.now;
        let _ = scene.period(&parts);
        assert_eq!(scene.now.since(before), us(10 * 16 * 100));
    }

    /// tenants.5: the others are to have had what they are due of as much work, and what is owed has an end.
    #[test]
    fn a_flush_is_paid_for_before_the_next() {
        let mut scene = Scene::new();
        let [one, other] = [100, 300].map(|weight| scene.group(0, weight));
        [one, other].into_iter().for_each(|tenant| scene.opens(tenant, 8));
        scene.tenants.charge(one, 1000);
        assert!(!scene.tenants.owes(one), "its part is not known yet");
        let _ = scene.period(&[(one, 1), (other, 3)]);
        let paid_after = |scene: &mut Scene| {
            (0..)
                .take_while(|_| {
                    scene.tenants.owes(one) && {
                        let _ = scene.tenants.served(other, COST, TOOK);
                        true
                    }
                })
                .count()
        };
        let flush = |scene: &mut Scene, requests: u64| scene.tenants.charge(one, requests * u64::from(COST));
        flush(&mut scene, 10);
        assert!(scene.tenants.owes(one) && !scene.tenants.owes(other));
        scene.closes(other, 8);
        assert!(!scene.tenants.owes(one), "nobody is there whom it keeps waiting");
        scene.opens(other, 8);
        assert_eq!(paid_after(&mut scene), 30, "ten requests are a quarter of forty");
        flush(&mut scene, 10);
        flush(&mut scene, 10);
        flush(&mut scene, 1);
        // 80 are due for two, of which the flushes are 21; the third is small beside what is owed, and adds nothing.
        assert_eq!(paid_after(&mut scene), 59);
        (0..100).for_each(|_| flush(&mut scene, 10));
        assert_eq!(paid_after(&mut scene), 70, "twice 40, of which the last flush is 10");
    }

    /// places.1, places.3: rooms are as many requests as the depth says, by weight; of one that asks for less, that and the
    /// rest to the others.
    #[test]
    fn rooms_hold_as_many_requests_as_the_depth() {
        let mut scene = Scene::new();
        let all = [100, 200, 300, 400].map(|weight| scene.group(0, weight));
        assert_eq!(scene.rooms(40, &all), [u64::MAX; 4], "nothing is known of those that never asked");
        all.iter().for_each(|tenant| scene.opens(*tenant, 32));
        let _ = scene.period(&[(all[0], 1), (all[1], 2), (all[2], 3), (all[3], 4)]);
        let requests =
            |rooms: Vec<u64>| -> Vec<f64> { rooms.iter().map(|room| *room as f64 / f64::from(COST)).collect() };
        let near = |got: Vec<f64>, right: [f64; 4]| {
            assert!(got.iter().zip(right).all(|(got, right)| (got - right).abs() < 0.05), "{got:?}, and not {right:?}");
        };
        near(requests(scene.rooms(40, &all)), [4.0, 8.0, 12.0, 16.0]);
        near(requests(scene.rooms(20, &all)), [2.0, 4.0, 6.0, 8.0]);
        near(
            requests(scene.rooms(100, &all)),
            [11.3, 22.7, 32.0, 32.0].map(|one| {
                if one < 20.0 {
                    12.0
                } else if one < 30.0 {
                    24.0
                } else {
                    one
                }
            }),
        );
        assert_eq!(scene.rooms(128, &all), [u64::MAX; 4], "all that they have fits");
        // The heaviest asks for two at a time from now on: its places are its own for two periods.
        scene.closes(all[3], 30);
        let parts = [(all[0], 1), (all[1], 2), (all[2], 3), (all[3], 1)];
        let _ = scene.period(&parts);
        near(requests(scene.rooms(40, &all)), [4.0, 8.0, 12.0, 16.0]);
        let _ = scene.period(&parts);
        near(requests(scene.rooms(38, &all)), [6.0, 12.0, 18.0, 2.0]);
    }

    /// places.1: a request of its own fits, however small the part.
    #[test]
    fn one_request_always_fits() {
        let mut scene = Scene::new();
        let [heavy, light] = [1000, 1].map(|weight| scene.group(0, weight));
        [heavy, light].into_iter().for_each(|tenant| scene.opens(tenant, 64));
        let _ = scene.period(&[(heavy, 200), (light, 1)]);
        assert!(scene.rooms(8, &[light])[0] >= 1);
        assert!(scene.tenants.sent(light, COST), "that is all that it has room for");
        assert!(scene.tenants.has_room_again(light, COST), "and now it has room again");
    }

    /// A tenant whose requests take more than it has room for waits until some have ended, or until there is more room.
    #[test]
    fn a_tenant_is_held_until_it_has_room_again() {
        let mut scene = Scene::new();
        let both = [100, 100].map(|weight| scene.group(0, weight));
        both.into_iter().for_each(|tenant| scene.opens(tenant, 16));
        let _ = scene.period(&[(both[0], 1), (both[1], 1)]);
        assert_eq!(scene.rooms(8, &both), [4 * u64::from(COST); 2]);
        let sent = [(); 4].map(|()| scene.tenants.sent(both[0], COST));
        assert_eq!(sent, [false, false, false, true]);
        assert!(scene.tenants.is_held(both[0]) && !scene.tenants.is_held(both[1]));
        assert!(scene.tenants.has_room_again(both[0], COST));
        assert!(!scene.tenants.has_room_again(both[0], COST), "it has, and had");
        let _ = [(); 2].map(|()| scene.tenants.sent(both[0], COST));
        let mut released = Vec::new();
        scene.tenants.divide(12);
        scene.tenants.release(&mut released);
        assert_eq!(released, [both[0]], "with a greater depth there is more room");
        scene.tenants.divide(4);
        scene.tenants.release(&mut released);
        assert!(!scene.tenants.is_held(both[0]), "what is there already stays, and the next holds it");
        assert!(scene.tenants.sent(both[0], COST));
    }

    /// A group with groups below it is no tenant among them: it takes no room from them, and bounds the depth by what its streams
    /// are due.
    #[test]
    fn a_group_with_groups_below_it_shares_with_them() {
        let mut scene = Scene::new();
        let above = scene.group(0, 100);
        let _ = scene.tenants.never_hold(above);
        let below = [100, 100].map(|weight| scene.group(1, weight));
        let beside = scene.group(0, 100);
        [above, below[0], below[1], beside].into_iter().for_each(|tenant| scene.opens(tenant, 16));
        // Its own streams are siblings of the groups below it, with the weight of a stream.
        let parts = [(above, 20), (below[0], 50), (below[1], 50), (beside, 120)];
        let _ = scene.period(&parts);
        let period = scene.period(&parts);
        // 16 requests and half of the disk: those of the groups below have less of it.
        assert!((period.bound - 32.0).abs() < 1e-6, "{period:?}");
        let rooms = scene.rooms(24, &[below[0], below[1], beside]);
        let requests: Vec<f64> = rooms.iter().map(|room| *room as f64 / f64::from(COST)).collect();
        assert!((requests[2] - 12.0).abs() < 0.1, "{requests:?}");
        assert!(requests[0] + requests[1] > 9.0, "{requests:?}");
    }
}
