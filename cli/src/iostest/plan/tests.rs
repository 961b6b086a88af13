//! Flags, and the plans made of them.

use crate::syntax::mistake::render;
use clap::Parser as _;
use fairlift_core::time::{ms, secs};

use super::*;
use crate::args::{Cli, Command};
use crate::terminal::output::quoted;

fn parse(flags: &str) -> Result<IostestArgs, String> {
    let line = ["fairlift", "iostest"].into_iter().chain(flags.split_whitespace());
    match Cli::try_parse_from(line).map_err(|error| error.to_string())?.command {
        Command::Iostest(flags) => Ok(*flags),
        _ => panic!("iostest"),
    }
}

/// The plan of `fairlift iostest FLAGS`, or its refusal.
fn planned(flags: &str) -> Result<Measurement, String> {
    let flags = parse(flags)?;
    let mut mistakes = Vec::new();
    let reports = Reports::prepare(&flags, &mut mistakes);
    let measurement = plan(&flags, &reports, &mut mistakes);
    if mistakes.is_empty() {
        Ok(measurement.expect("a plan, or a mistake"))
    } else {
        Err(render("error: ", None, &mistakes))
    }
}

fn weights(measurement: &Measurement) -> Vec<(&str, u16)> {
    measurement.plan.groups.iter().map(|group| (group.path.as_str(), group.weight.get())).collect()
}

/// The command of 2010, but for its `-c`.
#[test]
fn the_command_of_2010_is_taken() {
    let measurement = planned("sim:eva-raid5-12 -G -w bsr -m 8 --nrgrp 8 --total").unwrap();
    assert_eq!(measurement.plan.jobs, [1, 2, 4, 8]);
    let weights = weights(&measurement);
    assert_eq!((weights.len(), weights[1], weights[8]), (9, ("/g1", 100), ("/g8", 800)));
    assert_eq!((measurement.plan.runtime, measurement.plan.sets, measurement.plan.file_size), (secs(30), 1, 512 << 20));
    assert!(matches!(measurement.device, TestDisk::Model(_)));
}

#[test]
fn what_flags_leave_open_is_decided() {
    let measurement = planned("sim:sata-7200").unwrap();
    assert_eq!(weights(&measurement), [("/", 100)], "without -G, one group: the root");
    assert_eq!(measurement.scheduler, sched::Kind::usual(1, true));
    assert_eq!(measurement.header.seed, 1);
    assert_eq!(measurement.plan.workloads[0].name, "bsr");
    let measurement = planned("sim:sata-7200 -G").unwrap();
    assert_eq!(measurement.scheduler, sched::Kind::usual(8, true));
    assert_eq!(weights(&measurement).len(), 9);
    let measurement = planned("sim:sata-7200 --weights 5,7").unwrap();
    assert_eq!(weights(&measurement), [("/", 100), ("/g1", 5), ("/g2", 7)], "--weights implies -G and --nrgrp");
    let measurement = planned("sim:sata-7200 --nrgrp 12").unwrap();
    assert_eq!(weights(&measurement)[9..], [("/g9", 900), ("/g10", 1000), ("/g11", 1000), ("/g12", 1000)]);
}

/// The command lines in docs/ can be run.
#[test]
fn the_examples_of_the_documentation_are_plans() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/examples");
    let tree = format!("{docs}/groups-three-levels.toml");
    let measurement = planned(&format!("sim:sata-7200 -w {docs}/unlike-groups.toml --groups {tree} --jobs 2")).unwrap();
    let case = &measurement.plan.cases().unwrap()[0];
    let paths: Vec<_> = case.leaves().iter().map(|leaf| case.groups[usize::from(leaf.0)].path.clone()).collect();
    assert_eq!(paths, ["/tenants/a/db", "/tenants/a/backup", "/tenants/b/web", "/maintenance/scrub"]);
    let roles: Vec<_> = case.cast().iter().map(|(_, role)| role.name.clone()).collect();
    assert_eq!(roles, ["db-log", "db", "db", "backup", "backup", "web", "web", "scrub", "scrub"]);
    let Err(refused) = planned(&format!("sim:sata-7200 -w {docs}/unlike-groups.toml -G")) else { panic!("planned") };
    assert!(refused.contains("unlike: role db is for group /tenants/a/db, and the groups are /g1, "), "{refused}");
    for example in ["array-readers", "one-syncs", "readers-beside-writers", "start-beside-writers"] {
        let measurement = planned(&format!("sim:sata-7200 -w {docs}/{example}.toml --jobs 4 -G --nrgrp 2"));
        assert_eq!(measurement.unwrap().plan.cases().unwrap().len(), 1, "{example}");
    }
}

