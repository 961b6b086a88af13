//! Config files and flags, and the plans made of them.

use std::path::Path;

use clap::Parser as _;
use fairlift::config::WayIn;
use fairlift_core::ceiling::Rate;
use fairlift_core::time::secs;
use fairlift_core::{GroupId, Priority, PriorityClass, Weight};

use super::*;
use crate::args::{Cli, Command};
use crate::config;
use crate::config::EXAMPLE;
use crate::syntax::mistake::{Source, render};

/// The plan of `fairlift serve FLAGS --config f.toml`, or its refusal.
fn planned(text: &str, flags: &str) -> Result<Config, String> {
    let line = ["fairlift", "serve"].into_iter().chain(flags.split_whitespace());
    let Command::Serve(flags) = Cli::try_parse_from(line).unwrap().command else { panic!("serve") };
    let source = Source { name: "f.toml".into(), text: text.into() };
    let mut mistakes = Vec::new();
    let file = config::read(&source, Path::new("/base"), &mut mistakes);
    let Plan { config, .. } = plan(&flags, Some(file), Vec::new(), &mut mistakes);
    if mistakes.is_empty() { Ok(config) } else { Err(render("error: ", Some(&source), &mistakes)) }
}

fn refusal(text: &str) -> String {
    planned(text, "--listen unix:/x").unwrap_err()
}

/// A disk and a group are looked up only if they are texts.
#[test]
fn a_value_of_the_wrong_type_is_told_once() {
    let shown = refusal("[export.a]\nbacking = \"mem:1m\"\ndisk = 5\ngroup = 7\n");
    for says in ["export.a.disk: takes text in quotes, not 5", "export.a.group: takes text in quotes, not 7"] {
        assert_eq!(shown.matches(says).count(), 1, "{shown}");
    }
}

/// A correct export, to put beside mistakes.
const RIGHT: &str = "[export.a]\nbacking = \"mem:1m\"\n";

#[track_caller]
fn refuses(text: &str, expected: &str) {
    let shown = refusal(text);
    assert!(shown == expected, "for\n{text}\nexpected\n{expected}\nbut got\n{shown}");
}

#[test]
fn the_example_is_right_and_means_what_it_says() {
    let config = planned(EXAMPLE, "").unwrap();
    let groups: Vec<_> = config.groups.iter().map(|group| (group.path.as_str(), group.weight.get())).collect();
    assert_eq!(groups, [("/", 100), ("/tenants", 100), ("/tenants/alice", 300), ("/tenants/bob", 100)]);
    let [alice, bob] = &config.exports[..] else { panic!("two exports") };
    assert_eq!((alice.name.as_str(), alice.disk, alice.group, alice.read_only), ("alice", Some(0), GroupId(2), false));
    assert_eq!(alice.description, "Alice's disk");
    assert_eq!((bob.size, bob.group, bob.read_only), (Some(512 << 20), GroupId(3), true));
    let disk = &config.disks[0];
    assert_eq!((disk.name.as_str(), disk.depth, disk.nr_requests), ("ssd0", Some(32), Some(4096)));
    assert_eq!(disk.io_timeout, Some(secs(30)));
    assert_eq!(disk.set, [("isolation_cost".to_owned(), "15".to_owned())]);
    assert_eq!(config.limits, Limits::default(), "the example shows the defaults");
    assert_eq!(config.workers, Some(2));
    let places: Vec<_> = config.listeners.iter().map(|listener| place::show(&listener.address)).collect();
    assert_eq!(places, ["unix:/base/fairlift.sock", "tcp:127.0.0.1:10809"], "paths start at the file's directory");
    assert!(config.tls.is_none());
}

#[test]
fn virtual_machines_find_exports_in_a_directory_unless_the_file_says_where() {
    let sockets = |text: &str, flags: &str| {
        let exports = planned(text, flags).unwrap().exports;
        exports.iter().map(|export| export.ways.find("vhost_user").map(WayIn::written)).collect::<Vec<_>>()
    };
    let some = |path: &str| Some(path.to_owned());
    let named = "[export.a]\nbacking = \"mem:1m\"\nvhost_user = \"vm/a.sock\"\n";
    assert_eq!(sockets(named, "b=mem:1m"), [some("/base/vm/a.sock"), None]);
    assert_eq!(sockets(named, "b=mem:1m --vhost-user /run/vm"), [some("/base/vm/a.sock"), some("/run/vm/b")]);
    let slash = "[export.\"a/b\"]\nbacking = \"mem:1m\"\n";
    let says = planned(slash, "--vhost-user /run/vm").unwrap_err();
    assert!(says.contains("export.\"a/b\".vhost_user"), "{says}");
}

