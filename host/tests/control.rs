//! A server is changed while clients write and read it: nothing is lost, and what is in force is what a start would give.

mod asked;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use asked::{Answers, Asked, AskedDisk, AskedExport, InForce, reads};
use fairlift::config::{Address, Backing, Config, Disk, Engine, Export, FileAt, Limits, Listener, Null, Ram, Tls};
use fairlift::control::view::DiskView;
use fairlift::control::{Edit, Leave, Made, Refused, State};
use fairlift::export::vhost_user::GuestSocket;
use fairlift::{Error, Handle, Server};
use fairlift_core::ceiling::{Bounds, Ceiling, Rate, Rates};
use fairlift_core::sched::{Kind, Setup};
use fairlift_core::tunable::{self, Range, TunableInfo};
use fairlift_core::{Group, GroupId, Priority, PriorityClass, Weight, flush};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;

fn disk(name: &str, scheduler: Kind) -> Disk {
    Disk::new(name, scheduler)
}

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("fairlift-control-{name}-{}", std::process::id()))
}

/// A server with one export, `d`, of RAM on disk `d`.
fn config(socket: &Path) -> Config {
    let export = Export {
        name: "d".into(),
        description: String::new(),
        backing: Backing::from(Ram { size: 4 * MIB }),
        offset: 0,
        size: None,
        disk: Some(0),
        group: GroupId::ROOT,
        priority: Priority::default(),
        read_only: false,
        ways: Default::default(),
    };
    Config {
        groups: vec![Group::root()].into(),
        bounds: Default::default(),
        disk_default: disk("default", Kind::MqDeadline),
        disks: vec![disk("d", Kind::Fair)].into(),
        exports: vec![export].into(),
        listeners: vec![Listener::new(Address::Unix(socket.to_owned()), Tls::Off)],
        workers: Some(2),
        engine: Engine::Auto,
        limits: Limits::default(),
        tls: None,
        clients: Vec::new(),
        revoked: Default::default(),
        delegated: Default::default(),
        roots: Vec::new(),
    }
}

struct Running {
    handle: Handle,
    socket: PathBuf,
    serving: Option<std::thread::JoinHandle<Result<(), Error>>>,
}

impl Running {
    fn start(name: &str) -> Self {
        Self::at(path(&format!("{name}.sock")))
    }

    fn at(socket: PathBuf) -> Self {
        let server = Server::bind(config(&socket)).unwrap();
        let handle = server.handle();
        Self { handle, socket, serving: Some(std::thread::spawn(move || server.run())) }
    }

    fn change(&self, changes: &[Change], version: Option<u64>, dry_run: bool) -> Result<Made, Refused> {
        let edit = |edit: &mut Edit| changes.iter().try_for_each(|change| (change.edit)(edit));
        self.handle.change(edit, version, dry_run)
    }

    fn apply(&self, changes: &[Change]) -> State {
        self.change(changes, None, false).unwrap_or_else(|refused| panic!("{changes:?}: {refused}")).state
    }

    fn refused(&self, changes: &[Change]) -> String {
        self.change(changes, None, false).expect_err("it is refused").to_string()
    }

