//! Media: what each sector of a disk with a volatile cache may hold if the power fails now.
//!
//! media.1  A write that is under way may be on the disk or not, sector by sector; one that has ended is in the cache.
//! media.2  Data in the cache may be on the disk or not, in any combination: the cache is written back in any order.
//! media.3  A flush that ends well makes durable what had ended before it was given to the disk, and nothing else. A request
//!     with FUA makes itself durable.
//! media.4  Requests that were under way together land in either order, sector by sector.
//! media.5  A discarded sector holds zeroes, or its old data.
//! media.6  A failed request has reached any of its sectors, or none. A flush that failed has made nothing durable, and on a
//!     [forgetful](OnFailure::Forgets) disk some of the data that it should have covered is lost. So it is with a write that [has a flush
//!     in it](Media::holds_flush).
//!
//! Sectors are torn from each other, so all that a power cut can leave behind is known sector by sector: no combination
//! needs to be drawn. Content is named by the write that it is of ([`Stamp`]); no data moves.

use fairlift_core::{Extent, Op, Outcome};

use fairlift_lab::Random;

/// The writer of a sector: the number of a bio, from 1 on; 0 is the content from before.
pub type Stamp = u64;

/// A part of a request that comes from one bio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Where it goes.
    pub extent: Extent,
    /// Its owner.
    pub stamp: Stamp,
}

/// The disk after a failed flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnFailure {
    /// The cache is as it was: the next flush covers it (a disk).
    Keeps,
    /// Some of the cache is lost, and the next flush ends well without it (Linux's page cache after a failed `fsync`).
    Forgets,
}

/// When something landed, by which later content covers earlier.
type LandedAt = u64;

/// Between two events there is room for landings in between.
const STEP: LandedAt = 1 << 20;

/// Content that a sector may keep.
#[derive(Clone, Copy)]
struct Content {
    landed: LandedAt,
    /// When the request that brought it ended.
    ended: LandedAt,
    stamp: Stamp,
}

#[derive(Clone, Default)]
struct MediaSector {
    /// Its durable content, and the time at which that landed.
    stable: (LandedAt, Stamp),
    /// Its other possible content.
    cached: Vec<Content>,
}

struct UnderWay {
    id: u64,
    op: Op,
    fua: bool,
    holds_flush: bool,
    since: LandedAt,
    /// For a flush: the sectors that it is for.
    range: Extent,
    pieces: Vec<Piece>,
}

/// Where among all that landed since it was given does a request land (media.4)?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Landing {
    /// Before all of it.
    First,
    /// After all of it.
    Last,
    /// Anywhere, sector by sector.
    Anywhere,
}

/// The sectors of a disk: see the [module](self).
pub struct Media {
    places: Vec<MediaSector>,
    under_way: Vec<UnderWay>,
    /// How far it has come: the same as long as it has taken in, and ended, no other request.
    pub(super) clock: LandedAt,
    on_failure: OnFailure,
    random: Random,
}

impl Media {
    /// A disk of `sectors`, nobody's yet. Its chances follow from the seed.
    #[must_use]
    pub fn new(sectors: u64, on_failure: OnFailure, seed: u64) -> Self {
        let places = vec![MediaSector::default(); sectors as usize];
        Self { places, under_way: Vec::new(), clock: 0, on_failure, random: Random::new(seed) }
    }

    /// A disk on which each sector holds that, whatever happens.
    #[must_use]
    pub fn holding(sectors: impl IntoIterator<Item = Stamp>, on_failure: OnFailure, seed: u64) -> Self {
        let place = |stamp| MediaSector { stable: (0, stamp), cached: Vec::new() };
        let places = sectors.into_iter().map(place).collect();
        Self { places, ..Self::new(0, on_failure, seed) }
    }

    /// Takes a request in. For a flush `range` says which sectors it is for; else the pieces do.
    pub fn submit(&mut self, id: u64, op: Op, fua: bool, range: Extent, pieces: Vec<Piece>) {
        self.clock += STEP;
        self.under_way.push(UnderWay { id, op, fua, holds_flush: false, since: self.clock, range, pieces });
    }

