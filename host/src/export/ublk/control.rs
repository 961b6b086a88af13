//! Orders to the driver.
//!
//! An order may wait in the kernel: a device that starts has its partitions looked for, which the workers read; one that stops waits for
//! its requests. So no worker gives orders. Each thread that does has a ring of its own, with entries of 128 bytes.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use super::proto::{self, INFO, Info, Order, PARAMS, Params};
use crate::export::patiently;

const PLACE: &str = "/dev/ublk-control";

/// Bytes of an order for the path of a device's own file, zeroes after it.
const PATH: usize = 32;

/// How often it is tried anew what the kernel says is not possible yet.
const AGAIN: Duration = Duration::from_millis(2);

pub(super) struct Control {
    file: File,
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    pub(super) features: u64,
}

impl Control {
    /// # Errors
    /// The driver is not there, or may not be used; the text says what would help.
    pub(super) fn open() -> Result<Self, String> {
        let file = File::options().read(true).write(true).open(PLACE).map_err(|error| match error.kind() {
            ErrorKind::NotFound => format!(
                "there is no {PLACE}: the kernel's module ublk_drv is not loaded (modprobe ublk_drv), or this kernel has none (Linux \
                 6.5 or newer with CONFIG_BLK_DEV_UBLK; on Debian 12 that of bookworm-backports)"
            ),
            ErrorKind::PermissionDenied => format!(
                "{PLACE} may not be used by user {}: run as root, or let a udev rule give it to this user and set unprivileged \
                 (docs/ublk.md)",
                rustix::process::geteuid().as_raw()
            ),
            _ => format!("{PLACE}: {error}"),
        })?;
        let ring =
            IoUring::builder().build(4).map_err(|error| format!("io_uring is not available for {PLACE}: {error}"))?;
        let mut control = Self { file, ring, features: 0 };
        let mut features = [0; 8];
        control
            .order(Order::GET_FEATURES, u32::MAX, false, &mut features, 0)
            .map_err(|error| format!("{PLACE} does not say what it can do ({error}): Linux 6.5 or newer is needed"))?;
        control.features = u64::from_ne_bytes(features);
        if control.features & proto::NEED_GET_DATA == 0 {
            return Err(format!(
                "the kernel's ublk_drv cannot ask where data shall be (get_data; it has {})",
                control.show_features()
            ));
        }
        Ok(control)
    }

    pub(super) fn show_features(&self) -> String {
        proto::names(self.features)
    }