#[test]
fn numbers_of_jobs_double_up_to_the_largest() {
    assert_eq!(rising(1), [1]);
    assert_eq!(rising(8), [1, 2, 4, 8]);
    assert_eq!(rising(6), [1, 2, 4, 6]);
    assert_eq!(planned("sim:sata-7200 --jobs 6,3,6").unwrap().plan.jobs, [6, 3]);
}

#[test]
fn settings_are_shown_as_they_were_written_and_the_rest_with_their_defaults() {
    let measurement = planned("sim:sata-7200 --scheduler mq-deadline --set read_expire=20 --set fifo_batch=4").unwrap();
    let setting = |name: &str| measurement.header.settings[name].as_str();
    assert_eq!((setting("read_expire"), setting("fifo_batch"), setting("writes_starved")), ("20", "4", "2"));
    assert_eq!(measurement.set.len(), 2, "only what differs is set");
}

#[test]
fn two_names_of_one_knob_do_not_say_two_things() {
    let idle = |flags: &str| {
        let settings = planned(&format!("sim:sata-7200 --scheduler bfq {flags}")).unwrap().header.settings;
        ["slice_idle", "slice_idle_us"].map(|name| settings.get(name).cloned().unwrap_or_default())
    };
    assert_eq!(idle("-I 8ms"), ["8ms", "8000"]);
    assert_eq!(idle("--set slice_idle_us=2000"), ["2ms", "2000"]);
    assert_eq!(idle("--sweep slice_idle=auto,8ms"), ["auto,8ms", ""]);
}

#[test]
fn each_value_of_a_sweep_is_looked_at_before_anything_runs() {
    let measurement =
        planned("sim:sata-7200 --scheduler mq-deadline --sweep fifo_batch=1,16,1 --set read_expire=20").unwrap();
    assert_eq!(measurement.sweep, Some(("fifo_batch".into(), vec!["1".into(), "16".into()])), "each once");
    assert_eq!(measurement.header.settings["fifo_batch"], "1,16");
    for (flags, says) in [
        (
            "--scheduler mq-deadline --sweep fifo_batch=1,none",
            "--sweep: fifo_batch takes a number from 0 to 2147483647, not \"none\"",
        ),
        ("--scheduler mq-deadline --sweep fifo_bacth=1,2", "--sweep: unknown tunable \"fifo_bacth\""),
        (
            "--scheduler mq-deadline --sweep fifo_batch=1,2 --set fifo_batch=3",
            "--sweep: fifo_batch is also set by another flag; give it once",
        ),
        (
            "--scheduler mq-deadline --sweep fifo_batch=1,,2",
            "a sweep has the form KEY=VALUE,VALUE, as in slice_idle=0,2ms,8ms",
        ),
        ("--scheduler none --sweep fifo_batch=1,2", "--sweep: "),
    ] {
        let Err(refused) = planned(&format!("sim:sata-7200 {flags}")) else { panic!("{flags} is planned") };
        assert!(refused.contains(says), "{flags}: {refused}");
    }
}

#[test]
fn the_command_to_repeat_it_means_the_same() {
    for flags in [
        "sim:eva-raid5-12 -G -w bsr,drr -m 6 --nrgrp 3 --runtime 0.5 -s 2 --seed 7 --bs 64k --iodepth 4 --depth 32",
        "--device sim:sata-7200,size=100G --scheduler mq-deadline --set read_expire=20ms --filesize 1g",
        "mem:4g --weights 1000,1 --jobs 3 -w drw",
        "sim:sata-7200 --scheduler mq-deadline --sweep fifo_batch=1,16,1 -G",
        "sim:nvme-plp --scheduler fair --nrgrp 2 --max /g1=riops=300 --burst /g1=riops=3000,seconds=5 --min /g2=iops=9 --max /=iops=900",
        "sim:nvme-plp -w tenants --round-trip 200us",
        "sim:nvme-plp -w tenants:many -s 2 --scheduler none",
    ] {
        let first = planned(flags).unwrap();
        let words = first.header.command.strip_prefix("fairlift iostest ").unwrap();
        let again = planned(words).unwrap();
        assert_eq!(first.header, again.header, "{words}");
        assert_eq!(format!("{:?}", first.plan), format!("{:?}", again.plan), "{words}");
        assert_eq!((first.set, first.sweep, first.depth), (again.set, again.sweep, again.depth));
    }
    assert_eq!(quoted("it's <here>"), "'it'\\''s <here>'");
}

