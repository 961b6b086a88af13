//! A worker's requests on another server: the connection of each, its end, and its fate without one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fairlift_core::queue::Segment;
use fairlift_core::{ContextId, Duration, Errno, Flags, Instant, Op, Outcome};

use super::flight::{Ask, Flight, Here};
use super::ledger::{Birth, End, Promise, Worth, is_asked_again};
use super::socket::{AnsweredSlots, Connection, Doing, Look};
use super::{Remote, Shared};
use crate::device::gather::Gather;
use crate::device::lane::{Address, Completed, Io, Lane, Map, Request, each, list_memory};
use crate::kernel::notify::Notifiers;
use crate::kernel::ticket::Memory;
use crate::sync::lock;
use crate::wire::nbd::FLAG_SEND_FAST_ZERO;

/// A flush takes as long as it takes, but not longer than this many times `io_timeout`. Chosen: a disk that catches up needs some of them.
const FLUSH_PATIENCE: u64 = 4;

pub(super) struct OnRemote {
    shared: Arc<Shared>,
    /// Says that the device is in use.
    _device: Arc<Remote>,
    address: Address,
    me: ContextId,
    /// Known from the first turn on.
    notifiers: Option<Arc<Notifiers>>,
    /// Slots that are ours, and those of them that have a connection.
    slots: Vec<usize>,
    connections: Vec<Connection>,
    gather: Gather,
    look: Look,
    /// Requests without a connection to go by.
    waiting: VecDeque<Flight>,
    /// Since when there has been none that can be used.
    without_since: Option<Instant>,
    /// Our own requests, wherever they are, and those that others have handed over.
    own: usize,
    handed: usize,
    now: Instant,
    is_leaving: bool,
    is_to_unwatch: bool,
    wake: u64,
    /// Requests that were answered, while they are looked at.
    ended: AnsweredSlots,
}

impl OnRemote {
    pub(super) fn new(shared: Arc<Shared>, device: Arc<Remote>, address: Address) -> Self {
        Self {
            shared,
            _device: device,
            address,
            me: address.worker,
            notifiers: None,
            slots: Vec::new(),
            connections: Vec::new(),
            gather: Gather::default(),
            look: Look::Readable,
            waiting: VecDeque::new(),
            without_since: None,
            own: 0,
            handed: 0,
            now: Instant::ZERO,
            is_leaving: false,
            is_to_unwatch: false,
            wake: 0,
            ended: Vec::new(),
        }
    }

    // ---- which connection ----

    /// It is `now`. At the first turn: takes its own letters (remote.2).
    fn turn(&mut self, io: &mut Io<'_>, now: Instant) {
        self.now = now;
        if self.notifiers.is_some() || self.shared.is_awaited() {
            return;
        }
        self.notifiers = Some(Arc::clone(io.notifiers));
        for slot in (usize::from(self.me.0)..self.shared.slots).step_by(io.notifiers.workers()) {
            self.claim(io, slot);
        }
    }

    /// Makes a slot our own, unless it is somebody's; whose it is now.
    fn claim(&mut self, io: &mut Io<'_>, slot: usize) -> ContextId {
        let shared = Arc::clone(&self.shared);
        let mut owners = lock(&shared.owners);
        if let Some(owner) = owners[slot].owner {
            return owner;
        }
        owners[slot].owner = Some(self.me);
        drop(owners);
        self.slots.push(slot);
        if !self.take_parked(io, slot) {
            if self.connections.is_empty() {
                self.without_since.get_or_insert(self.now);
            }
            shared.want(slot, io.notifiers);
        }
        self.me
    }

    /// Takes the connection that was made for a slot of ours, if there is one.
    fn take_parked(&mut self, io: &mut Io<'_>, slot: usize) -> bool {
        let parked = lock(&self.shared.owners)[slot].parked.take();
        let Some((made, birth)) = parked else { return false };
        let mut connection = Connection::new(slot, made, birth);
        if !self.is_leaving {
            connection.watch(io.ring, self.address);
        }
        self.connections.push(connection);
        self.without_since = None;
        self.place_waiting(io);
        true
    }

