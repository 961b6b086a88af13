//! `fairlift serve`: from flags to a server that runs until it is told to stop.

mod args;
mod captive;
mod carried;
mod confine;
mod ineffective;
mod learned;
mod log;
mod places;
mod plan;
mod reload;
mod repeats;
mod signals;
mod systemd;
mod take_over;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fairlift::config::{Address, Config, Disk, Tls, WayIn};
use fairlift::control::{State, tenants};
use fairlift::{Error, Foreign, Handle, Server};
use fairlift_core::GroupId;
use tracing_subscriber::filter::LevelFilter;

use crate::config;
use crate::control;
use crate::syntax::mistake::{Mistake, SettingPlace, Source, Wrong, render};
use crate::syntax::place;
use crate::terminal::complaint::Complaint;
use crate::terminal::output;
pub(crate) use args::ServeArgs;
use control::ConfigFile as _;
use learned::Kept;
use plan::Plan;
pub(crate) use plan::plan;
use reload::Reload;
use systemd::Passed;
use take_over::TakeOver;
pub(crate) use take_over::{COULD, READY, TAKEN};

/// Serves until drained. Wrong flags or config: status 2; what goes wrong later: 1.
pub(crate) fn serve(flags: &ServeArgs) -> ExitCode {
    let own = captive::directory();
    let done = match (&flags.run, &own) {
        (Some(command), None) if !flags.check => {
            captive::supervise(command).map_err(|error| Complaint::Failed(format!("--run: {error}")))
        }
        (Some(_), Some(directory)) => attempt(&captive::private(flags, directory)).map(|()| ExitCode::SUCCESS),
        _ => attempt(flags).map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|complaint| complaint.tell("serve"))
}

/// A start that fails after this time has waited for a lock. Chosen: half of the wait for a file's lock.
const PATIENCE: Duration = Duration::from_secs(5);

const NOT_STARTED: &str = "the server was not started";

/// Said where all that keeps a server of a file from starting is that another one has it: no mistake of the file.
fn beside(in_use: &[Mistake]) -> String {
    let what = match in_use.len() {
        1 => "that is in use".to_owned(),
        count => format!("these {count} are in use"),
    };
    let sockets = in_use.iter().filter_map(|one| one.says.split_once("unix:")?.1.split_once(": "));
    let pid = |path: &str| {
        let peer = UnixStream::connect(path).and_then(|there| Ok(rustix::net::sockopt::socket_peercred(&there)?));
        peer.ok().map(|peer| peer.pid.as_raw_nonzero().to_string())
    };
    let who: BTreeSet<_> = sockets.filter_map(|(path, _)| pid(path)).collect();
    let by = who.iter().map(|pid| format!(" by process {pid}")).collect::<Vec<_>>().join(" and");
    format!("no mistake was found in the file; it cannot start now, for {what}{by}\n")
}

/// The message of a check or a start of a file beside the server that may have it.
const BESIDE: &str =
    "\nif that server has this file: `fairlift reload --dry-run` checks it there, and lists the changes of a reload\n";

