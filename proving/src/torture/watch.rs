//! The checks when a request goes to the disk, when it ends there, and when a client hears of it.

use fairlift_core::model::ModelCompletion;
use fairlift_core::{Dispatch, Extent, Finished, Flags, Op, Outcome, Sector};

use super::bench::{Bench, WatchedQueue, bit, outcome};
use super::device::Given;
use super::sectors::Found;
use super::step::{Fate, Lie};
use super::swarm::REGION;
use crate::tally::{Broken, Count, Result, broken};

impl Bench<'_> {
    /// Before the disk is asked: that it may be asked so, and here.
    pub(super) fn look_at_dispatch(&mut self, number: usize, context: usize, dispatch: &Dispatch) -> Result {
        let Dispatch { tag, op, flags, extent, .. } = *dispatch;
        let says = |promise, says: String| broken(promise, format!("{op:?} of {extent:?} {says}"));
        let watched = &mut self.queues[number];
        let in_flight = watched.queue.load().in_flight;
        if in_flight > watched.in_flight_max {
            return says("L1", format!("goes as one of {in_flight}, and {} may be in flight", watched.in_flight_max));
        }
        watched.is_active = true;
        if self.setup.shared_tags {
            // As many as have asked for a tag by now, and no more than have.
            let active = self.queues.iter().filter(|watched| watched.is_active).count();
            let depth = usize::from(self.setup.queue.depth);
            let most = if active == 1 { depth } else { depth.div_ceil(active).max(4).min(depth) };
            if usize::from(in_flight) > most {
                return says("W3", format!("takes tag {in_flight} of {depth}, and {active} queues share them"));
            }
        }
        if op == Op::Flush {
            return Ok(());
        }
        let limits = &self.setup.queue.limits;
        let end = extent.end().0;
        let crosses = limits.boundary != 0 && extent.start.0 / limits.boundary != (end - 1) / limits.boundary;
        let segments: u32 = self.queues[number].queue.segments(tag).map(|_| 1).sum();
        let longest = match op {
            Op::Discard => limits.discard_max,
            Op::WriteZeroes => limits.write_zeroes_max,
            Op::Read | Op::Write | Op::Flush => limits.rw_max.into(),
        };
        let block = u64::from(limits.block);
        let is_whole = extent.start.0 % block == 0 && extent.sectors % block == 0;
        if extent.sectors > longest
            || crosses
            || segments > limits.segments_max.into()
            || end > limits.capacity
            || !is_whole
        {
            return says("L1", format!("in {segments} segments is more than the device takes"));
        }
        let backing = self.setup.queue.backings.iter().rfind(|backing| backing.start <= extent.start);
        let has_fua = backing.is_some_and(|backing| backing.volatile_cache && backing.fua);
        let mut first = None;
        for segment in self.queues[number].queue.segments(tag) {
            let row = &self.rows[segment.token.0 as usize];
            if usize::from(row.at.context.0) != context {
                return says("L1", format!("of context {} goes to context {context}", row.at.context.0));
            }
            if has_fua && op == Op::Write && row.bio.flags.contains(Flags::FUA) && !flags.contains(Flags::FUA) {
                return says("D1", format!("goes without FUA, with data of {:?}", row.bio));
            }
            let at = (row.at.group, row.at.priority);
            if row.moves == self.moves && *first.get_or_insert(at) != at {
                return says("S1", format!("joins bios of {first:?} and {at:?}"));
            }
        }
        Ok(())
    }

    /// The disk takes it.
    pub(super) fn given(&mut self, number: usize, dispatch: &Dispatch) -> Result {
        let now = self.now;
        let WatchedQueue { queue, check, .. } = &mut self.queues[number];
        check.dispatched(now, dispatch, queue.segments(dispatch.tag));
        if dispatch.op == Op::Flush {
            return Ok(());
        }
        let is_limited = !self.meters.is_empty();
        let mut firsts = Vec::new();
        for segment in queue.segments(dispatch.tag) {
            let row = &mut self.rows[segment.token.0 as usize];
            if row.given.is_none() {
                row.given = Some(now);
                if is_limited && row.moves == self.moves {
                    firsts.push(segment.token.0 as usize);
                }
            }
        }
        for row in firsts {
            let path = self.path(self.rows[row].at.group);
            let passed = self.meters.pass(now, &path, &self.rows[row].bio).map_err(|says| Broken::new("W2", says))?;
            self.tally.add(Count::Limited, u64::from(passed));
        }
        Ok(())
    }

    /// The disk has ended a request: the new content of its sectors, and the results of its reads.
    pub(super) fn landed(&mut self, given: &Given) -> Result<Outcome> {
        let Dispatch { tag, op, flags, extent, .. } = given.dispatch;
        let watched = &mut self.queues[usize::from(given.queue)];
        let outcome = outcome(given);
        let ended = ModelCompletion { at: self.now, id: tag.0.into(), outcome };
        watched.check.ended(self.now, &ended, &watched.queue);
        let error = match outcome {
            Outcome::Done => 0,
            Outcome::Failed(errno) => bit(errno),
        };
        if op == Op::Flush || flags.contains(Flags::FUA) {
            self.flush_fails(extent.start, error);
        }
        if op == Op::Flush {
            // That of one bio alone: those that share one have no part of it.
            let tokens = self.queues[usize::from(given.queue)].queue.segments(tag).map(|segment| segment.token.0);
            tokens.for_each(|token| self.rows[token as usize].errors |= error);
            return Ok(outcome);
        }
        let mut done = 0;
        let mut segments = std::mem::take(&mut self.segments);
        segments.clear();
        segments.extend(self.queues[usize::from(given.queue)].queue.segments(tag));
        for segment in &segments {
            let row = &mut self.rows[segment.token.0 as usize];
            row.errors |= error;
            let offset = segment.offset.sectors();
            let at = self.setup.index(row.bio.extent.start.0 + offset);
            let sectors = segment.bytes.sectors();
            let order = row.order;
            for sector in 0..sectors {
                // One bit of chance for each sector.
                let chance = (given.luck >> 20).wrapping_mul(2 * (done + sector) + 1) >> 40 & 1 == 0;
                let place = at + sector as usize;
                match (op, outcome) {
                    (Op::Read, Outcome::Done) => {
                        let row = &self.rows[segment.token.0 as usize];
                        self.tally.one(Count::Compared);
                        match self.sectors.read(place, row.floors[(offset + sector) as usize]) {
                            Found::Right => {}
                            Found::Lie => self.tally.one(Count::Found),
                            Found::Wrong => {
                                let says = format!(
                                    "{:?} returns of sector {} what was there before its last write",
                                    row.bio,
                                    offset + sector
                                );
                                return broken("S1", says);
                            }
                        }
                    }
                    (Op::Read | Op::Flush, _) => {}
                    (Op::Discard, _) | (_, Outcome::Failed(_)) if chance => {}
                    (Op::Write, Outcome::Done) if given.fate == Fate::Lies(Lie::Dropped) => {
                        self.sectors.lie(place, order)
                    }
                    (Op::Write, Outcome::Done)
                        if given.fate == Fate::Lies(Lie::Torn) && done + sector >= extent.sectors / 2 =>
                    {
                        self.sectors.lie(place, order);
                    }
                    (Op::Write, Outcome::Done) if given.fate == Fate::Lies(Lie::Misdirected) => {
                        self.sectors.lie(place, order);
                        self.sectors.misdirect((place + REGION as usize) % self.sectors.len());
                    }
                    _ => self.sectors.land(place, order),
                }
            }
            done += sectors;
        }
        self.segments = segments;
        Ok(outcome)
    }

    /// A request has been in the disk for longer than its clients should be left without an answer.
    pub(super) fn is_late(&mut self, given: &Given) -> Result {
        let watched = &self.queues[usize::from(given.queue)];
        self.tally.one(Count::Late);
        let late = watched.queue.segments(given.dispatch.tag).map(|segment| &self.rows[segment.token.0 as usize]);
        // A flush that several share is waited for by all of the backing who had asked for one by then.
        let is_shared = given.dispatch.op == Op::Flush && self.setup.queue.flush.coordinate;
        let backing = self.backing_of(given.dispatch.extent.start);
        let shares = self.rows.iter().map(|(_, row)| row).filter(|row| {
            is_shared
                && row.bio.op == Op::Flush
                && row.came < given.since
                && self.backing_of(row.bio.extent.start) == backing
                && self.queue_of(row.at.context.0) == usize::from(given.queue)
        });
        let late = late.chain(shares).find(|row| !row.is_told);
        match late {
            None => Ok(()),
            Some(row) => {
                let time = self.now.since(given.since);
                broken("L4", format!("{:?} has been in the disk for {time}, and nobody was told", row.bio))
            }
        }
    }

    /// A client hears of a bio.
    pub(super) fn finished(&mut self, number: usize, context: usize, news: Finished) -> Result {
        let (now, io_timeout) = (self.now, self.setup.queue.io_timeout);
        let watched = &mut self.queues[number];
        watched.check.finished(now, news);
        let (Finished::Done(token, _) | Finished::TimedOut(token) | Finished::Released(token)) = news;
        let row = &self.rows[token.0 as usize];
        let says = |promise, says: &str| broken(promise, format!("{:?} {says}", row.bio));
        if usize::from(row.at.context.0) != context {
            return says("L1", &format!("of context {} ends in context {context}", row.at.context.0));
        }
        let takes_part_in_flushes = row.bio.op == Op::Flush || row.bio.flags.intersects(Flags::FUA | Flags::PREFLUSH);
        let is_done = match news {
            Finished::TimedOut(_) => {
                let since = row.given.filter(|_| !takes_part_in_flushes).unwrap_or(row.came);
                // Requests granted to another worker are on their way from then on.
                if now + self.setup.lag < since + io_timeout {
                    return says("L4", &format!("times out after {}, and may take {io_timeout}", now.since(since)));
                }
                let row = &mut self.rows[token.0 as usize];
                row.is_told = true;
                self.answered += 1;
                self.tally.one(Count::Ios);
                return Ok(());
            }
            Finished::Released(_) => false,
            Finished::Done(_, Outcome::Done) => {
                if row.errors != 0 {
                    return says("F1", "ends well, though the disk failed a part of it");
                }
                self.tally.one(Count::Ios);
                true
            }
            Finished::Done(_, Outcome::Failed(errno)) => {
                // A flush hears of earlier failures, too.
                let since = if self.setup.queue.flush.remember { 0 } else { row.order };
                let known =
                    row.errors | if takes_part_in_flushes { self.flush_errors(row.bio.extent.start, since) } else { 0 };
                if known & bit(errno) == 0 {
                    return says("F1", &format!("fails with {errno}, which the disk did not say of it"));
                }
                self.tally.one(Count::Ios);
                false
            }
        };
        let Extent { start: Sector(start), sectors } = row.bio.extent;
        let (order, op) = (row.order, row.bio.op);
        if !matches!(op, Op::Read | Op::Flush) {
            let end = self.sectors.next();
            let is_certain = is_done && op != Op::Discard;
            self.sectors.finished(self.setup.index(start), sectors, order, end, is_certain);
        }
        self.release(token.0 as usize);
        Ok(())
    }
}
