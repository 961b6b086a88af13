//! What holds the data, as people write it: `null:SIZE[,delay=TIME]`, `mem:SIZE`, `file:PATH[,direct=auto|on|off][,in_use=allow][,format=raw][,shared]`,
//! `sim:PROFILE[,size=SIZE][,parameter=VALUE…]`, `nbd:URI[,reconnect=TIME][,connections=NUMBER][,tls=DIR]`,
//! `rbd:POOL/IMAGE[@SNAPSHOT][,user=USER][,conf=PATH][,namespace=NAME][,timeout=TIME]`, `fault:RULES,inner=BACKING`.

use std::path::Path;

use fairlift::config::{Backing, Direct, Factory, Faults, Faulty, FileAccess, InUse};
use fairlift_core::Duration;

use crate::words::units::{parse_capacity, parse_time};
use crate::words::{nbd, rbd};
use fairlift_lab::{model, suggestion};

/// An export as named on the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Named {
    /// The name that clients ask for.
    pub(crate) name: String,
    /// What holds the data.
    pub(crate) backing: Backing,
}

/// Reads `NAME=BACKING`, or `BACKING` alone, which is named after itself: `ram`, `null`, the file's name, or the
/// model's.
///
/// Where `/` or `:` comes before the first `=`, that parts the two only if a kind of backing follows it: so names may have
/// any letters, and paths a `=`.
///
/// # Errors
/// The backing is malformed.
pub(crate) fn parse_named(text: &str) -> Result<Named, String> {
    if let Some((name, backing)) = text.split_once('=')
        && (name.ends_with(' ') || backing.starts_with(' '))
    {
        return Err(format!("no spaces around \"=\": {}={}", name.trim(), backing.trim()));
    }
    match text.split_once('=') {
        Some((name, backing)) if !name.contains(['/', ':']) || KINDS.iter().any(|kind| backing.starts_with(kind)) => {
            Ok(Named { name: name.into(), backing: parse(backing)? })
        }
        _ => {
            let backing = parse(text)?;
            Ok(Named { name: own_name(&backing), backing })
        }
    }
}

/// How a backing may start that is not simply a path.
const KINDS: [&str; 10] =
    ["fault:", "file:", "mem:", "null:", "sim:", "rbd:", "nbd:", "nbds:", "nbd+unix:", "nbds+unix:"];

/// What a model leaves to chance follows from this, so that a modelled disk is the same one every time it is served.
const SEED: u64 = 1;

/// What an export is called if nobody named it.
fn own_name(backing: &Backing) -> String {
    match backing {
        Backing::Null { .. } => "null".into(),
        Backing::Mem { .. } => "ram".into(),
        Backing::Model { name, .. } => name.split(',').next().unwrap_or_default().into(),
        Backing::Nbd(nbd) if nbd.export.is_empty() => "nbd".into(),
        Backing::Nbd(nbd) => nbd.export.clone(),
        Backing::Rbd(rbd) => rbd.image.clone(),
        Backing::Fault(fault) => own_name(&fault.inner),
        Backing::File { path, .. } => {
            path.file_name().map_or_else(|| "file".into(), |name| name.to_string_lossy().into_owned())
        }
    }
}

/// Reads a backing. Text without a kind in front is the path of a file.
///
/// # Errors
/// The kind or an option is unknown, or a value is malformed.
pub(crate) fn parse(text: &str) -> Result<Backing, String> {
    const KINDS: [&str; 7] = ["null", "mem", "file", "sim", "nbd", "rbd", "fault"];
    if text.is_empty() {
        return Err(
            "a backing is needed: null:SIZE, mem:SIZE, file:PATH, sim:PROFILE, nbd:URI, rbd:POOL/IMAGE or fault:RULES,inner=BACKING".into()
        );
    }
    match text.split_once(':') {
        Some(("null", rest)) => {
            let mut options = Options::new(rest);
            let size = parse_capacity(options.main)?;
            let delay = options.take("delay").map_or(Ok(Duration::ZERO), parse_time)?;
            options.finish("null", &["delay"])?;
            Ok(Backing::Null { size, delay })
        }
        Some(("mem", rest)) => {
            let options = Options::new(rest);
            let size = parse_capacity(options.main)?;
            options.finish("mem", &[])?;
            Ok(Backing::Mem { size })
        }
        Some(("file", rest)) => parse_file(rest),
        Some(("sim", rest)) => parse_sim(rest),
        Some(("rbd", rest)) => rbd::parse(rest),
        Some(("fault", rest)) => parse_fault(rest),
        Some((scheme, _)) if nbd::SCHEMES.contains(&scheme) => nbd::parse(text),
        Some((kind @ ("qcow2" | "qcow" | "vmdk" | "vdi" | "vhdx" | "vpc"), path)) if !Path::new(text).exists() => {
            Err(format!(
                "only raw images are served; convert this one (qemu-img convert -f {kind} -O raw {path} NEW.img), or have \
                 qemu-storage-daemon serve it, and this server in front of that (nbd:URI)"
            ))
        }
        Some((kind, _)) if !kind.contains('/') && !Path::new(text).exists() => Err(format!(
            "unknown backing \"{kind}:\": the backings are null:SIZE, mem:SIZE, file:PATH, sim:PROFILE, nbd:URI, rbd:POOL/IMAGE and \
             fault:RULES,inner=BACKING{}",
            suggestion(kind, KINDS)
        )),
        _ => parse_file(text),
    }
}