fn attempt(flags: &ServeArgs) -> Result<(), Complaint> {
    let is_beside = |mistake: &&Mistake| flags.config.is_some() && mistake.says.contains("another server");
    let not_started = |wrong: Wrong| match (wrong.mistakes.iter().filter(is_beside).count(), wrong.mistakes.len()) {
        (0, _) => wrong.shown(NOT_STARTED),
        (in_use, all) if in_use == all => {
            render("error: ", wrong.source.as_ref(), &wrong.mistakes) + &beside(&wrong.mistakes) + BESIDE
        }
        (in_use, _) => wrong.shown(&format!("{in_use} of them because another server has it; {NOT_STARTED}")) + BESIDE,
    };
    let refused = |wrong| Complaint::Refused(not_started(wrong));
    let no = |plan: &Plan, mistake| refused(plan.all(vec![mistake]));
    raise_file_limit();
    let take_over = |socket| TakeOver::begin(socket, flags.take_over_look);
    let mut take_over = flags.take_over.as_deref().map(take_over).transpose().map_err(Complaint::Failed)?;
    let Passed { sockets, mut learned } = match &mut take_over {
        Some(TakeOver { taking, .. }) => Passed { sockets: taking.inherited(), learned: None },
        None => systemd::passed().map_err(|says| Complaint::typed(&[Mistake::in_flag("LISTEN_FDS", says)]))?,
    };
    let prepared = prepare(flags, sockets.into_iter().map(Arc::new).collect()).map_err(|wrong| {
        match wrong.mistakes.iter().all(|one| one.at.is_some()) {
            true => Complaint::InFile(not_started(wrong)),
            false => Complaint::Typed(not_started(wrong)),
        }
    })?;
    if flags.check {
        let (in_force, warnings) = prepared.check().map_err(|wrong| {
            if wrong.mistakes.iter().all(|one| is_beside(&one)) {
                let warnings = ineffective::warnings_unopened(&prepared.config, &prepared.places);
                eprint!("{}", render("warning: ", prepared.source.as_ref(), &warnings));
            }
            refused(wrong)
        })?;
        eprint!("{}", render("warning: ", prepared.source.as_ref(), &warnings));
        println_or_not(&format!("ok: {}\n", summary(&in_force, warnings.len())));
        clients_of(&in_force).for_each(|line| println_or_not(&(line + "\n")));
        return Ok(());
    }
    let usual = if flags.run.is_some() { LevelFilter::WARN } else { LevelFilter::INFO };
    let _log = log::start(flags.log, usual, take_over.is_some());
    let begun = Instant::now();
    let server = match &mut take_over {
        Some(take_over) => take_over.open(&prepared)?,
        None => Server::bind(prepared.config.clone()).map_err(|error| {
            // A check finds more than the first mistake, but a lock that was waited for is not waited for again.
            let all = if begun.elapsed() < PATIENCE { prepared.check().err() } else { None };
            refused(all.unwrap_or_else(|| prepared.wrong(&[error])))
        })?,
    };
    let foreign = prepared.foreign(server.foreign()).map_err(|mistakes| refused(prepared.all(mistakes)))?;
    if let Some(TakeOver { taking, .. }) = &mut take_over {
        learned = taking.beside(Kept::handed_as(prepared.server.learned.as_deref())).map(File::from);
    }
    let mut kept = Kept::open(prepared.server.learned.as_deref(), learned, take_over.is_none())
        .map_err(|why| no(&prepared, prepared.places.server("learned").says(why)))?;
    if take_over.is_none() {
        kept.iter_mut().for_each(|kept| kept.tell(&server));
    }
    let taken = |name: &str| take_over.as_mut().and_then(|take_over| take_over.taking.beside(name));
    let endpoints = control::open(prepared.control.as_deref(), &prepared.config, taken)
        .map_err(|(number, why)| no(&prepared, prepared.no_control(number, &why)))?;
    let confined = confine::begin(&prepared.server, &prepared.config);
    confined.map_err(|why| no(&prepared, prepared.places.server("keep_capabilities").says(why)))?;
    let foreign: Vec<_> = server.foreign().iter().map(|one| one.export.clone()).zip(prepared.lines(foreign)).collect();
    foreign.iter().for_each(|(_, line)| tracing::warn!("{line}"));
    run(flags, prepared, server, (endpoints, take_over, kept), foreign)
        .map_err(|error| Complaint::Failed(error.to_string()))
}

