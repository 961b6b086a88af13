//! Ctrl-C and SIGTERM: first gently, then at once.

use std::io;

use fairlift::Handle;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// From now on the first signal drains the server and the second ends the process with status 128 + its number.
///
/// # Errors
/// The signals cannot be watched.
pub(crate) fn drain_on_signal(handle: Handle) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let watch = move || {
        let mut draining = false;
        for signal in signals.forever() {
            if draining {
                tracing::warn!("stopped at once; what was not flushed may be lost");
                std::process::exit(128 + signal);
            }
            draining = true;
            tracing::info!("draining (again to stop at once)");
            crate::systemd::stopping();
            handle.drain();
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(watch).map(drop)
}
