//! Where clients connect.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Access as FileAccess, AtFlags, CWD, Mode, accessat};
use rustix::net::sockopt;
use rustix::process::umask;

use super::patiently;
use crate::Error;
use crate::access::{Access, Cgroup, Peer};
use crate::config::{Address, Listener, SocketMode, Tls};
use crate::confine::Capability;
use crate::device::roots::directory_of;

pub(crate) struct Listening {
    pub(crate) fd: OwnedFd,
    pub(crate) tls: Tls,
    /// As a client would write it: `unix:/run/fairlift.sock`, `tcp:127.0.0.1:10809`.
    pub(crate) name: String,
    /// Of a unix socket that a server has made. The file of one that was inherited is the service manager's.
    path: Option<PathBuf>,
    /// Whether the socket file is removed at the end.
    owns_file: AtomicBool,
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(path) = self.path.as_ref().filter(|_| self.owns_file.load(Ordering::Acquire)) {
            let _ = std::fs::remove_file(path); // it may have been removed already
        }
    }
}

impl Listening {
    pub(crate) fn open(listener: &Listener) -> Result<Self, Error> {
        let fail = |why: String| Error::Listen { address: listener.address.to_string(), why };
        let fd = listener.address.listen(listener.socket).map_err(fail)?;
        let opened = Self::adopt(listener, fd);
        opened.owns_file();
        Ok(opened)
    }

    /// A socket that another server listens at, and hands over. Its file is that server's until it has [gone](Self::is_ours), and so is the way in
    /// which it waits for connections: both servers have the same socket.
    pub(crate) fn adopt(listener: &Listener, fd: OwnedFd) -> Self {
        let bound = || SocketAddr::try_from(rustix::net::getsockname(&fd).ok()?).ok();
        let (name, path) = match &listener.address {
            Address::Tcp(_) => (bound().map(|address| format!("tcp:{address}")), None),
            Address::Unix(path) => (None, Some(path.clone())),
            Address::Inherited(_) => (None, None),
        };
        let name = name.unwrap_or_else(|| listener.address.to_string());
        Self { fd, tls: listener.tls, name, path, owns_file: AtomicBool::new(false) }
    }

    /// The server that had it has ended: nobody else accepts by it, or removes its file.
    pub(crate) fn is_ours(&self) {
        // That server may have had another engine, which waits for connections in another way.
        if let Err(error) = rustix::io::ioctl_fionbio(&self.fd, false) {
            tracing::warn!(%error, at = self.name, "connections may be accepted late");
        }
        self.owns_file();
    }

    /// Removes its file at the end, from now on.
    pub(crate) fn owns_file(&self) {
        if self.path.is_some() {
            Address::is_ours(&self.fd);
            self.owns_file.store(true, Ordering::Release);
        }
    }
}

pub(crate) fn peer(fd: &OwnedFd, listener: String) -> Peer {
    let unknown = Peer { shown: "unknown".into(), listener, ..Peer::default() };
    let address = rustix::net::getpeername(fd).ok().and_then(|address| SocketAddr::try_from(address?).ok());
    if let Some(address) = address {
        return Peer { shown: format!("tcp:{address}"), address: Some(address.ip()), ..unknown };
    }
    let Some(libc::ucred { pid, uid, gid }) = sys::process(fd) else { return unknown };
    Peer { shown: format!("pid {pid}, uid {uid}"), user: Some((uid, gid)), ..unknown }
}

/// Has a client's cgroup be known, where a rule asks for it (cgroup.2).
pub(crate) fn learn_cgroup(socket: BorrowedFd<'_>, access: &Access, peer: &mut Peer) {
    if peer.user.is_some() && peer.cgroup.is_none() && access.asks_for_cgroups() {
        peer.cgroup = cgroup(socket);
    }
}

/// Of the process at the other end of a unix socket (cgroup.3).
fn cgroup(socket: BorrowedFd<'_>) -> Option<Cgroup> {
    let process = match sys::process_descriptor(&socket) {
        Ok(process) => Some(process),
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => None,
        Err(_) => return None,
    };
    // In /proc, where it may have another number than here.
    let pid = match &process {
        Some(process) => number_in_proc(process)?,
        None => u32::try_from(sys::process(&socket)?.pid).ok().filter(|pid| *pid > 0)?,
    };
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    // cgroup.4
    process.as_ref().is_none_or(lives).then(|| Cgroup::of(&text))?
}

/// The number of a process that lives in the PID namespace of `/proc`.
fn number_in_proc(process: &OwnedFd) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd())).ok()?;
    let number = text.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    number.trim().parse().ok().filter(|pid| *pid > 0)
}

