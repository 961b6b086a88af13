//! Where the bios of one queue wait for the ceilings above them.
//!
//! Each group has a line for reads and one for all else, for `max = { riops = 100 }` must not hold writes up. Lines form the tree
//! of the groups. A line is *awake* if something waits in it or below it and its own ceiling does not hold it; else it sleeps until
//! that may let something through, and nobody looks at it before. Example: 1,000 tenants wait for ceilings of their own. When the
//! first may go again, its line alone is woken; the other 999 cost nothing.
//!
//! What goes next is found from the root down: in each line the group that has had least for its weight (ceiling.6), by virtual
//! time as in start-time fair queueing (Goyal, Vin & Cheng, SIGCOMM 1996).

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::Budget;
use crate::time::ms;
use crate::{Bio, Bytes, ContextId, Direction, Duration, Group, GroupId, Instant, Op, StreamId};

/// What waits for a ceiling is let through at most so often, and then all that may go: a worker is not woken for each of 100,000
/// I/Os a second. Chosen: a fifth of the tolerance, within which nothing is lost by it, and three I/Os of 3,000 a second.
const GRAIN: Duration = ms(1);

/// A bio that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) bio: Bio,
    pub(crate) context: ContextId,
    /// When its client asked.
    pub(crate) asked: Instant,
    pub(crate) since: Instant,
}

/// What a ceiling holds of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holding {
    /// The group whose streams asked.
    pub group: GroupId,
    /// The group whose ceiling holds it: itself, or one above it.
    pub by: GroupId,
    /// Which way they go.
    pub direction: Direction,
    /// How many bios wait.
    pub bios: u32,
    /// Since when the oldest of them does.
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

/// What waits of one group and direction.
#[derive(Default, Debug)]
struct Line {
    state: State,
    /// Bios of the group's own streams, the oldest first.
    own: VecDeque<Held>,
    /// The groups below whose lines are awake.
    awake: Vec<GroupId>,
    /// Virtual time: what this line has had in the one above, what its own streams have had in it, and how far it is itself.
    had: u128,
    own_had: u128,
    clock: u128,
    /// Awake, it takes what its budget has up to here: its part, where other queues wait too (ceiling.8).
    part: Instant,
}

#[derive(Debug)]
struct Node {
    parent: Option<GroupId>,
    weight: u16,
    budget: Option<Arc<Budget>>,
    /// A ceiling is at it or above it.
    bound: bool,
    lines: [Line; 2],
}

impl Node {
    fn new(group: &Group) -> Self {
        Self { parent: group.parent, weight: group.weight, budget: None, bound: false, lines: Default::default() }
    }
}

/// The ceilings of a queue's groups, and what waits for them.
#[derive(Default, Debug)]
pub(crate) struct Ceilings {
    nodes: Vec<Option<Node>>,
    /// Some group has a ceiling.
    some: bool,
    /// How many bios wait.
    len: usize,
    /// Lines that sleep, by when to look at them; those of lines that were woken otherwise are passed over.
    asleep: BinaryHeap<Reverse<(Instant, GroupId, usize)>>,
    /// When something was let through last.
    last: Instant,
    /// Which direction is looked at first.
    turn: usize,
    /// Nothing is held any more.
    lifted: bool,
    /// One bit for each context that something waited in.
    contexts: u64,
}

/// One I/O, and so many bytes (ceiling.4).
fn size(bio: &Bio) -> u64 {
    match bio.op {
        Op::Discard => Bytes::of(1).get(),
        _ => bio.extent.bytes().get(),
    }
}

const DIRECTIONS: [Direction; 2] = [Direction::Read, Direction::Write];

impl Ceilings {
    pub(crate) fn new(groups: &[Group]) -> Self {
        let mut this = Self::default();
        for (id, group) in groups.iter().enumerate() {
            this.set_group(GroupId(id as u16), group);
        }
        this
    }

    fn node(&self, id: GroupId) -> &Node {
        self.nodes[usize::from(id.0)].as_ref().expect("a group that is named is there")
    }

