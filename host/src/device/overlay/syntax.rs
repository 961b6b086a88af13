//! An overlay as people write it: `overlay:base=PATH,top=PATH[,size=SIZE][,direct=…][,base_direct=…]`.

use std::io;
use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;

use fairlift_core::units::{parse_capacity, show_size};

use super::Overlay;
use super::format::{Base, Fingerprint};
pub use crate::device::backing::BaseAt;
use crate::device::backing::{About, BackingKind, Forks, NowBase, OfExport, Outside, Sharing, Syntax, path_of};
use crate::device::file::syntax::{Direct, FileAccess};
use crate::device::kinds::Qcow2;
use crate::device::roots::{Roots, directory_of};
use crate::device::{Backing, Device};

/// A disk that is its base until it is written; what is written is in its top.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layered {
    /// The base: a file, the top of another overlay, or a backing of another kind; `None`: the one with which the top was made.
    pub base: Option<BaseAt>,
    /// The top: made if it is not there. Of an ephemeral overlay the directory in which it has no name.
    pub top: PathBuf,
    /// The top goes with the server, or with the last export of it, and begins empty.
    pub is_ephemeral: bool,
    /// The size of a top that is made; `None`: that of the base.
    pub size: Option<u64>,
    /// Whether the top bypasses the page cache.
    pub direct: Direct,
    /// Whether what is below does. By default it does not: what is read of it is cached once for all overlays.
    pub base_direct: Direct,
}

pub(in crate::device) const SYNTAX: Syntax = Syntax {
    schemes: &["overlay"],
    form: "overlay:base=PATH,top=PATH",
    takes: "overlay:base=BASE,top=PATH\\|ephemeral=DIRECTORY[,size=SIZE][,direct=auto\\|on\\|off][,base_direct=auto\\|on\\|off]",
    parse,
};

impl BackingKind for Layered {
    fn about(&self) -> About<'_> {
        let base = self.base.as_ref().map_or_else(String::new, |base| format!("base={base},"));
        let size = self.size.map_or_else(String::new, |size| format!(",size={size}"));
        let direct = self.direct.option("direct", Direct::Auto);
        let base_direct = self.base_direct.option("base_direct", Direct::Off);
        let (key, what) = if self.is_ephemeral { ("ephemeral", "ephemeral ") } else { ("top", "") };
        let name = format!("overlay:{base}{key}={}", self.top.display());
        let of_top = || self.top.file_stem().map(|name| name.to_string_lossy().into_owned());
        let named = if self.is_ephemeral { self.base.as_ref().and_then(BaseAt::own_name) } else { of_top() };
        let own_name = named.unwrap_or_else(|| "overlay".into());
        let sized = self.size.map_or_else(String::new, |size| format!(", {}", show_size(size)));
        About {
            written: format!("{name}{size}{direct}{base_direct}"),
            shown: format!("{}, an {what}overlay{sized}", self.top.display()),
            outlives: !self.is_ephemeral,
            file: Some(&self.top),
            ..About::new(name.clone(), own_name)
        }
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        self.base.iter_mut().filter_map(BaseAt::path_mut).chain([&mut self.top]).collect()
    }

    /// Exports share a top, by its path: it may not be there yet. One without a name each has alone.
    fn sharing(&self, _disk: Option<usize>) -> Sharing {
        if self.is_ephemeral {
            return Sharing::None;
        }
        let path = absolute(&self.top).unwrap_or_else(|_| self.top.clone());
        Sharing::Name(format!("overlay:{}", path.display()))
    }

    fn forks(&self) -> Result<&dyn Forks, &'static str> {
        Ok(self)
    }

    fn resolved(&self, of: OfExport<'_>) -> Result<Option<Backing>, String> {
        let Some(BaseAt::Export(name)) = &self.base else { return Ok(None) };
        let base = BaseAt::of(of(name)?).map_err(|other| format!("its base export:{name} is {other}: {BASES}"))?;
        Ok(Some(Self { base: Some(base), ..self.clone() }.into()))
    }

    fn open(&self, read_only: bool, roots: &Roots) -> Result<Arc<dyn Device>, String> {
        Ok(Arc::new(Overlay::open(self, (read_only, true), roots)?))
    }

    fn try_open(&self, read_only: bool, roots: &Roots) -> Result<Arc<dyn Device>, String> {
        Ok(Arc::new(Overlay::open(self, (read_only, false), roots)?))
    }
}

