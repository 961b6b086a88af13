//! Where a sector lies, and when it passes under the head.
//!
//! geometry.1  Tracks are filled one after the other from the outside inwards, all heads of a cylinder in turn.
//! geometry.2  Tracks of a zone hold the same number of sectors; zones have equally many tracks; from zone to zone the number
//!     falls in equal steps.
//! geometry.3  Each track starts later than the one before by the time the head needs to follow (skew): a run of sectors is read without
//!     losing a revolution, and its time is linear in its length.
//!
//! From geometry.3: every sector has a *media time*, the time a head needs to read from sector 0 to there. The difference of two
//! is how long a transfer takes, and the remainder by the revolution is the angle at which the sector lies.

use super::Settings;

/// Where the sectors lie.
#[derive(Clone, Debug)]
pub(in crate::model) struct Geometry {
    /// Nanoseconds.
    pub(super) revolution: u64,
    skew: u64,
    heads: u64,
    zones: Vec<Zone>,
    /// How many there are; at least 1.
    pub(super) cylinders: u64,
    /// Sectors.
    pub(super) capacity: u64,
}

#[derive(Clone, Copy, Debug)]
struct Zone {
    sector: u64,
    track: u64,
    track_sectors: u64,
    media: u64,
}

/// Where a sector lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Position {
    /// Counted from the outside.
    pub(super) cylinder: u64,
    /// Media time in nanoseconds.
    pub(super) media: u64,
}

impl Geometry {
    /// Of a disk of `capacity` sectors.
    pub(super) fn new(settings: &Settings, capacity: u64) -> Self {
        let (revolution, skew) = (60_000_000_000 / u64::from(settings.rpm), settings.track_switch.as_nanos());
        let (heads, count) = (u64::from(settings.heads), u64::from(settings.zones));
        // Rates are in 1000 bytes a second, skew included.
        let per_track = |rate: u32| (u64::from(rate) * 1000 * (revolution + skew) / 512 / 1_000_000_000).max(1);
        let (outer, inner) = (per_track(settings.rate_outer), per_track(settings.rate_inner));
        let of_zone = |zone: u64| outer - ((outer - inner) * zone).checked_div(count - 1).unwrap_or(0);
        let one_of_each: u64 = (0..count).map(of_zone).sum();
        let tracks = capacity.div_ceil(one_of_each).next_multiple_of(heads);
        let mut zones = Vec::new();
        let (mut sector, mut media) = (0, 0);
        for zone in 0..count {
            let track_sectors = of_zone(zone);
            zones.push(Zone { sector, track: zone * tracks, track_sectors, media });
            sector += tracks * track_sectors;
            media += tracks * (revolution + skew);
        }
        Self { revolution, skew, heads, zones, cylinders: count * tracks / heads, capacity }
    }

    pub(super) fn place(&self, sector: u64) -> Position {
        let zone = self.zones[self.zones.partition_point(|zone| zone.sector <= sector) - 1];
        let (track, rest) = ((sector - zone.sector) / zone.track_sectors, (sector - zone.sector) % zone.track_sectors);
        // Rounded up, so that `sector` of it is `sector` again.
        let angle = (rest * self.revolution).div_ceil(zone.track_sectors);
        Position {
            cylinder: (zone.track + track) / self.heads,
            media: zone.media + track * (self.revolution + self.skew) + angle,
        }
    }

    /// The first sector whose reading has not ended at this media time.
    pub(super) fn sector(&self, media: u64) -> u64 {
        let zone = self.zones[self.zones.partition_point(|zone| zone.media <= media) - 1];
        let whole = self.revolution + self.skew;
        let (track, rest) = ((media - zone.media) / whole, (media - zone.media) % whole);
        let rest = rest.min(self.revolution) * zone.track_sectors / self.revolution;
        (zone.sector + track * zone.track_sectors + rest).min(self.capacity)
    }

    /// How long from `now` until what lies at this media time passes under the head.
    pub(super) const fn rotation(&self, now: u64, media: u64) -> u64 {
        let (head, there) = (now % self.revolution, media % self.revolution);
        if there >= head { there - head } else { there + self.revolution - head }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlift_core::time::us;

    fn geometry() -> Geometry {
        let (rate_outer, rate_inner, track_switch) = (65_000, 31_000, us(1400));
        Geometry::new(&Settings { rate_outer, rate_inner, track_switch, ..Settings::default() }, 1_000_000_000)
    }

    /// geometry.3.
    #[test]
    fn a_media_time_and_its_sector_are_each_others_inverse() {
        let geometry = geometry();
        let mut random = crate::Random::new(1);
        for _ in 0..10_000 {
            let sector = random.below(geometry.capacity);
            assert_eq!(geometry.sector(geometry.place(sector).media), sector);
        }
    }

    /// geometry.2, geometry.3: skew included, a second at the edge reads what the data sheet says.
    #[test]
    fn a_second_reads_the_outer_rate_outside_and_the_inner_rate_inside() {
        let geometry = geometry();
        let rate = |from: u64| (geometry.sector(geometry.place(from).media + 1_000_000_000) - from) * 512 / 1_000_000;
        assert!((64..=65).contains(&rate(0)), "{}", rate(0));
        assert!((30..=31).contains(&rate(990_000_000)), "{}", rate(990_000_000));
        assert!((45..=50).contains(&rate(550_000_000)), "{}", rate(550_000_000));
    }

    /// geometry.1.
    #[test]
    fn cylinders_rise_with_sectors_and_all_are_used() {
        let geometry = geometry();
        let mut last = 0;
        for sector in (0..geometry.capacity).step_by(1_000_003) {
            let cylinder = geometry.place(sector).cylinder;
            assert!(cylinder >= last && cylinder < geometry.cylinders);
            last = cylinder;
        }
        assert!(last * 100 > geometry.cylinders * 99);
    }

    #[test]
    fn rotation_waits_less_than_a_revolution_and_not_at_all_for_what_is_under_the_head() {
        let geometry = geometry();
        let place = geometry.place(123_456);
        assert_eq!(geometry.rotation(place.media, place.media), 0);
        assert_eq!(geometry.rotation(place.media + 1, place.media), 8_333_332);
    }
}