    /// Gives an order and waits for its end. Its data is `data`, which the driver may change.
    ///
    /// `by_path`: the driver looks whether we may use the device's own file (a device that needs no privileges).
    fn order(&mut self, order: Order, dev: u32, by_path: bool, data: &mut [u8], number: u64) -> io::Result<()> {
        let mut all = Vec::with_capacity(PATH + data.len());
        if by_path {
            all.extend_from_slice(device_path(dev).as_bytes());
            all.resize(PATH, 0);
        }
        let path = all.len();
        all.extend_from_slice(data);
        let addr = if all.is_empty() { 0 } else { all.as_mut_ptr() as u64 };
        let bytes = proto::control(dev, addr, all.len() as u16, number, path as u16);
        let entry = opcode::UringCmd80::new(types::Fd(self.file.as_raw_fd()), order.code).cmd(bytes).build();
        // SAFETY: `all` and the descriptor stay until the completion was taken: nothing leaves the loop below before that.
        unsafe { self.ring.submission().push(&entry) }.expect("one order at a time");
        let result = loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if [Some(libc::EAGAIN), Some(libc::EBUSY)].contains(&error.raw_os_error()) => {
                    std::thread::sleep(AGAIN)
                }
                Err(error) => {
                    // The order is in the ring, to be taken if that is used again.
                    std::mem::forget(all);
                    return Err(error);
                }
            }
            if let Some(entry) = self.ring.completion().next() {
                break entry.result();
            }
        };
        data.copy_from_slice(&all[path..]);
        if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
    }

    /// An order with a number alone. An order that a signal interrupts has done nothing, or all but waiting.
    pub(super) fn tell(&mut self, order: Order, dev: &Info, number: u64) -> io::Result<()> {
        loop {
            match self.order(order, dev.id, dev.by_path(), &mut [], number) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    /// Stops a device and removes it. A missing device is no error.
    pub(super) fn remove(&mut self, dev: &Info) -> Result<(), String> {
        for order in [Order::STOP_DEV, Order::DEL_DEV] {
            if let Err(error) = self.tell(order, dev, 0)
                && error.raw_os_error() != Some(libc::ENODEV)
            {
                return Err(format!("{} cannot be removed ({}: {error})", block_path(dev.id), order.name));
            }
        }
        Ok(())
    }

    /// The driver's record of a device of any server.
    pub(super) fn info(&mut self, id: u32) -> io::Result<Info> {
        let mut bytes = [0; INFO];
        self.order(Order::GET_DEV_INFO2, id, true, &mut bytes, 0)?;
        Ok(Info::read(&bytes))
    }

    /// Adds a device; with `u32::MAX` the driver chooses its number. Answers the resulting device.
    pub(super) fn add(&mut self, wanted: &Info) -> io::Result<Info> {
        let mut bytes = wanted.bytes();
        self.order(Order::ADD_DEV, wanted.id, false, &mut bytes, 0)?;
        Ok(Info::read(&bytes))
    }

    pub(super) fn set_params(&mut self, dev: &Info, params: &Params) -> io::Result<()> {
        self.order(Order::SET_PARAMS, dev.id, dev.by_path(), &mut params.bytes(), 0)
    }

    pub(super) fn params(&mut self, dev: &Info) -> io::Result<Params> {
        let mut bytes = [0; PARAMS];
        bytes[..4].copy_from_slice(&(PARAMS as u32).to_ne_bytes());
        self.order(Order::GET_PARAMS, dev.id, dev.by_path(), &mut bytes, 0)?;
        Ok(Params::read(&bytes))
    }

    /// Takes a device that has no server for this process; waits, for so long at most, until the one that had it is gone.
    pub(super) fn take_over(&mut self, dev: &Info, patience: Duration) -> io::Result<()> {
        let is_busy = |error: &io::Error| error.kind() == ErrorKind::ResourceBusy;
        let taken = patiently((patience, AGAIN), is_busy, || self.tell(Order::START_USER_RECOVERY, dev, 0));
        taken.or_else(|error| match error.kind() {
            // Another server began with it and died before it had the first queue: the driver is as far as we want it.
            ErrorKind::InvalidInput if self.info(dev.id).is_ok_and(|info| info.state() == proto::State::Quiesced) => {
                Ok(())
            }
            _ => Err(error),
        })
    }
}

/// The file by which a device's server has it.
pub(super) fn device_path(id: u32) -> String {
    format!("/dev/ublkc{id}")
}

pub(super) fn block_path(id: u32) -> String {
    format!("/dev/ublkb{id}")
}

pub(super) fn all() -> Vec<u32> {
    let there = |place: &str| std::fs::read_dir(place).ok();
    let entries = there("/sys/class/ublk-char").or_else(|| there("/dev")).into_iter().flatten().filter_map(Result::ok);
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.strip_prefix("ublkc")?.parse().ok();
    let mut numbers: Vec<_> = entries.filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}

/// Whether a process runs, and is not dead already.
pub(super) fn runs(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    pid > 0 && stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}

/// Numbers of devices, for people.
pub(super) fn show(ids: &[u32]) -> String {
    if ids.is_empty() {
        return "none".into();
    }
    ids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_runs_until_it_is_dead() {
        assert!(runs(std::process::id() as i32));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id() as i32;
        child.wait().unwrap();
        assert!(!runs(pid) && !runs(-1) && !runs(0));
    }

    /// Where there is no driver, people are told what to do.
    #[test]
    fn without_the_driver_a_sentence_says_what_is_missing() {
        if std::path::Path::new(PLACE).exists() {
            return;
        }
        let why = Control::open().err().unwrap();
        assert!(why.contains("modprobe ublk_drv"), "{why}");
    }
}
