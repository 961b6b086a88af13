//! The sharers of a device: groups with weights, and the streams in them.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

/// A node of the weight tree, by its place in the configuration. `GroupId(0)` is the root, `/`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct GroupId(pub u16);

impl GroupId {
    /// The root of the tree; streams that nobody placed are in it.
    pub const ROOT: Self = Self(0);
}

/// A stream of a [`Queue`](crate::Queue), as returned by `Queue::add_stream`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StreamId(pub u32);

/// A worker's own path to a disk ("hardware context" in the kernel). A request stays in the context that submitted it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ContextId(pub u16);

/// A node of the weight tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Its name from the root: `/`, `/tenants/a`.
    pub path: String,
    /// The node above; `None` for the root alone.
    pub parent: Option<GroupId>,
    /// Its share among its siblings.
    pub weight: Weight,
}

impl Group {
    /// The root group.
    #[must_use]
    pub fn root() -> Self {
        Self { path: String::from("/"), parent: None, weight: Weight::DEFAULT }
    }

    /// The group of a path in a tree, made with its parents and the default weight if it is not there yet.
    ///
    /// # Errors
    /// There would be more than `most`.
    pub fn place(tree: &mut Vec<Self>, path: &str, most: usize) -> Result<GroupId, String> {
        let above = tree.iter().enumerate().filter(|(_, group)| path.starts_with(&group.path));
        let known: BTreeMap<&str, GroupId> = above.map(|(at, group)| (&*group.path, GroupId(at as u16))).collect();
        let (mut place, mut missing) = (GroupId::ROOT, Vec::new());
        for end in path.match_indices('/').skip(1).map(|(at, _)| at).chain([path.len()]) {
            match known.get(&path[..end]) {
                Some(there) => place = *there,
                None => missing.push(&path[..end]),
            }
        }
        if tree.len() + missing.len() > most {
            return Err(format!("there are at most {most} groups"));
        }
        for part in missing {
            tree.push(Self { path: part.into(), parent: Some(place), weight: Weight::DEFAULT });
            place = GroupId((tree.len() - 1) as u16);
        }
        Ok(place)
    }
}

/// A group's share among its siblings: a number from 1 to 1000, as BFQ's in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Weight(u16);

impl Weight {
    /// The weight of a group for which none is given: the kernel's default (`io.weight`, `io.bfq.weight`).
    pub const DEFAULT: Self = Self(100);
    /// The largest.
    pub const MAX: Self = Self(1000);
    /// The meaning of the number, for messages about a wrong one.
    pub const MEANS: &str = "its ratio to the weights beside it counts: 300 beside 100 is 3:1";

    /// A weight that is known to be one.
    ///
    /// # Panics
    /// It is none.
    #[must_use]
    pub const fn new(weight: u16) -> Self {
        assert!(1 <= weight && weight <= Self::MAX.0, "a weight is a number from 1 to 1000");
        Self(weight)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// As somebody writes it.
impl FromStr for Weight {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.parse().ok().filter(|number| (1..=Self::MAX.0).contains(number));
        number
            .map(Self)
            .ok_or_else(|| format!("a weight is a number from 1 to {}, not {text:?}; {}", Self::MAX, Self::MEANS))
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Weight> for f64 {
    fn from(weight: Weight) -> Self {
        weight.0.into()
    }
}

impl From<Weight> for u32 {
    fn from(weight: Weight) -> Self {
        weight.0.into()
    }
}

/// I/O priority class (`ioprio` in Linux): a higher class goes before a lower one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub enum PriorityClass {
    /// Before everybody.
    RealTime,
    /// As everybody.
    #[default]
    BestEffort,
    /// When nobody else wants the disk.
    Idle,
}

impl PriorityClass {
    /// How many classes there are; they index tables as `class as usize`, highest first.
    pub const COUNT: usize = 3;
    /// All classes, highest first.
    pub const ALL: [Self; Self::COUNT] = [Self::RealTime, Self::BestEffort, Self::Idle];
}

/// I/O priority: a class and a level within it, 0 (highest) to 7.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Priority {
    /// The class.
    pub class: PriorityClass,
    /// The level, 0 to 7, 0 the highest. `IDLE` has one level.
    pub level: u8,
}

impl Default for Priority {
    /// Best effort, level 4: Linux's `IOPRIO_DEFAULT`-normalised value.
    fn default() -> Self {
        Self { class: PriorityClass::BestEffort, level: 4 }
    }
}

impl core::str::FromStr for Priority {
    type Err = &'static str;

    /// Reads `rt/0`, `be/4`, `idle`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "a priority is rt/0 to rt/7, be/0 to be/7, or idle";
        let (class, level) = text.split_once('/').unwrap_or((text, "4"));
        let class = match class {
            "rt" => PriorityClass::RealTime,
            "be" => PriorityClass::BestEffort,
            "idle" if !text.contains('/') => PriorityClass::Idle,
            _ => return Err(FORM),
        };
        match level.parse() {
            Ok(level @ 0..=7) => Ok(Self { class, level }),
            _ => Err(FORM),
        }
    }
}

impl core::fmt::Display for Priority {
    /// As it is read.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.class {
            PriorityClass::RealTime => write!(f, "rt/{}", self.level),
            PriorityClass::BestEffort => write!(f, "be/{}", self.level),
            PriorityClass::Idle => f.write_str("idle"),
        }
    }
}

/// A stream: the unit whose order and locality matter. An NBD connection or a library handle; in the kernel, a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stream {
    /// The group it belongs to.
    pub group: GroupId,
    /// Its priority within the group.
    pub priority: Priority,
    /// The context that its requests stay in.
    pub context: ContextId,
}
