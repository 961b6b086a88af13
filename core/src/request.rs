//! Requests to a disk: operations, flags, extents, and outcomes.

use core::fmt;
use core::ops::{BitOr, BitOrAssign};

/// Declares an enum with a name for each member; their numbers index tables.
macro_rules! named {
    ($(#[$meta:meta])* pub enum $type:ident { $($(#[doc = $says:literal])+ $member:ident = $name:literal,)+ }) => {
        $(#[$meta])*
        pub enum $type {
            $($(#[doc = $says])+ $member,)+
        }

        impl $type {
            /// How many there are; they index tables by their numbers (`as usize`).
            pub const COUNT: usize = Self::ALL.len();
            /// All of them, in the order of their numbers.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$member),+];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$member => $name,)+
                }
            }
        }
    };
}
pub(crate) use named;

named! {
    /// The operation of a bio or a request. Statistics and logs use its name.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum Op {
        /// Bring data from the device.
        Read = "read",
        /// Take data to the device.
        Write = "write",
        /// Make every write that has ended durable. Covers no extent.
        Flush = "flush",
        /// Say that the data of an extent is no longer needed.
        Discard = "discard",
        /// Make an extent read as zeroes, without sending the zeroes.
        WriteZeroes = "write-zeroes",
    }
}

impl Op {
    /// Which way data goes, as schedulers count it: all that changes the disk is a write.
    #[must_use]
    pub const fn direction(self) -> Direction {
        match self {
            Self::Read => Direction::Read,
            Self::Write | Self::Flush | Self::Discard | Self::WriteZeroes => Direction::Write,
        }
    }

    /// Whether payload bytes go with it.
    #[must_use]
    pub const fn has_payload(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }
}

/// Which way data goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// From the device.
    Read,
    /// To the device.
    Write,
}

impl Direction {
    /// Both, in the order of their numbers.
    pub const ALL: [Self; 2] = [Self::Read, Self::Write];
}

/// How a bio wants to be treated; a set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(u8);

impl Flags {
    /// No flags.
    pub const NONE: Self = Self(0);
    /// The data must be on stable storage before the bio ends ("forced unit access").
    pub const FUA: Self = Self(1);
    /// A client waits for this: reads always are, and writes that are part of a sync.
    pub const SYNC: Self = Self(1 << 1);
    /// File system metadata.
    pub const META: Self = Self(1 << 2);
    /// Ahead of others of its kind.
    pub const PRIO: Self = Self(1 << 3);
    /// Zeroes must stay allocated: no hole may be punched (NBD `NO_HOLE`).
    pub const NO_UNMAP: Self = Self(1 << 4);
    /// Of a write, as [`NO_UNMAP`](Self::NO_UNMAP) of zeroes: it has no data; a device of layers copies into its top the data of the extent
    /// that it has between the top and the lowest layer.
    pub const COPY_UP: Self = Self::NO_UNMAP;
    /// For a read, as [`NO_UNMAP`](Self::NO_UNMAP) is for zeroes: memory above the disk has answered it already (queue.19).
    pub const CACHED: Self = Self::NO_UNMAP;
    /// Fail with `ENOTSUP` unless it is faster than writing zeroes (NBD `FAST_ZERO`).
    pub const FAST: Self = Self(1 << 5);
    /// For a read, as [`FAST`](Self::FAST) is for zeroes: it passes through memory above the disk, which did not have it (queue.19).
    pub const MISSED: Self = Self::FAST;
    /// All writes that ended before must be on stable storage before this one's data is written.
    pub const PREFLUSH: Self = Self(1 << 6);
    /// In the device: the queue itself makes this write durable, ahead of the flush that will ask for it (sequence.6).
    pub(crate) const AHEAD: Self = Self(1 << 7);

    /// Whether every flag of `other` is set here.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any flag of `other` is set here.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether it goes before others of its kind: metadata, or marked so.
    pub(crate) const fn is_urgent(self) -> bool {
        self.intersects(Self(Self::PRIO.0 | Self::META.0))
    }

    /// Those that are here or in `other`: `|` for constants.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOr for Flags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Flags {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 8] = ["FUA", "SYNC", "META", "PRIO", "NO_UNMAP", "FAST", "PREFLUSH", "AHEAD"];
        let mut set = f.debug_set();
        for (bit, name) in NAMES.iter().enumerate() {
            if self.0 & (1 << bit) != 0 {
                set.entry(&format_args!("{name}"));
            }
        }
        set.finish()
    }
}

/// A place on a disk, counted in sectors of 512 bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Sector(pub u64);

