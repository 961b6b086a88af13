//! The disks of an array.

use fairlift_core::model::{Model as _, ModelCompletion, ModelRequest};
use fairlift_core::{Extent, Flags, Instant, Op, Sector};

use super::super::disk::{Drive, Settings};
use crate::Random;

/// Disks, and when each wants to be looked at.
pub(super) struct Members {
    drives: Vec<Drive>,
    next: Vec<Instant>,
    heard: Vec<ModelCompletion>,
}

impl Members {
    /// Disks of one size, their spindles each on its own.
    pub(super) fn new(settings: &Settings, disks: u64, sectors: u64, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let drives: Vec<_> = (0..disks).map(|_| Drive::new(settings, sectors, random.bits())).collect();
        Self { next: vec![Instant::MAX; drives.len()], drives, heard: Vec::with_capacity(64) }
    }

    /// Asks a disk for something; its end is told by `task`.
    pub(super) fn submit(&mut self, now: u64, disk: usize, task: usize, op: Op, start: u64, sectors: u64) {
        let extent = Extent::new(Sector(start), sectors);
        // Writes of the controller are meant for the medium, unless the disks' own caches are on.
        let request = ModelRequest { id: task as u64, op, flags: Flags::NONE, extent };
        self.drives[disk].submit(Instant::from_nanos(now), &request);
        self.next[disk] = self.drives[disk].poll_event().unwrap_or(Instant::MAX);
    }

    pub(super) fn poll_event(&self) -> Option<u64> {
        self.next.iter().min().filter(|at| **at < Instant::MAX).map(|at| at.as_nanos())
    }

    /// Goes on to `now`; appends a task for each part of it that ended.
    pub(super) fn advance(&mut self, now: u64, tasks: &mut Vec<usize>) {
        let now = Instant::from_nanos(now);
        for (drive, next) in self.drives.iter_mut().zip(&mut self.next) {
            if *next <= now {
                drive.advance(now, &mut self.heard);
                *next = drive.poll_event().unwrap_or(Instant::MAX);
                tasks.extend(self.heard.drain(..).map(|ended| ended.id as usize));
            }
        }
    }
}
