//! The bound of the header, watched from outside by sectors, and from inside by virtual time.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

use crate::GroupId;

use super::super::{Arrival, Leaf};
use super::Pair;
use super::model::Is;

/// What a run is measured by, and how close it came. A ratio of 1 is the bound.
#[derive(Default, Debug)]
pub(super) struct Bounds {
    /// The largest budget of each entity: of a group, that of the queues below.
    budgets: Vec<f64>,
    /// The largest credit that each was given, or a queue below it.
    credits: Vec<f64>,
    always: bool,
    /// Sectors served of each entity.
    served: Vec<f64>,
    /// Of two siblings that are both backlogged: the least and greatest difference of service ÷ weight since they are.
    apart: BTreeMap<(usize, usize), (f64, f64)>,
    times: BTreeMap<(usize, usize), u128>,
    pub(super) pair: (f64, u64),
    pub(super) lead: (f64, u64),
    pub(super) lag: (f64, u64),
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pair, lead, lag, .. } = self;
        write!(
            f,
            "worst lag {:.3} of its bound (seed {}), worst lead {:.3} (seed {}), two siblings apart {:.3} (seed {})",
            lag.0, lag.1, lead.0, lead.1, pair.0, pair.1
        )
    }
}

impl Bounds {
    /// Learns which queues there are; `budget` is the largest of a queue.
    pub(super) fn mind(&mut self, pair: &Pair, budget: impl Fn(Leaf) -> u64, always: bool) {
        self.always = always;
        self.budgets.resize(pair.model.entities.len(), 0.0);
        self.served.resize(pair.model.entities.len(), 0.0);
        self.credits.resize(pair.model.entities.len(), 0.0);
        for &leaf in &pair.leaves {
            let budget = budget(leaf) as f64;
            self.up(pair, leaf, |bounds, slot| bounds.budgets[slot] = bounds.budgets[slot].max(budget));
        }
    }

    /// A queue comes back, and perhaps groups above it.
    pub(super) fn comes(&mut self, pair: &Pair, leaf: Leaf, arrival: Arrival) {
        if let Arrival::Present { credit } = arrival {
            self.up(pair, leaf, |bounds, slot| {
                if let Some(most) = bounds.credits.get_mut(slot) {
                    *most = most.max(f64::from(credit));
                }
            });
        }
    }

    /// A group comes back, and perhaps those above it.
    pub(super) fn comes_group(&mut self, pair: &Pair, group: GroupId, arrival: Arrival) {
        self.comes(pair, Leaf(pair.fair.group(group).entity), arrival);
    }

    fn up(&mut self, pair: &Pair, leaf: Leaf, mut act: impl FnMut(&mut Self, usize)) {
        let mut at = Some(leaf.0 as usize);
        while let Some(slot) = at {
            act(self, slot);
            at = pair.model.groups[pair.model.entities[slot].as_ref().unwrap().parent].as_ref().unwrap().slot;
        }
    }

    pub(super) fn served(&mut self, pair: &Pair, leaf: Leaf, sectors: u64) {
        self.up(pair, leaf, |bounds, slot| {
            if let Some(served) = bounds.served.get_mut(slot) {
                *served += sectors as f64;
            }
        });
    }

    /// Forgets V: a change may have left nobody in a tree for a moment.
    pub(super) fn changed(&mut self) {
        self.times.clear();
    }

    /// Looks at every pair of siblings. One that was added under way is not looked at: only loads without changes have bounds.
    pub(super) fn look(&mut self, pair: &Pair) {
        let model = &pair.model;
        let mut apart = BTreeMap::new();
        for (group, row) in model.groups.iter().enumerate() {
            let Some(row) = row else { continue };
            for class in 0..3 {
                let siblings: Vec<usize> = (0..self.budgets.len())
                    .filter(|&slot| {
                        model.entities[slot].as_ref().is_some_and(|e| e.parent == group && e.class == class)
                    })
                    .collect();
                // Nobody is ever backlogged in a group without queues.
                let siblings: Vec<usize> = siblings.into_iter().filter(|&slot| self.budgets[slot] > 0.0).collect();
                let backlogged =
                    |&&slot: &&usize| matches!(model.entities[slot].as_ref().unwrap().is, Is::Waiting | Is::Served);
                let busy: Vec<usize> = siblings.iter().filter(backlogged).copied().collect();
                let weight = |slot: usize| model.entities[slot].as_ref().unwrap().weight as f64;
                // V never goes back while an entity waits or is served.
                let now = row.time[class];
                let before = self.times.insert((group, class), now);
                assert!(busy.is_empty() || before.is_none_or(|before| before <= now), "V of group {group} went back");
                let largest = siblings.iter().map(|&slot| self.budgets[slot]).fold(0.0, f64::max);
                let all: f64 = siblings.iter().map(|&slot| weight(slot)).sum();
                // The least W that there can be while two are busy.
                let least = |one: usize, other: Option<usize>| {
                    if self.always {
                        return all;
                    }
                    let others = siblings.iter().filter(|&&slot| slot != one).map(|&slot| weight(slot));
                    weight(one) + other.map_or_else(|| others.fold(f64::INFINITY, f64::min).min(all), |_| 0.0)
                };
                for (at, &i) in busy.iter().enumerate() {
                    let (budget, w) = (self.budgets[i], weight(i));
                    let entity = model.entities[i].as_ref().unwrap();
                    let lead =
                        (entity.start as i128 - now as i128) as f64 / (1_u64 << 40) as f64 + entity.service as f64 / w;
                    let most = budget / w * if self.always { 1.0 - w / all } else { 1.0 };
                    if siblings.len() > 1 {
                        worse(&mut self.lead, lead / most);
                        worse(&mut self.lag, -lead / (budget.max(self.credits[i]) / w + largest / least(i, None)));
                    }
                    for &j in &busy[at + 1..] {
                        let difference = self.served[i] / w - self.served[j] / weight(j);
                        let (low, high) = self.apart.get(&(i, j)).map_or((difference, difference), |&(low, high)| {
                            (low.min(difference), high.max(difference))
                        });
                        apart.insert((i, j), (low, high));
                        let of = |slot: usize| {
                            let budget = self.budgets[slot];
                            let behind = budget.max(self.credits[slot]);
                            (budget + behind) / weight(slot) + (largest - budget) / least(slot, None)
                        };
                        worse(&mut self.pair, (high - low) / (of(i) + of(j)));
                    }
                }
            }
        }
        self.apart = apart;
    }

    pub(super) fn keep_worse(&mut self, run: &Self, seed: u64) {
        for (kept, seen) in [(&mut self.pair, run.pair), (&mut self.lead, run.lead), (&mut self.lag, run.lag)] {
            if seen.0 > kept.0 {
                *kept = (seen.0, seed);
            }
        }
    }

    pub(super) fn assert_kept(&self) {
        // Tags are rounded by 2⁻⁴⁰ a step.
        let kept = |(ratio, _): (f64, u64)| ratio <= 1.0 + 1e-6;
        assert!(kept(self.pair) && kept(self.lead) && kept(self.lag), "{self}");
    }
}

fn worse(worst: &mut (f64, u64), ratio: f64) {
    worst.0 = worst.0.max(ratio);
}
