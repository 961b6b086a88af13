//! The new server: it opens what the old one offers, says that it is ready, and takes the clients.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fairlift_core::record::Record;
use fairlift_core::sched::Kind;

use super::channel::{Channel, Message, is_end};
use super::{READY, with};
use crate::Error;
use crate::config::{Address, Config, Listener};
use crate::control::arrange::address;
use crate::device::handed::{HandedFiles, Links};
use crate::export::hold::HeldClient;
use crate::export::listen::Listening;
use crate::kernel::abort::AbortOnPanic;
use crate::kernel::heap;
use crate::server::{Handle, Server, Shared};
use crate::wire::hand_over::VERSION;

/// How long it may take until the process lock of a file is free, whose old server has ended.
const LOCKS: Duration = Duration::from_secs(60);
/// How many bytes are to be left for the clients that come (upgrade.7). Chosen: what the allocator reserves for one thread.
const SPARE: usize = 64 << 20;

/// The offer of a running server.
pub struct Taking {
    channel: Channel,
    off: OwnedFd,
    plan: Vec<String>,
    /// By their names, and whether the service manager had made them.
    listeners: Vec<(String, bool, OwnedFd)>,
    beside: Vec<(String, OwnedFd)>,
    pub(in crate::server) files: HandedFiles,
    /// Of disks whose scheduler nobody named, by their names; `None`: it does not tell.
    pub(in crate::server) schedulers: Option<BTreeMap<String, Kind>>,
}

fn ended(error: io::Error) -> String {
    match is_end(&error) {
        true => "the running server has ended the connection".into(),
        false => format!("the running server: {error}"),
    }
}

impl Taking {
    /// Hears what the server at the other end of a connection offers.
    ///
    /// # Errors
    /// Why it does not, a line each; or it speaks another version.
    pub fn begin(stream: UnixStream) -> Result<Self, String> {
        let channel = Channel::new(stream).map_err(|error| error.to_string())?;
        let until = Instant::now() + READY;
        let next = || channel.receive(until, &|| Ok(())).map_err(ended);
        let Message { name, mut says, bytes, descriptors } = next()?;
        if name != "offer" {
            return Err(says
                .need("why")
                .unwrap_or_else(|_| format!("the running server says \"{name}\", not what it offers")));
        }
        let version: u32 = says.need("version").map_err(|why| why.to_string())?;
        if version != VERSION {
            let program: String = says.need("program").unwrap_or_default();
            return Err(format!(
                "the running server (fairlift {program}) hands over by version {version} of the protocol, and this one takes {VERSION}"
            ));
        }
        let plan = says.need("plan").unwrap_or_default();
        let mut beside = Record::parse(&String::from_utf8_lossy(&bytes)).unwrap_or_default();
        let usual: Option<BTreeMap<String, String>> = beside.take("schedulers").ok().flatten();
        let kind = |(disk, name): (String, String)| Some((disk, Kind::from_name(&name)?));
        let schedulers = usual.map(|usual| usual.into_iter().filter_map(kind).collect());
        let off = HeldClient::only(descriptors)?;
        let (mut listeners, mut beside, mut files) = (Vec::new(), Vec::new(), HandedFiles::default());
        loop {
            let Message { name, mut says, descriptors, .. } = next()?;
            let named = |says: &mut Record| says.need::<String>("name").map_err(|why| why.to_string());
            match name.as_str() {
                "listener" => {
                    let inherited = says.need("inherited").unwrap_or_default();
                    listeners.push((named(&mut says)?, inherited, HeldClient::only(descriptors)?));
                }
                "beside" => beside.push((named(&mut says)?, HeldClient::only(descriptors)?)),
                "files" => {
                    if let Ok(Some(name)) = says.take("name") {
                        files.add_links(name, Links { sockets: descriptors, says });
                        continue;
                    }
                    let export: String = says.take("export").ok().flatten().unwrap_or_default();
                    let add = |file| files.add(&export, file).map_err(|error| error.to_string());
                    descriptors.into_iter().try_for_each(add)?;
                }
                "offered" => break,
                "off" => return Err(says.need("why").unwrap_or_default()),
                other => tracing::warn!("the running server offers \"{other}\", which is unknown here, and is ignored"),
            }
        }
        Ok(Self { channel, off, plan, listeners, beside, files, schedulers })
    }