    fn place_waiting(&mut self, io: &mut Io<'_>) {
        for flight in std::mem::take(&mut self.waiting) {
            self.place(io, flight);
        }
    }

    /// Gives a request to a connection of ours, or to a worker that has one.
    fn route(&mut self, io: &mut Io<'_>, flight: Flight) {
        if self.slots.is_empty() {
            let slot = usize::from(self.me.0) % self.shared.slots;
            return self.send_by(io, slot, flight);
        }
        self.place(io, flight);
    }

    /// Gives a request to the worker that has a slot, or takes the slot and the request.
    fn send_by(&mut self, io: &mut Io<'_>, slot: usize, flight: Flight) {
        let owner = self.claim(io, slot);
        if owner == self.me {
            return self.place(io, flight);
        }
        let shared = Arc::clone(&self.shared);
        let owners = lock(&shared.owners);
        if owners[slot].owner != Some(owner) {
            drop(owners);
            return self.send_by(io, slot, flight); // it has left meanwhile
        }
        self.handed -= usize::from(flight.worker != self.me);
        shared.mail.tell(owner, |letters| letters.handed.push(flight));
        self.wake |= 1 << owner.0;
    }

    /// Gives a request to the connection that has fewest, a flush to one that can speak for all; or lets it wait for one.
    fn place(&mut self, io: &mut Io<'_>, flight: Flight) {
        let gives_up = self.gives_up_at().is_some_and(|at| at <= self.now);
        let usable = self.connections.iter_mut().filter(|connection| connection.is_usable());
        let promise = flight.promise.map(|promise| (promise, lock(&self.shared.ledger)));
        let speaks = |birth| promise.as_ref().is_some_and(|(promise, ledger)| ledger.speaks(birth, *promise));
        let best = usable.min_by_key(|connection| (!speaks(connection.birth), connection.open()));
        drop(promise);
        match best {
            // Without status all counts as data.
            Some(connection) if matches!(flight.ask, Ask::Map { .. }) && !connection.tells_status() => {
                let runs = vec![(flight.bytes, false)];
                self.finish(io, Flight { here: Here { runs, ..Here::default() }, ..flight }, Ok(()));
            }
            Some(connection) => connection.take(flight),
            None if gives_up => match self.elsewhere().filter(|_| !flight.is_passed_on) {
                Some(slot) => self.send_by(io, slot, Flight { is_passed_on: true, ..flight }),
                None => self.finish(io, flight, Err(Errno::EIO)), // remote.3
            },
            None => self.waiting.push_back(flight),
        }
    }

    /// A slot of another worker that has a connection (remote.2): a server may take fewer than there are slots.
    fn elsewhere(&self) -> Option<usize> {
        let ledger = lock(&self.shared.ledger);
        let all = || ledger.alive().iter().map(|(_, slot)| *slot).filter(|slot| !self.slots.contains(slot));
        all().nth(usize::from(self.me.0) % all().count().max(1))
    }

    /// When requests wait no more for a connection.
    fn gives_up_at(&self) -> Option<Instant> {
        self.without_since.map(|since| since + self.shared.nbd.reconnect)
    }

    // ---- how they end ----

    /// A request is over: tells whoever asked.
    fn finish(&mut self, io: &mut Io<'_>, flight: Flight, result: Result<(), Errno>) {
        let worker = flight.worker;
        if worker != self.me {
            self.handed -= 1;
            self.shared.mail.tell(worker, |letters| letters.ended.push((flight, result)));
            self.wake |= 1 << worker.0;
            return;
        }
        self.own -= 1;
        let outcome = result.map_or_else(Outcome::Failed, |()| Outcome::Done);
        match flight.ask {
            Ask::Op(_, tag) => io.ended.push((tag, outcome)),
            Ask::Map { ticket, .. } => {
                if result.is_ok() {
                    io.tickets[ticket].memory = Memory::Map(flight.here.runs);
                }
                io.mapped.push((ticket, outcome));
            }
        }
    }