impl Plan {
    /// Whether a server of it would start: the configuration that would be in force, and its settings that cannot act.
    fn check(&self) -> Result<(Config, Vec<Mistake>), Wrong> {
        // The backings opened here are closed again: that is not worth a line in the log.
        let quiet = tracing::subscriber::NoSubscriber::new();
        let checked = tracing::subscriber::with_default(quiet, || Server::check(&self.config));
        let endpoints = self.control.iter().flatten().enumerate();
        let closed = endpoints.filter_map(|(number, at)| Some(self.no_control(number, &at.check().err()?)));
        let checked = checked.map_err(|errors| self.wrong(&errors).mistakes);
        let checked = checked.and_then(|(in_force, foreign)| Ok((in_force, self.foreign(&foreign)?)));
        let mut mistakes = checked.as_ref().err().cloned().unwrap_or_default();
        mistakes.extend(closed);
        let learned = self.server.learned.iter().filter_map(|path| Kept::check(path).err());
        mistakes.extend(learned.map(|why| self.places.server("learned").says(why)));
        let kept = fairlift::confine::can_keep(&self.server.keep_capabilities);
        mistakes.extend(kept.err().map(|why| self.places.server("keep_capabilities").says(why.to_string())));
        match checked {
            Ok((in_force, mut warnings)) if mistakes.is_empty() => {
                warnings.extend(ineffective::warnings(&in_force, &self.places));
                Ok((in_force, warnings))
            }
            _ => Err(self.all(mistakes)),
        }
    }

    /// The warning for exports that begin as something else than a disk. A client can write such a header on its own disk: at a start from a
    /// file, where often nobody is there to answer, that keeps no other tenant away. An export that the command names is refused.
    fn foreign(&self, found: &[Foreign]) -> Result<Vec<Mistake>, Vec<Mistake>> {
        let is_refused = |one: &&Foreign| {
            let mut exports = self.config.exports.iter();
            self.places.named("export", &one.export).at.is_none()
                && exports.any(|it| it.name == one.export && !it.read_only)
        };
        let of = |one: &Foreign, says: String| self.places.named("export", &one.export).says(says);
        let refused = found.iter().filter(is_refused);
        let refused: Vec<_> =
            refused.map(|one| of(one, format!("{}; --read-only serves it as it is", one.why))).collect();
        let kept = |one: &Foreign| if one.is_kept { "it is served read-only: " } else { "" };
        let warnings = found.iter().map(|one| of(one, format!("{}{}", kept(one), one.why)));
        if refused.is_empty() { Ok(warnings.collect()) } else { Err(refused) }
    }

    fn all(&self, mistakes: Vec<Mistake>) -> Wrong {
        Wrong { source: self.source.clone(), mistakes }
    }

    /// Why a place of control cannot be had.
    fn no_control(&self, number: usize, why: &str) -> Mistake {
        let at = self.control.iter().flatten().nth(number).map_or_else(String::new, |at| place::show(&at.address));
        let place = self.places.control(number).unwrap_or_else(|| SettingPlace::in_flag("--control"));
        place.says(format!("cannot listen for control at {at}: {why}"))
    }

    /// Why a server of it does not start, with the places in the file.
    fn wrong(&self, errors: &[Error]) -> Wrong {
        self.all(errors.iter().map(|error| self.places.locate(error)).collect())
    }

    fn lines(&self, mistakes: Vec<Mistake>) -> Vec<String> {
        self.all(mistakes).lines()
    }
}

/// Reads and checks everything that can be checked without opening what is to be served.
fn prepare(flags: &ServeArgs, inherited: Vec<Arc<OwnedFd>>) -> Result<Plan, Wrong> {
    let source = flags.config.as_deref().map(read_source).transpose()?;
    let mut mistakes = Vec::new();
    let dir = flags.config.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
    let file = source.as_ref().map(|source| config::read(source, dir, &mut mistakes));
    let plan = plan(flags, file, inherited, &mut mistakes);
    if mistakes.is_empty() { Ok(Plan { source, ..plan }) } else { Err(Wrong { source, mistakes }) }
}

fn read_source(path: &Path) -> Result<Source, Wrong> {
    let name = path.display().to_string();
    let wrong = |says: String| {
        let mistakes = vec![Mistake::in_flag(&format!("--config {name}"), says)];
        Wrong { source: None, mistakes }
    };
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(config::LENGTH_MAX + 1).read_to_end(&mut bytes));
    read.map_err(|error| wrong(error.to_string()))?;
    let image = |what: &str| wrong(format!("this is no config file: {what} (an image? fairlift serve NAME={name})"));
    if bytes.contains(&0) {
        return Err(image("it has bytes that are no text"));
    }
    if bytes.len() as u64 > config::LENGTH_MAX {
        return Err(image("it has more than 16 MiB"));
    }
    String::from_utf8(bytes).map(|text| Source { name: name.clone(), text }).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let says = format!("not UTF-8 text: byte {valid} is 0x{:02x}", error.as_bytes()[valid]);
        let text = String::from_utf8_lossy(&error.as_bytes()[..valid]).into_owned();
        let mistakes = vec![Mistake { at: Some(valid..valid), key: String::new(), says }];
        Wrong { source: Some(Source { name, text }), mistakes }
    })
}