    fn node_mut(&mut self, id: GroupId) -> &mut Node {
        self.nodes[usize::from(id.0)].as_mut().expect("a group that is named is there")
    }

    fn line(&mut self, id: GroupId, way: usize) -> &mut Line {
        &mut self.node_mut(id).lines[way]
    }

    /// A group and those above it.
    fn path(&self, id: GroupId) -> impl Iterator<Item = &Node> {
        core::iter::successors(Some(self.node(id)), |node| node.parent.map(|parent| self.node(parent)))
    }

    // ---- groups ----

    /// A group came, or has another weight.
    pub(crate) fn set_group(&mut self, id: GroupId, group: &Group) {
        let at = usize::from(id.0);
        if self.nodes.len() <= at {
            self.nodes.resize_with(at + 1, || None);
        }
        match &mut self.nodes[at] {
            Some(node) => node.weight = group.weight,
            none => {
                *none = Some(Node::new(group));
                let bound = group.parent.is_some_and(|parent| self.node(parent).bound);
                self.node_mut(id).bound = bound;
            }
        }
    }

    /// A group went, in which nothing waits.
    pub(crate) fn remove_group(&mut self, id: GroupId) {
        self.nodes[usize::from(id.0)] = None;
        self.look_at_budgets();
    }

    /// Gives a group a ceiling, or none.
    pub(crate) fn set_budget(&mut self, now: Instant, id: GroupId, budget: Option<Arc<Budget>>) {
        self.look_again(now); // nobody waits for the old one
        self.node_mut(id).budget = budget;
        self.look_at_budgets();
    }

    /// A ceiling has changed: what sleeps may go, or sleeps for another while.
    pub(crate) fn look_again(&mut self, now: Instant) {
        while let Some(Reverse((due, id, way))) = self.asleep.pop() {
            self.wake_if_asleep(now, due, id, way);
        }
        self.look_at_budgets();
    }

    fn look_at_budgets(&mut self) {
        self.some = false;
        for at in 0..self.nodes.len() {
            let Some(node) = &self.nodes[at] else { continue };
            let binds = |budget: &Arc<Budget>| DIRECTIONS.iter().any(|direction| budget.binds(*direction));
            let bound = self.path(GroupId(at as u16)).any(|node| node.budget.as_ref().is_some_and(binds));
            self.some |= bound && node.budget.is_some();
            self.node_mut(GroupId(at as u16)).bound = bound;
        }
    }

    /// Nothing is held from now on: the server ends.
    pub(crate) fn lift(&mut self, now: Instant) {
        if !core::mem::replace(&mut self.lifted, true) {
            self.look_again(now);
        }
    }

    // ---- bios ----

    /// Whether a bio of this group may have to wait.
    #[inline]
    pub(crate) fn bind(&self, id: GroupId) -> bool {
        self.some && !self.lifted && self.node(id).bound
    }

    /// Lets a bio through if it need not wait.
    pub(crate) fn admit(&mut self, now: Instant, id: GroupId, bio: &Bio) -> bool {
        let direction = bio.op.direction();
        let way = direction as usize;
        let free = |node: &Node| {
            let Some(budget) = &node.budget else { return true };
            // What waits already goes first, here and in other queues (ceiling.5, ceiling.8).
            node.lines[way].state == State::Empty && budget.waiting(way) == 0 && budget.free_at(direction) <= now
        };
        if !self.node(id).lines[way].own.is_empty() || !self.path(id).all(free) {
            return false;
        }
        self.charge(now, id, bio);
        true
    }

    /// Pays for a bio at each ceiling above it (ceiling.3); how long that takes where it takes longest.
    fn charge(&self, now: Instant, id: GroupId, bio: &Bio) -> Duration {
        let budgets = self.path(id).filter_map(|node| node.budget.as_ref());
        budgets.map(|budget| budget.charge(now, bio.op.direction(), size(bio))).max().unwrap_or(Duration::ZERO)
    }

