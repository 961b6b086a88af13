//! Random changes, and every tunable: what is answered with success is in force, and what is refused changes nothing.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fairlift::Server;
use fairlift::config::{Address, Backing, Config, Export, Listener, Null, Ram, Tls};
use fairlift::control::view::DiskView;
use fairlift::control::{Edit, Leave, Made};
use fairlift::export::vhost_user::GuestSocket;
use fairlift_core::ceiling::{Bounds, Ceiling, Rate, Rates};
use fairlift_core::sched::{Kind, Setup};
use fairlift_core::tunable::{Range, TunableInfo};
use fairlift_core::{Priority, PriorityClass, Weight, flush, tunable};

use crate::change::{
    Change, add, add_disk, bounds, change, depth, export, file, grow, knob, leave, listen, mem, nr_requests, put,
    read_only, remove, remove_disk, remove_group, scheduler, weight,
};
use crate::client::{BLOCK, Client, MIB, next};
use crate::running::{Running, comparable, disk, path};
use crate::wanted::Wanted;

/// Two values that a tunable takes, as it shows them itself.
fn values(kind: Kind, info: &TunableInfo) -> Vec<String> {
    let two = |least: String, most: String| vec![most, least];
    let values = match info.range {
        Range::Duration(least, most) | Range::AutoDuration(least, most) => two(least.to_string(), most.to_string()),
        Range::Count(least, most) | Range::AutoCount(least, most) => two(least.to_string(), most.to_string()),
        Range::Switch => two("0".into(), "1".into()),
        Range::Choice(words) => words.iter().map(|word| (*word).to_owned()).collect(),
        Range::AutoCostModel => vec!["auto".into()],
    };
    values.into_iter().map(|value| shown(kind, info.name, &value)).collect()
}

/// A value of a tunable, as the scheduler shows it.
fn shown(kind: Kind, name: &str, value: &str) -> String {
    let mut flushes = flush::Settings::default();
    if tunable::set(flush::Settings::TUNABLES, &mut flushes, name, value).is_ok() {
        return tunable::get(flush::Settings::TUNABLES, &flushes, name).unwrap();
    }
    let mut scheduler = kind.build(&Setup::new(1));
    scheduler.set(name, value).unwrap_or_else(|error| panic!("{value} of {name}: {error}"));
    scheduler.get(name).unwrap()
}