fn run(
    flags: &ServeArgs,
    prepared: Plan,
    server: Server,
    (endpoints, take_over, kept): (Vec<control::Opened>, Option<TakeOver>, Option<Kept>),
    foreign: Vec<(String, String)>,
) -> Result<(), Box<dyn std::error::Error>> {
    let handle = server.handle();
    let teach = flags.exports.is_empty() && flags.config.is_none() && flags.log != log::Format::Json;
    let has_block_devices = prepared.config.has_block_devices();
    let control: Vec<_> = endpoints.iter().map(|endpoint| &*endpoint.at).collect();
    let mut announced = announcement(&prepared.config, &server.addresses(), &control, teach);
    if flags.run.is_some() {
        captive::tell(&prepared.config, &server.addresses(), control.first().copied());
        announced.clear(); // What is printed is the command's.
    }
    let places = endpoints.iter().map(|opened| Arc::clone(&opened.who)).collect();
    let reload = Arc::new(Reload::new(flags.clone(), Arc::new(prepared), places, foreign));
    if let Some(State { config, .. }) = handle.state() {
        tenants_of(&config)
            .into_iter()
            .chain(clients_of(&config).take(NAMED))
            .for_each(|line| tracing::info!("{line}"));
    }
    reload.warnings(&handle).iter().for_each(|warning| tracing::warn!("{warning}"));
    let file = Arc::clone(&reload) as Arc<dyn control::ConfigFile>;
    let start = {
        let handed = kept.as_ref().and_then(Kept::hand_over);
        let process = Arc::new(control::StartedAs::now(captive::directory().is_some(), systemd::tell, handed));
        let handle = handle.clone();
        move |endpoints| {
            kept.map_or(Ok(()), |kept| kept.keep(handle.clone()))?;
            control::start(endpoints, handle, file, process)
        }
    };
    if let Some(take_over) = take_over {
        let _watch = signals::watch(handle.clone(), reload)?;
        let _control = take_over.begin_serving(handle, endpoints, start)?;
        server.run()?;
        tracing::info!("drained");
        return Ok(());
    }
    let _control = start(endpoints)?;
    let blocks = handle.clone();
    let _watch = signals::watch(handle, reload)?;
    let json = flags.log == log::Format::Json;
    announce(&announced, json);
    drop(announced); // It has a line for each export.
    if has_block_devices {
        std::thread::Builder::new().name("ready".into()).spawn(move || ready_with_block_devices(&blocks, json))?;
    } else {
        systemd::ready();
    }
    server.run()?;
    tracing::info!("drained");
    Ok(())
}

/// Says which block devices there are, once they are there: that needs the workers.
fn ready_with_block_devices(handle: &Handle, json: bool) {
    for device in handle.block_devices().into_iter().filter(|device| device.live) {
        let link = device.link.map_or_else(String::new, |link| format!(", {link}"));
        let again = if device.recovered { "again " } else { "" };
        announce(&format!("serving {} {again}as block device {}{link}\n", device.export, device.path), json);
    }
    systemd::ready();
}

/// A program that reads JSON may read both outputs.
fn announce(text: &str, json: bool) {
    match json {
        true => text.lines().for_each(|line| tracing::info!("{line}")),
        false => println_or_not(text),
    }
}