    fn swept(&self) {
        let start = Instant::now();
        while self.handle.sweep() {
            assert!(start.elapsed() < Duration::from_secs(20), "what was removed does not go");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// What is in force, once disks have passed from one scheduler to another.
    fn in_force(&self) -> InForce {
        let start = Instant::now();
        let view = || self.handle.view(true).unwrap();
        while view().disks.iter().any(|disk| disk.frozen) {
            assert!(start.elapsed() < Duration::from_secs(20), "a disk stays frozen");
            std::thread::sleep(Duration::from_millis(1));
        }
        for place in view().listeners {
            let path = place.strip_prefix("unix:").expect("a path").to_owned();
            greeted(Path::new(&path)).unwrap_or_else(|error| panic!("{place} does not answer: {error}"));
        }
        let sizes: BTreeMap<_, _> = view().exports.into_iter().collect();
        let answers = |(name, description): (String, String)| {
            let before = reads(&view());
            let mut client = Client::connect(&self.socket, &name, 0, 1).expect("what is listed is served");
            client.read_end();
            let after = reads(&view());
            let more = |(of, count): (&(String, String), &u64)| before.get(of).unwrap_or(&0) < count;
            let mut counts_for = after.iter().filter(|one| more(*one)).map(|(of, _)| of.clone());
            let Client { size, read_only, .. } = client;
            assert_eq!(sizes.get(&name), Some(&size), "the size of {name}");
            let counts_for = (counts_for.next().unwrap(), counts_for.next());
            assert_eq!(counts_for.1, None, "a read of {name} counts twice");
            (name, Answers { size, read_only, description, counts_for: counts_for.0 })
        };
        let exports = listed(&self.socket).into_iter().map(answers).collect();
        InForce::of(&view(), exports)
    }

    fn stop(mut self) {
        self.handle.drain();
        self.serving.take().unwrap().join().unwrap().unwrap();
    }
}

/// What a state says, for comparisons; groups and disks in any order that keeps the meaning.
fn said(config: &Config) -> (BTreeSet<String>, BTreeSet<String>, BTreeSet<String>, BTreeSet<String>) {
    let path = |group: GroupId| &config.groups[usize::from(group.0)].path;
    let groups =
        config.groups.iter().map(|group| format!("{} {:?} {}", group.path, group.parent.map(path), group.weight));
    let disks = config.disks.iter().map(|disk| {
        let mut set = disk.set.clone();
        set.sort();
        format!("{:?}", Disk { set, ..disk.clone() })
    });
    let exports = config.exports.iter().map(|export| {
        let disk = export.disk.map(|disk| &config.disks[disk].name);
        let Export { name, description, backing, offset, size, priority, read_only, .. } = export;
        let group = path(export.group);
        format!("{name} {description} {backing:?} {offset} {size:?} {disk:?} {group} {priority:?} {read_only}")
    });
    let listeners = config.listeners.iter().map(|listener| format!("{listener:?}"));
    (groups.collect(), disks.collect(), exports.collect(), listeners.collect())
}

type Make = dyn Fn(&mut Edit) -> Result<(), String>;

/// An edit, with what it is, and what it asks for.
#[derive(Clone)]
struct Change {
    says: String,
    edit: Arc<Make>,
    asks: Arc<dyn Fn(&mut Asked)>,
}

impl Change {
    fn asks(self, asks: impl Fn(&mut Asked) + 'static) -> Self {
        Self { asks: Arc::new(asks), ..self }
    }
}

impl std::fmt::Debug for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.says)
    }
}

fn change(says: impl Into<String>, edit: impl Fn(&mut Edit) -> Result<(), String> + 'static) -> Change {
    Change { says: says.into(), edit: Arc::new(edit), asks: Arc::new(|_| {}) }
}

fn add(export: Export, disk: Option<&str>, group: &str) -> Change {
    let (disk, group) = (disk.map(str::to_owned), group.to_owned());
    let says = format!("add {export:?} on {disk:?} in {group}");
    let Export { name, priority, read_only, description, .. } = export.clone();
    let asked = AskedExport { group: group.clone(), disk: disk.clone(), read_only, priority, description };
    change(says, move |edit| edit.add_export(export.clone(), disk.as_deref(), &group))
        .asks(move |all| _ = all.exports.insert(name.clone(), asked.clone()))
}

fn mem(name: &str, group: &str, disk: Option<&str>) -> Change {
    add(Export::new(name, Ram { size: MIB }), disk, group)
}

fn file(name: &str, path: &Path, read_only: bool) -> Change {
    let backing = FileAt::new(path);
    add(Export { read_only, ..Export::new(name, backing) }, None, "/")
}

fn remove(name: &str, how: Leave) -> Change {
    let (name, gone) = (name.to_owned(), name.to_owned());
    change(format!("remove {name} {how:?}"), move |edit| edit.remove_export(&name, how)).asks(move |all| {
        all.exports.remove(&gone);
        all.grown.remove(&gone);
    })
}

fn weight(group: &str, weight: u16) -> Change {
    let (group, of) = (group.to_owned(), group.to_owned());
    change(format!("{group}: weight {weight}"), move |edit| edit.set_weight(&group, Weight::new(weight)))
        .asks(move |all| all.groups.get_mut(&of).expect("it was asked for").0 = weight)
}

fn bounds(group: &str, bounds: Bounds) -> Change {
    let (group, of) = (group.to_owned(), group.to_owned());
    change(format!("{group}: {bounds}"), move |edit| edit.set_bounds(&group, bounds))
        .asks(move |all| all.groups.get_mut(&of).expect("it was asked for").1 = bounds)
}

fn group(path: &str) -> Change {
    let (path, of) = (path.to_owned(), path.to_owned());
    change(format!("add group {path}"), move |edit| edit.add_group(&path).map(drop)).asks(move |all| all.add_group(&of))
}

