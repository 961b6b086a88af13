use super::*;
use crate::Sector;

/// A disk's costs of requests, with the deviation of its windows.
struct Disk {
    theta: [f64; COUNT],
    noise: f64,
    seed: u64,
}

/// The possible contents of a window.
#[derive(Clone, Copy)]
struct Mix {
    /// Parts of writes and of far requests, from and to.
    writes: (f64, f64),
    far: (f64, f64),
    /// Pages, as powers of two, from and to.
    pages: (f64, f64),
}

const MIXED: Mix = Mix { writes: (0.0, 1.0), far: (0.0, 1.0), pages: (0.0, 5.0) };
const SMALL_READS: Mix = Mix { writes: (0.0, 0.0), far: (1.0, 1.0), pages: (0.0, 0.0) };
/// ns for each KiB beyond 4, for each near and for each far request, of reads and of writes: like a virtual disk's.
const TRUE: [f64; COUNT] = [400.0, 3000.0, 8000.0, 900.0, 5000.0, 20_000.0];

impl Disk {
    fn new(theta: [f64; COUNT]) -> Self {
        Self { theta, noise: 0.1, seed: 7 }
    }

    fn random(&mut self) -> f64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn between(&mut self, (from, to): (f64, f64)) -> f64 {
        from + (to - from) * self.random()
    }

    /// A window of 128 requests, of a composition of its own, and how long it took.
    fn window(&mut self, mix: Mix) -> (Sum, Duration) {
        let (writes, far, pages) = (self.between(mix.writes), self.between(mix.far), self.between(mix.pages));
        let mut sum = Sum::default();
        for _ in 0..128 {
            let (write, far) = (self.random() < writes, self.random() < far);
            let shape = Shape { write, far, roams: far, sectors: 8 << (pages as u32) };
            sum.add(shape, Costs::new(None).kind(shape));
        }
        let row = row(&sum);
        let time: f64 = (0..COUNT).map(|n| row[n] * self.theta[n]).sum();
        // Twelve of these make a deviation of one.
        let noise: f64 = (0..12).map(|_| self.random()).sum::<f64>() - 6.0;
        (sum, Duration::from_nanos((time * (1.0 + self.noise * noise).max(0.1)) as u64))
    }

    fn teach(&mut self, costs: &mut Costs, mix: Mix, windows: u32) {
        for _ in 0..windows {
            let (sum, time) = self.window(mix);
            learn(costs, &sum, time);
        }
    }

    /// The greatest factor by which the cost of a request is off, of some that matter: small and large, near and far.
    fn error(&self, costs: &Costs) -> f64 {
        let mut worst: f64 = 1.0;
        for (write, far, sectors) in [false, true]
            .iter()
            .flat_map(|w| [false, true].map(|f| (*w, f)))
            .flat_map(|(w, f)| [8, 64, 256].map(|s| (w, f, s)))
        {
            let shape = Shape { write, far, roams: far, sectors };
            let mut sum = Sum::default();
            sum.add(shape, Costs::new(None).kind(shape));
            let row = row(&sum);
            let right: f64 = (0..COUNT).map(|n| row[n] * self.theta[n]).sum();
            let ratio = f64::from(costs.of(shape)) / right;
            worst = worst.max(ratio).max(1.0 / ratio);
        }
        worst
    }
}

/// How often each coefficient counts.
fn row(sum: &Sum) -> [f64; COUNT] {
    core::array::from_fn(|n| (0..KINDS).map(|kind| sum.row(kind)[n]).sum())
}

fn learn(costs: &mut Costs, sum: &Sum, time: Duration) -> Finding {
    let rows = core::array::from_fn(|kind| sum.row(kind));
    costs.explain(sum, &Equation { rows, inside: [0; KINDS], time: time.as_nanos() as f64, lost: 0.0 }, time)
}

/// Starts where the coefficients are these.
fn costs(theta: [f64; COUNT]) -> Costs {
    let mut costs = Costs::new(None);
    (costs.theta, costs.before, costs.is_new) = (theta, theta, false);
    costs.tell();
    costs
}