#[test]
fn the_design_documents_file_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("alice.img");
    std::fs::write(&image, "").unwrap();
    let text = format!(
        "[disk.ssd0]\nscheduler = \"none\"\ndepth = 32\nset = {{ }}\n[export.alice]\nbacking = \"file:{}\"\ndisk = \
         \"ssd0\"\ngroup = \"/tenants/alice\"\nread_only = false\n[group.\"/tenants/alice\"]\nweight = 300\n",
        image.display()
    );
    let config = planned(&text, "").unwrap();
    assert_eq!(config.groups[2].weight.get(), 300);
}

#[test]
fn what_a_file_leaves_out_has_its_default() {
    let config =
        planned("[export.a]\nbacking = \"mem:1m\"\nioprio = \"rt/1\"\n[disk.d]\n", "--listen unix:/x").unwrap();
    assert_eq!(config.groups[usize::from(config.exports[0].group.0)].path, "/a", "a group of its own");
    assert_eq!(config.exports[0].disk, None);
    assert_eq!(config.exports[0].priority, Priority { class: PriorityClass::RealTime, level: 1 });
    assert_eq!(config.disks[0].scheduler, sched::Kind::MqDeadline);
    assert_eq!(config.disk_default.scheduler, sched::Kind::MqDeadline);
    assert_eq!(config.limits, Limits::default());
    assert_eq!(config.workers, None);
}

/// serve.4
#[test]
fn a_disk_that_groups_share_has_the_scheduler_that_keeps_weights() {
    let export = |name: &str, keys: &str| format!("[export.{name}]\nbacking = \"mem:1m\"\n{keys}\n");
    let text = [
        "[disk.alone]\n[disk.shared]\n[disk.said]\nscheduler = \"none\"\n".to_owned(),
        export("a", "disk = \"alone\"\ngroup = \"/t/a\""),
        export("b", "disk = \"alone\"\ngroup = \"/t/a\""),
        export("c", "disk = \"shared\"\ngroup = \"/t/a\""),
        export("d", "disk = \"shared\""),
        export("e", "disk = \"said\""),
        export("f", "disk = \"said\"\ngroup = \"/t/b\""),
        export("g", ""),
    ];
    let schedulers = |more: &str, flags: &str| {
        let config = planned(&(text.concat() + more), &format!("--listen unix:/x {flags}")).unwrap();
        config.disks.iter().chain([&config.disk_default]).map(|disk| disk.scheduler).collect::<Vec<_>>()
    };
    let fair = sched::Kind::Fair;
    let (plain, none) = (sched::Kind::MqDeadline, sched::Kind::None);
    assert_eq!(schedulers("", ""), [plain, fair, none, plain]);
    assert_eq!(schedulers(&export("h", "group = \"/t/b\""), ""), [plain, fair, none, fair]);
    assert_eq!(schedulers("", "--scheduler none"), [none; 4], "who names one has it everywhere");
    let config = planned(&text.concat(), "--listen unix:/x").unwrap();
    let usual: Vec<_> = config.disks.iter().map(|disk| disk.is_usual).collect();
    assert_eq!(usual, [true, true, false], "what is on a disk, and whether it rotates, is known when it is opened");
}

#[test]
fn a_workload_of_iostest_is_told_for_what_it_is() {
    refuses(
        "[syncs]\nabout = \"one\"\n[[syncs.roles]]\nname = \"syncer\"\ndoes = \"fsync\"\n",
        "\
f.toml:1:2: error: syncs: unknown table; this is a workload for fairlift iostest -w, and not a config
  1 | [syncs]
    |  ^^^^^
",
    );
}

