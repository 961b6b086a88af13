//! Forks of files: what lies where afterwards, and a server that ends after each step.

use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::super::format::{BLOCK, data_offset};
use super::super::map::{BlockState, Place};
use super::super::tests::files::Directory;
use super::super::{flatten, rebase};
use fairlift_core::{Flags, Op, Outcome, sched};

use super::*;
use crate::config;
use crate::device::Device;
use crate::disk::engine::News;
use crate::disk::engine::bench::{Workers, helpers, is_polled, submit, turned, workers};
use crate::kernel::buffer::Pages;

fn overlay(directory: &Directory, words: &str) -> Result<Arc<Overlay>, String> {
    let config::Backing::Overlay(layered) = directory.parse(words)? else { panic!("{words}") };
    Overlay::open(&layered, (false, true), &Roots::default()).map(Arc::new)
}

/// A block is written, as by a lane.
fn put(overlay: &Overlay, block: u64, value: u8) {
    let layers = overlay.layers();
    let mut memory = Pages::new(BLOCK as usize);
    memory.bytes_mut().fill(value);
    layers.top.write_at(memory.bytes_mut(), data_offset(layers.size) + block * BLOCK).unwrap();
    layers.own.set(block..block + 1, BlockState::Data);
}

/// The value that fills a block.
fn get(overlay: &Overlay, block: u64) -> u8 {
    let layers = overlay.layers();
    let (mut memory, mut file) = (Pages::new(BLOCK as usize), None);
    match layers.places().of(block) {
        Place::Top => layers.top.read_at(memory.bytes_mut(), data_offset(layers.size) + block * BLOCK).unwrap(),
        Place::Below(at) => file = Some(&layers.below.files[usize::from(at)]),
        Place::Nowhere => {}
    }
    if let Some(file) = file {
        let open = fs::File::open(format!("/proc/self/fd/{}", file.file.descriptor().unwrap())).unwrap();
        open.read_exact_at(memory.bytes_mut(), block * BLOCK + file.offset).unwrap();
    }
    memory.bytes_mut()[0]
}

fn frozen(overlay: &Overlay) -> Result<PathBuf, String> {
    freeze(overlay, &|_, _| (), &Roots::default()).map(|base| base.base.to_string().into())
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
    let base = freeze(&large, &|_, _| (), &Roots::default()).unwrap();
    assert_eq!(base, NowBase { base: directory.at("base").into(), size: Some(2 << 20) });
    for depth in 1..8 {
        put(&alice, depth, depth as u8);
        assert_eq!(frozen(&alice), Ok(directory.at(&format!("a.{depth}"))));
        assert_eq!(frozen(&alice), Ok(directory.at(&format!("a.{depth}"))), "nothing was written since");
    }
    overlay(&directory, "base=a.7,top=b").unwrap();
    put(&alice, 9, 9);
    let why = frozen(&alice).unwrap_err();
    assert!(why.contains("8 tops lie over each other") && why.contains("being flattened"), "{why}");
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
    assert!(why.contains("opened for writing since"), "{why}");
}

/// make.2: a second descriptor would take the process's lock with it when it is closed.
#[test]
fn a_frozen_top_stays_locked_though_what_first_lay_over_it_is_gone() {
    let directory = Directory::new("fork-locked");
    let alice = overlay(&directory, "base=base,top=a").unwrap();
    put(&alice, 1, 11);
    frozen(&alice).unwrap();
    let bob = overlay(&directory, "base=a.1,top=b").unwrap();
    put(&bob, 2, 22);
    frozen(&bob).unwrap();
    drop(alice);
    let number = format!(":{} ", fs::metadata(directory.at("a.1")).unwrap().ino());
    let is_locked = || {
        let locks = fs::read_to_string("/proc/locks").unwrap();
        locks.lines().any(|line| line.contains("POSIX") && line.contains(&number))
    };
    assert!(is_locked());
    drop(overlay(&directory, "base=a.1,top=c").unwrap());
    assert!(is_locked(), "bob lies over it still");
    assert_eq!((get(&bob, 1), get(&bob, 2)), (11, 22));
}

/// shift.2: a disk ends where it did, whatever it is put over: a larger one over it has zeroes from there on, also once it is flattened.
#[test]
fn a_larger_disk_over_a_top_has_zeroes_beyond_it_though_that_lies_over_a_longer_image() {
    let directory = Directory::new("fork-longer");
    drop(overlay(&directory, "base=base,top=a").unwrap());
    drop(overlay(&directory, "base=a,top=large,size=3m").unwrap());
    fs::write(directory.at("long"), vec![5; 2 << 20]).unwrap();
    let blocks = || {
        let large = overlay(&directory, "top=large").unwrap();
        [0, 255, 256, 511, 512, 767].map(|block| get(&large, block))
    };
    let wanted = [3, 3, 0, 0, 0, 0];
    assert_eq!(blocks(), wanted);
    rebase(&directory.at("a"), &directory.at("long"), &mut |_, _| true).unwrap();
    assert_eq!(blocks(), wanted, "over a longer image");
    flatten(&directory.at("large"), &mut |_, _| true).unwrap();
    assert_eq!(blocks(), wanted, "over that image alone");
}

