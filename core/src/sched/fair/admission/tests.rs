use super::*;
use crate::Weight;
use crate::time::{ms, us};

/// The cost of a request.
const COST: u32 = 10_000;
const FREE: Bounds = Bounds { most: 1e9, least: 1.0, least_exact: 1.0 };

struct Scene {
    tenants: Admission,
    now: Instant,
    groups: u16,
    places: f64,
}

impl Scene {
    fn new(places: f64) -> Self {
        Self { tenants: Admission::new(), now: Instant::ZERO, groups: 0, places }
    }

    fn group(&mut self, parent: u16, weight: u16) -> TenantId {
        self.groups += 1;
        let group = Group { path: "/x".into(), parent: Some(GroupId(parent)), weight: Weight::new(weight) };
        self.tenants.set_group(GroupId(self.groups), &group);
        self.tenants.add(GroupId(self.groups), None)
    }

    /// Tenants by weight, each with a number of requests.
    fn asking<const N: usize>(&mut self, weights: [u16; N], requests: u32) -> [TenantId; N] {
        weights.map(|weight| {
            let tenant = self.group(0, weight);
            self.opens(tenant, requests);
            tenant
        })
    }

    /// Requests come, and wait or are under way.
    fn opens(&mut self, tenant: TenantId, requests: u32) {
        (0..requests).for_each(|_| self.tenants.came(self.now, tenant));
    }

    fn closes(&mut self, tenant: TenantId, requests: u32) {
        (0..requests).for_each(|_| self.tenants.left(self.now, tenant));
    }

    /// Ends of requests in such parts, one every 10 µs, until the period is over.
    fn period(&mut self, parts: &[(TenantId, u32)], bounds: Bounds) -> Period {
        let whole: u32 = parts.iter().map(|(_, part)| part).sum();
        let mut due = vec![0; parts.len()];
        let period = loop {
            // The tenant that is furthest behind its part.
            due.iter_mut().zip(parts).for_each(|(due, (_, part))| *due += i64::from(*part));
            let next = (0..parts.len()).max_by_key(|at| due[*at]).unwrap();
            due[next] -= i64::from(whole);
            self.now += us(10);
            if self.tenants.served(self.now, parts[next].0, COST) {
                let (depth, costs) = (Depth::new(64), Costs::new(None));
                if let Some(period) = self.tenants.end_period(self.now, self.places, &depth, &costs, bounds) {
                    break period;
                }
            }
        };
        self.places = period.places;
        period
    }

    fn places<const N: usize>(&self, tenants: [TenantId; N]) -> [f64; N] {
        tenants.map(|tenant| self.tenants.tenants[tenant.0 as usize].places)
    }

    fn due<const N: usize>(&self, tenants: [TenantId; N]) -> [f64; N] {
        tenants.map(|tenant| self.tenants.tenants[tenant.0 as usize].due)
    }
}

fn assert_near<const N: usize>(got: [f64; N], right: [f64; N]) {
    assert!(got.iter().zip(right).all(|(got, right)| (got - right).abs() < 0.03 * right), "{got:?}, and not {right:?}");
}

/// admission.1: by weight at every level; the streams of a group beside the groups below it; what a tenant leaves goes to its
/// siblings.
#[test]
fn a_tenant_is_due_its_weights_part_of_what_its_group_is_due() {
    let mut scene = Scene::new(64.0);
    let above = scene.group(0, 300);
    let _ = scene.tenants.never_hold(above);
    let [a, b] = [40, 80].map(|weight| scene.group(1, weight));
    let beside = scene.group(0, 100);
    for tenant in [above, a, b, beside] {
        scene.opens(tenant, 40);
    }
    let parts = [(above, 1), (a, 1), (b, 1), (beside, 1)];
    let _ = scene.period(&parts, FREE);
    assert_near(scene.due([above, a, b, beside]), [0.1875, 0.1875, 0.375, 0.25]);
    // A tenant with few requests, all of them in the device: at most twice the part that it had.
    scene.closes(b, 39);
    scene.tenants.tenants[b.0 as usize].out = 2;
    let _ = scene.period(&[(above, 14), (a, 14), (b, 1), (beside, 14)], FREE);
    let [above, a, b, beside] = scene.due([above, a, b, beside]);
    assert_near([above, a, b, beside], [0.3526, 0.3526, 0.0448, 0.25]);
}

