//! The words that the driver and we use: orders to the driver, and requests of a block device's client to us.
//!
//! Numbers are in the machine's own order. Nothing here touches the kernel.
//!
//! blkdev.1  A request is decoded from a copy of its descriptor and from the export, and from nothing else. A request that
//!           cannot be served has an error of its own; the device goes on.

use fairlift_core::{Flags, Op, Sector};
use vm_memory::ByteValued;

use crate::export::offer::{BlockRequest, Offer, Refusal};

// ---- features and flags (`UBLK_F_…`) ----

/// A write's data comes when we say where to.
pub(super) const NEED_GET_DATA: u64 = 1 << 2;
/// The device outlives its server.
pub(super) const USER_RECOVERY: u64 = 1 << 3;
/// Requests that a dead server had not answered go to the next one.
pub(super) const USER_RECOVERY_REISSUE: u64 = 1 << 4;
/// Its server needs no privileges.
pub(super) const UNPRIVILEGED_DEV: u64 = 1 << 5;
/// Commands have numbers like those of ioctl.
pub(super) const CMD_IOCTL_ENCODE: u64 = 1 << 6;
/// The device can become larger.
pub(super) const UPDATE_SIZE: u64 = 1 << 10;
/// No partitions are looked for when it starts.
pub(super) const NO_AUTO_PART_SCAN: u64 = 1 << 18;

/// The features, from the lowest bit on: the names that people find in the kernel's documentation, and whether a device that has it is served
/// as one that has not. Others, and unknown ones, change its requests.
const FEATURES: [(&str, bool); 19] = [
    ("zero_copy", false),
    ("comp_in_task", true),
    ("get_data", true),
    ("user_recovery", true),
    ("user_recovery_reissue", true),
    ("unprivileged", true),
    ("ioctl_encode", true),
    ("user_copy", false),
    ("zoned", false),
    ("user_recovery_fail_io", true),
    ("update_size", true),
    ("auto_buf_reg", false),
    ("quiesce", true),
    ("per_io_daemon", true),
    ("buf_reg_off_daemon", true),
    ("batch_io", false),
    ("integrity", false),
    ("safe_stop", true),
    ("no_auto_part_scan", true),
];

/// Features by name; those without one by their number.
pub(super) fn names(features: u64) -> String {
    let name = |bit: usize| FEATURES.get(bit).map_or_else(|| format!("bit {bit}"), |(name, _)| (*name).to_owned());
    (0..64).filter(|bit| features >> bit & 1 != 0).map(name).collect::<Vec<_>>().join(" ")
}

// ---- orders to the driver, at /dev/ublk-control ----

/// Bytes of a command to the driver, and the room for one in a ring of such commands.
const CONTROL: usize = 32;
const CONTROL_ROOM: usize = 80;

/// An order to the driver: its number, and its name in the kernel's documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Order {
    pub(super) code: u32,
    pub(super) name: &'static str,
}

impl Order {
    pub(super) const GET_DEV_INFO2: Self = Self::reads(0x12, "GET_DEV_INFO2");
    pub(super) const ADD_DEV: Self = Self::writes(0x04, "ADD_DEV");
    pub(super) const DEL_DEV: Self = Self::writes(0x05, "DEL_DEV");
    pub(super) const START_DEV: Self = Self::writes(0x06, "START_DEV");
    pub(super) const STOP_DEV: Self = Self::writes(0x07, "STOP_DEV");
    pub(super) const SET_PARAMS: Self = Self::writes(0x08, "SET_PARAMS");
    pub(super) const GET_PARAMS: Self = Self::reads(0x09, "GET_PARAMS");
    pub(super) const START_USER_RECOVERY: Self = Self::writes(0x10, "START_USER_RECOVERY");
    pub(super) const END_USER_RECOVERY: Self = Self::writes(0x11, "END_USER_RECOVERY");
    pub(super) const GET_FEATURES: Self = Self::reads(0x13, "GET_FEATURES");
    pub(super) const UPDATE_SIZE: Self = Self::writes(0x15, "UPDATE_SIZE");

