//! Where the bios of one queue wait for the ceilings above them.
//!
//! Each group has a line for reads and one for all else, for `max = { riops = 100 }` must not hold writes up. Lines form the tree
//! of the groups. A line is *awake* if something waits in it or below it and its own ceiling does not hold it; else it sleeps until
//! that may let something through, and nobody looks at it before. Example: 1,000 tenants wait for ceilings of their own. When the
//! first may go again, its line alone is woken; the other 999 cost nothing.
//!
//! The next bio is found from the root down: in each line the group with the least service for its weight goes (ceiling.6), by virtual
//! time as in start-time fair queueing (Goyal, Vin & Cheng, SIGCOMM 1996). A group below its floor has so large a weight that it is
//! next at once (`floors`): hClock's reservations within the limit of a group above.

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::{Budget, Rates};
use crate::floors::{Floors, Order};
use crate::time::ms;
use crate::{Bio, Bytes, ContextId, Direction, Duration, Group, GroupId, Instant, Op, StreamId, Weight};

/// The shortest time between two releases of waiting bios; each releases all that may go: a worker is not woken for each of 100,000 I/Os a
/// second. Chosen: a fifth of the tolerance, within which nothing is lost by it, and three I/Os of 3,000 a second.
const GRAIN: Duration = ms(1);

/// Binary places of virtual time. Chosen: a nanosecond still counts beside the weight of a group below its floor.
const PLACES: u32 = 32;

/// A bio that waits.
#[derive(Clone, Copy, Debug)]
pub struct HeldBio {
    /// The request of the client.
    pub bio: Bio,
    pub(crate) context: ContextId,
    /// When its client asked.
    pub(crate) arrived: Instant,
    /// Since when it waits.
    pub since: Instant,
}

/// Whether a line is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum State {
    /// Nothing waits.
    #[default]
    Empty,
    /// It is in the list of the line above.
    Awake,
    /// It is not, until then.
    Asleep(Instant),
}

/// The waiting bios of one group and direction.
#[derive(Default, Debug)]
struct Line {
    state: State,
    /// Bios of the group's own streams, the oldest first.
    own: VecDeque<HeldBio>,
    /// The groups below whose lines are awake.
    awake: Vec<GroupId>,
    /// Virtual time: what this line has had in the one above, what its own streams have had in it, and how far it is itself.
    had: u128,
    own_had: u128,
    clock: u128,
    /// An awake group takes from its budget up to here: its part, if other queues wait too (ceiling.8).
    part: Instant,
}

#[derive(Debug)]
struct GroupLines {
    parent: Option<GroupId>,
    /// By direction: its own weight, or a larger one while it, or a group below it, is below its floor.
    weights: [u32; 2],
    budget: Option<Arc<Budget>>,
    lines: [Line; 2],
}

impl GroupLines {
    fn new(group: &Group) -> Self {
        let weights = [group.weight.into(); 2];
        Self { parent: group.parent, weights, budget: None, lines: Default::default() }
    }
}

/// The lines of groups, as an order that floors change.
struct Lines<'a>(&'a mut [Option<GroupLines>]);

impl Order for Lines<'_> {
    fn has_backlog(&self, group: GroupId, way: Direction) -> bool {
        let node = self.0[usize::from(group.0)].as_ref();
        node.is_some_and(|node| node.lines[way as usize].state == State::Awake)
    }

    fn set_weight(&mut self, group: GroupId, weight: u32, raised: [u32; 2]) {
        let parent = self.0[usize::from(group.0)].as_ref().and_then(|node| node.parent);
        for (way, raised) in raised.into_iter().enumerate() {
            let above = parent.and_then(|parent| self.0[usize::from(parent.0)].as_ref());
            let clock = above.map_or(0, |above| above.lines[way].clock);
            let Some(node) = &mut self.0[usize::from(group.0)] else { return };
            let after = if raised > 0 { raised } else { weight };
            let before = core::mem::replace(&mut node.weights[way], after);
            // Its lead counts by the new weight.
            let had = &mut node.lines[way].had;
            *had = clock.min(*had) + had.saturating_sub(clock) * u128::from(before) / u128::from(after);
        }
    }
}

/// The ceilings of a queue's groups, and the bios that wait for them.
#[derive(Default, Debug)]
pub struct Ceilings {
    nodes: Vec<Option<GroupLines>>,
    /// Floors of groups that wait for a ceiling above them.
    floors: Floors,
    /// How many groups have a ceiling.
    count: usize,
    /// How many bios wait.
    pub(crate) len: usize,
    /// Lines that sleep, by when to look at them; those of lines that were woken otherwise are passed over.
    asleep: BinaryHeap<Reverse<(Instant, GroupId, usize)>>,
    /// When something was let through last.
    last: Instant,
    /// Which direction is looked at first.
    turn: usize,
    /// Nothing is held for now (ceiling.11).
    lifted: bool,
    /// One bit for each context that something waited in.
    pub(crate) contexts: u64,
}

