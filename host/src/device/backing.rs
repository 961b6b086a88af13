//! The facts of a backing before it is open: its text, the key by which exports share it, its files.
//!
//! A kind of backing has all of this in its own file or folder, and a row in [`device`](super).

use std::fmt;
use std::io;
use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;

use fairlift_core::suggestion;

use super::roots::Roots;
use super::{Backing, Device, Factory, Layer, LoadCertificates};
use crate::Error;

/// How people write the backings of a kind.
pub(crate) struct Syntax {
    /// The words before the first colon.
    pub(super) schemes: &'static [&'static str],
    /// In short: `rbd:POOL/IMAGE`.
    pub(super) form: &'static str,
    pub(super) takes: &'static str,
    /// Reads what follows the colon; the whole text where there is more than one scheme.
    ///
    /// # Errors
    /// The mistake, and the possible forms.
    pub(super) parse: fn(&str, &Outside) -> Result<Backing, String>,
}

/// The needs of some kinds, in crates that this one does not know.
#[derive(Clone, Copy, Debug)]
pub struct Outside {
    /// Reads `PROFILE[,parameter=VALUE…]`: the size of a modelled disk, and its maker.
    pub model: fn(&str) -> Result<(u64, Factory), String>,
    /// Reads the certificates with which a server is met.
    pub certificates: LoadCertificates,
}

/// A part of a backing that is made from the other parts: it tells no two backings apart.
#[derive(Clone, Copy)]
pub struct Opaque<T>(pub T);

impl<T> PartialEq for Opaque<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for Opaque<T> {}

impl<T> fmt::Debug for Opaque<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// The key that exports of one device have in common.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Sharing {
    /// Each has its own.
    None,
    /// A file or block device, whatever its name.
    File(u64, u64),
    Name(String),
}

/// The facts of a backing before it is open.
pub struct About<'a> {
    /// How it is written: reading that gives the same backing.
    pub written: String,
    /// Its name in messages.
    pub name: String,
    /// The name of the device in messages, and of one that cannot be opened.
    pub opened: String,
    /// The default name of its export.
    pub own_name: String,
    /// It in a few words, for people.
    pub shown: String,
    /// Its size in bytes, if it says that itself.
    pub size: Option<u64>,
    /// Whether its data is there after its server was killed, and nothing is owed to it.
    pub(crate) outlives: bool,
    /// The file that it is, or that it is made of: it must lie in the roots.
    pub(crate) file: Option<&'a Path>,
}

impl About<'_> {
    /// Of what is called as it is written.
    pub(super) fn new(written: String, own_name: impl Into<String>) -> Self {
        let [name, opened, shown] = [(); 3].map(|()| written.clone());
        Self { written, name, opened, own_name: own_name.into(), shown, size: None, outlives: false, file: None }
    }
}

/// The properties that a kind of backing declares.
pub(crate) trait BackingKind {
    fn about(&self) -> About<'_>;

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        Vec::new()
    }

    /// The key by which exports share it, if they name a disk of this number.
    fn sharing(&self, _disk: Option<usize>) -> Sharing {
        Sharing::None
    }

    fn forks(&self) -> Result<&dyn Forks, &'static str> {
        Err(
            "only an overlay can be forked, and a file where its file system has reflinks: serve it as overlay:base=PATH,top=PATH",
        )
    }

    /// The backing with that of an export put in, if it names one; `None`: it names none.
    fn resolved(&self, _of: OfExport<'_>) -> Result<Option<Backing>, String> {
        Ok(None)
    }

    /// Opens it, a file in the roots; where another server hands files over, by those (given.1). Or why it cannot be opened.
    fn open(&self, read_only: bool, roots: &Roots) -> Result<Arc<dyn Device>, String>;

    /// Opens it for others to lie over, if it is of a kind that [`BaseAt::Backing`] can be.
    fn open_below(&self, _roots: &Roots) -> Result<Arc<dyn Layer>, String> {
        Err("others cannot lie over it".into())
    }

    /// Opens it to see whether it can be opened, and its properties: nothing of it is changed, and nothing is made.
    fn try_open(&self, read_only: bool, roots: &Roots) -> Result<Arc<dyn Device>, String> {
        self.open(read_only, roots)
    }
}

/// A base that others can lie over, as people write it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BaseAt {
    /// A file of bare bytes, or the top of an overlay.
    File(PathBuf),
    /// A backing of another kind.
    Backing(Backing),
    /// The backing of an export of this server, by the export's name.
    Export(String),
    /// The base that the header of a top names; only who serves the top can open it.
    Named(String),
}

/// The backing of the export of a name, if others may lie over it; or why not.
pub(crate) type OfExport<'a> = &'a dyn Fn(&str) -> Result<Backing, String>;

