//! The protocols by which clients reach exports: a row for each.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fairlift_core::Instant;

use super::front::{Clients as _, Coming, Front, OF_EVENT, OF_TICKET, Opening, Protocol};
use super::hold::{HeldClient, Report};
use super::service::Service;
use super::{DeviceView, Export, flatten, nbd, ublk, vhost_user};
use crate::disk::engine::{Engine, News};
use crate::kernel::ring::{Choice, Completion};
use crate::{Error, config};

/// How often it is looked whether clients stand still, where nothing else happens. Chosen: a tenth of the time that a client may take for a
/// part of a record.
const LOOK: fairlift_core::Duration = fairlift_core::time::ms(25);

macro_rules! protocols {
    ($($(#[$built:meta])* $name:ident: $protocol:ty,)*) => {
        /// The exports served, and the state of each protocol at all workers.
        pub(crate) struct Served {
            pub(crate) service: Arc<Service>,
            $($(#[$built])* $name: Arc<$protocol>,)*
        }

        impl Served {
            pub(crate) fn new(service: Arc<Service>) -> Self {
                Self { $($(#[$built])* $name: Arc::new(<$protocol>::new(&service)),)* service }
            }

            pub(crate) fn check(exports: &[config::Export], engine: &Choice) -> Vec<Error> {
                [$($(#[$built])* <$protocol>::check(exports, engine)),*].into_iter().flatten().collect()
            }

            pub(crate) fn is_in_the_way(&self, settings: &config::Export) -> Option<String> {
                [$($(#[$built])* self.$name.is_in_the_way(settings)),*].into_iter().find_map(|why| why)
            }

            pub(crate) fn prepare(
                &self,
                settings: &config::Export,
                export: &Export,
                engine: &Choice,
            ) -> Result<Vec<Opening>, Error> {
                Ok([$($(#[$built])* self.$name.prepare(settings, export, engine)?),*].into_iter().flatten().collect())
            }

            pub(crate) fn start(&self) {
                $($(#[$built])* { self.$name.start(); })*
            }

            pub(crate) fn wait(&self, export: u64) -> Result<(), String> {
                $($(#[$built])* { self.$name.wait(export)?; })*
                Ok(())
            }

            pub(crate) fn follow(&self, exports: &[Arc<Export>]) {
                $($(#[$built])* { self.$name.follow(exports); })*
            }

            pub(crate) fn holder(&self, export: u64) -> Option<String> {
                [$($(#[$built])* self.$name.holder(export)),*].into_iter().find_map(|holder| holder)
            }

            pub(crate) fn leave(&self, export: u64) {
                $($(#[$built])* { self.$name.leave(export); })*
            }

            pub(crate) fn stays(&self) -> Vec<String> {
                [$($(#[$built])* self.$name.stays()),*].concat()
            }

            /// As [`Protocol::take_over`], by the name of the protocol.
            pub(crate) fn take_over(&self, protocol: &str, client: HeldClient) -> Result<Coming, String> {
                match protocol {
                    $($(#[$built])* stringify!($name) => self.$name.take_over(client),)*
                    other => Err(format!("clients of \"{other}\" are not known here")),
                }
            }

            pub(crate) fn is_leaving(&self) -> bool {
                [$($(#[$built])* self.$name.is_leaving()),*].contains(&true)
            }

            pub(crate) fn devices(&self) -> Vec<DeviceView> {
                [$($(#[$built])* self.$name.devices()),*].concat()
            }

            /// As [`devices`](Self::devices), once those that the server was started with are there.
            pub(crate) fn settled_devices(&self) -> Vec<DeviceView> {
                $($(#[$built])* { self.$name.settle(); })*
                self.devices()
            }

            pub(crate) fn take_failure(&self) -> Option<Error> {
                [$($(#[$built])* self.$name.take_failure()),*].into_iter().find_map(|failure| failure)
            }
        }

        pub(crate) struct Clients {
            service: Arc<Service>,
            /// The change of exports and listeners that was looked at last.
            changes_seen: u64,
            /// The change of [`Hold`](super::hold::Hold) that was looked at last, and whether it was said what the clients are.
            hold: u64,
            has_told: bool,
            $($(#[$built])* $name: <$protocol as Protocol>::Clients,)*
        }

        impl Clients {
            pub(crate) fn new(engine: &mut Engine, served: &Served) -> std::io::Result<Self> {
                let service = Arc::clone(&served.service);
                let changes_seen = service.changes();
                let hold = service.hold.epoch();
                engine.holds = !hold.is_multiple_of(2);
                Ok(Self { service, changes_seen, hold, has_told: false, $($(#[$built])* $name: served.$name.clients(engine)?,)* })
            }

            fn holds(&self) -> bool {
                !self.hold.is_multiple_of(2)
            }

            /// Clients are to be held, or served on.
            #[cold]
            fn look_at_hold(&mut self, engine: &mut Engine, hold: u64) {
                let held = self.holds();
                self.hold = hold;
                self.has_told = false;
                if held {
                    engine.holds = false;
                    engine.lower_ceilings();
                    $($(#[$built])* { self.$name.serve_on(engine); })*
                }
                if self.holds() {
                    engine.holds = true;
                    $($(#[$built])* { self.$name.hold(engine); })*
                }
            }

            /// Says what the clients are, if all stand still.
            #[cold]
            fn tell_held(&mut self, engine: &mut Engine) {
                if engine.in_devices() > 0 {
                    return; // hold.2
                }
                let mut all: Report = Ok(Vec::new());
                $($(#[$built])* {
                    match self.$name.held(engine) {
                        None => return,
                        Some(Ok(mut clients)) => {
                            clients.iter_mut().for_each(|one| one.says.put("protocol", &stringify!($name)));
                            all.iter_mut().for_each(|all| all.append(&mut clients))
                        }
                        Some(Err(why)) => all = Err(why),
                    }
                })*
                self.service.hold.tell(engine.context, self.hold, all);
                self.has_told = true;
                engine.give_memory_back(); // hold.5
                $($(#[$built])* { self.$name.give_memory_back(); })*
            }
        }

        impl Front for Clients {
            fn completed(&mut self, engine: &mut Engine, what: u64, completion: &Completion) {
                match what >> OF_EVENT {
                    $($(#[$built])* <$protocol>::NUMBER => self.$name.completed(engine, what, completion),)*
                    _ => unreachable!("a completion of no protocol: {what:#x}"),
                }
            }

            /// There may be newcomers, other exports, or the order to drain.
            fn woken(&mut self, engine: &mut Engine) {
                // Before newcomers are taken: those that were handed over were sent before the hold ended, and would else miss its end.
                let hold = self.service.hold.epoch();
                $($(#[$built])* { self.$name.woken(engine); })*
                if self.hold != hold {
                    self.look_at_hold(engine, hold);
                }
                if self.holds() {
                    return; // hold.1
                }
                let changes = self.service.changes();
                if std::mem::replace(&mut self.changes_seen, changes) != changes {
                    let exports = self.service.exports();
                    $($(#[$built])* { self.$name.follow(engine, &exports); })*
                }
                if engine.drains.is_none() && self.service.draining.load(Ordering::Acquire) {
                    engine.drains = Some(engine.now);
                    $($(#[$built])* { self.$name.drain(engine); })*
                }
            }

            fn look_at_clock(&mut self, engine: &mut Engine) {
                if self.holds() {
                    if !self.has_told {
                        engine.lift_ceilings(); // hold.6
                    }
                    return; // hold.2
                }
                $($(#[$built])* { self.$name.look_at_clock(engine); })*
            }

            #[inline(always)]
            fn news(&mut self, engine: &mut Engine, ticket: usize, news: News) {
                match engine.owner(ticket) >> OF_TICKET {
                    $($(#[$built])* <$protocol>::NUMBER => self.$name.news(engine, ticket, news),)*
                    other => unreachable!("a request of protocol {other}"),
                }
            }

            fn go_on(&mut self, engine: &mut Engine) -> bool {
                engine.pool.next_round();
                [$($(#[$built])* self.$name.go_on(engine)),*].contains(&true)
            }

            fn arm(&mut self, engine: &mut Engine) {
                $($(#[$built])* { self.$name.arm(engine); })*
                if self.waits_for_memory() {
                    $($(#[$built])* { self.$name.make_room(engine); })*
                }
                if self.holds() && !self.has_told {
                    self.tell_held(engine);
                }
            }

            fn watch(&mut self, sleeps: bool) -> bool {
                [$($(#[$built])* self.$name.watch(sleeps)),*].contains(&true)
            }

            fn waits_for_memory(&self) -> bool {
                [$($(#[$built])* self.$name.waits_for_memory()),*].contains(&true)
            }

            fn poll_timeout(&self, engine: &Engine, now: Instant) -> Option<Instant> {
                if self.holds() {
                    // Some do not wait for ever, and are looked at again (keys.1).
                    return (!self.has_told).then(|| now + LOOK);
                }
                [$($(#[$built])* self.$name.poll_timeout(engine, now)),*].into_iter().flatten().min()
            }

            fn gives_up_at(&self, engine: &Engine) -> Option<Instant> {
                let patience = self.service.limits.drain_timeout;
                engine.drains.map(|since| since + patience + patience)
            }

            fn is_over(&self, engine: &Engine) -> bool {
                engine.drains.is_some() && ![$($(#[$built])* self.$name.is_over(engine)),*].contains(&false)
            }
        }
    };
}

protocols! {
    nbd: nbd::front::Connections,
    vhost_user: vhost_user::service::GuestListeners,
    ublk: ublk::service::Ublks,
    flatten: flatten::Flattening,
    #[cfg(test)]
    first_sector: tests::Ears,
}

#[cfg(test)]
mod tests;
