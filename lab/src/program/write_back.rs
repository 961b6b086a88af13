//! Writeback: a writer through the page cache, and the kernel's flusher behind it.
//!
//! write_back.1  A `write()` of a block makes its pages dirty at the speed of memory.
//! write_back.2  When more than `background` bytes are dirty, the flusher writes dirty runs of up to 1 MiB in the order of the
//!     file, at most 8 at a time, until no more than that are dirty.
//! write_back.3  Every 5 s the flusher looks for pages that have been dirty for 30 s, and then writes all that is dirty (Linux:
//!     `dirty_writeback_centisecs`, `dirty_expire_centisecs`).
//! write_back.4  With `limit` bytes dirty or on their way to the disk, the writer waits in its `write()`.
//! write_back.5  An operation is one `write()`, the time that it waits included. A failure of the flusher is told to the next operation.
//! write_back.6  A page that is on its way is not written a second time before it has arrived.
//!
//! The thresholds are a program's part of the machine's, and their defaults an estimate: 10 and 20 % of 5 GiB of memory, shared by 64
//! writers. Not modelled: reading the rest of a page that is written in part; the kernel's gradual slowing between the thresholds.

use fairlift_core::program::{Ask, Meter, Program};
use fairlift_core::time::secs;
use fairlift_core::{Duration, Flags, Instant, Op, Outcome};

use super::blocks::Blocks;
use super::{PAGE, Pattern, Region, copying};

mod dirty;

use dirty::Dirty;

/// Its operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Through the file.
    pub order: Pattern,
    /// Bytes of a `write()`.
    pub block: u64,
    /// Time between writes.
    pub think: Duration,
    /// Bytes dirty beyond which the flusher works.
    pub background: u64,
    /// Bytes dirty or on their way at which the writer waits.
    pub limit: u64,
}

impl Default for Settings {
    fn default() -> Self {
        let (background, limit) = (8 << 20, 16 << 20);
        Self { order: Pattern::Sequential, block: PAGE, think: Duration::ZERO, background, limit }
    }
}

/// The longest piece that the flusher writes, in pages (write_back.2). An estimate.
pub(crate) const RUN_MAX: u64 = (1 << 20) / PAGE;
/// Pieces on their way at a time (write_back.2). An estimate.
const IN_FLIGHT: u32 = 8;
/// How often the flusher looks for old pages: Linux's `dirty_writeback_centisecs`, by default.
const LOOK: Duration = secs(5);
/// When a page is old: Linux's `dirty_expire_centisecs`, by default.
const OLD: Duration = secs(30);
/// Writes that are done in one event. Chosen for speed: their times are exact, but the flusher hears of all of them together.
const BATCH: u64 = 16;

/// A buffered writer: see the [module](self).
pub struct WriteBack {
    settings: Settings,
    file: Region,
    blocks: Blocks,
    dirty: Dirty,
    /// Since when something has been dirty, as far as the flusher knows.
    dirty_since: Option<Instant>,
    /// When it looks for old pages.
    look: Instant,
    /// Pages that are written because they are old.
    sweep: u64,
    /// By token: the first page and how many are on their way.
    under_way: [Option<(u64, u64)>; IN_FLIGHT as usize],
    /// The sum of those, in pages.
    in_flight: u64,
    /// Until when the writer copies, and how many blocks.
    busy: Option<(Instant, u64)>,
    /// Since when its present `write()` runs.
    began: Instant,
    /// The flusher's find.
    outcome: Outcome,
    meter: Meter,
}

impl WriteBack {
    /// Starts at once.
    ///
    /// # Panics
    /// If the file has no whole block.
    #[must_use]
    pub fn new(settings: Settings, file: Region, seed: u64) -> Self {
        Self {
            settings,
            file,
            blocks: Blocks::new(file, settings.block, settings.order, seed),
            dirty: Dirty::new(file.bytes.div_ceil(PAGE)),
            dirty_since: None,
            look: Instant::ZERO + LOOK,
            sweep: 0,
            under_way: [None; IN_FLIGHT as usize],
            in_flight: 0,
            busy: None,
            began: Instant::ZERO,
            outcome: Outcome::Done,
            meter: Meter::default(),
        }
    }

    /// The writer does all that it can at `now`.
    fn write(&mut self, now: Instant) {
        if let Some((until, blocks)) = self.busy {
            if until > now {
                return;
            }
            self.busy = None;
            self.written(until, blocks);
        }
        let held = (self.dirty.pages + self.in_flight) * PAGE;
        if held >= self.settings.limit {
            return; // write_back.4
        }
        let room = (self.settings.limit - held).div_ceil(self.settings.block);
        let blocks = if self.settings.think == Duration::ZERO { room.min(BATCH) } else { 1 };
        let from = self.began.max(now);
        self.busy = Some((from + copying(blocks * self.settings.block), blocks)); // write_back.1
    }

    /// At `now` the last of `blocks` is in memory.
    fn written(&mut self, now: Instant, blocks: u64) {
        let each = copying(self.settings.block).as_nanos();
        for block in 1..=blocks {
            let offset = self.blocks.next();
            let pages = offset / PAGE..(offset + self.settings.block).div_ceil(PAGE);
            self.dirty.add(pages);
            let at = Instant::from_nanos(now.as_nanos() - (blocks - block) * each);
            let outcome = std::mem::replace(&mut self.outcome, Outcome::Done);
            self.meter.ended(self.settings.block, outcome, at.since(self.began)); // write_back.5
            self.began = at + self.settings.think;
        }
        self.dirty_since.get_or_insert(now);
    }

    /// The flusher's next write.
    fn flush(&mut self, now: Instant) -> Option<Ask> {
        if now >= self.look {
            let looks = now.since(self.look).as_nanos() / LOOK.as_nanos();
            self.look += Duration::from_nanos((looks + 1) * LOOK.as_nanos());
            if self.dirty_since.is_some_and(|since| now.since(since) >= OLD) {
                (self.sweep, self.dirty_since) = (self.dirty.pages, Some(now)); // write_back.3
            }
        }
        if self.dirty.pages * PAGE <= self.settings.background && self.sweep == 0 {
            return None; // write_back.2
        }
        let token = self.under_way.iter().position(Option::is_none)?;
        let (start, pages) = self.dirty.take_run(RUN_MAX, self.under_way.iter().flatten())?; // write_back.6
        self.sweep = self.sweep.saturating_sub(pages);
        if self.dirty.pages == 0 {
            (self.sweep, self.dirty_since) = (0, None);
        }
        self.under_way[token] = Some((start, pages));
        self.in_flight += pages;
        let end = ((start + pages) * PAGE).min(self.file.bytes);
        let extent = self.file.extent(start * PAGE, end - start * PAGE);
        Some(Ask { token: token as u32, op: Op::Write, flags: Flags::NONE, extent })
    }
}

impl Program for WriteBack {
    fn poll_ask(&mut self, now: Instant) -> Option<Ask> {
        self.write(now);
        self.flush(now)
    }

    fn handle_end(&mut self, _now: Instant, token: u32, outcome: Outcome) {
        let (_, pages) = self.under_way[token as usize].take().expect("it was asked");
        self.in_flight -= pages;
        self.outcome = self.outcome.and(outcome);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let look = (self.dirty.pages > 0).then_some(self.look);
        [self.busy.map(|(until, _)| until), look].into_iter().flatten().min()
    }

    fn meter(&self) -> &Meter {
        &self.meter
    }

    fn open_since(&self) -> Option<Instant> {
        Some(self.began)
    }
}
