//! The bitmap against the dullest correct version of it: a set of numbers.

use std::collections::BTreeSet;

use fairlift_core::Tag;
use fairlift_core::tags::{Bitmap, Hint};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Get,
    GetShallow(usize),
    Put(usize),
    PutNow(usize),
    PutBatch(usize),
    Resize(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Get),
        2 => (1usize..300).prop_map(Step::GetShallow),
        4 => any::<usize>().prop_map(Step::Put),
        2 => any::<usize>().prop_map(Step::PutNow),
        1 => (1usize..20).prop_map(Step::PutBatch),
        1 => (1usize..300).prop_map(Step::Resize),
    ]
}

/// Each shallow depth of each size of map, for a caller that starts anywhere: a random run may not ask for one too many (bitmap.6).
#[test]
fn a_caller_that_is_held_to_a_part_of_the_tags_gets_that_many_and_no_more() {
    for depth in [1, 2, 31, 64, 65, 128, 200] {
        for shallow in 1..=depth {
            let map = Bitmap::new(depth).unwrap();
            let mut hint = Hint::of(shallow);
            let taken = (0..=depth).filter(|_| map.take(&mut hint, Some(shallow)).0.is_some()).count();
            assert_eq!(taken, shallow, "of {depth} tags");
            assert_eq!(map.free_count(Some(shallow)), 0, "{shallow} of {depth} tags are out");
        }
    }
}

fairlift_lab::proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn the_bitmap_answers_as_a_set_does(
        depth in 1usize..200,
        room in 0usize..100,
        round_robin: bool,
        callers in 1usize..5,
        steps in prop::collection::vec((step(), 0usize..5), 1..200),
    ) {
        let map = Bitmap::with_capacity(depth, depth + room).unwrap();
        let map = if round_robin { map.round_robin() } else { map };
        let mut hints: Vec<_> = (0..callers).map(Hint::of).collect();
        let mut depth = depth;
        let mut out: BTreeSet<u16> = BTreeSet::new();
        for (step, caller) in steps {
            let hint = &mut hints[caller % callers];
            let free = (0..depth as u16).filter(|tag| !out.contains(tag)).count();
            let some = |n: usize| out.iter().copied().nth(n % out.len().max(1)).map(Tag);
            match step {
                Step::Get => match map.get(hint) {
                    None => prop_assert_eq!(free, 0),
                    Some(tag) => {
                        prop_assert!(usize::from(tag.0) < depth);
                        prop_assert!(out.insert(tag.0), "{:?} was out", tag);
                    }
                },
                Step::GetShallow(shallow) => {
                    let shallow = shallow.min(depth);
                    let possible = map.free_count(Some(shallow));
                    match map.take(hint, Some(shallow)).0 {
                        None => prop_assert_eq!(possible, 0),
                        Some(tag) => {
                            prop_assert!(possible > 0 && usize::from(tag.0) < depth);
                            prop_assert!(out.insert(tag.0), "{:?} was out", tag);
                        }
                    }
                    if out.is_empty() {
                        prop_assert_eq!(map.free_count(Some(shallow)), shallow);
                    }
                }
                Step::Put(n) => {
                    if let Some(tag) = some(n) {
                        map.put(tag);
                        out.remove(&tag.0);
                    }
                }
                Step::PutNow(n) => {
                    if let Some(tag) = some(n) {
                        map.put_now(tag);
                        out.remove(&tag.0);
                    }
                }
                Step::PutBatch(n) => {
                    let batch: Vec<_> = out.iter().copied().step_by(2).take(n).map(Tag).collect();
                    map.put_batch(batch.iter().copied());
                    out.retain(|tag| !batch.contains(&Tag(*tag)));
                }
                Step::Resize(to) => match map.resize(to) {
                    Ok(()) => depth = to,
                    Err(_) => prop_assert!(to > map.capacity()),
                },
            }
            prop_assert!(map.busy().map(|tag| tag.0).eq(out.iter().copied()), "{:?}", map);
            prop_assert_eq!(map.busy_count(), out.len());
            prop_assert_eq!(map.free_count(None), (0..depth as u16).filter(|tag| !out.contains(tag)).count());
            prop_assert_eq!(map.is_settled(), out.iter().all(|tag| usize::from(*tag) < depth));
            prop_assert!(out.iter().all(|tag| map.is_busy(Tag(*tag))));
        }
    }
}
