//! The system calls that the standard library has no name for.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd};

use rustix::fs::{Advice, AtFlags, FallocateFlags, SeekFrom, StatxFlags, statx};
use rustix::io::Errno;
use vm_memory::VolatileSlice;

use crate::kernel::call::CACHESTAT;
use crate::kernel::mapping::Mapping;

fn check(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Locks a byte of a file, or asks about its lock: what the kernel says of it then.
fn lock(file: &File, command: libc::c_int, kind: i32, byte: i64) -> io::Result<libc::flock> {
    // SAFETY: all zeroes are a valid `flock`.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_whence) = (kind as libc::c_short, libc::SEEK_SET as libc::c_short);
    (lock.l_start, lock.l_len) = (byte, 1);
    // SAFETY: `lock` outlives the call, which may write it.
    check(unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) }).map(|()| lock)
}

/// Takes a lock that the process holds until it ends or closes the file; whether nobody else has it. It is taken as had
/// where there are no such locks.
pub(super) fn process_lock(file: &File, shared: bool) -> bool {
    let taken = lock(file, libc::F_SETLK, if shared { libc::F_RDLCK } else { libc::F_WRLCK }, 0);
    !taken.is_err_and(|error| matches!(error.raw_os_error(), Some(libc::EACCES | libc::EAGAIN)))
}

/// Has QEMU know that the file is read and must not be written meanwhile; whether no QEMU writes it. It is taken as so where there are no
/// such locks.
///
/// QEMU locks one byte for each thing that it does, and another for each that nobody else may (`block/file-posix.c`).
#[cfg(feature = "qcow2")]
pub(in crate::device) fn lock_against_qemu(file: &File) -> bool {
    const READS: i64 = 100;
    const WRITES: i64 = 101;
    const NOBODY_WRITES: i64 = 201;
    for byte in [READS, NOBODY_WRITES] {
        _ = lock(file, libc::F_OFD_SETLK, libc::F_RDLCK, byte);
    }
    let writer = lock(file, libc::F_OFD_GETLK, libc::F_WRLCK, WRITES);
    !writer.is_ok_and(|lock| i32::from(lock.l_type) != libc::F_UNLCK)
}

pub(super) fn read_exact_at(file: &File, into: VolatileSlice<'_>, at: u64) -> io::Result<()> {
    all_at(into, at, io::ErrorKind::UnexpectedEof, |into, at| {
        // SAFETY: the slice is valid for writes of its length.
        unsafe { libc::pread64(file.as_raw_fd(), into.ptr_guard_mut().as_ptr().cast(), into.len(), at) }
    })
}

pub(super) fn write_all_at(file: &File, from: VolatileSlice<'_>, at: u64) -> io::Result<()> {
    all_at(from, at, io::ErrorKind::WriteZero, |from, at| {
        // SAFETY: the slice is valid for reads of its length.
        unsafe { libc::pwrite64(file.as_raw_fd(), from.ptr_guard().as_ptr().cast(), from.len(), at) }
    })
}

