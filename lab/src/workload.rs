//! Workloads: which programs run together, as data.
//!
//! workload.1  A workload has roles. Each job of a group plays one: they are dealt out in turn, a role with `share` 3 three times
//!     as often as one with 1.
//! workload.2  A role with `once` is played once in the whole run, in the first group, beside its jobs.
//! workload.3  A setting that a role leaves out has the built-in value. A block size that the run says goes for all roles.
//! workload.4  A role with a group is for the jobs of that group, or of the leaves below it; these play no role without a group.
//! workload.5  A workload with groups of its own is a situation of tenants: each leaf is a tenant and has one job, whose role names that
//!     leaf. It is judged by each tenant's entitlement: see [`iostest`](crate::iostest).
//!
//! Those with a name are built in; others come from a TOML file: see [`Workload::read`].

mod file;
pub mod tenants;

use fairlift_core::{Duration, Group, Instant, Op, Priority};

use crate::program::{
    Direct, OpenLoop, PAGE, Pattern, Program, ReadAhead, Region, WriteBack, direct, fsync, interactive, journal, mail,
    pages, read_ahead, write_back,
};
use crate::suggestion;

/// Programs that run together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Workload {
    /// As on the command line and in results.
    pub name: String,
    /// Its description, in a phrase.
    pub about: String,
    /// The roles; at least one of them is not `once`.
    pub roles: Vec<Role>,
    /// The weight tree of a situation, the root first (workload.5); empty: the groups are those of the run.
    pub groups: Vec<Group>,
}

/// A kind of program in a workload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Role {
    /// Its name in results.
    pub name: String,
    /// Its operation.
    pub does: Does,
    /// Bytes of an operation, unless the run says otherwise.
    pub block_size: u32,
    /// Time that it takes between operations.
    pub think: Duration,
    /// How often it is dealt out, against the other roles (workload.1).
    pub share: u32,
    /// Whether it is there once in the whole run (workload.2).
    pub once: bool,
    /// The path of the group for whose jobs it is (workload.4); `None`: all that have none of their own.
    pub group: Option<String>,
    /// Requests that it keeps in flight, if it is direct, unless the run's number holds.
    pub iodepth: Option<u32>,
    /// Writes between two flushes, if it is direct and writes; 0: it does not flush.
    pub flush_every: u32,
    /// The largest window that is read ahead for it, in bytes, if it is a buffered sequential reader.
    pub read_ahead: u64,
    /// Its I/O priority.
    pub priority: Priority,
}

/// The operation of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Does {
    /// Reads or writes through the page cache.
    Buffered(Op, Pattern),
    /// Reads or writes past it.
    Direct(Op, Pattern),
    /// Writes a block and makes it durable: with a flush, or by FUA.
    Fsync {
        /// By FUA.
        fua: bool,
    },
    /// Reads or writes at times that do not depend on the disk.
    OpenLoop {
        /// Reads or writes.
        op: Op,
        /// Through the file.
        order: Pattern,
        /// Arrivals in a second, on average.
        rate: u32,
    },
    /// The jobs of a group read one file together: job i of N its blocks i, i + N, i + 2 N, …
    Interleaved,
    /// A file system's journal: small sequential writes, a flush, a commit block.
    Journal,
    /// A mail server's thread: mails are created, appended to and read, and each that was written is made durable.
    Mail,
    /// A program start: many small reads, each after the one before; then a pause, and again.
    Interactive,
}

/// Where and how one job plays a role.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobPlacement {
    /// Its data.
    pub file: Region,
    /// Bytes of an operation.
    pub block: u64,
    /// Requests in flight, for direct roles.
    pub depth: u32,
    /// Which of the jobs that share the file, and how many those are (`Interleaved`).
    pub index: (u64, u64),
    /// Time that a reply and the next request are on their way, of direct roles.
    pub round_trip: Duration,
    /// The time from which on completions are counted, of direct roles.
    pub counts_from: Instant,
    /// Seed of its random choices.
    pub seed: u64,
}

