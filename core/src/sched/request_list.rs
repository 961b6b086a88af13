//! The waiting requests of a scheduler's queues: each queue in sector order and by age, all in one table.
//!
//! list.1  A request is in one [`RequestList`] at most, and there in both orders: by first sector, and by arrival.
//! list.2  From an insertion to the completion a request has a row here: what was said of it, and which list it is or was in
//!     ([`RequestTable::owner`]). A request that changes hands while it waits is told anew.
//! list.3  The next by position is the nearest ahead of where the last one ended; but one behind, if it is within
//!     `back_seek_max` and nearer even when its distance counts `back_seek_penalty` times; and with nothing ahead, the
//!     first of all, as an arm sweeps. Of the two on either side, the more urgent goes whatever its distance.
//! list.4  A newcomer joins a waiting request of its own list and direction that it touches. Of two requests that become one,
//!     the place by age is that of the older.
//! list.5  Moving a list into another keeps both orders; what is moved back is picked by its stream.
//! list.6  Requests that the device turned back wait in a list of their own, the last one first, keep their age, and go before all lists.
//!
//! A list is 20 bytes and all links are in the table's rows: nothing is allocated once the table is made, a request leaves
//! from anywhere without a search, and each step costs the logarithm of its own list's length at most.

use alloc::vec;
use alloc::vec::Vec;

use super::{RequestId, Side, Waiting};
use crate::list::{Linked, Links, List, NIL};
use crate::tree::{Nodes, Tree};
use crate::{Direction, Extent, Flags, Instant, Op, Sector, StreamId};

/// The table of all requests that a scheduler has taken in; see the [module](self) for the rules.
#[derive(Debug)]
pub(super) struct RequestTable {
    /// By position; the tree of each list is made of these.
    nodes: Nodes,
    /// By request.
    rows: Vec<Row>,
    /// Requests that the device could not take (list.6).
    requeued: List,
    /// How many are in lists or were turned back, and how many of them read.
    len: usize,
    reads: u32,
}

/// The waiting requests of one queue.
///
/// Every method that takes a [`RequestTable`] must be given the same one.
#[derive(Debug)]
pub(super) struct RequestList {
    sorted: Tree,
    aged: List,
    len: u32,
    owner: u32,
}

/// How far back is near (list.3); as the tunables `back_seek_max` and `back_seek_penalty` say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BackSeek {
    /// The farthest way back, in sectors.
    pub(super) max: u64,
    /// How many times a way back counts.
    pub(super) penalty: u32,
}

/// The record of a request: 40 bytes.
#[derive(Clone, Debug)]
struct Row {
    /// When it came; the oldest part of it, if it is the work of a merge (list.4).
    arrived: Instant,
    /// The first sector after it; where it starts is its key in the tree.
    end: Sector,
    /// Its place in its [`List`].
    links: Links,
    owner: u32,
    stream: StreamId,
    op: Op,
    flags: Flags,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Not known here.
    Elsewhere,
    /// It waits in a list.
    InList,
    /// The device turned it back, and it waits (list.6).
    Requeued,
    /// At the device.
    Out,
}

impl Row {
    /// Of a request that never was.
    const NEW: Self = Self {
        arrived: Instant::ZERO,
        end: Sector(0),
        links: Links::NONE,
        owner: NIL,
        stream: StreamId(NIL),
        op: Op::Read,
        flags: Flags::NONE,
        state: State::Elsewhere,
    };
}

