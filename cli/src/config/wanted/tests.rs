use std::collections::{BTreeMap, BTreeSet};

use fairlift::access::Rule;
use fairlift::config::{Backing, Ram, Tls, Ways};
use fairlift::control::{Becomes, Edit, Of, Step, difference};
use fairlift::export::vhost_user::GuestSocket;
use fairlift_core::learn::concurrency;
use fairlift_core::sched;
use fairlift_core::time::secs;
use fairlift_core::{Priority, Weight};
use fairlift_lab::repeat::seeds;

use super::*;
use crate::syntax::place;

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % bound
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

fn disk(name: &str, scheduler: sched::Kind) -> Disk {
    Disk::new(name, scheduler)
}

fn empty() -> Config {
    Config { disk_default: disk("default", sched::Kind::MqDeadline), ..Config::default() }
}

/// A configuration of few names, so that two of them have much in common; what cannot change follows from the name.
fn random_config(random: &mut Random) -> Config {
    let mut config = empty();
    for at in 0..4 {
        if random.one_in(3) {
            continue;
        }
        let kind = random.pick(&[sched::Kind::None, sched::Kind::MqDeadline, sched::Kind::Bfq, sched::Kind::Fair]);
        let mut disk = disk(&format!("d{at}"), kind);
        disk.depth = random.pick(&[None, Some(8), Some(64), Some(500)]);
        let least = u32::from(disk.depth.unwrap_or(128));
        disk.nr_requests = random.pick(&[None, Some(least), Some(2 * least), Some(5000)]);
        let knobs: &[(&str, &[&str])] = match kind {
            sched::Kind::MqDeadline => &[("read_expire", &["100ms", "2s"]), ("fifo_batch", &["4", "16"])],
            sched::Kind::Bfq => &[("slice_idle", &["0", "8ms"])],
            _ => &[],
        };
        for (knob, values) in knobs {
            if random.one_in(2) {
                disk.set.push(((*knob).into(), random.pick(values).into()));
            }
        }
        Arc::make_mut(&mut config.disks).push(disk);
    }
    for path in ["/a", "/a/x", "/a/x/y", "/b", "/b/x", "/c"] {
        if random.one_in(3) || path.rsplit_once('/').is_some_and(|(above, _)| group_of(&config, above).is_none()) {
            continue;
        }
        let parent = group_of(&config, path.rsplit_once('/').unwrap().0);
        Arc::make_mut(&mut config.groups).push(Group {
            path: path.into(),
            parent,
            weight: Weight::new(random.pick(&[100, 100, 7, 1000])),
        });
    }
    for at in 0..6_usize {
        let named = config.disks.iter().position(|disk| disk.name == format!("d{}", at % 5));
        // The last one names none; the others are there if their disk is.
        if random.one_in(3) || (at % 5 < 4 && named.is_none()) {
            continue;
        }
        let mut export = Export::new(format!("e{at}"), Backing::from(Ram { size: 1 << (20 + at) }));
        export.disk = named;
        export.group = GroupId(random.below(config.groups.len()) as u16);
        export.read_only = random.one_in(2);
        export.priority = random.pick(&[Priority::default(), "rt/1".parse().unwrap(), "idle".parse().unwrap()]);
        export.description = random.pick(&["", "one", "two"]).into();
        Arc::make_mut(&mut config.exports).push(export);
    }
    for port in 1..4 {
        if random.one_in(2) {
            config.listeners.push(listener(&format!("tcp:127.0.0.1:{port}")));
        }
    }
    for at in 0..3 {
        if random.one_in(2) {
            let exports = [random.pick(&["a", "b"]).to_owned()].into();
            config.clients.push(Rule { name: format!("c{at}"), uid: Some(7), exports, ..Rule::default() });
        }
    }
    config
}

fn listener(address: &str) -> Listener {
    Listener::new(place::parse(address).unwrap(), Tls::Off)
}

fn group_of(config: &Config, path: &str) -> Option<GroupId> {
    let path = if path.is_empty() { "/" } else { path };
    config.groups.iter().position(|group| group.path == path).map(|at| GroupId(at as u16))
}