    /// A bio waits.
    pub(crate) fn hold(&mut self, now: Instant, id: GroupId, held: Held) {
        let way = held.bio.op.direction() as usize;
        self.contexts |= 1 << held.context.0;
        self.len += 1;
        let line = self.line(id, way);
        if line.own.is_empty() {
            line.own_had = line.own_had.max(line.clock);
        }
        line.own.push_back(held);
        if line.state == State::Empty {
            self.wake(now, id, way);
        }
    }

    /// How many bios wait.
    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// The contexts that something waited in.
    pub(crate) const fn contexts(&self) -> u64 {
        self.contexts
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
    pub(crate) fn next(&mut self, now: Instant) -> Option<Held> {
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
            let lifted = self.lifted;
            let node = self.node_mut(at);
            let line = &mut node.lines[way];
            if line.state != State::Awake {
                debug_assert!(at == GroupId::ROOT, "a line that is not awake is in no list");
                return None;
            }
            if let Some(budget) = node.budget.as_ref().filter(|_| !lifted) {
                let free = budget.free_at(DIRECTIONS[way]);
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
    fn take(&mut self, now: Instant, id: GroupId, way: usize) -> Held {
        let held = self.line(id, way).own.pop_front().expect("something waits there");
        self.len -= 1;
        self.last = now;
        // Nothing costs nothing, or the first of several groups without a rate would always be the next.
        let cost = u128::from(self.charge(now, id, &held.bio).as_nanos().max(1)) << 10;
        let line = self.line(id, way);
        line.clock = line.own_had;
        line.own_had += cost / u128::from(Group::WEIGHT_DEFAULT);
        let mut at = id;
        while let Some(parent) = self.node(at).parent {
            let weight = u128::from(self.node(at).weight);
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
    pub(crate) fn take_back(&mut self, is: impl Fn(&Held) -> bool) -> Vec<(GroupId, Held)> {
        let mut taken = Vec::new();
        for at in 0..self.nodes.len() {
            let id = GroupId(at as u16);
            for way in 0..2 {
                let Some(node) = &mut self.nodes[at] else { continue };
                let before = taken.len();
                node.lines[way].own.retain(|held| {
                    let goes = is(held);
                    if goes {
                        taken.push((id, *held));
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

    /// What waits, by group.
    pub(crate) fn holdings(&self) -> Vec<Holding> {
        let mut all = Vec::new();
        for (at, node) in self.nodes.iter().enumerate().filter_map(|(at, node)| Some((at, node.as_ref()?))) {
            let group = GroupId(at as u16);
            for (way, direction) in DIRECTIONS.into_iter().enumerate() {
                let Some(oldest) = node.lines[way].own.front() else { continue };
                let up = |id: &GroupId| self.node(*id).parent;
                let is_asleep = |id: &GroupId| matches!(self.node(*id).lines[way].state, State::Asleep(_));
                let by = core::iter::successors(Some(group), up).find(is_asleep).unwrap_or(group);
                all.push(Holding { group, by, direction, bios: node.lines[way].own.len() as u32, since: oldest.since });
            }
        }
        all
    }

    /// All that is held, with the groups whose streams asked.
    pub(crate) fn each(&self) -> impl Iterator<Item = (GroupId, &Held)> {
        let nodes = (0..).map(GroupId).zip(&self.nodes).filter_map(|(id, node)| Some((id, node.as_ref()?)));
        nodes.flat_map(|(id, node)| node.lines.iter().flat_map(|line| &line.own).map(move |held| (id, held)))
    }

    // ---- lines ----

    /// A line is in the list of the one above, which so is awake as well, unless its ceiling holds it.
    fn wake(&mut self, now: Instant, id: GroupId, way: usize) {
        let node = self.node_mut(id);
        node.lines[way].state = State::Awake;
        node.lines[way].part = Instant::MAX;
        if let Some(budget) = &node.budget {
            // ceiling.8
            let others = u64::from(budget.waiting(way));
            let there = now.since(budget.free_at(DIRECTIONS[way])).as_nanos();
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
