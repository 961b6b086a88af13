//! A server begins where another one was, by what that hands on as text.

use std::collections::BTreeMap;

use fairlift::Server;
use fairlift_core::ceiling::{Bounds, Ceiling, Rate, Rates};
use fairlift_core::record::Record;
use fairlift_core::{Duration, Group, GroupId};

use crate::client::Client;
use crate::running::{Running, config, path};
use crate::wanted::reads;

/// One export in group `/a`, which may read ten times a second.
fn start(name: &str, handed: Option<&str>) -> (Running, Vec<String>) {
    let socket = path(&format!("handed-{name}.sock"));
    let mut config = config(&socket);
    let a = Group { path: "/a".into(), parent: Some(GroupId::ROOT), ..Group::root() };
    config.groups = vec![Group::root(), a].into();
    let ceiling = Ceiling::of(Rates::NONE.with(Rate::Riops, 10));
    config.bounds = BTreeMap::from([("/a".to_owned(), Bounds { ceiling, ..Bounds::default() })]).into();
    let mut export = config.exports[0].clone();
    export.group = GroupId(1);
    config.exports = vec![export].into();
    let server = Server::bind(config).unwrap();
    let mut left_out = Vec::new();
    if let Some(text) = handed {
        left_out = server.take_on(Record::parse(text).unwrap(), Duration::ZERO);
    }
    let handle = server.handle();
    let running = Running { handle, socket, serving: Some(std::thread::spawn(move || server.run())) };
    (running, left_out.iter().map(ToString::to_string).collect())
}

/// handed.1, ceiling.10
#[test]
fn counters_events_and_debts_go_on_at_the_next_server() {
    let (before, _) = start("before", None);
    let mut client = Client::connect(&before.socket, "d", 0, 1).unwrap();
    (0..4).for_each(|_| client.read_end());
    let (counted, told) = (reads(&before.handle.view(true).unwrap()), before.handle.events(None).1);
    let text = before.handle.hand_on(true).unwrap().to_string();
    drop(client);
    before.stop();

    let (after, left_out) = start("after", Some(&text));
    assert_eq!(left_out, [""; 0]);
    assert_eq!(reads(&after.handle.view(true).unwrap()), counted, "before the first request");
    assert_eq!(after.handle.events(None).1, told);
    let mut owed = Record::parse(&text).unwrap();
    let mut owed: BTreeMap<String, Record> = owed.take("ceilings").unwrap().unwrap();
    let owed: [Duration; 2] = owed.get_mut("/a").unwrap().take("riops").unwrap().unwrap();
    assert!(owed[0] > Duration::ZERO, "four reads at ten a second are not paid for at once");
    let mut client = Client::connect(&after.socket, "d", 0, 1).unwrap();
    client.read_end();
    let more: u64 = reads(&after.handle.view(true).unwrap()).values().sum();
    assert_eq!(more, counted.values().sum::<u64>() + 1);
    drop(client);
    after.stop();
}

#[test]
fn a_record_of_another_version_is_not_read_and_one_without_counters_leaves_them() {
    let (before, _) = start("version", None);
    Client::connect(&before.socket, "d", 0, 1).unwrap().read_end();
    let text = before.handle.hand_on(false).unwrap().to_string();
    before.stop();
    let (after, left_out) = start("version", Some(&text.replace("\"version\":1", "\"version\":2")));
    assert_eq!(left_out, ["version: it is 2, and this server reads 1"]);
    after.stop();
    let (after, left_out) = start("version", Some(&text));
    assert_eq!((left_out.len(), reads(&after.handle.view(true).unwrap()).values().sum::<u64>()), (0, 0));
    after.stop();
}