/// The meaning of a configuration, in any order.
fn meaning(config: &Config) -> BTreeMap<Of, String> {
    let path = |group: GroupId| &config.groups[usize::from(group.0)].path;
    let groups = config.groups.iter().map(|group| {
        let bounds = config.bounds.get(&group.path);
        (Of::Group(group.path.clone()), format!("below {:?}: {}, {bounds:?}", group.parent.map(path), group.weight))
    });
    let disks = config.disks.iter().map(|disk| {
        let set: BTreeMap<_, _> = disk.set.iter().cloned().collect();
        let scheduler = (!disk.is_usual).then_some(disk.scheduler);
        (Of::Disk(disk.name.clone()), format!("{scheduler:?} {set:?} {:?} {:?}", disk.depth, disk.nr_requests))
    });
    let exports = config.exports.iter().map(|export| {
        let disk = disk_name(config, export);
        let plain = Export { disk: None, group: GroupId::ROOT, ..export.clone() };
        (Of::Export(export.name.clone()), format!("{plain:?} on {disk:?} in {:?}", path(export.group)))
    });
    let listeners =
        config.listeners.iter().map(|listener| (Of::Listener(listener.address.to_string()), format!("{listener:?}")));
    let clients = config.clients.iter().map(|rule| (Of::Client(rule.name.clone()), rule.to_string()));
    groups.chain(disks).chain(exports).chain(listeners).chain(clients).collect()
}

/// The steps, as people read them.
fn lines(old: &Config, new: &Config) -> Vec<String> {
    difference(old, &new.clone().into()).unwrap().iter().map(Step::to_string).collect()
}

/// difference.1
#[test]
fn steps_are_about_all_that_differs_and_equal_configurations_have_none() {
    let mut kinds = BTreeSet::new();
    for seed in seeds(0..2000) {
        let mut random = Random(seed);
        let (old, new) = (random_config(&mut random), random_config(&mut random));
        let steps = difference(&old, &new.clone().into()).unwrap_or_else(|all| panic!("{all:?}"));
        let (before, after) = (meaning(&old), meaning(&new));
        let differ = before.keys().chain(after.keys()).filter(|of| before.get(of) != after.get(of));
        let about: BTreeSet<_> = steps.iter().map(|step| &step.of).collect();
        assert_eq!(about, differ.collect(), "{steps:#?}");
        for Step { of, what, .. } in &steps {
            assert_eq!(*what == Becomes::Comes, !before.contains_key(of), "{steps:#?}");
            assert_eq!(*what == Becomes::Goes, !after.contains_key(of), "{steps:#?}");
        }
        for config in [&old, &new] {
            let twin = Edit::from(Config { exports: config.exports.to_vec().into(), ..config.clone() });
            assert_eq!(difference(config, &twin), Ok(Vec::new()));
        }
        let kind = |step: &Step| format!("{:?} {:?}", step.of, step.what).replace(char::is_numeric, "");
        kinds.extend(steps.iter().map(kind).map(|kind| {
            let (of, what) = kind.split_once('(').unwrap();
            format!("{of} {}", what.split_once(") ").unwrap().1)
        }));
    }
    // All but `size` and `faults`, which the backings here give no cause for, and bounds.
    assert_eq!(kinds.len(), 20, "steps were of these kinds only: {kinds:?}");
}

/// wanted.1
#[test]
fn what_was_added_otherwise_stays_and_what_the_file_says_is_in_force() {
    for seed in seeds(0..1000) {
        let mut random = Random(seed);
        let (was, new) = (random_config(&mut random), random_config(&mut random));
        // While the server ran, things of other names were added, and weights changed.
        let mut edit = Edit::from(was.clone());
        edit.add_group("/live/below").unwrap();
        edit.set_weight("/live", Weight::new(5)).unwrap();
        edit.add_listener(listener("tcp:127.0.0.1:99")).unwrap();
        edit.add_disk(disk("other", sched::Kind::Cfq)).unwrap();
        edit.add_export(Export::new("live", Ram { size: 1 << 20 }), Some("other"), "/live/below").unwrap();
        edit.add_client(Rule { uid: Some(9), group: Some("/".into()), name: "live".into(), ..Rule::default() })
            .unwrap();
        was.clients.iter().for_each(|one| edit.client(&one.name).unwrap().uid = Some(8));
        was.groups.iter().skip(1).for_each(|one| edit.set_weight(&one.path, Weight::new(9)).unwrap());
        let now = edit.config;
        let wanted = wanted(&now, &was, &new, |_| false);
        difference(&now, &wanted.clone().into()).unwrap();
        let (result, of_file) = (meaning(&wanted), meaning(&new));
        for (of, says) in &of_file {
            assert_eq!(result.get(of), Some(says), "what the file says of {of}");
        }
        let more: Vec<_> = result.keys().filter(|of| !of_file.contains_key(of)).map(Of::to_string).collect();
        let live = ["group \"/live\"", "group \"/live/below\"", "disk \"other\"", "export \"live\""];
        assert_eq!(more, live.into_iter().chain(["listener tcp:127.0.0.1:99", "client \"live\""]).collect::<Vec<_>>());
    }
}

