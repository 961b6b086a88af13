//! The config file is read again while the server runs, on SIGHUP or when `fairlift reload` asks for it.
//!
//! reload.1  All of the difference is made, or nothing: a mistake in the file, a file that cannot be opened or a key that cannot
//!           change while the server runs leaves everything as it was.
//! reload.2  The file's content at the last reading is remembered, so that additions made otherwise stay.
//! reload.3  A change by a command since, which the file takes back, is told as such.
//! reload.4  A dry run tells the changes and warnings that a reload would.

use std::sync::{Arc, Mutex, PoisonError};

use fairlift::Handle;
use fairlift::config::{Address, Backing, Config};
use fairlift::control::{Edit, FROM_START_TO_END, Impossible, Made, Of, Refused, State, Step, difference};

use super::args::ServeArgs;
use super::confine::is_filtered;
use super::places::missing;
use super::{Plan, ineffective, prepare};
use crate::config::wanted::wanted;
use crate::control::{Changes, ConfigFile, ControlAt, Endpoint, Locks, NotRead, ReadAgain};
use crate::syntax::mistake::{Mistake, Wrong};
use crate::syntax::place;

/// How often the file is read for one reload that meets other changes. Chosen: a change takes milliseconds, and few come that often.
const TRIES: u32 = 20;

pub(crate) struct Reload {
    flags: ServeArgs,
    /// The places of control, in the order in which they were said.
    endpoints: Vec<Arc<Endpoint>>,
    foreign: Vec<Foreign>,
    last: Mutex<Arc<Plan>>,
    /// Held while the file is read, which may last for ever: not by those who only look at `last`.
    reading: Mutex<()>,
}

/// An export that began as something else than a disk at the start.
struct Foreign {
    export: String,
    /// Its content.
    backing: Option<Backing>,
    /// The messages already given.
    line: String,
}

impl Reload {
    pub(super) fn new(
        flags: ServeArgs,
        prepared: Arc<Plan>,
        endpoints: Vec<Arc<Endpoint>>,
        foreign: Vec<(String, String)>,
    ) -> Self {
        let backing = |export: &str| backing(&prepared.config, export);
        let foreign = foreign.into_iter().map(|(export, line)| Foreign { backing: backing(&export), export, line });
        let foreign = foreign.collect();
        Self { flags, endpoints, foreign, last: Mutex::new(prepared), reading: Mutex::new(()) }
    }

