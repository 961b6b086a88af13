//! What the words in flags and in the config file mean, and how a wrong one is refused.

pub(crate) mod backing;
pub(crate) mod certificates;
pub(crate) mod groups;
pub(crate) mod limits;
pub(crate) mod mistake;
pub(crate) mod place;
pub(crate) mod scheduler;
pub(crate) mod secret;
pub(crate) use fairlift_core::units;
