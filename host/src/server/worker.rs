//! A worker: one thread, one ring, and the connections that it serves.
//!
//! A turn: submit what was collected and wait; take in all that completed; let the disks and the connections answer
//! each other until neither has news; then collect what the kernel shall do next.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fairlift_core::{ContextId, Duration, Instant};
use io_uring::{cqueue, opcode, types};
use slab::Slab;

use crate::config::Tls;
use crate::device::helpers::Helpers;
use crate::disk::Disk;
use crate::disk::engine::Engine;
use crate::export::nbd::Service;
use crate::export::nbd::serve::{Connection, Lack};
use crate::kernel::buffer::{Pool, RecvRing};
use crate::kernel::clock;
use crate::kernel::notify::Notifiers;
use crate::kernel::ring::{Ring, Source};
use crate::kernel::sleep::Sleep;
use crate::server::listen::Listening;

/// How long a client may take nothing of its replies while others need the memory that they hold.
const STALL: Duration = fairlift_core::time::secs(5);

/// How many threads the kernel may have for a worker's ring, at least: who waits for a disk that hangs takes one for each
/// request that does, and the flushes of other disks need some as well.
const KERNEL_THREADS: u32 = 16;

/// How long a listener that could not accept is left alone.
const ACCEPT_PAUSE: Duration = fairlift_core::time::ms(100);

/// What all workers know.
pub(crate) struct Shared {
    pub(crate) service: Service,
    pub(crate) disks: Vec<Arc<Disk>>,
    /// The files of all disks, by their registered numbers.
    pub(crate) files: Vec<RawFd>,
    pub(crate) listeners: Vec<Listening>,
    pub(crate) notifiers: Arc<Notifiers>,
    pub(crate) helpers: Arc<Helpers>,
    pub(crate) draining: Arc<AtomicBool>,
    /// Connections at each worker.
    pub(crate) loads: Box<[AtomicU32]>,
    /// Connections that one worker accepted for another, by the number of that one.
    pub(crate) newcomers: Box<[Mutex<Vec<Newcomer>>]>,
}

/// A connection that was accepted.
pub(crate) struct Newcomer {
    fd: OwnedFd,
    tls: Tls,
}

/// One thread, one ring, and the connections that it serves.
pub(crate) struct Worker {
    // The ring, within the engine, goes before the memory that is registered with it.
    engine: Engine,
    recv: RecvRing,
    shared: Arc<Shared>,
    connections: Slab<Connection>,
    /// Connections to look at before the turn ends.
    touched: Vec<usize>,
    /// Connections that wait for something that others use, longest first.
    held_back: VecDeque<usize>,
    /// When each newcomer must have finished its negotiation; in order, because all have the same time.
    handshakes: VecDeque<(Instant, usize, u64)>,
    /// How many connections each slot has seen, to tell a newcomer from who was there before.
    visits: Vec<u64>,
    accepting: usize,
    /// Listeners that could not accept, and when each is asked again; in order.
    accept_again: VecDeque<(Instant, usize)>,
    /// Since when we have been draining.
    draining: Option<Instant>,
    sleep: Sleep,
}

impl Worker {
    /// A worker for the calling thread.
    pub(crate) fn new(context: ContextId, shared: Arc<Shared>) -> std::io::Result<Self> {
        let workers = shared.loads.len() as u64;
        if !crate::kernel::ring::be_flusher() && context.0 == 0 {
            tracing::debug!(
                "PR_SET_IO_FLUSHER refused (CAP_SYS_RESOURCE): images inside images need memory of their own"
            );
        }
        let threads = shared.service.limits.helpers.div_ceil(workers as u32).max(KERNEL_THREADS);
        let mut ring = Ring::new(1024, 8192, threads)?;
        ring.register_files(&shared.files)?;
        let pool = Pool::new(shared.service.limits.memory / workers, 64);
        ring.register_pool(&pool);
        let mut recv = RecvRing::new(64, 256 << 10);
        ring.register_recv(&recv)?;
        recv.grow();
        recv.grow();
        shared.notifiers.open(context, ring.as_raw_fd());
        let (notifiers, helpers) = (Arc::clone(&shared.notifiers), Arc::clone(&shared.helpers));
        let engine = Engine::new(ring, pool, context, &shared.disks, notifiers, helpers);
        let mut worker = Self {
            engine,
            recv,
            shared,
            connections: Slab::new(),
            touched: Vec::with_capacity(256),
            held_back: VecDeque::new(),
            handshakes: VecDeque::new(),
            visits: Vec::new(),
            accepting: 0,
            accept_again: VecDeque::new(),
            draining: None,
            sleep: Sleep::new(),
        };
        worker.shared.notifiers.arm_bell(context, &mut worker.engine.ring);
        if context.0 == 0 {
            for listener in 0..worker.shared.listeners.len() {
                worker.arm_accept(listener);
            }
        }
        Ok(worker)
    }

