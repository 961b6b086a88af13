//! Tops that are written into their base while the power is cut.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::super::commit::{Lower, write_into};
use super::super::shift::Shifted;
use fairlift_lab::repeat::seeds;

use super::shift::{blocks, filled, opened, see, written};
use super::trial::windows;
use super::*;

/// By what a file of bare bytes is known: its time of change is another with each content.
fn print(base: &Volatile) -> Fingerprint {
    let mut hash = DefaultHasher::new();
    for block in blocks() {
        let mut bytes = [0; BLOCK as usize];
        base.get(block * BLOCK, &mut bytes);
        bytes.hash(&mut hash);
    }
    Fingerprint::Raw { size: SIZE, changed: (hash.finish().cast_signed(), 0) }
}

/// The layers below the last of these.
fn under(files: &[Arc<Volatile>]) -> Arc<Below> {
    below_as(print(&files[0]), &files[..files.len() - 1]).expect("what is below is what it was")
}

/// The last of these, as whoever opens it finds it.
fn found(files: &[Arc<Volatile>]) -> (Layers, Vec<u64>) {
    let (top, below) = (&files[files.len() - 1], under(files));
    let header = read_header(&**top).unwrap().0;
    let is_known = known(&header, &header.base.path, below.is());
    assert_eq!(is_known, Ok(()), "{:?} is {:?}", header, below.is());
    opened(top, &below).unwrap()
}

/// into.1–3: a base of bare bytes, or one that is a top; whatever ends the command, and at any instant at which the power is cut, the disk reads
/// the same; the command that is given once more goes on. In the end the base has it all, and the top has nothing.
#[test]
fn a_disk_reads_the_same_while_its_top_is_written_into_the_base_and_whatever_ends_that() {
    let (mut cuts, mut kills, mut ends) = (0, 0, [0; 2]);
    for seed in seeds(0..250) {
        let mut random = Random::new(seed);
        let tops = random.below(2);
        let mut files = vec![filled(&mut random, SIZE)];
        for _ in 0..=tops {
            let below = below_as(print(&files[0]), &files).unwrap();
            files.push(written(&mut random, &below).0);
        }
        let wanted = see(&found(&files).0);
        let mut is_done = false;
        for round in 0.. {
            let (layers, torn) = found(&files);
            assert!(see(&layers) == wanted, "seed {seed}, after {round} ends");
            let Header { opened: times, commits, .. } = *lock(&layers.header);
            assert_eq!(times, 1, "those above it know it");
            assert!(!(is_done && commits), "seed {seed}: what was told to be done is durable");
            if round > 0 && !commits && layers.is_empty() {
                break;
            }
            assert!(!is_done, "seed {seed}: what was told to be done is done");
            let loses = random.below(files.len() as u64) as usize;
            // Most requests to a top come when all is written.
            let calls = if loses == files.len() - 1 { 10 } else { 24 };
            files[loses].loses_power_after(random.below(if round < 20 { calls } else { 1000 }));
            let stops = random.below(40);
            let mut writes = 0;
            let mut goes_on = |_, _| {
                writes += 1;
                writes <= stops
            };
            let under = files[..files.len() - 1].to_vec();
            let done = if tops == 0 {
                let base = Arc::clone(&under[0]);
                let is = Box::new(move || Ok(print(&base)));
                let lower = Lower::Bare { file: Arc::clone(&under[0]) as _, size: SIZE, is };
                write_into((&layers, &torn), &lower, &mut goes_on)
            } else {
                let (lower, torn_below) = found(&under);
                let lower = Lower::Top { layers: lower, torn: torn_below };
                write_into((&layers, &torn), &lower, &mut goes_on)
            };
            match done {
                Ok(Shifted::Done(_)) => is_done = true,
                Ok(Shifted::Stopped) => ends[0] += 1,
                Err(error) => {
                    assert_eq!(error.to_string(), "the power is gone");
                    ends[1] += 1;
                }
            }
            files.iter().for_each(|file| file.keeps_power());
            if random.below(4) == 0 {
                kills += 1; // what it had written is there, and is not durable
            } else {
                files.iter_mut().for_each(|file| *file = file.cut(&mut random));
                cuts += 1;
            }
        }
        if tops == 1 {
            let lower = read_header(&*files[1]).unwrap().0;
            assert_eq!((lower.opened, lower.clean), (2, true), "seed {seed}: others over it see that it was written");
        }
        // The base alone is that disk.
        let base = if tops == 0 { below_as(print(&files[0]), &files[..1]) } else { Ok(under(&files)) }.unwrap();
        let (_, empty) = made_over(base.is(), &windows(), 0, (0, 0));
        let (layers, _) = opened(&empty, &base).unwrap();
        assert!(see(&layers) == wanted, "seed {seed}: the base");
    }
    println!("{cuts} cuts of the power, {kills} kills, {} stops and {} errors", ends[0], ends[1]);
    assert!(ends.iter().all(|count| *count > 0));
}
