//! A server in this process, and what is in force there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fairlift::config::{Address, Backing, Config, Disk, Export, Listener, Ram, Tls};
use fairlift::control::{Edit, Made, Refused, State};
use fairlift::{Error, Handle, Server};
use fairlift_core::sched::Kind;
use fairlift_core::{GroupId, Priority};

use crate::change::Change;
use crate::client::{Client, MIB, greeted, listed};
use crate::wanted::{Answers, InForce, reads};

pub(crate) fn disk(name: &str, scheduler: Kind) -> Disk {
    Disk::new(name, scheduler)
}

pub(crate) fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("fairlift-control-{name}-{}", std::process::id()))
}

/// A server with one export, `d`, of RAM on disk `d`.
pub(crate) fn config(socket: &Path) -> Config {
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
        disk_default: disk("default", Kind::MqDeadline),
        disks: vec![disk("d", Kind::Fair)].into(),
        exports: vec![export].into(),
        listeners: vec![Listener::new(Address::Unix(socket.to_owned()), Tls::Off)],
        workers: Some(2),
        ..Config::default()
    }
}

pub(crate) struct Running {
    pub(crate) handle: Handle,
    pub(crate) socket: PathBuf,
    pub(crate) serving: Option<std::thread::JoinHandle<Result<(), Error>>>,
}

impl Running {
    pub(crate) fn start(name: &str) -> Self {
        Self::at(path(&format!("{name}.sock")))
    }

    pub(crate) fn at(socket: PathBuf) -> Self {
        let server = Server::bind(config(&socket)).unwrap();
        let handle = server.handle();
        Self { handle, socket, serving: Some(std::thread::spawn(move || server.run())) }
    }

    pub(crate) fn change(&self, changes: &[Change], version: Option<u64>, dry_run: bool) -> Result<Made, Refused> {
        let edit = |edit: &mut Edit| changes.iter().try_for_each(|change| (change.edit)(edit));
        self.handle.change(edit, version, dry_run)
    }

    pub(crate) fn apply(&self, changes: &[Change]) -> State {
        self.change(changes, None, false).unwrap_or_else(|refused| panic!("{changes:?}: {refused}")).state
    }

    pub(crate) fn refused(&self, changes: &[Change]) -> String {
        self.change(changes, None, false).expect_err("it is refused").to_string()
    }

    pub(crate) fn swept(&self) {
        let start = Instant::now();
        while self.handle.sweep() {
            assert!(start.elapsed() < Duration::from_secs(20), "what was removed does not go");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// What is in force, once disks have passed from one scheduler to another.
    pub(crate) fn in_force(&self) -> InForce {
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

    pub(crate) fn stop(mut self) {
        self.handle.drain();
        self.serving.take().unwrap().join().unwrap().unwrap();
    }
}

/// What a state says, for comparisons; groups and disks in any order that keeps the meaning.
pub(crate) fn comparable(config: &Config) -> (BTreeSet<String>, BTreeSet<String>, BTreeSet<String>, BTreeSet<String>) {
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