/// admission.7: and fewer places than the others' are kept.
#[test]
fn tenants_that_are_gone_keep_no_places() {
    let mut scene = Scene::new(64.0);
    let both = scene.asking([300, 100], 64);
    let [heavy, light] = both;
    let bounds = Bounds { most: 64.0, ..FREE };
    let _ = scene.period(&[(heavy, 3), (light, 1)], bounds);
    scene.closes(light, 64);
    scene.now += LONG;
    let _ = scene.period(&[(heavy, 1)], bounds);
    let [_, kept] = scene.places(both);
    assert!(kept > 12.0, "{kept}, and a quarter of 64 is due");
    scene.opens(light, 64);
    let _ = scene.period(&[(heavy, 3), (light, 1)], bounds);
    scene.closes(heavy, 64);
    scene.now += LONG;
    let period = scene.now;
    let _ = scene.period(&[(light, 1)], bounds);
    assert_eq!(scene.now.since(period), us(10), "one end tells it");
    let [none, all] = scene.places(both);
    assert!(none == 0.0 && all > 40.0, "{none} and {all} of 64");
}

/// admission.2: a tenant that had less than it was due has more places, and one that had more has fewer.
#[test]
fn places_follow_what_a_tenant_had_and_what_it_is_due() {
    let mut scene = Scene::new(64.0);
    let both = scene.asking([300, 100], 64);
    let parts = |ours, others| [(both[0], ours), (both[1], others)];
    let bounds = Bounds { most: 64.0, ..FREE };
    let _ = scene.period(&parts(1, 1), bounds);
    assert_near(scene.places(both), [48.0, 16.0]);
    // With its three quarters of the places it has less of the disk, for its clients are slow.
    for _ in 0..20 {
        let _ = scene.period(&parts(2, 1), bounds);
    }
    let [heavy, light] = scene.places(both);
    assert!(heavy > 60.0 && light < 4.0, "{heavy:.1} and {light:.1}");
    for _ in 0..25 {
        let _ = scene.period(&parts(4, 1), bounds);
    }
    let [heavy, light] = scene.places(both);
    assert!(light > 8.0, "{heavy:.1} and {light:.1}");
}

/// admission.2: another weight counts from the next period on.
#[test]
fn another_weight_moves_places_at_once() {
    let mut scene = Scene::new(64.0);
    let both = scene.asking([300, 100], 64);
    let parts = [(both[0], 3), (both[1], 1)];
    let bounds = Bounds { most: 64.0, ..FREE };
    let _ = scene.period(&parts, bounds);
    let _ = scene.period(&parts, bounds);
    for (group, weight) in [(1, 100), (2, 300)] {
        let group_of = Group { path: "/x".into(), parent: Some(GroupId::ROOT), weight: Weight::new(weight) };
        scene.tenants.set_group(GroupId(group), &group_of);
    }
    let _ = scene.period(&parts, bounds);
    assert_near(scene.places(both), [16.0, 48.0]);
}

/// admission.3: the sum grows to the depth that throughput needs while all wait, and shrinks for a tenant with nothing waiting.
#[test]
fn the_sum_of_places_shrinks_for_a_tenant_that_lacks() {
    let mut scene = Scene::new(32.0);
    let both = scene.asking([300, 100], 64);
    let parts = |ours, others| [(both[0], ours), (both[1], others)];
    let bounds = Bounds { most: 100.0, least: 20.0, least_exact: 10.0 };
    let waits = |scene: &mut Scene, is_waiting: bool| {
        for tenant in both {
            // The requests in the device are no more than all that there are.
            scene.tenants.tenants[tenant.0 as usize].out = if is_waiting { 0 } else { 65 };
        }
    };
    waits(&mut scene, true);
    for _ in 0..40 {
        let _ = scene.period(&parts(3, 1), bounds);
    }
    // Until the first has places for nearly all that it asks for.
    assert!((78.0..86.0).contains(&scene.places), "{}", scene.places);
    waits(&mut scene, false);
    // It has places for all, first.
    let _ = scene.period(&parts(2, 1), bounds);
    let mut before = scene.places;
    for _ in 0..5 {
        let _ = scene.period(&parts(2, 1), bounds);
        assert!(scene.places < before, "{} after {before}", scene.places);
        before = scene.places;
    }
}