impl Sector {
    /// Bytes in a sector, on every device, whatever its own block size.
    pub const SIZE: u64 = 512;
    /// `log2` of [`Sector::SIZE`].
    pub const SHIFT: u32 = 9;

    /// The byte offset at which the sector starts.
    ///
    /// # Panics
    /// Beyond 2^55 sectors, which no extent that a [`Queue`](crate::Queue) accepted reaches.
    #[must_use]
    pub const fn bytes(self) -> Bytes {
        assert!(self.0 >> (64 - Self::SHIFT) == 0, "sector beyond 2^64 bytes");
        Bytes(self.0 << Self::SHIFT)
    }
}

/// A number of bytes: a length, or a place in memory or in a file, where sectors are beside it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Bytes(pub u64);

impl Bytes {
    /// The bytes of a number of sectors.
    #[must_use]
    pub const fn of(sectors: u64) -> Self {
        Self(sectors * Sector::SIZE)
    }

    /// As many whole sectors.
    #[must_use]
    pub const fn sectors(self) -> u64 {
        self.0 / Sector::SIZE
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// A run of sectors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Extent {
    /// The first sector.
    pub start: Sector,
    /// How many sectors; 0 for a flush.
    pub sectors: u64,
}

impl Extent {
    /// The extent of a flush.
    pub const NONE: Self = Self { start: Sector(0), sectors: 0 };

    /// `sectors` sectors from `start` on.
    #[must_use]
    pub const fn new(start: Sector, sectors: u64) -> Self {
        Self { start, sectors }
    }

    /// The first sector after the extent.
    #[must_use]
    pub const fn end(self) -> Sector {
        Sector(self.start.0.saturating_add(self.sectors))
    }

    /// Its length in bytes.
    #[must_use]
    pub const fn bytes(self) -> Bytes {
        Bytes::of(self.sectors)
    }

    /// Whether one ends where the other starts.
    #[inline]
    #[must_use]
    pub const fn touches(self, other: Self) -> bool {
        other.start.0.wrapping_sub(self.start.0) == self.sectors
            || self.start.0.wrapping_sub(other.start.0) == other.sectors
    }

    /// Whether the two have a sector in common.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.start.0 < other.end().0 && other.start.0 < self.end().0
    }
}

impl fmt::Debug for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.start.0, self.sectors)
    }
}

/// The submitter's own name for a bio: given at submission, given back when it ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token(pub u64);

/// A client's request: one operation on one run of sectors.
///
/// The payload is the submitter's business: the queue knows the bio by its [`Token`] alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bio {
    /// The operation.
    pub op: Op,
    /// How to treat it.
    pub flags: Flags,
    /// Where, on the disk.
    pub extent: Extent,
    /// The stream that asks.
    pub stream: crate::StreamId,
    /// The submitter's name for it.
    pub token: Token,
}

/// How a bio or request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// As asked.
    Done,
    /// Not done, or not known to be done, for this reason.
    Failed(Errno),
}

impl Outcome {
    /// The first failure of the two, or `Done`.
    #[must_use]
    pub const fn and(self, later: Self) -> Self {
        match self {
            Self::Done => later,
            Self::Failed(_) => self,
        }
    }
}

/// A Linux error number.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

/// Declares the numbers that this crate itself uses, which are Linux's.
macro_rules! errnos {
    ($($(#[doc = $says:literal])+ $name:ident = $number:literal,)+) => {
        impl Errno {
            $($(#[doc = $says])+ pub const $name: Self = Self($number);)+

            /// The symbolic name, for the numbers this crate itself uses.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)+
                    _ => None,
                }
            }
        }
    };
}

errnos! {
    /// Operation not permitted.
    EPERM = 1,
    /// Input/output error.
    EIO = 5,
    /// Try again.
    EAGAIN = 11,
    /// Out of memory.
    ENOMEM = 12,
    /// Invalid argument.
    EINVAL = 22,
    /// The file would be larger than it may be.
    EFBIG = 27,
    /// No space left on device.
    ENOSPC = 28,
    /// Value too large.
    EOVERFLOW = 75,
    /// Operation not supported.
    ENOTSUP = 95,
    /// Shutting down.
    ESHUTDOWN = 108,
    /// It took too long.
    ETIMEDOUT = 110,
    /// A quota is used up.
    EDQUOT = 122,
}

impl Errno {
    /// Whether there was no room for the data.
    #[must_use]
    pub const fn is_lack_of_space(self) -> bool {
        matches!(self, Self::ENOSPC | Self::EFBIG | Self::EDQUOT)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
