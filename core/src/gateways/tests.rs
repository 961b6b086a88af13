use alloc::format;
use alloc::vec;

use super::*;
use crate::time::ms;

impl Pool {
    /// A period is over, and others' reports were heard of before.
    fn period(&mut self, groups: &BTreeMap<String, Counted>, depth: f64) -> Allotment {
        self.count(groups, depth);
        self.turn()
    }
}

/// A group with this service, which wants more, and is set in no special way.
fn counted(served: f64) -> Counted {
    let settings = Settings { weight: Weight::DEFAULT, bounds: Bounds::default(), changed: 0 };
    Counted { served, requests: 1000.0, waits: true, held: false, rates: [served; Rate::COUNT], settings }
}

fn groups<const N: usize>(of: [(&str, Counted); N]) -> BTreeMap<String, Counted> {
    of.into_iter().map(|(path, counted)| (path.into(), counted)).collect()
}

/// The figures of a group whose gateway has `depth` requests outstanding, from those with 32.
fn with(depth: f64, counted: &Counted) -> Counted {
    let times = if counted.waits { depth / 32.0 } else { 1.0 };
    let rates = counted.rates.map(|rate| times * rate);
    Counted { served: times * counted.served, requests: times * counted.requests, rates, ..*counted }
}

/// Two gateways that know each other, over some periods; `of` is their service with 32 requests outstanding each.
fn periods(of: [&BTreeMap<String, Counted>; 2], count: usize) -> [(Pool, Allotment); 2] {
    let mut pools = [Pool::new("gw1", 1), Pool::new("gw2", 2)];
    let mut turns = [32.0, 32.0].map(|depth| Allotment { depth, ..Allotment::default() });
    let names = ["gw1", "gw2"];
    for period in 0..=count {
        for at in [0, 1] {
            let counted = of[at].iter().map(|(path, one)| (path.clone(), with(turns[at].depth, one))).collect();
            pools[at].count(&counted, 64.0);
            let report = pools[at].report().write();
            pools[1 - at].hear(names[at], report.as_bytes());
        }
        if period > 0 {
            turns = pools.each_mut().map(Pool::turn);
        }
    }
    let [one, two] = pools;
    let [first, second] = turns;
    [(one, first), (two, second)]
}

/// division.1, division.4: the example of the module.
#[test]
fn a_gateway_with_one_of_four_tenants_is_due_a_quarter() {
    let [one, two] = [
        groups([("/a", counted(1000.0))]),
        groups([("/b", counted(333.0)), ("/c", counted(333.0)), ("/d", counted(334.0))]),
    ];
    let [(pool, turn), (_, other)] = periods([&one, &two], 3);
    for path in ["/a", "/b", "/c", "/d"] {
        assert!((pool.groups()[path].due - 0.25).abs() < 1e-6, "{path}: {:?}", pool.groups()[path]);
    }
    assert!(turn.depth < 20.0 && other.depth > 40.0, "{} and {}", turn.depth, other.depth);
    let sum: f64 = pool.gateways().iter().map(|seen| seen.depth).sum();
    assert!((50.0..=80.0).contains(&sum), "{sum}");
}

/// division.3
#[test]
fn a_tenant_at_two_gateways_counts_half_at_each() {
    let [one, two] = [
        groups([("/a", counted(500.0)), ("/b", counted(500.0))]),
        groups([("/a", counted(500.0)), ("/c", counted(500.0))]),
    ];
    let [(pool, turn), _] = periods([&one, &two], 3);
    assert!((pool.groups()["/a"].part - 0.5).abs() < 0.01, "{:?}", pool.groups()["/a"]);
    assert_eq!((turn.groups["/a"].weight.get(), turn.groups["/b"].weight.get()), (500, 1000));
}

/// division.2: a group that had nothing yet is due its part where it is, and nowhere else.
#[test]
fn a_group_that_had_nothing_is_due_at_its_own_gateway_alone() {
    let [one, two] = [groups([("/a", counted(0.0)), ("/b", counted(0.0))]), groups([("/c", counted(900.0))])];
    for (pool, _) in periods([&one, &two], 3) {
        let due: Vec<f64> = pool.gateways().iter().map(|seen| seen.due).collect();
        assert!((due[0] - 2.0 / 3.0).abs() < 1e-6 && (due[1] - 1.0 / 3.0).abs() < 1e-6, "{due:?}");
    }
}