/// cost.2: reads and writes, base and length, near and far are told apart where their mixture changes.
#[test]
fn what_requests_cost_is_found_from_the_times_of_mixed_windows() {
    let mut disk = Disk::new(TRUE);
    let mut costs = Costs::new(None);
    let before = disk.error(&costs);
    disk.teach(&mut costs, MIXED, 300);
    let after = disk.error(&costs);
    assert!(before > 2.0 && after < 1.2, "off by a factor of {before:.2} before, of {after:.2} after 300 windows");
}

/// cost.2: a load of far requests alone tells of near ones, which are hardly cheaper on a disk without an arm. Told apart by chance, they gave a
/// tenant whose requests happened to lie near a third more than its due.
#[test]
fn near_requests_cost_about_what_far_ones_do_until_they_are_measured() {
    let far = Mix { far: (1.0, 1.0), ..MIXED };
    let mut disk = Disk::new([400.0, 24_000.0, 24_000.0, 400.0, 3000.0, 3000.0]);
    let mut costs = costs([1000.0, 8000.0, 8000.0, 1000.0, 8000.0, 8000.0]);
    disk.teach(&mut costs, far, 100);
    for write in [false, true] {
        let [near, far] = [false, true].map(|far| f64::from(costs.of(Shape { write, far, roams: far, sectors: 8 })));
        assert!((0.8..1.25).contains(&(near / far)), "write: {write}; {near} ns near, {far} ns far");
    }
}

/// cost.2, cost.3: which coefficient is wrong does not matter.
#[test]
fn a_model_that_is_wrong_by_ten_in_one_coefficient_is_put_right() {
    for wrong in 0..COUNT {
        for factor in [0.1, 10.0] {
            let mut given = TRUE;
            given[wrong] *= factor;
            let (mut disk, mut costs) = (Disk::new(TRUE), costs(given));
            let before = disk.error(&costs);
            disk.teach(&mut costs, MIXED, 600);
            let after = disk.error(&costs);
            assert!(
                after < 1.6 && after < before,
                "coefficient {wrong} times {factor}: off by {before:.2}, and by {after:.2} then"
            );
        }
    }
}

/// cost.3: a disk becomes another, and is known again soon.
#[test]
fn a_disk_that_changes_is_followed() {
    let (mut disk, mut costs) = (Disk::new(TRUE), costs(TRUE));
    disk.teach(&mut costs, MIXED, 2000);
    assert!(disk.error(&costs) < 1.2, "{:.2}", disk.error(&costs));
    for n in 3..COUNT {
        disk.theta[n] *= 3.0;
    }
    disk.teach(&mut costs, MIXED, 400);
    assert!(disk.error(&costs) < 1.3, "writes cost three times as much: off by {:.2}", disk.error(&costs));
}

/// cost.8: a disk does a fifth from one window to the next, soon after it was first seen: the costs of its requests beside each
/// other are as before.
#[test]
fn a_disk_that_is_slower_as_a_whole_keeps_its_ratios() {
    const WRITES: Mix = Mix { writes: (1.0, 1.0), far: (1.0, 1.0), pages: (0.0, 5.9) };
    let off = |seed| {
        let (mut disk, mut costs) = (Disk { seed, ..Disk::new(TRUE) }, costs(TRUE));
        disk.teach(&mut costs, WRITES, 2);
        disk.theta = disk.theta.map(|each| each * 5.0);
        disk.teach(&mut costs, WRITES, 3);
        let cost = |sectors| f64::from(costs.of(Shape { write: true, far: true, roams: true, sectors }));
        let off = cost(256) / cost(8) / (1.0 + 124.0 * TRUE[3] / TRUE[5]);
        off.max(1.0 / off)
    };
    let far_off = (0..100).map(off).filter(|off| *off > 2.0).count();
    assert!(far_off <= 5, "128 KiB cost twice or half of what is right beside 4 KiB in {far_off} of 100 runs");
}

/// cost.2: where there is one kind of request alone, nothing is learned of others, nor of the parts of its own
/// time.
#[test]
fn what_a_load_does_not_tell_apart_keeps_its_ratio() {
    let (mut disk, mut costs) = (Disk::new(TRUE), Costs::new(None));
    let before = costs.theta;
    disk.teach(&mut costs, SMALL_READS, 1000);
    let after = costs.theta;
    let read = costs.of(Shape { write: false, far: true, roams: true, sectors: 8 });
    let right = TRUE[2];
    assert!((f64::from(read) / right - 1.0).abs() < 0.1, "a read costs {read} ns and takes {right}");
    assert!((after[0] / after[2] / (before[0] / before[2]) - 1.0).abs() < 0.05, "{before:?}, then {after:?}");
    assert!((after[3] / after[5] / (before[3] / before[5]) - 1.0).abs() < 1e-9, "writes: {before:?}, then {after:?}");
    assert!((after[4] / after[5] / (before[4] / before[5]) - 1.0).abs() < 1e-9, "writes: {before:?}, then {after:?}");
}

