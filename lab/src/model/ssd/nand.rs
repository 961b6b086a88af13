//! The flash: dies that read, program and erase, each one thing at a time, and the channels that join them to the
//! controller.
//!
//! nand.1  Page n lies on a die that follows from n alone: rows of pages go once over all dies, each row from a die of its own. A
//!     sequential read therefore keeps all dies busy, and far streams do not keep step on one die.
//! nand.2  Reads of a die go in order of arrival. A read goes before a program or erase that has not begun, and interrupts
//!     one that has, at the price of `suspend`; but only `suspends` reads for each, then it is left to end.
//! nand.3  A page has a read time of its own, within `spread` of the average.
//! nand.4  The page that a die read last stays in its register: more of it needs no array read.

use super::Settings;
use crate::random::{GOLDEN, mix};

/// The tasks of a die besides reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Job {
    /// Programs `bytes` of the buffer; the number rises with every such program.
    Host { bytes: u32, number: u64 },
    /// Moves valid data away from where it will erase.
    Move,
    /// Erases.
    Erase,
}

/// A die, or a plane that reads on its own.
#[derive(Clone, Copy, Debug)]
struct Die {
    /// When the reads that it has end, and the page of the last of them.
    read_end: u64,
    page: u64,
    /// When its job begins and ends; past if it has none.
    job_start: u64,
    job_end: u64,
    /// Reads that may still go before its job.
    patience: u32,
    channel: u32,
}

/// The debt of a die to garbage collection.
#[derive(Clone, Copy, Default, Debug)]
struct Debt {
    moves: f64,
    erases: f64,
}

/// All dies.
pub(super) struct Nand {
    dies: Vec<Die>,
    jobs: Vec<Option<Job>>,
    debts: Vec<Debt>,
    /// `log2` of the sectors of a page.
    pub(super) page_shift: u32,
    read: u64,
    /// Nanoseconds by which the slowest page is behind the average.
    read_spread: u64,
    suspend: u64,
    suspends: u32,
    seed: u64,
    /// Dies without a job, and where the search for one goes on.
    idle: usize,
    cursor: usize,
}

impl Nand {
    pub(super) fn new(settings: &Settings, seed: u64) -> Self {
        let die = |number: u32| Die {
            read_end: 0,
            page: u64::MAX,
            job_start: 0,
            job_end: 0,
            patience: 0,
            channel: number % settings.channels,
        };
        let dies: Vec<_> = (0..settings.dies).map(die).collect();
        let read = settings.read.as_nanos();
        Self {
            jobs: vec![None; dies.len()],
            debts: vec![Debt::default(); dies.len()],
            idle: dies.len(),
            dies,
            page_shift: settings.page.trailing_zeros() + 1,
            read,
            read_spread: read * u64::from(settings.spread) / 100,
            suspend: settings.suspend.as_nanos(),
            suspends: settings.suspends,
            seed,
            cursor: 0,
        }
    }

    /// Reads a page from `at` on: when it is in the die's register, and over which channel it will come.
    pub(super) fn read(&mut self, at: u64, page: u64) -> (u64, u32) {
        let dies = self.dies.len() as u64;
        let row = page / dies;
        let chance = mix((row ^ self.seed).wrapping_mul(GOLDEN));
        let mut number = page - row * dies + (((chance >> 32) * dies) >> 32); // nand.1
        if number >= dies {
            number -= dies;
        }
        // nand.3: other bits for each page of the row.
        let slow = (((chance ^ page.wrapping_mul(0x9e37_79b1)) & 0xffff) * 2 * self.read_spread) >> 16;
        let time = self.read - self.read_spread + slow;
        let die = &mut self.dies[number as usize];
        if die.page == page {
            return (at.max(die.read_end), die.channel); // nand.4
        }
        die.page = page;
        (die.read(at, time, self.suspend), die.channel)
    }

    /// A die without a job, if there is one: in turn.
    pub(super) fn idle_die(&mut self) -> Option<usize> {
        if self.idle == 0 {
            return None;
        }
        while self.jobs[self.cursor].is_some() {
            self.step();
        }
        let die = self.cursor;
        self.step();
        Some(die)
    }

    const fn step(&mut self) {
        self.cursor += 1;
        if self.cursor == self.dies.len() {
            self.cursor = 0;
        }
    }

    /// Gives an idle die a job; when it will end, if no read goes before it.
    pub(super) fn start(&mut self, at: u64, number: usize, job: Job, time: u64) -> u64 {
        assert!(self.jobs[number].replace(job).is_none(), "die {number} was given a second job");
        self.idle -= 1;
        let die = &mut self.dies[number];
        die.job_start = at.max(die.read_end);
        die.job_end = die.job_start + time;
        die.patience = self.suspends;
        die.job_end
    }

    /// When the job of a die ends by now: reads may have put it off.
    pub(super) fn job_end(&self, number: usize) -> u64 {
        self.dies[number].job_end
    }

    /// The die's job has ended.
    pub(super) fn finish(&mut self, number: usize) -> Job {
        self.idle += 1;
        self.jobs[number].take().expect("a job ended that a die had")
    }

    /// Whether a program of the buffer with this number or an earlier one is under way.
    pub(super) fn programs_up_to(&self, number: u64) -> bool {
        self.jobs.iter().any(|job| matches!(job, Some(Job::Host { number: other, .. }) if *other <= number))
    }

    /// Adds to the debt of a die.
    pub(super) fn owe(&mut self, number: usize, moves: f64, erases: f64) {
        let debt = &mut self.debts[number];
        debt.moves += moves;
        debt.erases += erases;
    }