impl Forks for Layered {
    fn beside(&self) -> (&Path, String) {
        (self.directory(), ".top".into())
    }

    fn forked(&self, now: NowBase, top: PathBuf, is_ephemeral: bool) -> Backing {
        Self { base: Some(now.base), top, is_ephemeral, size: now.size, ..self.clone() }.into()
    }
}

impl BaseAt {
    /// A backing, if others can lie over it; or how that is written.
    fn of(backing: Backing) -> Result<Self, String> {
        match backing {
            Backing::File(file) => Ok(file.path.into()),
            Backing::Overlay(layered) if !layered.is_ephemeral => Ok(layered.top.into()),
            Backing::Qcow2(_) | Backing::Nbd(_) => Ok(Self::Backing(backing)),
            other => Err(other.about().written),
        }
    }

    /// Its name, however it is opened.
    pub(super) fn called(&self) -> String {
        match self {
            Self::Backing(backing) => backing.about().name,
            other => other.to_string(),
        }
    }

    /// As the header of a top has it.
    pub(super) fn recorded(&self) -> io::Result<PathBuf> {
        Ok(match self.absolute()? {
            Self::File(path) => path,
            Self::Backing(Backing::Qcow2(image)) => image.path,
            other => other.called().into(),
        })
    }
}

impl Base {
    pub(super) fn at(&self) -> BaseAt {
        let path = self.path.clone();
        match self.is {
            Fingerprint::Raw { .. } | Fingerprint::Top { .. } => BaseAt::File(path),
            Fingerprint::Image { .. } => BaseAt::Backing(Qcow2 { path }.into()),
            Fingerprint::Named { .. } => BaseAt::Named(path.to_string_lossy().into_owned()),
        }
    }
}

impl Layered {
    pub(super) fn directory(&self) -> &Path {
        if self.is_ephemeral { &self.top } else { directory_of(&self.top) }
    }

    /// How the file of the top is opened.
    pub(super) fn access(&self) -> FileAccess {
        FileAccess { direct: self.direct, is_raw: true, ..FileAccess::default() }
    }
}

/// A base: what begins as a backing of another kind, or else the path of a file.
fn base_at(path: PathBuf, outside: &Outside) -> Result<BaseAt, String> {
    match path.to_str() {
        Some("export:") => Err("overlay: base=export: needs the name of an export of this server".into()),
        Some(text) if let Some(name) = text.strip_prefix("export:") => Ok(BaseAt::Export(name.into())),
        Some(text) if Backing::is_begun_by(text) => {
            let backing = Backing::parse(text, outside).map_err(|why| format!("overlay: base: {why}"))?;
            BaseAt::of(backing).map_err(|other| format!("overlay: base={other}: {BASES}"))
        }
        _ => Ok(path.into()),
    }
}

/// The error for something that cannot be a base.
const BASES: &str = "a base is a file, a block device, the top of another overlay, a qcow2 image (qcow2:PATH), an export of another NBD server (nbd:URI), or a read-only export of this server that is one of these (export:NAME); an image of Ceph is one when it is mapped (rbd map): its block device";

