//! Memory that others have lent us, and may take away.
//!
//! A virtual machine's memory is a file that its monitor shares with us. If the monitor cuts the file short, nobody can touch what
//! was behind the new end: the kernel sends a signal (SIGBUS), which ends the process, and with it the disks of all other
//! machines. Example: 32 machines have their disks from one server; the monitor of one of them fails in an odd way, and 31 go on.
//!
//! lent.1  Where memory that was lent is gone, there are zeroes of our own instead, and whose memory it was can be asked whether it is.
//!         The kernel needs no such help: a read or write that names memory that is gone fails. Where others would lose by that, the
//!         memory is touched, and the call made again.
//! lent.2  That signal ends the process, as ever, if it is for anything else.

use std::ops::Deref;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Once, OnceLock};

use vm_memory::{GuestMemoryBackend as _, GuestMemoryMmap, GuestMemoryRegion as _, MemoryRegionAddress};

use crate::sync::{Mutex, lock};

/// A piece of memory that was lent, for as long as it is mapped.
pub(crate) struct Lent(&'static Entry);

/// A place in the list that is looked through when the signal comes. The list only grows: nothing is freed that a thread with the signal
/// may look at. An entry that was given back is used again.
struct Entry {
    /// 0: nothing was lent.
    start: AtomicUsize,
    len: AtomicUsize,
    gone: AtomicBool,
    next: *const Entry,
}

// SAFETY: `next` is set before the entry is in the list, and never again; entries live for ever.
unsafe impl Sync for Entry {}

static FIRST: AtomicPtr<Entry> = AtomicPtr::new(null_mut());
static UNUSED: Mutex<Vec<&'static Entry>> = Mutex::new(Vec::new());
/// The action of the signal before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

impl Entry {
    fn names(&self, start: usize, len: usize) {
        self.len.store(len, Ordering::Release); // a reader of this length finds the earlier start gone
        self.start.store(start, Ordering::Release);
    }

    /// Start and length of its mapping, if that has this address. The entry may be used again meanwhile: the start of one mapping with the
    /// length of another is no mapping.
    fn mapping(&self, at: usize) -> Option<(usize, usize)> {
        let (start, len) = (self.start.load(Ordering::Acquire), self.len.load(Ordering::Acquire));
        let has = start != 0 && at.wrapping_sub(start) < len && self.start.load(Ordering::Relaxed) == start;
        has.then_some((start, len))
    }
}

impl Lent {
    /// Takes note of a mapping of this length, which stays until this is dropped.
    pub(crate) fn new(start: *const u8, len: usize) -> Self {
        listen();
        let mut unused = lock(&UNUSED);
        let entry = unused.pop().unwrap_or_else(|| {
            let (start, len, gone) = Default::default();
            let next = FIRST.load(Ordering::Relaxed);
            let entry = Box::leak(Box::new(Entry { start, len, gone, next }));
            FIRST.store(entry, Ordering::Release); // under the lock
            entry
        });
        entry.gone.store(false, Ordering::Relaxed);
        entry.names(start as usize, len);
        Self(entry)
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.0.gone.load(Ordering::Relaxed)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.0.start.store(0, Ordering::Release);
        lock(&UNUSED).push(self.0);
    }
}

/// A virtual machine's memory, as its monitor has lent it.
pub(crate) struct Machine {
    // Goes before what it names is unmapped.
    lent: Vec<Lent>,
    memory: GuestMemoryMmap,
}

impl Machine {
    pub(crate) fn new(memory: GuestMemoryMmap) -> Self {
        let lend = |region: &<GuestMemoryMmap as vm_memory::GuestMemoryBackend>::R| {
            let start = region.get_host_address(MemoryRegionAddress(0)).expect("a mapping has an address");
            Lent::new(start, region.len() as usize)
        };
        Self { lent: memory.iter().map(lend).collect(), memory }
    }

    /// Whether some of it was found to be gone (lent.1).
    pub(crate) fn is_gone(&self) -> bool {
        self.lent.iter().any(Lent::is_gone)
    }
}

impl Deref for Machine {
    type Target = GuestMemoryMmap;

    fn deref(&self) -> &GuestMemoryMmap {
        &self.memory
    }
}

/// Touches memory that the kernel could not read or write: if it was lent and is gone, there are zeroes then (lent.1).
///
/// # Safety
/// It is mapped.
pub(crate) unsafe fn touch(piece: libc::iovec) {
    let last = piece.iov_len.checked_sub(1);
    for at in (0..piece.iov_len).step_by(4096).chain(last) {
        // SAFETY: the caller says so. Others may write to it: the value is not used.
        unsafe { piece.iov_base.cast::<u8>().add(at).read_volatile() };
    }
}

fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: all zeroes are a `sigaction`: no flags, no signals held back.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = touched as *const () as usize;
        // On a thread's other stack, if it has one: its own may be what cannot be touched.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: as above.
        let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: `touched` is a handler of the kind that the flags say. It is set before it can be needed, and the handler before it is
        // known by then: nothing was lent yet.
        if unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before) } == 0 {
            let _ = BEFORE.set(before);
            // SAFETY: as above.
            unsafe { libc::sigaction(libc::SIGBUS, &raw const action, null_mut()) };
        }
    });
}

