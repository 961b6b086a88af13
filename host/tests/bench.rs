//! Programs on real backings, through the queue and without it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fairlift::bench::{Job, Measured, Setup, run, run_raw, shape};
use fairlift::config::{Backing, Disk, Engine, Factory, FileAt, Null, Ram, Sim};
use fairlift_core::ceiling::{Bounds, Ceiling, Rate, Rates};
use fairlift_core::model::{Character, Model, ModelCompletion, ModelRequest, Work};
use fairlift_core::program::{Ask, Meter, Program};
use fairlift_core::time::{ms, secs};
use fairlift_core::{
    Duration, Errno, Extent, Flags, Group, GroupId, Instant, Limits, Op, Outcome, Priority, Sector, Weight, sched,
};

/// Keeps so many asks under way, one after the other over its part of the disk.
struct Walker {
    op: Op,
    flags: Flags,
    depth: u32,
    start: u64,
    sectors: u64,
    next: u64,
    free: Vec<u32>,
    begun: Vec<Instant>,
    meter: Meter,
    seen: Arc<Seen>,
}

/// What a program saw, for the test to look at afterwards.
#[derive(Default)]
struct Seen {
    submitted: AtomicU64,
    ended: AtomicU64,
    error: AtomicU64,
}

const BLOCK: u64 = 8;

impl Program for Walker {
    fn poll_ask(&mut self, now: Instant) -> Option<Ask> {
        let token = self.free.pop()?;
        self.begun[token as usize] = now;
        self.seen.submitted.fetch_add(1, Ordering::Relaxed);
        let start = Sector(self.start + self.next);
        self.next = (self.next + BLOCK) % self.sectors;
        let extent = if self.op == Op::Flush { Extent::NONE } else { Extent::new(start, BLOCK) };
        Some(Ask { token, op: self.op, flags: self.flags, extent })
    }

