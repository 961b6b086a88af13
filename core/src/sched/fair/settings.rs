//! The tunables of `fair`.

use crate::cost_model::Model;
use crate::tunable::settings;

settings! {
    /// The tunables of `fair`; all of them can change while requests wait and are in flight.
    #[derive(Clone, PartialEq, Debug)]
    pub struct Settings {
        /// limit on requests in the device; 0: learned, as many as throughput needs, but fewer where tenants with few
        /// requests would miss their share
        pub device_depth: u32 = 0, count(0, 65_535);
        /// the most throughput, in %, that is given up so that tenants with few requests get their share
        pub isolation_cost: u32 = 15, count(0, 90);
        /// the cost of requests, written as in the kernel's io.cost.model; costs are learned from there on; auto: start
        /// with those of a flash disk, which is better than figures that nobody measured
        pub cost_model: Option<Model> = None, auto_cost_model;
    }
}