/// A descriptor of a process can be read once it has ended.
fn lives(process: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(process, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default())) == Ok(0)
}

/// Whether [`Listening::open`] would succeed.
pub(crate) fn check(listener: &Listener) -> Result<(), Error> {
    let Listener { address, socket, .. } = listener;
    address.check(*socket).map_err(|why| Error::Listen { address: address.to_string(), why })
}

impl Address {
    /// Listens there, at a unix socket of this mode.
    ///
    /// # Errors
    /// Why not, in a line.
    pub fn listen(&self, rights: SocketMode) -> Result<OwnedFd, String> {
        match self {
            Self::Unix(path) => unix(path, rights).map(OwnedFd::from),
            Self::Tcp(address) => tcp(*address).map(OwnedFd::from),
            Self::Inherited(fd) => {
                // The previous server may have had another engine, which waits for connections in another way.
                let clone = || fd.try_clone().and_then(|fd| Ok((rustix::io::ioctl_fionbio(&fd, false)?, fd).1));
                clone().map_err(|error| error.to_string())
            }
        }
    }

    /// Whether [`Address::listen`] would succeed. It leaves nothing behind: a unix socket is not made, and a TCP port is bound for a
    /// moment.
    ///
    /// # Errors
    /// Why not, in a line.
    pub fn check(&self, rights: SocketMode) -> Result<(), String> {
        let Self::Unix(path) = self else { return self.listen(rights).map(drop) };
        let directory = directory_of(path);
        match directory.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(NO_DIRECTORY.into()),
            Err(error) => Err(error.to_string()),
            Ok(metadata) if !metadata.is_dir() => Err(format!("{} is not a directory", directory.display())),
            Ok(metadata) => {
                let may_write = accessat(CWD, directory, FileAccess::WRITE_OK | FileAccess::EXEC_OK, AtFlags::EACCESS);
                may_write.map_err(|error| {
                    format!("nothing can be written to {}: {}", directory.display(), io::Error::from(error))
                })?;
                is_stale(path).and_then(|_| rights.may_be_put(&metadata))
            }
        }
    }

    /// Has this process be the one that listens at a unix socket, which may be another's that has ended: the kernel tells who has called this
    /// last, and by that a live server's socket is known from a stale one.
    pub fn is_ours(socket: impl AsFd) {
        // It listens already. The standard library's backlog is 128; a thousand clients may come at once after a restart.
        let _ = rustix::net::listen(socket, 4096);
    }
}

fn tcp(address: SocketAddr) -> Result<TcpListener, String> {
    // A server that has just been killed has its sockets until the kernel has ended its requests.
    let is_in_use = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
    let bound =
        patiently((Duration::from_secs(1), Duration::from_millis(20)), is_in_use, || TcpListener::bind(address));
    bound.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => "the port is in use by another server".into(),
        io::ErrorKind::PermissionDenied => format!("{error}; ports below 1024 need privileges"),
        _ => error.to_string(),
    })
}

const NO_DIRECTORY: &str = "its directory does not exist";

/// Whether there is the socket file of a server that is gone; what else there may be is left alone.
fn is_stale(path: &Path) -> Result<bool, String> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return Ok(false) };
    if !metadata.file_type().is_socket() {
        return Err("there is a file of that name, and it is not a socket".into());
    }
    match UnixStream::connect(path) {
        Ok(probe) if sys::is_served(&probe) => Err("another server is listening there".into()),
        // The server has been killed, and the kernel has not got round to its socket yet.
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(true),
        // A full backlog, or no permission: a server is there.
        Err(error) => Err(format!("there is a socket already, and it is not stale ({error})")),
    }
}

/// Listens at a path; replaces the socket file of a server that is gone, never that of a live one.
fn unix(path: &Path, rights: SocketMode) -> Result<UnixListener, String> {
    if is_stale(path)? {
        tracing::info!(path = %path.display(), "replaced a stale socket file");
        std::fs::remove_file(path).map_err(|error| format!("a stale socket file cannot be removed: {error}"))?;
    }
    // No other user may connect before the socket is as it was said.
    let old = umask(Mode::from_raw_mode(0o177));
    let result = UnixListener::bind(path);
    umask(old);
    let listener = result.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => NO_DIRECTORY.into(),
        _ => error.to_string(),
    })?;
    rights.put(path).inspect_err(|_| drop(std::fs::remove_file(path)))?;
    Address::is_ours(&listener);
    Ok(listener)
}

