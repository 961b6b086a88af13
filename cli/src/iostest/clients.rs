//! Cases that others serve: another NBD server, or the kernel under a file system. No queue of ours decides anything there.
//!
//! clients.1  Each group is a process: for an NBD server a client with a connection of its own, for the kernel a member of a cgroup of
//!            its own (the `io` controller knows processes, not threads). It is told the same words and `--part`, works out the same
//!            case, and runs the jobs of its group.
//! clients.2  All begin together: each says that it is ready, and waits for a line. When its input closes, it stops.
//! clients.3  The requests of a client pass a queue that is deeper than they are many, under `none`: nothing waits in it. A file is
//!            asked without any.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Instant;

use fairlift::bench;
use fairlift::config::{Backing, Disk, FileAt};
use fairlift_core::model::Work;
use fairlift_core::program::Meter;
use fairlift_core::time::{ms, secs};
use fairlift_core::{Duration, Errno, GroupId, Sector, sched};
use fairlift_lab::iostest::{Case, Failure, Measured, Plan, Runner, Watch};

use super::cgroups::{Cgroups, Mount};
use super::real::measure_real;
use crate::iostune::scratch::{LEAST, Scratch};
use crate::syntax::backing;

/// The server that is judged.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Judged {
    /// An NBD server, by its URI; `{group}` in it stands for the name of the group, as in `nbd://host/{group}`.
    Nbd(String),
    /// The kernel: a directory of a mounted file system, and where its cgroups are, or why they are no use.
    Kernel(PathBuf, Result<Mount, String>),
}

/// The group whose jobs a process runs, and its case (clients.1).
#[derive(Clone, Debug)]
pub(crate) struct ClientPart {
    /// The seed of the case, which no other of the plan has.
    seed: u64,
    leaf: GroupId,
    /// The file of the group, where the kernel serves.
    file: Option<PathBuf>,
}

/// Reads `SEED:LEAF` or `SEED:LEAF:FILE`.
pub(super) fn part(text: &str) -> Result<ClientPart, String> {
    let mut fields = text.splitn(3, ':');
    let mut number = || fields.next().and_then(|word| word.parse::<u64>().ok()).ok_or("SEED:LEAF[:FILE]");
    let (seed, leaf) = (number()?, GroupId(number()? as u16));
    Ok(ClientPart { seed, leaf, file: fields.next().map(PathBuf::from) })
}

impl Judged {
    /// The backing of a group: an NBD server's export of the group's name, or its file.
    pub(crate) fn backing(&self, group: &str, file: Option<&Path>) -> Result<Backing, String> {
        match self {
            Self::Kernel(dir, _) => Ok(FileAt::new(file.unwrap_or(dir)).into()),
            Self::Nbd(uri) => {
                let name = if group == "/" { "root" } else { group.trim_start_matches('/') };
                match backing::parse(&uri.replace("{group}", name))? {
                    Backing::Nbd(mut nbd) => {
                        nbd.connections = 1;
                        Ok(Backing::Nbd(nbd))
                    }
                    _ => Err("only another NBD server can be judged: nbd:URI, as in nbd://host/export".into()),
                }
            }
        }
    }
}

/// Runs cases, each group in a process of its own.
pub(super) struct Clients {
    server: Judged,
    /// Bytes that the jobs of a group need, in any case.
    needed: u64,
    /// By the places of groups, where the kernel serves: in each, its jobs have their files.
    files: Vec<Scratch>,
}

impl Clients {
    pub(super) fn new(server: &Judged, plan: &Plan) -> Self {
        if let Judged::Kernel(_, Err(why)) = server {
            eprintln!("fairlift: the groups have no weights in the kernel, and run without: {why}");
        }
        let jobs = |case: Case| case.leaves().into_iter().map(move |leaf| case.part(leaf).cast().len() as u64);
        let most = plan.cases().into_iter().flatten().flat_map(jobs).max().unwrap_or(1);
        let needed = ((1 << 20) + most * plan.file_size).max(LEAST);
        Self { server: server.clone(), needed, files: Vec::new() }
    }

    /// Makes a file for each group, where the kernel serves: filled once, and without names.
    fn make_files(&mut self, groups: usize, watch: Watch<'_>) -> Result<(), String> {
        let Judged::Kernel(dir, _) = &self.server else { return Ok(()) };
        while self.files.len() < groups {
            // As large as it is, however long that takes.
            let path = dir.join("fairlift.iostest");
            let made = Scratch::make(&path, self.needed, secs(86_400), || watch(Duration::ZERO))?;
            let Some(file) = made else { break };
            self.files.push(file);
        }
        Ok(())
    }
}