    /// If this request fails, so has a flush that the disk made of it.
    ///
    /// # Panics
    /// If it is not under way.
    pub fn holds_flush(&mut self, id: u64) {
        let request = self.under_way.iter_mut().find(|one| one.id == id);
        request.expect("what holds a flush is under way").holds_flush = true;
    }

    /// The request ends so.
    ///
    /// # Panics
    /// If it is not under way.
    pub fn end(&mut self, id: u64, outcome: Outcome, landing: Landing) {
        let index = self.under_way.iter().position(|one| one.id == id).expect("what ends is under way");
        let request = self.under_way.swap_remove(index);
        self.clock += STEP;
        let is_done = outcome == Outcome::Done;
        match request.op {
            Op::Read => {}
            Op::Flush if is_done => self.flushed(&request),
            Op::Flush if self.on_failure == OnFailure::Forgets => self.forget(&request),
            Op::Flush => {}
            Op::Write | Op::Discard | Op::WriteZeroes => {
                if request.holds_flush && !is_done && self.on_failure == OnFailure::Forgets {
                    self.forget(&request);
                }
                for piece in &request.pieces {
                    for sector in piece.extent.start.0..piece.extent.end().0 {
                        self.land(sector, piece.stamp, &request, is_done, landing);
                    }
                }
            }
        }
    }

    fn land(&mut self, sector: u64, stamp: Stamp, request: &UnderWay, is_done: bool, landing: Landing) {
        let chance = self.random.below(2) == 0;
        if chance && (!is_done || request.op == Op::Discard) {
            return; // media.5, media.6
        }
        let landed = match landing {
            Landing::First => request.since + 1 + self.random.below(STEP / 2),
            Landing::Last => self.clock,
            Landing::Anywhere => request.since + 1 + self.random.below(self.clock - request.since),
        };
        let place = &mut self.places[sector as usize];
        if landed <= place.stable.0 {
            return; // it was covered before it could be kept
        }
        if is_done && request.fua {
            place.stable = (landed, stamp); // media.3
            place.cached.retain(|other| other.landed > landed);
        } else {
            place.cached.push(Content { landed, ended: self.clock, stamp });
        }
    }

    /// media.3
    fn flushed(&mut self, flush: &UnderWay) {
        for sector in flush.range.start.0..flush.range.end().0 {
            let place = &mut self.places[sector as usize];
            let covered = place.cached.iter().filter(|content| content.ended < flush.since);
            if let Some(latest) = covered.max_by_key(|content| content.landed)
                && latest.landed > place.stable.0
            {
                place.stable = (latest.landed, latest.stamp);
            }
            let since = place.stable.0;
            place.cached.retain(|content| content.landed > since);
        }
    }

    /// media.6
    fn forget(&mut self, flush: &UnderWay) {
        for sector in flush.range.start.0..flush.range.end().0 {
            let random = &mut self.random;
            self.places[sector as usize].cached.retain(|content| content.ended >= flush.since || random.below(2) == 0);
        }
    }

