//! Ctrl-C and SIGTERM: first gently, then at once. SIGHUP: the config file is read again.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fairlift::Handle;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use super::reload::Reload;
use crate::control::{ConfigFile as _, ReadAgain};

/// A thread that waits for signals, until this is dropped.
pub(crate) struct Watch {
    signals: signal_hook::iterator::Handle,
    thread: Option<JoinHandle<()>>,
}

/// A signal so soon after the first is the same one: `timeout` sends it to a process and then to its group. Chosen: no person is as quick.
const SAME: Duration = Duration::from_millis(100);

/// From now on the first signal drains the server and the second ends the process with status 128 + its number; but
/// SIGHUP has the config file read again, if there is one. SIGUSR1 and SIGUSR2 did something once, and must not end a server now.
pub(crate) fn watch(handle: Handle, reload: Arc<Reload>) -> io::Result<Watch> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2])?;
    let stop = signals.handle();
    let mut handle = Some(handle);
    let mut since = Instant::now();
    let watch = move || {
        loop {
            let mut is_first = false;
            for signal in signals.wait() {
                if [SIGUSR1, SIGUSR2].contains(&signal) {
                    tracing::warn!("SIGUSR1 and SIGUSR2 do nothing: fairlift status, fairlift acknowledge");
                    continue;
                }
                // Without a file it has its usual meaning: the program's starter is gone.
                if signal == SIGHUP && reload.is_there() {
                    if let Some(handle) = &handle {
                        read_again(handle, &reload);
                    }
                    continue;
                }
                // The handle goes after its one use: it would keep the server's sockets alive.
                let Some(handle) = handle.take() else {
                    if is_first || since.elapsed() < SAME {
                        continue;
                    }
                    tracing::warn!("stopped at once; writes that were not flushed may be lost");
                    std::process::exit(128 + signal);
                };
                tracing::info!("draining: finishing requests in flight (a second signal stops at once)");
                super::systemd::stopping();
                handle.drain();
                (is_first, since) = (true, Instant::now());
            }
            if signals.is_closed() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("signals".into()).spawn(watch)?;
    Ok(Watch { signals: stop, thread: Some(thread) })
}

/// Reads the config file again, and logs what has changed, or why nothing has.
fn read_again(handle: &Handle, reload: &Reload) {
    super::systemd::reloading();
    match reload.read_again(handle, None, false) {
        Ok(ReadAgain { changes, .. }) if changes.is_empty() => {
            tracing::info!("reloaded: the config file and the running configuration are the same");
        }
        Ok(ReadAgain { changes, warnings }) => {
            changes.iter().for_each(|change| tracing::info!("reloaded: {change}"));
            warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        }
        Err(why) => {
            why.lines().iter().for_each(|why| tracing::error!("{why}"));
            tracing::error!("not reloaded: nothing has changed");
        }
    }
    super::systemd::ready();
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Its wake-up can fail where the kernel has no memory for a byte: then the process ends without it.
        for _ in 0..1000 {
            self.signals.close();
            if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        if self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return;
        }
        // It holds the server's handle: what that keeps alive has to go before the process ends.
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            tracing::error!("the signal thread panicked");
        }
    }
}
