//! Whether a server would start: all is opened and set up as it would be, and closed again.

use std::sync::Arc;

use super::{Server, workers};
use crate::Error;
use crate::config::{self, Config};
use crate::control::arrange::{arrange, export, open_all};
use crate::device::{Backing, Device, roots::Roots};
use crate::export::clients::Served;
use crate::export::listen;
use crate::kernel::ring::Choice;

/// An export whose backing begins as something else than a disk (a qcow2, a LUKS container), though nobody said that it is raw.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Foreign {
    /// The export's name.
    pub export: String,
    /// Whether it is served read-only for that reason alone: a write would destroy what is there.
    pub is_kept: bool,
    /// The foreign format, and the remedy.
    pub why: String,
}

/// Which of these exports show something else than a disk.
pub(super) fn foreign(exports: &[config::Export], opened: &[Arc<dyn Device>]) -> Vec<Foreign> {
    let found = |(export, device): (&config::Export, &Arc<dyn Device>)| {
        let is_kept = device.facts().read_only && !export.read_only;
        Some(Foreign { export: export.name.clone(), is_kept, why: device.foreign()?.to_owned() })
    };
    exports.iter().zip(opened).filter_map(found).collect()
}

impl Server {
    /// The exports whose backings begin as something else than a disk.
    #[must_use]
    pub fn foreign(&self) -> &[Foreign] {
        &self.foreign
    }

    /// Whether [`Server::bind`] would succeed with this configuration now. Nothing is served and nothing is left behind; for
    /// that moment backings are opened and locked, so that a check fails beside a server that has them, as another server
    /// would.
    ///
    /// Returns the configuration that would be in force (the same, with the disk of each export named, and the scheduler of each disk that
    /// suits its device), and the answer of [`Server::foreign`].
    ///
    /// # Errors
    /// All that would stop [`Server::bind`], as far as it can be told at once.
    ///
    /// # Panics
    /// If an index in the configuration points nowhere.
    pub fn check(config: &Config) -> Result<(Config, Vec<Foreign>), Vec<Error>> {
        let mut errors = Vec::new();
        let engine = Choice::make(config.engine).map_err(|error| errors.push(error)).ok();
        errors.extend(config.listeners.iter().filter_map(|listener| listen::check(listener).err()));
        errors.extend(engine.iter().flat_map(|engine| Served::check(&config.exports, engine)));
        let Ok(roots) = Roots::open(&config.roots).map_err(|error| errors.push(error)) else { return Err(errors) };
        let opened = open_all(&config.exports, &roots, Backing::try_open);
        let opened: Vec<_> = opened.filter_map(|one| one.map_err(|error| errors.push(error)).ok()).collect();
        if opened.len() < config.exports.len() {
            return Err(errors);
        }
        let arranged = arrange(config, &opened, workers(config), None);
        let Ok(arranged) = arranged.map_err(|error| errors.push(error)) else { return Err(errors) };
        let exports = config.exports.iter().zip(&opened).zip(&arranged.placed);
        let path = |one| &*config.group(one).path;
        errors.extend(exports.filter_map(|((one, device), place)| export((one, path(one)), device, *place, 0).err()));
        if errors.is_empty() { Ok((arranged.in_force, foreign(&config.exports, &opened))) } else { Err(errors) }
    }
}
