//! CFQ under anything: nothing is lost, nothing goes twice, and no request waits for ever.

use fairlift_core::Duration;
use fairlift_core::sched::Kind;
use fairlift_core::sched::cfq::Settings;
use fairlift_core::sched::traits::Scheduler;
use fairlift_core::tunable::parse_duration;
use proptest::prelude::*;

use crate::anything::{Run, Subject, step};

const CFQ: Subject = Subject { kind: Kind::Cfq, idle_max: Some(idle_max) };

/// The longest idle time, as it is set; `auto` is the kernel's.
fn idle_max(cfq: &dyn Scheduler) -> Duration {
    let idle = |name| parse_duration(&cfq.get(name).unwrap());
    idle("slice_idle").unwrap_or(Settings::SLICE_IDLE).max(idle("group_idle").unwrap())
}

fairlift_lab::proptest! {
    #![proptest_config(ProptestConfig { cases: 800, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_or_goes_twice_and_the_device_is_never_left_idle_without_an_end(
        steps in prop::collection::vec(step(), 1..200),
        depth in prop_oneof![Just(1_u16), Just(4), Just(32)],
        rotational in any::<bool>(),
    ) {
        let mut run = Run::new(CFQ, depth, rotational);
        for step in &steps {
            run.step(step)?;
        }
        run.finish()?;
    }
}