    /// Serves until drained. Answers how many requests the devices still had when the time was over.
    pub(crate) fn run(mut self) -> usize {
        loop {
            let before = clock::now();
            let due = self.due(before);
            let now = self.sleep.until(&mut self.engine.ring, before, due);
            while let Some(entry) = self.engine.ring.reap() {
                self.completed(now, &entry);
            }
            self.look_at_clock(now);
            self.settle(now);
            if self.draining.is_some() {
                if self.connections.is_empty() && self.accepting == 0 && self.engine.in_devices() == 0 {
                    self.engine.ring.unregister_files();
                    return 0;
                }
                let patience = self.shared.service.limits.drain_timeout;
                if self.draining.is_some_and(|since| now.since(since) > patience + patience) {
                    // The kernel may still use our memory: it is left to it until the process ends.
                    let lost = self.engine.in_devices();
                    std::mem::forget(self);
                    return lost;
                }
            }
        }
    }

    /// When to go on though nothing completes.
    fn due(&self, now: Instant) -> Option<Instant> {
        let handshake = self.handshakes.front().map(|(deadline, ..)| *deadline);
        let stall = (!self.held_back.is_empty()).then(|| now + STALL);
        let drain = self.draining.map(|_| now + fairlift_core::time::ms(100));
        let accept = self.accept_again.front().map(|(at, _)| *at);
        [self.engine.poll_timeout(), handshake, stall, drain, accept].into_iter().flatten().min()
    }

    fn completed(&mut self, now: Instant, entry: &cqueue::Entry) {
        let (result, flags) = (entry.result(), entry.flags());
        match Source::unpack(entry.user_data()) {
            Source::Io { disk, tag } => self.engine.completed(disk, tag, result),
            Source::Receive(number) => {
                let more = cqueue::sock_nonempty(flags);
                let connection = &mut self.connections[number];
                match cqueue::buffer_select(flags) {
                    Some(buffer) if result > 0 => {
                        let bytes = self.recv.received(buffer, result as usize);
                        connection.received(&mut self.engine, &self.shared.service, now, bytes, more);
                        self.recv.publish(buffer);
                    }
                    buffer => {
                        if let Some(buffer) = buffer {
                            self.recv.publish(buffer);
                        }
                        if result == -libc::ENOBUFS {
                            self.recv.grow();
                        }
                        connection.receive_ended(&mut self.engine, now, result, more);
                    }
                }
                self.touch(number);
            }
            Source::Send(number) => {
                self.connections[number].send_ended(&mut self.engine, now, result);
                self.touch(number);
            }
            Source::Accept(listener) => self.accepted(now, listener, result, cqueue::more(flags)),
            Source::Wake => self.look_around(now),
            Source::Bell => {
                if !cqueue::more(flags) {
                    self.shared.notifiers.arm_bell(self.engine.context, &mut self.engine.ring);
                }
                self.shared.notifiers.answer_bell(self.engine.context);
                self.look_around(now);
            }
            Source::Nobody => {}
        }
    }

