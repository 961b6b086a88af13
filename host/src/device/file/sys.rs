//! The system calls that the standard library has no name for.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

use vm_memory::VolatileSlice;

use crate::kernel::call::CACHESTAT;

fn check(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Takes a lock that the process holds until it ends or closes the file; whether nobody else has it. It is taken as had
/// where there are no such locks.
pub(super) fn process_lock(file: &std::fs::File, shared: bool) -> bool {
    let kind = if shared { libc::F_RDLCK } else { libc::F_WRLCK };
    // SAFETY: all zeroes are a valid `flock`: from the start of the file.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_whence, lock.l_len) = (kind as libc::c_short, libc::SEEK_SET as libc::c_short, 1);
    // SAFETY: `lock` outlives the call.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const lock) };
    let error = io::Error::last_os_error().raw_os_error();
    result == 0 || !matches!(error, Some(libc::EACCES | libc::EAGAIN))
}

/// Has QEMU know that the file is read and must not be written meanwhile; whether no QEMU writes it. It is taken as so where there are no
/// such locks.
///
/// QEMU locks one byte for each thing that it does, and another for each that nobody else may (`block/file-posix.c`).
#[cfg(feature = "qcow2")]
pub(super) fn lock_against_qemu(file: &std::fs::File) -> bool {
    const READS: i64 = 100;
    const WRITES: i64 = 101;
    const NOBODY_WRITES: i64 = 201;
    let fcntl = |command, kind: i32, byte: i64| {
        // SAFETY: all zeroes are a valid `flock`.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        (lock.l_type, lock.l_whence) = (kind as libc::c_short, libc::SEEK_SET as libc::c_short);
        (lock.l_start, lock.l_len) = (byte, 1);
        // SAFETY: `lock` outlives the call, which may write it.
        let result = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
        result == 0 && i32::from(lock.l_type) != libc::F_UNLCK
    };
    for byte in [READS, NOBODY_WRITES] {
        fcntl(libc::F_OFD_SETLK, libc::F_RDLCK, byte);
    }
    !fcntl(libc::F_OFD_GETLK, libc::F_WRLCK, WRITES)
}

/// Fills memory from a place of the file.
pub(super) fn read_exact_at(file: &std::fs::File, mut into: VolatileSlice<'_>, at: u64) -> io::Result<()> {
    let end = at + into.len() as u64;
    while !into.is_empty() {
        let (to, at) = (into.ptr_guard_mut(), (end - into.len() as u64) as i64);
        // SAFETY: the slice is valid for writes of its length.
        let done = unsafe { libc::pread64(file.as_raw_fd(), to.as_ptr().cast(), into.len(), at) };
        into = into.offset(progress(done, io::ErrorKind::UnexpectedEof)?).expect(NO_MORE);
    }
    Ok(())
}

/// Writes memory to a place of the file.
pub(super) fn write_all_at(file: &std::fs::File, mut from: VolatileSlice<'_>, at: u64) -> io::Result<()> {
    let end = at + from.len() as u64;
    while !from.is_empty() {
        let (memory, at) = (from.ptr_guard(), (end - from.len() as u64) as i64);
        // SAFETY: the slice is valid for reads of its length.
        let done = unsafe { libc::pwrite64(file.as_raw_fd(), memory.as_ptr().cast(), from.len(), at) };
        from = from.offset(progress(done, io::ErrorKind::WriteZero)?).expect(NO_MORE);
    }
    Ok(())
}

const NO_MORE: &str = "the kernel does no more than it was asked";

/// How many bytes a system call has moved; with none, it fails as `nothing`.
fn progress(done: isize, nothing: io::ErrorKind) -> io::Result<usize> {
    match usize::try_from(done) {
        Ok(0) => Err(nothing.into()),
        Ok(done) => Ok(done),
        Err(_) => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            error => Err(error),
        },
    }
}

/// The next data or hole at or after `at`; `None` if there is none.
pub(super) fn seek(file: &std::fs::File, at: u64, whence: i32) -> io::Result<Option<u64>> {
    // SAFETY: takes and returns numbers. The file position that it moves is used by nobody.
    let found = unsafe { libc::lseek64(file.as_raw_fd(), at as i64, whence) };
    match u64::try_from(found) {
        Ok(found) => Ok(Some(found)),
        Err(_) => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
            error => Err(error),
        },
    }
}

pub(super) fn fallocate(file: &std::fs::File, mode: i32, at: u64, len: u64) -> io::Result<()> {
    // SAFETY: takes numbers.
    check(unsafe { libc::fallocate64(file.as_raw_fd(), mode, at as i64, len as i64) })
}

/// Whether the kernel is to read ahead.
pub(super) fn read_ahead(file: &std::fs::File, ahead: bool) {
    let advice = if ahead { libc::POSIX_FADV_NORMAL } else { libc::POSIX_FADV_RANDOM };
    // SAFETY: takes numbers. It is advice.
    unsafe { libc::posix_fadvise64(file.as_raw_fd(), 0, 0, advice) };
}

