//! The connections of a worker, and how it comes by them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd as _, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use fairlift_core::{Duration, Instant};
use slab::Slab;

use super::serve::resume::Resume;
use super::serve::{Connection, Lack};
use super::service::{Common, UserData};
use crate::access::Peer;
use crate::config::Tls;
use crate::disk::engine::{Engine, News};
use crate::export::front::{Clients, Coming, Front, Protocol};
use crate::export::hold::HeldClient;
use crate::export::listen::Listening;
use crate::export::present::{Fate, Newcomers, Present};
use crate::export::service::{Client, Exports, Service};
use crate::export::{Leave, listen};
use crate::kernel::buffer::RecvRing;
use crate::kernel::ktls;
use crate::kernel::ring::Completion;

/// How long a client may take next to nothing of its replies while others need the memory that they hold. Chosen: a healthy network
/// resends within that time, and the others' requests wait no longer than a slow disk makes them.
const STALL: Duration = fairlift_core::time::secs(5);

/// How long a listener is left alone that could not accept, or by which a stranger came that the gate turned away. Chosen: descriptors may
/// be free again by then, and ten tries a second cost next to nothing; strangers that come meanwhile are turned away together, so that
/// requests of others are interrupted ten times a second and not by each, and honest clients do not notice.
const ACCEPT_PAUSE: Duration = fairlift_core::time::ms(100);

/// The connections of a server: they come by the server's listeners, to any export.
pub(crate) struct Connections {
    service: Arc<Service>,
    newcomers: Newcomers<Newcomer>,
}

/// A connection on its way to its worker.
pub(crate) enum Newcomer {
    /// It was accepted, and is greeted; whether it is encrypted then.
    New(OwnedFd, Peer, Tls),
    /// Another server has handed it over: since when its client is there, and how it goes on.
    From(SystemTime, Resume),
}

impl Protocol for Connections {
    const NUMBER: u64 = 0; // what is called by a number alone is NBD's

    type Clients = Nbd;

    fn new(service: &Arc<Service>) -> Self {
        Self { service: Arc::clone(service), newcomers: Newcomers::new(service.notifiers.workers()) }
    }

    /// No connections yet. The first worker accepts, for all.
    fn clients(self: &Arc<Self>, engine: &mut Engine) -> io::Result<Nbd> {
        let mut recv = RecvRing::new(64, 256 << 10)?;
        engine.ring.register_recv(&recv)?;
        recv.grow();
        recv.grow();
        let service = Arc::clone(&self.service);
        let present = Present::new(&service.exports());
        let mut front = Nbd {
            all: Arc::clone(self),
            common: Common { service, present, commands: Vec::with_capacity(1024) },
            recv,
            connections: Slab::new(),
            touched: Vec::with_capacity(256),
            held_back: VecDeque::new(),
            newcomers: VecDeque::new(),
            outgoing: VecDeque::new(),
            visits: 0,
            accepting: BTreeMap::new(),
            accept_again: VecDeque::new(),
            resting: BTreeSet::new(),
        };
        front.look_at_listeners(engine);
        Ok(front)
    }

    fn take_over(self: &Arc<Self>, client: HeldClient) -> Result<Coming, String> {
        let (since, resume) = Connection::resume(client, &self.service)?;
        let newcomer = Newcomer::From(since, resume);
        let all = Arc::clone(self);
        Ok(Box::new(move || {
            let target = all.newcomers.place();
            all.newcomers.send(target, newcomer);
            all.service.notifiers.ring_bell(target);
        }))
    }
}

