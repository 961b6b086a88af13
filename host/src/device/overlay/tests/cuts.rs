//! Power cuts: random requests of three workers at once on each of some disks, which are forked meanwhile, on files with volatile caches. At
//! any instant the power is cut: of unflushed data any sector survives or not. The tops are opened again from that, and the power-cut oracle
//! of the proving ground, which knows what was asked and answered and nothing else, judges every sector. A server that is killed leaves the
//! caches as they are; one that is closed in order may lose its power meanwhile.
//!
//! `FAIRLIFT_SEEDS=4500 cargo test --release -p fairlift --lib overlay::tests::cuts -- --nocapture` makes more than a million cuts.

use fairlift_lab::repeat::seeds;

use super::super::claims::MAP;
use super::trial::{Trial, windows};
use super::*;

/// overlay.1–4, fork.1, fork.2, flatten.1–3, slot.1, slot.2: whatever three workers ask at once, of whole blocks or parts, each sector holds its last
/// write; after a cut of the power at any instant it holds that, or any write since the last flush; and so through many cuts. A fork is the disk at
/// one instant, durable, whatever is written beside it.
#[test]
fn what_was_flushed_survives_cuts_of_the_power_at_any_instant_and_forks() {
    let (mut cuts, mut lives, mut forks, mut flat, mut depth) = (0, 0, 0, 0, 0);
    for seed in seeds(0..10) {
        let mut trial = Trial::new(seed, [0, 0, 60][(seed % 3) as usize]);
        for _ in 0..8 {
            let (steps, busy) = (trial.any(120), 2 + trial.any(3));
            let mut ended = None;
            for _ in 0..steps {
                trial.step(busy);
                if trial.any(30) == 0 {
                    ended = trial.fork();
                } else if trial.any(30) == 0 {
                    ended = trial.flatten();
                }
                if ended.is_some() {
                    break;
                }
            }
            trial.next_life(ended);
            lives += 1;
        }
        trial.finish();
        trial.assert_at_rest();
        (cuts, forks, flat) = (cuts + trial.cuts, forks + trial.forks, flat + trial.flattened);
        depth = depth.max(trial.depth);
    }
    println!(
        "{cuts} cuts of the power in {lives} lives of a server, {forks} forks, up to {depth} tops over each other, {flat} \
         times flattened"
    );
    assert!(flat > 0, "disks were flattened");
}

/// slot.1: the power goes while a page is written, in each of its sectors, and flushed data is there.
#[test]
fn a_page_that_is_torn_leaves_the_one_before() {
    for seed in seeds(0..30) {
        let mut random = Random::new(seed);
        let files = [Volatile::new(SIZE, &windows(), seed, (0, 0)), made(&windows(), seed, (0, 0))];
        let overlay = opened(&files).unwrap();
        let layers = overlay.layers();
        // In the first sector of the page, and in its second.
        let write = |block: u64| [block, 2000 + block].map(|block| layers.own.set(block..block + 1, BlockState::Zero));
        let flushed = 2 + random.below(4);
        for block in 0..flushed {
            write(block);
            layers.flush().unwrap();
        }
        write(flushed);
        files[1].loses_power_after(random.below(3));
        let _ = layers.flush();
        let left = opened(&[Arc::clone(&files[0]), files[1].cut(&mut random)]).unwrap().layers();
        for start in [0, 2000] {
            let (state, end) = left.own.run(start, start + 10);
            assert!(state == BlockState::Zero && end >= start + flushed, "seed {seed}: {state:?} up to {end}");
        }
    }
}

/// slot.5: the power goes while a page is written again, and then a second time.
#[test]
fn a_torn_page_is_not_made_whole_by_the_next_one() {
    let files = [Volatile::new(SIZE, &windows(), 1, (0, 0)), made(&windows(), 1, (0, 0))];
    let (top, slot) = (&files[1], page_offset(0, 2));
    // A page with two sectors of content; the next one differs from it in the first alone.
    let page = |overlay: &Overlay| {
        let layers = overlay.layers();
        layers.own.mark(0);
        let mut bytes = vec![0; BLOCK as usize];
        layers.own.take_dirty()[0].encode(&lock(&layers.header).id, &mut bytes);
        bytes
    };
    let overlay = opened(&files).unwrap();
    overlay.layers().own.set(0..1, BlockState::Zero);
    overlay.layers().own.set(2000..2001, BlockState::Zero);
    overlay.flush_now().unwrap();
    let overlay = opened(&files).unwrap();
    overlay.layers().own.set(0..1, BlockState::Data);
    let first = page(&overlay);
    top.put(slot, &first[..SECTOR as usize]);
    top.settle();
    let overlay = opened(&files).unwrap();
    assert_eq!(overlay.layers().own.run(0, 1).0, BlockState::Zero);
    let next = page(&overlay);
    assert!(first[SECTOR as usize..] == next[SECTOR as usize..] && first != next);
    top.put(slot + SECTOR, &next[SECTOR as usize..]);
    top.settle();
    assert_eq!(opened(&files).unwrap().layers().own.run(0, 1).0, BlockState::Zero, "as after the first cut");
}