    /// Goes on with the answers of a connection.
    fn conclude(&mut self, io: &mut Io<'_>, index: usize) {
        if self.ended.is_empty() {
            return;
        }
        let volatile = self.shared.is_volatile();
        let mut ended = std::mem::take(&mut self.ended);
        for (slot, mut result) in ended.drain(..) {
            let connection = &mut self.connections[index];
            let flight = connection.take_ended(slot);
            self.gather.answered(self.now.since(flight.since));
            if result == Err(Errno::ESHUTDOWN) {
                // The server goes, and has not done it: what else it has it will answer, or close the connection.
                connection.goes = true;
                self.place(io, flight);
                continue;
            }
            if result.is_ok() && volatile && flight.changes_data() && !flight.flags.contains(Flags::FUA) {
                lock(&self.shared.ledger).wrote(flight.here.given);
            }
            if let (Ok(()), Some(promise)) = (result, flight.promise) {
                match self.judge(index, promise) {
                    Worth::Believed => {}
                    Worth::AskAt(_, slot) => {
                        self.send_by(io, slot, flight);
                        continue;
                    }
                    Worth::Lost => {
                        tracing::error!(
                            uri = self.shared.nbd.uri,
                            "a flush fails: writes were answered before a connection was lost, and may be lost with it"
                        );
                        result = Err(Errno::EIO); // ledger.2
                    }
                }
            }
            self.finish(io, flight, result);
        }
        self.ended = ended;
        self.look_for_usable();
    }

    fn judge(&self, index: usize, promise: Promise) -> Worth {
        let mut ledger = lock(&self.shared.ledger);
        loop {
            match ledger.flushed(self.connections[index].birth, promise) {
                // It cannot be asked: it goes, or nobody has it.
                Worth::AskAt(birth, slot) if self.slots.contains(&slot) && !self.has(birth) => ledger.lost(birth),
                worth => return worth,
            }
        }
    }

    fn has(&self, birth: Birth) -> bool {
        self.connections.iter().any(|connection| connection.birth == birth && connection.is_usable())
    }

    // ---- what becomes of connections ----

    fn look_for_usable(&mut self) {
        if !self.connections.iter().any(Connection::is_usable) {
            self.without_since.get_or_insert(self.now);
        }
    }

    /// Lets go of connections that are over, and of their requests.
    fn bury(&mut self, io: &mut Io<'_>) {
        let over = |connection: &Connection| connection.is_over().is_some();
        while let Some(index) = self.connections.iter().position(over) {
            let mut connection = self.connections.swap_remove(index);
            let slot = connection.slot;
            lock(&self.shared.ledger).lost(connection.birth);
            let (end, why) = connection.is_over().map(|(end, why)| (end, why.to_owned())).expect("seen above");
            self.look_for_usable();
            let open = connection.take_open();
            self.shared.lost(slot, &why, true);
            self.shared.want(slot, io.notifiers);
            let mut again = Vec::new();
            for (whole, flight) in open {
                if flight.deadline <= self.now {
                    self.finish(io, flight, Err(Errno::ETIMEDOUT)); // remote.3
                } else if is_asked_again(flight.changes_data(), whole, end) {
                    again.push(flight);
                } else {
                    self.finish(io, flight, Err(Errno::EIO)); // ledger.4
                }
            }
            // They are older than those that wait.
            for flight in again.into_iter().rev() {
                self.waiting.push_front(flight);
            }
            if self.connections.iter().any(Connection::is_usable) {
                self.place_waiting(io);
            }
        }
    }

    /// Fails what is overdue (remote.3).
    fn look_at_clock(&mut self, io: &mut Io<'_>) {
        let now = self.now;
        for connection in &mut self.connections {
            if connection.is_late(now) {
                connection.break_off(End::Cut, "a request was not answered in time (io_timeout)");
            }
        }
        let gives_up = self.gives_up_at().is_some_and(|at| at <= now);
        if !self.waiting.is_empty() && (gives_up || self.waiting.iter().any(|flight| flight.deadline <= now)) {
            if gives_up && self.elsewhere().is_none() {
                let uri = &self.shared.nbd.uri;
                tracing::error!(uri, requests = self.waiting.len(), "no connection within `reconnect`: requests fail");
            }
            for flight in std::mem::take(&mut self.waiting) {
                match flight.deadline <= now {
                    true => self.finish(io, flight, Err(Errno::ETIMEDOUT)),
                    false => self.place(io, flight),
                }
            }
        }
    }