/// A comma that no known key follows is part of a path, as for files.
fn parse(text: &str, outside: &Outside) -> Result<Backing, String> {
    const KEYS: [&str; 6] = ["base", "top", "ephemeral", "size", "direct", "base_direct"];
    const FORM: &str = "overlay:base=PATH,top=PATH, as in overlay:base=debian.img,top=alice.top";
    let mut values: [Option<String>; 6] = Default::default();
    let mut last = None;
    for part in text.split(',') {
        let known =
            part.split_once('=').and_then(|(key, value)| Some((KEYS.iter().position(|one| *one == key)?, value)));
        match (known, last) {
            (Some((at, _)), _) if values[at].is_some() => return Err(format!("overlay: {} is given twice", KEYS[at])),
            (Some((at, value)), _) => (values[at], last) = (Some(value.to_owned()), Some(at)),
            // The rest of a path.
            (None, Some(at @ (0..=2))) => *values[at].as_mut().expect("it was given") += &format!(",{part}"),
            (None, _) => return Err(format!("overlay: \"{part}\" is none of {}: {FORM}", KEYS.join("=, ") + "=")),
        }
    }
    let [base, top, ephemeral, size, direct, base_direct] = values;
    let path = |key: &str, value: Option<String>| {
        value.map(|path| path_of(&path, || format!("overlay: {key} needs a path: {FORM}"))).transpose()
    };
    let (top, ephemeral, base) = (path("top", top)?, path("ephemeral", ephemeral)?, path("base", base)?);
    let is_ephemeral = ephemeral.is_some();
    if top.is_some() && is_ephemeral {
        return Err(
            "overlay: top=PATH is a top that stays, ephemeral=DIRECTORY one that does not: give one of the two".into(),
        );
    }
    if is_ephemeral && base.is_none() {
        return Err("overlay: ephemeral=DIRECTORY begins as its base each time, and needs one: base=PATH".into());
    }
    let top = top.or(ephemeral).ok_or_else(|| format!("overlay: needs a top: {FORM}"))?;
    let base = base.map(|base| base_at(base, outside)).transpose()?;
    if base == Some(top.clone().into()) {
        return Err("overlay: base and top are the same file".into());
    }
    let past = |value: Option<String>, usual| value.map_or(Ok(usual), |word| Direct::parse(&word));
    Ok(Layered {
        base,
        top,
        is_ephemeral,
        size: size.map(|size| parse_capacity(&size)).transpose().map_err(|why| format!("overlay: size: {why}"))?,
        direct: past(direct, Direct::Auto)?,
        base_direct: past(base_direct, Direct::Off)?,
    }
    .into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::backing::tests::OUTSIDE;

    fn layered(text: &str) -> Layered {
        match parse(text, &OUTSIDE) {
            Ok(Backing::Overlay(layered)) => *layered,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn an_overlay_is_read_as_it_is_written() {
        let plain = layered("base=debian.img,top=alice.top");
        assert_eq!(
            (plain.base, plain.top.as_path()),
            (Some(PathBuf::from("debian.img").into()), Path::new("alice.top"))
        );
        assert_eq!((plain.size, plain.direct, plain.base_direct), (None, Direct::Auto, Direct::Off));
        let all = layered("top=a,b,size=2g,base=c,d=e,direct=off,base_direct=on");
        assert_eq!(
            (all.top.as_path(), all.base, all.size),
            (Path::new("a,b"), Some(PathBuf::from("c,d=e").into()), Some(2 << 30))
        );
        assert_eq!(layered("top=t").base, None);
        for text in [
            "base=b,top=t",
            "base=qcow2:b,c,top=t",
            "base=export:gold,top=t",
            "base=nbd+unix:///gold?socket=s,top=t",
            "top=t",
            "base=b,ephemeral=d,x",
            "base=b,x,top=t,size=1g,direct=on,base_direct=auto",
        ] {
            let written = layered(text).about().written;
            assert_eq!(layered(written.strip_prefix("overlay:").unwrap()), layered(text), "{text}");
        }
        assert_eq!(layered("base=b,top=t").about().own_name, "t");
        assert_eq!(layered("base=b,top=t").paths(), [&PathBuf::from("b"), &PathBuf::from("t")]);
        assert_eq!(layered("base=qcow2:b,top=t").paths(), [&PathBuf::from("b"), &PathBuf::from("t")]);
        assert_eq!(layered("base=qcow2:b.qcow2,ephemeral=d").about().own_name, "b");
        assert_eq!(layered("base=file:b,top=t").base, Some(PathBuf::from("b").into()));
    }

    #[test]
    fn an_overlay_that_cannot_be_is_refused_with_what_is_possible() {
        for (text, why) in [
            ("", "is none of base=, top="),
            ("base=b", "needs a top"),
            ("top=", "top needs a path"),
            ("base=,top=t", "base needs a path"),
            ("base=t,top=t", "the same file"),
            ("base=mem:1g,top=t", "a base is a file"),
            ("base=rbd:vms/alice@gold,top=t", "rbd map"),
            ("base=export:,top=t", "needs the name of an export"),
            ("base=qcow2:,top=t", "qcow2: needs a path"),
            ("base=b,top=t,ephemeral=d", "one of the two"),
            ("ephemeral=d", "needs one: base=PATH"),
            ("base=b,ephemeral=", "ephemeral needs a path"),
            ("base=b,top=t,top=u", "top is given twice"),
            ("base=b,top=t,size=x", "size"),
            ("base=b,top=t,direct=maybe", "direct takes auto"),
            ("base=b,top=t,size=1g,cold", "\"cold\" is none of"),
        ] {
            let says = parse(text, &OUTSIDE).expect_err(text);
            assert!(says.contains(why), "{text}: {says}");
        }
    }
}
