//! A file as a backing, as people write it: `file:PATH[,direct=auto|on|off][,in_use=allow][,format=raw][,shared]`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::File;
use crate::device::backing::{About, BackingKind, Forks, NowBase, Outside, Sharing, Syntax, path_of};
use crate::device::handed;
use crate::device::roots::{Roots, directory_of};
use crate::device::{Backing, Device};

/// A regular file or a block device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileAt {
    /// Where it is.
    pub path: PathBuf,
    /// How it is opened, and which files are accepted.
    pub access: FileAccess,
}

impl FileAt {
    /// A file, opened as its file system takes it.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), access: FileAccess::default() }
    }
}

/// How a file is opened, and which files are accepted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FileAccess {
    /// Whether the page cache is bypassed.
    pub direct: Direct,
    /// Whether a block device is taken that is mounted, or held by another program: two that write to one device destroy what is on it, and a
    /// reader beside a writer sees halves of changes.
    pub may_be_in_use: bool,
    /// Whether a file is taken that begins as an image of another format does: its bytes are served as they are.
    pub is_raw: bool,
    /// Whether it is taken though another export writes to the same bytes.
    pub is_shared: bool,
}

/// Whether a file is used with direct I/O, past the page cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Direct {
    /// Where the file system takes it.
    #[default]
    Auto,
    /// Always; opening fails where it is not possible.
    On,
    /// Never.
    Off,
}

impl Direct {
    const fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        }
    }

    /// As an option behind a path; nothing where it is the usual one.
    pub(in crate::device) fn option(self, key: &str, usual: Self) -> String {
        if self == usual { String::new() } else { format!(",{key}={}", self.word()) }
    }

    pub(in crate::device) fn parse(word: &str) -> Result<Self, String> {
        let known = [Self::Auto, Self::On, Self::Off].into_iter().find(|one| one.word() == word);
        known.ok_or_else(|| format!("direct takes auto, on or off, not \"{word}\""))
    }
}

pub(in crate::device) const SYNTAX: Syntax = Syntax {
    schemes: &["file"],
    form: "file:PATH",
    takes: "file:PATH[,direct=auto\\|on\\|off][,in_use=allow][,format=raw][,shared]",
    parse,
};

impl BackingKind for FileAt {
    fn about(&self) -> About<'_> {
        let direct = self.access.direct.option("direct", Direct::Auto);
        let in_use = if self.access.may_be_in_use { ",in_use=allow" } else { "" };
        let raw = if self.access.is_raw { ",format=raw" } else { "" };
        let shared = if self.access.is_shared { ",shared" } else { "" };
        let name = format!("file:{}", self.path.display());
        let own_name = self.path.file_name().map_or("file".into(), |name| name.to_string_lossy());
        About {
            written: format!("{name}{direct}{in_use}{raw}{shared}"),
            shown: self.path.display().to_string(),
            outlives: true,
            file: Some(&self.path),
            ..About::new(name, own_name)
        }
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        vec![&mut self.path]
    }

    /// Exports share a file, whatever they call it.
    fn sharing(&self, _disk: Option<usize>) -> Sharing {
        fs::metadata(&self.path).map_or(Sharing::None, |metadata| handed::of(&metadata))
    }

    fn forks(&self) -> Result<&dyn Forks, &'static str> {
        Ok(self)
    }

    fn open(&self, read_only: bool, roots: &Roots) -> Result<Arc<dyn Device>, String> {
        Ok(Arc::new(File::open(&roots.place(&self.path)?, self.access, read_only)?))
    }
}

impl Forks for FileAt {
    fn beside(&self) -> (&Path, String) {
        let ending = self.path.extension().map_or_else(String::new, |one| format!(".{}", one.to_string_lossy()));
        (directory_of(&self.path), ending)
    }

    fn forked(&self, _now: NowBase, own: PathBuf, _is_ephemeral: bool) -> Backing {
        Self { path: own, access: FileAccess { is_shared: false, ..self.access } }.into()
    }

    fn is_never_ephemeral(&self) -> Option<&'static str> {
        Some("is no overlay, and only the fork of one can be ephemeral: fork it without that, and delete the file")
    }
}

/// Reads `PATH[,direct=…][,in_use=…][,format=raw][,shared]`. Only a known option parts from the path, for paths may contain commas.
fn parse(text: &str, _: &Outside) -> Result<Backing, String> {
    let (mut path, mut access, mut given) = (text, FileAccess::default(), Vec::new());
    while let Some((before, option)) = path.rsplit_once(',') {
        let (key, value) = option.split_once('=').map_or((option, None), |(key, value)| (key, Some(value)));
        match (key, value) {
            ("direct", Some(word)) => access.direct = Direct::parse(word)?,
            ("in_use", Some("refuse")) => {}
            ("in_use", Some("allow")) => access.may_be_in_use = true,
            ("in_use", Some(other)) => return Err(format!("in_use takes refuse or allow, not \"{other}\"")),
            ("format", Some("raw")) => access.is_raw = true,
            ("format", Some(other)) => {
                return Err(format!("format takes raw, for only raw images are served, not \"{other}\""));
            }
            ("shared", None) => access.is_shared = true,
            _ => break,
        }
        if given.contains(&key) {
            return Err(format!("file: {key} is given twice"));
        }
        given.push(key);
        path = before;
    }
    Ok(FileAt { path: path_of(path, || "file: needs a path".into())?, access }.into())
}
