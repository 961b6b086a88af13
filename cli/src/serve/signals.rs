//! Ctrl-C and SIGTERM: first gently, then at once. SIGUSR1: who has had how much. SIGUSR2: flush errors are taken note of.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use fairlift::Handle;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

/// A thread that waits for signals, until this is dropped.
pub(crate) struct Watch {
    signals: signal_hook::iterator::Handle,
    thread: Option<JoinHandle<()>>,
}

/// From now on the first signal drains the server and the second ends the process with status 128 + its number; but
/// SIGUSR1 has the shares of the groups logged, and SIGUSR2 says that the operator has taken note of all flush errors.
///
/// # Errors
/// The signals cannot be watched.
pub(crate) fn drain_on_signal(handle: Handle) -> io::Result<Watch> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2])?;
    let stop = signals.handle();
    let mut handle = Some(handle);
    let watch = move || {
        for signal in signals.forever() {
            if signal == SIGUSR1 {
                if let Some(handle) = &handle {
                    handle.log_shares();
                }
                continue;
            }
            if signal == SIGUSR2 {
                if handle.as_ref().is_some_and(|handle| handle.acknowledge_flush_errors() == 0) {
                    tracing::info!("SIGUSR2: there is no flush error to take note of");
                }
                continue;
            }
            // The handle goes after its one use: it would keep the server's sockets alive.
            let Some(handle) = handle.take() else {
                tracing::warn!("stopped at once; what was not flushed may be lost");
                std::process::exit(128 + signal);
            };
            tracing::info!("draining (again to stop at once)");
            super::systemd::stopping();
            handle.drain();
        }
    };
    let thread = std::thread::Builder::new().name("signals".into()).spawn(watch)?;
    Ok(Watch { signals: stop, thread: Some(thread) })
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.signals.close();
        // It holds the server's handle: what that keeps alive has to go before the process ends.
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            tracing::error!("the signal thread panicked");
        }
    }
}

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
///
/// # Errors
/// The signals cannot be watched.
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
