//! The binary format of blktrace: one record for each event of a request, 48 bytes and its payload.
//!
//! blkparse, btt and fio read it. The kernel's process is a tenant here, and its CPU a worker: a trace is a file for each,
//! `NAME.blktrace.0` and so on, whose records are numbered in the order of their times.

mod taken;

use fairlift_core::trace::{Action, Item, Message, TraceEvent};
use fairlift_core::{GroupId, Instant, Op};

pub(crate) use taken::{Taken, first_file};

/// The length of a record without what goes with it.
const HEAD: usize = 48;
/// `BLK_IO_TRACE_MAGIC`, and the version.
const MAGIC: u32 = 0x6561_7407;
/// A major number for local use: devices are called 240,0 and so on, by the numbers of the disks.
const MAJOR: u32 = 240 << 20;
/// The longest name: blkparse keeps 16 bytes, and the last one is 0.
const NAME: usize = 15;

/// A message that begins so names a disk.
const DISK: &str = "disk=";

/// The kind of a record, as the `BLK_TC_*` in the upper half of `action`.
const READ: u32 = 1 << 16;
const WRITE: u32 = 1 << 17;
const FLUSH: u32 = 1 << 18;
const QUEUE: u32 = 1 << 20;
const REQUEUE: u32 = 1 << 21;
const ISSUE: u32 = 1 << 22;
const COMPLETE: u32 = 1 << 23;
const NOTIFY: u32 = 1 << 26;
const DISCARD: u32 = 1 << 29;

/// `BLK_TN_PROCESS`: the name of a process; `BLK_TN_TIMESTAMP`: the time of day; `BLK_TN_MESSAGE`: a text.
const PROCESS: u32 = NOTIFY;
const TIMESTAMP: u32 = NOTIFY | 1;
const MESSAGE: u32 = NOTIFY | 2;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    /// In nanoseconds since the trace began.
    pub(crate) time: u64,
    pub(crate) sector: u64,
    pub(crate) bytes: u32,
    pub(crate) action: u32,
    /// The tenant.
    pub(crate) pid: u32,
    /// The disk.
    pub(crate) device: u32,
    /// The worker.
    pub(crate) cpu: u32,
    pub(crate) pdu: Vec<u8>,
}

impl Record {
    const NONE: Self = Self { time: 0, sector: 0, bytes: 0, action: 0, pid: 0, device: MAJOR, cpu: 0, pdu: Vec::new() };

    /// A record of something that happened on a disk, its sectors counted from `start`; `None`: blktrace has no word for it.
    pub(crate) fn of(item: &Item, disk: usize, began: Instant, start: u64) -> Option<Self> {
        let time = item.at().as_nanos().saturating_sub(began.as_nanos());
        match item {
            Item::Event(event) => Self::event_of(event, disk, time, start),
            Item::Message(message) => Some(Self::of_message(message, disk, time)),
        }
    }

    fn event_of(event: &TraceEvent, disk: usize, time: u64, start: u64) -> Option<Self> {
        let kind = match event.op {
            Op::Read => READ,
            Op::Write | Op::WriteZeroes => WRITE,
            Op::Flush => WRITE | FLUSH,
            Op::Discard => WRITE | DISCARD,
        };
        let what = match event.action {
            Action::Queued => 1 | QUEUE,
            Action::BackMerged => 2 | QUEUE,
            Action::FrontMerged => 3 | QUEUE,
            Action::Got => 4 | QUEUE,
            Action::Slept => 5 | QUEUE,
            Action::Requeued => 6 | REQUEUE,
            Action::Dispatched => 7 | ISSUE,
            Action::Completed => 8 | COMPLETE,
            Action::Inserted => 12 | QUEUE,
            Action::Split => 13,
            Action::TimedOut => return None,
        };
        Some(Self {
            time,
            sector: event.extent.start.0.saturating_sub(start),
            bytes: event.extent.bytes().get().try_into().unwrap_or(u32::MAX),
            action: what | kind,
            pid: pid(event.group),
            device: MAJOR | disk as u32,
            cpu: event.context.0.into(),
            pdu: Vec::new(),
        })
    }

    /// The name of a tenant: the end of its path, which tells more than the beginning.
    pub(crate) fn name(group: GroupId, path: &str) -> Self {
        let short = &path[path.ceil_char_boundary(path.len().saturating_sub(NAME))..];
        Self { action: PROCESS, pid: pid(group), pdu: [short.as_bytes(), b"\0"].concat(), ..Self::NONE }
    }

    /// The time of day when the trace began.
    pub(crate) fn began(since_1970: std::time::Duration) -> Self {
        let (seconds, nanos) = (since_1970.as_secs() as u32, since_1970.subsec_nanos());
        Self { action: TIMESTAMP, pdu: [seconds.to_le_bytes(), nanos.to_le_bytes()].concat(), ..Self::NONE }
    }

    /// A scheduler's message about a stream.
    fn of_message(message: &Message, disk: usize, time: u64) -> Self {
        let of = message.stream.map_or_else(String::new, |stream| format!("stream {}: ", stream.0));
        let (pid, device) = (pid(message.group), MAJOR | disk as u32);
        Self { pid, device, ..Self::message(time, &format!("{of}{}", message.note)) }
    }