    fn last(&self) -> Arc<Plan> {
        // It is replaced as a whole, at the end.
        Arc::clone(&self.last.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the file: what there is to be.
    fn read(&self, handle: &Handle, last: &Plan, version: Option<u64>) -> Result<Read, NotRead> {
        if !self.is_there() {
            let says = "the server was started without a config file (--config FILE)";
            return Err(NotRead::Wrong(Wrong { source: None, mistakes: vec![Mistake::in_flag("", says)] }));
        }
        // The service manager hands its sockets over once.
        let inherited = last.config.listeners.iter().filter_map(|listener| match &listener.address {
            Address::Inherited(socket) => Some(socket.clone()),
            _ => None,
        });
        let prepared = prepare(&self.flags, inherited.collect()).map_err(NotRead::Wrong)?;
        let (now, view) = handle.state().zip(handle.view(false)).ok_or(Refused::Ended)?;
        if let Some(expected) = version.filter(|expected| *expected != now.version) {
            return Err(Refused::Version { expected, now: now.version }.into());
        }
        // Whether a disk rotates that is yet to be made is not known.
        let rotates = |name: &str| view.disks.iter().any(|disk| disk.name == name && disk.rotational);
        let mut wanted = wanted(&now.config, &last.config, &prepared.config, rotates);
        if prepared.certificate == last.certificate {
            wanted.tls.clone_from(&now.config.tls);
        }
        let wanted = Edit::from(wanted);
        let (steps, impossible) = match difference(&now.config, &wanted) {
            Ok(steps) => (steps, Vec::new()),
            Err(all) => (Vec::new(), all),
        };
        let mut mistakes: Vec<_> = impossible.iter().map(|one| mistake(one, &prepared)).collect();
        let (its, was) = (&prepared.server, &last.server);
        let fixed = [
            ("seccomp", is_filtered(its) == is_filtered(was)),
            ("keep_capabilities", its.keep_capabilities == was.keep_capabilities),
            ("learned", its.learned == was.learned),
        ];
        let others = fixed.into_iter().filter(|(_, is_same)| !is_same);
        mistakes.extend(others.map(|(key, _)| prepared.places.server(key).says(FROM_START_TO_END)));
        mistakes.extend(moved(last.control.as_deref(), prepared.control.as_deref()).map(|(number, says)| {
            let place = prepared.places.control(number).or_else(|| prepared.places.control(0));
            place.unwrap_or_else(|| prepared.places.server("control")).says(says)
        }));
        let mut locks = Vec::new();
        for (number, at) in prepared.control.iter().flatten().enumerate() {
            match Locks::read(at) {
                Ok(read) => locks.push(read),
                Err(why) => mistakes.extend(prepared.places.control(number).map(|place| place.says(why))),
            }
        }
        if mistakes.is_empty() {
            return Ok(Read { wanted: Some(wanted).filter(|_| !steps.is_empty()), locks, prepared, now });
        }
        Err(NotRead::Wrong(prepared.all(mistakes)))
    }

    /// Lets tokens and certificates of control be those that the files have now: a line for each that is another.
    fn lock_anew(&self, prepared: &Plan, locks: Vec<Locks>, dry_run: bool) -> Vec<String> {
        let places = prepared.control.iter().flatten().zip(locks).zip(&self.endpoints);
        let mut lines = Vec::new();
        for ((at, now), endpoint) in places {
            let at = place::show(&at.address);
            lines.extend(endpoint.locks().changed(&now).map(|what| format!("control {at}: other {what}")));
            if !dry_run {
                endpoint.set_locks(now);
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

struct Read {
    /// The configuration to reach; `None`: it is in force.
    wanted: Option<Edit>,
    /// The secrets and certificates of clients at the places of control.
    locks: Vec<Locks>,
    prepared: Plan,
    now: State,
}

impl ConfigFile for Reload {
    fn is_there(&self) -> bool {
        self.flags.config.is_some()
    }

    fn names(&self, export: &str) -> bool {
        self.last().config.exports.iter().any(|one| one.name == export)
    }

    fn changes<'a>(&'a self, edit: &'a mut Edit) -> Changes<'a> {
        let last = self.last();
        Changes::new(edit, &self.flags.ways, last.server.tls_verify_peer, last.server.gateway.clone())
    }

    fn warnings(&self, handle: &Handle) -> Vec<String> {
        let last = self.last();
        let Some(now) = handle.state() else { return Vec::new() };
        let is_there = |foreign: &&Foreign| backing(&now.config, &foreign.export) == foreign.backing;
        let foreign = self.foreign.iter().filter(is_there).map(|foreign| foreign.line.clone());
        last.lines(ineffective::warnings(&now.config, &last.places)).into_iter().chain(foreign).collect()
    }

    fn warnings_of(&self, config: &Config, steps: &[Step]) -> Vec<String> {
        ineffective::warnings_of(config, steps)
    }

    fn read_again(&self, handle: &Handle, version: Option<u64>, dry_run: bool) -> Result<ReadAgain, NotRead> {
        let _one_at_a_time = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let last = self.last();
        let mut again = 1..TRIES;
        let (Made { state, steps, suited }, locks, prepared) = loop {
            let Read { wanted, locks, prepared, now } = self.read(handle, &last, version)?;
            let Some(wanted) = wanted else {
                break (Made { state: now, steps: Vec::new(), suited: Vec::new() }, locks, prepared);
            };
            let put = |edit: &mut Edit| {
                *edit = wanted;
                Ok(())
            };
            match handle.change(put, Some(now.version), dry_run) {
                Ok(made) => break (made, locks, prepared),
                // Another change has come while the file was read. The caller has asked for no version.
                Err(Refused::Version { .. }) if version.is_none() && again.next().is_some() => {}
                Err(Refused::Change { of, why }) => {
                    let place = || Some(prepared.places.of(&of)?.says(&*why));
                    let mistake = prepared.places.locate_backing(&why).or_else(place);
                    let mistake = mistake.unwrap_or_else(|| Mistake::in_flag("", &*why));
                    return Err(NotRead::Wrong(prepared.all(vec![mistake])));
                }
                Err(other) => return Err(other.into()),
            }
        };
        let locks = self.lock_anew(&prepared, locks, dry_run);
        let by_file = difference(&last.config, &prepared.config.clone().into()).unwrap_or_default();
        let is_new = |step: &Step| by_file.iter().any(|one| (&one.of, one.what) == (&step.of, step.what));
        let line = |step: &Step| if is_new(step) { step.to_string() } else { format!("taken back: {step}") };
        let changes = steps.iter().map(line).chain(suited.iter().map(Step::to_string)).chain(locks).collect();
        let warnings = prepared.lines(ineffective::warnings(&state.config, &prepared.places));
        if !dry_run {
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(prepared);
        }
        Ok(ReadAgain { changes, warnings })
    }
}

fn backing(config: &Config, name: &str) -> Option<Backing> {
    config.exports.iter().find(|export| export.name == name).map(|export| export.backing.clone())
}

fn mistake(one: &Impossible, Plan { config, places, .. }: &Plan) -> Mistake {
    let place = match &one.of {
        // It begins with the address.
        Of::Server if one.key == "listen" => places.listener(one.says.split(' ').next().unwrap_or_default()),
        Of::Export(name) if one.key == "backing" => {
            let why = backing(config, name).as_ref().and_then(missing);
            return places
                .backing(name)
                .says(why.map_or_else(|| one.says.clone(), |why| format!("{why}; {}", one.says)));
        }
        Of::Server => places.server(one.key),
        of => places.of(of).unwrap_or_else(|| places.server(one.key)),
    };
    let key = if place.key.ends_with(one.key) { place.key } else { format!("{}.{}", place.key, one.key) };
    Mistake { at: place.at, key, says: one.says.clone() }
}
