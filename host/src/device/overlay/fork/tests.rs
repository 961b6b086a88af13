//! Forks: of an overlay that two workers write, and of files, with a crash after each step.

use std::collections::BTreeMap;

use fairlift_lab::repeat;

use super::super::files::read_header;
use super::super::format::BLOCK;
use super::super::map::{BlockState, Place};
use super::super::tests::{Directory, SECTOR, SIZE, Scene, Volatile, windows};
use super::*;
use crate::config;
use crate::kernel::buffer::Pages;

/// What a fork may show: for each sector some values, in these files from the bottom.
struct Frozen {
    files: Vec<Arc<Volatile>>,
    may: BTreeMap<u64, Vec<u8>>,
}

impl Frozen {
    /// Looks at it as a server would that opens it; `files`: those, or what a power cut has left of them.
    fn check(&self, files: &[Arc<Volatile>], when: &str) {
        let mut below = super::super::tests::below(&files[0]);
        for top in &files[1..] {
            let header = read_header(&**top).unwrap().counts.unwrap();
            assert!(header.clean, "what is frozen was closed");
            let layers = Layers::of(Arc::clone(top), header, below, "base".into(), true).unwrap();
            below = Arc::new(layers.frozen());
        }
        let (header, top) = new_top(&below, 9);
        let fork = Layers::over(Arc::clone(&top) as Arc<dyn Device>, top, header, below, "base".into());
        for (place, may) in &self.may {
            let value = see(&fork, files, *place);
            assert!(may.contains(&value), "{when}: sector {place} of the fork is {value}, not one of {may:?}");
        }
    }
}

fn new_top(below: &Below, seed: u64) -> (Header, Arc<Volatile>) {
    let base = Base { path: "base".into(), is: below.is };
    let header = Header { sequence: 1, size: SIZE, id: draw().unwrap(), opened: 0, clean: true, base };
    let top = Volatile::new(file_len(SIZE), seed, 0);
    top.put(header_offset(1), &header.encode().unwrap());
    top.settle();
    (header, top)
}

/// A sector, as layers with an empty top show it.
fn see(layers: &Layers, files: &[Arc<Volatile>], place: u64) -> u8 {
    let mut bytes = [0; SECTOR as usize];
    match layers.places().of(place * SECTOR / BLOCK) {
        Place::Below(0) if place * SECTOR >= files[0].size => {}
        Place::Below(at) => {
            files[usize::from(at)].get(place * SECTOR + layers.below.files[usize::from(at)].offset, &mut bytes)
        }
        Place::Top => panic!("nothing was written"),
        Place::Nowhere => {}
    }
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "sector {place} is torn");
    bytes[0]
}

/// Forks what a scene has, while its workers are asked more; what the fork may show.
fn fork(scene: &mut Scene, files: &mut Vec<Arc<Volatile>>) -> Frozen {
    scene.overlay.pause.begin();
    let mut left = 5000;
    while !scene.overlay.pause.is_quiet() {
        left -= 1;
        assert!(left > 0, "lanes do not stop");
        if scene.any(3) == 0 {
            scene.ask();
        }
        let worker = scene.any(2) as usize;
        scene.turn(worker);
    }
    // They begin nothing now.
    for _ in 0..scene.any(20) {
        scene.ask();
        let worker = scene.any(2) as usize;
        scene.turn(worker);
    }
    let may = scene.dull.iter().map(|(place, history)| {
        // Of one that waits in part, what was begun is in the fork.
        (*place, history.values[history.hidden..].to_vec())
    });
    let may = may.collect();
    let layers = scene.overlay.layers();
    layers.close().unwrap();
    files.push(Arc::clone(&scene.top));
    let header = NewTop::header(&layers, "frozen".into()).unwrap();
    let top = Volatile::new(file_len(SIZE), scene.any(1000), 0);
    top.put(header_offset(1), &header.encode().unwrap());
    top.settle();
    let made =
        NewTop { device: Arc::clone(&top) as Arc<dyn Device>, store: Arc::clone(&top) as Arc<dyn Store>, header };
    scene.overlay.switch(&layers, made);
    scene.overlay.pause.end();
    scene.top = top;
    Frozen { files: files.clone(), may }
}

