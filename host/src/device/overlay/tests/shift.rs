//! Tops that are put over another base while the power is cut.

use super::super::shift::{Shifted, read, shift};
use fairlift_lab::repeat::seeds;

use super::trial::{PER_BLOCK, windows};
use super::*;

/// The blocks that are used.
pub(super) fn blocks() -> impl Iterator<Item = u64> {
    windows().into_iter().flat_map(|window| window.start / PER_BLOCK..window.end / PER_BLOCK)
}

/// A disk of bare bytes; each block is full of one of few values.
fn bare(random: &mut Random) -> Arc<Below> {
    let size = [6 * BLOCK + 3 * SECTOR, 3 * BLOCK, SIZE][random.below(5).min(2) as usize];
    below(&[filled(random, size)]).unwrap()
}

pub(super) fn filled(random: &mut Random, size: u64) -> Arc<Volatile> {
    let within = windows().map(|window| window.start..window.end.min(size.div_ceil(BLOCK) * PER_BLOCK));
    let base = Volatile::new(size, &within, random.bits(), (0, 0));
    for sector in within.into_iter().flatten().filter(|sector| sector * SECTOR < size) {
        base.put(sector * SECTOR, &[((sector / PER_BLOCK) % 2) as u8 * random.below(2) as u8; SECTOR as usize]);
    }
    base.settle();
    base
}

pub(super) fn opened(top: &Arc<Volatile>, below: &Arc<Below>) -> Result<(Layers, Vec<u64>), String> {
    let header = read_header(&**top)?.0;
    Layers::read(Arc::clone(top) as _, header, Arc::clone(below), BaseAt::File("old".into()))
}

/// A top that is new, with blocks of its own.
pub(super) fn written(random: &mut Random, below: &Arc<Below>) -> (Arc<Volatile>, Layers) {
    let (_, top) = made_over(below.is(), &windows(), random.bits(), (0, 0));
    let (layers, _) = opened(&top, below).unwrap();
    for block in blocks() {
        match random.below(6) {
            0 => layers.own.set(block..block + 1, BlockState::Zero),
            1 | 2 => {
                layers
                    .top
                    .write_at(&[random.below(3) as u8; BLOCK as usize], block * BLOCK + data_offset(SIZE))
                    .unwrap();
                layers.own.set(block..block + 1, BlockState::Data);
            }
            _ => {}
        }
    }
    layers.begin(&[], |header| header.opened = 1).and_then(|()| layers.close(|_| ())).unwrap();
    (top, layers)
}

/// A chain of this many tops over a layer.
fn chain(random: &mut Random, mut below: Arc<Below>, tops: u64) -> Arc<Below> {
    for _ in 0..tops {
        below = Arc::new(written(random, &below).1.frozen());
    }
    below
}

/// All that a disk holds.
pub(super) fn see(layers: &Layers) -> Vec<[u8; BLOCK as usize]> {
    let one = |block: u64| {
        let mut bytes = [0; BLOCK as usize];
        match layers.places().of(block) {
            Place::Top => layers.top.read_at(&mut bytes, block * BLOCK + data_offset(SIZE)).unwrap(),
            place => read(&layers.below, place, block, &mut bytes).unwrap(),
        }
        bytes
    };
    blocks().map(one).collect()
}

/// shift.1, shift.2: over any base, a top reads the same at any instant at which the power is cut; the command that
/// is given once more goes on, and those that lie over the top find it as it was.
#[test]
fn a_top_reads_the_same_while_it_is_put_over_another_base_and_whatever_ends_that() {
    let (mut cuts, mut copied) = (0, 0);
    for seed in seeds(0..60) {
        let mut random = Random::new(seed);
        let (lowest, tops) = (bare(&mut random), random.below(4));
        let old = chain(&mut random, Arc::clone(&lowest), tops);
        let new = match random.below(3) {
            0 => Arc::clone(&lowest),
            1 => bare(&mut random),
            _ => chain(&mut random, Arc::clone(&lowest), 1),
        };
        let (mut top, layers) = written(&mut random, &old);
        let wanted = see(&layers);
        for round in 0.. {
            let is_over = |path: &str| read_header(&*top).unwrap().0.base.path.as_os_str() == path;
            let (layers, torn) = opened(&top, if is_over("new") { &new } else { &old }).unwrap();
            assert!(see(&layers) == wanted, "seed {seed}, after {round} cuts");
            assert_eq!(lock(&layers.header).opened, 1, "those above it know it");
            if is_over("new") {
                break;
            }
            top.loses_power_after(random.below(if round < 20 { 12 } else { 1000 }));
            let stops = random.below(4);
            let base = Base { path: "new".into(), is: new.is() };
            let mut goes_on = |_, _| stops > 0 || random.below(2) > 0;
            match layers.begin(&torn, |_| ()).and_then(|()| shift(&layers, &new, base, &mut goes_on)) {
                Ok(Shifted::Done(bytes)) => copied += bytes,
                Ok(Shifted::Stopped) => {}
                Err(error) => assert_eq!(error.to_string(), "the power is gone"),
            }
            assert!(see(&layers) == wanted, "seed {seed}, while it is open");
            top = top.cut(&mut random);
            cuts += 1;
        }
    }
    println!("{cuts} cuts of the power, {copied} bytes copied by the last of each");
    assert!(copied > 0);
}
