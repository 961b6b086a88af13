//! The rules of the bitmap, one scenario each.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use super::*;

fn take_all(map: &Bitmap, hint: &mut Hint) -> Vec<u16> {
    core::iter::from_fn(|| map.get(hint)).map(|tag| tag.0).collect()
}

/// bitmap.1
#[test]
fn every_tag_is_given_out_once_and_can_come_back() {
    for depth in [1, 2, 3, 8, 63, 64, 65, 200] {
        let (map, mut hint) = (Bitmap::new(depth).unwrap(), Hint::default());
        let mut taken = take_all(&map, &mut hint);
        taken.sort_unstable();
        assert!(taken.iter().copied().eq(0..depth as u16), "depth {depth}: {taken:?}");
        map.put(Tag(depth as u16 / 2));
        assert_eq!(take_all(&map, &mut hint), [depth as u16 / 2]);
    }
}

/// bitmap.2
#[test]
fn a_shallow_map_too_is_several_words() {
    for (depth, words) in [(1, 1), (2, 2), (4, 4), (8, 4), (64, 4), (128, 4), (256, 4), (1024, 16)] {
        assert_eq!(Bitmap::new(depth).unwrap().words.len(), words, "depth {depth}");
    }
    assert_eq!(Bitmap::with_capacity(4, 4096).unwrap().words.len(), 64, "room to grow is not words of one bit");
}

/// bitmap.3
#[test]
fn callers_that_began_apart_stay_apart() {
    let map = Bitmap::new(64).unwrap();
    let (mut a, mut b) = (Hint::default(), Hint(32));
    for _ in 0..100 {
        let (one, other) = (map.get(&mut a).unwrap(), map.get(&mut b).unwrap());
        assert!(one.0 < 16 && (32..48).contains(&other.0), "{one:?} {other:?}");
        map.put(one);
        map.put(other);
    }
}

#[test]
fn a_tag_that_is_returned_at_once_and_named_as_warm_is_taken_again() {
    let (map, mut hint) = (Bitmap::new(64).unwrap(), Hint::default());
    for _ in 0..5 {
        map.get(&mut hint).unwrap();
    }
    map.put_now(Tag(3));
    map.put_now(Tag(1));
    hint.warm(Tag(1));
    assert_eq!(map.get(&mut hint), Some(Tag(1)));
}

/// bitmap.3
#[test]
fn in_round_robin_order_each_tag_has_its_turn() {
    let (map, mut hint) = (Bitmap::new(6).unwrap().round_robin(), Hint::default());
    let mut taken = Vec::new();
    for _ in 0..14 {
        let tag = map.get(&mut hint).unwrap();
        taken.push(tag.0);
        map.put(tag);
    }
    assert_eq!(taken, [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 0, 1]);
    let (held, mut another) = (map.get(&mut hint).unwrap(), Hint::default());
    assert_eq!(map.get(&mut another), Some(Tag(held.0 + 1)), "after the last one everybody's");
}

/// bitmap.4
#[test]
fn what_was_returned_comes_back_when_its_word_looks_full() {
    let (map, mut hint) = (Bitmap::new(256).unwrap(), Hint::default());
    let first = map.get(&mut hint).unwrap();
    map.put(first);
    assert_eq!(map.get(&mut hint), Some(Tag(1)), "not at once");
    map.put(Tag(1));
    for _ in 2..64 {
        map.get(&mut hint).unwrap();
    }
    assert!(map.get(&mut hint).unwrap().0 < 2, "but before another word is gone to");
    assert_eq!(map.busy_count(), 63);
}

/// bitmap.5
#[test]
fn a_smaller_depth_holds_when_the_last_tag_above_it_is_back() {
    let (map, mut hint) = (Bitmap::new(8).unwrap(), Hint::default());
    assert_eq!(take_all(&map, &mut hint).len(), 8);
    map.resize(3).unwrap();
    assert!(!map.is_settled());
    (3..8).rev().for_each(|tag| map.put(Tag(tag)));
    assert!(map.is_settled());
    assert_eq!(map.get(&mut hint), None, "those below it are still out");
    map.put(Tag(2));
    assert_eq!((map.get(&mut hint), map.get(&mut hint)), (Some(Tag(2)), None));
    map.resize(5).unwrap();
    assert_eq!(take_all(&map, &mut hint).len(), 2);
}

