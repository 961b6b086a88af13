//! A ring without io_uring: epoll, and threads that wait for files.
//!
//! Containers, seccomp filters and the `kernel.io_uring_disabled` setting refuse io_uring. The worker and all above it know
//! nothing of that: they give calls to the ring and take completions. Example: a receive is to wait for its socket; epoll
//! watches the socket; when bytes are there they are received, and the receive completes.
//!
//! poll.1  Collected calls are done when they are submitted, in order. A call that would wait is watched by epoll, and tried again
//!         when its descriptor is ready.
//! poll.2  Calls on files are done by helper threads; a file has at most half of those that are free (helpers.4), so that one that hangs
//!         does not take them all. Data in the page cache is read at once.
//! poll.3  epoll knows of a descriptor only while a call waits for it. A receive waits under the descriptor's own number, each
//!         time anew; all else waits under a duplicate, so that the owner may close its own, as with io_uring.
//! poll.4  The ring goes after its helpers have done what they were given: the memory is others'.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, IntoRawFd as _, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use fairlift_core::learn::concurrency;
use fairlift_core::{ContextId, Duration};
use io_uring::types::BufRingEntry;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use slab::Slab;

use super::Completion;
use crate::kernel::buffer::RecvRing;
use crate::kernel::call::{Call, Task, Work, read, result};
use crate::kernel::helpers::{Done, Helpers, Job, Order};
use crate::kernel::notify::Notifiers;

/// The event that epoll reports when helpers have done something.
const HELPED: u64 = u64::MAX;

/// How many connections are accepted before others have their turn. Chosen.
const ACCEPTS: usize = 64;

pub(crate) struct Poll {
    epoll: OwnedFd,
    /// Collected, not submitted.
    calls: Vec<(Call, u64)>,
    /// Calls that wait, by the number that epoll says.
    waiting: Slab<Waiting>,
    done: VecDeque<Completion>,
    /// By their registered number.
    files: Vec<Option<File>>,
    buffers: Option<Buffers>,
    helpers: Arc<Helpers>,
    helped: Vec<Done>,
    events: Vec<Event>,
}

// SAFETY: the pointers in it name memory of the same worker's front and tickets, with which it moves to its thread.
unsafe impl Send for Poll {}

struct Waiting {
    call: Call,
    data: u64,
    /// The duplicate that is watched (poll.3).
    own: Option<OwnedFd>,
}

#[derive(Clone, Copy)]
struct File {
    fd: RawFd,
    /// Its reads go through the page cache.
    cached: bool,
}