pub(crate) struct Nbd {
    /// The state that all workers share.
    all: Arc<Connections>,
    common: Common,
    // Registered with the ring: the worker drops that before.
    recv: RecvRing,
    connections: Slab<Connection>,
    /// Connections to look at before the turn ends.
    touched: Vec<usize>,
    /// Connections that wait for something that others use, longest first.
    held_back: VecDeque<usize>,
    /// Newcomers, and when each must have come on with its negotiation; in order, because all have the same time.
    newcomers: VecDeque<LookAgain>,
    /// Clients whose right has gone, and when each is looked at next; in order, because all have the same time.
    outgoing: VecDeque<LookAgain>,
    /// How many connections there were, to tell a newcomer from the connection that had its number before.
    visits: u64,
    /// Where it accepts, by the numbers of the listeners, and whether it still does: the kernel is told to stop, and says when
    /// it has.
    accepting: BTreeMap<usize, (Arc<Listening>, bool)>,
    /// Listeners that could not accept, and when each is asked again; in order.
    accept_again: VecDeque<(Instant, usize)>,
    /// Listeners that are to rest, whose last completion has not come.
    resting: BTreeSet<usize>,
}

/// A client that is looked at again: one that negotiates, or one that may not be here any more and is yet to take its last replies.
#[derive(Clone, Copy)]
struct LookAgain {
    at: Instant,
    number: usize,
    visit: u64,
    /// How many options it had asked for when it was looked at last.
    options: u32,
    times: u8,
}

impl LookAgain {
    /// So often a client is given `handshake_timeout`, if it has asked for an option meanwhile: on a server that is busy each of its
    /// steps may take long. Chosen: as many as the options that clients ask for, one after the other. And so often one may be found to
    /// take its last replies, `drain_timeout` apart.
    const TIMES: u8 = 6;
}

impl Nbd {
    fn touch(&mut self, number: usize) {
        if !std::mem::replace(&mut self.connections[number].touched, true) {
            self.touched.push(number);
        }
    }

    /// Does something with each connection; those for which it says so are looked at before the turn ends.
    fn each(&mut self, mut does: impl FnMut(&mut Connection, &mut Common) -> bool) {
        for (number, connection) in &mut self.connections {
            if does(connection, &mut self.common) && !std::mem::replace(&mut connection.touched, true) {
                self.touched.push(number);
            }
        }
    }

    fn still_there(&mut self, one: &LookAgain) -> Option<&mut Connection> {
        self.connections.get_mut(one.number).filter(|connection| connection.visit == one.visit)
    }

    // ---- newcomers ----

    /// Accepts at places that have come, and no more at those that went.
    fn look_at_listeners(&mut self, engine: &mut Engine) {
        if engine.context.0 != 0 || engine.holds {
            return;
        }
        let there = self.common.service.listeners.list();
        for (number, (_, goes_on)) in &mut self.accepting {
            if *goes_on && !there.contains_key(number) {
                *goes_on = false;
                stop_accepting(engine, *number);
            }
        }
        let known: Vec<usize> = self.accepting.keys().copied().collect();
        for (number, listening) in there.into_iter().filter(|(number, _)| !known.contains(number)) {
            self.accepting.insert(number, (listening, true));
            self.arm_accept(engine, number);
        }
        // A listener that could not accept and waits has nothing under way in the kernel.
        let accepting = &mut self.accepting;
        self.accept_again.retain(|(_, number)| {
            let stays = accepting.get(number).is_some_and(|(_, goes_on)| *goes_on);
            if !stays {
                accepting.remove(number);
            }
            stays
        });
    }

    fn accept_no_more(&mut self, engine: &mut Engine) {
        for (_, listener) in self.accept_again.drain(..) {
            self.accepting.remove(&listener);
        }
        for (listener, (_, goes_on)) in &mut self.accepting {
            if std::mem::take(goes_on) {
                stop_accepting(engine, *listener);
            }
        }
    }

    fn arm_accept(&mut self, engine: &mut Engine, listener: usize) {
        engine.ring.accept(self.accepting[&listener].0.fd.as_fd(), UserData::Accept(listener).pack());
    }