#[test]
fn every_mistake_is_reported_with_its_place_and_a_suggestion() {
    refuses(
        "[export.alice]\nbaking = \"mem:1m\"\ngroup = \"tenants/alice\"\n\n[disk.ssd0]\ndepth = 0\nscheduler = \
         \"none\"\nset = { slice_idle = 1 }\n\n[group.\"/t\"]\nweight = 1001\n\n[sever]\n",
        "\
f.toml:1:9: error: export.alice: needs a backing, such as backing = \"file:/srv/disk.img\"
  1 | [export.alice]
    |         ^^^^^
f.toml:2:1: error: export.alice.baking: unknown key; did you mean \"backing\"?
  2 | baking = \"mem:1m\"
    | ^^^^^^
f.toml:3:9: error: export.alice.group: a group's path starts at the root: \"/tenants/alice\"
  3 | group = \"tenants/alice\"
    |         ^^^^^^^^^^^^^^^
f.toml:6:9: error: disk.ssd0.depth: takes a number from 1 to 4096, not 0
  6 | depth = 0
    |         ^
f.toml:8:9: error: disk.ssd0.set.slice_idle: slice_idle belongs to bfq and cfq; scheduler none has no tunables of its own; every scheduler has flush_coordinate, flush_company, flush_company_min, flush_remember, flush_ahead, charge_flushes
  8 | set = { slice_idle = 1 }
    |         ^^^^^^^^^^^^^^
f.toml:11:10: error: group.\"/t\".weight: takes a number from 1 to 1000, not 1001; its ratio to the weights beside it counts: 300 beside 100 is 3:1
  11 | weight = 1001
     |          ^^^^
f.toml:13:2: error: sever: unknown table; did you mean \"server\"?
  13 | [sever]
     |  ^^^^^
",
    );
}