/// gossip.5, division.1, division.3
#[test]
fn the_weight_of_a_group_counts_for_those_below_it_wherever_they_are_served() {
    let idle = |weight| Counted {
        settings: Settings { weight: Weight::new(weight), ..counted(0.0).settings },
        requests: 0.0,
        waits: false,
        ..counted(0.0)
    };
    let gold = ("/gold", idle(300));
    let [one, two] = [
        groups([gold, ("/gold/a", counted(500.0)), ("/idle", idle(900)), ("/lead", counted(500.0))]),
        groups([gold, ("/gold/b", counted(500.0)), ("/silver", idle(100)), ("/silver/c", counted(500.0))]),
    ];
    let [(pool, turn), _] = periods([&one, &two], 3);
    for (path, due) in [("/gold", 0.6), ("/gold/a", 0.3), ("/lead", 0.2), ("/silver/c", 0.2)] {
        assert!((pool.groups()[path].due - due).abs() < 0.01, "{path}: {:?}", pool.groups()[path]);
    }
    assert!(!pool.groups().contains_key("/idle"));
    let weight = |path: &str| turn.groups[path].weight.get();
    assert_eq!((weight("/gold"), weight("/lead")), (1000, 667), "half of 300 beside 100");
}

/// division.1
#[test]
fn the_floor_of_a_group_is_that_of_those_below_it() {
    let bounds = Bounds { floor: Rates::NONE.with(Rate::Iops, 800), ..Bounds::default() };
    let settings = Settings { weight: Weight::new(10), bounds, changed: 0 };
    let above = Counted { settings, waits: false, ..counted(0.0) };
    let [one, two] = [groups([("/t", above), ("/t/a", counted(500.0))]), groups([("/b", counted(500.0))])];
    let [(pool, _), _] = periods([&one, &two], 8);
    assert!((pool.groups()["/t"].due - 0.8).abs() < 0.02, "{:?}", pool.groups()["/t"]);
}

/// gateway.5
#[test]
fn whole_weights_are_exact_over_some_periods() {
    let heavy = Counted { settings: Settings { weight: Weight::MAX, ..counted(0.0).settings }, ..counted(900.0) };
    let light = Counted { settings: Settings { weight: Weight::new(1), ..counted(0.0).settings }, ..counted(10.0) };
    let all = groups([("/heavy", heavy), ("/light", light)]);
    let other = groups([("/heavy", heavy), ("/light", Counted { served: 15.0, ..light })]);
    let mut pools = [Pool::new("gw1", 1), Pool::new("gw2", 2)];
    let mut sum = 0;
    for _ in 0..100 {
        let turn = pools[0].period(&all, 64.0);
        let report = pools[0].report().write();
        pools[1].hear("gw1", report.as_bytes());
        pools[1].period(&other, 64.0);
        let report = pools[1].report().write();
        pools[0].hear("gw2", report.as_bytes());
        let weight = |path: &str| u32::from(turn.groups[path].weight.get());
        assert_eq!(weight("/heavy"), 1000);
        sum += weight("/light");
    }
    assert!((100..=200).contains(&sum), "{sum}: a weight of 1, of which somewhat less than half is here");
}

/// division.6, and the warning.
#[test]
fn the_settings_that_were_changed_last_hold_at_all_gateways() {
    let set = |weight, changed| Counted {
        settings: Settings { weight: Weight::new(weight), bounds: Bounds::default(), changed },
        ..counted(100.0)
    };
    let [one, two] = [groups([("/a", set(300, 7))]), groups([("/a", set(100, 6))])];
    for (mut pool, _) in periods([&one, &two], 3) {
        assert_eq!(pool.groups()["/a"].settings.weight.get(), 300);
        let differs = pool.take_notes().into_iter().filter(|note| *note == Note::Differs("/a".into())).count();
        assert_eq!(differs, 1, "it is told once");
    }
    let two = groups([("/a", set(100, 7))]);
    let [(pool, _), _] = periods([&one, &two], 3);
    assert_eq!(pool.groups()["/a"].settings.weight.get(), 100, "at once: the gateway whose name comes last");
}

