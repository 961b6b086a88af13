//! The words of flags and of the config file: their meaning, and the refusal of wrong ones.

pub(crate) mod backing;
pub(crate) mod certificates;
pub(crate) mod groups;
pub(crate) mod limits;
pub(crate) mod mistake;
pub(crate) mod place;
pub(crate) mod scheduler;
pub(crate) mod seconds;
pub(crate) mod secret;
pub(crate) use fairlift_core::units;
