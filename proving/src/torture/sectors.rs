//! The content of each sector, and the possible results of a read: a dull model that knows neither queue nor scheduler.
//!
//! Submissions and ends have places in one row, their *orders*. A read is stale if the write that it returns had ended before
//! another was asked for which itself had ended well before the read was asked for. Writes that were under way together may land
//! in either order.
//!
//! A disk that lies (it answers "done" to a write that it has dropped, torn or put elsewhere) makes reads stale that nobody else is to
//! blame for. Each must be noticed: so the model remembers which sectors a lie left behind, and a read of them must find them wrong.

/// Not yet.
const NEVER: u64 = u64::MAX;

#[derive(Clone, Copy, Default)]
struct SectorState {
    /// The write whose content is there, by the order of its submission; 0: what was there first.
    landed: u64,
    /// When that write ended.
    landed_end: u64,
    /// The latest submission among the writes that ended well.
    floor: u64,
    /// Since then the disk has said that it had put a later write there, and had not.
    is_lied_about: bool,
    /// It holds what was meant for another place.
    is_alien: bool,
}

/// The result of a read of a sector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// Content that may be there.
    Right,
    /// Content that may not, and the disk has lied.
    Lie,
    /// Content that may not.
    Wrong,
}

/// The sectors in use: see the [module](self).
pub(super) struct Sectors {
    places: Vec<SectorState>,
    order: u64,
}

impl Sectors {
    pub(super) fn new(count: u64) -> Self {
        Self { places: vec![SectorState::default(); count as usize], order: 0 }
    }

    /// Something is asked for, or ends: its order.
    pub(super) const fn next(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    /// A read is asked for: what it must not be older than.
    pub(super) fn read_begins(&self, at: usize, sectors: u64) -> Vec<u64> {
        self.places[at..at + sectors as usize].iter().map(|place| place.floor).collect()
    }

    /// A write lands in one sector.
    pub(super) fn land(&mut self, at: usize, order: u64) {
        let place = &mut self.places[at];
        (place.landed, place.landed_end, place.is_lied_about, place.is_alien) = (order, NEVER, false, false);
    }

    /// The disk says that a write has landed, and it has not.
    pub(super) fn lie(&mut self, at: usize, order: u64) {
        let place = &mut self.places[at];
        // If what is there was under way together with it, nobody can tell which came last.
        place.is_lied_about |= place.landed_end < order;
    }

    /// The data of another sector is here.
    pub(super) fn misdirect(&mut self, at: usize) {
        if let Some(place) = self.places.get_mut(at) {
            place.is_alien = true;
        }
    }

    /// A write ended at that order, well or not.
    pub(super) fn finished(&mut self, at: usize, sectors: u64, order: u64, end: u64, is_done: bool) {
        for place in &mut self.places[at..at + sectors as usize] {
            if place.landed == order {
                place.landed_end = end;
            }
            if is_done {
                place.floor = place.floor.max(order);
            }
        }
    }

    /// The result of a read of a sector now.
    pub(super) fn read(&self, at: usize, floor: u64) -> Found {
        let place = &self.places[at];
        if place.is_alien {
            return Found::Lie; // whoever reads it sees whose it is
        }
        match (place.landed_end < floor, place.is_lied_about) {
            (false, _) => Found::Right, // if there was a lie, nobody was told that the write is there
            (true, false) => Found::Wrong,
            (true, true) => Found::Lie,
        }
    }

    /// Nothing is under way: a read of all finds the lies that are left, and nothing else. How many there are.
    ///
    /// # Errors
    /// The sector that is wrong.
    pub(super) fn look_at_all(&self) -> Result<u64, String> {
        let mut lies = 0;
        for (at, place) in self.places.iter().enumerate() {
            match self.read(at, place.floor) {
                Found::Right => {}
                Found::Lie => lies += 1,
                Found::Wrong => {
                    return Err(format!("sector {at} of those in use holds what was there before its last write"));
                }
            }
        }
        Ok(lies)
    }

    /// How many there are.
    pub(super) const fn len(&self) -> usize {
        self.places.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(sectors: &mut Sectors, lands: bool) -> u64 {
        let order = sectors.next();
        if lands {
            sectors.land(0, order)
        } else {
            sectors.lie(0, order)
        }
        let end = sectors.next();
        sectors.finished(0, 1, order, end, true);
        order
    }

    /// A write that the disk drops, and that fails for its client.
    fn drop_and_fail(sectors: &mut Sectors) {
        let order = sectors.next();
        sectors.lie(0, order);
        let end = sectors.next();
        sectors.finished(0, 1, order, end, false);
    }

    fn read(sectors: &Sectors) -> Found {
        sectors.read(0, sectors.read_begins(0, 1)[0])
    }

    #[test]
    fn a_write_that_was_dropped_is_seen_by_the_next_read_and_covered_by_the_next_write() {
        let mut sectors = Sectors::new(1);
        write(&mut sectors, true);
        assert_eq!(read(&sectors), Found::Right);
        write(&mut sectors, false);
        assert_eq!(read(&sectors), Found::Lie);
        assert_eq!(sectors.look_at_all(), Ok(1));
        write(&mut sectors, true);
        assert_eq!((read(&sectors), sectors.look_at_all()), (Found::Right, Ok(0)));
    }

    #[test]
    fn a_write_that_nobody_dropped_and_that_is_not_there_is_wrong() {
        let mut sectors = Sectors::new(1);
        let first = write(&mut sectors, true);
        write(&mut sectors, true);
        sectors.land(0, first);
        sectors.finished(0, 1, first, 2, true);
        assert_eq!(read(&sectors), Found::Wrong);
        assert!(sectors.look_at_all().is_err());
    }

    #[test]
    fn a_write_that_failed_may_be_there_or_not() {
        let mut sectors = Sectors::new(1);
        write(&mut sectors, true);
        drop_and_fail(&mut sectors);
        assert_eq!((read(&sectors), sectors.look_at_all()), (Found::Right, Ok(0)));
    }

    #[test]
    fn a_lie_that_was_told_is_not_made_good_by_one_that_was_not() {
        let mut sectors = Sectors::new(1);
        write(&mut sectors, true);
        write(&mut sectors, false);
        drop_and_fail(&mut sectors);
        assert_eq!((read(&sectors), sectors.look_at_all()), (Found::Lie, Ok(1)));
    }
}
