//! The old server: it offers what it has, has its clients stand still, and gives them away.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use fairlift_core::record::Record;
use rustix::event::{EventfdFlags, eventfd};

use super::channel::{Channel, Message, NoMessage};
use super::{PATIENCE, READY};
use crate::config::Address;
use crate::device::Device;
use crate::export::hold::HeldClient;
use crate::kernel::abort::AbortOnPanic;
use crate::server::{Handle, Shared};
use crate::wire::hand_over::VERSION;

/// Something that only the caller has, and hands over by a name that both know: a socket, an output.
pub struct Beside {
    /// Its name.
    pub name: String,
    /// The descriptor.
    pub descriptor: OwnedFd,
}

/// The question of another server.
pub struct HandOver {
    /// The connection to it.
    pub stream: UnixStream,
    /// The version of the configuration that it begins with; if there is another one by the time that it is ready, it is off.
    pub version: u64,
    /// The descriptors that the caller hands over beside.
    pub beside: Vec<Beside>,
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
    /// # Errors
    /// Why it was not done. The server serves on (upgrade.1).
    pub fn hand_over(&self, asked: HandOver) -> Result<bool, String> {
        // A thread that panics would leave clients held for ever.
        let _guard = AbortOnPanic;
        let shared = self.shared.upgrade().ok_or("the server has ended")?;
        let HandOver { stream, version, beside } = asked;
        let channel = Channel::new(stream).map_err(|error| error.to_string())?;
        let given = shared.hand_over(&channel, version, &beside);
        if let Err(why) = &given {
            // It may have ended, which then is why.
            let _ = channel.tell("off", with("why", why));
        }
        given
    }

    /// Why another server could not take over now, as far as that can be told before; and what it would take over, a line each.
    ///
    /// # Errors
    /// Each thing that is in the way, a line each.
    pub fn plan_hand_over(&self) -> Result<Vec<String>, Vec<String>> {
        self.shared.upgrade().ok_or_else(|| vec!["the server has ended".to_owned()])?.plan_hand_over()
    }
}

fn with(part: &str, what: &str) -> Record {
    let mut says = Record::default();
    says.put(part, &what);
    says
}

