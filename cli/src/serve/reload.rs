//! The config file is read again while the server runs, on SIGHUP or when `fairlift reload` asks for it.
//!
//! reload.1  All of the difference is made, or nothing: a mistake in the file, a file that cannot be opened or a key that cannot
//!           change while the server runs leaves everything as it was.
//! reload.2  What was said when the file was read last is remembered, so that what was added otherwise stays.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fairlift::Handle;
use fairlift::config::Address;
use fairlift::control::{Change, Refused, State};

use super::args::ServeArgs;
use super::places::Places;
use super::{Prepared, inert, prepare};
use crate::config::difference::{Fixed, Of, describe, difference, wanted};
use crate::control::ConfigFile;
use crate::words::mistake::Mistake;

/// What it takes to read the file again.
pub(crate) struct Reload {
    flags: ServeArgs,
    /// What was said last.
    last: Mutex<Arc<Prepared>>,
}

impl Reload {
    /// Of a server that was started with these.
    pub(super) fn new(flags: ServeArgs, prepared: Arc<Prepared>) -> Self {
        Self { flags, last: Mutex::new(prepared) }
    }

    fn last(&self) -> MutexGuard<'_, Arc<Prepared>> {
        // It is replaced as a whole, at the end.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is a file to be read.
    pub(crate) fn has_file(&self) -> bool {
        self.flags.config.is_some()
    }

    /// What the file says and cannot act in what is in force now, a line each with its place.
    pub(crate) fn warnings(&self, handle: &Handle) -> Vec<String> {
        let last = self.last().clone();
        handle.state().map_or_else(Vec::new, |now| last.lines(inert::warnings(&now.config, &last.places)))
    }

    /// Reads the file and makes the difference: what has changed, a line each.
    ///
    /// # Errors
    /// Why nothing has changed, a line each.
    pub(crate) fn reload(&self, handle: &Handle) -> Result<Vec<String>, Vec<String>> {
        let mut lines = Vec::new();
        // A disk that is made for a new export has the scheduler of the server's start: the second round gives it the file's.
        for _ in 0..2 {
            let Difference { changes, now, prepared } = self.difference(handle)?;
            if changes.is_empty() {
                break;
            }
            handle.apply(&changes, Some(now.version), false).map_err(|refused| match refused {
                Refused::Change { at, why } => {
                    prepared.lines(vec![refused_change(&changes[at], &why, &prepared.places)])
                }
                other => vec![other.to_string()],
            })?;
            lines.extend(changes.iter().map(|change| describe(change, &now.config)));
        }
        Ok(lines)
    }

    /// Reads the file: what would have to change for it to be in force. The caller makes all of these changes or none.
    ///
    /// # Errors
    /// What is wrong with the file, or cannot change while the server runs, a line each.
    pub(crate) fn difference(&self, handle: &Handle) -> Result<Difference, Vec<String>> {
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
        let prepared = Arc::new(prepared);
        let ended = || vec![Refused::Ended.to_string()];
        let (now, view) = handle.state().zip(handle.view(false)).ok_or_else(ended)?;
        let rotates = |name: &str| view.disks.iter().any(|disk| disk.name == name && disk.rotational);
        let wanted = wanted(&now.config, &last.config, &prepared.config, rotates);
        let places = &prepared.places;
        let changes = difference(&now.config, &wanted)
            .map_err(|fixed| prepared.lines(fixed.iter().map(|one| mistake(one, places)).collect()))?;
        *last = Arc::clone(&prepared);
        drop(last);
        Ok(Difference { changes, now, prepared })
    }
}

/// What the file says, beside what is in force.
pub(crate) struct Difference {
    /// What makes the one of the other.
    pub(crate) changes: Vec<Change>,
    now: State,
    prepared: Arc<Prepared>,
}

impl ConfigFile for Reload {
    fn is_there(&self) -> bool {
        self.has_file()
    }

    fn sockets(&self) -> Option<&Path> {
        self.flags.vhost_user.as_deref()
    }

    fn warnings(&self, handle: &Handle) -> Vec<String> {
        Self::warnings(self, handle)
    }

    fn read_again(&self, handle: &Handle, dry_run: bool) -> Result<Vec<String>, Vec<String>> {
        if !dry_run {
            return self.reload(handle);
        }
        let before = self.last().clone();
        let Difference { changes, now, prepared } = self.difference(handle)?;
        *self.last() = before; // What was not made was not said.
        match handle.apply(&changes, Some(now.version), true) {
            Ok(_) => Ok(changes.iter().map(|change| describe(change, &now.config)).collect()),
            Err(Refused::Change { at, why }) => {
                Err(prepared.lines(vec![refused_change(&changes[at], &why, &prepared.places)]))
            }
            Err(other) => Err(vec![other.to_string()]),
        }
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