/// fork.1, fork.2: whatever two workers do, each fork is what the disk was at one instant, durable, and stays so; the disk goes on as if
/// nothing had been.
#[test]
fn a_fork_is_what_the_disk_was_at_one_instant_and_stays_so() {
    for seed in repeat::seeds(0..16) {
        let mut scene = Scene::new(seed, 0);
        let mut files = vec![Arc::clone(&scene.base)];
        let mut forks: Vec<Frozen> = Vec::new();
        for _ in 0..4 {
            for _ in 0..scene.any(200) {
                if scene.any(3) == 0 {
                    scene.ask();
                } else {
                    let worker = scene.any(2) as usize;
                    scene.turn(worker);
                }
            }
            forks.push(fork(&mut scene, &mut files));
            for one in &forks {
                one.check(&one.files, "at once");
                let cut: Vec<_> = one.files[1..].iter().map(|file| file.cut(&mut scene.random, seed)).collect();
                one.check(&[&one.files[..1], &cut].concat(), "after a power cut");
            }
        }
        scene.finish();
        scene.engines.iter().for_each(|(engine, _)| assert_eq!((engine.open(), engine.pool.used()), (0, 0)));
        for one in &forks {
            one.check(&one.files, "at the end");
        }
        let layers = scene.overlay.layers();
        for place in windows().into_iter().flatten() {
            let history = &scene.dull[&place];
            let value = match layers.places().of(place * SECTOR / BLOCK) {
                Place::Top => {
                    let mut bytes = [0; SECTOR as usize];
                    scene.top.get(place * SECTOR + data_offset(SIZE), &mut bytes);
                    bytes[0]
                }
                _ => see(&layers, &files, place),
            };
            assert!(history.values[history.hidden..].contains(&value), "sector {place} is {value} at the end");
        }
    }
}

/// fork.5: a fork that is given up changes nothing, and what waited is done.
#[test]
fn a_pause_that_is_given_up_lets_all_go_on() {
    let mut scene = Scene::new(3, 0);
    for _ in 0..20 {
        (0..5).for_each(|_| scene.ask());
        scene.overlay.pause.begin();
        (0..4).for_each(|worker| scene.turn(worker % 2));
        (0..5).for_each(|_| scene.ask());
        (0..4).for_each(|worker| scene.turn(worker % 2));
        scene.overlay.pause.end();
    }
    scene.finish();
}

// ---- real files ----

fn overlay(directory: &Directory, words: &str) -> Result<Arc<Overlay>, String> {
    let config::Backing::Overlay(said) = directory.said(words)? else { panic!("{words}") };
    Overlay::open(&said, false, &Roots::default()).map(Arc::new)
}

/// A block is written, as by a lane.
fn put(overlay: &Overlay, block: u64, value: u8) {
    let layers = overlay.layers();
    let mut memory = Pages::new(BLOCK as usize);
    memory.bytes_mut().fill(value);
    layers.store.write_at(memory.bytes_mut(), data_offset(layers.size) + block * BLOCK).unwrap();
    layers.own.set(block..block + 1, BlockState::Data);
}

/// The value that fills a block.
fn get(overlay: &Overlay, block: u64) -> u8 {
    let layers = overlay.layers();
    let (mut memory, mut file) = (Pages::new(BLOCK as usize), None);
    match layers.places().of(block) {
        Place::Top => layers.store.read_at(memory.bytes_mut(), data_offset(layers.size) + block * BLOCK).unwrap(),
        Place::Below(at) => file = Some(&layers.below.files[usize::from(at)]),
        Place::Nowhere => {}
    }
    if let Some(file) = file {
        let open = fs::File::open(format!("/proc/self/fd/{}", file.device.descriptor().unwrap())).unwrap();
        open.read_exact_at(memory.bytes_mut(), block * BLOCK + file.offset).unwrap();
    }
    memory.bytes_mut()[0]
}

fn frozen(overlay: &Overlay) -> Result<PathBuf, String> {
    freeze(overlay, &|| (), &Roots::default()).map(|base| base.path)
}

