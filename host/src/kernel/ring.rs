//! Ring: what a worker gives the kernel to do, and hears back.
//!
//! A worker collects [calls](Call), submits them in one go, waits, and takes their completions. io_uring does exactly that
//! (`uring`). Where it is refused, as in many containers, epoll and threads do the same (`poll`), and cost more CPU.
//!
//! choice.1  A server has one engine, chosen when it starts: what the configuration says, or io_uring if all that is needed of it is
//!           to be had. It says which and, if io_uring was refused, why.
//! choice.2  The first worker asks once more. With `kernel.io_uring_disabled` = 1 io_uring is for those with `CAP_SYS_ADMIN`; a
//!           server of root's has it when it chooses, and has given it up when its workers make their rings.

mod poll;
mod uring;

use std::fmt;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use fairlift_core::{ContextId, Duration, Tag};

use crate::Error;
use crate::kernel::buffer::{Pool, RecvRing};
use crate::kernel::call::Call;
use poll::Poll;
use uring::Uring;

/// A worker's ring, with its registered files and memory.
#[expect(clippy::large_enum_variant, reason = "a worker has one, and its calls need not go through a pointer")]
pub(crate) enum Ring {
    Uring(Uring),
    Poll(Box<Poll>),
}

/// The kernel interface of the workers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Engine {
    /// io_uring if it is to be had, else as [`Poll`](Self::Poll).
    #[default]
    Auto,
    /// io_uring, or nothing.
    IoUring,
    /// epoll, and threads that wait for files: where io_uring is refused, as in many containers.
    Poll,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    IoUring,
    Poll,
}

/// The engine of a server (choice.1).
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    wanted: Engine,
    /// How many fixed files a ring can have, as far as anybody needs them.
    pub(crate) files: u32,
    /// Why it is not io_uring, if that was refused.
    refused: Option<String>,
    /// The same when the workers began (choice.2).
    later: OnceLock<Option<String>>,
}

impl Choice {
    /// # Errors
    /// io_uring was asked for and is not to be had, or the process has no descriptors left.
    pub(crate) fn make(wanted: Engine) -> Result<Self, Error> {
        let (files, refused) = match wanted {
            Engine::Poll => (FILES, None),
            Engine::Auto | Engine::IoUring => match Uring::probe() {
                Ok(files) => (files, None),
                // Without descriptors the other engine would not get on either.
                Err(error) if wanted == Engine::IoUring || is_full(&error) => return Err(Error::Ring(error)),
                Err(error) => (FILES, Some(errno_name(&error))),
            },
        };
        Ok(Self { wanted, files, refused, later: OnceLock::new() })
    }

    /// The settings of the workers' rings (choice.2).
    pub(crate) fn begin(&self) -> Kind {
        self.later.get_or_init(|| {
            let may_change = self.wanted == Engine::Auto && self.refused.is_none();
            let error = may_change.then(|| Uring::probe().err()).flatten()?;
            let why = (!is_full(&error)).then(|| errno_name(&error))?;
            warn(&format_args!("poll (io_uring: {why})"));
            Some(why)
        });
        self.now().0
    }

    /// The engine, and the reason why it is not io_uring.
    fn now(&self) -> (Kind, Option<&String>) {
        let refused = self.refused.as_ref().or_else(|| self.later.get()?.as_ref());
        let is_poll = self.wanted == Engine::Poll || refused.is_some();
        (if is_poll { Kind::Poll } else { Kind::IoUring }, refused)
    }

    /// Whether a driver can be given commands, and else why not.
    pub(crate) fn drives(&self, driver: &str) -> Result<(), String> {
        match self.now().0 {
            Kind::IoUring => Ok(()),
            Kind::Poll => Err(format!("{driver} needs io_uring, and here is engine={self}")),
        }
    }

    /// Says so in the log, once in a process.
    pub(crate) fn say(&self) {
        static LOGGED: AtomicBool = AtomicBool::new(false);
        if LOGGED.swap(true, Ordering::Relaxed) {
            return;
        }
        match self.now() {
            (Kind::IoUring, _) => tracing::debug!("engine={self}"),
            (Kind::Poll, None) => tracing::info!("engine={self}"),
            (Kind::Poll, Some(_)) => warn(self),
        }
    }
}

fn warn(engine: &dyn fmt::Display) {
    tracing::warn!("engine={engine}: served by epoll and threads, which costs more CPU; see docs/do/containers.md");
}

/// Whether the process has no descriptors left.
fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// `io_uring`, `poll`, or `poll (io_uring: EPERM)`.
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.now() {
            (Kind::IoUring, _) => f.write_str("io_uring"),
            (Kind::Poll, None) => f.write_str("poll"),
            (Kind::Poll, Some(why)) => write!(f, "poll (io_uring: {why})"),
        }
    }
}