impl Workload {
    /// Those that are built in, beside the situations: `built_in.toml`, in the folder of this module.
    #[must_use]
    pub fn built_in() -> Vec<Self> {
        Self::read(include_str!("workload/built_in.toml")).expect("a test reads it")
    }

    /// The built-in workload of that name.
    ///
    /// # Errors
    /// There is none: what there is, and the nearest.
    pub fn named(name: &str) -> Result<Self, String> {
        if let Some(situation) = name.strip_prefix(tenants::PREFIX) {
            return tenants::named(situation);
        }
        let mut all = Self::built_in();
        if let Some(place) = all.iter().position(|one| one.name == name) {
            return Ok(all.swap_remove(place));
        }
        let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).chain([tenants::ALL]).collect();
        let list = names.join(", ");
        if name.is_empty() {
            return Err(format!("a workload needs a name: {list}"));
        }
        Err(format!("unknown workload \"{name}\": the workloads are {list}{}", suggestion(name, names.iter().copied())))
    }

    /// The workloads of that name: one, or for `tenants` the situations that are run together.
    ///
    /// # Errors
    /// As [`Workload::named`].
    pub fn all_named(name: &str) -> Result<Vec<Self>, String> {
        if name == tenants::ALL { Ok(tenants::all()) } else { Self::named(name).map(|one| vec![one]) }
    }

    /// Whether its groups are tenants, which are judged by their entitlements (workload.5).
    #[must_use]
    pub const fn is_situation(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Whether it changes what is on the disk.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.roles.iter().any(|role| role.does.writes())
    }

    /// Whether a role in it keeps as many requests in flight as the run says.
    #[must_use]
    pub fn has_depth(&self) -> bool {
        self.roles.iter().any(|role| role.iodepth.is_none() && matches!(role.does, Does::Direct(..)))
    }

    /// The bytes of an operation by default, if all roles have the same.
    #[must_use]
    pub fn block_size(&self) -> Option<u32> {
        let (first, others) = self.roles.split_first()?;
        others.iter().all(|role| role.block_size == first.block_size).then_some(first.block_size)
    }
}

impl Role {
    /// A role with the block size that its kind has by default, and nothing special.
    #[must_use]
    pub fn new(name: &str, does: Does) -> Self {
        Self {
            name: name.into(),
            block_size: does.block_size(),
            does,
            think: Duration::ZERO,
            share: 1,
            once: false,
            group: None,
            iodepth: None,
            flush_every: 0,
            read_ahead: read_ahead::LARGEST,
            priority: Priority::default(),
        }
    }

    /// Its operation, in fio's words: `randread 4k x32`, `randwrite 4k x4 flush_every=1`; its name if it is not direct. Tenants that differ
    /// at all differ in it.
    #[must_use]
    pub fn says(&self) -> String {
        let Does::Direct(op, order) = self.does else { return self.name.clone() };
        let order = if order == Pattern::Random { "rand" } else { "" };
        let op = if op == Op::Read { "read" } else { "write" };
        let block = match self.block_size {
            bytes if bytes.is_multiple_of(1 << 20) => format!("{}m", bytes >> 20),
            bytes if bytes.is_multiple_of(1 << 10) => format!("{}k", bytes >> 10),
            bytes => bytes.to_string(),
        };
        let depth = self.iodepth.map_or(String::new(), |depth| format!(" x{depth}"));
        let flush = if self.flush_every > 0 { format!(" flush_every={}", self.flush_every) } else { String::new() };
        let think = if self.think > Duration::ZERO { format!(" think={}", self.think) } else { String::new() };
        let usual = self.priority == Priority::default();
        let priority = if usual { String::new() } else { format!(" ioprio={}", self.priority) };
        format!("{order}{op} {block}{depth}{flush}{think}{priority}")
    }

    /// Whether it names this group, or one above it (workload.4).
    #[must_use]
    pub fn is_of(&self, path: &str) -> bool {
        self.group.as_deref().is_some_and(|group| is_at_or_below(path, group))
    }

