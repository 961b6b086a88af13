//! The old server: it offers what it has, has its clients stand still, and gives them away.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use fairlift_core::record::Record;
use rustix::event::{EventfdFlags, eventfd};

use super::channel::{Channel, Message, is_end};
use super::{LEAVE, LOOK, PATIENCE, READY, with};
use crate::config::Address;
use crate::control::arrange::address;
use crate::device::Device;
use crate::export::hold::HeldClient;
use crate::export::service::Encryption;
use crate::kernel::abort::AbortOnPanic;
use crate::kernel::{heap, ktls};
use crate::server::{Handle, Shared};
use crate::wire::hand_over::VERSION;

/// Something that only the caller has, and hands over by a name that both know: a socket, an output.
pub struct Beside {
    /// Its name.
    pub name: String,
    /// The descriptor.
    pub descriptor: OwnedFd,
}

/// Nobody else hands over meanwhile.
struct UnderWay<'a>(&'a Shared);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.is_handed_over.store(false, Ordering::Release);
    }
}

impl Handle {
    /// Hands all clients to another server, which is at the other end of a connection; `false`: that one only looked whether it could take over.
    /// If it is done the clients stand still, the other server serves them, and the caller ends the process at once, without letting go of
    /// anything in an orderly way (upgrade.3).
    ///
    /// The other server begins with that `version` of the configuration; if there is another one by the time that it is ready, it is off.
    ///
    /// # Errors
    /// Why it was not done. The server serves on (upgrade.1).
    pub fn hand_over(&self, stream: UnixStream, version: u64, beside: &[Beside]) -> Result<bool, String> {
        // A thread that panics would leave clients held for ever.
        let _guard = AbortOnPanic;
        let shared = self.shared.upgrade().ok_or("the server has ended")?;
        let channel = Channel::new(stream).map_err(|error| error.to_string())?;
        let given = shared.hand_over(&channel, version, beside);
        if let Err(why) = &given {
            // It may have ended, which then is why.
            let _ = channel.tell("off", with("why", why));
        }
        given
    }

    /// Ends what would outlive this process elsewhere, for a caller that ends it at once: it has handed over, or does not take over.
    pub fn let_go(&self) {
        let devices = self.shared.upgrade().map(|shared| shared.devices()).unwrap_or_default();
        devices.iter().for_each(|(_, device)| device.let_go());
    }

    /// Why another server could not take over now, as far as that can be told before; and a line for each thing that it would take over.
    ///
    /// # Errors
    /// Each thing that is in the way, a line each.
    pub fn plan_hand_over(&self) -> Result<Vec<String>, Vec<String>> {
        // Exports that were removed go in a moment.
        let until = Instant::now() + LEAVE;
        let leaves = |shared: Arc<Shared>| shared.served.is_leaving() || shared.live().is_leaving();
        while self.shared.upgrade().is_some_and(leaves) && Instant::now() < until {
            self.sweep();
            std::thread::sleep(LOOK / 10);
        }
        self.shared.upgrade().ok_or_else(|| vec!["the server has ended".to_owned()])?.plan_hand_over()
    }
}

fn no_answer(error: io::Error) -> String {
    match is_end(&error) {
        true => "the new server has ended; its own messages say why".into(),
        false => format!("the new server: {error}"),
    }
}