    /// Reads what others have written to us.
    fn read_letters(&mut self, io: &mut Io<'_>) {
        let Some(letters) = self.shared.mail.take(self.me) else { return };
        for index in 0..if letters.is_connected { self.slots.len() } else { 0 } {
            self.take_parked(io, self.slots[index]);
        }
        for flight in letters.handed {
            if flight.worker == self.me {
                self.route(io, flight);
            } else {
                self.handed += 1;
                self.place(io, flight);
            }
        }
        for (flight, result) in letters.ended {
            self.finish(io, flight, result);
        }
    }

    /// Ends a turn: gives the kernel what it can do, and wakes who is told something.
    fn go_on(&mut self, io: &mut Io<'_>) {
        loop {
            self.bury(io);
            for connection in &mut self.connections {
                connection.arm(io.ring, self.address, &self.shared.ledger, self.look);
            }
            // A connection that broke off just now has nothing under way that would bring another turn.
            if !self.connections.iter().any(|connection| connection.is_over().is_some()) {
                break;
            }
        }
        if self.look == Look::Now {
            self.look = Look::Readable;
        }
        if self.wake != 0 {
            io.notifiers.wake_all(std::mem::take(&mut self.wake), io.context, io.ring);
        }
    }

    /// Some answers have come: lets more come before it looks again, if that is worth while.
    fn pause(&mut self, io: &mut Io<'_>) {
        let open = self.connections.iter().map(Connection::open).sum();
        let data = Doing::Pause.data(0, self.address);
        if self.gather.pause(open).is_some_and(|length| io.ring.pause(length, data)) {
            self.look = Look::Later;
        }
    }

    fn flight(&self, ask: Ask, flags: Flags, at: u64, bytes: u64, patience: Duration) -> Flight {
        Flight {
            worker: self.me,
            ask,
            flags,
            at,
            bytes,
            iovecs: Vec::new(),
            since: self.now,
            deadline: self.now + patience,
            promise: None,
            is_passed_on: false,
            here: Here::default(),
        }
    }
}

impl Lane for OnRemote {
    fn queue(&mut self, io: &mut Io<'_>, now: Instant, requests: &[Request], segments: &[Segment]) {
        self.turn(io, now);
        let size = self.shared.size.load(Ordering::Relaxed);
        for (request, segments) in each(requests, segments) {
            let Request { tag, op, flags, at, bytes, .. } = *request;
            let io_timeout = self.address.io_timeout;
            let patience = match op {
                Op::Flush => Duration::from_nanos(io_timeout.as_nanos().saturating_mul(FLUSH_PATIENCE)),
                Op::Read | Op::Write | Op::Discard | Op::WriteZeroes => io_timeout,
            };
            // The server's last sector may not be whole: what is beyond its end reads as zeroes, and is not written.
            let within = if op == Op::Flush { 0 } else { bytes.min(size.saturating_sub(at)) };
            let mut flight = self.flight(Ask::Op(op, tag), flags, at, within, patience);
            if op == Op::Flush {
                flight.at = 0;
                flight.promise = Some(lock(&self.shared.ledger).promise());
            }
            if op.has_payload() {
                list_memory(io.tickets, segments, op, within, &mut flight.iovecs);
            }
            if flags.contains(Flags::FAST) && op == Op::WriteZeroes && !self.shared.offer.has(FLAG_SEND_FAST_ZERO) {
                io.ended.push((tag, Outcome::Failed(Errno::ENOTSUP)));
                continue;
            }
            self.own += 1;
            self.route(io, flight);
        }
        io.launch = true;
    }