    fn accepted(&mut self, engine: &mut Engine, listener: usize, result: i32, more: bool) {
        let (listening, goes_on) = &self.accepting[&listener];
        let goes_on = *goes_on && engine.drains.is_none() && !engine.holds;
        let mut heard = true;
        if result >= 0 {
            // SAFETY: the kernel has just made this descriptor for us.
            let fd = unsafe { OwnedFd::from_raw_fd(result) };
            let peer = listen::peer(&fd, listening.name.clone());
            let tls = listening.tls;
            heard = self.place(engine, fd, peer, tls);
        } else if ![-libc::ECANCELED, -libc::EINTR, -libc::ECONNABORTED].contains(&result) {
            tracing::warn!(error = %io::Error::from_raw_os_error(-result), "a connection could not be accepted");
        }
        if more {
            if goes_on && !heard && self.resting.insert(listener) {
                stop_accepting(engine, listener);
            }
            return;
        }
        // Out of descriptors or memory: asking again at once would only fail again.
        let rests = self.resting.remove(&listener) || !heard || result < 0;
        match goes_on {
            false => {
                self.accepting.remove(&listener);
                // It may be wanted again by now.
                if engine.drains.is_none() {
                    self.look_at_listeners(engine);
                }
            }
            true if rests => self.accept_again.push_back((engine.now + ACCEPT_PAUSE, listener)),
            true => self.arm_accept(engine, listener),
        }
    }

    /// A client has come; false: the gate has turned it away.
    fn place(&mut self, engine: &mut Engine, fd: OwnedFd, peer: Peer, tls: Tls) -> bool {
        let total = self.all.newcomers.total();
        if total >= self.common.service.limits.connections {
            tracing::warn!("a connection was refused: there are {total} already (max_connections)");
            return true; // closes it
        }
        if !self.common.service.gate.enter(engine.now, &peer) {
            return false; // the same, gate.1
        }
        let newcomer = Newcomer::New(fd, peer, tls);
        let target = self.all.newcomers.place();
        if target == engine.context {
            self.welcome(engine, newcomer);
        } else {
            self.all.newcomers.send(target, newcomer);
            self.common.service.notifiers.wake(target, &mut engine.ring);
        }
        true
    }

    fn welcome(&mut self, engine: &mut Engine, newcomer: Newcomer) {
        let entry = self.connections.vacant_entry();
        let number = entry.key();
        let (since, mut connection) = match newcomer {
            Newcomer::New(fd, mut peer, tls) => {
                listen::learn_cgroup(fd.as_fd(), &self.common.service.exports().access, &mut peer);
                (SystemTime::now(), Connection::new(fd, peer, number, tls, engine.now))
            }
            Newcomer::From(since, resume) => (since, resume(engine, &mut self.common, number)),
        };
        let export = connection.export().map(|export| export.name.clone());
        let (peer, unsent) = (connection.peer.shown.clone(), Arc::clone(&connection.unsent));
        let client = Client { peer, export, since, unsent };
        self.common.service.clients().insert((engine.context.0, number), client);
        self.visits += 1;
        connection.visit = self.visits;
        entry.insert(connection);
        let at = engine.now + self.common.service.limits.handshake_timeout;
        self.newcomers.push_back(LookAgain { at, number, visit: self.visits, options: 0, times: 1 });
        if engine.drains.is_some() {
            self.connections[number].stop_reading();
        }
        self.touch(number);
    }
}

fn stop_accepting(engine: &mut Engine, listener: usize) {
    engine.ring.cancel(UserData::Accept(listener).pack());
}

impl Front for Nbd {
    fn completed(&mut self, engine: &mut Engine, what: u64, completion: &Completion) {
        let result = completion.result;
        match UserData::unpack(what) {
            UserData::Receive(number) => {
                let more = completion.socket_has_more;
                let connection = &mut self.connections[number];
                match completion.buffer {
                    Some(buffer) if result > 0 => {
                        let bytes = self.recv.received(buffer, result as usize);
                        connection.received(engine, &mut self.common, bytes, more);
                        self.recv.publish(buffer);
                    }
                    buffer => {
                        if let Some(buffer) = buffer {
                            self.recv.publish(buffer);
                        }
                        if result == -libc::ENOBUFS {
                            self.recv.grow();
                        }
                        connection.receive_ended(engine, &mut self.common, result, more);
                    }
                }
                self.touch(number);
            }
            UserData::Send(number) => {
                self.connections[number].send_ended(engine, result);
                self.touch(number);
            }
            UserData::Accept(listener) => self.accepted(engine, listener, result, completion.goes_on),
        }
    }