    /// Somebody has news: newcomers, grants, or the order to drain.
    fn look_around(&mut self, now: Instant) {
        let context = self.engine.context;
        self.shared.notifiers.take_notice(context);
        let newcomers = std::mem::take(&mut *self.shared.newcomers_of(context));
        newcomers.into_iter().for_each(|newcomer| self.welcome(now, newcomer));
        self.engine.woken();
        if self.shared.draining.load(Ordering::Acquire) && self.draining.is_none() {
            self.draining = Some(now);
            if self.accepting > 0 {
                for listener in 0..self.shared.listeners.len() {
                    let cancel = opcode::AsyncCancel::new(Source::Accept(listener).pack()).build();
                    // SAFETY: the entry names no memory.
                    unsafe { self.engine.ring.push(&cancel.user_data(Source::Nobody.pack())) }
                }
            }
            for number in self.numbers() {
                self.connections[number].stop_reading();
                self.touch(number);
            }
        }
    }

    fn numbers(&self) -> Vec<usize> {
        self.connections.iter().map(|(number, _)| number).collect()
    }

    /// Lets disks and connections answer each other until neither has news, then tells the kernel.
    fn settle(&mut self, now: Instant) {
        loop {
            while self.exchange(now) {}
            let used = self.engine.pool.used();
            self.tell_kernel(now);
            let goes_on = self.engine.launch_all();
            // A client that is gone, or has TLS, gives memory back only now: somebody may wait for it.
            if !goes_on && (self.held_back.is_empty() || self.engine.pool.used() == used) {
                return;
            }
        }
    }

    /// Gives disks the connections' bios and connections the disks' news; whether there was any.
    fn exchange(&mut self, now: Instant) -> bool {
        self.engine.turn(now);
        let mut news = std::mem::take(&mut self.engine.news);
        let some = !news.is_empty();
        for (command, what) in news.drain(..) {
            let number = self.engine.commands[command].connection;
            self.connections[number].news(&mut self.engine, command, what);
            self.touch(number);
        }
        self.engine.news = news;
        self.go_on() || some
    }

    /// Lets connections that were held back go on, as far as they can; whether one could.
    fn go_on(&mut self) -> bool {
        let mut went_on = false;
        for index in 0..self.touched.len() {
            let number = self.touched[index];
            let connection = &mut self.connections[number];
            if connection.held_back() == Some(Lack::Own) {
                connection.go_on(&mut self.engine, &self.shared.service);
                went_on |= connection.held_back() != Some(Lack::Own);
            }
            if matches!(connection.held_back(), Some(Lack::Memory | Lack::Disk)) && !self.held_back.contains(&number) {
                self.held_back.push_back(number);
            }
        }
        let mut index = 0;
        self.engine.first_in_line = None;
        while let Some(number) = self.held_back.get(index).copied() {
            self.connections[number].go_on(&mut self.engine, &self.shared.service);
            match self.connections[number].held_back() {
                Some(Lack::Memory) => {
                    self.engine.first_in_line.get_or_insert(number);
                    index += 1;
                }
                Some(Lack::Disk) => index += 1,
                None | Some(Lack::Own) => {
                    self.held_back.remove(index);
                    self.touch(number);
                    went_on = true;
                }
            }
        }
        went_on
    }