impl Linked for Row {
    #[inline]
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl RequestTable {
    /// A table for requests whose numbers are below `capacity`.
    pub(super) fn new(capacity: usize) -> Self {
        let rows = vec![Row::NEW; capacity];
        Self { nodes: Nodes::new(capacity), rows, requeued: List::default(), len: 0, reads: 0 }
    }

    /// Makes room for requests whose numbers are below `capacity`, if there is less.
    pub(super) fn grow_to(&mut self, capacity: usize) {
        self.nodes.grow_to(capacity);
        self.rows.resize(capacity.max(self.rows.len()), Row::NEW);
    }

    /// How many wait, in lists or turned back.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// How many of them read.
    pub(super) const fn reads(&self) -> usize {
        self.reads as usize
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// When a request came: the oldest part of it.
    pub(super) fn arrived(&self, id: RequestId) -> Instant {
        self.row(id).arrived
    }

    /// The number of the list that a request is in, or was in last (list.2).
    pub(super) fn owner(&self, id: RequestId) -> u32 {
        self.row(id).owner
    }

    pub(super) fn stream(&self, id: RequestId) -> StreamId {
        self.row(id).stream
    }

    pub(super) fn op(&self, id: RequestId) -> Op {
        self.row(id).op
    }

    pub(super) fn extent(&self, id: RequestId) -> Extent {
        let start = self.nodes.key(id.0);
        Extent::new(Sector(start), self.row(id).end.0 - start)
    }

    /// Takes back a request that the device could not take; it keeps its row (list.6).
    ///
    /// # Panics
    /// If it is not at the device.
    pub(super) fn requeue(&mut self, id: RequestId) {
        assert!(self.row(id).state == State::Out, "{id:?} is turned back, but is not at the device");
        self.rows[id.0 as usize].state = State::Requeued;
        self.requeued.push_front(&mut self.rows, id.0);
        self.len += 1;
        self.reads += u32::from(self.op(id) == Op::Read);
    }

    /// The request that was turned back last and waits, if one does.
    pub(super) fn requeued(&self) -> Option<RequestId> {
        self.requeued.front().map(RequestId)
    }

    /// The request that was turned back before the given one and waits, if one does.
    ///
    /// # Panics
    /// If the given one was not turned back, or does not wait.
    pub(super) fn requeued_before(&self, id: RequestId) -> Option<RequestId> {
        assert!(self.row(id).state == State::Requeued, "{id:?} is none that was turned back");
        let next = self.row(id).links.next;
        (next != NIL).then_some(RequestId(next))
    }

    /// Makes a request that is in no list one of another list's: it counts there from now on.
    ///
    /// # Panics
    /// If it waits in a list.
    pub(super) fn set_owner(&mut self, id: RequestId, owner: u32) {
        let row = &mut self.rows[id.0 as usize];
        assert!(row.state != State::InList, "{id:?} waits in list {}", row.owner);
        row.owner = owner;
    }

    /// Takes out what [`RequestTable::requeued`] answers: it goes to the device once more.
    #[inline]
    pub(super) fn take_requeued(&mut self) -> Option<RequestId> {
        let id = self.requeued.front().map(RequestId)?;
        self.requeued.remove(&mut self.rows, id.0);
        self.rows[id.0 as usize].state = State::Out;
        self.len -= 1;
        self.reads -= u32::from(self.op(id) == Op::Read);
        Some(id)
    }

    /// Forgets a request that has left the device, or that another scheduler takes over.
    ///
    /// # Panics
    /// If it waits.
    pub(super) fn forget(&mut self, id: RequestId) {
        let row = &mut self.rows[id.0 as usize];
        assert!(row.state == State::Out, "{id:?} is forgotten, but is not at the device");
        row.state = State::Elsewhere;
    }

    pub(super) fn is_in_list(&self, id: RequestId) -> bool {
        self.row(id).state == State::InList
    }

    /// All of a list that are at the device, or were turned back: a look at the whole table.
    pub(super) fn sent_of(&self, owner: u32) -> Vec<RequestId> {
        let is_sent = |row: &Row| row.owner == owner && matches!(row.state, State::Out | State::Requeued);
        (0..).zip(&self.rows).filter(|(_, row)| is_sent(row)).map(|(id, _)| RequestId(id)).collect()
    }

    /// All that wait in lists: a look at the whole table.
    pub(super) fn in_lists(&self) -> impl Iterator<Item = RequestId> + '_ {
        (0..self.rows.len() as u32).map(RequestId).filter(|id| self.is_in_list(*id))
    }

    fn row(&self, id: RequestId) -> &Row {
        &self.rows[id.0 as usize]
    }

    fn start(&self, id: u32) -> u64 {
        self.nodes.key(id)
    }

    /// Whether a request goes before its neighbours whatever the distance (list.3).
    pub(super) fn is_urgent(&self, id: u32) -> bool {
        self.rows[id as usize].flags.is_urgent()
    }
}

impl RequestList {
    /// An empty list; `owner` is the number that [`RequestTable::owner`] tells of the requests in it.
    pub(super) fn new(owner: u32) -> Self {
        Self { sorted: Tree::new(), aged: List::default(), len: 0, owner }
    }