    fn woken(&mut self, engine: &mut Engine) {
        for newcomer in self.all.newcomers.take(engine.context) {
            self.welcome(engine, newcomer);
        }
    }

    fn look_at_clock(&mut self, engine: &mut Engine) {
        while let Some(late) = self.newcomers.pop_front_if(|newcomer| newcomer.at <= engine.now) {
            let LookAgain { number, times, .. } = late;
            let Some(connection) = self.still_there(&late) else { continue };
            match connection.options_asked() {
                None => {}
                Some(options) if options > late.options && times < LookAgain::TIMES => {
                    let at = engine.now + self.common.service.limits.handshake_timeout;
                    self.newcomers.push_back(LookAgain { at, options, times: times + 1, ..late });
                }
                Some(_) => {
                    tracing::info!(connection = number, "dropped: its negotiation took longer than handshake_timeout");
                    connection.fail();
                    connection.break_off();
                    self.touch(number);
                }
            }
        }
        let patience = self.common.service.limits.drain_timeout;
        while let Some(late) = self.outgoing.pop_front_if(|client| client.at <= engine.now) {
            let Some(connection) = self.still_there(&late) else { continue };
            // One whose disk is slow has nothing to take, and waits on.
            let takes = connection.stalled_since();
            let times = late.times + u8::from(takes.is_some());
            if times >= LookAgain::TIMES || takes.is_some_and(|since| engine.now.since(since) >= patience) {
                let peer = &connection.peer.shown;
                tracing::warn!(client = peer, "dropped: no [client] allows it any more, and it takes no replies");
                connection.break_off();
                self.touch(late.number);
            } else {
                self.outgoing.push_back(LookAgain { at: engine.now + patience, times, ..late });
            }
        }
        while let Some((_, listener)) = self.accept_again.pop_front_if(|(at, _)| *at <= engine.now) {
            self.arm_accept(engine, listener);
        }
        if engine.pool.is_awaited() {
            // Of those that keep us waiting, the one that holds most must go.
            let stalled = self.connections.iter().filter(|(_, connection)| {
                connection.stalled_since().is_some_and(|since| engine.now.since(since) >= STALL)
            });
            if let Some((number, _)) = stalled.filter(|(_, c)| c.memory > 0).max_by_key(|(_, c)| c.memory) {
                tracing::warn!(
                    connection = number,
                    "dropped: it takes replies or sends its payload too slowly, and others need the memory"
                );
                self.connections[number].break_off();
                self.touch(number);
            }
        }
        if engine.drains.is_some_and(|since| engine.now.since(since) > self.common.service.limits.drain_timeout) {
            self.each(|connection, _| {
                connection.break_off();
                true
            });
        }
    }

    #[inline(always)]
    fn news(&mut self, engine: &mut Engine, ticket: usize, news: News) {
        let number = engine.owner(ticket) as usize;
        self.connections[number].news(engine, &self.common, ticket, news);
        self.touch(number);
    }

