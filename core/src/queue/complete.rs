//! The way out: requests end, bios end with their last one, and who waits for room hears of it (Q1).

use super::flush_sequence::Stage;
use super::{Finished, Queue};
use crate::group::ContextId;
use crate::{Errno, Instant, Outcome, Sector};

impl Queue {
    #[inline]
    pub(super) fn end_segment(&mut self, now: Instant, number: u32, outcome: Outcome) {
        let bio = &mut self.bios[number];
        bio.outcome = bio.outcome.and(outcome);
        bio.remaining -= 1;
        if bio.remaining > 0 {
            return;
        }
        if bio.stage == (Stage::Data { durable: true }) && bio.outcome == Outcome::Done && !bio.timed_out {
            bio.stage = Stage::Postflush;
            return self.ask_flush(now, number);
        }
        self.end_bio(now, number);
    }

    #[inline]
    pub(super) fn end_bio(&mut self, now: Instant, number: u32) {
        let bio = self.bios.remove(number);
        let news = if bio.timed_out {
            Finished::Released(bio.token)
        } else {
            let latency = now.since(bio.submitted);
            self.streams[bio.stream.0 as usize].stats.ended(bio.op, bio.bytes, bio.outcome, latency);
            Finished::Done(bio.token, bio.outcome)
        };
        self.streams[bio.stream.0 as usize].open -= 1;
        self.tell(bio.context, news);
    }

    pub(super) fn time_out(&mut self, now: Instant, number: u32) {
        let bio = &mut self.bios[number];
        if core::mem::replace(&mut bio.timed_out, true) {
            return; // another part of it was overdue already
        }
        let (outcome, latency) = (Outcome::Failed(Errno::ETIMEDOUT), now.since(bio.submitted));
        self.streams[bio.stream.0 as usize].stats.ended(bio.op, bio.bytes, outcome, latency);
        let (context, token) = (bio.context, bio.token);
        self.tell(context, Finished::TimedOut(token));
    }

    #[inline]
    fn tell(&mut self, context: ContextId, news: Finished) {
        self.contexts[usize::from(context.0)].finished.push_back(news);
        self.wake |= 1 << context.0;
    }

    /// A request is free again: the rest of a bio goes on, and who was refused hears of it.
    #[inline]
    pub(super) fn made_room(&mut self, now: Instant) {
        if self.rest.is_some() || !self.nobody_resumes() {
            self.go_on(now);
        }
        if self.rest.is_none() && self.nobody_resumes() {
            self.wake |= core::mem::take(&mut self.starved);
        }
    }

    /// What had no room, or had to wait for a flush, goes on as far as there is room now.
    #[cold]
    fn go_on(&mut self, now: Instant) {
        if let Some((number, left)) = self.rest.take() {
            let bio = &mut self.bios[number];
            bio.remaining -= 1;
            let (context, done) = (bio.context, bio.bytes - left.extent.bytes());
            self.cut(now, left, context, number, done / Sector::SIZE);
        }
        self.resume(now);
    }
}
