//! The config file is read again while the server runs, on SIGHUP or when `fairlift reload` asks for it.
//!
//! reload.1  All of the difference is made, or nothing: a mistake in the file, a file that cannot be opened or a key that cannot
//!           change while the server runs leaves everything as it was.
//! reload.2  What was said when the file was read last is remembered, so that what was added otherwise stays.

use std::sync::{Mutex, MutexGuard, PoisonError};

use fairlift::Handle;
use fairlift::config::{Address, Config};
use fairlift::control::{Change, Refused};

use super::args::ServeArgs;
use super::places::Places;
use super::{Prepared, Wrong, inert, prepare};
use crate::config::difference::{Fixed, Of, describe, difference, wanted};
use crate::words::mistake::Mistake;

/// What it takes to read the file again.
pub(crate) struct Reload {
    flags: ServeArgs,
    last: Mutex<Last>,
}

/// What was said last.
struct Last {
    config: Config,
    warnings: Vec<String>,
}

impl Reload {
    /// Of a server that was started with these.
    pub(super) fn new(flags: ServeArgs, config: Config, warnings: Vec<String>) -> Self {
        Self { flags, last: Mutex::new(Last { config, warnings }) }
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        // It is replaced as a whole, at the end.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is a file to be read.
    pub(crate) fn has_file(&self) -> bool {
        self.flags.config.is_some()
    }

    /// What of the configuration cannot act, a line each.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.last().warnings.clone()
    }

    /// Reads the file and makes the difference, unless this is a dry run: what has changed, a line each.
    ///
    /// # Errors
    /// Why nothing has changed, a line each.
    pub(crate) fn reload(&self, handle: &Handle, dry_run: bool) -> Result<Vec<String>, Vec<String>> {
        if !self.has_file() {
            return Err(vec!["the server was started without a config file (--config FILE)".into()]);
        }
        let mut last = self.last();
        // The service manager hands its sockets over once.
        let inherited = last.config.listeners.iter().filter_map(|listener| match &listener.address {
            Address::Inherited(socket) => Some(socket.clone()),
            _ => None,
        });
        let prepared = prepare(&self.flags, Ok(inherited.collect())).map_err(|wrong| wrong.lines())?;
        let Prepared { config: new, places, source } = &prepared;
        let refuse = |mistakes| Wrong { source: source.clone(), mistakes }.lines();
        let mut lines = Vec::new();
        // A disk that is made for a new export has the scheduler of the server's start: the second round gives it that of the file.
        for _ in 0..2 {
            let Some((now, view)) = handle.state().zip(handle.view(false)) else {
                return Err(vec![Refused::Ended.to_string()]);
            };
            let rotates = |name: &str| view.disks.iter().any(|disk| disk.name == name && disk.rotational);
            let wanted = wanted(&now.config, &last.config, new, rotates);
            let changes = difference(&now.config, &wanted)
                .map_err(|fixed| refuse(fixed.iter().map(|one| mistake(one, places)).collect()))?;
            if changes.is_empty() {
                break;
            }
            handle.apply(&changes, Some(now.version), dry_run).map_err(|refused| match refused {
                Refused::Change { at, why } => refuse(vec![refused_change(&changes[at], &why, places)]),
                other => vec![other.to_string()],
            })?;
            lines.extend(changes.iter().map(|change| describe(change, &now.config)));
            if dry_run {
                return Ok(lines);
            }
        }
        let in_force = handle.state().map(|state| inert::warnings(&state.config, places)).unwrap_or_default();
        let warnings = in_force.iter().map(|warning| warning.line(source.as_ref())).collect();
        *last = Last { config: new.clone(), warnings };
        Ok(lines)
    }
}

fn mistake(fixed: &Fixed, places: &Places) -> Mistake {
    let said = match &fixed.of {
        Of::Export(name) => places.export(name),
        Of::Disk(name) => places.disk(name),
        Of::Server if fixed.key == "listen" => places.listen(),
        Of::Server => places.server(fixed.key),
    };
    let key = if said.key.ends_with(fixed.key) { said.key.clone() } else { format!("{}.{}", said.key, fixed.key) };
    Mistake { at: said.at, key, says: fixed.says.clone() }
}

/// The place of what a change is about, if it is in the file.
fn refused_change(change: &Change, why: &str, places: &Places) -> Mistake {
    let said = match change {
        Change::AddExport(new) => places.export(&new.name),
        Change::SetReadOnly { export, .. } | Change::Grow { export, .. } => places.export(export),
        Change::AddDisk(disk) => places.disk(&disk.name),
        Change::SetDepth { disk, .. } | Change::SetNrRequests { disk, .. } => places.disk(disk),
        Change::AddListener(_) => places.listen(),
        _ => return Mistake::in_flag("", why),
    };
    said.says(why)
}