    const fn reads(number: u32, name: &'static str) -> Self {
        Self { code: ioctl(2, number, CONTROL), name }
    }

    const fn writes(number: u32, name: &'static str) -> Self {
        Self { code: ioctl(3, number, CONTROL), name }
    }
}

const fn ioctl(direction: u32, number: u32, bytes: usize) -> u32 {
    direction << 30 | (bytes as u32) << 16 | (b'u' as u32) << 8 | number
}

/// An order's bytes: its device (`u32::MAX`: none yet), the address of its data, and one number. Of `len` bytes at `addr` the first `path`
/// are the path of the device's own file.
pub(super) fn control(dev: u32, addr: u64, len: u16, data: u64, path: u16) -> [u8; CONTROL_ROOM] {
    let mut bytes = [0; CONTROL_ROOM];
    let mut put = Put(&mut bytes, 0);
    put.put(dev).put(u16::MAX).put(len).put(addr).put(data).put(path);
    bytes
}

struct Put<'a>(&'a mut [u8], usize);

impl Put<'_> {
    fn put(&mut self, value: impl ByteValued) -> &mut Self {
        let bytes = value.as_slice();
        self.0[self.1..self.1 + bytes.len()].copy_from_slice(bytes);
        self.1 += bytes.len();
        self
    }
}

fn at<T: ByteValued + Default>(bytes: &[u8], at: usize) -> T {
    let mut value = T::default();
    value.as_mut_slice().copy_from_slice(&bytes[at..at + size_of::<T>()]);
    value
}

/// The driver's record of a device.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Info {
    pub queues: u16,
    pub depth: u16,
    pub state: u16,
    /// The longest read or write, in bytes.
    pub request_max: u32,
    /// Its number: `/dev/ublkb3` has 3.
    pub id: u32,
    /// The process that serves it, or served it last; -1: none.
    pub pid: i32,
    pub flags: u64,
    /// The server's own entry there.
    pub mark: u64,
    pub uid: u32,
    pub gid: u32,
}

/// Bytes of [`Info`].
pub(super) const INFO: usize = 64;

impl Info {
    pub(super) fn bytes(&self) -> [u8; INFO] {
        let mut bytes = [0; INFO];
        let mut put = Put(&mut bytes, 0);
        put.put(self.queues).put(self.depth).put(self.state).put(0_u16).put(self.request_max).put(self.id);
        put.put(self.pid).put(0_u32).put(self.flags).put(self.mark).put(self.uid).put(self.gid);
        bytes
    }

    pub(super) fn read(bytes: &[u8; INFO]) -> Self {
        Self {
            queues: at(bytes, 0),
            depth: at(bytes, 2),
            state: at(bytes, 4),
            request_max: at(bytes, 8),
            id: at(bytes, 12),
            pid: at(bytes, 16),
            flags: at(bytes, 24),
            mark: at(bytes, 32),
            uid: at(bytes, 40),
            gid: at(bytes, 44),
        }
    }

    /// Whether orders name its file: it needs no privileges, but leave to use that.
    pub(super) const fn by_path(&self) -> bool {
        self.flags & UNPRIVILEGED_DEV != 0
    }

    /// Whether our server can serve it, whoever made it.
    pub(super) fn is_spoken(&self) -> Result<(), String> {
        let of_no_matter = |bit: usize| FEATURES.get(bit).is_some_and(|(_, is)| *is);
        let strange = (0..64).filter(|bit| !of_no_matter(*bit)).fold(0, |all, bit| all | self.flags & 1 << bit);
        if strange != 0 {
            return Err(format!("it was made with {}, which this server does not speak", names(strange)));
        }
        for (needed, why) in [
            (NEED_GET_DATA, "its writes come with their data, which this server has no memory for before they come"),
            (USER_RECOVERY, "it does not outlive its server"),
        ] {
            if self.flags & needed == 0 {
                return Err(format!("it was made without {}: {why}", names(needed)));
            }
        }
        Ok(())
    }