    /// The largest read or write that it asks with such blocks, in bytes, before the file ends.
    #[must_use]
    pub const fn largest_ask(&self, block: u64) -> u64 {
        match self.does {
            Does::Buffered(Op::Read, Pattern::Sequential) => self.read_ahead,
            // A block may lie across pages.
            Does::Buffered(Op::Read, Pattern::Random) => block.next_multiple_of(PAGE) + PAGE,
            Does::Buffered(..) => write_back::RUN_MAX * PAGE,
            Does::Direct(..) | Does::Fsync { .. } | Does::OpenLoop { .. } | Does::Interleaved => block,
            Does::Journal => journal::BLOCKS_MAX * block,
            Does::Mail => mail::BLOCKS_MAX * block,
            Does::Interactive => interactive::BLOCKS_MAX * block,
        }
    }

    /// The program that plays it.
    #[must_use]
    pub fn program(&self, part: &JobPlacement) -> Box<dyn Program> {
        let JobPlacement { file, block, depth, index: (index, of), round_trip, counts_from, seed } = *part;
        let think = self.think;
        match self.does {
            Does::Buffered(Op::Read, Pattern::Sequential) => {
                Box::new(ReadAhead::new(file, block, think, self.read_ahead))
            }
            Does::Direct(op, order) => {
                let flush_every = self.flush_every;
                let settings = direct::Settings::new(op, order, block, depth);
                let settings = direct::Settings { think, round_trip, flush_every, counts_from, ..settings };
                Box::new(Direct::new(settings, file, seed))
            }
            Does::Buffered(Op::Read, Pattern::Random) => Box::new(pages(file, block, think, seed)),
            Does::Buffered(_, order) => {
                let settings = write_back::Settings { order, block, think, ..write_back::Settings::default() };
                Box::new(WriteBack::new(settings, file, seed))
            }
            Does::Fsync { fua } => Box::new(fsync(file, block, fua, think)),
            Does::OpenLoop { op, order, rate } => Box::new(OpenLoop::new(op, order, rate, file, block, seed)),
            Does::Interleaved => {
                let settings = direct::Settings::new(Op::Read, Pattern::Sequential, block, 1);
                let settings = direct::Settings { think, ..settings };
                Box::new(Direct::interleaved(settings, file, index, of))
            }
            Does::Journal => Box::new(journal(file, block, think, seed)),
            Does::Mail => Box::new(mail(file, block, think, seed)),
            Does::Interactive => Box::new(interactive(file, block, seed)),
        }
    }
}

/// Whether a group's path is another's, or one below it.
fn is_at_or_below(path: &str, group: &str) -> bool {
    path.strip_prefix(group).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Does {
    /// Whether it changes what is on the disk.
    #[must_use]
    pub const fn writes(self) -> bool {
        match self {
            Self::Buffered(op, _) | Self::Direct(op, _) | Self::OpenLoop { op, .. } => !matches!(op, Op::Read),
            Self::Fsync { .. } | Self::Journal | Self::Mail => true,
            Self::Interleaved | Self::Interactive => false,
        }
    }

    /// Bytes of an operation, by default: a page through the page cache and for `fsync`; 32 KiB direct, as in seed 001's
    /// tables of `drr`.
    #[must_use]
    pub const fn block_size(self) -> u32 {
        match self {
            Self::Direct(..) | Self::Interleaved => 32 << 10,
            Self::Buffered(..)
            | Self::Fsync { .. }
            | Self::OpenLoop { .. }
            | Self::Journal
            | Self::Mail
            | Self::Interactive => 4 << 10,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_workload_is_found_by_its_name() {
        for workload in Workload::built_in() {
            assert_eq!(Workload::named(&workload.name), Ok(workload));
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_those_there_are() {
        assert!(Workload::named("").unwrap_err().starts_with("a workload needs a name: bsr, "));
        let why = Workload::named("interleave").unwrap_err();
        assert!(why.starts_with("unknown workload \"interleave\": the workloads are bsr, brr, "), "{why}");
        assert!(why.ends_with("; did you mean \"interleaved\"?"), "{why}");
    }

    #[test]
    fn direct_workloads_have_the_blocks_of_the_tables_they_come_from() {
        let block = |name| Workload::named(name).unwrap().roles[0].block_size;
        assert_eq!((block("bsr"), block("drr")), (4096, 32768));
    }
}