    /// The plan: a line for each kind of thing that goes over.
    #[must_use]
    pub fn plan(&self) -> &[String] {
        &self.plan
    }

    /// The listening sockets that the service manager had made.
    pub fn inherited(&mut self) -> Vec<OwnedFd> {
        self.listeners.extract_if(.., |(_, inherited, _)| *inherited).map(|(.., socket)| socket).collect()
    }

    /// The descriptor that the other side's caller hands over by a name.
    pub fn beside(&mut self, name: &str) -> Option<OwnedFd> {
        let at = self.beside.iter().position(|(there, _)| there == name)?;
        Some(self.beside.swap_remove(at).1)
    }

    pub(in crate::server) fn listen(&mut self, configured: &[Listener]) -> Result<Vec<Listening>, Error> {
        let socket = |listener: &Listener| {
            let name = listener.address.to_string();
            if let Address::Inherited(socket) = &listener.address {
                let fail = |error: io::Error| Error::Listen { address: name, why: error.to_string() };
                return Ok(Listening::adopt(listener, socket.try_clone().map_err(fail)?));
            }
            // With port 0 the kernel had chosen one.
            let any_port = name.strip_suffix(":0");
            let is_it = |there: &String| {
                *there == name
                    || any_port.is_some_and(|host| there.rsplit_once(':').is_some_and(|(its, _)| its == host))
            };
            let at = self.listeners.iter().position(|(there, ..)| is_it(there)).ok_or_else(|| Error::Listen {
                address: name.clone(),
                why: "the running server does not listen there; fairlift reload, then upgrade".into(),
            })?;
            Ok(Listening::adopt(listener, self.listeners.swap_remove(at).2))
        };
        let all = configured.iter().map(socket).collect::<Result<_, _>>()?;
        match self.listeners.first() {
            None => Ok(all),
            Some((name, ..)) => Err(Error::Listen {
                address: name.clone(),
                why: "the running server listens there, and the config does not say so; fairlift reload, then upgrade"
                    .into(),
            }),
        }
    }

    /// Lets the running server go on: it was only to be seen whether this one could take over.
    pub fn only_look(self) {
        // It goes on in any case.
        let _ = self.channel.tell("looked", Record::default());
    }

    /// Lets the running server go on, for this reason.
    pub fn refuse(&self, why: &str) {
        let _ = self.channel.tell("refused", with("why", why)); // it may have ended
    }

    /// Takes the clients of the running server, which then ends; they are served here from now on. The server of the handle was [made for
    /// that](Server::take_over), and runs. `is_ready` is called when its workers are, before anything changes: it may say why nothing shall.
    ///
    /// # Errors
    /// Why not: the other server serves on, or has ended before all was handed over. The caller ends the process at once, without letting go of
    /// anything in an orderly way.
    pub fn finish(self, handle: &Handle, is_ready: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
        // A thread that panics would leave clients held for ever.
        let _guard = AbortOnPanic;
        let shared = handle.shared.upgrade().ok_or("the new server has ended")?;
        self.take_clients(&shared, is_ready).inspect_err(|why| self.refuse(why))?;
        for listening in shared.served.service.listeners.list().values() {
            listening.is_ours();
        }
        shared.served.service.changed(); // a disk may be to be flattened
        shared.served.service.hold.end(&shared.backend.notifiers);
        let locks = move || shared.hold_locks();
        if let Err(error) = std::thread::Builder::new().name("locks".into()).spawn(locks) {
            tracing::error!(%error, "process locks of files are not taken: another server would wait for 10 s before it is refused");
        }
        Ok(())
    }

