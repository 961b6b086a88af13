//! What the program tells about itself.

#[cfg(test)]
mod documents;
mod models;
mod pages;
mod tunables;

pub(crate) use models::models;
pub(crate) use pages::{completions, man};
pub(crate) use tunables::tunables;
