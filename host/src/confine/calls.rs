//! The system calls that a server makes once it has started, by purpose.
//!
//! Calls that are absent on purpose: `execve` and `fork` (it starts no programs), `ptrace` and `process_vm_*` (it looks into no other
//! process), `mount`, `setns`, `unshare`, `chroot`, `bpf`, `keyctl`, `init_module`, `reboot`, `setuid` and their like (it changes
//! neither the machine nor whose it is), `open_by_handle_at` (no file but by its path), `mknod`,
//! `symlink` (but where it has block devices, whose links it makes), `setsid`,
//! `prlimit64` of others, `shm*`, `msg*`, `sem*`.
//!
//! To add one: to the group whose reason is its reason, or with a new group. `tests/e2e/confined.py` looks at the calls of a server; all
//! end-to-end tests run with the filter, and fail if a call is refused.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

use crate::kernel::call::CACHESTAT;

/// Calls that may be made with any arguments: what for, and which.
macro_rules! calls {
    ($($(#[$only:meta])? $reason:literal: $($call:ident)+;)+) => {
        const CALLS: &[&[c_long]] = {
            use libc::*;
            &[$($(#[$only])? &[$($call),+]),+]
        };
    };
}

calls! {
    "memory: the allocator, stacks, buffers, the memory of virtual machines, what of a file is in the page cache":
        SYS_brk SYS_munmap SYS_mremap SYS_madvise SYS_mincore CACHESTAT SYS_memfd_create;
    "threads: starting and ending, locks, waiting, which CPUs there are":
        SYS_set_robust_list SYS_rseq SYS_set_tid_address SYS_futex SYS_membarrier SYS_sched_yield
        SYS_sched_getaffinity SYS_getcpu SYS_exit SYS_exit_group SYS_gettid SYS_getpid;
    "time: where the kernel does not tell it without a call, and sleeping":
        SYS_clock_gettime SYS_clock_getres SYS_clock_nanosleep SYS_nanosleep SYS_gettimeofday SYS_restart_syscall;
    "signals: those for the operator, SIGBUS of lent memory, SIGSYS of this filter":
        SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn SYS_sigaltstack;
    "io_uring":
        SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register;
    "files of exports: by helper threads, by workers for files in RAM, and by the engine without io_uring":
        SYS_read SYS_write SYS_readv SYS_writev SYS_pread64 SYS_pwrite64 SYS_preadv SYS_pwritev SYS_preadv2
        SYS_pwritev2 SYS_fsync SYS_fdatasync SYS_syncfs SYS_fallocate SYS_fadvise64 SYS_lseek SYS_flock SYS_ftruncate;
    "opening and closing: exports that are added, the config file, certificates, tokens, what /proc and /sys tell":
        SYS_openat SYS_openat2 SYS_close SYS_close_range SYS_dup SYS_dup3 SYS_fcntl SYS_fstat SYS_newfstatat SYS_statx
        SYS_fstatfs SYS_statfs SYS_faccessat SYS_faccessat2 SYS_readlinkat SYS_getdents64 SYS_getcwd;
    "sockets of clients, of control, of virtual machines, of other NBD servers, of the journal and the service manager":
        SYS_socketpair SYS_bind SYS_listen SYS_accept SYS_accept4 SYS_connect SYS_shutdown SYS_getsockname
        SYS_getpeername SYS_getsockopt SYS_setsockopt SYS_sendto SYS_recvfrom SYS_sendmsg SYS_recvmsg SYS_sendmmsg
        SYS_recvmmsg;
    "names of unix sockets: made for their owner alone, given away, and taken away at the end":
        SYS_umask SYS_unlinkat SYS_fchmodat SYS_fchmod SYS_fchownat SYS_fchown;
    "names of tops of overlays: a fork gives one a second name, and its first to the next; reports of gateways, written beside and renamed":
        SYS_linkat SYS_renameat SYS_renameat2;
    "waiting for several: the control server, the engine without io_uring, and workers that wake each other":
        SYS_ppoll SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_eventfd2 SYS_pipe2
        SYS_timerfd_create SYS_timerfd_settime;
    "our own identity, and chance: libc, the journal, hash tables, TLS":
        SYS_getuid SYS_geteuid SYS_getgid SYS_getegid SYS_getgroups SYS_capget SYS_uname SYS_sysinfo SYS_getrusage
        SYS_getrandom;
    #[cfg(target_arch = "x86_64")]
    "the same by their older names, which a libc may use on this architecture":
        SYS_open SYS_stat SYS_lstat SYS_access SYS_readlink SYS_unlink SYS_rename SYS_chmod SYS_chown SYS_lchown
        SYS_dup2 SYS_pipe SYS_poll SYS_select SYS_epoll_create SYS_epoll_wait SYS_eventfd SYS_time SYS_arch_prctl;
}

/// The same for a server that has block devices of this machine, or may come to have some: their links in /dev/fairlift.
const BLOCK_DEVICES: &[c_long] = &[
    libc::SYS_mkdirat,
    libc::SYS_symlinkat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rmdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_symlink,
];

/// The condition on an argument. Of several values or bits one is enough.
#[derive(Clone, Copy, PartialEq)]
enum Is {
    OneOf,
    With,
    Without,
    Null,
}

/// Calls that may be made with some arguments only: what for, the call, the argument, and its condition.
macro_rules! calls_with {
    ($($reason:literal: $call:ident $argument:literal $is:ident [$($value:tt)+];)+) => {
        const SOME: &[(c_long, u8, Is, &[u64])] = {
            use libc::*;
            &[$(($call, $argument, Is::$is, &[$($value as u64),+])),+]
        };
    };
}

calls_with! {
    // Libraries are files that are mapped to be run, and some come late: Ceph's with its first image, those that look up names of hosts. So
    // code that may write a file, or memory that has a descriptor, can have that run; code that may write memory alone cannot.
    "code comes from files: memory is not mapped to be written and run":
        SYS_mmap 2 Without [PROT_WRITE PROT_EXEC];
    "nor made to be run after it was written":
        SYS_mprotect 2 Without [PROT_EXEC];
    "threads of this process, and no other process":
        SYS_clone 0 With [CLONE_THREAD];
    "clients, the journal, and addresses of this machine; no packets past the kernel's protocols":
        SYS_socket 0 OneOf [AF_UNIX AF_INET AF_INET6 AF_NETLINK];
    "the block of a device, its size, discarding; a copy by reference; whether a socket waits; whether this is a terminal":
        SYS_ioctl 1 OneOf [
            BLKSSZGET BLKGETSIZE64 BLKDISCARD BLKZEROOUT BLKROTATIONAL FICLONE FIONBIO FIONREAD FIOCLEX
            TCGETS TIOCGWINSZ
        ];
    "names of a thread and its memory, the precision of its sleep, that it serves the I/O of others; the kernel's values at the start":
        SYS_prctl 0 OneOf [PR_SET_NAME PR_GET_NAME PR_SET_TIMERSLACK PR_SET_IO_FLUSHER PR_SET_VMA PR_GET_AUXV];
    "its own limits, to be read":
        SYS_prlimit64 2 Null [0];
    "whether the process of a peer is there":
        SYS_kill 1 OneOf [0];
    "an abort of its own":
        SYS_tkill 1 OneOf [SIGABRT];
    "the same":
        SYS_tgkill 2 OneOf [SIGABRT];
}

// Of `linux/fs.h` and `linux/prctl.h`: libc does not name them everywhere.
const BLKROTATIONAL: u64 = 0x127e;
const BLKDISCARD: u64 = 0x1277;
const BLKZEROOUT: u64 = 0x127f;
const BLKGETSIZE64: u64 = 0x8008_1272;
const PR_SET_IO_FLUSHER: u64 = 57;
const PR_GET_AUXV: u64 = 0x4155_5856;

/// The filters to install, in order: of several, the strictest answer counts.
pub(super) fn filters(block_devices: bool) -> Result<Vec<BpfProgram>, String> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH).ok();
    let known = architecture.filter(|known| matches!(known, TargetArch::x86_64 | TargetArch::aarch64));
    let architecture = known.ok_or_else(|| format!("there is no list for {}", std::env::consts::ARCH))?;
    let mut rules: BTreeMap<c_long, Vec<SeccompRule>> = BTreeMap::new();
    rules.extend(CALLS.iter().copied().flatten().map(|call| (*call, Vec::new())));
    if block_devices {
        rules.extend(BLOCK_DEVICES.iter().map(|call| (*call, Vec::new())));
    }
    for (call, argument, is, values) in SOME {
        rules.insert(*call, rules_of(*argument, *is, values).map_err(|error| error.to_string())?);
    }
    // Its flags are in memory, where a filter cannot look: with ENOSYS every libc takes `clone` instead.
    let clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let missing = SeccompAction::Errno(libc::ENOSYS as u32);
    let one = SeccompFilter::new(clone3, SeccompAction::Allow, missing, architecture);
    rules.insert(libc::SYS_clone3, Vec::new());
    let all = SeccompFilter::new(rules, SeccompAction::Trap, SeccompAction::Allow, architecture);
    [one, all]
        .into_iter()
        .map(|filter| BpfProgram::try_from(filter?))
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())
}

/// Each is enough.
fn rules_of(argument: u8, is: Is, values: &[u64]) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    // All but pointers are numbers of 32 bits, above which a libc may leave anything.
    let len = if is == Is::Null { SeccompCmpArgLen::Qword } else { SeccompCmpArgLen::Dword };
    let rule = |value: &u64| {
        let (op, value) = match is {
            Is::OneOf | Is::Null => (SeccompCmpOp::Eq, *value),
            Is::With => (SeccompCmpOp::MaskedEq(*value), *value),
            Is::Without => (SeccompCmpOp::MaskedEq(*value), 0),
        };
        SeccompRule::new(vec![SeccompCondition::new(argument, len.clone(), op, value)?])
    };
    values.iter().map(rule).collect()
}
