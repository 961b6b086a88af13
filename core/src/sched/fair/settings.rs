//! What can be turned on the fair scheduler.

use super::cost::Model;
use crate::tunable::{Tunable, TunableInfo, infos};

/// What can be turned; all of it while requests wait and are in flight.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Requests in the device at once; 0: learned.
    pub device_depth: u32,
    /// The most throughput, in %, that is given up so that tenants with few requests get their share.
    pub isolation_cost: u32,
    /// What requests cost; `None`: learned from the start on. A model that is given is where learning starts.
    pub cost_model: Option<Model>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { device_depth: 0, isolation_cost: 15, cost_model: None }
    }
}

pub(super) const ROWS: [Tunable<Settings>; 3] = [
    Tunable::count(
        "device_depth",
        (0, 65_535),
        |s| &mut s.device_depth,
        "limit on requests in the device; 0: learned, as many as throughput needs, but fewer where tenants with few requests would miss their share",
    ),
    Tunable::count(
        "isolation_cost",
        (0, 90),
        |s| &mut s.isolation_cost,
        "the most throughput, in %, that is given up so that tenants with few requests get their share",
    ),
    Tunable::auto_cost_model(
        "cost_model",
        |s| &mut s.cost_model,
        "the cost of requests, written as in the kernel's io.cost.model; costs are learned from there on; auto: start with those of a flash disk",
    ),
];

impl Settings {
    /// The tunables.
    pub const INFO: &'static [TunableInfo] = &infos(&ROWS);
}
