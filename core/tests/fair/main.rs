//! The scheduler `fair` through its trait.

mod random;