/// fork.4, and a chain that is as deep as it may be.
#[test]
fn what_was_not_written_is_not_frozen_and_a_chain_has_an_end() {
    let directory = Directory::new("fork-depth");
    let alice = overlay(&directory, "base=base,top=a").unwrap();
    for _ in 0..100 {
        assert_eq!(frozen(&alice), Ok(directory.at("base")));
    }
    let large = overlay(&directory, "base=base,top=large,size=2m").unwrap();
    let base = freeze(&large, &|| (), &Roots::default()).unwrap();
    assert_eq!(base, NowBase { path: directory.at("base"), size: Some(2 << 20) });
    for depth in 1..8 {
        put(&alice, depth, depth as u8);
        assert_eq!(frozen(&alice), Ok(directory.at(&format!("a.{depth}"))));
        assert_eq!(frozen(&alice), Ok(directory.at(&format!("a.{depth}"))), "nothing was written since");
    }
    overlay(&directory, "base=a.7,top=b").unwrap();
    put(&alice, 9, 9);
    let why = frozen(&alice).unwrap_err();
    assert!(why.contains("8 tops lie over each other") && why.contains("cannot flatten"), "{why}");
    assert_eq!((1..8).map(|block| get(&alice, block)).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
}

/// make.2: those above what is frozen have its descriptor and its map, and see nothing of each other; the next server finds all again, by the
/// base that was said before the forks too.
#[test]
fn forks_see_what_was_before_them_and_nothing_of_each_other() {
    let directory = Directory::new("fork-siblings");
    let alice = overlay(&directory, "base=base,top=a").unwrap();
    put(&alice, 1, 11);
    let base = frozen(&alice).unwrap();
    let fork = |name: &str, base: &Path| {
        overlay(&directory, &format!("base={},top={name}", base.file_name().unwrap().to_str().unwrap())).unwrap()
    };
    let (bob, carol) = (fork("b", &base), fork("c", &base));
    assert!(Arc::ptr_eq(&alice.layers().below, &bob.layers().below), "one descriptor, one map");
    put(&alice, 2, 12);
    put(&bob, 2, 22);
    put(&bob, 3, 23);
    let again = frozen(&bob).unwrap();
    let dora = fork("d", &again);
    put(&bob, 3, 24);
    put(&dora, 1, 41);
    let all = |overlay: &Overlay| (0..4).map(|block| get(overlay, block)).collect::<Vec<_>>();
    let wanted = [vec![3, 11, 12, 3], vec![3, 11, 22, 24], vec![3, 11, 3, 3], vec![3, 41, 22, 23]];
    let four = [alice, bob, carol, dora];
    assert_eq!(four.each_ref().map(|one| all(one)), wanted);
    four.iter().for_each(|one| one.flush_now().unwrap());
    drop(four);
    let words = ["base=base,top=a", "base=a.1,top=b", "base=a.1,top=c", "base=base,top=d"];
    let four = words.map(|words| overlay(&directory, words).unwrap());
    assert_eq!(four.each_ref().map(|one| all(one)), wanted);
    fs::write(directory.at("other"), vec![1; 1 << 20]).unwrap();
    drop(four);
    let why = overlay(&directory, "base=other,top=a").map(drop).unwrap_err();
    assert!(why.contains("over another base"), "{why}");
    drop(overlay(&directory, "top=a.1").unwrap());
    let why = overlay(&directory, "base=base,top=a").map(drop).unwrap_err();
    assert!(why.contains("opened to be written since"), "{why}");
}

/// fork.3: a server that ends after any of the steps leaves a disk that the next one opens, with what was flushed.
#[test]
fn a_crash_between_the_steps_leaves_the_state_before_or_after() {
    for steps in 0..5 {
        let directory = Directory::new(&format!("fork-crash-{steps}"));
        let alice = overlay(&directory, "base=base,top=a").unwrap();
        put(&alice, 1, 11);
        alice.flush_now().unwrap();
        let layers = alice.layers();
        let mut names = Names::of(&directory.at("a"), &Roots::default()).unwrap();
        if steps > 0 {
            assert_eq!(names.link().unwrap(), directory.at("a.1"));
        }
        if steps > 1 {
            NewTop::make(&alice, &layers, &names, directory.at("a.1"), &Roots::default()).unwrap();
        }
        if steps > 2 {
            layers.close().unwrap();
        }
        if steps > 3 {
            names.rename().unwrap();
        }
        drop((alice, layers));
        let alice = overlay(&directory, "base=base,top=a").unwrap();
        assert_eq!((get(&alice, 0), get(&alice, 1)), (3, 11), "after {steps} steps");
        put(&alice, 2, 12);
        let next = if steps > 3 { "a.2" } else { "a.1" };
        assert_eq!(frozen(&alice), Ok(directory.at(next)), "a name that was left is used");
        put(&alice, 2, 13);
        let bob = overlay(&directory, &format!("base={next},top=b")).unwrap();
        assert_eq!([1, 2].map(|block| (get(&alice, block), get(&bob, block))), [(11, 11), (13, 12)]);
        assert!(!directory.at(".a.fork").exists());
    }
}
