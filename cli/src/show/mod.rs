//! The program's texts about itself.

#[cfg(test)]
mod documents;
mod manual;
mod models;
mod pages;
mod token;
mod tunables;
mod units;

use std::io;
use std::path::Path;

pub(crate) use manual::man;
pub(crate) use models::models;
pub(crate) use pages::{complete, completions};
pub(crate) use token::token;
pub(crate) use tunables::tunables;
pub(crate) use units::units;

/// The first of these files; or all of them, in `directory`.
fn files(directory: Option<&Path>, mut all: Vec<(impl AsRef<Path>, String)>) -> io::Result<Vec<u8>> {
    let Some(directory) = directory else { return Ok(all.swap_remove(0).1.into_bytes()) };
    std::fs::create_dir_all(directory)?;
    all.into_iter().try_for_each(|(name, text)| std::fs::write(directory.join(name), text))?;
    Ok(Vec::new())
}