/// The magic number of the file system.
pub(super) fn file_system(file: &std::fs::File) -> io::Result<i64> {
    let mut stat = MaybeUninit::<libc::statfs64>::zeroed();
    // SAFETY: `stat` has room for the result; all zeroes are a valid value of it.
    let stat = unsafe {
        check(libc::fstatfs64(file.as_raw_fd(), stat.as_mut_ptr()))?;
        stat.assume_init()
    };
    Ok(stat.f_type as _) // with musl it has no sign
}

/// The block of a block device, in bytes.
pub(super) fn block_size(file: &std::fs::File) -> io::Result<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: BLKSSZGET writes one int.
    check(unsafe { libc::ioctl(file.as_raw_fd(), libc::BLKSSZGET, &raw mut bytes) })?;
    u32::try_from(bytes).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// The alignment of offsets and lengths of direct I/O, and of addresses, in bytes; zeroes where this file takes none.
/// `None` where the kernel does not say (before Linux 6.1, and on some file systems).
pub(super) fn direct_alignment(file: &std::fs::File) -> Option<(u32, u32)> {
    let stat = statx(file, libc::AT_STATX_SYNC_AS_STAT, libc::STATX_DIOALIGN).ok()?;
    (stat.stx_mask & libc::STATX_DIOALIGN != 0).then_some((stat.stx_dio_offset_align, stat.stx_dio_mem_align))
}

/// The size of a file and how many names it has, as far as is known without asking anybody.
pub(super) fn size_and_names(file: &std::fs::File) -> io::Result<(u64, u32)> {
    let stat = statx(file, libc::AT_STATX_DONT_SYNC, libc::STATX_SIZE | libc::STATX_NLINK)?;
    Ok((stat.stx_size, stat.stx_nlink))
}

fn statx(file: &std::fs::File, flags: i32, mask: u32) -> io::Result<libc::statx> {
    let mut stat = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path is empty and terminated, `stat` has room for the result; all zeroes are valid.
    unsafe {
        let (fd, empty) = (file.as_raw_fd(), c"".as_ptr());
        check(libc::statx(fd, empty, libc::AT_EMPTY_PATH | flags, mask, stat.as_mut_ptr()))?;
        Ok(stat.assume_init())
    }
}

/// Reads into memory that is described, without waiting if `flags` say so; how many bytes.
///
/// # Safety
/// The memory is valid, and nobody else's.
pub(super) unsafe fn read(file: &std::fs::File, iovecs: &[libc::iovec], at: u64, flags: i32) -> io::Result<usize> {
    // SAFETY: the memory is the caller's promise.
    let count =
        unsafe { libc::preadv2(file.as_raw_fd(), iovecs.as_ptr(), iovecs.len() as libc::c_int, at as i64, flags) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// How many pages of a range are in the cache: those included that are just being read.
pub(super) fn cached_pages(file: &std::fs::File, at: u64, len: u64) -> io::Result<u64> {
    let range = [at, len];
    // Cached, dirty, under write-back, evicted, recently evicted.
    let mut counts = [0u64; 5];
    // SAFETY: the kernel reads two numbers of 64 bits, and writes five.
    check(unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), counts.as_mut_ptr(), 0) } as i32)?;
    Ok(counts[0])
}

/// How many pages a range lies in.
pub(super) const fn pages_of(at: u64, len: u64) -> u64 {
    (at + len).div_ceil(PAGE) - at / PAGE
}

/// A file's pages, mapped so as to ask which of them are in the cache; never read or written.
pub(super) struct Mapping {
    start: *mut libc::c_void,
    len: usize,
}

// SAFETY: nobody looks through the pointer; the kernel is asked about it, by any thread.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// The kernel's unit; the code runs where it is this.
pub(super) const PAGE: u64 = 4096;

impl Mapping {
    pub(super) fn new(file: &std::fs::File, size: u64) -> io::Result<Self> {
        let len = usize::try_from(size).map_err(|_| io::ErrorKind::OutOfMemory)?;
        // SAFETY: a new mapping, where the kernel likes, touches no memory of ours.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self { start, len }) }
    }

    /// Whether all pages of a range are in the cache and up to date.
    pub(super) fn is_resident(&self, at: u64, len: u64) -> bool {
        const MOST: usize = 257; // of a request of 1 MiB that starts within a page
        let first = at / PAGE * PAGE;
        let pages = (at + len - first).div_ceil(PAGE) as usize;
        let mut present = [0u8; MOST];
        if pages > MOST || at + len > self.len as u64 {
            return false;
        }
        // SAFETY: the range lies within the mapping (checked), and `present` has a byte for each of its pages.
        let result = unsafe {
            let start = self.start.wrapping_byte_add(first as usize);
            libc::mincore(start, (at + len - first) as usize, present.as_mut_ptr())
        };
        result == 0 && present[..pages].iter().all(|page| page & 1 == 1)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `start` came from `mmap` with this length and is unmapped only here.
        unsafe { libc::munmap(self.start, self.len) };
    }
}

/// The effective user.
pub(super) fn user() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}