#[test]
fn each_mistake_has_its_own_words() {
    for (flags, line) in [
        ("", "error: --device: a disk is needed: sim:MODEL (see `fairlift models`), file:PATH, mem:SIZE or null:SIZE"),
        ("--device sim:sata-7200,rpn=5", "unknown parameter \"rpn\": the parameters are size, "),
        ("--device sim:nothing", "error: --device: unknown model \"sim:nothing\": the models are sata-7200, "),
        ("--device smi:sata-7200", "and fault:RULES,inner=BACKING; did you mean \"sim\"?"),
        ("--device /no/such/disk", "error: --device: /no/such/disk: No such file or directory (os error 2)"),
        ("--device /", "error: --device: / is a directory"),
        ("mem:1g -w bsx", "error: --workload: unknown workload \"bsx\": the workloads are bsr, brr, dsr, drr, "),
        (
            "mem:1g -w bsr,fsync --iodepth 32",
            "--iodepth: bsr, fsync have no direct reader or writer; --iodepth applies to dsr, drr, dsw, drw and mixed",
        ),
        ("mem:1g -w interactiv", "; did you mean \"interactive\"?"),
        (
            "sim:sata-7200 --nrgrp 8 --weights 1,2,3",
            "--weights: 3 weights are given for 8 groups (--nrgrp); give one weight for each group",
        ),
        (
            "sim:sata-7200 --nrgrp 2 --weights 1",
            "--weights: 1 weight is given for 2 groups (--nrgrp); give one weight for each group",
        ),
        (
            "sim:sata-7200 --weights 0",
            "invalid value '0' for '--weights <W,W>': a weight is a number from 1 to 1000, not \"0\"",
        ),
        ("sim:sata-7200 -m 0", "invalid value '0' for '--max-jobs <MAXJOBS>': 0 is not in 1..=1024"),
        ("sim:sata-7200 --jobs 1,0", "invalid value '0' for '--jobs <N,N>': 0 is not in 1..=1024"),
        ("sim:sata-7200 --nrgrp 0", "invalid value '0' for '--nrgrp <N>': 0 is not in 1..=1000"),
        ("sim:sata-7200 --runtime 0", "the time must be longer than 0"),
        ("sim:sata-7200 --scheduler noop", "invalid value 'noop' for '--scheduler <S>'"),
        ("sim:sata-7200 --scheduler none -I 0", "-I: slice_idle belongs to bfq and cfq; scheduler none has "),
        (
            "sim:sata-7200 --scheduler mq-deadline -I 8",
            "-I: slice_idle belongs to bfq and cfq; scheduler mq-deadline has ",
        ),
        (
            "sim:sata-7200 --scheduler none --set slice_idle=0",
            "--set slice_idle=0: slice_idle belongs to bfq and cfq; scheduler none has no tunables of its own; every scheduler has flush_coordinate",
        ),
        ("sim:sata-7200 --scheduler mq-deadline --set read_expir=1", "; did you mean \"read_expire\"?"),
        ("sim:sata-7200 --raw", "--raw: needs a file or block device: only those can be measured without Fairlift"),
        ("sim:sata-7200 --groups /no/such.toml", "--groups: /no/such.toml: No such file or directory (os error 2)"),
        (
            "sim:sata-7200,size=1G",
            "2 jobs: 2 files of 512M do not fit on this disk of 1G; choose a smaller file size (--filesize)",
        ),
        ("sim:sata-7200 --bs 1000", "1000 bytes is not a multiple of 512"),
        (
            "sim:sata-7200 --filesize 16k --bs 32k",
            "a block of 32768 bytes is larger than the file, which has 16384 bytes",
        ),
        ("sim:sata-7200 --nrgrp 1000 -m 8 --filesize 1m", "all groups together have 8000 jobs; the limit is 4096"),
        (
            "sim:sata-7200 --json /no/such/dir/x.json",
            "--json: /no/such/dir/x.json: No such file or directory (os error 2)",
        ),
        ("sim:nvme-plp --max g1", "a limit has the form PATH=LIMITS, as in /g1=riops=3000"),
        ("sim:nvme-plp -G --nrgrp 2 --max /g3=iops=1", "--max: there is no group \"/g3\"; the groups are /, /g1, /g2"),
        ("sim:nvme-plp --max /=iops=0", "--max: /: iops takes 1 to 1000000000, not 0; no limit is \"none\""),
        ("sim:nvme-plp --burst /=iops=9", "--burst: /: a burst of iops needs a max of iops"),
        ("sim:nvme-plp --scheduler fair --min /=iops=9", "--min: /: the root has all of the disk"),
        (
            "sim:sata-7200 --nrgrp 2 --scheduler bfq --min /g1=iops=9",
            "--min: /g1: scheduler bfq keeps no floors; fair does",
        ),
        (
            "sim:nvme-plp --nrgrp 2 --scheduler fair --min /g1=iops=9 --max /g1=iops=8",
            "--min: /g1: min iops=9 is above max iops=8: both cannot hold",
        ),
        ("sim:nvme-plp -w tenants --max /=iops=9", "--max: has no effect on tenants, which have groups"),
        ("-R x --device sim:sata-7200", "the argument '--report <DIR>' cannot be used with"),
    ] {
        let refusal = planned(flags).err().unwrap_or_else(|| panic!("{flags} is taken"));
        assert!(refusal.contains(line), "{flags}: wanted {line:?}, got {refusal}");
    }
}

