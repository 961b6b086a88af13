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
use std::time::{SystemTime, UNIX_EPOCH};

use fairlift_core::record::Record;

use super::super::handed::{HandedRing, Named, Resumed};
use super::super::service::GuestListener;
use super::FrontEnd;
use super::vring::Vring;
use crate::disk::engine::Engine;
use crate::export::hold::{Halt, HeldClient};

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
    ///
    /// # Errors
    /// Why no other server can go on with it.
    pub(in super::super) fn held(&self, since: Option<SystemTime>) -> Result<HeldClient, String> {
        self.described(since).map_err(|why| format!("a virtual machine at export {:?}: {why}", self.export.name))
    }

    fn described(&self, since: Option<SystemTime>) -> Result<HeldClient, String> {
        let (mut says, mut named) = (Record::default(), Named::default());
        says.put("export", &self.export.name);
        says.put("listener", &self.peer.listener);
        says.put("cgroup", &self.peer.cgroup.as_ref().map(ToString::to_string));
        let since = since.and_then(|since| since.duration_since(UNIX_EPOCH).ok());
        says.put("since_ms", &since.map(|since| since.as_millis() as u64));
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
            let (file, shape) = tables.handed();
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

    /// A front-end that another server has handed over; it stands still.
    pub(in super::super) fn resume(
        engine: &mut Engine,
        resumed: Resumed,
        listener: Arc<GuestListener>,
        number: usize,
        request_max: u64,
    ) -> Self {
        let Resumed { export, peer, entry, socket, requests, features, write_back, shared, tables, rings, .. } =
            resumed;
        let mut device = Self::with(&export, (peer, entry), listener, number, socket, request_max);
        device.halt = Halt::StandsStill;
        (device.features, device.protocol_features) = features;
        (device.requests, device.write_back, device.shared) = (requests, write_back, shared);
        device.tables = tables.map(Arc::new);
        device.vrings = rings.into_iter().map(vring).collect();
        for ring in 0..device.vrings.len() {
            if let Err(why) = device.start(engine, ring) {
                device.broken(engine, &why);
            }
        }
        device
    }
}

fn vring(ring: HandedRing) -> Vring {
    let HandedRing { size, base, addresses, enabled, kick, call } = ring;
    let mut vring = Vring { size, base, addresses, enabled, call, ..Vring::default() };
    vring.kick.wanted = kick;
    vring
}
