//! Room: how many clients of one user or address have something of the control server at once.
//!
//! A socket that tenants may open is one that each of them can fill. Example: user 2001 watches events a thousand times over. It has a
//! quarter of the places, and the operator's command finds one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use fairlift::access::Peer;

use super::lock;

/// A user at a unix socket, or an address; `None`: root and the server's own user, who mend what others do.
type Origin = Option<(Option<u32>, Option<IpAddr>)>;

pub(super) struct Room {
    /// A place is one more reference.
    taken: Mutex<HashMap<Origin, Place>>,
    /// Places for one, and for all together. Root and the server's own user have as many of their own.
    each: usize,
    all: usize,
}

/// A place that is taken until this is dropped.
pub(super) type Place = Arc<()>;

impl Room {
    pub(super) fn new(each: usize, all: usize) -> Arc<Self> {
        Arc::new(Self { taken: Mutex::default(), each, all })
    }

    pub(super) fn enter(&self, peer: &Peer) -> Option<Place> {
        let user = peer.user.map(|(uid, _)| uid);
        let origin = (!peer.is_root_or_own()).then(|| (user, peer.address.as_ref().map(IpAddr::to_canonical)));
        let mut taken = lock(&self.taken);
        let count = |places: &Place| Arc::strong_count(places) - 1;
        taken.retain(|_, places| count(places) > 0);
        let its = taken.get(&origin).map_or(0, count);
        let others =
            || taken.iter().filter(|(origin, _)| origin.is_some()).map(|(_, places)| count(places)).sum::<usize>();
        let has_room = if origin.is_none() { its < self.all } else { its < self.each && others() < self.all };
        has_room.then(|| Arc::clone(taken.entry(origin).or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_leaves_places_to_others_and_all_of_them_to_root() {
        let room = Room::new(2, 5);
        let user = |uid| Peer { user: Some((uid, 0)), ..Peer::default() };
        let at = |address: &str| Peer { address: Some(address.parse().unwrap()), ..Peer::default() };
        let mut kept = Vec::new();
        let mut enters = |peer: Peer| {
            let place = room.enter(&peer);
            let is_in = place.is_some();
            kept.extend(place);
            is_in
        };
        let all = [[0; 3].map(|_| user(4_000_001)), [0; 3].map(|_| user(4_000_002))].concat();
        assert_eq!(all.into_iter().map(&mut enters).collect::<Vec<_>>(), [true, true, false, true, true, false]);
        assert!(enters(at("192.0.2.1")) && !enters(at("192.0.2.2")), "five together");
        assert_eq!([0; 6].map(|_| enters(user(0))), [true, true, true, true, true, false]);
        kept.clear();
        let mapped = ["192.0.2.1", "::ffff:192.0.2.1", "192.0.2.1"].map(|address| room.enter(&at(address)));
        assert_eq!(mapped.each_ref().map(Option::is_some), [true, true, false]);
        assert_eq!(room.taken.lock().unwrap().len(), 1, "of those that have left nothing stays");
    }
}