/// One I/O, and its bytes (ceiling.4).
fn size(bio: &Bio) -> u64 {
    match bio.op {
        Op::Discard => Bytes::of(1).get(),
        _ => bio.extent.bytes().get(),
    }
}

impl Ceilings {
    pub(crate) fn new(groups: &[Group]) -> Self {
        let mut this = Self::default();
        for (id, group) in groups.iter().enumerate() {
            this.set_group(GroupId(id as u16), group);
        }
        this
    }

    fn node(&self, id: GroupId) -> &GroupLines {
        self.nodes[usize::from(id.0)].as_ref().expect("a group that is named is there")
    }

    fn node_mut(&mut self, id: GroupId) -> &mut GroupLines {
        self.nodes[usize::from(id.0)].as_mut().expect("a group that is named is there")
    }

    fn line(&mut self, id: GroupId, way: usize) -> &mut Line {
        &mut self.node_mut(id).lines[way]
    }

    /// A group and those above it.
    fn path(&self, id: GroupId) -> impl Iterator<Item = &GroupLines> {
        core::iter::successors(Some(self.node(id)), |node| node.parent.map(|parent| self.node(parent)))
    }

    /// The ceilings that bind a group: its own, and those of the groups above.
    fn budgets(&self, id: GroupId) -> impl Iterator<Item = &Arc<Budget>> {
        self.path(id).filter_map(|node| node.budget.as_ref())
    }

    // ---- groups ----

    /// A group came, or has another weight.
    pub(crate) fn set_group(&mut self, id: GroupId, group: &Group) {
        let at = usize::from(id.0);
        self.nodes.resize_with(self.nodes.len().max(at + 1), || None);
        self.floors.set_group(id, id, group);
        self.nodes[at].get_or_insert_with(|| GroupLines::new(group));
        self.floors.tell_weight(id, &mut Lines(&mut self.nodes));
    }

    /// A group went, in which nothing waits.
    pub(crate) fn remove_group(&mut self, now: Instant, id: GroupId) {
        self.set(now, id, None);
        self.set_floor(now, id, &Rates::NONE);
        self.floors.remove_group(id);
        self.nodes[usize::from(id.0)] = None;
    }

    /// Gives a group a ceiling, or none.
    pub(crate) fn set(&mut self, now: Instant, id: GroupId, budget: Option<Arc<Budget>>) {
        self.look_again(now, id); // nobody waits for the old one
        let is_some = budget.is_some();
        let was_some = core::mem::replace(&mut self.node_mut(id).budget, budget).is_some();
        self.count = self.count + usize::from(is_some) - usize::from(was_some);
    }

    pub(crate) fn budget(&self, id: GroupId) -> Option<&Arc<Budget>> {
        self.node(id).budget.as_ref()
    }

    /// Gives a group a floor, or none: it holds within the ceilings above.
    pub(crate) fn set_floor(&mut self, now: Instant, id: GroupId, floor: &Rates) {
        if self.floors.set(now, id, floor, &mut Lines(&mut self.nodes)) {
            let waiting: Vec<_> = self.each().map(|(id, held)| (id, held.bio.op.direction())).collect();
            self.floors.count_waiting(waiting.into_iter());
        }
    }

    /// The ceiling of a group [has changed](Budget::set): what sleeps may go, or sleeps for another while. Does nothing for a group
    /// that is not there.
    pub fn look_again(&mut self, now: Instant, id: GroupId) {
        if self.nodes.get(usize::from(id.0)).is_none_or(Option::is_none) {
            return;
        }
        for way in 0..2 {
            if let State::Asleep(due) = self.line(id, way).state {
                self.wake_if_asleep(now, due, id, way);
            }
        }
    }

    /// No ceiling holds anything until they are [lowered](Self::lower): nobody wants to wait for what was asked. All of it is paid for (ceiling.11).
    pub fn lift(&mut self, now: Instant) {
        self.lifted = true;
        while let Some(Reverse((due, id, way))) = self.asleep.pop() {
            self.wake_if_asleep(now, due, id, way);
        }
    }

    /// They hold again what comes from now on.
    pub const fn lower(&mut self) {
        self.lifted = false;
    }

    // ---- bios ----

    /// Whether something may have to wait.
    #[inline]
    pub(crate) const fn are_some(&self) -> bool {
        self.count > 0
    }

