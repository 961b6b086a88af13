//! A front-end stands still, so that another server can go on with it ([`hold`](crate::export::hold)): its state then, and how that server goes on.
//!
//! A guest puts requests into its rings whether or not a server looks. So nothing of a ring is lost in between: what is in it goes on from the
//! index up to which the previous server had begun with requests. That index is final once all of them have ended.
//!
//! vhosthold.1  All requests that were begun have ended, and the guest has their ends in the used ring, before the index of a ring is said. A request that was
//!              taken from the ring and not begun counts as not taken.
//! vhosthold.2  The server that goes on looks into each ring and calls each guest: kicks and calls in between may have been lost.
//! vhosthold.3  A message that has come in part goes over with the descriptors that came beside it.

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::SystemTime;

use fairlift_core::record::{Record, Unreadable};

use super::super::config;
use super::super::handed::Named;
use super::super::inflight::Inflight;
use super::super::memory::Shared;
use super::super::proto::Region;
use super::super::service::GuestListeners;
use super::super::socket::Socket;
use super::vring::{Kick, Vring};
use super::{FrontEnd, Resumed};
use crate::disk::engine::Engine;
use crate::export::Export;
use crate::export::hold::{Halt, HeldClient};
use crate::sync::lock;

impl FrontEnd {
    /// Begins with nothing more, and hears no message (hold.1).
    pub(in super::super) fn hold(&mut self) {
        if self.halt == Halt::No {
            self.halt = Halt::Ends;
        }
    }

    /// Whether nothing of it is under way (vhosthold.1).
    pub(in super::super) fn comes_to_stand(&mut self) -> bool {
        let mut rings = self.vrings.iter().filter_map(|vring| vring.ring.as_ref());
        if self.ending || self.stopping.is_some() || rings.any(|ring| ring.in_flight > 0) {
            return false;
        }
        self.halt = Halt::StandsStill;
        true
    }

    pub(in super::super) fn serve_on(&mut self) {
        self.halt = Halt::No;
        for ring in self.vrings.iter_mut().filter_map(|vring| vring.ring.as_mut()) {
            ring.has_more(); // vhosthold.2
        }
    }

    /// Its state while it stands still: a copy (hold.2).
    pub(in super::super) fn held(&self, since: Option<SystemTime>) -> Result<HeldClient, String> {
        let (mut says, mut named) = (Record::default(), Named::default());
        says.put("export", &self.export.name);
        HeldClient::put_peer(&mut says, &self.peer, since);
        says.put("features", &self.features);
        says.put("protocol_features", &self.protocol_features);
        says.put("write_back", &self.write_back);
        named.add("socket", self.socket.as_fd())?;
        if let Some(requests) = &self.requests {
            named.add("requests", requests.as_fd())?;
        }
        if let Some(shared) = &self.shared {
            let mut regions = Vec::new();
            for (region, file) in shared.regions() {
                regions.push([region.guest, region.size, region.user, region.offset]);
                named.add("memory", file)?;
            }
            says.put("regions", &regions);
        }
        if let Some(tables) = &self.tables {
            let (file, shape) = tables.shared();
            says.put("tables", &shape);
            named.add("tables", file)?;
        }
        let mut rings = Vec::new();
        for (number, vring) in self.vrings.iter().enumerate() {
            let mut ring = Record::default();
            ring.put("size", &vring.size);
            ring.put("base", &vring.ring.as_ref().map_or(vring.base, super::Ring::base));
            ring.put("addresses", &vring.addresses);
            ring.put("enabled", &vring.enabled);
            rings.push(ring);
            if let Some(kick) = vring.kick.descriptor() {
                named.add(format!("kick {number}"), kick)?;
            }
            if let Some(call) = &vring.call {
                named.add(format!("call {number}"), call.as_fd())?;
            }
        }
        says.put("rings", &rings);
        // vhosthold.3
        let (bytes, beside) = self.socket.begun();
        for descriptor in beside {
            named.add("message", descriptor.as_fd())?;
        }
        Ok(named.client(says, bytes.to_vec()))
    }

    /// A front-end that another server hands over, as that server says. It stands still, and its rings are yet to be
    /// [started](Self::resume).
    pub(in super::super) fn read(
        export: &Arc<Export>,
        says: &mut Record,
        named: &mut Named,
        bytes: Vec<u8>,
        listeners: &GuestListeners,
    ) -> Result<Resumed, String> {
        let access = Arc::clone(&listeners.service.exports().access);
        let fd = named.take("socket").ok_or("its socket did not come")?;
        let (peer, since) = HeldClient::take_peer(says, &fd, &access)?;
        let entry = access.of(&peer).enter(&export.name, &export.path);
        let entry = entry.ok_or("it could not open it again: see [client]")?;
        let features = (says.need("features")?, says.need("protocol_features")?);
        let write_back = says.need("write_back")?;
        let regions: Option<Vec<[u64; 4]>> = says.take("regions")?;
        let shared = regions.map(|regions| {
            let region = |[guest, size, user, offset]: [u64; 4]| Region { guest, size, user, offset };
            let (regions, files): (Vec<_>, _) = (regions.into_iter().map(region).collect(), named.take_all("memory"));
            match regions.len() == files.len() {
                true => Shared::map(regions, files),
                false => Err(format!("{} of {} files of its memory came", files.len(), regions.len())),
            }
        });
        let tables = named.take("tables").map(|file| {
            let (offset, queues, size) = says.need("tables")?;
            config::check_tables(queues, size)?;
            Inflight::open(file, offset, queues, size).map(Arc::new)
        });
        let rings: Vec<Record> = says.need("rings")?;
        if rings.len() > config::RINGS_MAX {
            let (has, most) = (rings.len(), config::RINGS_MAX);
            return Err(format!("it has {has} rings, and a device here at most {most}"));
        }
        let ring = |(number, mut ring): (usize, Record)| {
            let kick = Kick { wanted: named.take(&format!("kick {number}")), ..Kick::default() };
            Ok(Vring {
                size: ring.need("size")?,
                base: ring.need("base")?,
                addresses: ring.take("addresses")?,
                enabled: ring.need("enabled")?,
                kick,
                call: named.take(&format!("call {number}")),
                ..Vring::default()
            })
        };
        let vrings = rings.into_iter().enumerate().map(ring).collect::<Result<_, Unreadable>>()?;
        let (shared, tables) = (shared.transpose()?, tables.transpose()?);
        tables.iter().for_each(|tables: &Arc<Inflight>| tables.keep_write_back(write_back)); // an older server did not
        // Listeners come first.
        let listener = lock(&listeners.list).get(&export.id).cloned();
        let listener = listener.ok_or("its listener did not come")?;
        let socket = Socket::resume(fd, bytes, named.take_all("message"));
        let request_max = listeners.service.limits.request_max.into();
        let mut device = Self::new(export, (peer, entry), listener, 0, socket, request_max);
        device.halt = Halt::StandsStill;
        (device.features, device.protocol_features) = features;
        device.requests = named.take("requests").map(Socket::new);
        (device.write_back, device.shared, device.tables, device.vrings) = (write_back, shared, tables, vrings);
        Ok(Resumed { export: Arc::clone(export), since, device })
    }

    /// Takes its rings up where the previous server has stopped, as the device of this number.
    pub(in super::super) fn resume(&mut self, engine: &mut Engine, number: usize) {
        self.number = number;
        for ring in 0..self.vrings.len() {
            if let Err(why) = self.start(engine, ring) {
                self.broken(engine, &why);
            }
        }
    }
}