/// admission.1: more tenants, longer periods.
#[test]
fn a_period_has_so_many_requests_for_each_tenant() {
    let mut scene = Scene::new(8.0);
    let many: Vec<TenantId> = (0..100).map(|_| scene.group(0, 100)).collect();
    many.iter().for_each(|tenant| scene.opens(*tenant, 1));
    let parts: Vec<_> = many.iter().map(|tenant| (*tenant, 1)).collect();
    // All of them have asked only by the end of the second.
    let _ = [(); 2].map(|()| scene.period(&parts, FREE));
    let before = scene.now;
    let _ = scene.period(&parts, FREE);
    assert_eq!(scene.now.since(before), us(10 * 16 * 100));
}

/// admission.6: what a tenant had is known once something of it has ended, or after a while.
#[test]
fn a_period_goes_on_for_a_tenant_of_which_nothing_has_ended() {
    let mut scene = Scene::new(16.0);
    let [small, large] = scene.asking([100, 100], 16);
    let costs = Costs::new(None);
    assert!(!scene.tenants.sent(large, Shape { sectors: 512, ..Shape::default() }));
    let ends = |scene: &mut Scene, tenant, cost| {
        scene.now += us(10);
        scene.tenants.served(scene.now, tenant, cost)
            && scene.tenants.end_period(scene.now, 16.0, &Depth::new(64), &costs, FREE).is_some()
    };
    assert!((0..1000).all(|_| !ends(&mut scene, small, COST)), "nothing of the other has ended");
    assert!(!ends(&mut scene, large, 64 * COST));
    let more = (0..).take_while(|_| !ends(&mut scene, small, COST)).count();
    assert!(more < 64, "{more} more");
    let [_, places] = scene.places([small, large]);
    // And if nothing of it ends in [`LONG`], it had half of one: it is due more.
    let until = scene.now + LONG + ms(1);
    while scene.now < until {
        let _ = ends(&mut scene, small, COST);
    }
    let [_, after] = scene.places([small, large]);
    assert!(after > places, "{after} after {places}");
}

/// admission.5: the others are to have had their due of as much work, and a debt has an end.
#[test]
fn a_flush_is_paid_for_before_the_next() {
    let mut scene = Scene::new(16.0);
    let [one, other] = [100, 300].map(|weight| scene.group(0, weight));
    [one, other].into_iter().for_each(|tenant| scene.opens(tenant, 8));
    scene.tenants.charge(one, 1000);
    assert!(!scene.tenants.owes(one), "its part is not known yet");
    let _ = scene.period(&[(one, 1), (other, 3)], FREE);
    let paid_after = |scene: &mut Scene| {
        (0..)
            .take_while(|_| {
                scene.tenants.owes(one) && {
                    let _ = scene.tenants.served(scene.now, other, COST);
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
    // 80 are due for two, 21 of them for the flushes; the third is small beside the debt, and adds nothing.
    assert_eq!(paid_after(&mut scene), 59);
    (0..100).for_each(|_| flush(&mut scene, 10));
    assert_eq!(paid_after(&mut scene), 70, "twice 40, of which the last flush is 10");
}

/// A tenant whose places are taken is held until one is free, or until it has more; it has one in any case; while another depth is
/// tried its places are multiplied (admission.4).
#[test]
fn a_tenant_is_held_until_it_has_room_again() {
    let mut scene = Scene::new(8.0);
    let both = scene.asking([100, 100], 16);
    let [one, light] = both;
    let _ = scene.period(&[(one, 1), (light, 1)], Bounds { most: 8.0, ..FREE });
    let give = |scene: &mut Scene, trial| {
        let mut released = Vec::new();
        scene.tenants.give(trial, 8, &Costs::new(None));
        scene.tenants.release(&mut released);
        released
    };
    assert!(give(&mut scene, None).is_empty());
    assert_eq!([(); 4].map(|()| scene.tenants.sent(one, Shape::default())), [false, false, false, true]);
    assert!(scene.tenants.is_held(one) && !scene.tenants.is_held(light));
    assert!(scene.tenants.has_room_again(one));
    assert!(!scene.tenants.has_room_again(one), "it has, and had");
    let _ = [(); 2].map(|()| scene.tenants.sent(one, Shape::default()));
    assert_eq!(give(&mut scene, Some(12.0)), [one], "with a greater depth there is more room");
    let _ = give(&mut scene, Some(1.0));
    assert!(!scene.tenants.is_held(one), "what is there already stays, and the next holds it");
    assert!(scene.tenants.sent(one, Shape::default()));
    assert!(scene.tenants.sent(light, Shape::default()), "one request always fits, and no more does");
    let mut released = Vec::new();
    scene.tenants.give_all();
    scene.tenants.release(&mut released);
    assert_eq!(released, both);
}
