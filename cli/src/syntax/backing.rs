//! Backings as people write them: each kind of backing has its own words, and those with more needs are here.

use fairlift::config::{Backing, Factory, Outside};
use fairlift_lab::model;

use crate::syntax::certificates;

/// An export as named on the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) backing: Backing,
}

/// Reads `NAME=BACKING`, or `BACKING` alone, which is named after itself: `ram`, `null`, the file's name, or the
/// model's.
///
/// Where `/` or `:` comes before the first `=`, that parts the two only if a kind of backing follows it: so names may have
/// any letters, and paths a `=`.
pub(crate) fn parse_named(text: &str) -> Result<Named, String> {
    if let Some((name, backing)) = text.split_once('=')
        && (name.ends_with(' ') || backing.starts_with(' '))
    {
        return Err(format!("no spaces around \"=\": {}={}", name.trim(), backing.trim()));
    }
    match text.split_once('=') {
        Some((name, backing)) if !name.contains(['/', ':']) || Backing::is_begun_by(backing) => {
            Ok(Named { name: name.into(), backing: parse(backing)? })
        }
        _ => {
            let backing = parse(text)?;
            Ok(Named { name: backing.about().own_name, backing })
        }
    }
}

/// As [`parse_named`], of a command that takes several: a comma between two of them, or behind one, is told as such, unless a file has it
/// in its name.
pub(crate) fn parse_one_of_several(text: &str) -> Result<Named, String> {
    let parsed = parse_named(text);
    let is_comma = |all: &[String]| match &parsed {
        Ok(Named { backing: Backing::File(file), .. }) => !file.path.exists(),
        Ok(_) => false,
        Err(_) => {
            all.len() > 1 && all.iter().all(|one| one.split_once('=').is_some_and(|(_, it)| Backing::is_begun_by(it)))
        }
    };
    if let Ok(Named { backing: Backing::File(file), .. }) = &parsed
        && let Some(form) = file.path.to_str().and_then(Backing::form_of)
        && !file.path.exists()
    {
        return Err(format!("there is no file {}; that kind of backing is written {form}", file.path.display()));
    }
    match parted(text) {
        all if is_comma(&all) && all != [text] => {
            Err(format!("exports are separated by blanks alone: {}", all.join(" ")))
        }
        _ => parsed,
    }
}

/// Exports separated by commas. A part that is no `NAME=…`, or that is an option, belongs to the export before it.
fn parted(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for part in text.split(',') {
        let is_new = part.split_once('=').is_some_and(|(key, _)| !["direct", "in_use", "format"].contains(&key));
        match all.last_mut().filter(|_| !is_new) {
            Some(_) if part.is_empty() => {}
            Some(last) => *last += &format!(",{part}"),
            None => all.push(part.into()),
        }
    }
    all
}

/// The seed of a model's chance, so that a modelled disk is the same one every time it is served.
const SEED: u64 = 1;

const OUTSIDE: Outside = Outside { model: parse_model, certificates: |dir| certificates::load_client(dir, false) };

pub(crate) fn parse(text: &str) -> Result<Backing, String> {
    Backing::parse(text, &OUTSIDE)
}

/// Reads `PROFILE[,parameter=VALUE…]`, as the lab does.
fn parse_model(text: &str) -> Result<(u64, Factory), String> {
    let spec = model::Spec::parse(text)?;
    Ok((spec.size, Factory::new(move || spec.build(SEED))))
}

/// Whether it holds data, which writes would destroy. RAM and models are empty whenever they are opened.
pub(crate) fn holds_data(backing: &Backing) -> bool {
    match backing {
        Backing::Null(_) | Backing::Mem(_) | Backing::Model(_) => false,
        Backing::Fault(faulty) => holds_data(&faulty.inner),
        Backing::File(_) | Backing::Nbd(_) | Backing::Rbd(_) | Backing::Overlay(_) | Backing::Qcow2(_) => true,
    }
}

