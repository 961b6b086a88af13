//! Probes of real disks: straight to the path, or through Fairlift's engine.

use std::path::PathBuf;

use fairlift::config::{Backing, Disk, FileAt};
use fairlift_lab::iostest::{Case, Failure, Measured, Watch};
use fairlift_lab::iostune::{Area, Facts, UnderTest, Way};

use super::around::Around;
use crate::iostest::measure_real;

pub(crate) struct Real {
    pub(crate) backing: Backing,
    pub(crate) facts: Facts,
    /// Where is written, if anywhere.
    pub(crate) scratch: Option<PathBuf>,
    pub(crate) around: Option<Around>,
    /// Bytes that we read from the device, in runs during which it was watched.
    pub(crate) own: u64,
    /// Bytes that the device moved in those runs.
    pub(crate) all: u64,
}

impl UnderTest for Real {
    fn facts(&self) -> Facts {
        self.facts
    }

    fn run(&mut self, way: Way, place: Area, case: &Case, watch: Watch<'_>) -> Result<Measured, Failure> {
        let backing = match (place, &self.scratch) {
            (Area::Scratch, Some(path)) => Backing::from(FileAt::new(path)),
            _ => self.backing.clone(),
        };
        let (scheduler, set) = way.setting();
        let set = set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let disk = Disk { set, ..Disk::new("iostune", scheduler) };
        let before = self.around.as_ref().and_then(Around::moved);
        let straight = way == Way::Straight && matches!(backing, Backing::File(_));
        let measured = measure_real(case, disk, &backing, straight, None, watch)?;
        if let (Area::Device, Some(before), Some(after)) = (place, before, self.around.as_ref().and_then(Around::moved))
        {
            self.own += measured.meters.iter().map(|(_, meter)| meter.bytes).sum::<u64>();
            // Requests under way at the end are ours, too.
            self.own += measured.meters.len() as u64 * (1 << 20);
            self.all += after.saturating_sub(before);
        }
        Ok(measured)
    }

    fn disturbed(&self) -> Option<String> {
        let others = self.all.saturating_sub(self.own);
        let part = others as f64 / (self.all.max(1)) as f64 * 100.0;
        (part > 5.0).then(|| format!("other programs used the disk meanwhile: {part:.0} % of its traffic"))
    }
}