/// What is answered with success is in force, and what is refused changes nothing.
#[test]
fn a_success_is_done_and_a_refusal_changes_nothing() {
    every_tunable_on_a_disk_that_rests_and_one_between_two_schedulers();
    let seed = std::env::var("FAIRLIFT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1u64);
    let steps = std::env::var("FAIRLIFT_STEPS").ok().and_then(|steps| steps.parse().ok()).unwrap_or(400u64);
    random_transactions_of_everything(seed, steps);
}

/// Groups, disks, exports and listeners come, change and go, by transactions of several changes, by a file that is read again, and
/// by a dry run before. Of many a change cannot be made, at any place in them.
fn random_transactions_of_everything(seed: u64, steps: u64) {
    let again = format!(
        "FAIRLIFT_SEED={seed} FAIRLIFT_STEPS={steps} cargo test -p fairlift --test control -- --exact a_success_is_done_and_a_refusal_changes_nothing"
    );
    let folder = path("success");
    std::fs::create_dir_all(&folder).unwrap();
    let running = Running::at(folder.join("main.sock"));
    let images: Vec<PathBuf> = (0..3).map(|n| folder.join(format!("{n}.img"))).collect();
    images.iter().for_each(|image| std::fs::File::create(image).unwrap().set_len(MIB).unwrap());
    let taken = folder.join("taken.sock");
    let _other = std::os::unix::net::UnixListener::bind(&taken).unwrap();
    let files = || std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect::<BTreeSet<_>>();
    let always = files();
    let mut random = seed;
    let mut state = running.handle.state().unwrap();
    let mut wish = Wanted::of(&state.config);
    let mut in_force = running.in_force();
    let (mut made, mut refused) = (0, 0);
    for _ in 0..steps {
        let count = [1, 2, 3, 5][next(&mut random) as usize % 4];
        let groups = ["/a", "/b", "/c/d", "/c/e", "/c"];
        let mut changes: Vec<_> =
            (0..count).map(|_| random_change(&mut random, &state.config, &groups, &images)).collect();
        if next(&mut random).is_multiple_of(3) {
            let at = next(&mut random) as usize % (count + 1);
            changes.insert(at, cannot_be_made(&mut random, &taken));
        }
        if next(&mut random).is_multiple_of(4) {
            changes = vec![by_file(&state.config, changes)];
        }
        let dry = next(&mut random).is_multiple_of(5).then(|| running.change(&changes, None, true));
        match running.change(&changes, None, false) {
            Ok(now) => {
                made += u64::from(!now.steps.is_empty());
                running.swept();
                changes.iter().for_each(|change| (change.asks)(&mut wish));
                assert_eq!(now.state.version, state.version + 1, "{changes:?}: {again}");
                state = running.handle.state().unwrap();
                in_force = running.in_force();
                assert_eq!(comparable(&state.config), comparable(&now.state.config), "{changes:?}: {again}");
                if let Some(dry) = dry {
                    let dry = dry.unwrap_or_else(|why| panic!("dry it is refused: {why}: {changes:?}: {again}"));
                    assert_eq!(comparable(&dry.state.config), comparable(&state.config), "dry: {changes:?}: {again}");
                }
                assert_eq!(wish.heard(&state.config), wish, "{changes:?}: {again}");
                assert_eq!(in_force.lacks(&wish, shown), [""; 0], "{changes:?}: {again}");
                let sockets = wish.listeners.iter().filter_map(|name| name.strip_prefix("unix:").map(PathBuf::from));
                assert_eq!(files(), always.iter().cloned().chain(sockets).collect(), "{changes:?}: {again}");
            }
            Err(why) => {
                refused += 1;
                let after = running.handle.state().unwrap();
                assert_eq!(after.version, state.version, "{why}: {changes:?}: {again}");
                assert_eq!(comparable(&after.config), comparable(&state.config), "{why}: {changes:?}: {again}");
                assert_eq!(running.in_force(), in_force, "{why}: {changes:?}: {again}");
            }
        }
    }
    assert!(made > steps / 8 && refused > steps / 8, "{made} of {steps} were made, {refused} refused: {again}");
    running.stop();
    std::fs::remove_dir_all(folder).unwrap();
}

/// What a server refuses: some of it at once, some when it is about to be made.
fn cannot_be_made(random: &mut u64, taken: &Path) -> Change {
    let mut guest = Export::new("guest", Ram { size: MIB });
    match next(random) % 7 {
        0 => file("gone", Path::new("/nowhere/at.all"), false),
        1 => listen(Listener::new(Address::Unix(taken.to_owned()), Tls::Off)),
        2 => nr_requests("d", Some(1)),
        3 => knob("d", "isolation_cots", "5"),
        4 => weight("/", 10),
        5 => grow("d", Some(MIB / 2)),
        _ => {
            guest.ways.set(GuestSocket::from(taken));
            add(guest, None, "/")
        }
    }
}

/// These changes, as a file that is read again brings them: all that there is to be, and not how it came.
fn by_file(config: &Config, changes: Vec<Change>) -> Change {
    let says = format!("read again: {changes:?}");
    let (config, asks) = (config.clone(), changes.clone());
    change(says, move |edit| {
        let mut wanted = Edit::from(config.clone());
        changes.iter().try_for_each(|change| (change.edit)(&mut wanted))?;
        *edit = Edit::from(wanted.config);
        Ok(())
    })
    .asks(move |all| {
        let grown = all.grown.clone();
        asks.iter().for_each(|change| (change.asks)(all));
        all.grown = grown; // what is the same is not looked at anew
        all.grown.retain(|name, _| all.exports.contains_key(name));
    })
}

/// Every tunable and bound, under every scheduler.
fn every_tunable_on_a_disk_that_rests_and_one_between_two_schedulers() {
    let running = Running::start("done");
    let delay = fairlift_core::Duration::from_nanos(1_500_000_000);
    let slow = Export::new("slow", Null { size: MIB, delay });
    running.apply(&[add_disk(disk("s", Kind::None)), add(slow, Some("s"), "/")]);
    let mut client = Client::connect(&running.socket, "slow", 0, 1).unwrap();
    let view = || running.handle.view(false).unwrap().disks.into_iter().find(|disk| disk.name == "s").unwrap();
    let until = |what: &str, is: &dyn Fn(&DiskView) -> bool| {
        let start = Instant::now();
        while !is(&view()) {
            assert!(start.elapsed() < Duration::from_secs(20), "{what} does not come");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let scheduler = |kind| self::scheduler("s", kind);
    let knob = |(name, value): (&str, &String)| self::knob("s", name, value);
    let bounds = [nr_requests("s", Some(77)), depth("s", Some(7))];
    for (kind, is_between) in Kind::ALL.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        running.apply(&[scheduler(Kind::None)]);
        until("none", &|disk| !disk.frozen && disk.scheduler == Kind::None);
        if is_between {
            let mut out = Vec::new();
            client.ask(&mut out, 1, 0);
            out.extend([7; BLOCK as usize]);
            client.socket.write_all(&out).unwrap();
            until("the request", &|disk| disk.in_flight == 1);
        }
        let infos: Vec<_> = kind.tunables().iter().chain(flush::Settings::INFO).collect();
        let all: Vec<_> = infos.iter().map(|info| (info.name, values(kind, info))).collect();
        let first = all.iter().map(|(name, values)| knob((name, &values[0])));
        running.apply(&[scheduler(kind)].into_iter().chain(first).chain(bounds.clone()).collect::<Vec<_>>());
        let mut wanted: Vec<_> = all.iter().map(|(name, values)| (*name, values[0].clone())).collect();
        for turn in 0..2 {
            let before = running.handle.state().unwrap();
            let odd = ["isolation_cost", "read_expire"].into_iter().find(|odd| all.iter().all(|(name, _)| name != odd));
            running.refused(&[bounds[1].clone(), knob((odd.unwrap(), &"5ms".to_owned()))]);
            running.refused(&[nr_requests("s", Some(6))]);
            let after = running.handle.state().unwrap();
            assert_eq!((after.version, comparable(&after.config)), (before.version, comparable(&before.config)));
            if turn == 1 {
                // Each by itself, on a disk that has the scheduler or waits for it.
                for (at, (name, values)) in all.iter().enumerate() {
                    wanted[at].1.clone_from(values.last().unwrap());
                    running.apply(&[knob((name, &wanted[at].1))]);
                }
            }
            if is_between && turn == 1 {
                assert_eq!(client.reply().map(|(error, _)| error), Some(0));
            }
            if turn == 1 || !is_between {
                until(kind.name(), &|disk| !disk.frozen && disk.scheduler == kind);
                let view = view();
                assert_eq!((view.depth, view.nr_requests), (7, 77), "{} {is_between}", kind.name());
                for (name, value) in &wanted {
                    let there = view.knobs.iter().find(|knob| knob.name == *name).map(|knob| &knob.value);
                    assert_eq!(there, Some(value), "{name} of {}, {is_between}", kind.name());
                }
            }
        }
    }
    running.stop();
}

/// Random changes of every kind while clients work. Afterwards the state is that of a server which was started so (control.2).
#[test]
fn any_changes_under_load_end_where_a_start_would() {
    let seed = std::env::var("FAIRLIFT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1u64);
    let steps = std::env::var("FAIRLIFT_STEPS").ok().and_then(|steps| steps.parse().ok()).unwrap_or(400u64);
    let again = format!(
        "FAIRLIFT_SEED={seed} FAIRLIFT_STEPS={steps} cargo test -p fairlift --test control -- --exact any_changes_under_load_end_where_a_start_would"
    );
    let running = Running::start("any");
    let images: Vec<PathBuf> = (0..3).map(|n| path(&format!("any-{n}.img"))).collect();
    images.iter().for_each(|image| std::fs::File::create(image).unwrap().set_len(MIB).unwrap());
    let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let clients: Vec<_> = (0..4)
        .map(|number| {
            let (stop, rounds, socket) = (Arc::clone(&stop), Arc::clone(&rounds), running.socket.clone());
            std::thread::spawn(move || {
                let mut client = Client::connect(&socket, "d", 256 * number, 256).unwrap();
                let mut random = number + 1;
                while !stop.load(Ordering::Relaxed) {
                    assert!(client.round(next(&mut random)), "a connection was lost");
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let (mut random, mut made) = (seed, 0);
    let groups = ["/a", "/b", "/c/d", "/c/e", "/c"];
    for step in 0..steps {
        let state = running.handle.state().unwrap();
        let count = [1, 1, 2, 5][next(&mut random) as usize % 4];
        let changes: Vec<_> = (0..count).map(|_| random_change(&mut random, &state.config, &groups, &images)).collect();
        let version = next(&mut random).is_multiple_of(4).then_some(state.version);
        match running.change(&changes, version, false) {
            Ok(Made { state: after, steps, .. }) => {
                assert_eq!(after.version, state.version + 1, "{changes:?}: {again}");
                assert!(
                    !steps.is_empty() || comparable(&after.config) == comparable(&state.config),
                    "{changes:?}: {again}"
                );
                made += u64::from(!steps.is_empty());
            }
            Err(_) => {
                let after = running.handle.state().unwrap();
                assert_eq!(
                    (after.version, comparable(&after.config)),
                    (state.version, comparable(&state.config)),
                    "{changes:?}: {again}"
                );
            }
        }
        // Some are served between changes.
        if step % 8 == 0 {
            let (before, start) = (rounds.load(Ordering::Relaxed), Instant::now());
            while rounds.load(Ordering::Relaxed) < before + 2 {
                assert!(start.elapsed() < Duration::from_secs(60), "nothing is served after {changes:?}: {again}");
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }
    assert!(made > steps / 4, "most changes are refused: {made} of {steps} were made: {again}");
    stop.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().unwrap_or_else(|_| panic!("{again}")));
    let state = running.handle.state().unwrap();
    let shows: Vec<_> = state.config.exports.iter().map(|export| export.name.clone()).collect();
    for name in shows {
        assert!(Client::connect(&running.socket, &name, 0, 1).is_some(), "{name} is not served: {again}");
    }
    running.stop();
    let anew = Server::bind(Config { workers: Some(1), ..Config::clone(&state.config) })
        .unwrap_or_else(|error| panic!("{error}: {again}"));
    assert_eq!(comparable(&anew.handle().state().unwrap().config), comparable(&state.config), "{again}");
    images.iter().for_each(|image| std::fs::remove_file(image).unwrap());
}

fn random_change(random: &mut u64, config: &Config, groups: &[&str], images: &[PathBuf]) -> Change {
    let mut pick = |count: usize| (next(random) as usize) % count.max(1);
    let exports: Vec<&str> = config.exports.iter().map(|export| export.name.as_str()).collect();
    let disks: Vec<&str> = config.disks.iter().map(|disk| disk.name.as_str()).collect();
    let there: Vec<&str> = config.groups.iter().map(|group| group.path.as_str()).collect();
    // "d" is what the clients have: it changes, and stays.
    let other = exports.get(1 + pick(exports.len() - 1)).copied().unwrap_or("none").to_owned();
    let any = exports[pick(exports.len())].to_owned();
    let disk = disks[pick(disks.len())].to_owned();
    let group = there[pick(there.len())].to_owned();
    let socket = Address::Unix(images[0].with_extension(["door0.sock", "door1.sock"][pick(2)]));
    match pick(25) {
        0 | 1 => {
            let (path, weight) = (groups[pick(groups.len())].to_owned(), 1 + pick(1000) as u16);
            let of = path.clone();
            change(format!("add group {path}, weight {weight}"), move |edit| {
                edit.add_group(&path)?;
                edit.set_weight(&path, Weight::new(weight))
            })
            .asks(move |all| {
                all.add_group(&of);
                all.groups.get_mut(&of).expect("it was just added").0 = weight;
            })
        }
        2 => remove_group(&group),
        3 | 4 => weight(&group, 1 + pick(1000) as u16),
        5 => add_disk(self::disk(["e", "f"][pick(2)], Kind::ALL[pick(Kind::ALL.len())])),
        6 => remove_disk(&disk),
        7 | 8 => scheduler(&disk, Kind::ALL[pick(Kind::ALL.len())]),
        9 => knob(&disk, "isolation_cost", &(1 + pick(50)).to_string()),
        10 => depth(&disk, [None, Some(1 + pick(64) as u16)][pick(2)]),
        11 | 12 => match pick(3) {
            0 => file(&format!("file{}", pick(4)), &images[pick(images.len())], pick(4) == 0),
            _ => mem(&format!("mem{}", pick(6)), &group, [None, Some(disk.as_str())][pick(2)]),
        },
        13 => remove(&other, [Leave::Drain, Leave::Cut][pick(2)]),
        14 => put(&any, &group),
        15 => {
            let priority = Priority { class: PriorityClass::BestEffort, level: pick(8) as u8 };
            let of = any.clone();
            export(&any, priority.to_string(), move |export| export.priority = priority)
                .asks(move |all| all.export(&of).priority = priority)
        }
        16 => read_only(&other, pick(2) == 0),
        17 | 18 => {
            // The image grows first, or not.
            let image = std::fs::OpenOptions::new().write(true).open(&images[pick(images.len())]).unwrap();
            image.set_len(image.metadata().unwrap().len() + pick(2) as u64 * BLOCK).unwrap();
            let (of, before) = (other.clone(), config.clone());
            let len = move |export: &Export| match &export.backing {
                Backing::File(at) => Some(std::fs::metadata(&at.path).unwrap().len()),
                _ => None,
            };
            grow(&other, None).asks(move |all| {
                let grown = before.exports.iter().find(|export| export.name == of).and_then(&len);
                all.grown.extend(grown.map(|len| (of.clone(), len)));
            })
        }
        19 => nr_requests(&disk, [None, Some(64 + pick(4096) as u32)][pick(2)]),
        20 => listen(Listener::new(socket, Tls::Off)),
        21 | 22 => {
            let most = Rates::NONE.with(Rate::Iops, 100_000 + pick(1000) as u64);
            let promised = Bounds { floor: Rates::NONE.with(Rate::Iops, 1 + pick(100) as u64), ..Bounds::default() };
            let latency = Some(fairlift_core::time::ms(1 + pick(50) as u64));
            bounds(
                &group,
                [
                    Bounds::default(),
                    Bounds { ceiling: Ceiling::of(most), ..Bounds::default() },
                    promised,
                    Bounds { ceiling: Ceiling::of(most), latency, ..Bounds::default() },
                ][pick(4)],
            )
        }
        23 => {
            let Address::Unix(socket) = socket else { unreachable!() };
            leave(format!("unix:{}", socket.display()))
        }
        _ => {
            let (text, of) = (format!("number {}", pick(100)), any.clone());
            let wish = text.clone();
            export(&any, text.clone(), move |export| export.description.clone_from(&text))
                .asks(move |all| all.export(&of).description.clone_from(&wish))
        }
    }
}