    pub(super) const fn state(&self) -> State {
        match self.state {
            0 => State::Dead,
            1 => State::Live,
            2 => State::Quiesced,
            _ => State::FailsAll,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Not started, or stopped: there is no block device.
    Dead,
    /// It is served.
    Live,
    /// Its server has died, and its requests wait for the next one.
    Quiesced,
    /// Its server has died, and its requests fail.
    FailsAll,
}

impl State {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Dead => "dead",
            Self::Live => "live",
            Self::Quiesced => "quiesced",
            Self::FailsAll => "fails",
        }
    }
}

/// The parameters of a block device, as its clients see it. Sizes are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Params {
    pub size: u64,
    pub block: u32,
    pub request_max: u32,
    pub read_only: bool,
    pub rotational: bool,
    /// Writes may stay in a cache until they are flushed, and a write with FUA does not.
    pub volatile_cache: bool,
    pub discard: bool,
    pub write_zeroes: bool,
}

/// Bytes of [`Params`].
pub(super) const PARAMS: usize = 60;
/// No request for zeroes or a discard is longer, in sectors: the kernel counts in 32 bits, and works on blocks.
const RANGE_MAX: u32 = !0xffff;

impl Params {
    pub(super) fn bytes(&self) -> [u8; PARAMS] {
        const BASIC: u32 = 1;
        const DISCARD: u32 = 1 << 1;
        let attributes = u32::from(self.read_only)
            | u32::from(self.rotational) << 1
            | u32::from(self.volatile_cache) << 2
            | u32::from(self.volatile_cache) << 3;
        let block = self.block.max(512);
        let (logical, physical) = (block.ilog2() as u8, block.max(4096).ilog2() as u8);
        let range = |can: bool| if can { RANGE_MAX } else { 0 };
        let mut bytes = [0; PARAMS];
        let mut put = Put(&mut bytes, 0);
        put.put(PARAMS as u32).put(BASIC | DISCARD);
        put.put(attributes).put(logical).put(physical).put(physical).put(logical);
        put.put(self.request_max / Sector::SIZE as u32).put(0_u32).put(self.size / Sector::SIZE).put(0_u64);
        put.put(0_u32).put(block).put(range(self.discard)).put(range(self.write_zeroes)).put(1_u16);
        bytes
    }

    /// The driver's answer to [`Order::GET_PARAMS`].
    pub(super) fn read(bytes: &[u8; PARAMS]) -> Self {
        let has = |bit: u32| at::<u32>(bytes, 8) >> bit & 1 != 0;
        Self {
            size: at::<u64>(bytes, 24).saturating_mul(Sector::SIZE),
            block: 1_u32.checked_shl(bytes[12].into()).unwrap_or(0),
            request_max: at::<u32>(bytes, 16).saturating_mul(Sector::SIZE as u32),
            read_only: has(0),
            rotational: has(1),
            volatile_cache: has(2),
            discard: at::<u32>(bytes, 48) > 0,
            write_zeroes: at::<u32>(bytes, 52) > 0,
        }
    }

    /// Whether an export can be served as a device that was made like this.
    ///
    /// # Errors
    /// The requests of its clients that the export cannot do; the text begins as `has 4096 bytes, and the export …`.
    pub(super) fn is_served_by(&self, export: &Self) -> Result<(), String> {
        if export.size < self.size {
            let why =
                format!("has {} bytes, and the export has {}: make its backing as large again", self.size, export.size);
            return Err(why);
        }
        if self.block == 0 || !self.block.is_multiple_of(export.block) {
            return Err(format!("has blocks of {} bytes, and the export has blocks of {}", self.block, export.block));
        }
        if export.read_only && !self.read_only {
            return Err("is written to, and the export is read-only".into());
        }
        if export.volatile_cache && !self.volatile_cache {
            return Err("asks for no flushes, and the export needs them".into());
        }
        if self.request_max > export.request_max {
            let (has, can) = (self.request_max, export.request_max);
            return Err(format!("has requests of up to {has} bytes, and the server takes {can} (limits.request_max)"));
        }
        Ok(())
    }
}