/// wanted.1
#[test]
fn a_tunable_that_only_a_command_has_named_stays_and_one_of_the_file_is_again_as_the_file_has_it() {
    let with = |set: &[(&str, &str)]| {
        let mut config = empty();
        let set = set.iter().map(|(knob, value)| ((*knob).to_owned(), (*value).to_owned())).collect();
        config.disks = vec![Disk { set, ..disk("d", sched::Kind::MqDeadline) }].into();
        config
    };
    let steps = |now: &Config, was: &Config, new: &Config| lines(now, &wanted(now, was, new, |_| false));
    let (none, four) = (with(&[]), with(&[("fifo_batch", "4")]));
    // Live only: a file that says nothing of it, before and now, leaves it alone, whatever else it changes.
    let live = with(&[("read_expire", "2s")]);
    assert_eq!(steps(&live, &none, &none), [""; 0]);
    assert_eq!(steps(&live, &none, &four), ["disk \"d\": fifo_batch = 4 (was default)"]);
    // The names that the file gives, or has given, are told aloud.
    assert_eq!(steps(&with(&[("fifo_batch", "7")]), &four, &four), ["disk \"d\": fifo_batch = 4 (was 7)"]);
    assert_eq!(steps(&with(&[("fifo_batch", "7")]), &four, &none), ["disk \"d\": fifo_batch = default (was 7)"]);
    // Another scheduler has no such tunable; that of flushes all have.
    let both = with(&[("read_expire", "2s"), ("flush_company", "3")]);
    let mut fair = none.clone();
    Arc::make_mut(&mut fair.disks)[0].scheduler = sched::Kind::Fair;
    assert_eq!(steps(&both, &none, &fair), ["disk \"d\": scheduler fair, flush_company = 3 (was mq-deadline)"]);
}

#[test]
fn a_port_that_the_kernel_chose_is_that_of_the_file() {
    let with = |all: &[(&str, Tls)]| {
        let listeners = all.iter().map(|(address, tls)| Listener { tls: *tls, ..listener(address) }).collect();
        Config { listeners, ..empty() }
    };
    let (any, other) = ("tcp:127.0.0.1:0", "tcp:127.0.0.1:7777");
    let was = with(&[(any, Tls::Off)]);
    // The second was added by a command.
    let now = with(&[("tcp:127.0.0.1:5555", Tls::Off), (other, Tls::Off)]);
    let steps = |was: &Config, new: &Config| lines(&now, &wanted(&now, was, new, |_| false));
    assert_eq!(steps(&was, &was), [""; 0]);
    assert_eq!(steps(&was, &with(&[])), ["listener tcp:127.0.0.1:5555: removed"]);
    assert_eq!(steps(&with(&[(any, Tls::Off), (any, Tls::Off)]), &was), ["listener tcp:127.0.0.1:7777: removed"]);
    let encrypted = wanted(&now, &was, &with(&[(any, Tls::Required)]), |_| false);
    let refused = difference(&now, &encrypted.into()).unwrap_err();
    assert!(refused[0].says.starts_with("tcp:127.0.0.1:5555 cannot change its TLS"), "{}", refused[0].says);
}

/// difference.2
#[test]
fn all_that_cannot_change_is_named() {
    let mut old = empty();
    old.disks = vec![disk("d", sched::Kind::None), disk("e", sched::Kind::None)].into();
    let export = Export { offset: 0, size: Some(1 << 20), disk: Some(0), ..Export::new("a", Ram { size: 1 << 20 }) };
    old.exports = vec![export].into();
    old.listeners = vec![listener("tcp:127.0.0.1:1")];
    let mut new = old.clone();
    Arc::make_mut(&mut new.exports)[0].backing = Backing::from(Ram { size: 2 << 20 });
    let (exports, disks) = (Arc::make_mut(&mut new.exports), Arc::make_mut(&mut new.disks));
    (exports[0].offset, exports[0].size, exports[0].disk) = (512, Some(512), Some(1));
    (disks[0].shared_tags, disks[0].io_timeout) = (true, Some(secs(1)));
    Arc::make_mut(&mut new.exports)[0].ways.set(GuestSocket::from("/run/a.sock"));
    let b = Export { name: "b".into(), ways: Ways::default(), ..new.exports[0].clone() };
    Arc::make_mut(&mut new.exports).push(b);
    Arc::make_mut(&mut new.disks)[0].concurrency = concurrency::Settings { most: 3, fixed: true };
    Arc::make_mut(&mut new.disks)[0].depth = Some(7);
    Arc::make_mut(&mut new.disks)[0].shares = Some("dir:/srv/pool".parse().unwrap());
    (new.listeners[0].tls, new.listeners[0].socket.mode) = (Tls::Required, 0o660);
    new.workers = Some(3);
    new.limits.memory = 1 << 30;
    let fixed = difference(&old, &new.into()).unwrap_err();
    let keys: Vec<_> = fixed.iter().map(|one| (one.of.clone(), one.key)).collect();
    let (a, d) = (Of::Export("a".into()), Of::Disk("d".into()));
    let expected = [
        (Of::Server, "workers"),
        (Of::Server, "memory"),
        (Of::Server, "listen"),
        (Of::Server, "listen"),
        (Of::Server, "tls_certificates"),
        (a.clone(), "backing"),
        (a.clone(), "offset"),
        (a.clone(), "disk"),
        (a.clone(), "vhost_user"),
        (a, "size"),
        (d.clone(), "shared_tags"),
        (d.clone(), "io_timeout"),
        (d.clone(), "concurrency"),
        (d.clone(), "shares"),
        (d, "scheduler"), // none shares no pool
    ];
    assert_eq!(keys, expected);
    assert!(fixed[9].says.starts_with("cannot shrink from 1 MiB to 512 bytes; "), "{}", fixed[9].says);
}