#[test]
fn each_kind_of_wrong_value_has_its_own_words() {
    let last = |text: &str| {
        let shown = refusal(&format!("{RIGHT}{text}\n"));
        shown.lines().next().unwrap_or_default().to_owned()
    };
    for (text, first_line) in [
        (
            "size = \"64kb\"",
            "export.a.size: \"kb\" is ambiguous (powers of 1000 or of 1024); write 64k (powers of 1024), or the number of bytes",
        ),
        ("size = 1000", "export.a.size: 1000 bytes is not a multiple of 512 (one sector)"),
        ("size = 0", "export.a.size: the size must be larger than 0"),
        ("size = 1.5", "export.a.size: takes a size such as 65536 or \"64k\", not 1.5"),
        ("size = -512", "export.a.size: takes a size, not -512"),
        ("size = \"2m\"", "export.a.size: exceeds the backing, which has 1 MiB"),
        ("offset = \"1m\"", "export.a.offset: exceeds the backing, which has 1 MiB"),
        ("read_only = \"yes\"", "export.a.read_only: takes true or false, not \"yes\""),
        ("ioprio = \"be/9\"", "export.a.ioprio: a priority is rt/0 to rt/7, be/0 to be/7, or idle, not \"be/9\""),
        ("disk = \"d\"", "export.a.disk: unknown disk \"d\": the file has no [disk.…]"),
        (
            "disk = \"ssd1\"\n[disk.ssd0]",
            "export.a.disk: unknown disk \"ssd1\": the file has ssd0; did you mean \"ssd0\"?",
        ),
        ("path = \"a.img\"", "export.a.path: unknown key; did you mean \"backing\"?"),
        ("description = [1]", "export.a.description: takes text in quotes, not a list"),
        (
            "wieght = 1",
            "export.a.wieght: unknown key; [export.NAME] has backing, offset, size, disk, group, ioprio, read_only, description, vhost_user, ublk",
        ),
        ("weight = 3", "export.a.weight: unknown key; that is a group's: [group.\"/a\"] weight = …"),
        (
            "[group.\"/a\"]\nweight = 150%",
            "weight takes 1 to 1000; its ratio to the weights beside it counts: 300 beside 100 is 3:1",
        ),
        (
            "vhost_user = \"/y\"\n[export.b]\nbacking = \"mem:1m\"\nvhost_user = \"/y\"",
            "export.b.vhost_user: exports \"a\" and \"b\" cannot both have the socket /y",
        ),
        ("read_only = yes", "read_only takes true or false"),
        ("description = yes", "string values must be quoted, expected literal string"),
        ("[disk.d]\nio_timeout = 30", "disk.d.io_timeout: a time needs a unit: 30s, 30ms, 30us"),
        ("[disk.d]\nio_timeout = \"0s\"", "disk.d.io_timeout: the time must be longer than 0"),
        ("[disk.d]\nset = \"x\"", "disk.d.set: takes a table such as { read_expire = \"20ms\" }, not \"x\""),
        ("[disk.d]\nset = { a = [] }", "disk.d.set.a: takes text, a number, true or false, not a list"),
        ("[disk]\nd = 1", "disk.d: must be written [disk.NAME], not as 1"),
        ("[[disk]]\ndepth = 1", "disk: must be written [disk.NAME], not as a list"),
        (
            "[group.\"/\"]\nweight = 5",
            "group.\"/\": the root group takes no weight, because it has no siblings; set the weights of its children",
        ),
        (
            "[group.\"/\"]",
            "group.\"/\": the root group takes no weight, because it has no siblings; set the weights of its children",
        ),
        (
            "[group.\"/a\"]\nmax = { riops = 0 }",
            "group.\"/a\".max.riops: takes 1 to 1000000000, not 0; no limit is \"none\"",
        ),
        ("[group.\"/a\"]\nmax = { riops = -1 }", "group.\"/a\".max.riops: takes 1 to 1000000000, not -1"),
        ("[group.\"/a\"]\nmax = { wbps = \"-1\" }", "group.\"/a\".max.wbps: takes 1 to 1000000000000, not -1"),
        ("[group.\"/a\"]\nmax = { iops = 1000000001 }", "group.\"/a\".max.iops: takes 1 to 1000000000, not 1000000001"),
        ("[group.\"/a\"]\nmax = { iops = 1.5 }", "group.\"/a\".max.iops: takes a number or a size, not 1.5"),
        (
            "[group.\"/a\"]\nmax = { riop = 1 }",
            "group.\"/a\".max.riop: unknown limit \"riop\"; did you mean \"riops\"?",
        ),
        (
            "[group.\"/a\"]\nmax = 3000",
            "group.\"/a\".max: takes a table such as { riops = 3000, wbps = \"50m\" }, not 3000",
        ),
        (
            "[group.\"/a\"]\nmax = \"3000\"",
            "group.\"/a\".max: limits have the form riops=3000 wbps=50m, of rbps, wbps, bps, riops, wiops and iops, or none, not \"3000\"",
        ),
        (
            "[group.\"/a\"]\nburst = { iops = 10 }",
            "group.\"/a\".burst: a burst of iops needs a max of iops: a rate without a limit has no bursts",
        ),
        (
            "[group.\"/a\"]\nmax = { iops = 10 }\nburst = { iops = 9 }",
            "group.\"/a\".burst: a burst of iops=9 is below the max of 10 that it is to exceed",
        ),
        (
            "[group.\"/a\"]\nmax = { iops = 10 }\nburst = { iops = 20, seconds = 0 }",
            "group.\"/a\".burst.seconds: takes 1 to 86400, not 0",
        ),
        (
            "[group.\"/a\"]\nmin = { riops = 10 }\nmax = { iops = 9 }",
            "group.\"/a\".min: min riops=10 is above max iops=9: both cannot hold",
        ),
        (
            "[group.\"/\"]\nmin = { iops = 10 }",
            "group.\"/\".min: the root has all of the disk, so that a floor of it would mean nothing",
        ),
        (
            "group = \"/t/b\"\ndisk = \"d\"\n[disk.d]\nscheduler = \"bfq\"\n[group.\"/t\"]\nmin = { iops = 10 }",
            "group.\"/t\".min: export \"a\" is on a disk with scheduler bfq, which keeps no floors; fair does",
        ),
        ("[group.alice]\nweight = 5", "group.alice: a group's path starts at the root: \"/alice\""),
        ("[server]\ntls = true", "server.tls: takes text in quotes, not true"),
        ("[server]\ntls = \"maybe\"", "server.tls: takes off, on (if the client asks) or require, not \"maybe\""),
        (
            "[server]\ntls = \"require\"",
            "server.tls: needs a certificate: name the directory with server-cert.pem and server-key.pem: tls_certificates = \"DIR\"",
        ),
        (
            "[server]\ntls = \"on\"\ntls_certificates = \"pki\"",
            "server.tls_certificates: /base/pki/server-cert.pem: No such file or directory (os error 2)",
        ),
        (
            "[server]\ntls_certificates = \"pki\"",
            "server.tls_certificates: has no effect, because TLS is off by default; set tls to \"require\", \"on\" (if the client asks) or \"off\"",
        ),
        (
            "[server]\nrequest_max = \"128m\"",
            "server.request_max: connection_memory is 64 MiB, less than request_max (128 MiB)",
        ),
        (
            "[server]\nconnection_memory = \"1m\"",
            "server.connection_memory: connection_memory is 1 MiB, less than request_max (32 MiB)",
        ),
        (
            "[disk.d]\ndepth = 64\nnr_requests = 4",
            "disk.d.nr_requests: is 4, less than depth (64); it must be at least depth, because requests in flight count too",
        ),
        ("[server]\nrequest_max = 512", "server.request_max: takes a size from 64k to 1g, not 512"),
        ("[server]\nlisten = []", "server.listen: lists no address; leave the key out for the default socket"),
        ("[server]\nlisten = [\"unix:/a\", 5]", "server.listen: takes text in quotes, not 5"),
        (
            "[server]\nworkers = 8\nmemory = \"64m\"",
            "server.workers: memory is 64 MiB, too little for 8 workers that each serve a request of request_max (32 MiB); set workers to at most 2, or memory to at least 256 MiB",
        ),
        ("[server]\nworkers = 0x41", "server.workers: takes a number from 1 to 64, not 0x41"),
    ] {
        let shown = last(text);
        let (_, after_place) = shown.split_once(": error: ").unwrap_or_default();
        assert_eq!(after_place, first_line, "{text}");
    }
}