/// Reads `PATH[,direct=…][,in_use=…][,format=raw][,shared]`. Only a known option parts from the path, for paths may contain commas.
fn parse_file(text: &str) -> Result<Backing, String> {
    let (mut path, mut access, mut given) = (text, FileAccess::default(), Vec::new());
    while let Some((before, option)) = path.rsplit_once(',') {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        match (key, option.contains('=')) {
            ("direct", true) => access.direct = parse_direct(value)?,
            ("in_use", true) => access.in_use = parse_in_use(value)?,
            ("format", true) => access.is_raw = parse_format(value)?,
            ("shared", false) => access.is_shared = true,
            _ => break,
        }
        if given.contains(&key) {
            return Err(format!("file: {key} is given twice"));
        }
        given.push(key);
        path = before;
    }
    if path.is_empty() {
        return Err("file: needs a path".into());
    }
    if path.contains('\0') {
        return Err("a path cannot contain a NUL character".into());
    }
    Ok(Backing::File { path: path.into(), access })
}

/// Reads `RULES,inner=BACKING`: all that follows is the inner backing's. The rules themselves are read when it is known where they are.
fn parse_fault(text: &str) -> Result<Backing, String> {
    const FORM: &str = "fault:RULES,inner=BACKING, as in fault:rules.toml,inner=file:disk.img";
    let Some((rules, inner)) = text.split_once(",inner=").filter(|(rules, _)| !rules.is_empty()) else {
        return Err(format!("fault: needs a file with rules, and what they are for: {FORM}"));
    };
    if rules.contains('\0') {
        return Err("a path cannot contain a NUL character".into());
    }
    let inner = parse(inner).map_err(|why| format!("fault: inner: {why}"))?;
    let faults = Faults::default();
    Ok(Backing::Fault(Box::new(Faulty { name: format!("fault:{text}"), path: rules.into(), faults, inner })))
}

fn parse_direct(word: &str) -> Result<Direct, String> {
    match word {
        "auto" => Ok(Direct::Auto),
        "on" => Ok(Direct::On),
        "off" => Ok(Direct::Off),
        other => Err(format!("direct takes auto, on or off, not \"{other}\"")),
    }
}

fn parse_format(word: &str) -> Result<bool, String> {
    match word {
        "raw" => Ok(true),
        other => Err(format!("format takes raw, for only raw images are served, not \"{other}\"")),
    }
}

fn parse_in_use(word: &str) -> Result<InUse, String> {
    match word {
        "refuse" => Ok(InUse::Refuse),
        "allow" => Ok(InUse::Allow),
        other => Err(format!("in_use takes refuse or allow, not \"{other}\"")),
    }
}

/// Reads `PROFILE[,parameter=VALUE…]`, as the lab does.
fn parse_sim(text: &str) -> Result<Backing, String> {
    let spec = model::Spec::parse(text).map_err(|error| error.to_string())?;
    Ok(Backing::Model { name: text.into(), size: spec.size, model: Factory::new(move || spec.build(SEED)) })
}

/// `MAIN,KEY=VALUE,…` taken apart.
struct Options<'a> {
    main: &'a str,
    rest: Vec<(&'a str, &'a str)>,
}

impl<'a> Options<'a> {
    fn new(text: &'a str) -> Self {
        let mut parts = text.split(',');
        let main = parts.next().unwrap_or_default();
        Self { main, rest: parts.map(|part| part.split_once('=').unwrap_or((part, ""))).collect() }
    }

    fn take(&mut self, key: &str) -> Option<&'a str> {
        let place = self.rest.iter().position(|(name, _)| *name == key)?;
        Some(self.rest.remove(place).1)
    }

    fn finish(self, kind: &str, known: &[&str]) -> Result<(), String> {
        match self.rest.first() {
            None => Ok(()),
            Some((key, _)) if known.contains(key) => Err(format!("{kind}: {key} is given twice")),
            Some((key, _)) if known.is_empty() => Err(format!("unknown option \"{key}\": {kind}: takes only a size")),
            Some((key, _)) => Err(format!(
                "unknown option \"{key}\": {kind}: takes {}{}",
                known.join(", "),
                suggestion(key, known.iter().copied())
            )),
        }
    }
}

