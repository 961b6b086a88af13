//! BFQ: fair by weight, in sectors.

pub mod rate;
