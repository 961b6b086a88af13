//! The config file is read again while the server runs, on SIGHUP or when `fairlift reload` asks for it.
//!
//! reload.1  All of the difference is made, or nothing: a mistake in the file, a file that cannot be opened or a key that cannot
//!           change while the server runs leaves everything as it was.
//! reload.2  What was said when the file was read last is remembered, so that what was added otherwise stays.
//! reload.3  A dry run tells the changes and warnings of both rounds, as a reload would.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fairlift::Handle;
use fairlift::config::{Address, Config};
use fairlift::control::{Change, Refused, State, View};

use super::args::ServeArgs;
use super::places::Places;
use super::{Prepared, inert, prepare};
use crate::config::difference::{FROM_START_TO_END, Fixed, Of, describe, difference, suited, wanted};
use crate::control::{ConfigFile, ControlAt, Endpoint, Locks, NotRead, ReadAgain};
use crate::words::mistake::Mistake;
use crate::words::place;

/// What it takes to read the file again.
pub(crate) struct Reload {
    flags: ServeArgs,
    /// The places of control, in the order in which they were said.
    doors: Vec<Arc<Endpoint>>,
    /// What was said last.
    last: Mutex<Arc<Prepared>>,
}

impl Reload {
    /// Of a server that was started with these.
    pub(super) fn new(flags: ServeArgs, prepared: Arc<Prepared>, doors: Vec<Arc<Endpoint>>) -> Self {
        Self { flags, doors, last: Mutex::new(prepared) }
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

    /// Reads the file and makes the difference: what has changed, a line each. `version`: only if nobody has changed anything since.
    ///
    /// # Errors
    /// Why nothing has changed.
    pub(crate) fn reload(&self, handle: &Handle, version: Option<u64>) -> Result<Vec<String>, NotRead> {
        let mut last = self.last(); // One at a time.
        let mut lines = Vec::new();
        // A disk that is made for a new export has the scheduler of the server's start: the second round gives it the file's.
        for round in 0..2 {
            let difference = self.difference(handle, &last, version.filter(|_| round == 0))?;
            let state = difference.apply(handle, false)?;
            *last = Arc::clone(&difference.prepared);
            lines.extend(self.lock_anew(&difference, false));
            if difference.changes.is_empty() {
                break;
            }
            lines.extend(difference.lines());
            lines.extend(suited(&difference.now.config, &state.config));
        }
        Ok(lines)
    }

    /// What a reload would say and warn of (reload.3).
    fn try_out(&self, handle: &Handle, version: Option<u64>) -> Result<ReadAgain, NotRead> {
        let last = self.last().clone();
        let first = self.difference(handle, &last, version)?;
        let then = first.apply(handle, true)?.config;
        let view = handle.view(false).ok_or(Refused::Ended)?;
        let said = &first.prepared;
        let end = wanted_of(&then, &view, said, said);
        let second = difference(&then, &end).map_err(|fixed| {
            let mistakes = fixed.iter().map(|one| mistake(one, &said.places)).collect();
            NotRead::Wrong(said.lines(mistakes))
        })?;
        let second = second.iter().map(|change| describe(change, &then));
        let suited = suited(&first.now.config, &then);
        let changes =
            first.lines().into_iter().chain(suited).chain(self.lock_anew(&first, true)).chain(second).collect();
        Ok(ReadAgain { changes, warnings: said.lines(inert::warnings(&end, &said.places)) })
    }

    /// Reads the file: what would have to change for it to be in force. The caller makes all of these changes or none.
    fn difference(&self, handle: &Handle, last: &Prepared, version: Option<u64>) -> Result<Difference, NotRead> {
        if !self.has_file() {
            return Err(NotRead::Wrong(vec!["the server was started without a config file (--config FILE)".into()]));
        }
        // The service manager hands its sockets over once.
        let inherited = last.config.listeners.iter().filter_map(|listener| match &listener.address {
            Address::Inherited(socket) => Some(socket.clone()),
            _ => None,
        });
        let prepared = prepare(&self.flags, Ok(inherited.collect())).map_err(|wrong| NotRead::Wrong(wrong.lines()))?;
        let (now, view) = handle.state().zip(handle.view(false)).ok_or(Refused::Ended)?;
        if let Some(asked) = version.filter(|asked| *asked != now.version) {
            return Err(Refused::Version { asked, now: now.version }.into());
        }
        let wanted = wanted_of(&now.config, &view, last, &prepared);
        let (changes, fixed) = match difference(&now.config, &wanted) {
            Ok(changes) => (changes, Vec::new()),
            Err(fixed) => (Vec::new(), fixed),
        };
        let mut mistakes: Vec<_> = fixed.iter().map(|one| mistake(one, &prepared.places)).collect();
        let confined = prepared.confinement.differs(&last.confinement).map(|key| prepared.places.server(key));
        mistakes.extend(confined.map(|said| said.says(FROM_START_TO_END)));
        mistakes.extend(moved(last.control.as_deref(), prepared.control.as_deref()).map(|(number, says)| {
            let said = prepared.places.control(number).or_else(|| prepared.places.control(0));
            said.unwrap_or_else(|| prepared.places.server("control")).says(says)
        }));
        let read = prepared.control.iter().flatten().enumerate().map(|(number, at)| {
            Locks::read(at).map_err(|why| prepared.places.control(number).map(|said| said.says(why)))
        });
        let (locks, wrong): (Vec<_>, Vec<_>) = read.partition(Result::is_ok);
        mistakes.extend(wrong.into_iter().filter_map(Result::err).flatten());
        if mistakes.is_empty() {
            let locks = locks.into_iter().filter_map(Result::ok).collect();
            return Ok(Difference { changes, locks, now, prepared: Arc::new(prepared) });
        }
        Err(NotRead::Wrong(prepared.lines(mistakes)))
    }

    /// Lets tokens and certificates of control be those that the files have now: a line for each that is another.
    fn lock_anew(&self, difference: &Difference, dry_run: bool) -> Vec<String> {
        let places = difference.prepared.control.iter().flatten().zip(&difference.locks).zip(&self.doors);
        let mut lines = Vec::new();
        for ((at, now), door) in places {
            let at = place::show(&at.address);
            lines.extend(door.locks().changed(now).map(|what| format!("control {at}: other {what}")));
            if !dry_run {
                door.set_locks(now.clone());
            }
        }
        lines
    }
}

/// The first place of control that is not as it was, by its number, and why that cannot be: places are opened at the start.
fn moved(last: Option<&[ControlAt]>, now: Option<&[ControlAt]>) -> Option<(usize, String)> {
    let (last, now) = (last.unwrap_or_default(), now.unwrap_or_default());
    let number = (0..last.len().max(now.len())).find(|number| match (last.get(*number), now.get(*number)) {
        (Some(last), Some(now)) => !last.is_same(now),
        _ => true,
    })?;
    let shown = |at: &ControlAt| place::show(&at.address);
    let what = match (last.get(number).map(shown), now.get(number).map(shown)) {
        (Some(last), Some(now)) if last == now => format!("{last} cannot have other options"),
        (Some(last), Some(now)) => format!("{now} cannot take the place of {last}"),
        (None, Some(now)) => format!("{now} cannot be added"),
        (Some(last), None) => format!("{last} cannot be left out"),
        (None, None) => return None,
    };
    Some((
        number,
        format!(
            "{what} while the server runs; restart it for that (the files of token and certificates are read again)"
        ),
    ))
}

/// What the file says, beside what is in force.
struct Difference {
    /// What makes the one of the other.
    changes: Vec<Change>,
    /// What clients have to know or show at the places of control.
    locks: Vec<Locks>,
    now: State,
    prepared: Arc<Prepared>,
}

impl Difference {
    /// Makes it, or says whether it could be made: what is then in force.
    fn apply(&self, handle: &Handle, dry_run: bool) -> Result<State, NotRead> {
        if self.changes.is_empty() {
            return Ok(self.now.clone());
        }
        match handle.apply(&self.changes, Some(self.now.version), dry_run) {
            Ok(state) => Ok(state),
            Err(Refused::Change { at, why }) => {
                let mistake = refused_change(&self.changes[at], &why, &self.prepared.places);
                Err(NotRead::Wrong(self.prepared.lines(vec![mistake])))
            }
            Err(other) => Err(other.into()),
        }
    }

    /// What it changes, a line each.
    fn lines(&self) -> Vec<String> {
        self.changes.iter().map(|change| describe(change, &self.now.config)).collect()
    }
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

    fn warnings_of(&self, config: &Config, changes: &[Change]) -> Vec<String> {
        inert::warnings_of(config, changes)
    }

    fn read_again(&self, handle: &Handle, version: Option<u64>, dry_run: bool) -> Result<ReadAgain, NotRead> {
        if dry_run {
            return self.try_out(handle, version);
        }
        let changes = self.reload(handle, version)?;
        Ok(ReadAgain { changes, warnings: Self::warnings(self, handle) })
    }
}

/// What is to be in force, where this is, of a file that was read last and is read now. (Whether a disk rotates that is yet to be made is
/// not known.)
fn wanted_of(now: &Config, view: &View, last: &Prepared, prepared: &Prepared) -> Config {
    let rotates = |name: &str| view.disks.iter().any(|disk| disk.name == name && disk.rotational);
    let mut wanted = wanted(now, &last.config, &prepared.config, rotates);
    if prepared.certificate == last.certificate {
        wanted.tls.clone_from(&now.tls);
    }
    wanted
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
    if let Some(mistake) = places.locate_backing(why) {
        return mistake;
    }
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