    /// Lets a bio through if it need not wait.
    #[inline(never)] // who has no ceilings does not come here
    pub(crate) fn admit(&mut self, now: Instant, id: GroupId, bio: &Bio) -> bool {
        if self.budgets(id).next().is_none() {
            return true;
        }
        let (way, bytes) = (bio.op.direction(), size(bio));
        let is_free =
            self.budgets(id).all(|budget| budget.is_free(now, way)) && (self.len == 0 || !self.has_before(id, way));
        if !is_free && !self.lifted {
            return false;
        }
        self.budgets(id).for_each(|budget| _ = budget.charge(now, way, bytes)); // ceiling.3
        if self.floors.are_some() {
            self.floors.count(now, id, way, bytes);
        }
        true
    }

    /// Whether something waits that goes before what comes in a group now (ceiling.5).
    fn has_before(&self, id: GroupId, way: Direction) -> bool {
        let waits = |node: &GroupLines| node.budget.is_some() && node.lines[way as usize].state != State::Empty;
        !self.node(id).lines[way as usize].own.is_empty() || self.path(id).any(waits)
    }

    #[cold]
    pub(crate) fn hold(&mut self, now: Instant, id: GroupId, held: HeldBio) {
        let way = held.bio.op.direction() as usize;
        self.contexts |= 1 << held.context.0;
        self.len += 1;
        let line = self.line(id, way);
        if line.own.is_empty() {
            line.own_had = line.own_had.max(line.clock);
        }
        line.own.push_back(held);
        let is_empty = line.state == State::Empty;
        self.floors.came(id, held.bio.op.direction());
        if is_empty {
            self.wake(now, id, way);
        }
    }

    /// Whether something may go now, as far as is known.
    pub(crate) fn are_awake(&self) -> bool {
        self.node(GroupId::ROOT).lines.iter().any(|line| line.state == State::Awake)
    }

    /// When something may go though nothing happened.
    pub(crate) fn due(&self) -> Option<Instant> {
        if self.len == 0 {
            return None;
        }
        self.asleep.peek().map(|Reverse((due, ..))| *due)
    }

    /// Wakes the lines whose ceiling may let something through.
    pub(crate) fn wake_due(&mut self, now: Instant) {
        while let Some(Reverse((due, id, way))) = self.asleep.peek().copied()
            && due <= now
        {
            self.asleep.pop();
            self.wake_if_asleep(now, due, id, way);
        }
    }

    /// The next bio that goes, if one may: of those that are awake.
    pub(crate) fn next(&mut self, now: Instant) -> Option<HeldBio> {
        for way in [self.turn, 1 - self.turn] {
            if let Some(id) = self.choose(now, way) {
                self.turn = 1 - way;
                return Some(self.take(now, id, way));
            }
        }
        None
    }

    /// The group that goes next in a direction; lines whose ceiling holds them fall asleep on the way.
    fn choose(&mut self, now: Instant, way: usize) -> Option<GroupId> {
        let mut at = GroupId::ROOT;
        loop {
            if at == GroupId::ROOT && self.floors.are_some() {
                self.floors.update(now, &mut Lines(&mut self.nodes));
            }
            let lifted = self.lifted;
            let node = self.node_mut(at);
            let line = &mut node.lines[way];
            if line.state != State::Awake {
                debug_assert!(at == GroupId::ROOT, "a line that is not awake is in no list");
                return None;
            }
            if let Some(budget) = node.budget.as_ref().filter(|_| !lifted) {
                let free = budget.free_at(Direction::ALL[way]);
                if free > line.part.min(now) {
                    let due = free.max(self.last + GRAIN).max(now + Duration::from_nanos(1));
                    self.sleep(at, way, due);
                    at = GroupId::ROOT;
                    continue;
                }
            }
            let line = &self.node(at).lines[way];
            let below = line.awake.iter().map(|id| (self.node(*id).lines[way].had, *id)).min();
            at = match below {
                Some((had, id)) if line.own.is_empty() || had < line.own_had => id,
                _ => return Some(at),
            };
        }
    }

    /// Takes the oldest bio of a group, and pays for it.
    fn take(&mut self, now: Instant, id: GroupId, way: usize) -> HeldBio {
        let held = self.line(id, way).own.pop_front().expect("something waits there");
        self.len -= 1;
        self.last = now;
        let (direction, bytes) = (held.bio.op.direction(), size(&held.bio));
        // ceiling.3
        let charges = self.budgets(id).map(|budget| budget.charge(now, direction, bytes));
        let cost = charges.max().unwrap_or(Duration::ZERO);
        // Nothing costs nothing, or the first of several groups without a rate would always be the next.
        let cost = u128::from(cost.as_nanos().max(1)) << PLACES;
        if self.floors.are_some() {
            self.floors.count(now, id, direction, bytes);
            self.floors.went(id, direction);
        }
        let line = self.line(id, way);
        line.clock = line.own_had;
        line.own_had += cost / u128::from(Weight::DEFAULT.get());
        let mut at = id;
        while let Some(parent) = self.node(at).parent {
            let weight = u128::from(self.node(at).weights[way]);
            let line = self.line(at, way);
            let had = line.had;
            line.had += cost / weight;
            self.line(parent, way).clock = had;
            at = parent;
        }
        self.leave_if_empty(id, way);
        held
    }

