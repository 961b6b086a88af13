//! BFQ: fair by weight, in sectors.

pub mod burst;
pub mod raise;
pub mod rate;