/// The exports and their places: a line with the URI for each export and place, one for each place of control, then, if asked, things to try.
fn announcement(config: &Config, bound: &[String], control: &[&str], teach: bool) -> String {
    let mut out = String::new();
    let mut first = None;
    for export in config.exports.iter() {
        for (listener, address) in config.listeners.iter().zip(bound_addresses(config, bound)) {
            let Some(uri) = place::uri(&address, listener.tls, &export.name) else { continue };
            let _ = writeln!(out, "serving {} ({}) at {uri}", export.name, export.backing.about().shown);
            first.get_or_insert(uri);
        }
        for found in export.ways.iter().filter_map(WayIn::found) {
            let _ = writeln!(out, "serving {} ({}) {found}", export.name, export.backing.about().shown);
        }
    }
    control.iter().for_each(|place| _ = writeln!(out, "control at {place}"));
    if let Some(uri) = first.filter(|_| teach) {
        let _ = write!(
            out,
            "try in another terminal:\n  \
             nbdinfo '{uri}'\n  \
             nbdcopy --progress '{uri}' null:\n  \
             fio --name=try --ioengine=nbd --uri='{uri}' --rw=randwrite --bs=4k --iodepth=32 --size=1g --runtime=10\n\
             Ctrl-C stops the server; `fairlift help serve` explains more\n"
        );
    }
    out
}

/// How many tenants of a disk are named in the log.
const NAMED: usize = 8;

/// How each disk is shared, a line each: `disk vda: fair, tenants /alice (weight 300), /bob (weight 100)`.
fn tenants_of(config: &Config) -> Vec<String> {
    let line = |(number, disk): (usize, &Disk)| {
        let tenants = tenants(config, number);
        let group = |id: &GroupId| &config.groups[usize::from(id.0)];
        let named = tenants.iter().take(NAMED).map(group).map(|one| format!("{} (weight {})", one.path, one.weight));
        let mut named = named.collect::<Vec<_>>().join(", ");
        if tenants.len() > NAMED {
            let _ = write!(named, " and {} more", tenants.len() - NAMED);
        }
        let (name, scheduler) = (&disk.name, disk.scheduler.name());
        match tenants.len() {
            0 => format!("disk {name}: {scheduler}, no export is on it"),
            1 => format!("disk {name}: {scheduler}, one tenant {named}"),
            _ if disk.scheduler.has_weights() => format!("disk {name}: {scheduler}, tenants {named}"),
            _ => format!("disk {name}: {scheduler}, which keeps no shares, tenants {named}"),
        }
    };
    config.disks.iter().enumerate().map(line).collect()
}

/// The rights of clients, a line each: `client alice, uid 1000: group /tenants/alice`.
fn clients_of(config: &Config) -> impl Iterator<Item = String> {
    config.clients.iter().map(|rule| format!("client {}, {rule}", rule.name))
}

/// The addresses as they came to be: with port 0 the kernel chose one.
fn bound_addresses(config: &Config, bound: &[String]) -> impl Iterator<Item = Address> {
    let bound = bound.iter().map(Some).chain(std::iter::repeat(None));
    config.listeners.iter().zip(bound).map(|(listener, bound)| {
        match (&listener.address, bound.map(|at| place::parse(at))) {
            (Address::Tcp(wanted), Some(Ok(Address::Tcp(bound)))) if wanted.port() == 0 => Address::Tcp(bound),
            (wanted, _) => wanted.clone(),
        }
    })
}

fn summary(config: &Config, warnings: usize) -> String {
    let count = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    let tls = config.listeners.iter().any(|listener| listener.tls != Tls::Off);
    format!(
        "{}, {}, {}, {}{}{}",
        count(config.exports.len(), "export"),
        count(config.disks.len(), "disk"),
        count(config.groups.iter().filter(|group| group.parent.is_some()).count(), "group"),
        count(config.listeners.len(), "listener"),
        if tls { " with TLS" } else { "" },
        if warnings > 0 { format!("; {}", count(warnings, "warning")) } else { String::new() }
    )
}

/// A reader that is gone is no reason to stop serving.
fn println_or_not(text: &str) {
    let _ = output::print(text.as_bytes());
}

/// Thousands of connections need more files than the usual 1024; the hard limit is the operator's word.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}

#[cfg(test)]
mod tests;