/// division.5
#[test]
fn parts_of_a_ceiling_add_up_to_it() {
    let with = |rate: f64, held| {
        let ceiling = Ceiling::of(Rates::NONE.with(Rate::Iops, 1000));
        let bounds = Bounds { ceiling, ..Bounds::default() };
        let rates = [rate; Rate::COUNT];
        Counted { held, waits: false, rates, settings: Settings { bounds, ..counted(0.0).settings }, ..counted(rate) }
    };
    for (one, two) in [
        (with(500.0, true), with(500.0, true)),
        (with(100.0, false), with(500.0, true)),
        (with(0.0, false), with(900.0, true)),
        (with(10.0, false), with(20.0, false)),
    ] {
        let [first, second] = periods([&groups([("/a", one)]), &groups([("/a", two)])], 4);
        let part = |(_, turn): &(Pool, Allotment)| turn.groups["/a"].bounds.ceiling.max.get(Rate::Iops).unwrap();
        let parts = [part(&first), part(&second)];
        assert!(parts[0] + parts[1] <= 1001, "{parts:?}");
        assert!(parts[0] + parts[1] >= 999, "{parts:?}");
        assert!(parts[0] >= 25, "a little for a client that comes: {parts:?}");
        if two.held && !one.held {
            assert!(parts[1] >= 850, "it has what the other leaves: {parts:?}");
        }
    }
}

/// gateway.1, gateway.3
#[test]
fn a_gateway_that_is_not_heard_of_for_three_periods_is_gone_and_may_come_back() {
    let [one, two] = [groups([("/a", counted(500.0))]), groups([("/b", counted(500.0))])];
    let [(mut pool, _), (mut other, _)] = periods([&one, &two], 3);
    pool.take_notes();
    let mut depths = vec![];
    for _ in 0..5 {
        depths.push(pool.period(&one, 64.0).depth);
    }
    assert!(depths[..2].iter().all(|depth| *depth < 50.0), "its part is left to it: {depths:?}");
    assert!(depths[2..].iter().all(|depth| *depth > 60.0), "its part is the others': {depths:?}");
    assert_eq!(pool.take_notes(), [Note::Goes { gateway: "gw2".into(), silent: Some(3) }]);
    pool.hear("gw2", other.report().write().as_bytes());
    pool.period(&one, 64.0);
    assert_eq!(pool.take_notes(), [Note::Comes("gw2".into())]);
    pool.hear("gw2", other.last_report().write().as_bytes());
    assert_eq!(pool.take_notes(), [Note::Goes { gateway: "gw2".into(), silent: None }], "at once");
}

/// Has the pool hear of gateway 2 a number of times, each some periods after the time before.
fn hears(pool: &mut Pool, other: &mut Pool, reports: usize, every: usize) {
    for _ in 0..reports {
        (0..every).for_each(|_| _ = pool.period(&BTreeMap::new(), 64.0));
        other.count(&BTreeMap::new(), 64.0);
        pool.hear("gw2", other.report().write().as_bytes());
    }
}

/// gateway.1
#[test]
fn a_gateway_is_waited_for_twice_as_long_as_its_reports_took_of_late() {
    for (every, waited_for) in [(1, 3), (2, 4), (3, 6), (10, 12)] {
        let [mut pool, mut other] = [Pool::new("gw1", 1), Pool::new("gw2", 2)];
        hears(&mut pool, &mut other, 2, every);
        pool.take_notes();
        (0..20).for_each(|_| _ = pool.period(&BTreeMap::new(), 64.0));
        assert_eq!(pool.take_notes(), [Note::Goes { gateway: "gw2".into(), silent: Some(waited_for) }]);
    }
}

/// gateway.1
#[test]
fn a_silence_is_forgotten_in_a_minute_or_two() {
    let [mut pool, mut other] = [Pool::new("gw1", 1), Pool::new("gw2", 2)];
    hears(&mut pool, &mut other, 1, 1);
    for (reports, every, patience) in
        [(1, 2, 4), (10, 1, 4), (10, 1, 3), (1, 6, 12), (75, 1, 6), (75, 1, 3), (1, 9, 12)]
    {
        hears(&mut pool, &mut other, reports, every);
        assert_eq!(pool.others["gw2"].patience(), patience, "after {reports} more reports");
    }
    hears(&mut pool, &mut Pool::new("gw2", 3), 1, 1);
    assert_eq!(pool.others["gw2"].patience(), 3, "a server that has just started was not slow yet");
}