#[test]
fn the_largest_map_knows_which_of_its_tags_are_out() {
    let map = Bitmap::new(DEPTH_MAX).unwrap();
    let all = take_all(&map, &mut Hint::default());
    assert_eq!((all.len(), map.busy().count()), (DEPTH_MAX, DEPTH_MAX));
    map.resize(1).unwrap();
    assert!(!map.is_settled());
}

/// bitmap.6
#[test]
fn who_is_held_to_a_shallow_depth_takes_no_more_than_that_spread_over_the_words() {
    for (depth, shallow) in [(64, 16), (64, 3), (8, 7), (100, 33), (7, 1)] {
        let (map, mut hint) = (Bitmap::new(depth).unwrap(), Hint::default());
        let taken = core::iter::from_fn(|| map.take(&mut hint, Some(shallow)).0).count();
        assert_eq!(taken, shallow, "of {depth}");
        let words = map.words.iter().map(|word| word.busy().count_ones());
        let (least, most) = (words.clone().min(), words.max());
        let even = shallow % map.words.len() == 0 && depth % map.words.len() == 0;
        assert!(!even || least == most, "{map:?}");
        assert_eq!(take_all(&map, &mut hint).len(), depth - shallow, "the rest is for the others");
    }
}

#[test]
fn a_batch_comes_back_whatever_words_it_is_of() {
    let (map, mut hint) = (Bitmap::new(64).unwrap(), Hint::default());
    let mut batch: Vec<_> = core::iter::from_fn(|| map.get(&mut hint)).take(40).collect();
    let rest = batch.split_off(30);
    map.put_batch(batch);
    assert!(map.busy().eq(rest));
}

#[test]
fn it_shows_how_full_it_is() {
    let (map, mut hint) = (Bitmap::new(6).unwrap(), Hint::default());
    (0..3).for_each(|_| assert!(map.get(&mut hint).is_some()));
    assert_eq!(format!("{map:?}"), "Bitmap { depth: 6, busy: 3, words: \"#|#|#|.|.|.\" }");
    map.resize(2).unwrap();
    assert_eq!(format!("{map:?}"), "Bitmap { depth: 2, busy: 3, words: \"#|#|!\" }");
}

#[test]
fn what_is_not_possible_is_refused_with_what_is() {
    let why = |result: Result<Bitmap, Error>| result.unwrap_err().to_string();
    assert_eq!(why(Bitmap::new(0)), "a depth of 0 is not possible: it is 1 to 1 tags");
    assert_eq!(why(Bitmap::with_capacity(9, 8)), "a depth of 9 is not possible: it is 1 to 8 tags");
    assert_eq!(why(Bitmap::new(70_000)), "a depth of 70000 is not possible: it is 1 to 65536 tags");
    let map = Bitmap::new(8).unwrap();
    assert!(map.resize(0).is_err() && map.resize(9).is_err());
    assert_eq!(map.depth(), 8, "and nothing has changed");
    let why = map.check_shallow(9).unwrap_err().to_string();
    assert_eq!(why, "a shallow depth of 9 is not possible: it is 1 to the depth, which is 8");
}

#[test]
#[should_panic(expected = "tag 2 was given back twice")]
fn a_tag_given_back_twice_stops_the_program() {
    let (map, mut hint) = (Bitmap::new(4).unwrap(), Hint::default());
    take_all(&map, &mut hint);
    map.put(Tag(2));
    map.put(Tag(2));
}

#[test]
#[should_panic(expected = "tag 0 was given back twice")]
fn a_tag_given_back_at_once_and_then_again_stops_the_program() {
    let (map, mut hint) = (Bitmap::new(4).unwrap(), Hint::default());
    take_all(&map, &mut hint);
    map.put(Tag(0));
    map.put_now(Tag(0));
}

#[test]
#[should_panic(expected = "tag 9 never was: there are 4")]
fn a_tag_that_never_was_stops_the_program() {
    Bitmap::new(4).unwrap().put(Tag(9));
}