#[test]
fn an_address_that_the_server_has_twice_is_a_mistake_of_the_second() {
    let listens = |keys: &str, listen: &str| planned(&format!("{RIGHT}{keys}[server]\nlisten = [{listen}]\n"), "");
    let says =
        |keys: &str, listen: &str| listens(keys, listen).unwrap_err().lines().next().unwrap_or_default().to_owned();
    let why = "is an address of this server already: another listener, or the socket of an export";
    let twice = says("", "\"tcp:127.0.0.1:1\", \"tcp:localhost:1\"");
    assert_eq!(twice, format!("f.toml:4:30: error: server.listen: tcp:127.0.0.1:1 {why}"));
    let guest = says("vhost_user = \"a.sock\"\n", "\"unix:b.sock\", \"unix:a.sock\"");
    assert_eq!(guest, format!("f.toml:5:26: error: server.listen: unix:/base/a.sock {why}"));
    assert!(
        planned(RIGHT, "--listen unix:/a --listen unix:/a").unwrap_err().starts_with("error: --listen: unix:/a is")
    );
    assert!(listens("", "\"tcp:127.0.0.1:0\", \"tcp:127.0.0.1:0\"").is_ok(), "ports that the kernel chooses");
}

#[test]
fn each_worker_has_room_for_the_largest_request() {
    let workers = |flags| planned(RIGHT, flags).map(|config| config.workers);
    assert_eq!(workers("--workers 16"), Ok(Some(16)), "512 MiB");
    let refused = workers("--workers 17").unwrap_err();
    assert!(refused.contains("--workers 17: memory is 512 MiB, too little for 17 workers"), "{refused}");
    let small = "[server]\nrequest_max = \"1m\"\n[export.a]\nbacking = \"mem:1m\"\n";
    assert_eq!(planned(small, "--workers 64").map(|config| config.workers), Ok(Some(64)));
}

#[test]
fn a_syntax_error_is_one_mistake_and_hides_no_other() {
    let shown = refusal("[export.a]\nbacking = mem:1m\nreed_only = true\n");
    let places: Vec<_> = shown.lines().filter(|line| line.starts_with("f.toml:")).collect();
    assert_eq!(places.len(), 2, "{shown}");
    assert!(places[0].starts_with("f.toml:2:11: error: "), "{shown}");
    assert_eq!(places[1], "f.toml:3:1: error: export.a.reed_only: unknown key; did you mean \"read_only\"?");
}