/// speed.2, gossip.4: gateways mean different seconds, so one of them still tells of none served when the other's works again.
#[test]
fn a_second_in_which_the_cluster_stood_still_leaves_parts_as_they_were() {
    let [one, two] = [groups([("/a", counted(500.0))]), groups([("/b", counted(500.0))])];
    let [(mut pool, turn), (mut other, _)] = periods([&one, &two], 4);
    (0..10).for_each(|_| other.count(&groups([("/b", counted(0.0))]), 64.0));
    pool.hear("gw2", other.report().write().as_bytes());
    other.count(&two, 64.0);
    pool.hear("gw2", other.report().write().as_bytes());
    let after = pool.period(&one, 64.0).depth;
    assert!((turn.depth * 0.7..turn.depth * 1.3).contains(&after), "{} before, {after} after", turn.depth);
}

/// speed.2
#[test]
fn a_weight_that_is_set_while_the_cluster_stands_still_is_told_at_once() {
    let mut pool = Pool::new("gw1", 1);
    let mut a = counted(1000.0);
    (0..4).for_each(|_| _ = pool.period(&groups([("/a", a)]), 64.0));
    a = Counted { requests: 0.0, ..with(0.0, &a) };
    a.settings.weight = Weight::new(300);
    pool.period(&groups([("/a", a)]), 64.0);
    let group = &pool.report().groups["/a"];
    assert_eq!((group.settings.weight, group.served), (Weight::new(300), 1000.0));
}

/// division.4
#[test]
fn gateways_keep_their_requests_while_nothing_was_served_yet() {
    let [one, two] = [groups([("/a", counted(0.0))]), groups([("/b", counted(0.0))])];
    for (_, turn) in periods([&one, &two], 6) {
        assert_eq!(turn.depth, 32.0);
    }
}

/// room.5: A at gateway 1 misses its latency beside B at gateway 2.
#[test]
fn a_gateway_makes_room_for_a_latency_that_another_one_tells_of_until_its_reports_are_stale() {
    let one = groups([("/a", Counted { waits: false, ..counted(100.0) })]);
    let two = groups([("/b", counted(900.0))]);
    let [mut pool, mut other] = [Pool::new("gw1", 1), Pool::new("gw2", 2)];
    let mut depths = vec![];
    let mut period = |own: Option<bool>, others: Option<bool>, is_heard: bool| {
        pool.latencies(&[("/a".into(), own)].into());
        pool.period(&one, 64.0);
        if is_heard {
            other.hear("gw1", pool.report().write().as_bytes());
        }
        other.latencies(&others.map(|missed| ("/b".into(), Some(missed))).into_iter().collect());
        let turn = other.period(&two, 64.0);
        pool.hear("gw2", other.report().write().as_bytes());
        depths.push(turn.depth / other.own.depth);
        other.room().map(|(group, _)| alloc::string::String::from(group))
    };
    assert_eq!(period(Some(false), None, true), None);
    (0..8).for_each(|_| _ = period(Some(true), None, true));
    assert_eq!(period(Some(true), None, true), Some("/a".into()));
    assert_eq!(period(Some(true), Some(true), true), Some("/a".into()), "/b has missed its own once");
    assert_eq!(period(Some(true), None, true), Some("/a".into()));
    (0..4).for_each(|_| _ = period(Some(true), None, false));
    assert_eq!(period(Some(true), None, false), None, "the report is stale");
    assert_eq!(period(None, None, true), None, "no room is needed when it is away");
    assert!(depths[0] == 1.0 && depths[9] < 0.25 && depths[16..] == [1.0, 1.0], "{depths:?}");
}

/// room.5
#[test]
fn of_two_groups_that_miss_their_latencies_the_one_that_is_farther_off_has_room() {
    let [one, two] = [groups([("/a", counted(500.0))]), groups([("/b", counted(500.0))])];
    let [(mut pool, _), (mut other, _)] = periods([&one, &two], 1);
    for period in 0..8 {
        pool.latencies(&[("/a".into(), Some(period == 0))].into());
        other.latencies(&[("/b".into(), Some(true))].into());
        (_, _) = (pool.period(&one, 64.0), other.period(&two, 64.0));
        other.hear("gw1", pool.report().write().as_bytes());
        pool.hear("gw2", other.report().write().as_bytes());
    }
    assert_eq!(pool.room().map(|(group, _)| group), Some("/b"));
    assert_eq!(other.room(), None);
}