    /// All that a sector may hold if the power fails now.
    pub fn possible(&self, sector: u64) -> impl Iterator<Item = Stamp> + '_ {
        let place = &self.places[sector as usize];
        let on_its_way = self.under_way.iter().flat_map(|request| &request.pieces).filter(move |piece| {
            (piece.extent.start.0..piece.extent.end().0).contains(&sector) // media.1
        });
        let cached = place.cached.iter().map(|content| content.stamp); // media.2
        std::iter::once(place.stable.1).chain(cached).chain(on_its_way.map(|piece| piece.stamp))
    }

    /// The result of a read: of all that has ended, the write that landed last.
    ///
    /// # Panics
    /// If there is no such sector.
    #[must_use]
    pub fn now(&self, sector: u64) -> Stamp {
        let place = &self.places[sector as usize];
        let cached = place.cached.iter().map(|content| (content.landed, content.stamp));
        cached.fold(place.stable, std::cmp::max).1
    }

    /// Whether a flush of that name is under way.
    #[must_use]
    pub fn is_flush(&self, id: u64) -> bool {
        self.under_way.iter().any(|one| one.id == id && one.op == Op::Flush)
    }

    /// How many sectors there are.
    #[must_use]
    pub const fn sectors(&self) -> u64 {
        self.places.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlift_core::{Errno, Sector};

    const ALL: Extent = Extent::new(Sector(0), 2);

    fn write(stamp: Stamp) -> Vec<Piece> {
        vec![Piece { extent: ALL, stamp }]
    }

    fn media(on_failure: OnFailure) -> Media {
        Media::new(2, on_failure, 1)
    }

    fn may_hold(media: &Media, sector: u64) -> Vec<Stamp> {
        let mut all: Vec<_> = media.possible(sector).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Gives and ends a request.
    fn whole(media: &mut Media, op: Op, fua: bool, stamp: Stamp) {
        let pieces = if op == Op::Flush { Vec::new() } else { write(stamp) };
        media.submit(stamp, op, fua, ALL, pieces);
        media.end(stamp, Outcome::Done, Landing::Last);
    }

    /// media.1, media.2
    #[test]
    fn what_is_not_flushed_may_be_there_or_not() {
        let mut media = media(OnFailure::Keeps);
        whole(&mut media, Op::Write, false, 1);
        whole(&mut media, Op::Write, false, 2);
        media.submit(3, Op::Write, false, ALL, write(3));
        assert_eq!((may_hold(&media, 0), media.now(0)), (vec![0, 1, 2, 3], 2));
        let media = Media::holding([7, 2], OnFailure::Keeps, 1);
        assert_eq!((may_hold(&media, 0), may_hold(&media, 1), media.now(1)), (vec![7], vec![2], 2));
    }

    /// media.3: the write that ends while the flush runs is not covered.
    #[test]
    fn a_flush_covers_what_had_ended_before_it_was_given() {
        let mut media = media(OnFailure::Keeps);
        whole(&mut media, Op::Write, false, 1);
        media.submit(2, Op::Flush, false, ALL, Vec::new());
        whole(&mut media, Op::Write, false, 3);
        assert_eq!(may_hold(&media, 0), [0, 1, 3], "before it ends");
        media.end(2, Outcome::Done, Landing::Last);
        assert_eq!(may_hold(&media, 0), [1, 3]);
    }

    /// media.3
    #[test]
    fn a_write_with_fua_covers_itself_alone() {
        let mut media = media(OnFailure::Keeps);
        media.submit(1, Op::Write, false, ALL, vec![Piece { extent: Extent::new(Sector(1), 1), stamp: 1 }]);
        media.end(1, Outcome::Done, Landing::Last);
        let first = vec![Piece { extent: Extent::new(Sector(0), 1), stamp: 2 }];
        media.submit(2, Op::Write, true, ALL, first);
        media.end(2, Outcome::Done, Landing::Last);
        assert_eq!((may_hold(&media, 0), may_hold(&media, 1)), (vec![2], vec![0, 1]));
    }

    /// media.4
    #[test]
    fn writes_under_way_together_land_in_either_order() {
        for (landing, kept) in [(Landing::First, 2), (Landing::Last, 1)] {
            let mut media = media(OnFailure::Keeps);
            media.submit(1, Op::Write, false, ALL, write(1));
            whole(&mut media, Op::Write, false, 2);
            media.end(1, Outcome::Done, landing);
            assert_eq!(media.now(0), kept, "{landing:?}");
            whole(&mut media, Op::Flush, false, 3);
            assert_eq!(may_hold(&media, 0), [kept], "{landing:?}");
        }
    }

    /// media.6
    #[test]
    fn a_flush_that_fails_keeps_the_cache_or_loses_some_of_it() {
        let run = |on_failure| {
            let mut media = Media::new(64, on_failure, 1);
            let all = Extent::new(Sector(0), 64);
            media.submit(1, Op::Write, false, all, vec![Piece { extent: all, stamp: 1 }]);
            media.end(1, Outcome::Done, Landing::Last);
            media.submit(2, Op::Flush, false, all, Vec::new());
            media.end(2, Outcome::Failed(Errno::EIO), Landing::Last);
            media.submit(3, Op::Flush, false, all, Vec::new());
            media.end(3, Outcome::Done, Landing::Last);
            (0..64).filter(|sector| may_hold(&media, *sector) == [1]).count()
        };
        assert_eq!(run(OnFailure::Keeps), 64);
        assert!((8..56).contains(&run(OnFailure::Forgets)));
    }
}