/// As many as io_uring is asked for at most.
const FILES: u32 = 16384;

/// The error with which the kernel refuses a system call, by name where it matters here.
fn errno_name(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM) => "EPERM".into(),
        Some(libc::EACCES) => "EACCES".into(),
        Some(libc::ENOSYS) => "ENOSYS".into(),
        Some(libc::EINVAL) => "EINVAL".into(),
        Some(libc::ENOMEM) => "ENOMEM".into(),
        Some(libc::EOPNOTSUPP) => "EOPNOTSUPP".into(),
        _ => error.to_string(),
    }
}

impl Ring {
    /// Makes a ring for the calling thread alone.
    ///
    /// It has at most `threads` threads for calls that would block in files and block devices, and as many for all else: for this ring,
    /// whatever others have.
    pub(crate) fn new(kind: Kind, entries: u32, completions: u32, threads: u32) -> io::Result<Self> {
        Ok(match kind {
            Kind::IoUring => Self::Uring(Uring::new(entries, completions, threads)?),
            Kind::Poll => Self::Poll(Box::new(Poll::new(2 * threads as usize)?)),
        })
    }

    /// Lets the calling thread's waits end when they are due; the kernel would let them be 50 µs late.
    pub(crate) fn be_punctual() {
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1)); // Where it is refused, timers are late.
    }

    /// Where other rings send messages to; `None`: this one takes none.
    pub(crate) fn message_fd(&self) -> Option<RawFd> {
        match self {
            Self::Uring(ring) => Some(ring.ring.as_raw_fd()),
            Self::Poll(_) => None,
        }
    }

    /// Adds a call to the next batch; it completes with this data.
    ///
    /// # Safety
    /// All memory that `call` names stays valid, and is left to the ring, until its completion was taken. Its descriptor stays
    /// open until that too, but for [`poll`](Self::poll), [`accept`](Self::accept) and [`signal`](Self::signal): until they are
    /// submitted.
    #[inline(always)]
    pub(crate) unsafe fn push(&mut self, call: Call, data: u64) {
        match self {
            // SAFETY: passed on to the caller.
            Self::Uring(ring) => unsafe { ring.push(call, data) },
            // SAFETY: as above.
            Self::Poll(ring) => unsafe { ring.push(call, data) },
        }
    }

    /// [`Call::Poll`]; the descriptor stays open until that is submitted.
    pub(crate) fn poll(&mut self, fd: BorrowedFd<'_>, events: libc::c_short, multi: bool, data: u64) {
        // SAFETY: the call names no memory.
        unsafe { self.push(Call::Poll { fd: fd.as_raw_fd(), events, multi }, data) }
    }

    /// [`Call::Accept`]; the socket stays open until that is submitted.
    pub(crate) fn accept(&mut self, fd: BorrowedFd<'_>, data: u64) {
        // SAFETY: the call names no memory.
        unsafe { self.push(Call::Accept { fd: fd.as_raw_fd() }, data) }
    }

    /// [`Call::Cancel`]
    pub(crate) fn cancel(&mut self, data: u64) {
        // SAFETY: the call names no memory.
        unsafe { self.push(Call::Cancel { data }, Source::Nobody.pack()) }
    }

    /// Adds one to an eventfd. It completes with this data, or with `None` says nothing. The descriptor stays open until that
    /// is submitted.
    pub(crate) fn signal(&mut self, fd: BorrowedFd<'_>, data: Option<u64>) {
        let call = Call::Signal { fd: fd.as_raw_fd(), quiet: data.is_none() };
        // SAFETY: the call names no memory.
        unsafe { self.push(call, data.unwrap_or(Source::Nobody.pack())) }
    }
}

