//! Roots: the directories that the files of backings must lie in.
//!
//! A tenant that may add an export could have the server open any file that the server's user can open. Example: alice may write in
//! `/srv/images/alice`, and makes a symbolic link there to `/etc/shadow`; an export of that link would show alice the passwords. With
//! `roots = ["/srv/images"]` it is refused.
//!
//! roots.1  With roots, a file is opened beneath one of them. The kernel follows the path from the root's directory and refuses
//!          each step that leaves it (`openat2`, `RESOLVE_BENEATH`): `..`, an absolute symbolic link, a link of `/proc`.
//! roots.2  The roots' directories are opened once, when the server starts. A directory put in the place of a root later is not that root.
//! roots.3  A path is looked at in the roots before anything else is done with it, also if its file is open under another name.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::Backing;
use super::handed::{HandedFiles, Links};
use crate::Error;
use crate::sync::{Mutex, lock};

/// How often a path is followed anew while directories on it are moved.
const RETRIES: usize = 8;

/// A directory that files of backings must lie in: no path, and no symbolic link on it, leads out of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Root {
    /// Where it is.
    pub path: PathBuf,
    /// Where that was said, for messages: `server.roots`.
    pub source: String,
}

/// The directories that files must lie in; none: they may lie anywhere. Of a server that takes over, with the files that it is given (given.1).
#[derive(Clone, Default)]
pub(crate) struct Roots {
    all: Arc<[Held]>,
    handed: Option<Arc<Mutex<HandedFiles>>>,
}

struct Held {
    root: Root,
    directory: OwnedFd,
    /// Its names: as it was said, and without symbolic links.
    names: [PathBuf; 2],
}

/// A path, and where the kernel starts to follow it.
pub(crate) struct RootedPath<'a> {
    pub(crate) path: &'a Path,
    /// A root's directory, and the rest of the path from there; `None`: it may lead anywhere.
    beneath: Option<(&'a OwnedFd, PathBuf)>,
    handed: Option<&'a Mutex<HandedFiles>>,
}

/// Said of a file that a server does not hand over.
const NOT_HANDED: &str =
    "the running server does not have this file: it was replaced or renamed, or the config names another one";

impl Roots {
    pub(crate) fn open(roots: &[Root]) -> Result<Self, Error> {
        let open = |root: &Root| {
            let fail = |error: io::Error| Error::Root { path: root.path.clone(), why: error.to_string() };
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let directory = rustix::fs::open(&root.path, flags, Mode::empty()).map_err(|error| fail(error.into()))?;
            let names = [absolute(&root.path).map_err(fail)?, fs::canonicalize(&root.path).map_err(fail)?];
            Ok(Held { root: root.clone(), directory, names })
        };
        let all = roots.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Self { all, handed: None })
    }

    /// The same, where files are not opened but were handed over.
    pub(crate) fn with(&self, files: HandedFiles) -> Self {
        Self { all: Arc::clone(&self.all), handed: Some(Arc::new(Mutex::new(files))) }
    }

    pub(super) fn are_handed(&self) -> bool {
        self.handed.is_some()
    }

    pub(crate) fn opens(&self, export: &str) {
        self.handed.iter().for_each(|handed| lock(handed).opens(export));
    }

    /// The file without a name that was handed over for the export, if files are.
    pub(super) fn unnamed(&self) -> Result<Option<fs::File>, String> {
        let Some(handed) = &self.handed else { return Ok(None) };
        let file = lock(handed).take_unnamed();
        file.map(Some).ok_or_else(|| "the running server has no such disk".into())
    }

    /// The handed-over connections to the backing of this name, if there are some.
    pub(super) fn links(&self, name: &str) -> Option<Links> {
        lock(self.handed.as_ref()?).take_links(name)
    }

    /// How many of the files that were handed over nobody has taken.
    pub(crate) fn left(&self) -> usize {
        self.handed.as_ref().map_or(0, |handed| lock(handed).left())
    }

    /// Where the kernel starts to follow a path (roots.1), or why that is refused.
    pub(crate) fn place<'a>(&'a self, path: &'a Path) -> Result<RootedPath<'a>, String> {
        let handed = self.handed.as_deref();
        if self.all.is_empty() {
            return Ok(RootedPath { path, beneath: None, handed });
        }
        let whole = absolute(path).map_err(|error| error.to_string())?;
        let mut leads_out = None;
        for root in &*self.all {
            let Some(rest) = root.names.iter().find_map(|name| whole.strip_prefix(name).ok()) else { continue };
            let beneath = Some((&root.directory, Path::new(".").join(rest)));
            let place = RootedPath { path, beneath, handed };
            match place.open(OFlags::PATH) {
                Err(error) if matches!(error.raw_os_error(), Some(libc::EXDEV | libc::ELOOP)) => leads_out = Some(root),
                // The device that opens the file reports other faults.
                _ => return Ok(place),
            }
        }
        Err(match leads_out {
            Some(Held { root, .. }) => format!(
                "leads out of {}, by \"..\" or a symbolic link that is absolute or points outside; files are served from \
                 beneath it only ({})",
                root.path.display(),
                root.source
            ),
            None => format!("is not in {}", self.shown()),
        })
    }

    /// Whether a backing may be served: a file must lie in one of them (roots.3).
    pub(crate) fn check(&self, backing: &Backing) -> Result<(), Error> {
        let Some(path) = backing.about().file else { return Ok(()) };
        let refused = |why| Error::Backing { what: format!("file:{}", path.display()), why };
        self.place(path).map(drop).map_err(refused)
    }

    fn shown(&self) -> String {
        let shown: Vec<_> = self.all.iter().map(|held| held.root.path.display().to_string()).collect();
        let shown = shown.join(" or ");
        let origin = self.all.first().map_or("", |held| &held.root.source);
        format!("{shown}, and files are served from there only ({origin})")
    }
}