    fn map(&mut self, io: &mut Io<'_>, now: Instant, map: Map) {
        self.turn(io, now);
        let Map { ticket, at, bytes, most } = map;
        let (ask, patience) = (Ask::Map { ticket, most }, self.address.io_timeout);
        let flight = self.flight(ask, Flags::NONE, at, bytes.min(RUNS_MAX), patience);
        self.own += 1;
        self.route(io, flight);
        self.go_on(io);
    }

    fn launch(&mut self, io: &mut Io<'_>) {
        self.go_on(io);
    }

    fn completed(&mut self, io: &mut Io<'_>, now: Instant, steps: &[Completed]) {
        self.now = now;
        let mut is_told = false;
        for step in steps {
            let (doing, slot) = Doing::of(step.tag);
            if doing == Doing::Pause {
                self.look = Look::Now;
                continue;
            }
            let Some(index) = self.connections.iter().position(|connection| connection.slot == slot) else {
                unreachable!("a step of a connection that is gone: {doing:?} of {slot}")
            };
            let connection = &mut self.connections[index];
            match doing {
                Doing::Receive => connection.received(step.result, &mut self.ended),
                Doing::Send => connection.sent(step.result, &mut self.ended),
                Doing::Watch => connection.watched(step.result),
                Doing::Pause => unreachable!("seen above"),
            }
            is_told |= !self.ended.is_empty();
            self.conclude(io, index);
        }
        if is_told && self.look != Look::Later {
            self.pause(io);
        }
        self.go_on(io);
    }

    fn is_by_the_clock(&self) -> bool {
        true
    }

    fn poll(&mut self, io: &mut Io<'_>, now: Instant) {
        self.turn(io, now);
        if self.notifiers.is_none() {
            return; // link.1
        }
        self.read_letters(io);
        self.look_at_clock(io);
        if std::mem::take(&mut self.is_to_unwatch) {
            self.connections.iter().for_each(|connection| connection.unwatch(io.ring, self.address));
        }
        self.go_on(io);
    }

    fn stalled(&mut self, for_so_long: Duration) {
        self.without_since = self.without_since.map(|since| since + for_so_long);
        self.waiting.iter_mut().for_each(|flight| flight.deadline += for_so_long);
        self.connections.iter_mut().for_each(|connection| connection.put_off(for_so_long));
    }

    fn is_pausing(&self) -> bool {
        self.look == Look::Later
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if self.is_to_unwatch || self.notifiers.is_none() && !self.shared.is_awaited() {
            return Some(Instant::ZERO);
        }
        let connections = self.connections.iter().filter_map(Connection::due);
        let waiting = self.waiting.iter().map(|flight| flight.deadline);
        let gives_up = self.gives_up_at().filter(|_| !self.waiting.is_empty());
        connections.chain(waiting).chain(gives_up).min()
    }

    fn leave(&mut self) {
        self.is_to_unwatch |= !std::mem::replace(&mut self.is_leaving, true);
    }

    fn in_flight(&self) -> usize {
        let watched = if self.is_leaving { self.connections.iter().filter(|one| one.is_busy()).count() } else { 0 };
        self.own + self.handed + watched + usize::from(self.is_leaving && self.look == Look::Later)
    }
}

/// The largest range of a query for allocation: 32 bits can say no more, and whole blocks.
const RUNS_MAX: u64 = 1 << 31;

impl Drop for OnRemote {
    /// remote.2: what is left is for others.
    fn drop(&mut self) {
        let Some(notifiers) = &self.notifiers else { return }; // nothing was taken yet, nor is it known whose lane it is
        let mut owners = lock(&self.shared.owners);
        owners.iter_mut().filter(|slot| slot.owner == Some(self.me)).for_each(|slot| slot.owner = None);
        for connection in self.connections.drain(..) {
            let (slot, birth) = (connection.slot, connection.birth);
            match connection.into_idle() {
                Some(idle) => owners[slot].park(idle, birth),
                None => lock(&self.shared.ledger).lost(birth),
            }
        }
        for flight in self.shared.mail.take(self.me).unwrap_or_default().handed {
            let worker = flight.worker;
            self.shared.mail.tell(worker, |letters| letters.handed.push(flight));
            notifiers.ring_bell(worker);
        }
    }
}