/// Methods of `Ring`. Each kind of ring has them in its way, but for those with an answer that holds where there is no io_uring.
macro_rules! both {
    (@poll $call:expr) => { $call };
    (@poll $call:expr, $answer:expr) => { $answer };
    ($($(#[$of:meta])* fn $name:ident(&mut self $(, $given:ident: $type:ty)*) $(-> $result:ty)? $(, else $answer:expr)?;)+) => {
        impl Ring {
            $($(#[$of])*
            pub(crate) fn $name(&mut self $(, $given: $type)*) $(-> $result)? {
                match self {
                    Self::Uring(ring) => ring.$name($($given),*),
                    Self::Poll(_ring) => both!(@poll _ring.$name($($given),*) $(, $answer)?),
                }
            })+
        }
    };
}

both! {
    /// Makes room for `count` fixed files.
    ///
    /// # Errors
    /// The kernel does not take that many: more than the process may have open, or there is no memory.
    fn make_room_for_files(&mut self, count: u32) -> io::Result<()>, else Ok(());

    /// Gives the files back at once; when the ring goes, the kernel takes its time.
    fn unregister_files(&mut self), else ();

    /// Prepares to register the pool's blocks as they come into use.
    fn register_pool(&mut self, pool: &Pool), else ();

    /// Whether a block of the pool may be named as fixed buffer; registers it if that was not tried yet.
    #[inline(always)]
    fn is_fixed(&mut self, pool: &Pool, block: u16) -> bool, else false;

    /// Forgets a block of the pool, so that its memory may be given back (buffer.5). Whether it has. Nothing that named it is under way.
    fn forget(&mut self, block: u16) -> bool, else true;

    /// Completes with this data after so long; whether it does, for not every ring has timers.
    fn pause(&mut self, length: Duration, data: u64) -> bool, else false;

    /// Makes a descriptor known as the fixed file of that number; `None`: the number means nothing any more. The descriptor stays
    /// open until then, and the file has nothing under way.
    fn set_file(&mut self, number: u32, fd: Option<RawFd>);

    /// Registers the ring of receive buffers, which must live as long as the ring is used.
    fn register_recv(&mut self, recv: &RecvRing) -> io::Result<()>;

    /// Whether the kernel has taken all that was collected.
    fn is_submitted(&mut self) -> bool;

    /// Submits what was collected, and waits for at least one completion, at most so long; `None`: for ever.
    fn turn(&mut self, most: Option<Duration>);

    /// Whether something has completed: seen without waiting, so that it can be asked in a loop.
    #[inline]
    fn has_news(&mut self) -> bool;

    /// Submits what was collected without waiting.
    fn submit(&mut self);

    #[inline]
    fn reap(&mut self) -> Option<Completion>;
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    pub(crate) data: u64,
    /// As the system call would have returned it, or the negative error.
    pub(crate) result: i32,
    /// The registered buffer that was received into.
    pub(crate) buffer: Option<u16>,
    pub(crate) socket_has_more: bool,
    /// Whether the call goes on, and will complete again.
    pub(crate) goes_on: bool,
}

impl Completion {
    fn ended(data: u64, result: i32) -> Self {
        Self { data, result, buffer: None, socket_has_more: false, goes_on: false }
    }

    fn going_on(data: u64, result: i32) -> Self {
        Self { goes_on: true, ..Self::ended(data, result) }
    }
}

/// The owner of a completion of the ring: a kind in the top byte, two numbers below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// A device, by the number of its disk and its place there, and the request.
    Io {
        disk: usize,
        place: usize,
        tag: Tag,
    },
    /// A front's request; the other bits are its own.
    Front(u64),
    /// A device, which is to look: something that it shares with others has changed.
    Look {
        disk: usize,
        place: usize,
    },
    Wake,
    Bell,
    /// A message to a worker, which the kernel did not take.
    Unheard(ContextId),
    Nobody,
}

impl Source {
    pub(crate) fn pack(self) -> u64 {
        let (kind, number) = match self {
            Self::Io { disk, place, tag } => (1, (disk as u64) << 32 | (place as u64) << 16 | u64::from(tag.0)),
            Self::Front(what) => (2, what),
            Self::Wake => (3, 0),
            Self::Bell => (4, 0),
            Self::Nobody => (5, 0),
            Self::Look { disk, place } => (6, (disk as u64) << 32 | (place as u64) << 16),
            Self::Unheard(worker) => (7, worker.0.into()),
        };
        debug_assert!(number >> 56 == 0);
        kind << 56 | number
    }

    pub(crate) fn unpack(data: u64) -> Self {
        let number = (data & ((1 << 56) - 1)) as usize;
        match data >> 56 {
            1 => Self::Io { disk: number >> 32, place: number >> 16 & 0xffff, tag: Tag((number & 0xffff) as u16) },
            2 => Self::Front(number as u64),
            3 => Self::Wake,
            4 => Self::Bell,
            5 => Self::Nobody,
            6 => Self::Look { disk: number >> 32, place: number >> 16 & 0xffff },
            7 => Self::Unheard(ContextId(number as u16)),
            _ => unreachable!("a completion that was never submitted: {data:#x}"),
        }
    }
}

/// Says that the calling thread, and the kernel's helpers of it, serve the I/O of others: memory that they ask for is not
/// waited for if that means I/O, which might be ours to do. Answers whether that was granted: it needs `CAP_SYS_RESOURCE`.
pub(crate) fn be_flusher() -> bool {
    rustix::process::configure_io_flusher_behavior(true).is_ok()
}

#[cfg(test)]
mod tests;