    fn handle_end(&mut self, now: Instant, token: u32, outcome: Outcome) {
        assert!(!self.free.contains(&token), "ask {token} ended twice");
        self.free.push(token);
        self.seen.ended.fetch_add(1, Ordering::Relaxed);
        if let Outcome::Failed(errno) = outcome {
            self.seen.error.store(errno.0 as u64, Ordering::Relaxed);
        }
        self.meter.ended(BLOCK * Sector::SIZE, outcome, now.since(self.begun[token as usize]));
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn meter(&self) -> &Meter {
        &self.meter
    }
}

fn walker(op: Op, depth: u32, start: u64, sectors: u64) -> Walker {
    Walker {
        op,
        flags: Flags::NONE,
        depth,
        start,
        sectors,
        next: 0,
        free: (0..depth).collect(),
        begun: vec![Instant::ZERO; depth as usize],
        meter: Meter::default(),
        seen: Arc::default(),
    }
}

fn job(group: u16, walker: Walker) -> (Job, Arc<Seen>, u32) {
    let (seen, depth) = (Arc::clone(&walker.seen), walker.depth);
    (Job { group: GroupId(group), priority: Priority::default(), program: Box::new(walker) }, seen, depth)
}

fn setup(backing: Backing, scheduler: sched::Kind, workers: usize) -> Setup {
    let group = |path: &str| Group { path: path.into(), parent: Some(GroupId::ROOT), weight: Weight::new(100) };
    Setup {
        disk: Disk { io_timeout: Some(secs(5)), ..Disk::new("test", scheduler) },
        groups: vec![Group::root(), group("/a"), group("/b")],
        bounds: Default::default(),
        backing,
        read_only: false,
        workers: Some(workers),
        engine: Engine::Auto,
        runtime: ms(200),
        slots: 4,
        trace: 0,
    }
}

const fn never(_: Duration) -> bool {
    false
}

fn image(dir: &std::path::Path) -> Backing {
    let path = dir.join("image");
    std::fs::File::create(&path).unwrap().set_len(16 << 20).unwrap();
    FileAt::new(path).into()
}

/// A directory for a test, gone with it.
struct Dir(std::path::PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("fairlift-bench-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs programs for longer and longer, until each has had an answer: while others flush the disk, a write to it may take seconds. What was
/// measured, and what each saw, with its depth.
fn until_each_is_answered(
    walkers: impl Fn() -> Vec<(Job, Arc<Seen>, u32)>,
    go: impl Fn(Duration, Vec<Job>) -> Measured,
) -> (Measured, Vec<(Arc<Seen>, u32)>) {
    for time in [ms(200), secs(1), secs(5), secs(20)] {
        let (jobs, seen): (Vec<_>, Vec<_>) = walkers().into_iter().map(|(job, saw, depth)| (job, (saw, depth))).unzip();
        let measured = go(time, jobs);
        if seen.iter().all(|(seen, _)| seen.ended.load(Ordering::Relaxed) > 0) {
            return (measured, seen);
        }
    }
    panic!("a program has had no answer in 20 s");
}

/// Two readers and a writer with three asks under way each; what they saw must be what was measured.
fn three_walkers(go: impl Fn(Duration, Vec<Job>) -> Measured) -> Measured {
    let walkers = || {
        vec![
            job(1, walker(Op::Read, 3, 0, 8192)),
            job(2, walker(Op::Read, 3, 8192, 8192)),
            job(2, walker(Op::Write, 3, 16384, 8192)),
        ]
    };
    let (measured, seen) = until_each_is_answered(walkers, go);
    assert_eq!(measured.meters.len(), 3);
    assert_eq!(measured.meters.iter().map(|(group, _)| group.0).collect::<Vec<_>>(), [1, 2, 2]);
    for ((_, meter), (seen, depth)) in measured.meters.iter().zip(&seen) {
        let (submitted, ended) = (seen.submitted.load(Ordering::Relaxed), seen.ended.load(Ordering::Relaxed));
        assert_eq!(meter.operations, ended, "an end counted twice, or not");
        assert_eq!((meter.failed, meter.latency.len()), (0, ended));
        assert!(submitted - ended <= u64::from(*depth), "{submitted} asked, {ended} ended");
        assert_eq!(meter.bytes, ended * BLOCK * Sector::SIZE);
    }
    let bytes = |group| measured.meters.iter().filter(|(of, _)| of.0 == group).map(|(_, m)| m.bytes).sum::<u64>();
    for group in 0..3 {
        let slots = measured.timeline.iter().map(|slot| slot[usize::from(group)]).sum::<u64>();
        assert_eq!(slots, bytes(group), "the timeline of group {group}");
    }
    measured
}

#[test]
fn what_programs_get_from_ram_is_counted_once_whatever_the_scheduler() {
    for (scheduler, workers) in [(sched::Kind::None, 2), (sched::Kind::MqDeadline, 2), (sched::Kind::None, 1)] {
        let setup = |runtime| Setup { runtime, ..setup(Backing::from(Ram { size: 16 << 20 }), scheduler, workers) };
        let measured = three_walkers(|time, jobs| {
            let measured = run(&setup(time), jobs, &mut never).unwrap();
            assert_eq!((measured.runtime, measured.timeline.len()), (time, 4));
            measured
        });
        assert!(measured.work.requests > 0);
    }
}

#[test]
fn programs_on_a_file_get_the_same_through_the_queue_and_without_it() {
    let dir = Dir::new("file");
    let setup = |runtime| Setup { runtime, ..setup(image(&dir.0), sched::Kind::MqDeadline, 2) };
    assert_eq!(shape(&setup(ms(200)).backing, true).unwrap().bytes, 16 << 20);
    let queued = three_walkers(|time, jobs| run(&setup(time), jobs, &mut never).unwrap());
    let raw = three_walkers(|time, jobs| run_raw(&setup(time), jobs, &mut never).unwrap());
    for Measured { work, runtime, .. } in [queued, raw] {
        assert!(work.requests > 0);
        let most = 5 * runtime.as_nanos();
        assert!(work.busy <= most && work.depth_time <= 9 * most, "{work:?}: at most nine are under way");
    }
}

#[test]
fn flushes_and_durable_writes_end_on_every_path() {
    let dir = Dir::new("flush");
    for raw in [false, true] {
        let durable = || Walker { flags: Flags::FUA, ..walker(Op::Write, 1, 0, 8192) };
        let walkers = || vec![job(0, walker(Op::Flush, 1, 0, 8192)), job(0, durable())];
        let (measured, _) = until_each_is_answered(walkers, |runtime, jobs| {
            let setup = Setup { runtime, ..setup(image(&dir.0), sched::Kind::None, 1) };
            if raw { run_raw(&setup, jobs, &mut never) } else { run(&setup, jobs, &mut never) }.unwrap()
        });
        assert_eq!(measured.meters[0].1.failed + measured.meters[1].1.failed, 0);
        assert!(measured.work.flushes > 0 && measured.work.flushes < measured.work.requests, "{:?}", measured.work);
    }
}

#[test]
fn who_asks_beyond_the_end_hears_so_and_disturbs_nobody() {
    let setup = setup(Backing::from(Ram { size: 1 << 20 }), sched::Kind::None, 1);
    let (beyond, saw, _) = job(1, walker(Op::Read, 1, 2048, 2048));
    let (within, _, _) = job(2, walker(Op::Read, 1, 0, 2048));
    let measured = run(&setup, vec![beyond, within], &mut never).unwrap();
    assert_eq!(saw.error.load(Ordering::Relaxed), Errno::EINVAL.0 as u64);
    let [(_, beyond), (_, within)] = &measured.meters[..] else { panic!("two jobs") };
    assert!(beyond.failed > 0 && beyond.failed == beyond.operations && beyond.bytes == 0);
    assert!(within.failed == 0 && within.operations > 0);
}

#[test]
fn what_is_opened_for_reading_is_not_written() {
    let dir = Dir::new("read-only");
    let setup = Setup { read_only: true, ..setup(image(&dir.0), sched::Kind::None, 1) };
    for raw in [false, true] {
        let (writer, saw, _) = job(1, walker(Op::Write, 1, 0, 2048));
        if raw { run_raw(&setup, vec![writer], &mut never) } else { run(&setup, vec![writer], &mut never) }.unwrap();
        assert_eq!(saw.error.load(Ordering::Relaxed), Errno::EPERM.0 as u64);
    }
    assert!(std::fs::read(dir.0.join("image")).unwrap().iter().all(|byte| *byte == 0));
}

/// Also one that holds requests for minutes: the run ends when its time is over.
#[test]
fn limits_of_groups_hold_and_the_time_held_is_told() {
    for (scheduler, riops) in [(sched::Kind::None, 1), (sched::Kind::Fair, 200)] {
        let ceiling = Ceiling::of(Rates::NONE.with(Rate::Riops, riops));
        let bounds = [("/a".to_owned(), Bounds { ceiling, ..Bounds::default() })].into();
        let setup = Setup { bounds, ..setup(Backing::from(Ram { size: 16 << 20 }), scheduler, 2) };
        let readers = [job(1, walker(Op::Read, 3, 0, 8192)).0, job(2, walker(Op::Read, 3, 8192, 8192)).0];
        let measured = run(&setup, readers.into(), &mut never).unwrap();
        let [limited, free] = [0, 1].map(|at: usize| measured.meters[at].1.operations);
        // What waits at the end is let go.
        assert!(limited <= riops / 5 + riops / 200 + 1 + 3 && free > 500, "{limited} of {riops}, and {free}");
        assert!(measured.held[1] > ms(10) && measured.held[2] == Duration::ZERO, "{:?}", measured.held);
    }
}

#[test]
fn stop_ends_a_long_run_early_and_what_was_done_until_then_counts() {
    let dir = Dir::new("stop");
    for raw in [false, true] {
        let setup = Setup { runtime: secs(3600), slots: 3600, ..setup(image(&dir.0), sched::Kind::None, 2) };
        let measured = three_walkers(|time, jobs| {
            let mut heard = Vec::new();
            let mut stop = |ran| {
                heard.push(ran);
                ran >= time
            };
            let measured = if raw { run_raw(&setup, jobs, &mut stop) } else { run(&setup, jobs, &mut stop) }.unwrap();
            assert!(heard.is_sorted() && heard.last().is_some_and(|ran| *ran >= time), "raw={raw}: {heard:?}");
            measured
        });
        assert!(measured.runtime < secs(600), "{}", measured.runtime);
        assert!(measured.timeline.len() < 600, "only slots that began are told");
    }
}

#[test]
fn a_run_that_nobody_asks_anything_ends_as_well() {
    let setup = setup(Backing::from(Null { size: 1 << 20, delay: Duration::ZERO }), sched::Kind::None, 2);
    let measured = run(&setup, vec![], &mut never).unwrap();
    assert_eq!((measured.meters.len(), measured.work), (0, Work::default()));
}

/// Takes ten milliseconds for everything, one after the other.
struct Slow {
    under_way: std::collections::VecDeque<ModelCompletion>,
}

impl Model for Slow {
    fn limits(&self) -> Limits {
        Limits { rw_max: 2 * BLOCK as u32, ..Limits::new(1 << 20) }
    }

    fn character(&self) -> Character {
        Character { rotational: true, volatile_cache: false }
    }

    fn submit(&mut self, now: Instant, submitted: &ModelRequest) {
        assert!(submitted.extent.sectors <= 2 * BLOCK, "larger than the model's limit");
        let at = self.under_way.back().map_or(now, |last| last.at) + ms(10);
        self.under_way.push_back(ModelCompletion { at, id: submitted.id, outcome: Outcome::Done });
    }

    fn poll_event(&self) -> Option<Instant> {
        self.under_way.front().map(|end| end.at)
    }

    fn advance(&mut self, now: Instant, ended: &mut Vec<ModelCompletion>) {
        while let Some(end) = self.under_way.pop_front_if(|end| end.at <= now) {
            ended.push(end);
        }
    }

    fn work(&self) -> Work {
        Work::default()
    }
}

/// However slow this machine is, a model is never faster than it says.
#[test]
fn a_model_takes_its_time_and_its_limits_hold() {
    let model = Factory::new(|| Box::new(Slow { under_way: Default::default() }));
    let backing = Backing::from(Sim { name: "slow".into(), size: 1 << 29, model });
    assert_eq!(shape(&backing, true).unwrap().bytes, 1 << 29);
    // Those that share by weight may leave the writer waiting for longer than this runs.
    for scheduler in [sched::Kind::None, sched::Kind::MqDeadline] {
        let setup = Setup { runtime: ms(500), ..setup(backing.clone(), scheduler, 2) };
        let measured = three_walkers(|_, jobs| run(&setup, jobs, &mut never).unwrap());
        assert!((1..=50).contains(&measured.work.requests), "{:?} in 500 ms", measured.work);
        assert_eq!(measured.unserved.len(), setup.groups.len());
        assert!(measured.unserved.iter().max() >= Some(&ms(10)), "{:?}", measured.unserved);
    }
}

#[test]
fn raw_is_for_files_alone() {
    let error =
        run_raw(&setup(Backing::from(Ram { size: 1 << 20 }), sched::Kind::None, 1), vec![], &mut never).unwrap_err();
    assert_eq!(
        error.to_string(),
        "backing mem: is no file: only the path to a file or block device can be measured raw"
    );
}

/// A worker that has done its part leaves; the hold of the disk that it was to end is ended by another. With an hour until
/// requests time out, this would not come to its end.
#[test]
fn a_run_ends_though_the_disk_is_held_idle_when_its_time_is_over() {
    let dir = Dir::new("held");
    let mut setup = Setup { runtime: ms(30), ..setup(image(&dir.0), sched::Kind::Cfq, 2) };
    setup.disk.set = vec![("slice_idle".into(), "8ms".into())];
    setup.disk.io_timeout = Some(secs(3600));
    for _ in 0..20 {
        let jobs = [0, 16384].map(|start| job(1, walker(Op::Read, 2, start, 8192)).0);
        let measured = run(&setup, jobs.into(), &mut never).unwrap();
        assert_eq!(measured.meters.len(), 2);
    }
}

/// A file in RAM is read at once, whatever the depth, and every ask ends once.
#[test]
fn raw_reads_of_a_file_in_ram_end_like_others() {
    let path = std::path::Path::new("/dev/shm").join(format!("fairlift-raw-{}", std::process::id()));
    let Ok(file) = std::fs::File::create(&path) else { return eprintln!("SKIPPED: /dev/shm cannot be written") };
    file.set_len(16 << 20).unwrap();
    let setup = setup(Backing::from(FileAt::new(&path)), sched::Kind::None, 1);
    let (job, seen, depth) = job(1, walker(Op::Read, 3, 0, 8192));
    let measured = run_raw(&setup, vec![job], &mut never);
    std::fs::remove_file(&path).unwrap();
    let measured = measured.unwrap();
    let (submitted, ended) = (seen.submitted.load(Ordering::Relaxed), seen.ended.load(Ordering::Relaxed));
    assert!(ended > 0 && submitted - ended <= u64::from(depth), "{submitted} asked, {ended} ended");
    assert_eq!(measured.meters[0].1.operations, ended);
    assert!(measured.work.requests >= ended, "{:?}", measured.work);
    assert_eq!(seen.error.load(Ordering::Relaxed), 0);
}