#[test]
fn a_key_written_twice_is_a_mistake() {
    let shown = refusal(&format!("{RIGHT}[disk.d]\ndepth = 1\ndepth = 2\n"));
    assert_eq!(shown, "f.toml:5:1: error: duplicate key\n  5 | depth = 2\n    | ^^^^^\n");
}

#[test]
fn no_text_makes_the_reader_panic() {
    // Prefixes of the example, and the example with a byte left out.
    for cut in (0..EXAMPLE.len()).step_by(31).filter(|cut| EXAMPLE.is_char_boundary(*cut)) {
        let _ = planned(&EXAMPLE[..cut], "--listen unix:/x");
        let without: String = EXAMPLE.char_indices().filter(|(at, _)| *at != cut).map(|(_, c)| c).collect();
        let _ = planned(&without, "--listen unix:/x");
    }
}

#[test]
fn a_file_without_exports_needs_one_on_the_command_line() {
    assert!(refusal("").starts_with("error: no export to serve: "));
    assert_eq!(planned("", "b=mem:1m --listen unix:/x").unwrap().exports[0].name, "b");
}

/// serve.1: exports from both, other settings from the flag.
#[test]
fn flags_add_exports_and_win_over_the_file() {
    let text = "[server]\nlisten = \"unix:/a\"\nworkers = 2\nmax_connections = 5\nhandshake_timeout = \"1s\"\n\
                [export.a]\nbacking = \"mem:1m\"\n";
    let flags = "b=mem:1m --listen unix:/b --workers 3 --max-connections 7 --handshake-timeout 2s --read-only";
    let config = planned(text, flags).unwrap();
    let names: Vec<_> = config.exports.iter().map(|export| (export.name.as_str(), export.read_only)).collect();
    assert_eq!(names, [("a", true), ("b", true)]);
    let places: Vec<_> = config.listeners.iter().map(|listener| place::show(&listener.address)).collect();
    assert_eq!(places, ["unix:/b"]);
    assert_eq!((config.workers, config.limits.connections), (Some(3), 7));
    assert_eq!(config.limits.handshake_timeout, secs(2));

    let twice = planned(text, "a=mem:1m").unwrap_err();
    assert_eq!(twice, "error: export \"a\": the config file defines it too; names must be unique: NAME=BACKING\n");
}

/// serve.2: the default disk, and disks of the file that don't say.
#[test]
fn scheduler_flags_fill_what_the_file_leaves_open() {
    let text = "[disk.own]\nscheduler = \"none\"\ndepth = 4\n[disk.open]\n[disk.set]\nset = { read_expire = \"1s\" }\n\
                [export.a]\nbacking = \"mem:1m\"\n";
    let flags = "--listen unix:/x --scheduler mq-deadline --depth 8 --set read_expire=2s --set read_expire=3s";
    let config = planned(text, flags).unwrap();
    let set = |value: &str| vec![("read_expire".to_owned(), value.to_owned())];
    let shown: Vec<_> = config.disks.iter().map(|disk| (disk.scheduler.name(), disk.depth, disk.set.clone())).collect();
    assert_eq!(
        shown,
        [("none", Some(4), Vec::new()), ("mq-deadline", Some(8), set("3s")), ("mq-deadline", Some(8), set("1s")),]
    );
    assert_eq!((config.disk_default.depth, config.disk_default.set), (Some(8), set("3s")));

    let unknown = planned(text, "--scheduler none --set slice=1 --listen unix:/x").unwrap_err();
    assert!(
        unknown.contains("--set slice=1: unknown tunable \"slice\"; scheduler none has no tunables of its own; every scheduler has flush_coordinate, "),
        "{unknown}"
    );
}