// ---- commands of a queue, at /dev/ublkcN ----

/// A queue's request in a command, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ask {
    /// For the first request.
    Fetch = 0x20,
    /// To take this end of a request, and for the next one.
    Commit,
    /// For the data of a write.
    GetData,
}

impl Ask {
    pub(super) const fn code(self) -> u32 {
        ioctl(3, self as u32, COMMAND)
    }
}

/// Bytes of a command of a queue.
pub(super) const COMMAND: usize = 16;

/// A command's bytes: whose request it is, how that ended, and where its data is.
pub(super) fn command(queue: u16, tag: u16, result: i32, addr: u64) -> [u8; COMMAND] {
    let mut bytes = [0; COMMAND];
    Put(&mut bytes, 0).put(queue).put(tag).put(result).put(addr);
    bytes
}

/// The kernel's answer to a command: there is a request, or the data of a write.
pub(super) const REQUEST: i32 = 0;
/// There is a write: where shall its data be?
pub(super) const NEEDS_MEMORY: i32 = 1;

/// Bytes of a request's descriptor.
pub const DESCRIPTOR: usize = 24;
/// From the descriptors of one queue to those of the next, where they are mapped.
pub(super) const QUEUE_STRIDE: usize = (DEPTH_MAX as usize * DESCRIPTOR).next_multiple_of(4096);
/// The most requests of a queue.
pub(super) const DEPTH_MAX: u16 = 4096;
/// The longest read or write that the driver has room for. Chosen: as long as the largest buffer that a pool keeps.
pub(super) const REQUEST_MAX: u32 = 1 << 20;

/// The kind of a write, in its descriptor.
const WRITE: u8 = 1;

/// How many bytes a write is of; `None`: the request is no write.
pub(super) fn write_of(descriptor: &[u8; DESCRIPTOR]) -> Option<usize> {
    (at::<u32>(descriptor, 0) as u8 == WRITE).then(|| at::<u32>(descriptor, 4) as usize * Sector::SIZE as usize)
}

