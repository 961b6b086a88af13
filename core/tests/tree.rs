//! The tree against a `BTreeSet` of (key, turn), for random operations on two trees that share their nodes.

use std::collections::BTreeSet;

use fairlift_core::tree::{Nodes, Tree};
use proptest::prelude::*;

const CAPACITY: u32 = 48;

#[derive(Clone, Debug)]
enum Step {
    Insert { tree: usize, slot: u32, key: u64 },
    Remove { slot: u32 },
}

/// Few keys, so that many are equal.
fn step() -> impl Strategy<Value = Step> {
    let slot = 0..CAPACITY;
    prop_oneof![
        3 => (0..2_usize, slot.clone(), 0..40_u64).prop_map(|(tree, slot, key)| Step::Insert { tree, slot, key }),
        2 => slot.prop_map(|slot| Step::Remove { slot }),
    ]
}

/// What a tree holds: key, when it came, slot.
type Model = BTreeSet<(u64, usize, u32)>;

fn slots(model: &Model) -> Vec<u32> {
    model.iter().map(|&(.., slot)| slot).collect()
}

fn compare(tree: &Tree, nodes: &Nodes, model: &Model) -> Result<(), TestCaseError> {
    let expected = slots(model);
    let forward: Vec<u32> = std::iter::successors(tree.first(nodes), |&slot| nodes.next(slot)).collect();
    prop_assert_eq!(&forward, &expected);
    let mut backward: Vec<u32> = std::iter::successors(tree.last(nodes), |&slot| nodes.prev(slot)).collect();
    backward.reverse();
    prop_assert_eq!(&backward, &expected);
    for key in 0..=40 {
        let from = model.range((key, 0, 0)..).next().map(|&(.., slot)| slot);
        let below = model.range(..(key, 0, 0)).next_back().map(|&(.., slot)| slot);
        prop_assert_eq!(tree.first_at_or_after(nodes, key), from);
        prop_assert_eq!(tree.around(nodes, key), (below, from));
    }
    for &(key, _, slot) in model {
        prop_assert_eq!(nodes.key(slot), key);
    }
    Ok(())
}

fairlift_lab::proptest! {
    #[test]
    fn a_tree_answers_as_a_sorted_set_does(steps in prop::collection::vec(step(), 0..300)) {
        let mut nodes = Nodes::new(CAPACITY as usize);
        let mut trees = [Tree::new(), Tree::new()];
        let mut models = [Model::new(), Model::new()];
        for (turn, step) in steps.into_iter().enumerate() {
            match step {
                Step::Insert { tree, slot, key } if !nodes.contains(slot) => {
                    trees[tree].insert(&mut nodes, slot, key);
                    models[tree].insert((key, turn, slot));
                }
                Step::Remove { slot } if nodes.contains(slot) => {
                    let of = |model: &Model| model.iter().find(|entry| entry.2 == slot).copied();
                    let tree = usize::from(of(&models[0]).is_none());
                    models[tree].remove(&of(&models[tree]).expect("in one of the two"));
                    trees[tree].remove(&mut nodes, slot);
                }
                Step::Insert { .. } | Step::Remove { .. } => continue,
            }
            for (tree, model) in trees.iter().zip(&models) {
                compare(tree, &nodes, model)?;
            }
        }
    }
}