    /// Collects what the kernel shall do next for the connections that something happened to.
    fn tell_kernel(&mut self, now: Instant) {
        for index in 0..self.touched.len() {
            let number = self.touched[index];
            let connection = &mut self.connections[number];
            connection.touched = false;
            connection.give_up_payload(&mut self.engine);
            connection.arm(&mut self.engine, now);
            if connection.is_over() {
                self.connections.remove(number).close(&mut self.engine);
                self.held_back.retain(|waiting| *waiting != number);
                self.shared.loads[usize::from(self.engine.context.0)].fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.touched.clear();
    }

    fn touch(&mut self, number: usize) {
        if !std::mem::replace(&mut self.connections[number].touched, true) {
            self.touched.push(number);
        }
    }

    /// Ends what has taken too long.
    fn look_at_clock(&mut self, now: Instant) {
        while let Some((deadline, number, visit)) = self.handshakes.front().copied() {
            if now < deadline {
                break;
            }
            self.handshakes.pop_front();
            let same = self.visits.get(number) == Some(&visit);
            if let Some(connection) = self.connections.get_mut(number).filter(|c| same && c.is_negotiating()) {
                tracing::info!(connection = number, "dropped: its negotiation took longer than handshake_timeout");
                connection.break_off();
                self.touch(number);
            }
        }
        while let Some((_, listener)) = self.accept_again.pop_front_if(|(at, _)| *at <= now) {
            self.arm_accept(listener);
        }
        if self.engine.first_in_line.is_some() {
            // Of those that keep us waiting, the one that holds most must go.
            let stalled = self
                .connections
                .iter()
                .filter(|(_, connection)| connection.stalled_since().is_some_and(|since| now.since(since) >= STALL));
            if let Some((number, _)) = stalled.filter(|(_, c)| c.memory() > 0).max_by_key(|(_, c)| c.memory()) {
                tracing::warn!(
                    connection = number,
                    "dropped: it takes no replies or sends no payload, and others need the memory"
                );
                self.connections[number].break_off();
                self.touch(number);
            }
        }
        if self.draining.is_some_and(|since| now.since(since) > self.shared.service.limits.drain_timeout) {
            for number in self.numbers() {
                self.connections[number].break_off();
                self.touch(number);
            }
        }
    }

    // ---- newcomers ----

    fn arm_accept(&mut self, listener: usize) {
        let fd = types::Fd(self.shared.listeners[listener].fd.as_raw_fd());
        let entry = opcode::AcceptMulti::new(fd).flags(libc::SOCK_CLOEXEC).build();
        // SAFETY: the entry names no memory.
        unsafe { self.engine.ring.push(&entry.user_data(Source::Accept(listener).pack())) }
        self.accepting += 1;
    }

    fn accepted(&mut self, now: Instant, listener: usize, result: i32, more: bool) {
        if !more {
            self.accepting -= 1;
        }
        if result >= 0 {
            // SAFETY: the kernel has just made this descriptor for us.
            let fd = unsafe { OwnedFd::from_raw_fd(result) };
            self.place(now, Newcomer { fd, tls: self.shared.listeners[listener].tls });
        } else if ![-libc::ECANCELED, -libc::EINTR, -libc::ECONNABORTED].contains(&result) {
            tracing::warn!(error = %std::io::Error::from_raw_os_error(-result), "a connection could not be accepted");
        }
        if !more && self.draining.is_none() {
            match result {
                // Out of descriptors or memory: asking again at once would only fail again.
                ..0 => self.accept_again.push_back((now + ACCEPT_PAUSE, listener)),
                _ => self.arm_accept(listener),
            }
        }
    }

    /// Gives a newcomer to the worker with the fewest connections.
    fn place(&mut self, now: Instant, newcomer: Newcomer) {
        let loads = &self.shared.loads;
        let total: u32 = loads.iter().map(|load| load.load(Ordering::Relaxed)).sum();
        if total >= self.shared.service.limits.connections {
            tracing::warn!("a connection was refused: there are {total} already (max_connections)");
            return; // closes it
        }
        let (target, load) = loads
            .iter()
            .enumerate()
            .min_by_key(|(_, load)| load.load(Ordering::Relaxed))
            .expect("there is at least one worker");
        load.fetch_add(1, Ordering::Relaxed);
        let target = ContextId(target as u16);
        if target == self.engine.context {
            self.welcome(now, newcomer);
        } else {
            let shared = Arc::clone(&self.shared);
            shared.newcomers_of(target).push(newcomer);
            shared.notifiers.wake(target, &mut self.engine.ring);
        }
    }

    fn welcome(&mut self, now: Instant, newcomer: Newcomer) {
        crate::server::listen::prepare(&newcomer.fd);
        let entry = self.connections.vacant_entry();
        let number = entry.key();
        entry.insert(Connection::new(newcomer.fd, number, newcomer.tls, now));
        if self.visits.len() <= number {
            self.visits.resize(number + 1, 0);
        }
        self.visits[number] += 1;
        self.handshakes.push_back((now + self.shared.service.limits.handshake_timeout, number, self.visits[number]));
        if self.draining.is_some() {
            self.connections[number].stop_reading();
        }
        self.touch(number);
    }
}

impl Shared {
    fn newcomers_of(&self, worker: ContextId) -> MutexGuard<'_, Vec<Newcomer>> {
        self.newcomers[usize::from(worker.0)].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