/// Memory was touched that cannot be had. All calls here are allowed in a signal handler: atomics, `mmap` and `sigaction`.
extern "C" fn touched(_signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel gives a handler of this kind what is known of the signal.
    let at = unsafe { (*info).si_addr() } as usize;
    // SAFETY: entries live for ever.
    let mut next = unsafe { FIRST.load(Ordering::Acquire).cast_const().as_ref() };
    while let Some(entry) = next {
        if entry.mapping(at).is_some_and(|(start, len)| replace(start, len)) {
            entry.gone.store(true, Ordering::Relaxed);
            return; // and it is touched again
        }
        // SAFETY: as above.
        next = unsafe { entry.next.as_ref() };
    }
    // lent.2: it is touched again, under the handler before.
    if let Some(before) = BEFORE.get() {
        // SAFETY: the kernel has given us this action.
        unsafe { libc::sigaction(libc::SIGBUS, before, null_mut()) };
    }
}

/// Puts zeroes in the place of a mapping (lent.1): of all of it, since no part of it is of use any more.
fn replace(start: usize, len: usize) -> bool {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: the mapping is one that was lent, and is not unmapped before its entry is empty. No reference to it is held, and no code relies
    // on its content (ticket.2). The kernel's own number of the last error is put back.
    unsafe {
        let errno = *libc::__errno_location();
        let there = libc::mmap(start as *mut libc::c_void, len, protection, flags, -1, 0);
        *libc::__errno_location() = errno;
        there != libc::MAP_FAILED
    }
}

#[cfg(test)]
mod tests {
    use vm_memory::{Bytes as _, FileOffset, GuestAddress, GuestRegionMmap, MmapRegion};

    use super::*;

    fn machine() -> (std::fs::File, Machine) {
        let fd = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let file = std::fs::File::from(fd);
        file.set_len(0x4000).unwrap();
        let region = MmapRegion::from_file(FileOffset::new(file.try_clone().unwrap(), 0), 0x4000).unwrap();
        let region = GuestRegionMmap::new(region, GuestAddress(0)).unwrap();
        (file, Machine::new(GuestMemoryMmap::from_regions(vec![region]).unwrap()))
    }

    /// lent.1
    #[test]
    fn memory_that_is_gone_reads_as_zeroes_and_its_owner_learns_of_it() {
        let (other, untouched) = machine();
        for _ in 0..3 {
            let (file, machine) = machine();
            machine.write_slice(&[7; 64], GuestAddress(0x2000)).unwrap();
            file.set_len(0x1000).unwrap();
            assert!(!machine.is_gone(), "nobody has touched it");
            assert_eq!(machine.read_obj::<u64>(GuestAddress(0x2000)).unwrap(), 0);
            assert!(machine.is_gone());
            machine.write_slice(&[7; 64], GuestAddress(0x3000)).unwrap();
        }
        untouched.write_slice(&[7; 64], GuestAddress(0x2000)).unwrap();
        assert!(!untouched.is_gone());
        assert_eq!(other.metadata().unwrap().len(), 0x4000);
    }
}
