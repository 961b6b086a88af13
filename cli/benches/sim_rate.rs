//! Whether a modelled disk in real time is as fast as on the virtual clock: the same program, three ways.
//!
//! `cargo bench -p fairlift-cli --bench sim_rate [-- SECONDS [MODEL...]]` prints a line for each model, stream and depth:
//! requests a second in virtual time (lab), in real time through the engine (`bench::run`), and over NBD (a server and a
//! client of one connection in this process), each with its difference from the first.

use std::collections::VecDeque;
use std::io::{BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time;

use fairlift::Server;
use fairlift::bench::{self, Job, Setup};
use fairlift::config::{Address, Backing, Config, Disk, Engine, Export, Factory, Listener, Sim, Tls};
use fairlift_core::program::{Ask, Program};
use fairlift_core::queue::Settings;
use fairlift_core::time::secs;
use fairlift_core::{Duration, Errno, Group, GroupId, Instant, Op, Outcome, Priority, Queue, Sector, Stream, sched};
use fairlift_lab::World;
use fairlift_lab::model::Spec;
use fairlift_lab::program::{Direct, Pattern, Region, direct};

const SEED: u64 = 1;

/// One stream of requests.
#[derive(Clone, Copy)]
struct Load {
    op: Op,
    order: Pattern,
    block: u64,
    depth: u32,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let runtime = secs(words.first().map_or(3, |word| word.parse().expect("a number of seconds comes first")));
    let usual = ["sata-7200,size=100G", "ssd-2010", "ssd-plextor-m5", "nvme-plp"].map(String::from);
    let models = if words.len() > 1 { &words[1..] } else { &usual[..] };
    println!("| model | stream | depth | virtual, requests/s | engine | NBD |\n|---|---|---|---|---|---|");
    for model in models {
        let spec = Spec::parse(model).unwrap_or_else(|error| panic!("{error}"));
        for (op, order, block) in [
            (Op::Read, Pattern::Sequential, 128 << 10),
            (Op::Read, Pattern::Random, 4 << 10),
            (Op::Write, Pattern::Sequential, 128 << 10),
        ] {
            for depth in [1, 4, 32] {
                let load = Load { op, order, block, depth };
                let wanted = virtually(&spec, load, runtime);
                let show = |rate: f64| format!("{rate:.0} ({:+.1} %)", (rate / wanted - 1.0) * 100.0);
                let (engine, nbd) = (through_the_engine(&spec, load, runtime), over_nbd(&spec, load, runtime));
                let stream = format!("{} {order:?} {} KiB", op.name(), block >> 10).to_lowercase();
                println!("| `{model}` | {stream} | {depth} | {wanted:.0} | {} | {} |", show(engine), show(nbd));
            }
        }
    }
}

fn program(spec: &Spec, load: Load) -> Direct {
    let Load { op, order, block, depth } = load;
    let settings = direct::Settings::new(op, order, block, depth);
    let bytes = (32 << 30).min(spec.size / 2);
    Direct::new(settings, Region { start: Sector(0), bytes }, SEED)
}

fn rate(operations: u64, runtime: Duration) -> f64 {
    operations as f64 / (runtime.as_nanos() as f64 / 1e9)
}

fn virtually(spec: &Spec, load: Load, runtime: Duration) -> f64 {
    let model = spec.build(SEED);
    let mut world = World::new(Queue::new(Settings::new(sched::Kind::None, model.limits())), model);
    let stream = Stream { group: GroupId::ROOT, priority: Priority::default(), context: fairlift_core::ContextId(0) };
    let index = world.add(stream, Box::new(program(spec, load)));
    world.run_until(Instant::ZERO + runtime);
    rate(world.program(index).meter().operations, runtime)
}

fn backing(spec: &Spec) -> Backing {
    let own = spec.clone();
    Backing::from(Sim { name: spec.name.into(), size: spec.size, model: Factory::new(move || own.build(SEED)) })
}

fn disk() -> Disk {
    Disk::new("sim", sched::Kind::None)
}

fn through_the_engine(spec: &Spec, load: Load, runtime: Duration) -> f64 {
    let setup = Setup {
        disk: disk(),
        groups: vec![Group::root()],
        bounds: Default::default(),
        backing: backing(spec),
        read_only: false,
        workers: Some(1),
        engine: Engine::Auto,
        runtime,
        slots: 0,
        trace: 0,
    };
    let job = Job { group: GroupId::ROOT, priority: Priority::default(), program: Box::new(program(spec, load)) };
    let measured = bench::run(&setup, vec![job], &mut |_| false).expect("a model can be run");
    rate(measured.meters[0].1.operations, measured.runtime)
}

fn over_nbd(spec: &Spec, load: Load, runtime: Duration) -> f64 {
    let path = std::env::temp_dir().join(format!("fairlift-sim-rate-{}", std::process::id()));
    let server = Server::bind(Config {
        disk_default: disk(),
        exports: vec![Export::new("d", backing(spec))].into(),
        listeners: vec![Listener::new(Address::Unix(path.clone()), Tls::Off)],
        workers: Some(1),
        ..Config::default()
    })
    .expect("a model can be served");
    let handle = server.handle();
    std::thread::scope(|scope| {
        scope.spawn(move || server.run().expect("the server ends well"));
        let rate = client(&path, program(spec, load), runtime).expect("the server answers");
        handle.drain();
        rate
    })
}

/// Runs a program over one connection.
fn client(path: &std::path::Path, mut program: Direct, runtime: Duration) -> std::io::Result<f64> {
    let mut socket = UnixStream::connect(path)?;
    let mut replies = BufReader::with_capacity(1 << 20, socket.try_clone()?);
    replies.read_exact(&mut [0; 18])?;
    // Fixed newstyle, no zeroes; the export by its name.
    socket
        .write_all(&[&3u32.to_be_bytes()[..], b"IHAVEOPT", &1u32.to_be_bytes(), &1u32.to_be_bytes(), b"d"].concat())?;
    replies.read_exact(&mut [0; 10])?;
    let start = time::Instant::now();
    let now = || Instant::from_nanos(start.elapsed().as_nanos() as u64);
    let mut waiting: VecDeque<Ask> = VecDeque::new();
    let (mut out, mut payload) = (Vec::new(), vec![0; 1 << 20]);
    while now() < Instant::ZERO + runtime {
        out.clear();
        while let Some(ask) = program.poll_ask(now()) {
            out.extend(0x2560_9513_u32.to_be_bytes());
            out.extend([0, 0]);
            out.extend(u16::from(ask.op == Op::Write).to_be_bytes());
            out.extend(u64::from(ask.token).to_be_bytes());
            out.extend(ask.extent.start.bytes().get().to_be_bytes());
            out.extend((ask.extent.bytes().get() as u32).to_be_bytes());
            if ask.op == Op::Write {
                out.extend(&payload[..ask.extent.bytes().get() as usize]);
            }
            waiting.push_back(ask);
        }
        socket.write_all(&out)?;
        // One reply is waited for; all that came with it are taken as well.
        loop {
            let mut head = [0; 16];
            replies.read_exact(&mut head)?;
            let cookie = u64::from_be_bytes(head[8..].try_into().expect("eight bytes"));
            let place =
                waiting.iter().position(|ask| u64::from(ask.token) == cookie).expect("what was asked is answered");
            let ask = waiting.remove(place).expect("found above");
            let failed = head[4..8] != [0; 4];
            if ask.op == Op::Read && !failed {
                replies.read_exact(&mut payload[..ask.extent.bytes().get() as usize])?;
            }
            program.handle_end(now(), ask.token, if failed { Outcome::Failed(Errno::EIO) } else { Outcome::Done });
            if replies.buffer().is_empty() {
                break;
            }
        }
    }
    assert_eq!(program.meter().failed, 0);
    Ok(rate(program.meter().operations, runtime))
}
