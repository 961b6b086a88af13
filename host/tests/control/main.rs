//! A server is changed while clients write and read it: nothing is lost, and what is in force is what a start would give.

mod change;
mod client;
mod handed;
mod random;
mod running;
mod wanted;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use fairlift::config::{Address, Export, Listener, Null, Tls};
use fairlift::control::{Leave, Refused};
use fairlift_core::{Priority, PriorityClass};

use crate::change::{
    add, depth, export, file, group, grow, knob, leave, listen, mem, nr_requests, put, read_only, remove, remove_disk,
    remove_group, weight,
};
use crate::client::{BLOCK, Client, MIB, descriptors};
use crate::running::{Running, comparable, path};

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
    assert_eq!((after.version, comparable(&after.config)), (before.version, comparable(&before.config)));

    let dry = running.change(&changes[..2], None, true).unwrap().state;
    assert_eq!((dry.version, dry.config.exports.len()), (0, 2));
    assert_eq!(
        comparable(&running.handle.state().unwrap().config),
        comparable(&before.config),
        "a dry run changes nothing"
    );

    let made = running.apply(&changes[..2]);
    assert_eq!((made.version, comparable(&made.config)), (1, comparable(&dry.config)));
    assert!(Client::connect(&running.socket, "a", 0, 16).unwrap().round(3));
    let late = running.change(&[weight("/a", 5)], Some(0), false);
    assert_eq!(late.unwrap_err(), Refused::Version { expected: 0, now: 1 });
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