/// cost.6: a kind has a trial only beside another, and only while its cost is not known; dearer first, then cheaper.
#[test]
fn trials_are_for_what_is_not_known() {
    let (mut disk, mut costs) = (Disk::new(TRUE), costs(TRUE));
    for _ in 0..200 {
        disk.teach(&mut costs, SMALL_READS, 1);
        assert_eq!(costs.price, PAR, "there is one kind of request alone");
    }
    disk.noise = 0.02;
    let mut windows = [0; 2];
    for n in 0..4000 {
        disk.teach(&mut costs, MIXED, 1);
        windows[n / 2000] += u32::from(costs.price != PAR);
        if costs.is_second {
            assert!(costs.price > PAR && costs.price <= 2 * PAR);
            disk.teach(&mut costs, MIXED, 1);
            assert!(costs.price < PAR && costs.price >= PAR / 2);
        }
    }
    assert!(windows[0] > 10 && windows[1] < 100, "{windows:?} windows of a trial");
}

/// cost.7
#[test]
fn a_given_model_is_where_learning_starts_and_no_more() {
    let (mut disk, mut costs) = (Disk::new(TRUE), Costs::new(Some(costs(TRUE.map(|one| one * 3.0)).model())));
    let (mut learned, mut passed) = (alloc::vec::Vec::new(), Duration::ZERO);
    while passed < TRUSTED + TRUSTED {
        let (sum, time) = disk.window(MIXED);
        learned.push((learn(&mut costs, &sum, time), passed + time >= TRUSTED));
        passed = passed + time;
    }
    assert!(learned.iter().filter(|(one, _)| *one == Finding::Anew).count() == 1);
    assert_eq!(learned.iter().find(|(_, is_over)| *is_over).map(|(one, _)| *one), Some(Finding::Anew));
    assert!(learned.iter().all(|(one, _)| !matches!(one, Finding::Scale(_))), "the order of magnitude was known");
    let mut costs = Costs::again(None);
    let (sum, time) = disk.window(MIXED);
    assert_eq!(learn(&mut costs, &sum, time), Finding::Anew, "measurements in other costs are void");
}

/// cost.4: for any windows, and any model at first.
#[test]
fn costs_are_never_negative_nor_beyond_a_second_nor_no_number() {
    for seed in fairlift_lab::repeat::seeds(0..60) {
        let mut disk = Disk { seed, ..Disk::new(TRUE) };
        let any = |disk: &mut Disk, decades: f64| core::array::from_fn(|_| 10_f64.powf(disk.between((0.0, decades))));
        let given: [f64; COUNT] = any(&mut disk, 12.0);
        let mut costs = costs(given);
        for phase in 0..6 {
            disk.theta = any(&mut disk, 8.0);
            disk.noise = [0.0, 0.1, 1.0][phase % 3];
            for _ in 0..40 {
                let mix = [MIXED, SMALL_READS, Mix { writes: (1.0, 1.0), ..MIXED }][phase % 3];
                let (sum, time) = disk.window(mix);
                learn(&mut costs, &sum, time);
                let theta = costs.theta;
                assert!(theta.iter().all(|one| (0.0..=MOST).contains(one)), "seed {seed}: {theta:?}");
                let p = costs.p;
                assert!((0..COUNT).all(|n| p[n][n] >= 0.0 && p[n][n].is_finite()), "seed {seed}: {p:?}");
                for sectors in [0, 8, u32::MAX] {
                    let cost = costs.of(Shape { write: phase % 2 == 0, far: true, roams: true, sectors });
                    assert!((1..=1 << 30).contains(&cost));
                }
            }
        }
    }
}