fn no_answer(why: NoMessage) -> String {
    match why {
        NoMessage::Ended => "the new server has ended; its own messages say why".into(),
        NoMessage::Failed(why) => format!("the new server: {why}"),
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
        let exports = service.exports();
        let mut files = 0;
        for device in self.devices() {
            match device.hand_over() {
                Ok(some) => files += some.len(),
                Err(why) => {
                    let name =
                        exports.list.iter().find(|one| Arc::ptr_eq(&one.device, &device)).map_or("", |one| &one.name);
                    in_the_way.push(format!("export {name:?}: its backing ({}) {why}", device.called()));
                }
            }
        }
        for (_, disk) in self.backend.disks.all() {
            if let Some((device, errno)) = disk.flush_error() {
                let error = std::io::Error::from_raw_os_error(errno.0);
                let says = "and a new server would not know of it; fairlift acknowledge, once you know what was lost";
                in_the_way.push(format!("a flush of {} failed ({error}), {says}", device.called()));
            }
        }
        if self.served.is_leaving() || self.live().is_leaving() {
            in_the_way.push("something was removed, and clients have not left it yet; try again in a moment".into());
        }
        let clients = service.clients();
        let encrypted = clients.values().filter(|client| client.unsent.is_encrypted()).count();
        if encrypted > 0 {
            in_the_way.push(format!("connections with TLS: {encrypted}; their keys cannot be handed over yet"));
        }
        in_the_way.extend(self.served.stays());
        if !in_the_way.is_empty() {
            return Err(in_the_way);
        }
        let devices = self.served.devices().iter().filter(|device| device.live).count();
        let count = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
        let mut plan = vec![
            format!("{} go over", count(clients.len() - devices.min(clients.len()), "connection")),
            format!("{} and {} go over open", count(service.listeners.list().len(), "listener"), count(files, "file")),
            "what schedulers have learned, counters and the numbers of events go on".into(),
        ];
        if devices > 0 {
            plan.push(format!(
                "the kernel keeps what is asked of {} until the new server has it",
                count(devices, "block device")
            ));
        }
        Ok(plan)
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.backend.disks.all().into_iter().flat_map(|(_, disk)| disk.devices()).collect()
    }

    fn hand_over(&self, channel: &Channel, version: u64, beside: &[Beside]) -> Result<bool, String> {
        if self.is_handed_over.swap(true, Ordering::AcqRel) {
            return Err("another server is taking over already".into());
        }
        let under_way = UnderWay(self);
        if self.served.service.hold.is_on() {
            return Err("the server has not taken over itself yet".into());
        }
        let goes_on = || match self.served.service.draining.load(Ordering::Acquire) {
            true => Err("the server ends".to_owned()),
            false => Ok(()),
        };
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
        // Nothing is changed meanwhile.
        let live = self.live();
        let now = live.state().version;
        if now != version {
            return Err(format!("the configuration has been changed meanwhile (version {version} before, {now} now)"));
        }
        let (hold, notifiers) = (&self.served.service.hold, &self.backend.notifiers);
        hold.begin(notifiers);
        let given = hold.wait(Instant::now() + PATIENCE, goes_on).and_then(|clients| {
            // Nothing is counted or learned any more.
            let begins_with = self.hand_on_of(&live.groups().into_iter().collect(), true);
            self.give(channel, (clients, &begins_with), &goes_on).map_err(no_answer)
        });
        if given.is_err() {
            // upgrade.2
            rustix::io::write(&off, &1u64.to_ne_bytes()).map_err(|error| error.to_string()).unwrap_or_else(|why| {
                panic!("an event of our own cannot be written: {why}") // which ends the process: two servers would serve
            });
            hold.end(notifiers);
            return given.map(|()| false);
        }
        std::mem::forget((under_way, off, live)); // nothing is changed any more, nor handed over twice
        Ok(true)
    }

    /// Names and descriptors of all that a new server needs to open what it is to serve.
    fn offer(
        &self,
        channel: &Channel,
        (plan, beside): (&[String], &[Beside]),
        off: BorrowedFd<'_>,
    ) -> Result<(), NoMessage> {
        let mut says = Record::default();
        says.put("version", &VERSION);
        says.put("program", &env!("CARGO_PKG_VERSION"));
        says.put("plan", &plan);
        channel.send("offer", says, &[], &[off])?;
        let said = self.live().state().config.listeners.clone();
        for listening in self.served.service.listeners.list().values() {
            let mut says = with("name", &listening.name);
            let inherited = said
                .iter()
                .any(|one| matches!(one.address, Address::Inherited(_)) && one.address.to_string() == listening.name);
            says.put("inherited", &inherited);
            channel.send("listener", says, &[], &[listening.fd.as_fd()])?;
        }
        for Beside { name, descriptor } in beside {
            channel.send("beside", with("name", name), &[], &[descriptor.as_fd()])?;
        }
        for device in self.devices() {
            // Lent, not copied: a copy that is closed would take the process lock with it.
            let files = device.hand_over().map_err(NoMessage::Failed)?;
            if !files.is_empty() {
                channel.send("files", Record::default(), &[], &files)?;
            }
        }
        channel.tell("offered", Record::default())
    }

    /// Gives clients that stand still away; once the new server has them all, they are its own (upgrade.3).
    fn give(
        &self,
        channel: &Channel,
        (clients, begins_with): (Vec<HeldClient>, &Record),
        goes_on: &dyn Fn() -> Result<(), String>,
    ) -> Result<(), NoMessage> {
        let mut says = Record::default();
        says.put("clients", &clients.len());
        for HeldClient { descriptors, says, bytes } in clients {
            let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            channel.send("client", says, &bytes, &descriptors)?;
        }
        channel.send("all", says, begins_with.to_string().as_bytes(), &[])?;
        let Message { name, mut says, .. } = channel.receive(Instant::now() + PATIENCE, goes_on)?;
        if name != "accepted" {
            return Err(NoMessage::Failed(says.need("why").unwrap_or_else(|_| format!("it says \"{name}\""))));
        }
        channel.tell("yours", Record::default())
    }
}