impl BaseAt {
    /// The path that it names, if it is made of files.
    pub(super) fn path_mut(&mut self) -> Option<&mut PathBuf> {
        match self {
            Self::File(path) => Some(path),
            Self::Backing(backing) => backing.paths().pop(),
            Self::Export(_) | Self::Named(_) => None,
        }
    }

    /// It, wherever the process is: with a path from the root.
    pub(super) fn absolute(&self) -> io::Result<Self> {
        let mut whole = self.clone();
        if let Some(path) = whole.path_mut() {
            *path = absolute(&*path)?;
        }
        Ok(whole)
    }

    /// The name of an export of it that nobody named.
    pub(super) fn own_name(&self) -> Option<String> {
        match self {
            Self::File(path) => Some(path.file_stem()?.to_string_lossy().into_owned()),
            Self::Backing(backing) => Some(backing.about().own_name),
            Self::Export(name) | Self::Named(name) => Some(name.clone()),
        }
    }
}

impl fmt::Display for BaseAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Backing(backing) => f.write_str(&backing.about().written),
            Self::Export(name) => write!(f, "export:{name}"),
            Self::Named(text) => f.write_str(text),
        }
    }
}

impl From<PathBuf> for BaseAt {
    fn from(path: PathBuf) -> Self {
        Self::File(path)
    }
}

/// The origin of a fork, with the content of a device at one instant: the layers below it, or a copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NowBase {
    pub(crate) base: BaseAt,
    /// Of the disk, where that is not what the base has.
    pub(crate) size: Option<u64>,
}

/// A kind of backing that can be forked.
pub(crate) trait Forks {
    /// Where a fork has its file if nobody says another place: a directory, and how the name ends there.
    fn beside(&self) -> (&Path, String);

    /// The backing of a fork's export: over the layers that the device has become, with this file, or with one without a name in this directory.
    fn forked(&self, now: NowBase, own: PathBuf, is_ephemeral: bool) -> Backing;

    /// Why no fork of it can be ephemeral, if none can.
    fn is_never_ephemeral(&self) -> Option<&'static str> {
        None
    }
}

macro_rules! backings {
    ($($($at:ident)::+ => $variant:ident($kind:ident $(, $more:ident)*),)*) => {
        /// The backings of configs, by their kinds.
        pub(crate) mod kinds {
            $(pub use super::$($at)::+::{$kind $(, $more)*};)*

            /// The backing.
            #[derive(Clone, PartialEq, Eq, Debug)]
            pub enum Backing {
                $(#[doc = concat!("As [`", stringify!($kind), "`] says.")] $variant(Box<$kind>),)*
            }

            $(impl From<$kind> for Backing {
                fn from(backing: $kind) -> Self {
                    Self::$variant(Box::new(backing))
                }
            })*

            impl Backing {
                pub(super) const KINDS: &[super::backing::Syntax] = &[$(super::$($at)::+::SYNTAX),*];

                pub(super) fn kind(&self) -> &dyn super::backing::BackingKind {
                    match self {
                        $(Self::$variant(backing) => &**backing,)*
                    }
                }

                pub(super) fn kind_mut(&mut self) -> &mut dyn super::backing::BackingKind {
                    match self {
                        $(Self::$variant(backing) => &mut **backing,)*
                    }
                }
            }
        }
    };
}

pub(super) use backings;

impl Backing {
    /// Reads a backing. Text without a kind in front is the path of a file.
    ///
    /// # Errors
    /// The kind or an option is unknown, or a value is malformed.
    pub fn parse(text: &str, outside: &Outside) -> Result<Self, String> {
        if text.is_empty() {
            return Err(format!("a backing is needed: {}", Self::forms(" or ")));
        }
        let Some((scheme, rest)) = text.split_once(':') else { return Self::parse(&format!("file:{text}"), outside) };
        match Self::KINDS.iter().find(|syntax| syntax.schemes.contains(&scheme)) {
            Some(Syntax { schemes: [_], parse, .. }) => parse(rest, outside),
            Some(syntax) => (syntax.parse)(text, outside),
            None if scheme.contains('/') || Path::new(text).exists() => Self::parse(&format!("file:{text}"), outside),
            None if ["qcow", "vmdk", "vdi", "vhdx", "vpc"].contains(&scheme) => Err(format!(
                "only raw images are served; convert this one (qemu-img convert -f {scheme} -O raw {rest} NEW.img), or have \
                 qemu-storage-daemon serve it, and this server in front of that (nbd:URI)"
            )),
            None => Err(format!(
                "unknown backing \"{scheme}:\": the backings are {}{}",
                Self::forms(" and "),
                suggestion(scheme, Self::KINDS.iter().map(|syntax| syntax.schemes[0]))
            )),
        }
    }

    /// Whether a text begins as a kind of backing does.
    #[must_use]
    pub fn is_begun_by(text: &str) -> bool {
        text.split_once(':')
            .is_some_and(|(scheme, _)| Self::KINDS.iter().any(|syntax| syntax.schemes.contains(&scheme)))
    }

    /// How a kind of backing is written, by its name.
    #[must_use]
    pub fn form_of(kind: &str) -> Option<&'static str> {
        Self::KINDS.iter().find(|syntax| syntax.schemes.contains(&kind)).map(|syntax| syntax.form)
    }

    /// All kinds in short, the last after `last`.
    #[must_use]
    pub fn forms(last: &str) -> String {
        let all: Vec<&str> = Self::KINDS.iter().map(|syntax| syntax.form).collect();
        let (end, first) = all.split_last().unwrap_or((&"", &[]));
        first.join(", ") + last + end
    }

    /// All kinds with their forms, for documents.
    #[must_use]
    pub fn takes() -> String {
        Self::KINDS.iter().map(|syntax| format!("`{}`, ", syntax.takes)).collect::<String>() + "or a path"
    }

    /// The facts known before it is open.
    #[must_use]
    pub fn about(&self) -> About<'_> {
        self.kind().about()
    }

    /// Whether what is written of it is read as it again: a path that ends as an option does is not.
    pub(crate) fn is_read_as_written(&self) -> bool {
        let outside = Outside { model: |_| Err("no model".into()), certificates: |_| Err("no certificates".into()) };
        Self::parse(&self.about().written, &outside).is_ok_and(|read| read == *self)
    }

    /// The paths that it names.
    pub fn paths(&mut self) -> Vec<&mut PathBuf> {
        self.kind_mut().paths()
    }

    pub(crate) fn forks(&self) -> Result<&dyn Forks, &'static str> {
        self.kind().forks()
    }

    pub(crate) fn sharing(&self, disk: Option<usize>) -> Sharing {
        self.kind().sharing(disk)
    }

    pub(crate) fn resolved(&self, of: OfExport<'_>) -> Result<Self, String> {
        Ok(self.kind().resolved(of)?.unwrap_or_else(|| self.clone()))
    }

    pub(crate) fn open(&self, read_only: bool, roots: &Roots) -> Result<Arc<dyn Device>, Error> {
        self.kind().open(read_only, roots).map_err(|why| self.refused(why))
    }

    pub(crate) fn try_open(&self, read_only: bool, roots: &Roots) -> Result<Arc<dyn Device>, Error> {
        self.kind().try_open(read_only, roots).map_err(|why| self.refused(why))
    }

    pub(crate) fn refused(&self, why: String) -> Error {
        Error::Backing { what: self.about().opened, why }
    }
}

