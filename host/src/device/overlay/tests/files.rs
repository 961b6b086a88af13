//! Tops in real files: made once, known again, over each other.

use std::path::PathBuf;
use std::time::SystemTime;

use super::super::*;
use crate::config;

/// A directory with a base of 1 MiB.
pub(in super::super) struct Directory(PathBuf);

impl Directory {
    pub(in super::super) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("fairlift-overlay-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("base"), vec![3; 1 << 20]).unwrap();
        Self(path)
    }

    pub(in super::super) fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(in super::super) fn open(&self, words: &str) -> Result<Arc<dyn Device>, String> {
        self.parse(words)?.open(false, &Default::default()).map_err(|error| error.to_string())
    }

    fn tries(&self, words: &str) -> Result<Arc<dyn Device>, String> {
        self.parse(words)?.try_open(false, &Default::default()).map_err(|error| error.to_string())
    }

    /// All that is in it: names, contents, times of change.
    fn all(&self) -> Vec<(PathBuf, SystemTime, Option<Vec<u8>>)> {
        let one = |path: PathBuf| {
            let changed = std::fs::metadata(&path).unwrap().modified().unwrap();
            let content = std::fs::read(&path).ok();
            (path, changed, content)
        };
        let files = std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path());
        files.chain([self.0.clone()]).map(one).collect()
    }

    pub(in super::super) fn parse(&self, words: &str) -> Result<config::Backing, String> {
        let words = words.split(',').map(|word| match word.split_once('=') {
            Some((key @ ("base" | "top" | "ephemeral"), name)) => format!("{key}={}", self.at(name).display()),
            _ => word.to_owned(),
        });
        let text = format!("overlay:{}", words.collect::<Vec<_>>().join(","));
        config::Backing::parse(&text, &crate::device::backing::tests::OUTSIDE)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// make.1, overlay.5
#[test]
fn a_top_is_made_once_and_known_again_and_its_base_must_be_as_it_was() {
    let directory = Directory::new("made");
    let refused = |words: &str| directory.open(words).map(drop).unwrap_err();
    let made = directory.open("base=base,top=a").unwrap();
    assert_eq!((made.facts().size, made.facts().limits.block), (1 << 20, 1));
    assert!(made.run(0, 1 << 20).unwrap().len == 1 << 20);
    drop(made);
    drop(directory.open("base=base,top=a").unwrap());
    drop(directory.open("top=a").unwrap());
    assert!(refused("top=b").contains("does not exist; to make it, give its base"));
    assert!(refused("base=base,top=b,size=512k").contains("less than its base has (1048576 bytes)"));
    assert!(!directory.at("b").exists(), "what is refused leaves nothing");
    assert!(refused("base=base,top=a,size=2m").contains("a disk of 1048576 bytes, and not of 2097152"));
    assert_eq!(directory.open("base=base,top=b,size=2m").unwrap().facts().size, 2 << 20);
    let found = look(&directory.at("a")).unwrap();
    assert_eq!((found.header.opened, found.findings.len(), found.data), (3, 0, 0));
    std::fs::write(directory.at("other"), [1; 4096]).unwrap();
    let why = refused("base=other,top=a");
    let [given, recorded] = ["other", "base"].map(|name| directory.at(name).display().to_string());
    assert!(why.contains(&format!("is over another base than {given}: over {recorded}, or a copy")), "{why}");
    std::fs::write(directory.at("empty"), []).unwrap();
    drop(directory.open("base=base,top=empty").unwrap());
    assert!(refused("top=other").contains("no overlay's top"));
    std::fs::write(directory.at("base"), vec![4; 1 << 20]).unwrap();
    let why = refused("top=a");
    assert!(
        why.contains("was changed since: its time of change is another") && why.contains("begin with a new top"),
        "{why}"
    );
    assert!(look(&directory.at("a")).unwrap().findings[0].is_fatal);
}

/// make.2, overlay.5: a chain, and the content of its middle.
#[test]
fn tops_lie_over_tops_up_to_eight_and_what_is_below_is_opened_once() {
    let directory = Directory::new("chain");
    let refused = |words: &str| directory.open(words).map(drop).unwrap_err();
    let mut below = "base".to_owned();
    for layer in 1..=8 {
        let top = format!("t{layer}");
        drop(directory.open(&format!("base={below},top={top}")).unwrap());
        below = top;
    }
    assert!(refused("base=t8,top=t9").contains("more than 8 overlays"));
    let (one, two) = (directory.open("base=t2,top=x").unwrap(), directory.open("base=t2,top=y").unwrap());
    let count = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let open = count.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|path| path == directory.at("t2"))).count();
    assert_eq!(open, 1, "both have it by one descriptor");
    drop((one, two));
    drop(directory.open("top=t2").unwrap());
    assert!(refused("top=x").contains("was opened for writing since"));
    assert!(look(&directory.at("t3")).unwrap().findings[0].what.contains("was opened for writing since"));
    assert_eq!(look(&directory.at("t2")).unwrap().below, [directory.at("t1"), directory.at("base")]);
}

