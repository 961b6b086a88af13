//! BFQ: fair by weight. So far its fair queue, which says whose turn it is and what service costs.

pub mod fair;