/// Reads a request's descriptor.
///
/// # Errors
/// It cannot be served.
pub fn request(bytes: &[u8; DESCRIPTOR], offer: &Offer) -> Result<BlockRequest, Refusal> {
    const FUA: u32 = 1 << 13;
    const NO_UNMAP: u32 = 1 << 15;
    let (kind_and_flags, sectors): (u32, u32) = (at(bytes, 0), at(bytes, 4));
    let (kind, start, len) = (kind_and_flags as u8, at(bytes, 8), u64::from(sectors) * Sector::SIZE);
    let op = match kind {
        0 => Op::Read,
        WRITE => Op::Write,
        2 => Op::Flush,
        3 => Op::Discard,
        5 => Op::WriteZeroes,
        _ => return Err(Refusal::Kind(kind.into())),
    };
    let mut request = offer.request(op, kind.into(), start, len)?;
    if kind_and_flags & FUA != 0 && matches!(op, Op::Write | Op::WriteZeroes) {
        request.flags |= Flags::FUA;
    }
    if kind_and_flags & NO_UNMAP != 0 && op == Op::WriteZeroes {
        request.flags |= Flags::NO_UNMAP;
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFER: Offer =
        Offer { size: 1 << 20, block: 4096, request_max: 1 << 16, read_only: false, discard: true, write_zeroes: true };

    fn decoded(kind: u32, sectors: u32, start: u64, offer: Offer) -> Result<BlockRequest, Refusal> {
        let mut bytes = [0; DESCRIPTOR];
        Put(&mut bytes, 0).put(kind).put(sectors).put(start).put(7_u64);
        request(&bytes, &offer)
    }

    #[test]
    fn requests_are_what_the_kernel_says() {
        let plain = |op, at, len| Ok(BlockRequest { op, at, len, flags: Flags::SYNC });
        let flagged = |op, len, flags| Ok(BlockRequest { op, at: 0, len, flags: Flags::SYNC | flags });
        assert_eq!(decoded(0, 8, 16, OFFER), plain(Op::Read, 8192, 4096));
        assert_eq!(decoded(1, 128, 0, OFFER), plain(Op::Write, 0, 1 << 16));
        assert_eq!(decoded(1 | 1 << 13, 8, 0, OFFER), flagged(Op::Write, 4096, Flags::FUA));
        assert_eq!(decoded(1 << 13 | 1 << 15, 8, 0, OFFER), plain(Op::Read, 0, 4096));
        assert_eq!(decoded(2, 0, 0, OFFER), plain(Op::Flush, 0, 0));
        assert_eq!(decoded(3, 2048, 0, OFFER), plain(Op::Discard, 0, 1 << 20), "all of it, at once");
        assert_eq!(decoded(5, 2048, 0, OFFER), plain(Op::WriteZeroes, 0, 1 << 20));
        assert_eq!(decoded(5 | 1 << 15, 2048, 0, OFFER), flagged(Op::WriteZeroes, 1 << 20, Flags::NO_UNMAP));
        assert_eq!(decoded(5 | 1 << 13, 2048, 0, OFFER), flagged(Op::WriteZeroes, 1 << 20, Flags::FUA));
    }

    /// blkdev.1
    #[test]
    fn what_cannot_be_served_is_refused_by_itself() {
        let refused = |kind, sectors, start, device| decoded(kind, sectors, start, device).unwrap_err();
        for kind in [0, 1, 3, 5] {
            assert_eq!(refused(kind, 8, 2048, OFFER), Refusal::Beyond(2048, 4096), "where it ends");
            assert_eq!(refused(kind, 16, 2040, OFFER), Refusal::Beyond(2040, 8192), "one block behind it");
            assert_eq!(refused(kind, 8, u64::MAX, OFFER), Refusal::Beyond(u64::MAX, 4096));
            assert_eq!(refused(kind, 8, u64::MAX / 512, OFFER), Refusal::Beyond(u64::MAX / 512, 4096));
            assert_eq!(refused(kind, 8, 4, OFFER), Refusal::Blocks(4, 4096));
            assert_eq!(refused(kind, 0, 8, OFFER), Refusal::Length(0));
        }
        assert_eq!(refused(0, 136, 0, OFFER), Refusal::Length(136 * 512));
        assert_eq!(refused(1, u32::MAX, 0, OFFER), Refusal::Length(u64::from(u32::MAX) * 512));
        for kind in [4, 6, 18, 255] {
            assert_eq!(refused(kind, 8, 0, OFFER), Refusal::Kind(kind));
        }
        let read_only = Offer { read_only: true, ..OFFER };
        for kind in [1, 3, 5] {
            assert_eq!(refused(kind, 8, 0, read_only), Refusal::ReadOnly);
            let plain = Offer { discard: false, write_zeroes: false, ..OFFER };
            assert!(kind == 1 || refused(kind, 8, 0, plain) == Refusal::Kind(kind));
        }
    }

    #[test]
    fn a_device_that_asks_otherwise_than_ours_is_not_taken_over() {
        let flags = NEED_GET_DATA | USER_RECOVERY | USER_RECOVERY_REISSUE | CMD_IOCTL_ENCODE;
        let info = |flags| Info { flags, ..Info::default() };
        assert_eq!(info(flags | UNPRIVILEGED_DEV | 1 << 13).is_spoken(), Ok(()));
        for (flags, says) in [
            (flags & !NEED_GET_DATA, "without get_data"),
            (flags & !USER_RECOVERY, "without user_recovery"),
            (flags | 1, "zero_copy"),
            (flags | 1 << 7, "user_copy"),
            (flags | 1 << 8, "zoned"),
            (flags | 1 << 11, "auto_buf_reg"),
            (flags | 1 << 15, "batch_io"),
            (flags | 1 << 16, "integrity"),
            (flags | 1 << 40, "bit 40"),
        ] {
            let why = info(flags).is_spoken().unwrap_err();
            assert!(why.contains(says), "{why}");
        }
    }

    #[test]
    fn a_device_is_taken_over_by_an_export_that_can_do_what_it_is_asked() {
        let export =
            Params { size: 1 << 20, block: 512, request_max: 1 << 20, volatile_cache: true, ..Params::default() };
        assert_eq!(export.is_served_by(&export), Ok(()));
        let smaller = Params { size: 1 << 19, block: 4096, read_only: true, ..export };
        assert_eq!(smaller.is_served_by(&export), Ok(()), "it is asked less than the export can do");
        for (device, export, says) in [
            (Params { size: 1 << 21, ..export }, export, "2097152 bytes, and the export has 1048576"),
            (export, Params { block: 4096, ..export }, "blocks of 512 bytes, and the export has blocks of 4096"),
            (Params { block: 0, ..export }, Params { size: 1 << 21, ..export }, "blocks of 0"),
            (export, Params { read_only: true, ..export }, "read-only"),
            (Params { volatile_cache: false, ..export }, export, "flushes"),
            (Params { request_max: 1 << 21, ..export }, export, "2097152 bytes, and the server takes 1048576"),
        ] {
            let why = device.is_served_by(&export).unwrap_err();
            assert!(why.contains(says), "{why}");
        }
    }

    /// The kernel's header says so (`include/uapi/linux/ublk_cmd.h`), and a program in C printed these.
    #[test]
    fn numbers_and_places_are_those_of_the_kernel() {
        assert_eq!(Order::ADD_DEV.code, 0xc020_7504);
        assert_eq!(Order::GET_FEATURES.code, 0x8020_7513);
        assert_eq!(Ask::Commit.code(), 0xc010_7521);
        let bytes = control(3, 0x1122, 64, 5, 32);
        assert_eq!((at::<u32>(&bytes, 0), at::<u16>(&bytes, 4), at::<u16>(&bytes, 6)), (3, u16::MAX, 64));
        assert_eq!((at::<u64>(&bytes, 8), at::<u64>(&bytes, 16), at::<u16>(&bytes, 24)), (0x1122, 5, 32));
        let bytes = command(1, 2, -5, 0x3344);
        assert_eq!(
            (at::<u16>(&bytes, 0), at::<u16>(&bytes, 2), at::<i32>(&bytes, 4), at::<u64>(&bytes, 8)),
            (1, 2, -5, 0x3344)
        );
        let info = Info {
            queues: 2,
            depth: 64,
            request_max: 1 << 20,
            id: 9,
            pid: -1,
            flags: 0x1fe,
            mark: 77,
            uid: 1,
            gid: 2,
            state: 2,
        };
        assert_eq!((Info::read(&info.bytes()), info.state()), (info, State::Quiesced));
        let params = Params {
            size: 1 << 30,
            block: 512,
            request_max: 1 << 20,
            volatile_cache: true,
            discard: true,
            ..Params::default()
        };
        let bytes = params.bytes();
        assert_eq!(Params::read(&bytes), params);
        assert_eq!((at::<u32>(&bytes, 8), bytes[12], bytes[13], at::<u32>(&bytes, 16)), (0b1100, 9, 12, 2048));
        assert_eq!(
            (at::<u32>(&bytes, 44), at::<u32>(&bytes, 48), at::<u32>(&bytes, 52), at::<u16>(&bytes, 56)),
            (512, RANGE_MAX, 0, 1)
        );
    }
}