fn remove_group(path: &str) -> Change {
    let (path, gone) = (path.to_owned(), path.to_owned());
    change(format!("remove group {path}"), move |edit| edit.remove_group(&path))
        .asks(move |all| _ = all.groups.remove(&gone))
}

fn turn(disk: &str, says: impl Into<String>, to: impl Fn(&mut Disk) + 'static) -> Change {
    let disk = disk.to_owned();
    change(format!("disk {disk}: {}", says.into()), move |edit| {
        to(edit.disk(&disk)?);
        Ok(())
    })
}

fn knob(disk: &str, name: &str, value: &str) -> Change {
    let (name, value) = (name.to_owned(), value.to_owned());
    let (of, knob) = (disk.to_owned(), (name.clone(), value.clone()));
    turn(disk, format!("{name} = {value}"), move |disk| {
        disk.set.retain(|(one, _)| *one != name);
        disk.set.push((name.clone(), value.clone()));
    })
    .asks(move |all| all.disk(&of).set.extend([knob.clone()]))
}

fn scheduler(disk: &str, kind: Kind) -> Change {
    turn(disk, kind.name(), move |disk| (disk.scheduler, disk.is_usual, disk.set) = (kind, false, Vec::new())).asks({
        let of = disk.to_owned();
        move |all| (all.disk(&of).scheduler, all.disk(&of).set) = (kind, BTreeMap::new())
    })
}

fn depth(disk: &str, depth: Option<u16>) -> Change {
    let of = disk.to_owned();
    turn(disk, format!("depth {depth:?}"), move |disk| disk.depth = depth).asks(move |all| all.disk(&of).depth = depth)
}

fn nr_requests(disk: &str, number: Option<u32>) -> Change {
    let of = disk.to_owned();
    turn(disk, format!("nr_requests {number:?}"), move |disk| disk.nr_requests = number)
        .asks(move |all| all.disk(&of).nr_requests = number)
}

fn add_disk(disk: Disk) -> Change {
    let Disk { name, scheduler, depth, nr_requests, .. } = disk.clone();
    let asked = AskedDisk { scheduler, set: disk.set.iter().cloned().collect(), depth, nr_requests };
    change(format!("add {disk:?}"), move |edit| edit.add_disk(disk.clone()))
        .asks(move |all| _ = all.disks.insert(name.clone(), asked.clone()))
}

fn remove_disk(name: &str) -> Change {
    let (name, gone) = (name.to_owned(), name.to_owned());
    change(format!("remove disk {name}"), move |edit| edit.remove_disk(&name))
        .asks(move |all| _ = all.disks.remove(&gone))
}

/// Changes an export.
fn export(name: &str, says: impl Into<String>, to: impl Fn(&mut Export) + 'static) -> Change {
    let name = name.to_owned();
    change(format!("export {name}: {}", says.into()), move |edit| {
        to(edit.export(&name)?);
        Ok(())
    })
}

fn put(name: &str, group: &str) -> Change {
    let (name, group) = (name.to_owned(), group.to_owned());
    let (moved, to) = (name.clone(), group.clone());
    change(format!("{name} into {group}"), move |edit| {
        let group = edit.find_group(&group)?;
        edit.export(&name)?.group = group;
        Ok(())
    })
    .asks(move |all| all.export(&moved).group.clone_from(&to))
}

fn read_only(name: &str, read_only: bool) -> Change {
    let of = name.to_owned();
    export(name, format!("read-only {read_only}"), move |export| export.read_only = read_only)
        .asks(move |all| all.export(&of).read_only = read_only)
}

fn grow(name: &str, size: Option<u64>) -> Change {
    let name = name.to_owned();
    change(format!("grow {name} to {size:?}"), move |edit| edit.grow(&name, size))
}

fn listen(listener: Listener) -> Change {
    let name = listener.address.to_string();
    change(format!("add {listener:?}"), move |edit| edit.add_listener(listener.clone()))
        .asks(move |all| _ = all.listeners.insert(name.clone()))
}

fn leave(address: String) -> Change {
    let gone = address.clone();
    change(format!("leave {address}"), move |edit| edit.remove_listener(&address))
        .asks(move |all| _ = all.listeners.remove(&gone))
}

/// A connection that was greeted and has chosen nothing yet.
fn greeted(path: &Path) -> std::io::Result<UnixStream> {
    let mut socket = UnixStream::connect(path)?;
    socket.set_read_timeout(Some(Duration::from_secs(30)))?;
    socket.read_exact(&mut [0; 18])?;
    socket.write_all(&3u32.to_be_bytes())?;
    Ok(socket)
}