/// serve.3: plain text does not leave the machine.
#[test]
fn beyond_the_loopback_tls_is_required_or_insecurity_admitted() {
    let text = format!("{RIGHT}[server]\nlisten = [\n  \"unix:/a\",\n  \"tcp:0.0.0.0:10809\",\n]\n");
    assert_eq!(
        planned(&text, "").unwrap_err(),
        "\
f.toml:6:3: error: server.listen: other machines can reach tcp:0.0.0.0:10809, and without TLS the data can be read and changed on \
         the way; set tls = \"require\" with tls_certificates = \"DIR\", or insecure = true if you \
         trust the network
  6 |   \"tcp:0.0.0.0:10809\",
    |   ^^^^^^^^^^^^^^^^^^^
"
    );
    assert!(planned(&text, "--insecure").is_ok());
    assert!(planned(&text, "--listen tcp:[::1]:1").is_ok());

    let dir = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(dir.path().join("server-cert.pem"), made.cert.pem()).unwrap();
    crate::syntax::secret::write(dir.path().join("server-key.pem"), made.signing_key.serialize_pem());
    let pki = format!("--tls-certificates {}", dir.path().display());
    let config = planned(&text, &format!("--tls require {pki}")).unwrap();
    assert!(config.tls.is_some() && config.listeners.iter().all(|listener| listener.tls == Tls::Required));
    // A test of one place counts there, and no place of it is left in plain text by mistake.
    let single = text.replace("10809\"", "10809,tls=require\"");
    let config = planned(&single, &pki).unwrap();
    let each: Vec<_> = config.listeners.iter().map(|listener| listener.tls).collect();
    assert_eq!((config.tls.is_some(), &each[..]), (true, &[Tls::Off, Tls::Required][..]));
    let plain = planned(&single.replace("require", "off"), &format!("--tls require {pki}")).unwrap_err();
    assert!(plain.contains("tcp:0.0.0.0:10809, and without TLS"), "{plain}");
    let word = planned(&single.replace("require", "maybe"), &pki).unwrap_err();
    assert!(word.contains("server.listen: ") && word.contains("require"), "{word}");
    let optional = planned(&text, &format!("--tls on {pki}")).unwrap_err();
    assert!(optional.contains("TLS is on but not required, so clients may still use plain text"), "{optional}");
    let verify = planned(&text, &format!("--tls require {pki} --tls-verify-peer")).unwrap_err();
    assert!(
        verify.starts_with("error: --tls-certificates: ") && verify.contains("ca-cert.pem: No such file"),
        "{verify}"
    );
}

#[test]
fn limits_are_tables_or_lines_of_the_kernel_and_the_flag_wins() {
    let group = |keys: &str| format!("[export.a]\nbacking = \"mem:1m\"\ngroup = \"/t/a\"\n[group.\"/t/a\"]\n{keys}\n");
    let bounds = |text: &str, flags: &str, path: &str| {
        let config = planned(text, &format!("--listen unix:/x {flags}")).unwrap();
        config.bounds.get(path).map(ToString::to_string)
    };
    let wanted = Some("max rbps=104857600 riops=3000, burst riops=30000 seconds=5".to_owned());
    for keys in [
        "max = { riops = 3000, rbps = \"100m\" }\nburst = { riops = 30_000, seconds = 5 }",
        "max = { riops = 3000, rbps = 104857600, wbps = \"max\" }\nburst = \"riops=30000 seconds=5\"",
        "max = \"rbps=104857600 wbps=max riops=3000 wiops=max\"\nburst = \"riops=30000 seconds=5\"",
    ] {
        assert_eq!(bounds(&group(keys), "", "/t/a"), wanted, "{keys}");
    }
    let plain = group("max = { iops = 1 }");
    assert_eq!(bounds(&plain, "", "/t/a"), Some("max iops=1".into()), "1 is little, and right");
    assert_eq!(bounds(&plain, "--max a=iops=1000000000", "/t/a"), Some("max iops=1000000000".into()));
    assert_eq!(bounds(&plain, "--max /t=wbps=5g", "/t"), Some("max wbps=5368709120".into()));
    assert_eq!(bounds(&plain, "--max a=max", "/t/a"), Some("no limits".into()));
    let root = plain.clone() + "[group.\"/\"]\nmax = { bps = \"1g\" }\n";
    assert_eq!(bounds(&root, "", "/"), Some("max bps=1073741824".into()), "the root binds all");

    let floor = group("min = \"iops=5\"");
    assert_eq!(bounds(&floor, "--scheduler fair", "/t/a"), Some("min iops=5".into()));
    let all = group("min = \"iops=5\"\nmax = { iops = 9 }\nlatency = \"1500us\"");
    assert_eq!(bounds(&all, "--scheduler fair", "/t/a"), Some("max iops=9, min iops=5, latency 1500us".into()));
    assert_eq!(bounds(&group("latency = \"1ns\""), "--scheduler none", "/t/a"), Some("latency 1ns".into()));
    assert_eq!(bounds(&group("latency = \"none\""), "", "/t/a"), None);
    for (key, why) in [
        ("latency = 2", "group.\"/t/a\".latency: a time needs a unit: 2s, 2ms, 2us"),
        ("latency = \"0s\"", "group.\"/t/a\".latency: the time must be longer than 0"),
        ("[group.\"/\"]\nlatency = \"2ms\"", "group.\"/\".latency: the root has no siblings that could make room"),
    ] {
        let mistakes_of = planned(&group(key), "--listen unix:/x").unwrap_err();
        assert!(mistakes_of.contains(why), "{mistakes_of}");
    }

    // serve.5
    let config = planned("", "--listen unix:/x a=mem:1m b=mem:1m --max a=riops=7").unwrap();
    assert_eq!(config.groups[usize::from(config.exports[0].group.0)].path, "/a");
    assert_eq!(config.bounds["/a"].ceiling.max.get(Rate::Riops), Some(7));
    let refuses = |flags: &str| planned("", &format!("--listen unix:/x a=mem:1m {flags}")).unwrap_err();
    assert_eq!(refuses("--max b=iops=7"), "error: --max b=iops=7: there is no export \"b\"; did you mean \"a\"?\n");
}