impl Shared {
    fn plan_hand_over(&self) -> Result<Vec<String>, Vec<String>> {
        let mut in_the_way = Vec::new();
        let state = self.live().state();
        for export in state.config.exports.iter() {
            let name = &export.name;
            in_the_way.extend(export.ways.iter().filter_map(|way| Some(format!("export {name:?}: {}", way.stays()?))));
        }
        let service = &self.served.service;
        let (mut files, mut links) = (BTreeSet::new(), 0);
        for (name, device) in self.devices() {
            links += device.links(&mut Record::default()).len();
            match Arc::clone(&device).hand_over() {
                Ok(some) => files.extend(some.iter().map(|file| file.as_fd().as_raw_fd())),
                Err(why) => in_the_way.push(format!("export {name:?}: its backing ({}) {why}", device.called())),
            }
        }
        in_the_way.extend(self.failed_flushes());
        let flushed_last = self.live().flushed_last();
        in_the_way.extend(flushed_last.iter().map(|path| {
            format!("the last flush of {path}, whose export was removed, has not ended; if it does not hang, try again in a moment")
        }));
        if flushed_last.is_empty() && (self.served.is_leaving() || self.live().is_leaving()) {
            in_the_way.push("something was removed, and has not quite gone; try again in a moment".into());
        }
        let clients = service.clients();
        let encrypted = |by| clients.values().filter(|client| client.unsent.encryption() == Some(by)).count();
        let [bound, ours, kernels] = [Encryption::Bound, Encryption::Process, Encryption::Kernel].map(encrypted);
        let by_kernel = ours == 0 || ktls::is_there();
        let (moved, closed) = if by_kernel { (kernels + ours, bound) } else { (kernels, bound + ours) };
        in_the_way.extend(self.served.stays());
        if !in_the_way.is_empty() {
            return Err(in_the_way);
        }
        let devices = self.served.devices().iter().filter(|device| device.live).count();
        let count = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
        let go = |number: usize| if number == 1 { "goes over" } else { "go over" };
        let by_tls = if moved > 0 { format!(", {moved} of them with TLS, by the kernel's") } else { String::new() };
        let connections = clients.len().saturating_sub(devices + closed);
        let listeners = count(service.listeners.list().len(), "listener");
        let mut plan = vec![
            format!("{} {}{by_tls}", count(connections, "connection"), go(connections)),
            format!("{listeners} and {} go over open", count(files.len(), "file")),
            "the schedulers' learned state, counters and the numbers of events go on".into(),
        ];
        if links > 0 {
            plan.push(format!("{} to other servers {} open", count(links, "connection"), go(links)));
        }
        if devices > 0 {
            let of = count(devices, "block device");
            plan.push(format!("the kernel keeps what is asked of {of} until the new server has it"));
        }
        if closed > 0 {
            let unloaded = " (the kernel's TLS could take them over, and is not loaded: modprobe tls)";
            let remedy = if by_kernel { "" } else { unloaded };
            plan.push(format!(
                "{} with TLS to be closed once all is answered; their clients connect again{remedy}",
                count(closed, "connection")
            ));
        }
        Ok(plan)
    }

    /// Each failed flush that is not acknowledged, a line each.
    fn failed_flushes(&self) -> impl Iterator<Item = String> {
        let failed = self.backend.disks.all().into_iter().flat_map(|(_, disk)| disk.flush_errors());
        failed.map(|(device, errno)| {
            let error = io::Error::from_raw_os_error(errno.0);
            let says = "and a new server would not know of it; fairlift acknowledge, once you know what was lost";
            format!("a flush of {} failed ({error}), {says}", device.called())
        })
    }

    /// The devices that exports show, each by the name of the first export of it.
    pub(super) fn devices(&self) -> Vec<(String, Arc<dyn Device>)> {
        let mut named = HashMap::new();
        for export in &self.served.service.exports().list {
            named.entry(address(&export.device)).or_insert_with(|| export.name.clone());
        }
        let all = self.backend.disks.all().into_iter().flat_map(|(_, disk)| disk.devices());
        all.map(|device| (named.get(&address(&device)).cloned().unwrap_or_default(), device)).collect()
    }

