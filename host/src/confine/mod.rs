//! Confining the process: giving up what a server no longer needs once it has started.
//!
//! A server reads bytes of strangers. Should one of them find a way to run code of their own in it, that code may do whatever
//! the process may. Example: root starts a server for two block devices. It opened them at the start; from then on it needs no
//! right to open any file of any user, to load kernel modules or to start programs, so it gives these up.
//!
//! This is for programs, not for libraries: it binds all of the process, and cannot be undone. `fairlift serve` does it.
//!
//! confine.1  Capabilities are given up by the thread that starts all others, before it does: they are a thread's own. Lasting settings
//!            that need one (`PR_SET_IO_FLUSHER`, locked memory without a limit) are made before.
//! confine.2  A system call that is on no list (`calls`) fails with `EPERM`, in every thread. It is said once for each call, on
//!            standard error, and the server goes on. Killing it would take every tenant's disk away for a call that a new
//!            libc makes and the list has not heard of; a call that fails does no harm. (A thread that holds signals back cannot
//!            be told: there the kernel ends the process. `posix_spawn` does so; a server starts no programs.)
//! confine.3  The list binds system calls, not what io_uring does on behalf of the process: the kernel asks no filter there. The
//!            capabilities that were given up bind both.

mod calls;
mod refused;

use std::fmt;
use std::io;
use std::str::FromStr;

use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{self, CapabilitySet, CapabilitySets};

use crate::kernel::ring;

/// One of the rights that make up root's power.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capability(CapabilitySet);

impl Capability {
    /// The capabilities that the kernel demands for making and removing block devices.
    pub const SYS_ADMIN: Self = Self(CapabilitySet::SYS_ADMIN);

    /// The capabilities that the kernel demands for giving a file to another user.
    pub const OF_GIVING: [Self; 2] = [Self(CapabilitySet::CHOWN), Self(CapabilitySet::FOWNER)];

    /// Whether the calling thread has it.
    #[must_use]
    pub fn is_there(self) -> bool {
        thread::capabilities(None).is_ok_and(|sets| sets.permitted.contains(self.0))
    }
}

impl FromStr for Capability {
    type Err = String;

    /// From its name: `CAP_DAC_OVERRIDE`, `dac_override`.
    fn from_str(text: &str) -> Result<Self, String> {
        let name = text.to_ascii_uppercase();
        let set = CapabilitySet::from_name(name.strip_prefix("CAP_").unwrap_or(&name));
        set.map(Self)
            .ok_or_else(|| format!("there is no capability {text:?}; one is CAP_DAC_OVERRIDE (man 7 capabilities)"))
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter_names().try_for_each(|(name, _)| write!(f, "CAP_{name}"))
    }
}

/// Whether the calling thread has these capabilities.
///
/// # Errors
/// The first that it lacks.
pub fn can_keep(keep: &[Capability]) -> io::Result<()> {
    let Some(lacking) = keep.iter().find(|one| !one.is_there()) else { return Ok(()) };
    let why = format!("{lacking} cannot be kept: the process does not have it");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// Gives up all capabilities but these (confine.1), for the calling thread and those that it starts from now on. Answers which
/// are kept: `CAP_IPC_LOCK` as well where the process may lock little memory without it and cannot raise that limit, for rings
/// are locked memory.
///
/// # Errors
/// A capability that is to be kept is missing, or the kernel refuses.
pub fn give_up_capabilities(keep: &[Capability]) -> io::Result<Vec<Capability>> {
    can_keep(keep)?;
    let mut kept = keep.iter().fold(CapabilitySet::empty(), |all, one| all | one.0);
    let had = thread::capabilities(None)?.permitted;
    ring::be_flusher(); // confine.1
    if setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None }).is_err() {
        kept |= had & CapabilitySet::IPC_LOCK;
    }
    thread::clear_ambient_capability_set()?;
    // Programs that it would start get none either; a process that may not drop them has none to pass on.
    for Capability(one) in names(CapabilitySet::all() - kept) {
        match thread::remove_capability_from_bounding_set(one) {
            // A kernel does not know the newest ones.
            Ok(()) | Err(rustix::io::Errno::PERM | rustix::io::Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let wanted = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    // A service manager that has given it no others may have forbidden the call too (`SystemCallFilter=~@privileged`).
    if thread::capabilities(None)? != wanted {
        thread::set_capabilities(None, wanted)?;
    }
    Ok(names(kept))
}

fn names(set: CapabilitySet) -> Vec<Capability> {
    set.iter().map(Capability).collect()
}

/// Lets the process make the system calls that a server needs, and no others (confine.2). `block_devices`: it has block devices of this
/// machine, or may come to have some.
///
/// # Errors
/// There is no list for this architecture, or the kernel takes no filter.
pub fn filter_system_calls(block_devices: bool) -> Result<(), String> {
    let filters = calls::filters(block_devices)?;
    refused::listen().map_err(|error| format!("SIGSYS cannot be handled: {error}"))?;
    for filter in &filters {
        seccompiler::apply_filter_all_threads(filter).map_err(|error| error.to_string())?;
    }
    Ok(())
}