#[test]
fn several_mistakes_are_told_at_once() {
    let refusal = planned("sim:no -w nothing --scheduler none -I 0 --nrgrp 2 --weights 1").err().unwrap();
    assert_eq!(refusal.lines().count(), 4, "{refusal}");
}

/// plan.1
#[test]
fn what_a_file_holds_is_not_destroyed_unasked() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let shown = image.display();
    let flags = format!("{shown} --jobs 1 --filesize 1m");
    let refusal = planned(&format!("{flags} -w bsr,bsw,mixed")).err().unwrap();
    let expected = format!(
        "error: --workload: bsw, mixed writes to {shown} and destroys its contents; add --write-to-device to allow that\n"
    );
    assert_eq!(refusal, expected);
    assert!(planned(&format!("{flags} -w bsw --write-to-device")).is_ok());
    assert!(planned(&format!("{flags} -w bsr")).is_ok(), "reading harms nothing");
    assert!(planned("mem:1g -w bsw --jobs 1").is_ok(), "RAM holds nothing yet");
    let refusal = planned(&format!("{flags} --json {shown}")).err().unwrap();
    assert_eq!(
        refusal,
        format!("error: --device: {shown} is the disk that is measured; write the report to another file\n")
    );
}

#[test]
fn situations_of_tenants_bring_groups_of_their_own_and_take_no_flags_of_groups() {
    let measurement = planned("sim:nvme-plp -w tenants").unwrap();
    assert_eq!((measurement.plan.workloads.len(), measurement.plan.runtime), (10, secs(2)));
    assert_eq!(measurement.scheduler, sched::Kind::usual(2, false), "there are groups, and the disk does not rotate");
    let one = planned("sim:nvme-plp -w tenants:two-levels --runtime 1").unwrap();
    assert_eq!((one.plan.workloads[0].groups.len(), one.plan.runtime), (7, secs(1)));
    for (flags, says) in [
        (
            "-w tenants:small-besides-deep",
            "error: --workload: unknown situation \"small-besides-deep\": the situations are readers-deep, ",
        ),
        ("-w tenants:small-besides-deep", "; did you mean \"small-beside-deep\"?"),
        ("-w tenant", "; did you mean \"tenants\"?"),
        (
            "-w tenants,drr",
            "error: --workload: tenants:readers-deep has groups of its own, drr uses those of the flags; run them separately",
        ),
        (
            "-w tenants -G",
            "-G: has no effect on tenants, which have groups, weights, depths and block sizes of their own; describe others in a file: -w FILE.toml",
        ),
        ("-w tenants --nrgrp 2", "--nrgrp: has no effect on tenants, "),
        ("-w tenants --weights 1,2", "--weights: has no effect on tenants, "),
        ("-w tenants -m 8", "-m: has no effect on tenants, "),
        ("-w tenants --jobs 1", "--jobs: has no effect on tenants, "),
        ("-w tenants --iodepth 4", "--iodepth: has no effect on tenants, "),
        ("-w tenants --bs 4k", "--bs: has no effect on tenants, "),
        ("-w drr --round-trip 1ms", "--round-trip: applies only to situations of tenants: -w tenants"),
        ("-w tenants --round-trip 1m", "a time is a whole number with a unit (s, ms, us, ns), as in 10s"),
    ] {
        let refusal = planned(&format!("sim:nvme-plp {flags}")).err().unwrap_or_else(|| panic!("{flags} is taken"));
        assert!(refusal.contains(says), "{flags}: wanted {says:?}, got {refusal}");
    }
    let refusal = planned("mem:1g -w tenants:readers-shallow --filesize 1m --round-trip 1ms").err().unwrap();
    assert!(refusal.starts_with("error: --round-trip: applies only to a modelled disk"), "{refusal}");
    let real = planned("mem:1g -w tenants:readers-shallow --filesize 1m").unwrap();
    assert_eq!(real.plan.round_trip, fairlift_core::Duration::ZERO, "time passes by itself");
}