impl SocketMode {
    /// Gives a socket file away, then lets others in.
    pub(crate) fn put(self, path: &Path) -> Result<(), String> {
        let Self { mode, owner, group } = self;
        let there = std::fs::symlink_metadata(path).map_err(|error| error.to_string())?;
        // A confined service may not even request a state that holds already.
        let (owner, group) = (owner.filter(|uid| *uid != there.uid()), group.filter(|gid| *gid != there.gid()));
        if owner.is_some() || group.is_some() {
            std::os::unix::fs::chown(path, owner, group).map_err(|error| match error.kind() {
                io::ErrorKind::PermissionDenied => format!("its owner cannot be changed: {error}; {}", why_kept()),
                _ => format!("its owner cannot be changed: {error}"),
            })?;
        }
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
            .map_err(|error| format!("its mode cannot be changed: {error}"))
    }

    /// Whether this process may give a socket in a directory away, as far as that can be told: with `CAP_CHOWN` it may, else to a group of
    /// its own, and an owner that a new socket there has anyway is no change.
    fn may_be_put(self, directory: &std::fs::Metadata) -> Result<(), String> {
        let is_own = |uid: u32| uid == rustix::process::geteuid().as_raw();
        let has = |gid: u32| directory.gid() == gid || rustix::process::getegid().as_raw() == gid;
        let is_in = |gid: u32| {
            has(gid) || rustix::process::getgroups().is_ok_and(|all| all.iter().any(|its| its.as_raw() == gid))
        };
        if (self.owner.is_none_or(is_own) && self.group.is_none_or(is_in)) || Capability::OF_GIVING[0].is_there() {
            return Ok(());
        }
        Err(format!("its owner cannot be changed: {}; {}", io::Error::from_raw_os_error(libc::EPERM), why_kept()))
    }
}

/// The reason why a process may not give a file away, and the remedy.
fn why_kept() -> &'static str {
    if rustix::process::geteuid().is_root() {
        "this process lacks CAP_CHOWN, which a server drops once it has started: restart it with keep_capabilities = [\"CAP_CHOWN\", \
         \"CAP_FOWNER\"], or use mode=0666 in a directory that only permitted users can enter"
    } else {
        "root may give it to anybody, another user to a group that it is in"
    }
}

/// The system calls that the standard library has no name for.
mod sys {
    use std::io;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::os::unix::net::UnixStream;

    use rustix::io::Errno;
    use rustix::process::{Pid, test_kill_process};

    /// The process at the other end of a unix socket, and its user and group.
    pub(super) fn process(socket: &impl AsRawFd) -> Option<libc::ucred> {
        let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut len = size_of::<libc::ucred>() as libc::socklen_t;
        let (fd, to) = (socket.as_raw_fd(), (&raw mut peer).cast());
        // SAFETY: `peer` has room for `len` bytes, and any bytes are a valid value of it.
        let is_known = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, to, &raw mut len) } == 0;
        is_known.then_some(peer)
    }

    /// A descriptor of the process at the other end of a unix socket.
    pub(super) fn process_descriptor(socket: &impl AsRawFd) -> io::Result<OwnedFd> {
        let mut process: libc::c_int = -1;
        let mut len = size_of::<libc::c_int>() as libc::socklen_t;
        let (fd, to) = (socket.as_raw_fd(), (&raw mut process).cast());
        // SAFETY: `process` has room for `len` bytes, and any bytes are a valid value of it.
        if unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERPIDFD, to, &raw mut len) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor for us.
        Ok(unsafe { OwnedFd::from_raw_fd(process) })
    }

    /// Whether the process that listens at the other end still lives, or cannot be told.
    pub(super) fn is_served(probe: &UnixStream) -> bool {
        // A process in another namespace has no number here.
        let pid = process(probe).and_then(|peer| Pid::from_raw(peer.pid));
        pid.is_none_or(|pid| test_kill_process(pid) != Err(Errno::SRCH))
    }
}

/// Sets up a connection: no delay for small replies, and room for a whole batch of them.
pub(crate) fn prepare(fd: &OwnedFd) {
    // Where an option does not fit the socket it is refused, which is harmless.
    let _ = sockopt::set_tcp_nodelay(fd, true);
    let _ = sockopt::set_socket_keepalive(fd, true);
    if sockopt::set_socket_send_buffer_size_force(fd, SEND_BUFFER).is_err() {
        let _ = sockopt::set_socket_send_buffer_size(fd, SEND_BUFFER);
    }
}

/// Measured: with 1 MiB a reply of that size leaves in one system call.
const SEND_BUFFER: usize = 1 << 20;
