//! Judge: what the rules say of a request. Pure; it counts, and has no clock.
//!
//! strike.1  Rules are asked in their order. The first that strikes decides, and the rest neither see nor count the request.
//! strike.2  Chance depends on the seed, the rule, and how many requests the rule has met: the same requests in the
//!          same order meet the same faults.

use fairlift_core::{Duration, Op};

use super::syntax::{Faults, Rule, Then};

pub(super) struct Judge {
    seed: u64,
    rules: Vec<RuleState>,
}

struct RuleState {
    rule: Rule,
    /// Requests that fitted.
    fitted: u64,
    /// Those of them that were struck.
    struck: u64,
}

impl Judge {
    pub(super) fn new(faults: &Faults) -> Self {
        let fresh = |rule: &Rule| RuleState { rule: rule.clone(), fitted: 0, struck: 0 };
        Self { seed: faults.seed, rules: faults.rules.iter().map(fresh).collect() }
    }

    /// The fault of a request; `None`: no fault.
    pub(super) fn judge(&mut self, op: Op, at: u64, bytes: u64) -> Option<(Duration, Then)> {
        let seed = self.seed;
        let mut rules = self.rules.iter_mut().enumerate();
        rules.find_map(|(number, met)| {
            met.strikes(seed, number, op, at, bytes).then_some((met.rule.delay, met.rule.then))
        })
    }
}

impl RuleState {
    fn strikes(&mut self, seed: u64, number: usize, op: Op, at: u64, bytes: u64) -> bool {
        let rule = &self.rule;
        let is_there = |range: &std::ops::Range<u64>| op != Op::Flush && at < range.end && range.start < at + bytes;
        if !(rule.ops.is_empty() || rule.ops.contains(&op)) || !rule.range.as_ref().is_none_or(is_there) {
            return false;
        }
        self.fitted += 1;
        let strikes = self.fitted > rule.after
            && rule.times.is_none_or(|times| self.struck < times)
            && draw(seed, number as u64, self.fitted) < rule.chance; // strike.2
        self.struck += u64::from(strikes);
        strikes
    }
}

/// A number below [`Rule::SURE`] that looks drawn. Splitmix64, once for each of the three.
fn draw(seed: u64, rule: u64, request: u64) -> u64 {
    [seed, rule, request].into_iter().fold(0, |state: u64, word| {
        let mixed = (state ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }) >> 11
}

#[cfg(test)]
mod tests {
    use fairlift_core::Errno;
    use fairlift_core::time::ms;

    use super::*;

    const ALL: Rule = Rule::each(Then::Fail(Errno::EIO));

    fn judge(seed: u64, rules: &[Rule]) -> Judge {
        Judge::new(&Faults { seed, rules: rules.to_vec() })
    }

    /// The struck ones among `reads` reads of 4 KiB, one after the other.
    fn struck(judge: &mut Judge, reads: u64) -> Vec<u64> {
        (0..reads).filter(|n| judge.judge(Op::Read, n * 4096, 4096).is_some()).collect()
    }

    #[test]
    fn a_rule_is_for_its_operations_and_for_requests_that_touch_its_range() {
        let mut judge = judge(1, &[Rule { ops: vec![Op::Read, Op::Flush], range: Some(4096..8192), ..ALL }]);
        let mut strikes = |op, at, bytes| judge.judge(op, at, bytes).is_some();
        assert!(strikes(Op::Read, 4096, 512) && strikes(Op::Read, 0, 4097) && strikes(Op::Read, 8191, 1));
        assert!(!strikes(Op::Read, 0, 4096) && !strikes(Op::Read, 8192, 4096));
        assert!(!strikes(Op::Write, 4096, 512), "another operation");
        assert!(!strikes(Op::Flush, 0, 0), "a flush is nowhere");
    }

    #[test]
    fn a_rule_lets_some_through_first_and_strikes_so_often() {
        let mut judge = judge(1, &[Rule { after: 3, times: Some(2), ..ALL }]);
        assert_eq!(struck(&mut judge, 10), [3, 4]);
    }

    /// strike.1
    #[test]
    fn the_first_rule_that_strikes_decides_and_the_rest_do_not_count_the_request() {
        let slow = Rule { times: Some(1), delay: ms(5), then: Then::Go, ..ALL };
        let mut judge = judge(1, &[slow, Rule { after: 1, ..ALL }]);
        let mut read = || judge.judge(Op::Read, 0, 512);
        assert_eq!(read(), Some((ms(5), Then::Go)));
        assert_eq!(read(), None, "the second rule lets one through, and has met none before");
        assert_eq!(read(), Some((Duration::ZERO, Then::Fail(Errno::EIO))));
    }

    /// strike.2
    #[test]
    fn chance_is_as_often_as_it_says_and_the_same_for_the_same_seed() {
        let half = |seed| struck(&mut judge(seed, &[Rule { chance: Rule::SURE / 2, ..ALL }]), 4000);
        let (one, two) = (half(1), half(2));
        assert!((1800..2200).contains(&one.len()) && (1800..2200).contains(&two.len()), "{} {}", one.len(), two.len());
        assert_eq!(one, half(1));
        let both = one.iter().filter(|n| two.contains(n)).count();
        assert!((850..1150).contains(&both), "{both} of 4000 by both seeds");
        assert!(struck(&mut judge(1, &[Rule { chance: 0, ..ALL }]), 1000).is_empty());
    }
}