/// plan.1
#[test]
fn no_other_disk_that_holds_data_is_written_over_unasked() {
    let dir = tempfile::tempdir().unwrap();
    let (image, rules) = (dir.path().join("image"), dir.path().join("rules.toml"));
    std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    std::fs::write(&rules, "").unwrap();
    let with_faults = |inner: &str| format!("fault:{},inner={inner}", rules.display());
    let refusal = |disk: &str| planned(&format!("{disk} -w bsw --jobs 1 --filesize 1m")).err().unwrap_or_default();
    for disk in ["nbd://127.0.0.1:1/x", "rbd:vms/alice", &with_faults(&image.display().to_string())] {
        assert!(refusal(disk).contains("add --write-to-device to allow that"), "{disk}: {}", refusal(disk));
    }
    assert_eq!(refusal(&with_faults("mem:1g")), "");
}

/// plan.1
#[test]
fn tenants_that_write_do_not_destroy_what_a_file_holds_unasked() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 30).unwrap();
    let flags = format!("{} -w tenants:readers-deep,tenants:sizes-mixed --filesize 1m", file.path().display());
    let refusal = planned(&flags).err().unwrap();
    assert!(refusal.starts_with("error: --workload: tenants:sizes-mixed writes to "), "{refusal}");
    assert!(planned(&format!("{flags} --write-to-device")).is_ok());
}

#[test]
fn workloads_come_from_a_file_too() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("w.toml");
    let flags = format!("sim:sata-7200 -w drr,{} --jobs 1", file.display());
    std::fs::write(&file, "[one]\n[[one.roles]]\nname = \"a\"\ndoes = \"direct-read\"\n").unwrap();
    let names: Vec<_> = planned(&flags).unwrap().plan.workloads.iter().map(|one| one.name.clone()).collect();
    assert_eq!(names, ["drr", "one"]);
    for (text, why) in [
        ("", "w.toml:1:1: the file has no workload: "),
        ("[one]\n[[one.roles]]\nname = \"a\"\ndoes = \"direct-raed\"\n", "w.toml:4:8: "),
        (
            "[bsr]\n[[bsr.roles]]\nname = \"a\"\ndoes = \"direct-read\"\n",
            "w.toml: \"bsr\" is a built-in workload; choose another name",
        ),
    ] {
        std::fs::write(&file, text).unwrap();
        let refusal = planned(&flags).err().unwrap();
        assert!(refusal.contains(why), "{refusal}");
    }
}

