//! Ctrl-C and SIGTERM: first gently, then at once. SIGHUP: the config file is read again.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fairlift::Handle;
use fairlift::control::Refused;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use super::reload::Reload;
use crate::control::{ConfigFile as _, NotRead, ReadAgain};

/// A thread that waits for signals, and one that reads the config file again, until this is dropped.
pub(crate) struct Watch {
    signals: signal_hook::iterator::Handle,
    threads: Vec<JoinHandle<()>>,
}

/// A signal so soon after the first is the same one: `timeout` sends it to a process and then to its group. Chosen: no person is as quick.
const SAME: Duration = Duration::from_millis(100);

/// From now on the first signal drains the server and the second ends the process with status 128 + its number; but
/// SIGHUP has the config file read again, if there is one. SIGUSR1 and SIGUSR2 did something once, and must not end a server now.
pub(crate) fn watch(handle: Handle, reload: Arc<Reload>) -> io::Result<Watch> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2])?;
    let stop = signals.handle();
    // Behind a file system that hangs a reload may last for ever, and shall not keep the next signal waiting.
    let (reads, asked) = sync_channel(1);
    let (is_there, of_reload) = (reload.is_there(), handle.clone());
    let reloads = move || read_again(&asked, &of_reload, &reload);
    let mut serving = Some((handle, reads));
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
                if signal == SIGHUP && is_there {
                    if let Some((_, reads)) = &serving {
                        let _ = reads.try_send(()); // one that has not begun reads what there is now
                    }
                    continue;
                }
                // The handle goes after its one use: it would keep the server's sockets alive.
                let Some((handle, _)) = serving.take() else {
                    if is_first || since.elapsed() < SAME {
                        continue;
                    }
                    tracing::warn!("stopped at once; writes that were not flushed may be lost");
                    std::process::exit(128 + signal);
                };
                tracing::info!("draining: finishing requests in flight (a second signal stops at once)");
                super::systemd::tell("STOPPING=1");
                handle.drain();
                (is_first, since) = (true, Instant::now());
            }
            if signals.is_closed() {
                return;
            }
        }
    };
    let thread = |name: &str| std::thread::Builder::new().name(name.into());
    let threads = vec![thread("reload").spawn(reloads)?, thread("signals").spawn(watch)?];
    Ok(Watch { signals: stop, threads })
}

/// Reads the config file again each time that it is asked to, and logs what has changed, or why nothing has.
fn read_again(asked: &Receiver<()>, handle: &Handle, reload: &Reload) {
    while asked.recv().is_ok() {
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
                let is_in_part = matches!(why, NotRead::Refused(Refused::InPart { .. }));
                why.lines().iter().for_each(|why| tracing::error!("{why}"));
                match is_in_part {
                    true => tracing::error!("reloaded in part"),
                    false => tracing::error!("not reloaded: nothing has changed"),
                }
            }
        }
        super::systemd::ready();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Its wake-up can fail where the kernel has no memory for a byte: then the process ends without it.
        for _ in 0..1000 {
            self.signals.close();
            if self.threads.iter().all(JoinHandle::is_finished) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        // The threads hold the server's handle, and what that keeps alive has to go before the process ends. A thread that hangs ends with the process.
        for thread in self.threads.drain(..).filter(JoinHandle::is_finished) {
            if thread.join().is_err() {
                tracing::error!("the thread of signals or reloads panicked");
            }
        }
    }
}
