//! Ctrl-C while something is measured: first a report of the results so far, then the end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Whether a signal said stop.
pub(crate) struct Stop {
    signal: Arc<AtomicUsize>,
}

impl Stop {
    /// The number of the signal that came.
    pub(crate) fn signal(&self) -> Option<i32> {
        match self.signal.load(Ordering::Relaxed) {
            0 => None,
            signal => i32::try_from(signal).ok(),
        }
    }
}

/// From now on the first signal is noted and the second one ends the process, as it would have without this.
pub(crate) fn stop_on_signal() -> io::Result<Stop> {
    let (signal, again) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    for number in [SIGINT, SIGTERM, SIGHUP] {
        // In this order: the first signal finds `again` unset, and sets it.
        signal_hook::flag::register_conditional_default(number, Arc::clone(&again))?;
        signal_hook::flag::register(number, Arc::clone(&again))?;
        signal_hook::flag::register_usize(number, Arc::clone(&signal), usize::try_from(number).unwrap_or(1))?;
    }
    Ok(Stop { signal })
}