    fn take_clients(&self, shared: &Shared, is_ready: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
        let hold = &shared.served.service.hold;
        hold.wait(Instant::now() + READY, || Ok(())).map_err(|why| format!("the new workers are not ready: {why}"))?;
        is_ready()?;
        heap::give_back(); // upgrade.7
        self.channel.tell("ready", Record::default()).map_err(ended)?;
        let until = Instant::now() + READY;
        let next = || self.channel.receive(until, &|| Ok(())).map_err(ended);
        let (mut coming, mut states) = (Vec::new(), BTreeMap::new());
        let (version, begins_with) = loop {
            let Message { name, mut says, bytes, descriptors } = next()?;
            match name.as_str() {
                "client" => {
                    let protocol: String = says.need("protocol").map_err(|why| why.to_string())?;
                    coming.push(shared.served.take_over(&protocol, HeldClient { descriptors, says, bytes })?);
                }
                "device" => {
                    let export: String = says.need("export").map_err(|why| why.to_string())?;
                    states.insert(export, (says, bytes));
                }
                "all" => {
                    let count: usize = says.need("clients").map_err(|why| why.to_string())?;
                    if count != coming.len() {
                        return Err(format!("{} of {count} clients came", coming.len()));
                    }
                    shared.go_on_with(states)?;
                    break (says.take("version").ok().flatten(), bytes);
                }
                "off" => return Err(says.need("why").unwrap_or_default()),
                other => return Err(format!("the running server says \"{other}\" where its clients should come")),
            }
        };
        if !heap::could_have(SPARE) {
            return Err(format!("less than {} MiB of memory are left for its clients (see ulimit -v)", SPARE >> 20)); // upgrade.7
        }
        self.channel.tell("accepted", Record::default()).map_err(ended)?;
        // Much longer than the other side takes to decide: leaving just then would leave the clients to nobody.
        match self.channel.receive(Instant::now() + READY, &|| Ok(())) {
            Ok(Message { name, .. }) if name == "yours" => {}
            Ok(Message { mut says, .. }) => return Err(says.need("why").unwrap_or_default()),
            Err(error) if is_end(&error) => {
                tracing::warn!("the previous server has died while it handed over; all was here");
            }
            Err(error) => return Err(ended(error)),
        }
        // upgrade.2
        match rustix::io::read(&self.off, &mut [0; 8]) {
            Err(rustix::io::Errno::AGAIN) => {}
            Ok(_) => return Err("the running server serves on".into()),
            Err(error) => return Err(format!("it cannot be told whether the running server serves on: {error}")),
        }
        // upgrade.7
        shared.begin_with(&begins_with);
        shared.live().version = version.unwrap_or_default(); // an older server does not tell it
        coming.into_iter().for_each(|client| client());
        Ok(())
    }
}

impl Server {
    /// As [`bind`](Self::bind), from a running server's offer. No client is served before [`Taking::finish`].
    ///
    /// # Errors
    /// As there, or something was not offered.
    ///
    /// # Panics
    /// As there.
    pub fn take_over(config: Config, taking: &mut Taking) -> Result<Self, Error> {
        Self::build(config, Some(taking))
    }
}

impl Shared {
    /// Begins with the knowledge and the counters of the previous server, as far as they can be read.
    fn begin_with(&self, text: &[u8]) {
        let left_out = match Record::parse(&String::from_utf8_lossy(text)) {
            Ok(record) => self.take_on(record, fairlift_core::Duration::ZERO),
            Err(why) => vec![why],
        };
        for why in left_out {
            tracing::warn!("a part of the previous server's learned state and counters is left out: {why}");
        }
    }

    fn go_on_with(&self, mut states: BTreeMap<String, (Record, Vec<u8>)>) -> Result<(), String> {
        // The first export of a device may be another one there: they came in another order.
        let (exports, mut names) = (self.served.service.exports(), HashMap::<_, Vec<&str>>::new());
        exports.list.iter().for_each(|export| names.entry(address(&export.device)).or_default().push(&export.name));
        for (export, device) in self.devices() {
            let mut names = names.get(&address(&device)).into_iter().flatten();
            let (mut says, bytes) = names.find_map(|name| states.remove(*name)).unwrap_or_default();
            device.take_on(&mut says, &bytes).map_err(|why| format!("export {export:?}: its backing: {why}"))?;
        }
        match states.pop_first() {
            None => Ok(()),
            Some((export, _)) => Err(format!("export {export:?} has a state there, and none here")),
        }
    }

    /// Takes the process locks of files, once the process that had them has ended (upgrade.5).
    fn hold_locks(self: Arc<Self>) {
        let mut files: Vec<_> = self.backend.disks.all().into_iter().flat_map(|(_, disk)| disk.devices()).collect();
        let shared = Arc::downgrade(&self);
        drop(self);
        let begun = Instant::now();
        while shared.strong_count() > 0 {
            files.retain(|device| !device.has_gone_over());
            if files.is_empty() {
                return;
            }
            if begun.elapsed() > LOCKS {
                let names: Vec<_> = files.iter().map(|device| device.called()).collect();
                tracing::warn!(?names, "another process holds process locks of these files; their own locks are ours");
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