/// The exports that are listed, with their descriptions.
fn listed(path: &Path) -> BTreeMap<String, String> {
    let mut socket = greeted(path).unwrap();
    socket.write_all(b"IHAVEOPT\0\0\0\x03\0\0\0\0").unwrap();
    let mut all = BTreeMap::new();
    loop {
        let mut head = [0; 20];
        socket.read_exact(&mut head).unwrap();
        let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
        let mut data = vec![0; number(16) as usize];
        socket.read_exact(&mut data).unwrap();
        if number(12) == 1 {
            return all;
        }
        assert_eq!(number(12), 2, "an answer that is no export");
        let (length, text) = data.split_at(4);
        let (name, says) = text.split_at(u32::from_be_bytes(length.try_into().unwrap()) as usize);
        all.insert(String::from_utf8_lossy(name).into_owned(), String::from_utf8_lossy(says).into_owned());
    }
}

/// A client that writes what nobody else writes, and reads it back.
struct Client {
    socket: UnixStream,
    cookie: u64,
    size: u64,
    /// What each block of its own holds.
    written: Vec<u64>,
    /// Its blocks start here.
    first: u64,
    read_only: bool,
}

impl Client {
    /// `None`: there is no such export.
    fn connect(path: &Path, export: &str, first: u64, blocks: u64) -> Option<Self> {
        let mut socket = greeted(path).unwrap();
        let mut option = b"IHAVEOPT\0\0\0\x01".to_vec();
        option.extend((export.len() as u32).to_be_bytes());
        option.extend(export.as_bytes());
        socket.write_all(&option).unwrap();
        let mut head = [0; 10];
        socket.read_exact(&mut head).ok()?;
        let size = u64::from_be_bytes(head[..8].try_into().unwrap());
        let read_only = head[9] & 2 != 0;
        Some(Self { socket, cookie: 0, size, written: vec![0; blocks as usize], first, read_only })
    }

    fn ask(&mut self, out: &mut Vec<u8>, command: u16, block: u64) {
        out.extend(0x2560_9513_u32.to_be_bytes());
        out.extend(0u16.to_be_bytes());
        out.extend(command.to_be_bytes());
        out.extend(self.cookie.to_be_bytes());
        out.extend(if command == 3 { 0 } else { (self.first + block) * BLOCK }.to_be_bytes());
        out.extend(if command == 3 { 0 } else { BLOCK as u32 }.to_be_bytes());
        self.cookie += 1;
    }

    fn content(&self, block: u64) -> Vec<u8> {
        let seed = self.written[block as usize];
        let word = |n: u64| if seed == 0 { 0 } else { (seed << 32 | (self.first + block)).wrapping_mul(2 * n + 1) };
        (0..BLOCK / 8).flat_map(|n| word(n).to_be_bytes()).collect()
    }

    /// The error of the next reply, and its cookie; `None`: the server has closed the connection.
    fn reply(&mut self) -> Option<(u32, u64)> {
        let mut head = [0; 16];
        self.socket.read_exact(&mut head).ok()?;
        let error = u32::from_be_bytes(head[4..8].try_into().unwrap());
        Some((error, u64::from_be_bytes(head[8..].try_into().unwrap())))
    }

    /// Writes some blocks and flushes, then reads them back; whether the server was there all the while.
    fn round(&mut self, seed: u64) -> bool {
        const AT_ONCE: u64 = 8;
        let blocks = self.written.len() as u64;
        let first = seed % (blocks - AT_ONCE + 1);
        let mut out = Vec::new();
        for block in first..first + AT_ONCE {
            self.written[block as usize] += 1;
            self.ask(&mut out, 1, block);
            out.extend(self.content(block));
        }
        self.ask(&mut out, 3, 0);
        if self.socket.write_all(&out).is_err() {
            return false;
        }
        for _ in 0..=AT_ONCE {
            match self.reply() {
                Some((error, _)) => assert_eq!(error, 0, "a write failed"),
                None => return false,
            }
        }
        let (base, mut out) = (self.cookie, Vec::new());
        for block in first..first + AT_ONCE {
            self.ask(&mut out, 0, block);
        }
        if self.socket.write_all(&out).is_err() {
            return false;
        }
        for _ in 0..AT_ONCE {
            let Some((error, cookie)) = self.reply() else { return false };
            assert_eq!(error, 0, "a read failed");
            let mut bytes = vec![0; BLOCK as usize];
            if self.socket.read_exact(&mut bytes).is_err() {
                return false;
            }
            assert!(bytes == self.content(first + cookie - base), "a client reads what it wrote");
        }
        true
    }