/// slot.6: servers that are killed before they flush leave a header that is whole, also if the power goes while the last one opens.
#[test]
fn a_top_is_opened_after_servers_that_were_killed_and_a_cut() {
    for seed in seeds(0..20) {
        let mut random = Random::new(seed);
        let files = [Volatile::new(SIZE, &windows(), seed, (0, 0)), made(&windows(), seed, (0, 0))];
        for _ in 0..=random.below(3) {
            drop(opened(&files).unwrap());
        }
        let [base, top] = &files;
        top.loses_power_after(random.below(4));
        let _ = opened(&files);
        let answer = opened(&[Arc::clone(base), top.cut(&mut random)]).map(drop);
        assert_eq!(answer, Ok(()));
    }
}

/// A fork's new top says that it was closed, until it is written: also where it is frozen before anybody has flushed it.
#[test]
fn a_top_that_a_fork_has_made_is_opened_after_a_cut_while_it_is_frozen() {
    for seed in seeds(0..60) {
        let base = Volatile::new(SIZE, &windows(), seed, (0, 0));
        let (header, _) = made_over(Fingerprint::Raw { size: 0, changed: (0, 0) }, &windows(), seed, (0, 0));
        let top = top_of(&Header { opened: 1, ..header.clone() }, &windows(), seed, (0, 0));
        let below = below(&[Arc::clone(&base)]).unwrap();
        let (layers, _) = Layers::read(Arc::clone(&top) as _, header, below, BaseAt::File("base".into())).unwrap();
        layers.own.set(0..2000, BlockState::Zero);
        top.loses_power_after(seed % 6);
        let _ = layers.close(|_| ());
        let answer = opened(&[base, top.cut(&mut Random::new(seed))]).map(drop);
        assert_eq!(answer, Ok(()));
    }
}

/// claim.2
#[test]
fn zeroes_over_zeroes_wait_for_a_first_write_that_is_under_way() {
    let ends_at_once = |op, somebody_writes: bool| {
        let files = [Volatile::new(SIZE, &windows(), 1, (0, 0)), made(&windows(), 1, (0, 0))];
        let overlay = opened(&files).unwrap();
        overlay.layers().own.set(1..2, BlockState::Zero);
        if somebody_writes {
            assert!(lock(&overlay.claims).claim(1..2, (ContextId(0), Tag(0))));
        }
        let mut workers = workers(overlay, sched::Kind::None, 1);
        submit(&mut workers[0], op, Flags::SYNC, &(8..16), &[]);
        let mut now = Instant::ZERO;
        (0..8).for_each(|_| turned(&mut workers[0].0, &mut now));
        !workers[0].0.news.is_empty()
    };
    for op in [Op::Discard, Op::WriteZeroes] {
        assert_eq!((ends_at_once(op, false), ends_at_once(op, true)), (true, false), "{op:?}");
    }
}

/// overlay.3: a flush that finds no page to write waits for the one that has taken them.
#[test]
fn a_flush_waits_for_the_one_that_writes_the_map() {
    let ends_at_once = |somebody_writes_the_map: bool| {
        let files = [Volatile::new(SIZE, &windows(), 1, (0, 0)), made(&windows(), 1, (0, 0))];
        let overlay = opened(&files).unwrap();
        let mut workers = workers(Arc::clone(&overlay) as Arc<dyn Device>, sched::Kind::None, 1);
        let mut now = Instant::ZERO;
        let mut ends = |op| {
            let sectors = if op == Op::Flush { 0..0 } else { 8..16 };
            submit(&mut workers[0], op, Flags::SYNC, &sectors, &[1; BLOCK as usize]);
            (0..100).for_each(|_| turned(&mut workers[0].0, &mut now));
            workers[0].0.news.drain(..).count() == 1
        };
        assert!(ends(Op::Write));
        if somebody_writes_the_map {
            assert!(lock(&overlay.claims).claim(MAP, (ContextId(0), Tag(0))));
        }
        ends(Op::Flush)
    };
    assert_eq!([ends_at_once(false), ends_at_once(true)], [true, false]);
}