/// make.4
#[test]
fn what_is_tried_is_refused_as_it_would_be_and_nothing_is_made_or_written() {
    let directory = Directory::new("tried");
    drop(directory.open("base=base,top=a").unwrap());
    drop(directory.open("base=a,top=b").unwrap());
    std::fs::write(directory.at("empty"), []).unwrap();
    std::fs::write(directory.at("other"), [1; 4096]).unwrap();
    let before = directory.all();
    for words in ["base=base,top=a", "top=b", "base=base,top=new", "base=a,top=new", "base=base,top=empty"] {
        let facts = directory.tries(words).unwrap().facts();
        assert_eq!((facts.size, facts.read_only), (1 << 20, false), "{words}");
        assert!(facts.home.is_some(), "it is on the disk where its top would be");
    }
    assert_eq!(directory.tries("base=base,top=new,size=2m").unwrap().facts().size, 2 << 20);
    for words in [
        "top=none",
        "base=none,top=new",
        "base=base,top=new,size=512k",
        "base=base,top=none/new",
        "base=other,top=a",
        "base=other,top=b",
        "base=b,top=other",
        "base=base,top=a,size=2m",
    ] {
        let why = directory.tries(words).map(drop).unwrap_err();
        assert!(directory.all() == before, "{words}");
        assert_eq!(directory.open(words).map(drop), Err(why), "{words}");
    }
    assert!(directory.all() == before, "what is tried or refused leaves all as it was");
}

/// make.5
#[test]
fn an_ephemeral_top_has_no_name_and_is_gone_when_it_is_closed() {
    let directory = Directory::new("ephemeral");
    std::fs::create_dir(directory.at("tops")).unwrap();
    let words = "base=base,ephemeral=tops";
    let layered = directory.parse(words).unwrap();
    assert_eq!((layered.sharing(None), layered.about().outlives), (crate::device::Sharing::None, false));
    let open = || directory.open(words).unwrap();
    let is_empty = || std::fs::read_dir(directory.at("tops")).unwrap().next().is_none();
    for one in [open(), directory.tries(words).unwrap()] {
        let facts = one.facts();
        assert_eq!((facts.size, facts.volatile_cache, facts.read_only), (1 << 20, false, false), "it owes no flush");
        one.flush_now().unwrap();
        assert!(is_empty(), "it has no name");
    }
    assert!(directory.open("base=base,top=a").unwrap().facts().volatile_cache);
    let refused = |words: &str| directory.open(words).map(drop).unwrap_err();
    assert!(refused("base=base,ephemeral=none").contains("cannot be made: No such file"));
    std::fs::write(directory.at("file"), []).unwrap();
    assert!(refused("base=base,ephemeral=file").contains("cannot be made: Not a directory"));
    let read_only = layered.open(true, &Default::default()).map(drop).unwrap_err().to_string();
    assert!(read_only.contains("for an export that is read-only"), "{read_only}");
    assert!(is_empty());
}