impl Runner for Clients {
    fn run(&mut self, case: &Case, watch: Watch<'_>) -> Result<Measured, Failure> {
        let leaves = case.leaves();
        self.make_files(leaves.len(), watch)?;
        if watch(Duration::ZERO) {
            return Ok(merged(case, Vec::new()));
        }
        let cgroups = match &self.server {
            Judged::Kernel(_, Ok(mount)) => Some(Cgroups::make(mount, &case.groups)?),
            _ => None,
        };
        let mut clients = Vec::new();
        let (say, hear) = mpsc::channel();
        for (place, leaf) in leaves.iter().enumerate() {
            let mut child = start(case.seed, *leaf, self.files.get(place).map(Scratch::path))?;
            if let Some(cgroups) = &cgroups {
                cgroups.take(*leaf, child.id())?;
            }
            clients.push(child.stdin.take());
            let say = say.clone();
            thread::spawn(move || listen(place, child, &say));
        }
        let (mut ready, mut tallies, mut failed) = (0, Vec::new(), Vec::new());
        let mut begun = None::<Instant>;
        while tallies.len() + failed.len() < leaves.len() {
            match hear.recv_timeout(std::time::Duration::from_nanos(ms(20).as_nanos())) {
                Ok((_, Some(Heard::Ready))) => ready += 1,
                Ok((place, Some(Heard::Tally(one)))) => tallies.push((place, one)),
                Ok((place, None)) => {
                    failed.push(place);
                    clients.clear(); // the others end, too
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => unreachable!("we have an end ourselves"),
            }
            if ready == leaves.len() && begun.is_none() {
                clients.iter_mut().flatten().for_each(|input| _ = input.write_all(b"go\n")); // clients.2
                begun = Some(Instant::now());
            }
            let ran = begun.map_or(0, |begun| begun.elapsed().as_nanos() as u64);
            if !clients.is_empty() && watch(Duration::from_nanos(ran.min(case.runtime.as_nanos()))) {
                clients.clear(); // clients.2
            }
        }
        if let Some(place) = failed.first() {
            return Err(format!("the client of {} failed", case.groups[usize::from(leaves[*place].0)].path).into());
        }
        tallies.sort_by_key(|(place, _)| *place);
        Ok(merged(case, tallies.into_iter().map(|(place, one)| (leaves[place], one)).collect()))
    }
}

fn start(seed: u64, leaf: GroupId, file: Option<PathBuf>) -> io::Result<Child> {
    let file = file.map_or(String::new(), |file| format!(":{}", file.display()));
    let mut command = Command::new("/proc/self/exe");
    command.args(std::env::args_os().skip(1)).arg("--part").arg(format!("{seed}:{}{file}", leaf.0));
    // Ctrl-C is for this process: a client learns of it when its input closes.
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
}

/// A line of a client; a client that ends without a result has failed, and has said why.
enum Heard {
    Ready,
    Tally(Tally),
}

fn listen(place: usize, mut child: Child, say: &mpsc::Sender<(usize, Option<Heard>)>) {
    let mut out = BufReader::new(child.stdout.take().expect("it is a pipe"));
    let mut text = String::new();
    if out.read_line(&mut text).is_ok_and(|bytes| bytes > 0) {
        let _ = say.send((place, Some(Heard::Ready)));
    }
    text.clear();
    let tally = out.read_to_string(&mut text).ok().and_then(|_| serde_json::from_str(&text).ok());
    let _ = child.wait();
    let _ = say.send((place, tally.map(Heard::Tally)));
}

/// Bytes, operations, failures and why, the longest, and the buckets of latencies, of a job.
type MeterTally = (u64, u64, u64, Option<i32>, u64, Vec<(u64, u64)>);
/// Runtime, bytes by slot, longest time unserved, work of the disk, and each job's tally. Times are nanoseconds.
type Tally = (u64, Vec<u64>, u64, [u64; 4], Vec<MeterTally>);

/// A client's report of its group.
fn tally(measured: &Measured, leaf: GroupId) -> Tally {
    let place = usize::from(leaf.0);
    let meter = |(_, meter): &(GroupId, Meter)| {
        let buckets = meter.latency.buckets().map(|(end, count)| (end.as_nanos(), count)).collect();
        let why = meter.why.map(|Errno(number)| number);
        (meter.bytes, meter.operations, meter.failed, why, meter.latency_max.as_nanos(), buckets)
    };
    let Work { requests, flushes, busy, depth_time } = measured.work;
    (
        measured.runtime.as_nanos(),
        measured.timeline.iter().map(|slot| slot[place]).collect(),
        measured.unserved[place].as_nanos(),
        [requests, flushes, busy, depth_time],
        measured.meters.iter().map(meter).collect(),
    )
}

/// The figures of all clients together; of none, those of nothing that ran.
fn merged(case: &Case, all: Vec<(GroupId, Tally)>) -> Measured {
    let groups = case.groups.len();
    let ran = all.iter().map(|(_, tally)| tally.0).min().unwrap_or_default();
    let mut measured = Measured {
        meters: Vec::new(),
        runtime: Duration::from_nanos(ran),
        timeline: Vec::new(),
        unserved: vec![Duration::ZERO; groups],
        held: vec![Duration::ZERO; groups],
        asked: vec![(0, 0); groups],
        work: Work::default(),
        counters: Default::default(),
        findings: Vec::new(),
        trace: Vec::new(),
    };
    for (leaf, (_, timeline, unserved, [requests, flushes, busy, depth_time], meters)) in all {
        let place = usize::from(leaf.0);
        measured.unserved[place] = Duration::from_nanos(unserved);
        if measured.timeline.len() < timeline.len() {
            measured.timeline.resize_with(timeline.len(), || vec![0; groups]);
        }
        measured.timeline.iter_mut().zip(timeline).for_each(|(slot, bytes)| slot[place] = bytes);
        let work = &mut measured.work;
        (work.requests, work.flushes) = (work.requests + requests, work.flushes + flushes);
        // Each sees its own requests: the disk is at work at least as long as the busiest of them.
        (work.busy, work.depth_time) = (work.busy.max(busy), work.depth_time + depth_time);
        for (bytes, operations, failed, why, longest, buckets) in meters {
            let (why, latency_max) = (why.map(Errno), Duration::from_nanos(longest));
            let mut meter = Meter { bytes, operations, failed, why, latency_max, ..Meter::default() };
            for (end, count) in buckets {
                (0..count).for_each(|_| meter.latency.record(Duration::from_nanos(end - 1)));
            }
            measured.meters.push((leaf, meter));
        }
    }
    measured
}

/// Runs the jobs of one group, as a client, and tells on standard output what they got done (clients.1).
pub(super) fn play(plan: &Plan, server: &Judged, part: &ClientPart) -> Result<(), Failure> {
    let (seed, mut leaf) = (part.seed, part.leaf);
    let mut case = plan.cases()?.into_iter().find(|case| case.seed == seed).ok_or("there is no such case")?;
    let group = case.groups.get(usize::from(leaf.0)).ok_or("there is no such group")?;
    let backing = server.backing(&group.path, part.file.as_deref())?;
    if part.file.is_some() {
        (case, leaf) = (case.part(leaf), GroupId(0));
    }
    // A disk that is not there says so before the others begin.
    case.jobs(bench::shape(&backing, true)?.bytes / Sector::SIZE)?;
    let set = vec![("flush_coordinate".to_owned(), "0".to_owned())];
    let disk = Disk { set, depth: Some(4096), ..Disk::new("iostest", sched::Kind::None) }; // clients.3
    println!("ready");
    let mut line = String::new();
    io::stdin().read_line(&mut line)?; // clients.2
    static STOP: AtomicBool = AtomicBool::new(false);
    STOP.store(line.is_empty(), Ordering::Relaxed);
    thread::spawn(|| {
        let _ = io::stdin().read_line(&mut String::new());
        STOP.store(true, Ordering::Relaxed);
    });
    let is_file = matches!(backing, Backing::File(_));
    let mut watch = |_| STOP.load(Ordering::Relaxed);
    let measured = measure_real(&case, disk, &backing, is_file, Some(leaf), &mut watch)?;
    println!("{}", serde_json::to_string(&tally(&measured, leaf))?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlift_core::time::us;
    use fairlift_core::{Group, Outcome};
    use fairlift_lab::workload::Workload;

    /// A client's report is the measurement: figures, times, and each latency in its bucket.
    #[test]
    fn what_a_client_tells_is_taken_as_it_was_measured() {
        let workloads = vec![Workload::named("drr").unwrap()];
        let case = Plan { workloads, groups: vec![Group::root()], ..Plan::default() }.cases().unwrap().remove(0);
        let mut meter = Meter::default();
        for (bytes, latency) in [(4096, us(90)), (4096, us(91)), (8192, ms(30))] {
            meter.ended(bytes, Outcome::Done, latency);
        }
        meter.ended(512, Outcome::Failed(Errno::EIO), us(1));
        let mut was = merged(&case, Vec::new());
        was.meters.push((GroupId(0), meter));
        (was.runtime, was.unserved[0], was.timeline) = (secs(1), ms(7), vec![vec![3], vec![5]]);
        was.work = Work { requests: 4, flushes: 1, busy: 900, depth_time: 1800 };
        let text = serde_json::to_string(&tally(&was, GroupId(0))).unwrap();
        let is = merged(&case, vec![(GroupId(0), serde_json::from_str(&text).unwrap())]);
        assert_eq!(format!("{is:?}"), format!("{was:?}"));
    }

    #[test]
    fn an_export_has_the_name_of_the_group() {
        let server = Judged::Nbd("nbd://host/{group}".into());
        let name = |group: &str| match server.backing(group, None) {
            Ok(Backing::Nbd(nbd)) => (nbd.export.clone(), nbd.connections),
            other => panic!("{other:?}"),
        };
        assert_eq!(["/g1", "/web/a", "/"].map(name), [("g1".into(), 1), ("web/a".into(), 1), ("root".into(), 1)]);
        assert!(Judged::Nbd("mem:1m".into()).backing("/", None).unwrap_err().contains("nbd:URI"));
    }
}