    /// The name of a disk: the format has none but in words.
    pub(crate) fn disk_name(disk: usize, name: &str) -> Self {
        Self { device: MAJOR | disk as u32, ..Self::message(0, &format!("{DISK}{name}")) }
    }

    pub(crate) fn message(time: u64, says: &str) -> Self {
        Self { time, action: MESSAGE, pdu: says.as_bytes().to_vec(), ..Self::NONE }
    }

    pub(crate) fn says(&self) -> Option<&str> {
        (self.action == MESSAGE).then(|| std::str::from_utf8(&self.pdu).unwrap_or_default())
    }

    /// The process that the record names, and its name; `None`: it names none.
    pub(crate) fn named(&self) -> Option<(u32, &str)> {
        let name = std::str::from_utf8(self.pdu.strip_suffix(b"\0").unwrap_or(&self.pdu)).unwrap_or_default();
        (self.action == PROCESS).then_some((self.pid, name))
    }

    /// The name of the disk, if this message tells it.
    pub(crate) fn disk_named(&self) -> Option<&str> {
        self.says()?.strip_prefix(DISK)
    }

    /// The letter of the event, and the operation's name; `None`: it is no request's.
    pub(crate) fn event(&self) -> Option<(char, &'static str)> {
        const LETTERS: [char; 14] = ['?', 'Q', 'M', 'F', 'G', 'S', 'R', 'D', 'C', 'P', 'U', '?', 'I', 'X'];
        if self.action & NOTIFY != 0 {
            return None;
        }
        let op = match self.action {
            action if action & FLUSH != 0 => "flush",
            action if action & DISCARD != 0 => "discard",
            action if action & WRITE != 0 => "write",
            _ => "read",
        };
        Some((*LETTERS.get((self.action & 0xffff) as usize)?, op))
    }

    pub(crate) const fn disk(&self) -> u32 {
        self.device & ((1 << 20) - 1)
    }

    /// Its bytes, with its number in the file.
    pub(crate) fn encode(&self, number: u32, out: &mut Vec<u8>) {
        out.extend(MAGIC.to_le_bytes());
        out.extend(number.to_le_bytes());
        out.extend(self.time.to_le_bytes());
        out.extend(self.sector.to_le_bytes());
        for word in [self.bytes, self.action, self.pid, self.device, self.cpu] {
            out.extend(word.to_le_bytes());
        }
        out.extend(0_u16.to_le_bytes()); // no error
        out.extend((self.pdu.len() as u16).to_le_bytes());
        out.extend(&self.pdu);
    }

    /// The record that bytes begin with, and its length; `None`: it is not whole.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, String> {
        let Some(head) = bytes.first_chunk::<HEAD>() else { return Ok(None) };
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if word(0) != MAGIC {
            return Err(format!("this is no trace: it begins with {:#x}", word(0)));
        }
        let len = HEAD + usize::from(u16::from_le_bytes([head[46], head[47]]));
        let Some(pdu) = bytes.get(HEAD..len) else { return Ok(None) };
        let record = Self {
            time: long(8),
            sector: long(16),
            bytes: word(24),
            action: word(28),
            pid: word(32),
            device: word(36),
            cpu: word(40),
            pdu: pdu.to_vec(),
        };
        Ok(Some((record, len)))
    }
}

/// The tenant as a process: there is no process 0.
fn pid(group: GroupId) -> u32 {
    u32::from(group.0) + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlift_core::trace::Note;
    use fairlift_core::{ContextId, Extent, Sector, StreamId};

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let event = TraceEvent {
            at: Instant::ZERO,
            action: Action::Dispatched,
            op: Op::Flush,
            extent: Extent::new(Sector(1000), 8),
            stream: StreamId(0),
            group: GroupId(2),
            context: ContextId(3),
        };
        let dispatched = Record::event_of(&event, 1, 77, 960).unwrap();
        let preempted =
            Message { at: Instant::ZERO, group: GroupId(2), stream: Some(StreamId(7)), note: Note::Preempted };
        let all = [
            dispatched.clone(),
            Record::name(GroupId(2), "/tenants/of/alice😀"),
            Record::message(5, "lost=3"),
            Record::of_message(&preempted, 1, 78),
        ];
        let mut bytes = Vec::new();
        (0..).zip(&all).for_each(|(number, record)| record.encode(number, &mut bytes));
        let mut rest = &bytes[..];
        for record in &all {
            assert_eq!(Record::decode(&rest[..HEAD - 1]).unwrap(), None);
            let (found, len) = Record::decode(rest).unwrap().unwrap();
            assert_eq!(&found, record);
            rest = &rest[len..];
        }
        assert!(rest.is_empty());
        assert_eq!((dispatched.event(), dispatched.disk(), dispatched.sector), (Some(('D', "flush")), 1, 40));
        assert_eq!(all[1].named(), Some((3, "ts/of/alice😀")));
        assert_eq!(all[2].says(), Some("lost=3"));
        assert_eq!((all[3].says(), all[3].pid, all[3].disk()), (Some("stream 7: preempt"), 3, 1));
        assert!(Record::decode(&[0; 48]).is_err());
    }
}
