//! The program's texts about itself.

#[cfg(test)]
mod documents;
mod manual;
mod models;
mod pages;
mod token;
mod tunables;
mod units;

pub(crate) use manual::man;
pub(crate) use models::models;
pub(crate) use pages::{complete, completions};
pub(crate) use token::token;
pub(crate) use tunables::tunables;
pub(crate) use units::units;