/// cost.5
#[test]
fn the_first_window_tells_how_slow_a_disk_is() {
    let slow = TRUE.map(|one| 300.0 * one);
    let (mut disk, mut new) = (Disk::new(slow), Costs::new(None));
    let ratio = |costs: &Costs| costs.theta[5] / costs.theta[2];
    let before = ratio(&new);
    disk.teach(&mut new, SMALL_READS, 20);
    let read = f64::from(new.of(Shape { write: false, far: true, roams: true, sectors: 8 }));
    assert!((read / slow[2] - 1.0).abs() < 0.2, "a read costs {read}");
    assert!(
        (ratio(&new) / before - 1.0).abs() < 0.3,
        "nothing is known of writes: they cost as much as before, in reads"
    );
}

/// cost.5: clients that begin leave the disk idle for most of the first equation.
#[test]
fn a_first_window_in_which_the_disk_hardly_worked_is_made_up_for_by_the_next_one() {
    let (mut disk, mut new) = (Disk::new(TRUE), Costs::new(None));
    let (sum, time) = disk.window(SMALL_READS);
    learn(&mut new, &sum, Duration::from_nanos(1000 * time.as_nanos()));
    let (sum, time) = disk.window(SMALL_READS);
    let finding = learn(&mut new, &sum, time);
    let read = f64::from(new.of(Shape { write: false, far: true, roams: true, sectors: 8 }));
    assert!((read / TRUE[2] - 1.0).abs() < 0.5, "a read costs {read}");
    assert!(matches!(finding, Finding::Scale(times) if times < 0.01), "the order of magnitude: {finding:?}");
    disk.teach(&mut new, SMALL_READS, 1);
    let (sum, time) = disk.window(SMALL_READS);
    assert_eq!(learn(&mut new, &sum, Duration::from_nanos(10 * time.as_nanos())), Finding::More, "the order is known");
}

/// A window that took no time, or in which nothing ended, says nothing.
#[test]
fn an_empty_window_teaches_nothing() {
    let mut costs = Costs::new(None);
    let before = costs.theta;
    let (sum, _) = Disk::new(TRUE).window(MIXED);
    learn(&mut costs, &sum, Duration::ZERO);
    learn(&mut costs, &Sum::default(), Duration::from_nanos(1000));
    assert_eq!(costs.theta, before);
}

/// cost.1
#[test]
fn a_request_costs_a_base_and_so_much_for_each_kib() {
    let text = "rbps=1024000000 rseqiops=125000 rrandiops=62500 wbps=512000000 wseqiops=62500 wrandiops=31250";
    let model = Model::parse(text).unwrap();
    let costs = Costs::new(Some(model));
    let mebi = Track { position: Sector(1 << 20), ..Track::NEW };
    let cost = |op, start: u64, sectors| costs.of({ mebi }.next(op, Extent::new(Sector(start), sectors)));
    // 1,000 ns for each KiB read, 2,000 for each written; what is left of 8, 16, 16 and 32 µs for 4 KiB is the base.
    assert_eq!([8, 16, 256].map(|sectors| cost(Op::Read, 1 << 20, sectors)), [8_000, 12_000, 132_000]);
    assert_eq!(
        [Model::FAR, Model::FAR + 1].map(|off| cost(Op::Read, (1 << 20) + off, 8)),
        [8_000, 16_000],
        "far is beyond 16 MiB"
    );
    assert_eq!(
        [Model::FAR, Model::FAR + 1].map(|off| cost(Op::Read, (1 << 20) - off, 8)),
        [8_000, 16_000],
        "on either side"
    );
    assert_eq!([0, 1 << 30].map(|start| cost(Op::Write, start, 8)), [32_000; 2]);
    assert_eq!(
        cost(Op::Discard, 1 << 20, 1 << 40),
        16_000,
        "a discard counts as a small read far away, whatever its length"
    );
    assert_eq!(costs.model(), model);
}

/// cost.6: one that reads on and jumps now and then does not roam; one that reads anywhere in an image of 192 MiB does, though each sixth is near.
#[test]
fn a_stream_roams_whose_requests_are_mostly_far() {
    let roams = |far_in_12: u64| {
        let (mut track, mut at) = (Track::NEW, Sector(0));
        let shapes = (0..96).map(|n| {
            at = Sector(if n % 12 < far_in_12 { at.0 ^ 1 << 30 } else { at.0 + 8 });
            track.next(Op::Read, Extent::new(at, 8))
        });
        shapes.last().unwrap().roams
    };
    assert_eq!([0, 1, 10, 12].map(roams), [false, false, true, true]);
}