impl Poll {
    /// With at most `threads` helpers.
    pub(super) fn new(threads: usize) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let notifiers = Arc::new(Notifiers::new(1)?);
        let bell = notifiers.bell(WORKER);
        epoll::add(&epoll, bell, EventData::new_u64(HELPED), EventFlags::IN | EventFlags::ET)?;
        let helpers = Helpers::new(threads.max(2), &[], &[], 1, Arc::clone(&notifiers));
        Ok(Self {
            epoll,
            calls: Vec::with_capacity(256),
            waiting: Slab::new(),
            done: VecDeque::with_capacity(256),
            files: Vec::new(),
            buffers: None,
            helpers,
            helped: Vec::with_capacity(256),
            events: Vec::with_capacity(256),
        })
    }

    pub(super) fn set_file(&mut self, number: u32, fd: Option<RawFd>) {
        while self.files.len() <= number as usize {
            let number = self.files.len();
            self.helpers.set_disk(number, &concurrency::Settings::default());
            self.helpers.set_file(number as u32, number);
            self.files.push(None);
        }
        self.files[number as usize] = fd.map(|fd| {
            // SAFETY: the descriptor is open for as long as it is registered (`Ring::set_file`).
            let flags = rustix::fs::fcntl_getfl(unsafe { BorrowedFd::borrow_raw(fd) });
            File { fd, cached: flags.is_ok_and(|flags| !flags.contains(OFlags::DIRECT)) }
        });
    }

    pub(super) fn register_recv(&mut self, recv: &RecvRing) -> io::Result<()> {
        let (address, count) = recv.entries();
        self.buffers = Some(Buffers { entries: address as *const BufRingEntry, count, head: 0 });
        Ok(())
    }

    /// # Safety
    /// As for [`Ring::push`](super::Ring::push).
    pub(super) unsafe fn push(&mut self, call: Call, data: u64) {
        self.calls.push((call, data));
    }

    pub(super) fn is_submitted(&self) -> bool {
        self.calls.is_empty()
    }

    pub(super) fn submit(&mut self) {
        let mut calls = std::mem::take(&mut self.calls);
        for (call, data) in calls.drain(..) {
            self.begin(call, data);
        }
        self.calls = calls;
    }

    pub(super) fn turn(&mut self, most: Option<Duration>) {
        self.submit();
        // Those that wait for epoll have their turn, however much there is to do without it.
        self.look(if self.done.is_empty() { most } else { Some(Duration::ZERO) });
    }

    pub(super) fn has_news(&mut self) -> bool {
        if self.done.is_empty() {
            self.look(Some(Duration::ZERO));
        }
        !self.done.is_empty()
    }

    pub(super) fn reap(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }

    // ---- calls ----

    /// poll.1
    fn begin(&mut self, call: Call, data: u64) {
        match call {
            Call::File(number, work) => match self.files.get(number as usize) {
                Some(Some(file)) => self.file(number, *file, work, data),
                _ => self.done.push_back(Completion::ended(data, -libc::EBADF)),
            },
            Call::Beside { file, fd, cached, work } => self.file(file, File { fd, cached }, work, data),
            Call::Receive { wait: true, .. } | Call::Accept { .. } | Call::Poll { .. } => self.wait(call, data),
            Call::Receive { wait: false, .. } | Call::Send { .. } | Call::Signal { .. } => {
                match self.try_now(call, data) {
                    Some(completion) => self.complete(call, completion),
                    None => self.wait(call, data),
                }
            }
            Call::Cancel { data: whose } => {
                let found = self.waiting.iter().find(|(_, waiting)| waiting.data == whose).map(|(number, _)| number);
                if let Some(number) = found {
                    self.unwatch(number);
                    self.done.push_back(Completion::ended(whose, -libc::ECANCELED));
                }
                let result = if found.is_some() { 0 } else { -libc::ENOENT };
                self.done.push_back(Completion::ended(data, result));
            }
            Call::Message { .. } => unreachable!("a ring of this kind takes no messages"),
            // Drivers take commands from io_uring alone.
            Call::Driver { .. } => self.done.push_back(Completion::ended(data, -libc::EOPNOTSUPP)),
            Call::Nop => self.done.push_back(Completion::ended(data, 0)),
        }
    }

    fn complete(&mut self, call: Call, completion: Completion) {
        let quiet = matches!(call, Call::Signal { quiet: true, .. }) && completion.result >= 0;
        if !quiet {
            self.done.push_back(completion);
        }
    }

    /// poll.2
    fn file(&mut self, number: u32, file: File, work: Work, data: u64) {
        // With direct I/O it would wait.
        if let Work::Read { into, at } = work
            && file.cached
            // SAFETY: what the call names is ours until it completes (`Ring::push`).
            && let got @ 0.. = result(unsafe { read(file.fd, into, at, libc::RWF_NOWAIT) })
        {
            return self.done.push_back(Completion::ended(data, got));
        }
        let job = Job { worker: WORKER, data, sectors: 0, task: Task::Call(file.fd, work) };
        // SAFETY: as above; the completion is told once the result was taken.
        unsafe { self.helpers.push(number as usize, Order::Alone, job) }
    }

    /// `None`: it would wait.
    fn try_now(&mut self, call: Call, data: u64) -> Option<Completion> {
        let result = match call {
            Call::Receive { fd, into, .. } => {
                let own = into.map(|(start, len)| (start, len, None));
                let chosen = || self.buffers.as_ref()?.first().map(|(start, len, buffer)| (start, len, Some(buffer)));
                let Some((start, len, buffer)) = own.or_else(chosen) else {
                    return Some(Completion::ended(data, -libc::ENOBUFS));
                };
                // SAFETY: the memory is ours until the call completes (`Ring::push`), or the buffer until it is told (recv.1).
                let result = unsafe { receive(fd, start, len) };
                if result > 0 {
                    if let (Some(_), Some(buffers)) = (buffer, &mut self.buffers) {
                        buffers.head = buffers.head.wrapping_add(1);
                    }
                    // All of it was filled: there may be more.
                    let socket_has_more = result as u32 == len;
                    return Some(Completion { buffer, socket_has_more, ..Completion::ended(data, result) });
                }
                result
            }
            // SAFETY: the message is ours until the call completes (`Ring::push`).
            Call::Send { fd, message } => unsafe { send(fd, message) },
            // A bell that has been rung 2^64 times will be heard without this.
            Call::Signal { fd, quiet } => match signal(fd) {
                result if quiet && result == -libc::EAGAIN => 0,
                result => result,
            },
            _ => unreachable!("it is not tried: {call:?}"),
        };
        (result != -libc::EAGAIN).then(|| Completion::ended(data, result))
    }

    // ---- epoll ----

    fn wait(&mut self, call: Call, data: u64) {
        if let Err(error) = self.watch(call, data) {
            self.done.push_back(Completion::ended(data, -error.raw_os_error()));
        }
    }

    /// poll.3
    fn watch(&mut self, call: Call, data: u64) -> Result<(), Errno> {
        let (fd, events) = match call {
            Call::Receive { fd, .. } => (fd, EventFlags::IN | EventFlags::ONESHOT),
            Call::Send { fd, .. } | Call::Signal { fd, .. } => (fd, EventFlags::OUT),
            Call::Accept { fd } => (fd, EventFlags::IN),
            Call::Poll { fd, events, multi } => {
                // The numbers are the same.
                let wanted = EventFlags::from_bits_retain(u32::from(events as u16));
                (fd, wanted | if multi { EventFlags::ET } else { EventFlags::empty() })
            }
            _ => unreachable!("it does not wait: {call:?}"),
        };
        // SAFETY: the descriptor is open until the call is submitted, or longer (`Ring::push`).
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        if matches!(call, Call::Receive { .. }) {
            let number = self.waiting.insert(Waiting { call, data, own: None });
            let key = EventData::new_u64(number as u64);
            let result = match epoll::modify(&self.epoll, fd, key, events) {
                Err(Errno::NOENT) => epoll::add(&self.epoll, fd, key, events),
                result => result,
            };
            if result.is_err() {
                self.waiting.remove(number);
            }
            return result;
        }
        let own = rustix::io::fcntl_dupfd_cloexec(fd, 0)?;
        if matches!(call, Call::Accept { .. }) {
            // Somebody else may have accepted what we were told of.
            rustix::fs::fcntl_setfl(&own, rustix::fs::fcntl_getfl(&own)? | OFlags::NONBLOCK)?;
        }
        let call = match call {
            Call::Signal { quiet, .. } => Call::Signal { fd: own.as_raw_fd(), quiet },
            other => other,
        };
        let entry = self.waiting.vacant_entry();
        epoll::add(&self.epoll, &own, EventData::new_u64(entry.key() as u64), events)?;
        entry.insert(Waiting { call, data, own: Some(own) });
        Ok(())
    }

    fn unwatch(&mut self, number: usize) -> Waiting {
        let waiting = self.waiting.remove(number);
        // A duplicate would be watched for as long as its owner has the file open.
        match (&waiting.own, waiting.call) {
            (Some(own), _) => _ = epoll::delete(&self.epoll, own),
            (None, Call::Receive { fd, .. }) => {
                // SAFETY: the descriptor is open until the call completes (`Ring::push`). It may have gone by itself.
                _ = epoll::delete(&self.epoll, unsafe { BorrowedFd::borrow_raw(fd) });
            }
            (None, _) => {}
        }
        waiting
    }

    fn look(&mut self, most: Option<Duration>) {
        if let Some(length) = most.filter(|length| *length > Duration::ZERO) {
            let nanos = length.as_nanos();
            let (tv_sec, tv_nsec) = ((nanos / 1_000_000_000) as i64, (nanos % 1_000_000_000) as _);
            // epoll itself counts in milliseconds where the kernel is old, or has a filter.
            let epoll = &mut [PollFd::new(&self.epoll, PollFlags::IN)];
            expect(rustix::event::poll(epoll, Some(&Timespec { tv_sec, tv_nsec })), "poll");
        }
        let at_once = most.map(|_| Timespec::default());
        let mut events = std::mem::take(&mut self.events);
        expect(epoll::wait(&self.epoll, spare_capacity(&mut events), at_once.as_ref()), "epoll_wait");
        for event in events.drain(..) {
            match event.data.u64() {
                HELPED => {
                    self.helpers.take(WORKER, &mut self.helped);
                    self.done.extend(self.helped.drain(..).map(|(data, result)| Completion::ended(data, result)));
                }
                number => self.ready(number as usize, event.flags),
            }
        }
        self.events = events;
    }

    /// A descriptor is ready that a call waits for.
    fn ready(&mut self, number: usize, events: EventFlags) {
        let Waiting { call, data, .. } = self.waiting[number];
        match call {
            Call::Accept { .. } => self.accept(number, data),
            Call::Poll { multi: true, .. } => self.done.push_back(Completion::going_on(data, events.bits() as i32)),
            Call::Poll { multi: false, .. } => {
                self.unwatch(number);
                self.done.push_back(Completion::ended(data, events.bits() as i32));
            }
            Call::Receive { .. } => {
                // It is one-shot: nothing is watched any more.
                self.waiting.remove(number);
                match self.try_now(call, data) {
                    Some(completion) => self.done.push_back(completion),
                    None => self.wait(call, data),
                }
            }
            Call::Send { .. } | Call::Signal { .. } => {
                if let Some(completion) = self.try_now(call, data) {
                    self.unwatch(number);
                    self.complete(call, completion);
                }
            }
            _ => unreachable!("it does not wait: {call:?}"),
        }
    }

    fn accept(&mut self, number: usize, data: u64) {
        for _ in 0..ACCEPTS {
            let socket = self.waiting[number].own.as_ref().expect("a listening socket is watched under a duplicate");
            match accept_with(socket, SocketFlags::CLOEXEC) {
                Ok(fd) => self.done.push_back(Completion::going_on(data, fd.into_raw_fd())),
                Err(Errno::AGAIN) => return,
                Err(error) => {
                    self.unwatch(number);
                    return self.done.push_back(Completion::ended(data, -error.raw_os_error()));
                }
            }
        }
    }
}