    /// Lets connections that were held back go on, as far as they can; whether one could.
    fn go_on(&mut self, engine: &mut Engine) -> bool {
        let mut went_on = false;
        for index in 0..self.touched.len() {
            let number = self.touched[index];
            let connection = &mut self.connections[number];
            if connection.held_back == Some(Lack::Own) {
                connection.go_on(engine, &mut self.common);
                went_on |= connection.held_back != Some(Lack::Own);
            }
            if matches!(connection.held_back, Some(Lack::Memory | Lack::Disk)) && !self.held_back.contains(&number) {
                self.held_back.push_back(number);
            }
        }
        let mut index = 0;
        while let Some(number) = self.held_back.get(index).copied() {
            self.connections[number].go_on(engine, &mut self.common);
            match self.connections[number].held_back {
                Some(Lack::Memory | Lack::Disk) => index += 1,
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
    fn arm(&mut self, engine: &mut Engine) {
        for index in 0..self.touched.len() {
            let number = self.touched[index];
            let connection = &mut self.connections[number];
            connection.touched = false;
            connection.give_up_payload(engine);
            connection.arm(engine);
            if connection.is_over() {
                let mut connection = self.connections.remove(number);
                connection.leave_gate(&self.common.service.gate, engine.now, false);
                connection.export().iter().for_each(|export| self.common.present.leave(export.id, number));
                connection.close(engine);
                let left = self.common.service.clients().remove(&(engine.context.0, number));
                if let Some(Client { peer, export: Some(export), .. }) = left {
                    self.common.service.events.tell("left", vec![("export", export), ("client", peer)]);
                }
                self.held_back.retain(|waiting| *waiting != number);
                self.all.newcomers.left(engine.context);
            }
        }
        self.touched.clear();
    }

    fn waits_for_memory(&self) -> bool {
        !self.held_back.is_empty()
    }

    fn poll_timeout(&self, engine: &Engine, now: Instant) -> Option<Instant> {
        let handshake = self.newcomers.front().map(|newcomer| newcomer.at);
        let stall = (engine.pool.is_awaited() || !self.held_back.is_empty()).then(|| now + STALL);
        let accept = self.accept_again.front().map(|(at, _)| *at);
        let outgoing = self.outgoing.front().map(|client| client.at);
        [handshake, stall, accept, outgoing].into_iter().flatten().min()
    }

    fn is_over(&self, _engine: &Engine) -> bool {
        self.connections.is_empty() && self.accepting.is_empty()
    }
}

impl Clients for Nbd {
    #[cold]
    fn follow(&mut self, engine: &mut Engine, exports: &Exports) {
        for (number, fate) in self.common.present.follow(exports) {
            let connection = &mut self.connections[number];
            match fate {
                Fate::Changed(export) if !connection.follow(engine, &exports.access, &export) => {
                    let at = engine.now + self.common.service.limits.drain_timeout;
                    let visit = connection.visit;
                    self.outgoing.push_back(LookAgain { at, number, visit, options: 0, times: 0 });
                }
                Fate::Changed(_) => {}
                Fate::Removed(Leave::Cut) => connection.break_off(),
                Fate::Removed(Leave::Drain) => connection.stop_reading(),
            }
            self.touch(number);
        }
        if engine.drains.is_none() {
            self.look_at_listeners(engine);
        }
    }

    fn drain(&mut self, engine: &mut Engine) {
        self.accept_no_more(engine);
        self.each(|connection, _| {
            connection.stop_reading();
            true
        });
    }

    fn hold(&mut self, engine: &mut Engine) {
        self.accept_no_more(engine);
        self.resting.clear();
        let by_kernel = self.connections.iter().any(|(_, one)| one.has_keys()) && ktls::is_there();
        self.connections.iter_mut().for_each(|(_, connection)| connection.hold(engine, by_kernel));
    }

    fn held(&mut self, engine: &mut Engine) -> Option<Result<Vec<HeldClient>, String>> {
        let (hold, newcomers) = (&self.common.service.hold, &self.all.newcomers);
        if engine.context.0 == 0 && self.accepting.is_empty() {
            hold.close(&self.common.service.notifiers);
        }
        // hold.3
        if !hold.is_closed() || newcomers.has(engine.context) {
            return None;
        }
        let mut still = true;
        self.each(|connection, common| {
            let stands = connection.comes_to_stand(engine, common);
            still &= stands;
            // One whose keys the kernel did not take goes first; one that is broken gives up its request, and one that owes a reply sends it.
            !stands || connection.is_over()
        });
        let state = |(_, connection): (usize, &Connection)| connection.held(engine, &self.common).transpose();
        still.then(|| self.connections.iter().filter_map(state).collect())
    }

    fn give_memory_back(&mut self) {
        self.recv.give_back();
    }

    fn serve_on(&mut self, engine: &mut Engine) {
        self.each(|connection, common| {
            connection.serve_on(engine, common);
            true
        });
        if !self.common.service.draining.load(Ordering::Acquire) {
            self.look_at_listeners(engine);
        }
    }
}