    /// The error that a write of a block is answered with.
    fn write(&mut self, block: u64) -> u32 {
        let mut out = Vec::new();
        self.ask(&mut out, 1, block);
        out.extend([7; BLOCK as usize]);
        self.socket.write_all(&out).unwrap();
        self.reply().expect("it is answered").0
    }

    /// Reads the last block.
    fn read_end(&mut self) {
        let mut out = Vec::new();
        self.ask(&mut out, 0, self.size / BLOCK - 1);
        self.socket.write_all(&out).unwrap();
        assert_eq!(self.reply().expect("it is answered").0, 0);
        self.socket.read_exact(&mut [0; BLOCK as usize]).unwrap();
    }

    fn is_served(&mut self) -> bool {
        let mut out = Vec::new();
        self.ask(&mut out, 3, 0);
        self.socket.write_all(&out).is_ok() && self.reply().is_some()
    }
}

fn next(random: &mut u64) -> u64 {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *random >> 33
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// control.1
#[test]
fn several_changes_are_made_or_none() {
    let running = Running::start("all");
    let before = running.handle.state().unwrap();
    let changes = [group("/a"), mem("a", "/a", None), weight("/b", 7)];
    let refused = running.change(&changes, None, false).unwrap_err();
    let why = "there is no group \"/b\"; did you mean \"/a\"?";
    assert!(
        matches!(&refused, Refused::Change { why: says, .. } if says.starts_with("there is no group \"/b\"")),
        "{refused}: {why}"
    );
    assert!(Client::connect(&running.socket, "a", 0, 1).is_none(), "nobody has seen it");
    let after = running.handle.state().unwrap();
    assert_eq!((after.version, said(&after.config)), (before.version, said(&before.config)));

    let dry = running.change(&changes[..2], None, true).unwrap().state;
    assert_eq!((dry.version, dry.config.exports.len()), (0, 2));
    assert_eq!(said(&running.handle.state().unwrap().config), said(&before.config), "a dry run changes nothing");

    let made = running.apply(&changes[..2]);
    assert_eq!((made.version, said(&made.config)), (1, said(&dry.config)));
    assert!(Client::connect(&running.socket, "a", 0, 16).unwrap().round(3));
    let late = running.change(&[weight("/a", 5)], Some(0), false);
    assert_eq!(late.unwrap_err(), Refused::Version { asked: 0, now: 1 });
    assert_eq!(running.change(&[weight("/a", 5)], Some(1), false).unwrap().state.version, 2);
    running.stop();
}

#[test]
fn what_cannot_be_is_refused_with_what_is_possible() {
    let running = Running::start("no");
    running.apply(&[group("/tenants/alice"), mem("alice", "/tenants/alice", Some("d"))]);
    for (change, why) in [
        (weight("/tenats/alice", 5), "there is no group \"/tenats/alice\"; did you mean \"/tenants/alice\"?"),
        (weight("/", 10), "the root has no siblings, so that a weight of it would mean nothing"),
        (group("/tenants//x"), "a group's path has no empty parts; did you mean \"/tenants/x\"?"),
        (group("/tenants"), "there is a group \"/tenants\" already"),
        (remove_group("/tenants/alice"), "group \"/tenants/alice\" is in use: export \"alice\" is in it"),
        (remove_group("/tenants"), "group \"/tenants\" is in use: group \"/tenants/alice\" is in it"),
        (remove_disk("d"), "disk \"d\" is in use: export \"d\" and 1 more are in it"),
        (mem("alice", "/", None), "there is an export \"alice\" already"),
        (mem("bob", "/bob", None), "there is no group \"/bob\"; there are /, /tenants, /tenants/alice"),
        (mem("bob", "/", Some("dd")), "there is no disk \"dd\"; did you mean \"d\"?"),
        (remove("alcie", Leave::Cut), "there is no export \"alcie\"; did you mean \"alice\"?"),
        (knob("d", "isolation_cots", "5"), "there is no tunable \"isolation_cots\"; did you mean \"isolation_cost\"?"),
        (knob("d", "isolation_cost", "much"), "isolation_cost takes a number from"),
        (depth("d", Some(0)), "depth: takes a number from 1 to 4096, not 0"),
        (nr_requests("d", Some(5)), "nr_requests must be at least the depth, which is 128"),
        (grow("alice", Some(MIB / 2)), "has 1048576 bytes and can only grow"),
        (grow("alice", Some(2 * MIB)), "its backing has 1048576"),
        (file("f", Path::new("/nowhere/at.all"), false), "/nowhere/at.all"),
        (listen(Listener::new(Address::Unix(running.socket.clone()), Tls::Off)), "it listens at unix:"),
        (leave("unix:/x".into()), "there is no listener \"unix:/x\"; it listens at unix:"),
    ] {
        let says = running.refused(std::slice::from_ref(&change));
        assert!(says.contains(why), "{change:?}: {says}, not {why}");
    }
    assert_eq!(running.handle.state().unwrap().version, 1);
    running.stop();
}

/// Clients of others notice nothing when exports come and go; those of one that goes are drained, or cut.
#[test]
fn exports_come_and_go_and_others_clients_stay() {
    let running = Running::start("go");
    let image = path("go.img");
    std::fs::File::create(&image).unwrap().set_len(MIB).unwrap();
    let mut stays = Client::connect(&running.socket, "d", 0, 64).unwrap();
    for turn in 0..20 {
        running.apply(&[group("/x"), mem("x", "/x", Some("d")), mem("y", "/x", None), file("z", &image, false)]);
        let mut all: Vec<_> =
            ["x", "y", "z"].map(|name| Client::connect(&running.socket, name, 0, 32).unwrap()).into_iter().collect();
        assert!(all.iter_mut().all(|client| client.round(turn)) && stays.round(turn));
        let how = if turn % 2 == 0 { Leave::Drain } else { Leave::Cut };
        let gone = ["x", "y", "z"].map(|name| remove(name, how));
        running.apply(&gone);
        running.apply(&[remove_group("/x")]);
        assert!(!all[0].is_served() && !all[1].is_served() && !all[2].is_served(), "their connections are closed");
        assert!(Client::connect(&running.socket, "x", 0, 1).is_none());
        assert!(stays.round(turn + 100), "and nobody else's");
    }
    running.swept();
    let state = running.handle.state().unwrap();
    assert_eq!((state.config.exports.len(), state.config.disks.len(), state.config.groups.len()), (1, 1, 1));
    running.stop();
    std::fs::remove_file(image).unwrap();
}

/// A client that has asked a slow disk: when the export is removed it gets its answer, when it is removed at once it does not.
#[test]
fn a_removal_answers_what_was_asked_and_one_at_once_does_not() {
    let running = Running::start("cut");
    // Long enough for a test that has no processor for a while to see the request in the disk.
    for (how, milliseconds) in [(Leave::Drain, 3000), (Leave::Cut, 5000)] {
        let delay = fairlift_core::Duration::from_nanos(milliseconds * 1_000_000);
        running.apply(&[add(Export::new("slow", Null { size: MIB, delay }), None, "/")]);
        let mut client = Client::connect(&running.socket, "slow", 0, 1).unwrap();
        let mut out = Vec::new();
        client.ask(&mut out, 1, 0);
        out.extend([7; BLOCK as usize]);
        client.socket.write_all(&out).unwrap();
        let start = Instant::now();
        while running.handle.view(false).unwrap().disks.iter().all(|disk| disk.in_flight == 0) {
            assert!(start.elapsed() < Duration::from_secs(20), "the request does not reach the disk");
        }
        running.apply(&[remove("slow", how)]);
        assert_eq!(client.reply().is_some(), how == Leave::Drain, "{how:?}");
        assert!(client.reply().is_none(), "{how:?}: and then it is disconnected");
    }
    running.stop();
}

/// 200 exports come and go: no descriptor, thread or place stays.
#[test]
fn nothing_stays_of_what_was_removed() {
    let running = Running::start("stay");
    let image = path("stay.img");
    std::fs::File::create(&image).unwrap().set_len(MIB).unwrap();
    let round = |names: std::ops::Range<u32>| {
        let changes: Vec<_> = names.clone().map(|n| mem(&format!("m{n}"), "/", (n % 2 == 0).then_some("d"))).collect();
        running.apply(&changes);
        running.apply(&[file("f", &image, false)]);
        assert!(Client::connect(&running.socket, "f", 0, 32).unwrap().round(1));
        running.apply(&[remove("f", Leave::Cut)]);
        running.apply(&names.map(|n| remove(&format!("m{n}"), Leave::Drain)).collect::<Vec<_>>());
        running.swept();
    };
    round(0..4);
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    // Other tests run beside this one, and threads that flush what was closed may not have ended.
    let settled = |count: &dyn Fn() -> usize| {
        (0..50)
            .map(|_| {
                std::thread::sleep(Duration::from_millis(10));
                count()
            })
            .min()
    };
    let before = (settled(&descriptors), settled(&threads));
    for turn in 0..40 {
        round(turn * 5..turn * 5 + 5);
    }
    let after = (settled(&descriptors), settled(&threads));
    // At most those of the other tests.
    assert!(
        after.0 < before.0.map(|count| count + 100) && after.1 < before.1.map(|count| count + 60),
        "{before:?} {after:?}"
    );
    assert_eq!(running.handle.state().unwrap().config.disks.len(), 1);
    running.stop();
    std::fs::remove_file(image).unwrap();
}

#[test]
fn an_export_is_moved_grown_and_made_read_only_under_its_clients() {
    let running = Running::start("move");
    let image = path("move.img");
    std::fs::File::create(&image).unwrap().set_len(MIB).unwrap();
    running.apply(&[group("/a"), group("/b"), file("f", &image, false)]);
    let mut client = Client::connect(&running.socket, "f", 0, 64).unwrap();
    assert!(client.round(5) && client.size == MIB);
    running.apply(&[put("f", "/a")]);
    assert!(client.round(6));
    running.apply(&[put("f", "/b"), remove_group("/a")]);
    assert!(client.round(7));
    let priority = Priority { class: PriorityClass::Idle, level: 0 };
    running.apply(&[export("f", format!("{priority}"), move |export| export.priority = priority)]);
    running.apply(&[read_only("f", true)]);
    let start = Instant::now();
    while client.write(0) != 1 {
        assert!(start.elapsed() < Duration::from_secs(10), "it can still be written");
    }
    running.apply(&[read_only("f", false)]);
    while client.write(0) != 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "it cannot be written again");
    }
    std::fs::OpenOptions::new().write(true).open(&image).unwrap().set_len(3 * MIB).unwrap();
    assert_eq!(Client::connect(&running.socket, "f", 0, 8).unwrap().size, MIB, "nobody has said so");
    running.apply(&[grow("f", None)]);
    let mut grown = Client::connect(&running.socket, "f", 512, 256).unwrap();
    assert_eq!(grown.size, 3 * MIB);
    assert!(grown.round(200));
    drop((client, grown));
    running.apply(&[remove("f", Leave::Drain), file("f", &image, false)]);
    running.apply(&[remove("f", Leave::Drain)]);
    running.apply(&[file("ro", &image, true)]);
    let why = running.refused(&[read_only("ro", false)]);
    assert!(why.contains("was opened for reading only"), "{why}");
    running.stop();
    std::fs::remove_file(image).unwrap();
}

