//! The clock of requests. (A few waits with a deadline use `std::time` by themselves: binding, file locks, and a caller of the
//! library who shares a flush, in `flush_within`.)

use std::sync::OnceLock;
use std::time;

use fairlift_core::Instant;

/// The time since the process first asked, by the monotonic clock. About 25 ns: ask once per batch, not per request.
pub fn now() -> Instant {
    static ORIGIN: OnceLock<time::Instant> = OnceLock::new();
    let origin = ORIGIN.get_or_init(time::Instant::now);
    Instant::from_nanos(u64::try_from(origin.elapsed().as_nanos()).expect("584 years have not passed"))
}