/// Whether a file backing is there and of a kind that holds data. Whether it can be used, its opening shows.
///
/// # Errors
/// It is not, in words that name it.
pub(crate) fn check(backing: &Backing) -> Result<(), String> {
    use std::os::unix::fs::FileTypeExt as _;
    let Backing::File { path, .. } = backing else { return Ok(()) };
    let shown = path.display();
    let kind = std::fs::metadata(path).map_err(|error| format!("{shown}: {error}"))?.file_type();
    if kind.is_file() || kind.is_block_device() {
        return Ok(());
    }
    let kind = if kind.is_dir() { "a directory" } else { "neither a regular file nor a block device" };
    Err(format!("{shown} is {kind}"))
}

/// Shows a backing in a few words.
pub(crate) fn show(backing: &Backing) -> String {
    use crate::words::units::show_size;
    match backing {
        Backing::Null { size, .. } => format!("null, {}", show_size(*size)),
        Backing::Mem { size } => format!("RAM, {}", show_size(*size)),
        Backing::File { path, .. } => path.display().to_string(),
        Backing::Nbd(nbd) => nbd.uri.clone(),
        Backing::Rbd(rbd) => rbd.name.clone(),
        Backing::Fault(fault) => format!("{}, with faults", show(&fault.inner)),
        Backing::Model { name, size, .. } => {
            format!("modelled {}, {}", name.split(',').next().unwrap_or_default(), show_size(*size))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlift_core::time::us;

    fn file(path: &str) -> Backing {
        Backing::File { path: path.into(), access: FileAccess::default() }
    }

    #[test]
    fn every_kind_of_backing_can_be_written() {
        assert_eq!(parse("null:1g"), Ok(Backing::Null { size: 1 << 30, delay: Duration::ZERO }));
        assert_eq!(parse("null:1g,delay=20us"), Ok(Backing::Null { size: 1 << 30, delay: us(20) }));
        assert_eq!(parse("mem:64m"), Ok(Backing::Mem { size: 64 << 20 }));
        assert_eq!(parse("file:/srv/a.img"), Ok(file("/srv/a.img")));
        assert_eq!(parse("/srv/a.img"), Ok(file("/srv/a.img")));
        assert_eq!(parse("/srv/a:b.img"), Ok(file("/srv/a:b.img")), "a path may contain a colon");
        assert_eq!(parse("/srv/a,b.img"), Ok(file("/srv/a,b.img")), "and a comma");
        let with = |path: &str, direct, in_use| {
            let access = FileAccess { direct, in_use, ..FileAccess::default() };
            Ok(Backing::File { path: path.into(), access })
        };
        assert_eq!(parse("file:a.img,direct=off"), with("a.img", Direct::Off, InUse::Refuse));
        let faulty = parse("fault:a,b.toml,inner=file:c.img,direct=off").unwrap();
        let Backing::Fault(fault) = &faulty else { panic!("{faulty:?}") };
        assert_eq!(fault.path, Path::new("a,b.toml"));
        assert_eq!(Ok(fault.inner.clone()), with("c.img", Direct::Off, InUse::Refuse));
        assert_eq!(show(&faulty), "c.img, with faults");
        assert_eq!(parse("file:a,b,in_use=allow,direct=on"), with("a,b", Direct::On, InUse::Allow));
        let access = FileAccess { is_raw: true, is_shared: true, ..FileAccess::default() };
        assert_eq!(parse("a,format=raw,shared"), Ok(Backing::File { path: "a".into(), access }));
        assert_eq!(parse("a,shared.img"), Ok(file("a,shared.img")), "an option is a whole word");
    }

    #[test]
    fn a_bad_backing_is_refused_with_what_is_possible() {
        for (text, why) in [
            (
                "",
                "a backing is needed: null:SIZE, mem:SIZE, file:PATH, sim:PROFILE, nbd:URI, rbd:POOL/IMAGE or fault:RULES,inner=BACKING",
            ),
            ("file:", "file: needs a path"),
            (
                "fault:inner=mem:1g",
                "fault: needs a file with rules, and what they are for: fault:RULES,inner=BACKING, as in fault:rules.toml,inner=file:disk.img",
            ),
            ("fault:a.toml,inner=file:", "fault: inner: file: needs a path"),
            (
                "men:1g",
                "unknown backing \"men:\": the backings are null:SIZE, mem:SIZE, file:PATH, sim:PROFILE, nbd:URI, rbd:POOL/IMAGE and fault:RULES,inner=BACKING; did you mean \"mem\"?",
            ),
            (
                "qcow2:a.qcow2",
                "only raw images are served; convert this one (qemu-img convert -f qcow2 -O raw a.qcow2 NEW.img), or have \
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
            Ok(Backing::Model { name, size, model }) => {
                assert_eq!(format!("sim:{name}"), text);
                assert_eq!(model.build().limits().capacity * 512, size, "{text}");
                size
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
        assert_eq!(show(&parse("sim:sata-7200,size=1G").unwrap()), "modelled sata-7200, 1 GiB");
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