    pub(super) const fn len(&self) -> u32 {
        self.len
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes in a request that came now.
    ///
    /// # Panics
    /// If it waits already.
    pub(super) fn add(&mut self, table: &mut RequestTable, now: Instant, request: &Waiting) {
        let id = request.id.0;
        let row = &mut table.rows[id as usize];
        assert!(matches!(row.state, State::Elsewhere | State::Out), "{:?} waits already", request.id); // list.1
        *row = Row {
            arrived: now,
            end: request.extent.end(),
            links: Links::NONE,
            owner: self.owner,
            stream: request.stream,
            op: request.op,
            flags: request.flags,
            state: State::InList,
        };
        table.len += 1;
        table.reads += u32::from(request.op == Op::Read);
        self.len += 1;
        self.aged.push_back(&mut table.rows, id);
        self.sorted.insert(&mut table.nodes, id, request.extent.start.0);
    }

    /// Takes out a request that goes to the device. Answers its operation.
    ///
    /// # Panics
    /// If it does not wait in this list.
    pub(super) fn take(&mut self, table: &mut RequestTable, id: RequestId) -> Op {
        self.leave(table, id, State::Out)
    }

    /// Takes out a request, and says where it is next.
    #[inline]
    fn leave(&mut self, table: &mut RequestTable, id: RequestId, state: State) -> Op {
        let op = self.unlink(table, id, state);
        table.len -= 1;
        table.reads -= u32::from(op == Op::Read);
        op
    }

    #[inline(always)]
    fn unlink(&mut self, table: &mut RequestTable, id: RequestId, state: State) -> Op {
        self.check(table, id);
        let row = &mut table.rows[id.0 as usize];
        row.state = state;
        let (op, links) = (row.op, row.links);
        self.aged.unlink(&mut table.rows, links);
        self.sorted.remove(&mut table.nodes, id.0);
        self.len -= 1;
        op
    }

    fn check(&self, table: &RequestTable, id: RequestId) {
        let row = table.row(id);
        assert!(row.state == State::InList && row.owner == self.owner, "{id:?} does not wait in list {}", self.owner);
    }

    /// The request that came first.
    pub(super) fn oldest(&self) -> Option<RequestId> {
        self.aged.front().map(RequestId)
    }

    /// The next request for a head that is at `from` (list.3).
    pub(super) fn next_from(&self, table: &RequestTable, from: Sector, back: BackSeek) -> Option<RequestId> {
        let (behind, ahead) = self.sorted.around(&table.nodes, from.0);
        let Some(behind) = behind else { return ahead.map(RequestId) };
        let back_from = |id| from.0 - table.start(id);
        let Some(ahead) = ahead else {
            let first = self.sorted.first(&table.nodes)?;
            let is_near = back_from(behind) <= back.max;
            let prefers_first = table.is_urgent(first) && !table.is_urgent(behind);
            return Some(RequestId(if is_near && !prefers_first { behind } else { first }));
        };
        let (behind_is_urgent, way) = (table.is_urgent(behind), back_from(behind));
        let takes_behind = if behind_is_urgent == table.is_urgent(ahead) {
            way <= back.max && way.saturating_mul(back.penalty.into()) < table.start(ahead) - from.0
        } else {
            behind_is_urgent
        };
        Some(RequestId(if takes_behind { behind } else { ahead }))
    }

    /// The request whose first sector is nearest to `to`, on either side: what a cooperating queue is known by.
    pub(super) fn nearest(&self, table: &RequestTable, to: Sector) -> Option<RequestId> {
        let nearest = match self.sorted.around(&table.nodes, to.0) {
            (Some(before), Some(after)) if to.0 - table.start(before) >= table.start(after) - to.0 => after,
            (before, after) => before.or(after)?,
        };
        Some(RequestId(nearest))
    }

    /// A request of this list that `newcomer` touches, of its direction (list.4).
    pub(super) fn merge_candidate(&self, table: &RequestTable, newcomer: &Waiting) -> Option<(RequestId, Side)> {
        let Extent { start, .. } = newcomer.extent;
        let (before, after) = self.sorted.around(&table.nodes, start.0);
        let suits = |id: &u32| table.rows[*id as usize].op.direction() == newcomer.op.direction();
        if let Some(before) = before.filter(suits).filter(|&id| table.rows[id as usize].end == start) {
            return Some((RequestId(before), Side::Back));
        }
        let after = after.filter(suits).filter(|&id| table.start(id) == newcomer.extent.end().0)?;
        Some((RequestId(after), Side::Front))
    }

    /// A waiting request grew at `side` and is now as given.
    ///
    /// # Panics
    /// If it does not wait in this list.
    pub(super) fn grown(&mut self, table: &mut RequestTable, request: &Waiting, side: Side) {
        self.check(table, request.id);
        table.rows[request.id.0 as usize].end = request.extent.end();
        if side == Side::Front {
            self.sorted.remove(&mut table.nodes, request.id.0);
            self.sorted.insert(&mut table.nodes, request.id.0, request.extent.start.0);
        }
    }

    /// The request of this list and of the same direction that starts where the given one, which waits here, ends.
    pub(super) fn neighbour_after(&self, table: &RequestTable, request: &Waiting) -> Option<RequestId> {
        self.check(table, request.id);
        let next = table.nodes.next(request.id.0)?;
        let direction: Direction = table.rows[next as usize].op.direction();
        (table.start(next) == request.extent.end().0 && direction == request.op.direction()).then_some(RequestId(next))
    }

    /// `gone` became part of `kept`, which is now as given: the older place by age stays (list.4). `gone` is forgotten.
    ///
    /// # Panics
    /// If not both wait in this list.
    pub(super) fn absorbed(&mut self, table: &mut RequestTable, kept: &Waiting, gone: RequestId) {
        self.check(table, kept.id);
        self.check(table, gone);
        let arrived = table.arrived(gone);
        let row = &mut table.rows[kept.id.0 as usize];
        row.end = kept.extent.end();
        if arrived < row.arrived {
            row.arrived = arrived;
            self.aged.remove(&mut table.rows, kept.id.0);
            self.aged.insert_after(&mut table.rows, gone.0, kept.id.0);
        }
        self.leave(table, gone, State::Elsewhere);
    }

    /// Moves every request that `picks` says yes to into `other` (list.5), and tells how many. Costs a look at each request.
    pub(super) fn move_to(
        &mut self,
        table: &mut RequestTable,
        other: &mut Self,
        mut picks: impl FnMut(StreamId) -> bool,
    ) -> u32 {
        let (mut moved, mut next, mut place) = (0, self.aged.front().unwrap_or(NIL), other.aged.front().unwrap_or(NIL));
        while next != NIL {
            let id = next;
            next = table.rows[id as usize].links.next;
            if !picks(table.rows[id as usize].stream) {
                continue;
            }
            self.unlink(table, RequestId(id), State::InList);
            // Both lists are by age, so the place to go in only moves on: the first in `other` that is younger.
            while place != NIL && table.rows[place as usize].arrived <= table.rows[id as usize].arrived {
                place = table.rows[place as usize].links.next;
            }
            let before = match place {
                NIL => other.aged.back().unwrap_or(NIL),
                place => table.rows[place as usize].links.prev,
            };
            other.aged.insert_after(&mut table.rows, before, id);
            let start = table.start(id);
            other.sorted.insert(&mut table.nodes, id, start);
            table.rows[id as usize].owner = other.owner;
            other.len += 1;
            moved += 1;
        }
        moved
    }
}

#[cfg(test)]
mod tests;