    fn hand_over(&self, channel: &Channel, version: u64, beside: &[Beside]) -> Result<bool, String> {
        if self.is_handed_over.swap(true, Ordering::AcqRel) {
            return Err("another server is taking over already".into());
        }
        let under_way = UnderWay(self);
        if self.served.service.hold.is_on() {
            return Err("the server has not taken over itself yet".into());
        }
        let goes_on = || if self.is_draining() { Err("the server ends".to_owned()) } else { Ok(()) };
        goes_on()?;
        let plan = self.plan_hand_over().map_err(|all| all.join("\n"))?;
        let off = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| error.to_string())?;
        self.offer(channel, (&plan, beside), off.as_fd()).map_err(no_answer)?;
        match channel.receive(Instant::now() + READY, &goes_on) {
            Ok(Message { name, .. }) if name == "ready" => {}
            Ok(Message { name, .. }) if name == "looked" => return Ok(false),
            Ok(Message { mut says, .. }) => {
                let why = says.need::<String>("why").unwrap_or_else(|_| "the new server does not want it".into());
                return Err(why);
            }
            Err(why) => return Err(no_answer(why)),
        }
        heap::give_back(); // upgrade.7
        // Nothing is forked or changed meanwhile.
        let forks = self.forks.try_write().map_err(|_| "an export is just being forked; try again in a moment")?;
        let live = self.live();
        let now = live.state().version;
        if now != version {
            return Err(format!(
                "the configuration has been changed meanwhile (version {version} before, {now} now); try again in a moment"
            ));
        }
        let (hold, notifiers) = (&self.served.service.hold, &self.backend.notifiers);
        let began = Instant::now();
        hold.begin(notifiers);
        let given = hold.wait(began + PATIENCE, goes_on).and_then(|clients| {
            tracing::info!(clients = clients.len(), "all clients stand still, after {:.1?}", began.elapsed());
            self.failed_flushes().next().map_or(Ok(()), Err)?; // since the plan
            // Nothing is counted or learned any more.
            let begins_with = self.hand_on(&live.groups().into_iter().collect(), true);
            self.give_devices(channel)?;
            self.give(channel, (clients, version, &begins_with), &goes_on).map_err(no_answer)
        });
        if given.is_err() {
            // upgrade.2
            rustix::io::write(&off, &1u64.to_ne_bytes()).map_err(|error| error.to_string()).unwrap_or_else(|why| {
                panic!("an event of our own cannot be written: {why}") // which ends the process: two servers would serve
            });
            hold.end(notifiers);
            return given.map(|()| false);
        }
        tracing::info!("the new server has them, after {:.1?}", began.elapsed());
        std::mem::forget((under_way, off, live, forks)); // nothing is changed any more, nor handed over twice
        Ok(true)
    }

    /// Names and descriptors of all that a new server needs to open what it is to serve.
    fn offer(&self, channel: &Channel, (plan, others): (&[String], &[Beside]), off: BorrowedFd<'_>) -> io::Result<()> {
        let mut says = Record::default();
        says.put("version", &VERSION);
        says.put("program", &env!("CARGO_PKG_VERSION"));
        says.put("plan", &plan);
        let config = self.live().state().config;
        let usual = config.disks.iter().filter(|disk| disk.is_usual);
        // Beside the text, which is bounded: there are as many disks as exports.
        let mut beside = Record::default();
        beside.put("schedulers", &usual.map(|disk| (&*disk.name, disk.scheduler.name())).collect::<BTreeMap<_, _>>());
        channel.send("offer", says, beside.to_string().as_bytes(), &[off])?;
        for listening in self.served.service.listeners.list().values() {
            let mut says = with("name", &listening.name);
            let inherited = config
                .listeners
                .iter()
                .any(|one| matches!(one.address, Address::Inherited(_)) && one.address.to_string() == listening.name);
            says.put("inherited", &inherited);
            channel.send("listener", says, &[], &[listening.fd.as_fd()])?;
        }
        for Beside { name, descriptor } in others {
            channel.send("beside", with("name", name), &[], &[descriptor.as_fd()])?;
        }
        // A base that many lie over goes once.
        let mut sent = BTreeSet::new();
        for (export, device) in self.devices() {
            let files = Arc::clone(&device).hand_over().map_err(io::Error::other)?;
            let files: Vec<_> =
                files.iter().map(|file| file.as_fd()).filter(|file| sent.insert(file.as_raw_fd())).collect();
            if !files.is_empty() {
                channel.send("files", with("export", &export), &[], &files)?;
            }
            let mut says = Record::default();
            let links = device.links(&mut says);
            if !says.is_empty() {
                let links: Vec<_> = links.iter().map(|link| link.as_fd()).collect();
                // Not by another name: a version that does not know them refuses files that no export of it is.
                channel.send("files", says, &[], &links)?;
            }
        }
        channel.tell("offered", Record::default())
    }

    /// Tells the state of devices that have one, while nothing is asked of them.
    fn give_devices(&self, channel: &Channel) -> Result<(), String> {
        let until = Instant::now() + PATIENCE; // upgrade.4
        for (export, device) in self.devices() {
            if Instant::now() > until {
                return Err("the disks took longer than 2 s to be told; try again when they are less busy".into());
            }
            let mut says = Record::default();
            let bytes = device.hand_on(&mut says).map_err(|why| format!("export {export:?}: its backing {why}"))?;
            if !bytes.is_empty() || !says.is_empty() {
                says.put("export", &export);
                channel.send("device", says, &bytes, &[]).map_err(no_answer)?;
            }
        }
        Ok(())
    }

    /// Gives clients that stand still away; once the new server has them all, they are its own (upgrade.3).
    fn give(
        &self,
        channel: &Channel,
        (clients, version, begins_with): (Vec<HeldClient>, u64, &Record),
        goes_on: &dyn Fn() -> Result<(), String>,
    ) -> io::Result<()> {
        let mut says = Record::default();
        says.put("clients", &clients.len());
        says.put("version", &version);
        for HeldClient { descriptors, says, bytes } in clients {
            let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            channel.send("client", says, &bytes, &descriptors)?;
        }
        channel.send("all", says, begins_with.to_string().as_bytes(), &[])?;
        let Message { name, mut says, .. } = channel.receive(Instant::now() + PATIENCE, goes_on)?;
        if name != "accepted" {
            let why = says.need("why").unwrap_or_else(|_| format!("it says \"{name}\""));
            return Err(io::Error::other(why));
        }
        channel.tell("yours", Record::default())
    }
}
