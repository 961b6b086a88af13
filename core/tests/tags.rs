//! The bitmap against the dullest correct version of it: a set of numbers.

use std::collections::BTreeSet;

use fairlift_core::Tag;
use fairlift_core::tags::{Bitmap, Hint};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Get,
    Put(usize),
    PutNow(usize),
    Resize(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Get),
        4 => any::<usize>().prop_map(Step::Put),
        2 => any::<usize>().prop_map(Step::PutNow),
        1 => (1usize..300).prop_map(Step::Resize),
    ]
}

fairlift_lab::proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn the_bitmap_answers_as_a_set_does(
        depth in 1usize..200,
        room in 0usize..100,
        callers in 1usize..5,
        steps in prop::collection::vec((step(), 0usize..5), 1..200),
    ) {
        let map = Bitmap::with_capacity(depth, depth + room).unwrap();
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
                Step::Resize(to) => match map.resize(to) {
                    Ok(()) => depth = to,
                    Err(_) => prop_assert!(to > map.capacity()),
                },
            }
            prop_assert!(map.busy().map(|tag| tag.0).eq(out.iter().copied()), "{:?}", map);
            prop_assert_eq!(map.busy_count(), out.len());
            prop_assert_eq!(map.free_count(), (0..depth as u16).filter(|tag| !out.contains(tag)).count());
            prop_assert_eq!(map.is_settled(), out.iter().all(|tag| usize::from(*tag) < depth));
            prop_assert!(out.iter().all(|tag| map.is_busy(Tag(*tag))));
        }
    }
}