#[test]
fn listeners_come_and_go_and_who_came_by_them_stays() {
    let running = Running::start("listen");
    let other = path("other.sock");
    let listener = Listener::new(Address::Unix(other.clone()), Tls::Off);
    let mut before = None;
    for _ in 0..5 {
        running.apply(&[listen(listener.clone())]);
        let mut client = Client::connect(&other, "d", 0, 32).unwrap();
        assert!(client.round(1));
        running.apply(&[leave(format!("unix:{}", other.display()))]);
        assert!(client.round(2), "who came by it stays");
        running.swept();
        assert!(UnixStream::connect(&other).is_err() && !other.exists());
        before = Some(client);
    }
    assert!(before.unwrap().round(3));
    let tcp = Listener::new(Address::Tcp("127.0.0.1:0".parse().unwrap()), Tls::Off);
    let state = running.apply(&[listen(tcp)]);
    let Address::Tcp(bound) = state.config.listeners[1].address else { panic!("{:?}", state.config.listeners) };
    assert!(std::net::TcpStream::connect(bound).is_ok());
    running.stop();
}

/// Two values that a tunable takes, as it shows them itself.
fn values(kind: Kind, info: &TunableInfo) -> Vec<String> {
    let two = |least: String, most: String| vec![most, least];
    let said = match info.range {
        Range::Duration(least, most) | Range::AutoDuration(least, most) => two(least.to_string(), most.to_string()),
        Range::Count(least, most) | Range::AutoCount(least, most) => two(least.to_string(), most.to_string()),
        Range::Switch => two("0".into(), "1".into()),
        Range::Choice(words) => words.iter().map(|word| (*word).to_owned()).collect(),
        Range::AutoCostModel => vec!["auto".into()],
    };
    said.into_iter().map(|value| shown(kind, info.name, &value)).collect()
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
    let mut asked = Asked::of(&state.config);
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
                changes.iter().for_each(|change| (change.asks)(&mut asked));
                assert_eq!(now.state.version, state.version + 1, "{changes:?}: {again}");
                state = running.handle.state().unwrap();
                in_force = running.in_force();
                assert_eq!(said(&state.config), said(&now.state.config), "{changes:?}: {again}");
                if let Some(dry) = dry {
                    let dry = dry.unwrap_or_else(|why| panic!("dry it is refused: {why}: {changes:?}: {again}"));
                    assert_eq!(said(&dry.state.config), said(&state.config), "dry: {changes:?}: {again}");
                }
                assert_eq!(asked.heard(&state.config), asked, "{changes:?}: {again}");
                assert_eq!(in_force.lacks(&asked, shown), [""; 0], "{changes:?}: {again}");
                let doors = asked.listeners.iter().filter_map(|name| name.strip_prefix("unix:").map(PathBuf::from));
                assert_eq!(files(), always.iter().cloned().chain(doors).collect(), "{changes:?}: {again}");
            }
            Err(why) => {
                refused += 1;
                let after = running.handle.state().unwrap();
                assert_eq!(after.version, state.version, "{why}: {changes:?}: {again}");
                assert_eq!(said(&after.config), said(&state.config), "{why}: {changes:?}: {again}");
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
            assert_eq!((after.version, said(&after.config)), (before.version, said(&before.config)));
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

/// A backing that has outgrown the room that its disk keeps for it would reach into the next one.
#[test]
fn an_export_grows_no_further_than_its_disk_has_room_for() {
    let running = Running::start("room");
    let image = path("room.img");
    let file_of = |size| std::fs::File::create(&image).unwrap().set_len(size).unwrap();
    file_of(MIB);
    running.apply(&[file("f", &image, false)]);
    let grow = grow("f", None);
    file_of(3 << 40);
    let why = running.refused(std::slice::from_ref(&grow));
    assert!(why.contains("its disk keeps room for less"), "{why}");
    file_of(1 << 30);
    running.apply(&[grow]);
    assert_eq!(Client::connect(&running.socket, "f", 0, 8).unwrap().size, 1 << 30);
    running.stop();
    std::fs::remove_file(image).unwrap();
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
                assert!(!steps.is_empty() || said(&after.config) == said(&state.config), "{changes:?}: {again}");
                made += u64::from(!steps.is_empty());
            }
            Err(_) => {
                let after = running.handle.state().unwrap();
                assert_eq!(
                    (after.version, said(&after.config)),
                    (state.version, said(&state.config)),
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
    assert_eq!(said(&anew.handle().state().unwrap().config), said(&state.config), "{again}");
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
    let door = Address::Unix(images[0].with_extension(["door0.sock", "door1.sock"][pick(2)]));
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
        20 => listen(Listener::new(door, Tls::Off)),
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
            let Address::Unix(door) = door else { unreachable!() };
            leave(format!("unix:{}", door.display()))
        }
        _ => {
            let (text, of) = (format!("number {}", pick(100)), any.clone());
            let asked = text.clone();
            export(&any, text.clone(), move |export| export.description.clone_from(&text))
                .asks(move |all| all.export(&of).description.clone_from(&asked))
        }
    }
}

