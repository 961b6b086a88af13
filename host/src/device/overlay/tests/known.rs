//! The knowledge about a disk: the requests of clients and their answers. The power-cut oracle of the proving ground judges by that the
//! state after a cut; reads while the server lives are judged by when writes were asked and ended.

use fairlift_proving::power_cut::{Oracle, Stamp};

use super::*;

/// The content of a sector: zeroes, or the number of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    Zeroes,
    Write(u64),
}

/// The data of a write of this number: each sector has the number and its place.
pub(super) fn content(number: u64, sectors: Range<u64>) -> Vec<u8> {
    let sector = |sector: u64| [number.to_le_bytes(), sector.to_le_bytes()].concat().repeat(SECTOR as usize / 16);
    sectors.flat_map(sector).collect()
}

pub(super) fn found(sector: u64, bytes: &[u8]) -> Found {
    if bytes == [0; SECTOR as usize] {
        return Found::Zeroes;
    }
    let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let is_whole = bytes[8..16] == sector.to_le_bytes() && bytes[16..] == bytes[..bytes.len() - 16];
    assert!(is_whole, "sector {sector} is torn, or another: {:?}", &bytes[..32]);
    Found::Write(number)
}

/// The sectors of the base are numbered from here on.
pub(super) const BASE: u64 = 1 << 60;

/// When a request was asked and ended, on a clock of requests.
#[derive(Clone, Copy)]
struct When {
    lookups: u64,
    ended: u64,
}

const NOT_YET: u64 = u64::MAX;

/// The known state of the disk since the last power cut.
pub(super) struct Known {
    /// Of sectors by their number.
    oracle: Oracle,
    /// The content of each sector then.
    first: BTreeMap<u64, Found>,
    /// Which stamps brought zeroes.
    zeroed: BTreeMap<u64, Vec<Stamp>>,
    /// The number before that of the first stamp.
    before: u64,
    /// By stamp, less 1.
    stamps: Vec<When>,
    /// When the latest write was asked that has ended well: while the server lives, nothing older is read.
    floors: BTreeMap<u64, u64>,
    /// After a server was killed: what was known before. A cut may still bring that back, until a flush has been answered.
    pub(super) earlier: Option<Box<Known>>,
    clock: u64,
}

impl Known {
    pub(super) fn new(first: BTreeMap<u64, Found>, before: u64) -> Self {
        Self {
            oracle: Oracle::new(super::trial::windows()[1].end),
            first,
            zeroed: BTreeMap::new(),
            before,
            stamps: Vec::new(),
            floors: BTreeMap::new(),
            earlier: None,
            clock: 0,
        }
    }

    /// The number of the next stamp.
    pub(super) fn next(&self) -> u64 {
        self.before + self.stamps.len() as u64 + 1
    }

    pub(super) fn submitted(&mut self, op: Op, flags: Flags, sectors: &Range<u64>) -> Stamp {
        self.clock += 1;
        self.stamps.push(When { lookups: self.clock, ended: NOT_YET });
        let extent = Extent::new(Sector(sectors.start), sectors.end - sectors.start);
        // A discard of whole blocks gives zeroes here (overlay.4), which others do not promise.
        let stamp = self.oracle.submitted(if op == Op::Discard { Op::WriteZeroes } else { op }, flags, extent);
        assert_eq!(stamp, self.stamps.len() as Stamp);
        if matches!(op, Op::WriteZeroes | Op::Discard) {
            sectors.clone().for_each(|sector| self.zeroed.entry(sector).or_default().push(stamp));
        }
        stamp
    }

    pub(super) fn ended(&mut self, stamp: Stamp, op: Op, sectors: &Range<u64>, outcome: Outcome) {
        self.clock += 1;
        self.oracle.ended(stamp, outcome);
        let when = &mut self.stamps[stamp as usize - 1];
        when.ended = self.clock;
        if outcome == Outcome::Done && op == Op::Flush {
            self.earlier = None;
        } else if outcome == Outcome::Done {
            for sector in sectors.clone() {
                let floor = self.floors.entry(sector).or_default();
                *floor = when.lookups.max(*floor);
            }
        }
    }

    /// Of sectors: what a read that is asked for now must see.
    pub(super) fn floors(&self, sectors: impl IntoIterator<Item = u64>) -> Vec<u64> {
        sectors.into_iter().map(|sector| self.floors.get(&sector).copied().unwrap_or(0)).collect()
    }

    /// All possible meanings of the found content.
    fn stamps_of(&self, sector: u64, found: Found) -> impl Iterator<Item = Stamp> {
        let first = (self.first[&sector] == found).then_some(0);
        let zeroed = self.zeroed.get(&sector).filter(|_| found == Found::Zeroes).into_iter().flatten().copied();
        let written = match found {
            // One of another disk has a number far away.
            Found::Write(number) if self.before < number && number < self.next() => Some(number - self.before),
            _ => None,
        };
        first.into_iter().chain(zeroed).chain(written)
    }

    /// Whether a sector may hold that after a cut.
    fn judge(&self, sector: u64, found: Found) -> Result<(), String> {
        let mut why = format!("sector {sector} holds {found:?}, which nobody asked to be there");
        for stamp in self.stamps_of(sector, found) {
            match self.oracle.judge(sector, stamp) {
                Ok(()) => return Ok(()),
                Err(says) => why = says,
            }
        }
        match &self.earlier {
            Some(earlier) if self.oracle.judge(sector, 0).is_ok() => earlier.judge(sector, found),
            _ => Err(why),
        }
    }

    pub(super) fn judge_all(&self, all: &BTreeMap<u64, Found>) {
        for (sector, found) in all {
            self.judge(*sector, *found).unwrap_or_else(|why| panic!("after a cut {why}"));
        }
    }

    /// Whether a read may find that which was asked for when a sector had this floor.
    pub(super) fn may_be_read(&self, sector: u64, found: Found, floor: u64) {
        let is_new =
            |stamp: Stamp| if stamp == 0 { floor == 0 } else { self.stamps[stamp as usize - 1].ended >= floor };
        let is_one = self.stamps_of(sector, found).any(is_new);
        assert!(is_one, "sector {sector} is read as {found:?}, which is older than it may be");
    }
}
