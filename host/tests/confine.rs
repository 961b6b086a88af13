//! What a confined process cannot do. It cannot be undone, so each test runs in a process of its own.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output};

use fairlift::confine::{Capability, filter_system_calls, give_up_capabilities};

/// Runs a test of this file that is ignored, in another process.
fn run(name: &str) -> Output {
    let program = std::env::current_exe().unwrap();
    Command::new(program).args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"]).output().unwrap()
}

fn ended_well(output: &Output) -> String {
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{printed}\n{}", String::from_utf8_lossy(&output.stdout));
    printed
}

/// confine.2
#[test]
fn a_call_that_is_on_no_list_fails_and_is_said_once() {
    let printed = ended_well(&run("refuses"));
    let lines: Vec<_> = printed.lines().filter(|line| line.contains(" refused: ")).collect();
    let of =
        |call: libc::c_long| lines.iter().filter(|line| line.contains(&format!("system call {call} refused"))).count();
    assert_eq!(of(libc::SYS_execve), 1, "two were tried:\n{printed}");
    assert_eq!(of(libc::SYS_socket), 1, "{printed}");
    assert_eq!(of(libc::SYS_clone3), 0, "a libc asks for it and takes another:\n{printed}");
}

#[test]
#[ignore = "is run by the test above, in a process of its own"]
fn refuses() {
    let is_refused = |done: i64| {
        assert_eq!((done, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EPERM)));
    };
    let earlier = std::thread::spawn(std::thread::park);
    filter_system_calls(false).unwrap();
    // Another program, twice: a line is said once.
    for _ in 0..2 {
        assert_eq!(Command::new("/bin/true").exec().raw_os_error(), Some(libc::EPERM));
    }
    // SAFETY: each is refused before the kernel looks at its arguments, which are of the right kinds besides.
    unsafe {
        is_refused(libc::fork().into());
        is_refused(libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0).into());
        is_refused(libc::unshare(libc::CLONE_NEWUSER).into());
        is_refused(libc::kill(libc::getpid(), libc::SIGTERM).into());
        let both = libc::PROT_WRITE | libc::PROT_EXEC;
        let nowhere = std::ptr::null_mut();
        is_refused(libc::mmap(nowhere, 4096, both, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) as i64);
        for call in [libc::SYS_symlinkat, libc::SYS_mkdirat, libc::SYS_mknodat] {
            is_refused(libc::syscall(call, -1, nowhere, -1, nowhere, 0));
        }
        // Made to be run after it was written.
        let written = libc::mmap(nowhere, 4096, libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
        is_refused(libc::mprotect(written, 4096, libc::PROT_EXEC).into());
        assert_eq!(libc::syscall(libc::SYS_clone3, 0, 0), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENOSYS));
    }
    // In every thread, those that were there before as well; threads, files and sockets go on.
    let status = |thread: &str| std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
    for thread in std::fs::read_dir("/proc/self/task").unwrap() {
        let thread = thread.unwrap().file_name().into_string().unwrap();
        assert!(status(&thread).contains("Seccomp:\t2"), "{thread}");
    }
    earlier.thread().unpark();
    earlier.join().unwrap();
    std::thread::spawn(|| std::net::TcpListener::bind("127.0.0.1:0").unwrap()).join().unwrap();
}

/// Where there are block devices, their links are made and taken away.
#[test]
fn links_are_made_for_block_devices_alone() {
    ended_well(&run("makes_links"));
}

#[test]
#[ignore = "is run by the test above, in a process of its own"]
fn makes_links() {
    filter_system_calls(true).unwrap();
    let place = std::env::temp_dir().join(format!("links.{}", std::process::id()));
    std::fs::create_dir(&place).unwrap();
    std::os::unix::fs::symlink("nowhere", place.join("one")).unwrap();
    std::fs::rename(place.join("one"), place.join("two")).unwrap();
    std::fs::remove_file(place.join("two")).unwrap();
    std::fs::remove_dir(&place).unwrap();
}

/// confine.1
#[test]
fn capabilities_that_are_not_kept_are_gone() {
    ended_well(&run("gives_up"));
}

#[test]
#[ignore = "is run by the test above, in a process of its own"]
fn gives_up() {
    let sets = || {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let of = |word| status.lines().find_map(|line| line.strip_prefix(word)).unwrap().trim().to_owned();
        ["CapPrm:", "CapEff:", "CapInh:", "CapAmb:"].map(|word| u64::from_str_radix(&of(word), 16).unwrap())
    };
    let chown: Capability = "cap_chown".parse().unwrap();
    assert_eq!(chown.to_string(), "CAP_CHOWN");
    assert!("CAP_NO_SUCH".parse::<Capability>().is_err());
    // Where more memory cannot be locked without it, it is kept besides.
    let lock = |kept: &[Capability]| if kept.contains(&"IPC_LOCK".parse().unwrap()) { 1 << 14 } else { 0 };
    if sets()[0] & 1 == 1 {
        let kept = give_up_capabilities(&[chown]).unwrap();
        assert!(kept.contains(&chown) && kept.len() <= 2, "{kept:?}");
        assert_eq!(sets(), [1 | lock(&kept), 1 | lock(&kept), 0, 0], "CAP_CHOWN is the first");
    }
    let kept = give_up_capabilities(&[]).unwrap();
    assert_eq!(std::thread::spawn(sets).join().unwrap(), [lock(&kept), lock(&kept), 0, 0]);
    let locked = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
    assert!(lock(&kept) == 0 || locked.is_some(), "it is not needed");
    assert!(give_up_capabilities(&[chown]).unwrap_err().to_string().contains("does not have it"));
}