/// A weight is told to the queues, and no worker has anything to do with that.
#[test]
fn a_weight_set_live_wakes_no_other_connections_worker() {
    let server = Running::start("weight");
    server.apply(&[group("/a")]);
    let mut clients = [0, 8].map(|first| Client::connect(&server.socket, "d", first, 8).unwrap());
    clients.iter_mut().for_each(|client| assert!(client.is_served()));
    let turns = || server.handle.view(false).unwrap().worked.iter().map(|worker| worker.turns).collect::<Vec<_>>();
    let mut before = turns();
    let mut rest = || {
        std::thread::sleep(Duration::from_millis(50));
        std::mem::replace(&mut before, turns())
    };
    while rest() != turns() {}
    let before = rest();
    for n in 1..=20 {
        server.apply(&[weight("/a", n)]);
        assert_eq!(clients[0].write(0), 0);
    }
    let woken: Vec<_> = turns().iter().zip(&before).map(|(now, before)| now - before).collect();
    assert_eq!(woken.iter().min(), Some(&0), "turns of each worker: one has the connection that wrote");
    let description = "for all to see".to_owned();
    server.apply(&[export("d", "a description", move |export| export.description = String::clone(&description))]);
    while turns().iter().zip(&before).any(|(now, before)| now == before) {
        std::thread::sleep(Duration::from_millis(1));
    }
    server.stop();
}