/// speed.4: the cluster does twice as much for each request while the other one is silent.
#[test]
fn a_gateway_keeps_its_requests_while_another_one_is_silent_and_forgets_what_it_had_beside_it() {
    let [one, two] = [groups([("/a", counted(500.0))]), groups([("/b", counted(500.0))])];
    let [(mut pool, turn), _] = periods([&one, &two], 4);
    let alone = groups([("/a", counted(1000.0))]);
    for _ in 1..STALE {
        let depth = pool.period(&alone, 64.0).depth;
        assert!((turn.depth * 0.9..turn.depth * 1.1).contains(&depth), "{} before, {depth} now", turn.depth);
    }
    assert_eq!(pool.period(&alone, 64.0).depth, 64.0);
    // Its limit grew in the first of these, which seemed faster.
    (0..9).for_each(|_| _ = pool.period(&groups([("/a", counted(700.0))]), 64.0));
    assert!(pool.own.speed.is_some_and(|speed| (speed * 64.0 - 700.0).abs() < 0.01), "{:?}", pool.own.speed);
}

/// speed.1: a limit holds from its turn on, which is a fifth of a period after the period began.
#[test]
fn a_period_counts_by_the_limits_that_held_in_it() {
    let mut pool = Pool::new("gw1", 1);
    pool.period(&groups([("/a", counted(1000.0))]), 64.0);
    (pool.allowed, pool.speed) = ([64.0, 32.0], Speed::default());
    pool.count(&groups([("/a", counted(2.0 * (0.2 * 64.0 + 0.8 * 32.0)))]), 64.0);
    assert_eq!((pool.own.speed, pool.allowed), (Some(2.0), [32.0, 32.0]));
}

/// gateway.2
#[test]
fn a_report_that_comes_late_says_nothing() {
    let mut other = Pool::new("gw2", 2);
    other.period(&groups([("/b", counted(500.0))]), 64.0);
    let first = other.report().write();
    other.period(&groups([("/b", counted(900.0))]), 64.0);
    let second = other.report().write();
    let mut pool = Pool::new("gw1", 1);
    pool.hear("gw2", second.as_bytes());
    pool.hear("gw2", first.as_bytes());
    assert_eq!(pool.gateways()[1].served, 900.0);
}

/// gateway.4
#[test]
fn two_gateways_of_one_name_are_told_of_once() {
    let report = |instance| {
        let mut pool = Pool::new("gw2", instance);
        pool.period(&BTreeMap::new(), 64.0);
        pool.report().write()
    };
    let mut pool = Pool::new("gw1", 1);
    for instance in [2, 3, 2, 3, 2] {
        pool.hear("gw2", report(instance).as_bytes());
    }
    let is_twin = |pool: &Pool| pool.gateways().iter().any(|seen| seen.is_twin);
    let twins = |pool: &mut Pool| pool.take_notes().into_iter().filter(|note| matches!(note, Note::Twin(_))).count();
    assert_eq!(twins(&mut pool), 1);
    assert!(is_twin(&pool));
    let mut left = Pool::new("gw2", 2);
    for _ in 0..=STALE_MOST {
        left.period(&BTreeMap::new(), 64.0);
        pool.hear("gw2", left.report().write().as_bytes());
    }
    assert!(!is_twin(&pool), "the other one has another name by now");
    // One of a previous server is no twin of ours; one that takes the place of ours is.
    pool.hear("gw1", report(9).as_bytes());
    assert_eq!(twins(&mut pool), 0);
    pool.report();
    for _ in 0..4 {
        pool.hear("gw1", report(9).as_bytes());
    }
    assert_eq!(twins(&mut pool), 1);
}

/// gossip.1: what cannot be read is told once, and again when it was read meanwhile.
#[test]
fn a_damaged_report_leaves_the_one_before() {
    let mut other = Pool::new("gw2", 2);
    other.period(&groups([("/b", counted(500.0))]), 64.0);
    let mut pool = Pool::new("gw1", 1);
    pool.hear("gw2", other.report().write().as_bytes());
    pool.take_notes();
    for _ in 0..3 {
        pool.hear("gw2", b"{\"version\": 1}");
    }
    assert_eq!(pool.take_notes().len(), 1);
    assert_eq!(pool.gateways()[1].served, 500.0);
}