#[test]
fn one_workload_of_a_file_is_run_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("w.toml");
    let one = |name: &str| format!("[{name}]\n[[{name}.roles]]\ndoes = \"direct-read\"\n");
    std::fs::write(&file, one("one") + &one("other")).unwrap();
    let shown = file.display();
    let names = |of: &str| -> Result<Vec<String>, String> {
        let measurement = planned(&format!("sim:nvme-plp --jobs 1 -w {shown}{of}"))?;
        Ok(measurement.plan.workloads.iter().map(|one| one.name.clone()).collect())
    };
    assert_eq!(names(""), Ok(vec!["one".into(), "other".into()]));
    assert_eq!(names(":other"), Ok(vec!["other".into()]));
    assert_eq!(names(&format!(":other,{shown}:one")), Ok(vec!["other".into(), "one".into()]));
    let refusal = names(":othre").unwrap_err();
    let says = format!("{shown} has no workload \"othre\": its workloads are one, other; did you mean \"other\"?");
    assert!(refusal.contains(&says), "{refusal}");
}

/// Runs of two workloads of one name would be taken for sets of one.
#[test]
fn a_workload_that_is_named_twice_is_run_once_and_two_of_one_name_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let [one, two] = ["one", "two"].map(|name| dir.path().join(name).with_extension("toml"));
    let text = "[w]\n[[w.roles]]\ndoes = \"direct-read\"\n";
    std::fs::write(&one, text).unwrap();
    std::fs::write(&two, text.replace("read", "write")).unwrap();
    let count = |names: &str| planned(&format!("sim:nvme-plp --jobs 1 -w {names}")).map(|one| one.plan.workloads.len());
    assert_eq!(count(&format!("drr,{},{}", one.display(), one.with_file_name("./one.toml").display())), Ok(2));
    let refusal = count(&format!("{},{}", one.display(), two.display())).unwrap_err();
    assert!(refusal.contains("two.toml: another workload is called \"w\""), "{refusal}");
    assert_eq!(planned("sim:nvme-plp -w tenants,tenants:many").unwrap().plan.workloads.len(), 10);
}

#[test]
fn a_tree_of_groups_comes_from_a_config_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("groups.toml");
    std::fs::write(&file, "[group.\"/a/b\"]\nweight = 300\n[group.\"/c\"]\nweight = 5\n").unwrap();
    let measurement = planned(&format!("sim:sata-7200 --groups {}", file.display())).unwrap();
    assert_eq!(weights(&measurement), [("/", 100), ("/a", 100), ("/a/b", 300), ("/c", 5)]);
    std::fs::write(&file, "[group.\"/a\"]\nmax = \"iops=50\"\n[group.\"/b\"]\nmin = { rbps = \"1m\" }\n").unwrap();
    let measurement =
        planned(&format!("sim:nvme-plp --scheduler fair --groups {} --max /b=iops=9", file.display())).unwrap();
    let limits: Vec<_> = measurement.header.limits.iter().map(|(path, says)| format!("{path} {says}")).collect();
    assert_eq!(limits, ["/a max iops=50", "/b max iops=9, min rbps=1048576"]);
    for (text, why) in [
        ("", "groups.toml has no [group.\"/PATH\"]"),
        (
            "[group.\"/a\"]\nmax = { iops = 0 }\n",
            "groups.toml:2:16: group.\"/a\".max.iops: takes 1 to 1000000000, not 0; no limit is \"none\"",
        ),
        ("[group.\"/a\"]\nweight = 0\n", "groups.toml:2:10: group.\"/a\".weight: takes a number from 1 to 1000, not 0"),
    ] {
        std::fs::write(&file, text).unwrap();
        let refusal = planned(&format!("sim:sata-7200 --groups {}", file.display())).err().unwrap();
        assert!(refusal.contains(why), "{refusal}");
    }
    assert_eq!(Some(ms(500)), parse("sim:x --runtime 0.5").unwrap().runtime);
}

#[test]
fn what_is_too_large_for_a_real_disk_is_refused_before_the_run() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 30).unwrap();
    let disk = format!("file:{}", file.path().display());
    let why = planned(&format!("{disk} -w interactive --bs 2m --filesize 128m -m 1")).map(drop).unwrap_err();
    let says = "start with blocks of 2 MiB asks for 64 MiB at a time; on a real disk the limit is 32 MiB";
    assert!(why.contains(says), "{why}");
    assert!(planned(&format!("{disk} -w interactive --bs 1m --filesize 128m -m 1")).is_ok());
    assert!(planned("sim:sata-7200 -w interactive --bs 2m --filesize 128m -m 1").is_ok(), "a model takes it");
}