#[test]
fn a_size_that_grows_is_a_change() {
    let mut old = empty();
    old.exports = vec![Export { size: Some(512), ..Export::new("a", Ram { size: 1 << 20 }) }].into();
    let mut new = old.clone();
    Arc::make_mut(&mut new.exports)[0].size = None;
    assert_eq!(lines(&old, &new), ["export \"a\": size up to the end"]);
    // Up to the end of the present file, though it is said already.
    let mut edit = Edit::from(new.clone());
    edit.grow("a", None).unwrap();
    let steps = difference(&new, &edit).unwrap();
    assert_eq!(steps.iter().map(Step::to_string).collect::<Vec<_>>(), ["export \"a\": size up to the end"]);
}

/// The scheduler that nobody named is the server's business, until the file names one; taken back, it is so again.
#[test]
fn a_scheduler_that_nobody_names_is_no_difference() {
    let unnamed = |kind| Disk { is_usual: true, ..disk("srv", kind) };
    let mut was = empty();
    was.exports = vec![Export::new("a", Ram { size: 1 << 20 })].into();
    was.disk_default = unnamed(sched::Kind::MqDeadline);
    let mut now = was.clone();
    now.disks = vec![unnamed(sched::Kind::MqDeadline)].into();
    Arc::make_mut(&mut now.exports)[0].disk = Some(0);
    let steps = |now: &Config, new: &Config, rotates: bool| {
        let wanted = wanted(now, &was, new, |_| rotates);
        (lines(now, &wanted), wanted)
    };
    let mut two = was.clone();
    two.disk_default = unnamed(sched::Kind::Fair);
    assert!(steps(&now, &two, false).0.is_empty(), "a second tenant: the server knows itself");
    let mut none = was.clone();
    none.disk_default = disk("default", sched::Kind::None);
    let (says, now) = steps(&now, &none, false);
    assert_eq!(says, ["disk \"srv\": scheduler none (was mq-deadline)"]);
    assert!(!now.disks[0].is_usual, "it was named");
    for (rotates, kind) in [(false, "fair"), (true, "bfq")] {
        let (says, then) = steps(&now, &two, rotates);
        assert_eq!(says, [format!("disk \"srv\": scheduler {kind} (was none)")]);
        assert!(then.disks[0].is_usual);
    }
}

/// A second tenant by command brings a scheduler that has not the tunables of the file: the same file is no difference then.
#[test]
fn tunables_that_the_scheduler_of_more_tenants_has_not_are_no_difference() {
    let with = |kind, set: &[(&str, &str)]| {
        let set = set.iter().map(|(knob, value)| ((*knob).to_owned(), (*value).to_owned())).collect();
        let disks = vec![Disk { is_usual: true, set, ..disk("d", kind) }].into();
        Config { disks, ..empty() }
    };
    let file = with(sched::Kind::MqDeadline, &[("read_expire", "2s"), ("flush_company", "3")]);
    let now = with(sched::Kind::Fair, &[("flush_company", "3"), ("isolation_cost", "7")]);
    let wanted = |new: &Config| wanted(&now, &file, new, |_| false);
    assert_eq!(lines(&now, &wanted(&file)), [""; 0]);
    let other = with(sched::Kind::MqDeadline, &[("read_expire", "2s"), ("flush_company", "4")]);
    assert_eq!(lines(&now, &wanted(&other)), ["disk \"d\": flush_company = 4 (was 3)"]);
}