/// gossip.2: costs are told as ratios, and those of gateways that served more count for more.
#[test]
fn costs_are_what_all_gateways_found() {
    let model = |rseqiops| Model::from([4096.0, rseqiops, 1.0, 4096.0, 1.0, 1.0]);
    let mut other = Pool::new("gw2", 2);
    other.costs(Some(model(4.0)));
    other.period(&groups([("/b", counted(900.0))]), 64.0);
    let mut pool = Pool::new("gw1", 1);
    assert_eq!(pool.costs(None), None);
    pool.hear("gw2", other.report().write().as_bytes());
    pool.period(&groups([("/a", counted(900.0))]), 64.0);
    let mean = pool.costs(Some(Model::from(model(1.0).values().map(|value| 1e5 * value)))).unwrap();
    assert!((mean.rseqiops - 2.0).abs() < 1e-9, "{mean:?}");
}

/// division.1: what groups are due is all that was served, and floors are kept, for any reports.
#[test]
fn all_that_was_served_is_due_to_somebody() {
    for seed in fairlift_lab::repeat::seeds(1..40) {
        let mut random = fairlift_lab::Random::new(seed);
        let mut below = |bound: u64| random.below(bound);
        let count = 1 + below(5) as usize;
        let mut pool = Pool::new("gw0", 0);
        let mut own = BTreeMap::new();
        let mut whole = 0.0;
        for gateway in 0..count {
            let groups: BTreeMap<String, Counted> = (0..below(8))
                .map(|_| {
                    let path = alloc::format!("/{}{}", below(3), ["", "/x", "/y"][below(3) as usize]);
                    let floor = if below(4) == 0 { Rates::NONE.with(Rate::Iops, 1 + below(500)) } else { Rates::NONE };
                    let bounds = Bounds { floor, latency: Some(ms(5)), ..Bounds::default() };
                    let settings = Settings { weight: Weight::new(1 + below(1000) as u16), bounds, changed: below(3) };
                    let served = if below(4) == 0 { 0.0 } else { below(2000) as f64 };
                    (path, Counted { waits: below(3) > 0, held: below(5) == 0, settings, ..counted(served) })
                })
                .collect();
            whole += groups.values().map(|counted| counted.served).sum::<f64>();
            if gateway == 0 {
                own = groups;
            } else {
                let name = alloc::format!("gw{gateway}");
                let mut other = Pool::new(&name, gateway as u64);
                other.period(&groups, 64.0);
                pool.hear(&name, other.report().write().as_bytes());
            }
        }
        let turn = pool.period(&own, 64.0);
        assert!(turn.depth > 0.0 && turn.depth <= 64.0, "{}", turn.depth);
        if whole > 0.0 {
            let due: f64 =
                pool.groups().iter().filter(|(path, _)| path.matches('/').count() == 1).map(|(_, due)| due.due).sum();
            let inner: f64 = ["/0", "/1", "/2"]
                .iter()
                .filter(|path| !pool.groups().contains_key(**path))
                .map(|path| {
                    let below = |other: &str| other.starts_with(&alloc::format!("{path}/"));
                    pool.groups().iter().filter(|(other, _)| below(other)).map(|(_, due)| due.due).sum::<f64>()
                })
                .sum();
            assert!((due + inner - 1.0).abs() < 1e-6, "{due} and {inner} of 1: {:?}", pool.groups());
            let due: f64 = pool.gateways().iter().map(|seen| seen.due).sum();
            assert!((due - 1.0).abs() < 1e-6, "gateways are due {due} of 1: {:?}", pool.gateways());
        }
        for held in turn.groups.values() {
            assert!(held.weight.get() >= 1);
        }
    }
}

/// division.7: what gateways tell may be anything.
#[test]
fn more_groups_than_there_are_numbers_for_end_no_gateway() {
    let mut pool = Pool::new("gw1", 1);
    let many = |name: &str| (0..40_000).map(|n| (format!("/{name}/{n}"), counted(1.0))).collect();
    pool.count(&many("b"), 64.0);
    let own = pool.own.clone();
    pool.count(&many("a"), 64.0);
    let reports = [("gw1", &pool.own), ("gw2", &own)];
    let groups = divide(&reports.map(|(name, report)| Member { name, report, speed: None }), 0).groups;
    assert!(
        groups.len() > 60_000 && groups.contains_key("/a/0") && !groups.contains_key("/b/9999"),
        "{}",
        groups.len()
    );
}