/// Calls until all of some memory was moved; a call that moves none fails as `nothing`.
fn all_at(
    mut memory: VolatileSlice<'_>,
    mut at: u64,
    nothing: io::ErrorKind,
    call: impl Fn(&VolatileSlice<'_>, i64) -> isize,
) -> io::Result<()> {
    while !memory.is_empty() {
        match usize::try_from(call(&memory, at as i64)) {
            Ok(0) => return Err(nothing.into()),
            Ok(done) => {
                memory = memory.offset(done).expect("the kernel does no more than it was asked");
                at += done as u64;
            }
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
    Ok(())
}

/// The next data or hole at or after a byte; `None` if there is none. The file position that it moves is used by nobody.
pub(super) fn seek(file: &File, to: SeekFrom) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, to) {
        Err(Errno::NXIO) => Ok(None),
        found => Ok(Some(found?)),
    }
}

pub(super) fn fallocate(file: &File, mode: i32, at: u64, len: u64) -> io::Result<()> {
    Ok(rustix::fs::fallocate(file, FallocateFlags::from_bits_retain(mode.cast_unsigned()), at, len)?)
}

/// Whether the kernel is to read ahead.
pub(super) fn read_ahead(file: &File, ahead: bool) {
    _ = rustix::fs::fadvise(file, 0, None, if ahead { Advice::Normal } else { Advice::Random });
}

/// The magic number of the file system.
pub(super) fn file_system(file: &File) -> io::Result<i64> {
    Ok(rustix::fs::fstatfs(file)?.f_type as _) // not of the same sign everywhere
}

/// The alignment of offsets and lengths of direct I/O, and of addresses, in bytes; zeroes where this file takes none.
/// `None` where the kernel does not say (before Linux 6.1, and on some file systems).
pub(super) fn direct_alignment(file: &File) -> Option<(u32, u32)> {
    let stat = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let says = stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    says.then_some((stat.stx_dio_offset_align, stat.stx_dio_mem_align))
}

/// The size of a file and how many names it has, as far as is known without asking anybody.
pub(super) fn size_and_names(file: &File) -> io::Result<(u64, u32)> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = statx(file, c"", flags, StatxFlags::SIZE | StatxFlags::NLINK)?;
    Ok((stat.stx_size, stat.stx_nlink))
}

/// Reads into memory that is described, without waiting if `flags` say so; how many bytes.
///
/// # Safety
/// The memory is valid, and nobody else's.
pub(super) unsafe fn read(file: &File, iovecs: &[libc::iovec], at: u64, flags: i32) -> io::Result<usize> {
    // SAFETY: the memory is the caller's promise.
    let count =
        unsafe { libc::preadv2(file.as_raw_fd(), iovecs.as_ptr(), iovecs.len() as libc::c_int, at as i64, flags) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// How many pages of a range are in the cache: those included that are just being read.
pub(super) fn cached_pages(file: &File, at: u64, len: u64) -> io::Result<u64> {
    let range = [at, len];
    // Cached, dirty, under write-back, evicted, recently evicted.
    let mut counts = [0u64; 5];
    // SAFETY: the kernel reads two numbers of 64 bits, and writes five.
    check(unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), counts.as_mut_ptr(), 0) } as i32)?;
    Ok(counts[0])
}

pub(super) const fn pages_of(at: u64, len: u64) -> u64 {
    (at + len).div_ceil(PAGE) - at / PAGE
}

/// A file's pages, mapped so as to ask which of them are in the cache; never read or written.
pub(super) struct MappedPages(Mapping);

/// The kernel's unit; the code runs where it is this.
pub(super) const PAGE: u64 = 4096;

impl MappedPages {
    pub(super) fn new(file: &File, size: u64) -> io::Result<Self> {
        let len = usize::try_from(size).map_err(|_| io::ErrorKind::OutOfMemory)?;
        Mapping::of_file(file.as_fd(), 0, len, 0).map(Self)
    }

    /// Whether all pages of a range are in the cache and up to date.
    pub(super) fn is_resident(&self, at: u64, len: u64) -> bool {
        const MOST: usize = 257; // of a request of 1 MiB that starts within a page
        let first = at / PAGE * PAGE;
        let pages = (at + len - first).div_ceil(PAGE) as usize;
        let mut present = [0u8; MOST];
        if pages > MOST || at + len > self.0.bytes().len() as u64 {
            return false;
        }
        // SAFETY: the range lies within the mapping (checked), and `present` has a byte for each of its pages.
        let result = unsafe {
            let start = self.0.bytes().as_ptr().cast::<libc::c_void>();
            libc::mincore(start.wrapping_byte_add(first as usize), (at + len - first) as usize, present.as_mut_ptr())
        };
        result == 0 && present[..pages].iter().all(|page| page & 1 == 1)
    }
}
