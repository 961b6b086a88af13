//! BFQ: fair by weight, in sectors.

pub mod burst;
pub mod inject;
pub mod io_bound;
pub mod merge;
pub mod position;
pub mod raise;
pub mod rate;
pub mod waker;
