//! Mail: a thread of a mail server, as `varmail` of filebench and the mail servers of ffsb and postmark are.
//!
//! mail.1  A file holds up to 1000 mails, evenly over it: each has one to eight blocks. Before them are their inodes, 16 in a block.
//! mail.2  Three operations take turns, each on a mail by chance: *create* writes a mail anew, *append* reads one and writes on at its end,
//!     *read* reads one. As in `varmail`, a mail or an addition to one has 1 to 7 blocks by chance: 16 KiB of 4 on average. A mail that has
//!     no room for more begins anew.
//! mail.3  Written data is followed by the block of its inode, then by a flush: `fsync` on a file system without a journal, so
//!     that each thread asks for a flush of its own. (Threads that wait for one journal are the workload `journal`.)
//!
//! Not modelled: the page cache, in which mails that were read before would be found; directories.

use fairlift_core::{Duration, Flags, Op};

use super::in_turn::{Action, FLUSH, InTurn, ask, write};
use super::{Region, copying};
use crate::Random;

/// The most mails of a thread (mail.1): as many files as `varmail` has by default.
const MAILS_MAX: u64 = 1000;

/// The most blocks of a mail (mail.1), and of a write (mail.2): `varmail`'s mean of 16 KiB in blocks of 4 KiB.
pub(crate) const BLOCKS_MAX: u64 = 8;
const WRITTEN_MAX: u64 = 7;

/// Inodes in a block (mail.1): of 256 bytes, as ext4 has them, in 4 KiB.
const INODES: u64 = 16;

/// An operation on a mail (mail.2).
#[derive(Clone, Copy)]
enum Operation {
    Create,
    Append,
    Read,
}

/// Keeps mails: see the [module](self). It starts at once.
///
/// # Panics
/// If the file has less than two blocks.
#[must_use]
pub fn mail(file: Region, block: u64, think: Duration, seed: u64) -> InTurn {
    let count = file.bytes / block;
    assert!(count >= 2, "mails in {count} blocks");
    let mails = ((count - 1) / (BLOCKS_MAX + 1)).clamp(1, MAILS_MAX);
    // The blocks of each mail; at most `room` are there for it.
    let room = (count - mails.div_ceil(INODES)) / mails;
    let mut random = Random::new(seed);
    let mut sizes: Vec<u64> = (0..mails).map(|_| (1 + random.below(WRITTEN_MAX)).min(room)).collect();
    // The blocks of a mail from `from` on (mail.1).
    let ask_of = move |op: Op, mail: u64, from: u64, blocks: u64| {
        let first = mails.div_ceil(INODES) + mail * room;
        ask(op, file.extent((first + from) * block, blocks * block), Flags::SYNC)
    };
    let mut next = Operation::Create;
    InTurn::new(think, move |actions| {
        actions.push_back(Action::Work(copying(block * WRITTEN_MAX.div_ceil(2))));
        let mail = random.below(mails);
        let size = &mut sizes[mail as usize];
        let (read, writes, then) = match next {
            Operation::Create => (0, true, Operation::Append),
            Operation::Append => (*size, true, Operation::Read),
            Operation::Read => (*size, false, Operation::Create),
        };
        next = then;
        if read > 0 {
            actions.push_back(ask_of(Op::Read, mail, 0, read));
        }
        if !writes {
            return read * block;
        }
        let most = room.min(BLOCKS_MAX);
        let from = if read < most { read } else { 0 };
        let written = (1 + random.below(WRITTEN_MAX)).min(most - from);
        *size = from + written;
        let inode = file.extent(mail / INODES * block, block);
        actions.extend([ask_of(Op::Write, mail, from, written), write(inode, Flags::META), FLUSH]); // mail.3
        (read + written) * block
    })
}