    /// Takes out all that waits and that `is` chooses, the oldest of each group first.
    pub(crate) fn take_back(&mut self, is: impl Fn(&HeldBio) -> bool) -> Vec<(GroupId, HeldBio)> {
        let mut taken = Vec::new();
        for at in 0..self.nodes.len() {
            let id = GroupId(at as u16);
            for way in 0..2 {
                let (Some(node), floors) = (&mut self.nodes[at], &mut self.floors) else { continue };
                let before = taken.len();
                node.lines[way].own.retain(|held| {
                    let goes = is(held);
                    if goes {
                        taken.push((id, *held));
                        floors.went(id, held.bio.op.direction());
                    }
                    !goes
                });
                self.len -= taken.len() - before;
                if taken.len() > before {
                    self.leave_if_empty(id, way);
                }
            }
        }
        taken
    }

    /// A stream is in another group now: what waits of it goes along.
    pub(crate) fn move_stream(&mut self, now: Instant, stream: StreamId, to: GroupId) {
        if self.len > 0 {
            for (_, held) in self.take_back(|held| held.bio.stream == stream) {
                self.hold(now, to, held);
            }
        }
    }

    /// All that is held, with the groups whose streams asked.
    pub fn each(&self) -> impl Iterator<Item = (GroupId, &HeldBio)> {
        let nodes = (0..).map(GroupId).zip(&self.nodes).filter_map(|(id, node)| Some((id, node.as_ref()?)));
        nodes.flat_map(|(id, node)| node.lines.iter().flat_map(|line| &line.own).map(move |held| (id, held)))
    }

    // ---- lines ----

    /// A line is in the list of the one above, which so is awake as well, unless its ceiling holds it.
    fn wake(&mut self, now: Instant, id: GroupId, way: usize) {
        self.floors.touch(id);
        let node = self.node_mut(id);
        node.lines[way].state = State::Awake;
        node.lines[way].part = Instant::MAX;
        if let Some(budget) = &node.budget {
            // ceiling.8
            let others = u64::from(budget.waiting(way));
            let there = now.since(budget.free_at(Direction::ALL[way])).as_nanos();
            if others > 0 {
                node.lines[way].part = Instant::from_nanos(now.as_nanos() - there + there / (others + 1));
            }
        }
        if let Some(parent) = node.parent {
            let line = self.line(parent, way);
            let (state, clock) = (line.state, line.clock);
            line.awake.push(id);
            let line = self.line(id, way);
            line.had = line.had.max(clock);
            if state == State::Empty {
                self.wake(now, parent, way);
            }
        }
    }

    fn wake_if_asleep(&mut self, now: Instant, due: Instant, id: GroupId, way: usize) {
        let Some(node) = &mut self.nodes[usize::from(id.0)] else { return };
        if node.lines[way].state == State::Asleep(due) {
            node.budget.iter().for_each(|budget| budget.waits(way, false));
            self.wake(now, id, way);
        }
    }

    fn sleep(&mut self, id: GroupId, way: usize, due: Instant) {
        let node = self.node_mut(id);
        node.lines[way].state = State::Asleep(due);
        node.budget.iter().for_each(|budget| budget.waits(way, true));
        self.asleep.push(Reverse((due, id, way)));
        self.leave_list(id, way);
    }

    /// A line is not in the list of the one above any more, which may so be empty.
    fn leave_list(&mut self, id: GroupId, way: usize) {
        self.floors.touch(id);
        if let Some(parent) = self.node(id).parent {
            let list = &mut self.line(parent, way).awake;
            let at = list.iter().position(|one| *one == id).expect("an awake line is in the list above");
            list.swap_remove(at);
            self.leave_if_empty(parent, way);
        }
    }

    fn leave_if_empty(&mut self, id: GroupId, way: usize) {
        let node = self.node_mut(id);
        let line = &mut node.lines[way];
        if !line.own.is_empty() || !line.awake.is_empty() {
            return;
        }
        match core::mem::take(&mut line.state) {
            State::Empty => {}
            State::Awake => self.leave_list(id, way),
            State::Asleep(_) => node.budget.iter().for_each(|budget| budget.waits(way, false)),
        }
    }
}

impl Drop for Ceilings {
    /// Other queues share the budgets.
    fn drop(&mut self) {
        for node in self.nodes.iter().flatten() {
            for (way, line) in node.lines.iter().enumerate() {
                if matches!(line.state, State::Asleep(_)) {
                    node.budget.iter().for_each(|budget| budget.waits(way, false));
                }
            }
        }
    }
}
