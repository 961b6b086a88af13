//! Pages: a random reader through the page cache.
//!
//! pages.1  Each `read()` of a block asks for the pages that it touches, and no more: random reads have no read-ahead.
//! pages.2  An operation is one `read()`: until its pages have come and are copied.
//!
//! Not modelled: pages found in memory from before, as if the page cache were much smaller than the file.

use fairlift_core::{Duration, Flags, Op};

use super::blocks::Blocks;
use super::in_turn::{Action, InTurn, ask};
use super::{PAGE, Pattern, Region, copying};

/// A buffered random reader: see the [module](self). It starts at once, reads `block` bytes at a time, and thinks for `think` between reads.
///
/// # Panics
/// If the file has no whole block.
#[must_use]
pub fn pages(file: Region, block: u64, think: Duration, seed: u64) -> InTurn {
    let mut blocks = Blocks::new(file, block, Pattern::Random, seed);
    InTurn::new(think, move |actions| {
        let offset = blocks.next();
        let (start, end) = (offset / PAGE * PAGE, (offset + block).next_multiple_of(PAGE)); // pages.1
        let read = ask(Op::Read, file.extent(start, end - start), Flags::NONE);
        actions.extend([read, Action::Work(copying(block))]); // pages.2
        block
    })
}
