//! Places: the place of each device on a disk (disk.1), and their common limits.

use std::sync::Arc;

use fairlift_core::flush::SharedFlush;
use fairlift_core::queue::Backing;
use fairlift_core::{Extent, Limits, Sector};

use super::shared_flush::DeviceFlush;
use crate::device::{Device, Facts};

/// The gap between backings, and the unit of their places: 1 GiB. Chosen: further than any scheduler takes for near by default.
const GAP: u64 = 1 << 21;

/// How many sectors a place has at least, so that its device can grow: 1 TiB.
const ROOM: u64 = 1 << 31;

/// As many places as completions can name.
const PLACES: usize = 1 << 16;

/// A device, and the number under which its descriptor is registered with every ring, if it has one.
pub(crate) type Registered = (Arc<dyn Device>, Option<u32>);

/// Where a backing is on its disk.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) start: Sector,
    /// Up to where its device may grow, in sectors from `start`.
    pub(super) room: u64,
    /// `None`: it is gone.
    pub(crate) device: Option<Arc<dyn Device>>,
    /// The number under which its file is registered with every ring, if it is a file.
    pub(crate) file: Option<u32>,
    /// Its flushes, where several queues share them, or have handed them on.
    pub(super) flush: Arc<DeviceFlush>,
    /// Its device is gone, and no worker has anything on it: another may have the place.
    pub(super) is_free: bool,
    /// The character of its device, as declared.
    pub(super) facts: Facts,
}

impl Place {
    pub(super) fn new(start: Sector, (device, file): &Registered) -> Self {
        let facts = device.facts();
        let sectors = facts.limits.capacity;
        Self {
            start,
            room: sectors.saturating_mul(2).max(ROOM),
            device: Some(Arc::clone(device)),
            file: *file,
            flush: DeviceFlush::new(facts.volatile_cache),
            is_free: false,
            facts,
        }
    }

    /// Whether a device is there.
    pub(crate) fn has(&self, device: &Arc<dyn Device>) -> bool {
        self.device.as_ref().is_some_and(|there| Arc::ptr_eq(there, device))
    }

    /// The first sector that is not its own.
    pub(super) fn end(&self) -> u64 {
        (self.start.0 + self.room + GAP).next_multiple_of(GAP)
    }

    /// As the queue knows it; `shared`: several queues share its flushes (disk.3).
    pub(super) fn backing(&self, shared: bool) -> Backing {
        let Facts { volatile_cache, fua, .. } = self.facts;
        let flush = shared.then(|| Arc::clone(&self.flush) as Arc<dyn SharedFlush>);
        Backing { start: self.start, volatile_cache, fua, flush }
    }

    /// The place of an extent, and the byte within its device.
    #[inline]
    pub(crate) fn locate(places: &[Self], extent: Extent) -> (usize, u64) {
        let index = places.partition_point(|place| place.start <= extent.start) - 1;
        (index, (extent.start.0 - places[index].start.0) * Sector::SIZE)
    }
}

/// Finds a place for a device; which.
pub(super) fn put(places: &mut Vec<Place>, device: &Registered) -> Result<usize, &'static str> {
    let sectors = device.0.facts().limits.capacity;
    if let Some(free) = places.iter().position(|place| place.is_free && place.room / 2 >= sectors) {
        places[free] = Place { room: places[free].room, ..Place::new(places[free].start, device) };
        return Ok(free);
    }
    if places.len() == PLACES {
        return Err("a disk has at most 65536 places");
    }
    let place = Place::new(Sector(places.last().map_or(0, Place::end)), device);
    if place.start.0.checked_add(place.room).is_none_or(|end| end >= 1 << 62) {
        return Err("the disk has no room for another backing of that size");
    }
    places.push(place);
    Ok(places.len() - 1)
}

pub(super) fn limits(places: &[Place]) -> Limits {
    let capacity = places.last().map_or(0, Place::end);
    common(places.iter().filter(|place| place.device.is_some()).map(|place| place.facts.limits), capacity)
}

/// The common limits of some devices on a disk of `capacity` sectors.
///
/// Devices start on multiples of [`GAP`], and a line every `a` sectors is one every `b` as well if `b` divides `a`: so a common divisor
/// keeps everybody's blocks and boundaries. An export refuses operations that its device lacks.
fn common(devices: impl Iterator<Item = Limits>, capacity: u64) -> Limits {
    let least = |a: u64, b: u64| if a == 0 || b == 0 { a.max(b) } else { a.min(b) };
    let both = |one: Limits, two: Limits| Limits {
        capacity,
        block: gcd(one.block.into(), two.block.into()) as u32,
        rw_max: one.rw_max.min(two.rw_max),
        discard_max: least(one.discard_max, two.discard_max),
        write_zeroes_max: least(one.write_zeroes_max, two.write_zeroes_max),
        segments_max: one.segments_max.min(two.segments_max),
        boundary: match gcd(one.boundary, two.boundary) {
            0 => 0,
            boundary => gcd(boundary, GAP),
        },
    };
    devices.reduce(both).map_or(Limits::new(capacity), |limits| Limits { capacity, ..limits })
}

/// The largest number that divides both; 0 counts as divisible by all.
const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_device_keeps_its_own_limits() {
        let own = Limits { block: 8, boundary: 640, discard_max: 0, ..Limits::new(1 << 20) };
        assert_eq!(common([own].into_iter(), 1 << 22), Limits { capacity: 1 << 22, ..own });
    }

    #[test]
    fn several_devices_on_a_disk_take_what_suits_all() {
        let array = Limits { boundary: 640, rw_max: 1024, discard_max: 0, ..Limits::new(1 << 20) };
        let drive = Limits { block: 8, boundary: 384, discard_max: 4096, ..Limits::new(1 << 20) };
        let both = common([array, drive].into_iter(), 1 << 22);
        assert_eq!((both.block, both.boundary, both.rw_max, both.discard_max), (1, 128, 1024, 4096));
    }
}