/// Whether a file backing is there and of a kind that holds data. Whether it can be used, its opening shows.
pub(crate) fn check(backing: &Backing) -> Result<(), String> {
    use std::os::unix::fs::FileTypeExt as _;
    let Backing::File(file) = backing else { return Ok(()) };
    let path = &file.path;
    let shown = path.display();
    let kind = std::fs::metadata(path).map_err(|error| format!("{shown}: {error}"))?.file_type();
    if kind.is_file() || kind.is_block_device() {
        return Ok(());
    }
    let kind = if kind.is_dir() { "a directory" } else { "neither a regular file nor a block device" };
    Err(format!("{shown} is {kind}"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use fairlift::config::{Direct, FileAccess, FileAt, Null, Ram};
    use fairlift_core::Duration;
    use fairlift_core::time::us;

    use super::*;

    fn file(path: &str) -> Backing {
        Backing::from(FileAt::new(path))
    }

    #[test]
    fn every_kind_of_backing_can_be_written() {
        assert_eq!(parse("null:1g"), Ok(Backing::from(Null { size: 1 << 30, delay: Duration::ZERO })));
        assert_eq!(parse("null:1g,delay=20us"), Ok(Backing::from(Null { size: 1 << 30, delay: us(20) })));
        let null = parse("null:1073741824,delay=500ns").unwrap();
        assert_eq!(null.about().written, "null:1073741824,delay=500ns", "as an upgrade reads it again");
        assert_eq!(parse("mem:64m"), Ok(Backing::from(Ram { size: 64 << 20 })));
        assert_eq!(parse("file:/srv/a.img"), Ok(file("/srv/a.img")));
        assert_eq!(parse("/srv/a.img"), Ok(file("/srv/a.img")));
        assert_eq!(parse("/srv/a:b.img"), Ok(file("/srv/a:b.img")), "a path may contain a colon");
        assert_eq!(parse("/srv/a,b.img"), Ok(file("/srv/a,b.img")), "and a comma");
        let with = |path: &str, direct, may_be_in_use| {
            let access = FileAccess { direct, may_be_in_use, ..FileAccess::default() };
            Ok(Backing::from(FileAt { path: path.into(), access }))
        };
        assert_eq!(parse("file:a.img,direct=off"), with("a.img", Direct::Off, false));
        let faulty = parse("fault:a,b.toml,inner=file:c.img,direct=off").unwrap();
        let Backing::Fault(fault) = &faulty else { panic!("{faulty:?}") };
        assert_eq!(fault.path, Path::new("a,b.toml"));
        assert_eq!(Ok(fault.inner.clone()), with("c.img", Direct::Off, false));
        assert_eq!(faulty.about().shown, "c.img, with faults");
        assert_eq!(parse("file:a,b,in_use=allow,direct=on"), with("a,b", Direct::On, true));
        let access = FileAccess { is_raw: true, is_shared: true, ..FileAccess::default() };
        assert_eq!(parse("a,format=raw,shared"), Ok(Backing::from(FileAt { path: "a".into(), access })));
        assert_eq!(parse("a,shared.img"), Ok(file("a,shared.img")), "an option is a whole word");
    }

    #[test]
    fn a_bad_backing_is_refused_with_what_is_possible() {
        for (text, why) in [
            (
                "",
                "a backing is needed: null:SIZE, mem:SIZE, file:PATH, sim:PROFILE, nbd:URI, rbd:POOL/IMAGE, overlay:base=PATH,top=PATH, qcow2:PATH or fault:RULES,inner=BACKING",
            ),
            ("file:", "file: needs a path"),
            (
                "fault:inner=mem:1g",
                "fault: needs a file with rules, and the backing that they are for: fault:RULES,inner=BACKING, as in fault:rules.toml,inner=file:disk.img",
            ),
            ("fault:a.toml,inner=file:", "fault: inner: file: needs a path"),
            (
                "men:1g",
                "unknown backing \"men:\": the backings are null:SIZE, mem:SIZE, file:PATH, sim:PROFILE, nbd:URI, rbd:POOL/IMAGE, overlay:base=PATH,top=PATH, qcow2:PATH and fault:RULES,inner=BACKING; did you mean \"mem\"?",
            ),
            (
                "vdi:a.vdi",
                "only raw images are served; convert this one (qemu-img convert -f vdi -O raw a.vdi NEW.img), or have \
                 qemu-storage-daemon serve it, and this server in front of that (nbd:URI)",
            ),
            ("mem:1g,delay=1ms", "unknown option \"delay\": mem: takes only a size"),
            ("null:1g,dealy=1ms", "unknown option \"dealy\": null: takes delay; did you mean \"delay\"?"),
            ("null:1g,delay=1ms,delay=2ms", "null: delay is given twice"),
            ("null:1g,delay=20", "a time needs a unit: 20s, 20ms, 20us"),
            ("file:a,direct=maybe", "direct takes auto, on or off, not \"maybe\""),
            ("file:a,format=qcow2", "format takes raw, for only raw images are served, not \"qcow2\""),
            ("file:a,in_use=maybe", "in_use takes refuse or allow, not \"maybe\""),
            ("file:a,in_use=allow,direct=on,in_use=allow", "file: in_use is given twice"),
        ] {
            assert_eq!(parse(text), Err(why.into()), "{text}");
        }
    }

    #[test]
    fn a_modelled_disk_has_the_size_of_its_profile_or_what_is_said() {
        let size = |text| match parse(text) {
            Ok(Backing::Model(sim)) => {
                assert_eq!(format!("sim:{}", sim.name), text);
                assert_eq!(sim.model.build().limits().capacity * 512, sim.size, "{text}");
                sim.size
            }
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(size("sim:sata-7200,size=100G"), 100 << 30);
        assert!(size("sim:nvme-plp") > 100 << 30);
        for (text, why) in [
            ("sim:sata-720", "unknown model \"sim:sata-720\""),
            ("sim:sata-7200,sise=1G", "unknown parameter \"sise\""),
            ("sim:", "unknown model \"sim:\""),
        ] {
            let says = parse(text).unwrap_err();
            assert!(says.contains(why), "{text}: {says}");
        }
        assert_eq!(parse("sim:sata-7200,size=1G").unwrap().about().shown, "modelled sata-7200, 1 GiB");
    }

    #[test]
    fn a_file_backing_is_a_file_that_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let shown = dir.path().display();
        let image = dir.path().join("image");
        let there = |path: &Path| check(&file(path.to_str().unwrap()));
        assert_eq!(there(&image), Err(format!("{shown}/image: No such file or directory (os error 2)")));
        std::fs::write(&image, "").unwrap();
        assert_eq!(there(&image), Ok(()));
        assert_eq!(there(dir.path()), Err(format!("{shown} is a directory")));
        assert_eq!(there(Path::new("/dev/null")), Err("/dev/null is neither a regular file nor a block device".into()));
    }

    #[test]
    fn a_comma_between_exports_is_told_unless_a_file_has_it_in_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("a,b=c.img");
        let there = place.to_str().unwrap();
        std::fs::write(there, "").unwrap();
        let refusal = |text: &str| match parse_one_of_several(text) {
            Ok(named) => named.backing.about().shown,
            Err(why) => why.strip_prefix("exports are separated by blanks alone: ").unwrap_or("another").to_owned(),
        };
        for (text, says) in [
            ("alice=/no/a.img,bob=/no/b.img", "alice=/no/a.img bob=/no/b.img"),
            (
                "alice=/no/a.img,direct=off,bob=/no/b.img,carol=/no/c.img",
                "alice=/no/a.img,direct=off bob=/no/b.img carol=/no/c.img",
            ),
            ("alice=/no/a.img,", "alice=/no/a.img"),
            ("a=mem:1g,b=mem:1g", "a=mem:1g b=mem:1g"),
            ("a=null:1g,delay=1ms", "null, 1 GiB"),
            ("a=null:1g,dealy=1ms", "another"),
            ("a=/no/a,b.img", "/no/a,b.img"),
            ("a=/no/a.img", "/no/a.img"),
            ("a=mem", "another"),
            (&format!("d={there}"), there),
            (&format!("d={there},direct=off"), there),
        ] {
            assert_eq!(refusal(text), says, "{text}");
        }
    }

    #[test]
    fn an_export_has_the_name_it_is_given_or_that_of_its_backing() {
        let name = |text| parse_named(text).unwrap().name;
        assert_eq!(name("alice=mem:1g"), "alice");
        assert_eq!(name("=mem:1g"), "", "the empty name is a name");
        assert_eq!(parse_named("a = mem:1g"), Err("no spaces around \"=\": a=mem:1g".into()));
        assert_eq!(name("mem:1g"), "ram");
        assert_eq!(name("null:1g,delay=1ms"), "null", "this = is part of the backing");
        assert_eq!(name("sim:sata-7200,size=1G"), "sata-7200");
        assert_eq!(name("d=sim:sata-7200,size=1G"), "d");
        assert_eq!(name("fault:rules.toml,inner=/srv/a.img"), "a.img");
        assert_eq!(name("/srv/a=b.img"), "a=b.img", "and this one of a path");
        assert_eq!(parse_named("alice=/srv/a=b.img").unwrap().backing, file("/srv/a=b.img"));
    }
}