/// fork.4
#[test]
fn an_unwritten_disk_that_is_shorter_than_its_base_is_forked_with_its_own_size() {
    let directory = Directory::new("fork-shorter");
    drop(overlay(&directory, "base=base,top=a").unwrap());
    fs::write(directory.at("long"), vec![3; 2 << 20]).unwrap();
    rebase(&directory.at("a"), &directory.at("long"), &mut |_, _| true).unwrap();
    let alice = overlay(&directory, "top=a").unwrap();
    let now = freeze(&alice, &|_, _| (), &Roots::default()).unwrap();
    let size = now.size.map_or_else(String::new, |size| format!(",size={size}"));
    let base = PathBuf::from(now.base.to_string());
    let words = format!("base={},top=b{size}", base.file_name().unwrap().to_str().unwrap());
    assert_eq!(overlay(&directory, &words).map(|bob| bob.facts().size), Ok(1 << 20), "{words}");
    assert_eq!(frozen(&alice), Ok(directory.at("a.1")), "nothing was written since");
}

/// Somebody restores a backup under the name of a top that is served.
#[test]
fn a_top_in_whose_place_another_file_was_put_is_not_forked() {
    let directory = Directory::new("fork-replaced");
    let alice = overlay(&directory, "base=base,top=a").unwrap();
    fs::copy(directory.at("a"), directory.at("backup")).unwrap();
    put(&alice, 1, 11);
    fs::rename(directory.at("backup"), directory.at("a")).unwrap();
    let why = frozen(&alice).unwrap_err();
    assert!(why.contains("another file was put in its place"), "{why}");
    assert!(!directory.at("a.1").exists());
}

/// pause.4: a lane with nothing under way is not polled; it is told when it is to stop, and goes on with the new top.
#[test]
fn lanes_that_are_idle_are_told_of_a_fork_and_are_not_polled() {
    let directory = Directory::new("fork-idle");
    let alice = overlay(&directory, "base=base,top=a").unwrap();
    put(&alice, 1, 11);
    let mut workers = workers(Arc::clone(&alice) as Arc<dyn Device>, sched::Kind::None, 2);
    let (helpers, mut now) = (helpers(&workers), fairlift_core::Instant::ZERO);
    let mut write = |workers: &mut Workers, worker: usize, block: u64, value: u8| {
        let ticket =
            submit(&mut workers[worker], Op::Write, Flags::SYNC, &(block * 8..block * 8 + 8), &[value; BLOCK as usize]);
        while workers[worker].0.news.is_empty() {
            turned(&mut workers[worker].0, &mut now);
        }
        let news = std::mem::take(&mut workers[worker].0.news);
        assert_eq!(news, [(ticket, News::Ended(Outcome::Done))]);
        workers[worker].0.release(ticket);
    };
    (0..2).for_each(|worker| write(&mut workers, worker, 2 + worker as u64, 12));
    assert!(workers.iter().all(|(engine, _)| engine.poll_timeout().is_none() && !is_polled(engine)));
    let forked = std::thread::scope(|scope| {
        let fork =
            scope.spawn(|| freeze(&alice, &|worker, lane| helpers.tell(worker, (lane, 0)), &Roots::default()).unwrap());
        let mut now = fairlift_core::Instant::ZERO;
        while !fork.is_finished() {
            workers.iter_mut().for_each(|(engine, _)| turned(engine, &mut now));
        }
        fork.join().unwrap()
    });
    let bob = overlay(&directory, "base=a.1,top=b").unwrap();
    assert_eq!(forked.base, directory.at("a.1").into());
    (0..2).for_each(|worker| write(&mut workers, worker, 2 + worker as u64, 13));
    assert_eq!([1, 2, 3].map(|block| (get(&alice, block), get(&bob, block))), [(11, 11), (13, 12), (13, 12)]);
}

/// fork.3: a server that ends after any of the steps leaves a disk that the next one opens, with all flushed data.
#[test]
fn a_crash_between_the_steps_leaves_the_state_before_or_after() {
    for steps in 0..5 {
        let directory = Directory::new(&format!("fork-crash-{steps}"));
        let alice = overlay(&directory, "base=base,top=a").unwrap();
        put(&alice, 1, 11);
        alice.flush_now().unwrap();
        let layers = alice.layers();
        let roots = Roots::default();
        let mut on_files = OnFiles::of(&alice, &roots).unwrap();
        if steps > 0 {
            assert_eq!(on_files.link().unwrap(), directory.at("a.1"));
        }
        if steps > 1 {
            on_files.make(&layers.header_above(directory.at("a.1")).unwrap()).unwrap();
        }
        if steps > 2 {
            layers.flush().unwrap();
        }
        if steps > 3 {
            on_files.rename().unwrap();
        }
        drop(layers);
        drop(on_files);
        drop(alice);
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
