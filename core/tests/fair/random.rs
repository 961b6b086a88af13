//! Fair under anything: nothing is lost, nothing goes twice, and the device is never left idle.

use fairlift_core::sched::Kind;
use proptest::prelude::*;

use crate::anything::{Run, Subject, step};

const FAIR: Subject = Subject { kind: Kind::Fair, idle_max: None };

fairlift_lab::proptest! {
    #![proptest_config(ProptestConfig { cases: 200, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_or_goes_twice_and_the_device_is_never_left_idle(
        steps in prop::collection::vec(step(), 1..300),
        depth in prop_oneof![Just(1_u16), Just(4), Just(32)],
    ) {
        let mut run = Run::new(FAIR, depth, false);
        for step in &steps {
            run.step(step)?;
        }
        run.finish()?;
    }
}