    /// The next step of the die for garbage collection.
    pub(super) fn due(&mut self, number: usize) -> Option<Job> {
        let debt = &mut self.debts[number];
        if debt.erases >= 1.0 {
            debt.erases -= 1.0;
            Some(Job::Erase)
        } else if debt.moves >= 1.0 {
            debt.moves -= 1.0;
            Some(Job::Move)
        } else {
            None
        }
    }
}

impl Die {
    /// nand.2
    fn read(&mut self, at: u64, time: u64, suspend: u64) -> u64 {
        let mut start = at.max(self.read_end);
        if self.job_end > start {
            if self.patience == 0 {
                start = self.job_end;
            } else {
                self.patience -= 1;
                // A read that finds the job not begun, or suspended already for the read before it, goes at once.
                if self.job_start < start && self.read_end < at {
                    start += suspend;
                    self.job_end += suspend;
                }
                if self.job_start >= start {
                    let begin = self.job_start.max(start + time);
                    self.job_end += begin - self.job_start;
                    self.job_start = begin;
                } else {
                    self.job_end += time;
                }
            }
        }
        self.read_end = start + time;
        self.read_end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlift_core::time::us;

    fn nand(suspends: u32) -> Nand {
        let settings = Settings { dies: 8, read: us(50), spread: 0, suspend: us(20), suspends, ..Settings::default() };
        Nand::new(&settings, 1)
    }

    /// The page of a row that lies on die `number`.
    fn page_on(nand: &Nand, number: usize, row: u64) -> u64 {
        (row * 8..row * 8 + 8)
            .find(|page| {
                let mut probe = Nand { dies: nand.dies.clone(), jobs: vec![], debts: vec![], ..*nand };
                let before = probe.dies[number].read_end;
                probe.read(1 << 40, *page);
                probe.dies[number].read_end != before
            })
            .unwrap()
    }

    /// nand.1
    #[test]
    fn a_row_of_pages_goes_once_over_all_dies() {
        let mut nand = nand(0);
        for row in 0..100 {
            let at = row * 1_000_000;
            let ends: Vec<_> = (0..8).map(|page| nand.read(at, row * 8 + page).0).collect();
            assert_eq!(ends, [at + 50_000; 8], "row {row}: none waits for another");
        }
    }

    /// nand.1
    #[test]
    fn rows_begin_on_dies_of_their_own() {
        let nand = nand(0);
        let firsts = (0..80).filter(|row| page_on(&nand, 0, *row) == row * 8).count();
        assert!((2..20).contains(&firsts), "of 80 rows, {firsts} begin on the first of 8 dies");
    }

    /// nand.2
    #[test]
    fn a_read_waits_for_a_program_that_cannot_be_suspended() {
        let mut nand = nand(0);
        let page = page_on(&nand, 3, 0);
        assert_eq!(nand.start(0, 3, Job::Move, 700_000), 700_000);
        assert_eq!(nand.read(100_000, page).0, 750_000);
        assert_eq!(nand.job_end(3), 700_000);
    }

    /// nand.4
    #[test]
    fn more_of_the_page_that_was_read_last_needs_no_array_read() {
        let mut nand = nand(0);
        let page = page_on(&nand, 3, 0);
        assert_eq!(nand.read(0, page).0, 50_000);
        assert_eq!(nand.read(10_000, page).0, 50_000, "it is on its way");
        assert_eq!(nand.read(60_000, page).0, 60_000);
        let other = page_on(&nand, 3, 1);
        assert_eq!(nand.read(60_000, other).0, 110_000);
    }

    /// nand.2
    #[test]
    fn a_read_suspends_a_program_and_the_next_finds_it_suspended() {
        let mut nand = nand(2);
        let [a, b, c] = [0, 1, 2].map(|row| page_on(&nand, 3, row));
        nand.start(0, 3, Job::Move, 700_000);
        assert_eq!(nand.read(100_000, a).0, 170_000, "20 µs to suspend, 50 to read");
        assert_eq!(nand.read(110_000, b).0, 220_000, "right after it");
        assert_eq!(nand.job_end(3), 820_000, "put off by what the two took");
        assert_eq!(nand.read(300_000, c).0, 870_000, "two may go before it, not three");
    }

    /// nand.2
    #[test]
    fn a_read_goes_before_a_program_that_has_not_begun() {
        let mut nand = nand(9);
        let [a, b] = [0, 1].map(|row| page_on(&nand, 3, row));
        nand.read(0, a);
        assert_eq!(nand.start(0, 3, Job::Move, 700_000), 750_000);
        assert_eq!(nand.read(10_000, b).0, 100_000);
        assert_eq!(nand.job_end(3), 800_000);
    }

    /// nand.3
    #[test]
    fn pages_differ_in_their_read_time_within_the_spread() {
        let settings = Settings { dies: 8, read: us(50), spread: 20, ..Settings::default() };
        let mut nand = Nand::new(&settings, 1);
        let times: Vec<_> = (0..10_000).map(|page| nand.read(page << 32, page).0 - (page << 32)).collect();
        let (least, most) = (*times.iter().min().unwrap(), *times.iter().max().unwrap());
        let mean = times.iter().sum::<u64>() / times.len() as u64;
        assert!((40_000..40_100).contains(&least) && (59_900..60_001).contains(&most), "{least} to {most}");
        assert!((49_500..50_500).contains(&mean), "{mean}");
    }
}
