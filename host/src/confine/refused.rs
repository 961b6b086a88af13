//! A system call that the filter refuses: it is said, and fails.
//!
//! The kernel sends the thread a signal instead of making the call. The handler gives the call the result that a kernel which
//! forbids it would give, `EPERM`, and says which it was: a server that suddenly cannot do something must not be silent about it.

use std::ffi::{c_int, c_void};
use std::io::{self, Write as _};
use std::mem::zeroed;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Calls that were refused and said, a bit each.
static LOGGED: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

/// The `si_code` of a signal that a filter sends, and not a person.
const SYS_SECCOMP: c_int = 1;

const LINE: usize = 256;

/// The kernel's report of it: `siginfo_t` as `SIGSYS` has it.
#[repr(C)]
struct SigsysInfo {
    signal: c_int,
    errno: c_int,
    code: c_int,
    at: *mut c_void,
    call: c_int,
    architecture: u32,
}

pub(super) fn listen() -> io::Result<()> {
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = refuse;
    // SAFETY: all zeroes are a valid `sigaction`: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { zeroed() };
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the action is valid, and its handler does only what a handler may.
    match unsafe { libc::sigaction(libc::SIGSYS, &raw const action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Runs in the thread that made the call, in the middle of any work: it allocates nothing and takes no lock.
extern "C" fn refuse(_signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes both, and they are ours until we return; `SigsysInfo` is how it fills the first in
    // for SIGSYS, and no longer than it.
    let (info, context) = unsafe { (&*info.cast::<SigsysInfo>(), &mut *context.cast::<libc::ucontext_t>()) };
    if info.code != SYS_SECCOMP {
        return;
    }
    answer(context, -i64::from(libc::EPERM));
    let call = info.call as usize;
    let was_logged = LOGGED
        .get(call / 64)
        .is_some_and(|word| word.fetch_or(1 << (call % 64), Ordering::Relaxed) >> (call % 64) & 1 == 1);
    if !was_logged {
        let mut line = [0; LINE];
        let mut rest = &mut line[..];
        // Without an allocator; what does not fit is cut off.
        let _ = writeln!(
            rest,
            "fairlift: system call {call} refused: it is not among those that a server needs, and fails with EPERM; if the server \
             should make it, tell its developers, and switch the filter off: --seccomp off (server.seccomp)"
        );
        let len = LINE - rest.len();
        // SAFETY: that many bytes were written there. A report that cannot be written is dropped.
        unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), len) };
    }
}

fn answer(context: &mut libc::ucontext_t, result: i64) {
    #[cfg(target_arch = "x86_64")]
    {
        context.uc_mcontext.gregs[libc::REG_RAX as usize] = result;
    }
    #[cfg(target_arch = "aarch64")]
    {
        context.uc_mcontext.regs[0] = result as u64;
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    unreachable!("no filter is made here: {result} {:p}", context);
}