pub(crate) fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|one| !one.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl<'a> RootedPath<'a> {
    pub(crate) fn anywhere(path: &'a Path) -> Self {
        Self { path, beneath: None, handed: None }
    }

    /// The open file that another server hands over, if files are handed over (given.1).
    pub(super) fn handed(&self, direct: bool, read_only: bool) -> Result<Option<fs::File>, String> {
        let Some(handed) = self.handed else { return Ok(None) };
        let there = self.metadata().map_err(|error| error.to_string())?;
        lock(handed).take(&there, direct, read_only).map(Some).ok_or_else(|| NOT_HANDED.into())
    }

    pub(crate) fn open(&self, flags: OFlags) -> io::Result<fs::File> {
        self.open_as(flags, Mode::empty())
    }

    fn open_as(&self, flags: OFlags, mode: Mode) -> io::Result<fs::File> {
        let flags = flags | OFlags::CLOEXEC;
        let opened = rustix::io::retry_on_intr(|| match &self.beneath {
            None => rustix::fs::open(self.path, flags, mode),
            Some((root, rest)) => {
                let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
                let open = || rustix::fs::openat2(root, rest, flags, mode, within);
                // A directory was moved meanwhile, and the path goes up by `..`: the kernel cannot tell where it is then.
                let settled = |opened: &Result<_, _>| !matches!(opened, Err(Errno::AGAIN));
                (0..RETRIES).map(|_| open()).find(settled).unwrap_or(Err(Errno::AGAIN))
            }
        });
        Ok(opened?.into())
    }

    /// Opens a file to be written that is made if it is not there, for its owner alone; whether it was made.
    pub(crate) fn make(&self) -> io::Result<(fs::File, bool)> {
        match self.open_as(OFlags::RDWR | OFlags::CREATE | OFlags::EXCL, Mode::RUSR | Mode::WUSR) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok((self.open(OFlags::RDWR)?, false)),
            made => Ok((made?, true)),
        }
    }

    /// Makes a file without a name, in this directory, for its owner alone: it goes when it is closed. Where the file system knows no such
    /// files it has a name for a moment.
    pub(crate) fn make_unnamed(&self) -> io::Result<fs::File> {
        match self.open_as(OFlags::RDWR | OFlags::TMPFILE, Mode::RUSR | Mode::WUSR) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR)) => {
                self.make_and_unlink()
            }
            made => made,
        }
    }

    fn make_and_unlink(&self) -> io::Result<fs::File> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let directory = self.open(OFlags::RDONLY | OFlags::DIRECTORY)?;
        let name = format!(".fairlift.{}.{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&directory, &*name, flags, Mode::RUSR | Mode::WUSR)?;
        rustix::fs::unlinkat(&directory, &*name, AtFlags::empty())?;
        Ok(file.into())
    }

    pub(crate) fn sync_directory(&self) -> io::Result<()> {
        fs::File::open(directory_of(self.path))?.sync_all()
    }

    /// The metadata of the place; opening it could wait, as that of a fifo does for its other end.
    pub(crate) fn metadata(&self) -> io::Result<fs::Metadata> {
        self.open(OFlags::PATH)?.metadata()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt as _, symlink};

    /// A root with an image and a directory, beside a secret.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str) -> Self {
            let tree = std::env::temp_dir().join(format!("fairlift-roots-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&tree);
            fs::create_dir_all(tree.join("root/below")).unwrap();
            fs::write(tree.join("root/image"), "image").unwrap();
            fs::write(tree.join("secret"), "secret").unwrap();
            Self(tree)
        }

        fn roots(&self, names: &[&str]) -> Roots {
            let root = |name: &&str| Root { path: self.0.join(name), source: "server.roots".into() };
            Roots::open(&names.iter().map(root).collect::<Vec<_>>()).unwrap()
        }

        /// The text at a path, or the reason why there is none.
        fn read(&self, roots: &Roots, path: &str) -> Result<String, String> {
            let path = self.0.join(path);
            let file = roots.place(&path)?.open(OFlags::RDONLY).map_err(|error| error.to_string())?;
            Ok(io::read_to_string(file).unwrap())
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_without_a_name_lies_beneath_a_root_and_leaves_nothing_there() {
        let tree = Tree::new("unnamed");
        let roots = tree.roots(&["root"]);
        let names = |path: &str| fs::read_dir(tree.0.join(path)).unwrap().count();
        let before = names("root/below");
        let path = tree.0.join("root/below");
        let place = roots.place(&path).unwrap();
        for file in [place.make_unnamed().unwrap(), place.make_and_unlink().unwrap()] {
            file.set_len(10).unwrap();
            assert_eq!((names("root/below"), file.metadata().unwrap().nlink()), (before, 0));
        }
        let out = tree.0.join("root/below/../..");
        assert!(roots.place(&out).is_err());
    }

    /// roots.1
    #[test]
    fn what_lies_beneath_a_root_is_opened_and_nothing_else() {
        let tree = Tree::new("beneath");
        let link = |target: &Path, name: &str| symlink(target, tree.0.join("root").join(name)).unwrap();
        link(Path::new("image"), "inside");
        link(Path::new("../secret"), "outside");
        link(&tree.0.join("secret"), "absolute");
        link(Path::new("below/../image"), "winding");
        let roots = tree.roots(&["root"]);
        for path in ["root/image", "root/below/../image", "root/inside", "root/winding"] {
            assert_eq!(tree.read(&roots, path).as_deref(), Ok("image"), "{path}");
        }
        for path in ["root/outside", "root/absolute", "root/../secret", "root/below/../../secret"] {
            let why = tree.read(&roots, path).unwrap_err();
            assert!(why.starts_with("leads out of ") && why.ends_with("(server.roots)"), "{path}: {why}");
        }
        for path in ["secret", "rooted", "/dev/null"] {
            let why = tree.read(&roots, path).unwrap_err();
            assert!(why.starts_with("is not in ") && why.ends_with("(server.roots)"), "{path}: {why}");
        }
        assert!(tree.read(&roots, "root/none").unwrap_err().starts_with("No such file"), "it may be there");
        assert!(roots.place(&tree.0.join("root")).unwrap().metadata().unwrap().is_dir());
    }

    /// roots.2
    #[test]
    fn what_takes_the_place_of_a_root_is_another_directory() {
        let tree = Tree::new("moved");
        let roots = tree.roots(&["root"]);
        fs::rename(tree.0.join("root"), tree.0.join("old")).unwrap();
        symlink(&tree.0, tree.0.join("root")).unwrap();
        assert!(tree.read(&roots, "root/secret").is_err());
        assert_eq!(tree.read(&roots, "root/image").as_deref(), Ok("image"));
    }

    #[test]
    fn a_root_has_two_names_and_there_may_be_several_roots() {
        let tree = Tree::new("names");
        symlink("root", tree.0.join("link")).unwrap();
        let roots = tree.roots(&["link", "root/below"]);
        assert_eq!(tree.read(&roots, "root/image").as_deref(), Ok("image"));
        assert_eq!(tree.read(&roots, "link/image").as_deref(), Ok("image"));
        let why = tree.read(&roots, "secret").unwrap_err();
        assert!(why.contains("link or ") && why.contains("root/below"), "{why}");
        assert_eq!(tree.read(&Roots::default(), "secret").as_deref(), Ok("secret"), "without roots");
    }

    #[test]
    fn a_root_that_is_not_there_or_no_directory_is_refused() {
        let tree = Tree::new("absent");
        for name in ["none", "secret"] {
            let root = Root { path: tree.0.join(name), source: String::new() };
            assert!(matches!(Roots::open(&[root]), Err(Error::Root { .. })), "{name}");
        }
    }
}