/// serve.5
#[test]
fn each_export_is_a_tenant_and_weights_on_the_command_line_are_their_groups() {
    let groups = |text: &str, flags: &str| {
        let config = planned(text, &format!("--listen unix:/x {flags}")).unwrap();
        let group = |export: &Export| {
            let group = &config.groups[usize::from(export.group.0)];
            (export.name.clone(), group.path.clone(), group.weight.get())
        };
        (config.exports.iter().map(group).collect::<Vec<_>>(), config.disk_default.scheduler)
    };
    let all =
        |all: &[(&str, &str, u16)]| all.iter().map(|(n, p, w)| ((*n).into(), (*p).into(), *w)).collect::<Vec<_>>();
    let two = "alice=mem:1m bob=mem:1m";
    for (flag, weight) in [("", 100), ("--weight alice=300", 300)] {
        let (found, scheduler) = groups("", &format!("{two} {flag}"));
        assert_eq!(found, all(&[("alice", "/alice", weight), ("bob", "/bob", 100)]));
        assert_eq!(scheduler, sched::Kind::Fair, "one that knows weights");
    }

    // With a file: its groups stay, their weights are overridden, and a path names a group.
    let text = "[export.a]\nbacking = \"mem:1m\"\ngroup = \"/t/a\"\n[export.b]\nbacking = \"mem:1m\"\n\
                [export.c]\nbacking = \"mem:1m\"\n[group.\"/t/a\"]\nweight = 7\n";
    let (found, _) = groups(text, "--weight a=9 --weight b=8 d=mem:1m");
    assert_eq!(found, all(&[("a", "/t/a", 9), ("b", "/b", 8), ("c", "/c", 100), ("d", "/d", 100)]));
    let config = planned(text, "--listen unix:/x --weight /t=3 --weight /t=4").unwrap();
    assert_eq!(
        config.groups[1],
        fairlift_core::Group { path: "/t".into(), parent: Some(GroupId::ROOT), weight: Weight::new(4) }
    );

    let refuses = |flags: &str| planned(text, &format!("--listen unix:/x {flags}")).unwrap_err();
    assert_eq!(
        refuses("alice=mem:1m --weight alcie=3"),
        "error: --weight alcie=3: there is no export \"alcie\"; did you mean \"alice\"?\n"
    );
    assert!(refuses("--weight /t/b=3").starts_with("error: --weight /t/b=3: there is no group \"/t/b\"; did you mean"));
    assert!(refuses("--weight /=3").contains("there is no group \"/\""), "the root has no siblings");
    let (nested, _) = groups("", "x/y=mem:1m --weight x/y=3");
    assert_eq!(nested, all(&[("x/y", "/x/y", 3)]), "a name with slashes is a path");
}