/// A path as people write it; `needs`: the mistake where there is none.
pub(super) fn path_of(text: &str, needs: impl FnOnce() -> String) -> Result<PathBuf, String> {
    match text {
        "" => Err(needs()),
        _ if text.contains('\0') => Err("a path cannot contain a NUL character".into()),
        _ => Ok(text.into()),
    }
}

/// `MAIN,KEY=VALUE,…` of a kind, taken apart.
pub(crate) struct Options<'a> {
    kind: &'static str,
    pub(crate) main: &'a str,
    rest: Vec<(&'a str, &'a str)>,
}

impl<'a> Options<'a> {
    /// # Errors
    /// An option is none of those `known`, or is given twice.
    pub(crate) fn new(kind: &'static str, known: &'static [&'static str], text: &'a str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let main = parts.next().unwrap_or_default();
        let mut rest: Vec<(&str, &str)> = Vec::new();
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            if known.is_empty() {
                return Err(format!("unknown option \"{key}\": {kind}: takes only a size"));
            }
            if !known.contains(&key) {
                let (all, other) = (known.join(", "), suggestion(key, known.iter().copied()));
                return Err(format!("unknown option \"{key}\": {kind}: takes {all}{other}"));
            }
            if rest.iter().any(|(there, _)| *there == key) {
                return Err(format!("{kind}: {key} is given twice"));
            }
            rest.push((key, value));
        }
        Ok(Self { kind, main, rest })
    }

    pub(crate) fn get(&self, key: &str) -> Option<&'a str> {
        self.rest.iter().find(|(there, _)| *there == key).map(|(_, value)| *value)
    }

    /// The text of an option, if it is given.
    ///
    /// # Errors
    /// It is empty.
    pub(crate) fn text(&self, key: &str) -> Result<Option<&'a str>, String> {
        match self.get(key) {
            Some("") => Err(format!("{}: {key} needs a value", self.kind)),
            other => Ok(other),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Of nothing but this crate.
    pub(in crate::device) const OUTSIDE: Outside =
        Outside { model: |text| Err(format!("no model: {text}")), certificates: |_| Err("no certificates".into()) };
}