impl Drop for Poll {
    fn drop(&mut self) {
        self.helpers.finish(); // poll.4
    }
}

/// The one that a ring's own helpers tell.
const WORKER: ContextId = ContextId(0);

/// Time is up, or a signal came, as the turn sees next.
fn expect<T>(result: Result<T, Errno>, call: &str) {
    match result {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => panic!("{call}: {error}"),
    }
}

/// The ring of receive buffers; its other side is [`RecvRing`]: here is the part that the kernel does with io_uring.
struct Buffers {
    entries: *const BufRingEntry,
    /// A power of two.
    count: u16,
    /// The next to be taken, counted on and on as the tail is.
    head: u16,
}

impl Buffers {
    fn first(&self) -> Option<(*mut u8, u32, u16)> {
        // SAFETY: the entries live as long as the ring is used (`Ring::register_recv`); the tail is in the first of them.
        let tail = unsafe { (*BufRingEntry::tail(self.entries).cast::<AtomicU16>()).load(Ordering::Acquire) };
        if tail == self.head {
            return None;
        }
        // SAFETY: as above; the index is below `count`. It was filled before the tail said so, and is not written to until we tell
        // that its buffer was used (recv.1).
        let entry = unsafe { &*self.entries.add(usize::from(self.head & (self.count - 1))) };
        Some((entry.addr() as *mut u8, entry.len(), entry.bid()))
    }
}

/// Receives what is there.
///
/// # Safety
/// The memory is valid for writes of its length, and nobody else's.
unsafe fn receive(fd: RawFd, start: *mut u8, len: u32) -> i32 {
    // SAFETY: the memory is the caller's promise.
    result(unsafe { libc::recv(fd, start.cast(), len as usize, libc::MSG_DONTWAIT) })
}

/// Sends as much as the socket takes.
///
/// # Safety
/// The message is valid, and so is the memory that it names.
unsafe fn send(fd: RawFd, message: *const libc::msghdr) -> i32 {
    // SAFETY: the message is the caller's promise.
    result(unsafe { libc::sendmsg(fd, message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) })
}

/// Adds one to an eventfd. Its other owners decide whether that may wait, so it is asked before.
fn signal(fd: RawFd) -> i32 {
    // SAFETY: it is open while the call is submitted; one that waits has a duplicate (poll.3).
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    match rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::OUT)], Some(&Timespec::default())) {
        Ok(0) => -libc::EAGAIN,
        Ok(_) => match rustix::io::write(fd, &1u64.to_ne_bytes()) {
            Ok(count) => count as i32,
            Err(error) => -error.raw_os_error(),
        },
        Err(error) => -error.raw_os_error(),
    }
}
