//! Traces of runs: the end of each, in files of its own.

use std::path::{Path, PathBuf};

use fairlift_lab::iostest::{Case, Failure, Measured, Runner, Watch};

use super::plan::Measurement;
use crate::blktrace::Taken;

/// Runs cases, and writes the trace of each.
pub(super) struct Tracing<'a, 'b> {
    pub(super) runner: Box<dyn Runner>,
    pub(super) disk: &'a str,
    pub(super) files: &'a mut Files<'b>,
}

pub(super) struct Files<'a> {
    output: &'a Path,
    /// Whether each run needs a name of its own.
    are_several: bool,
    runs: usize,
    /// The messages about those that were written.
    pub(super) lines: Vec<String>,
}

impl<'a> Files<'a> {
    /// For a plan that is run so often; `None`: nobody asked for traces.
    pub(super) fn new(output: Option<&'a Path>, measurement: &Measurement, passes: usize) -> Option<Self> {
        let are_several = passes * measurement.plan.cases().map_or(1, |cases| cases.len()) > 1;
        output.map(|output| Self { output, are_several, runs: 0, lines: Vec::new() })
    }

    /// `out.json`, or of the second of several runs `out-2.json`.
    fn next(&mut self) -> PathBuf {
        self.runs += 1;
        if !self.are_several {
            return self.output.to_owned();
        }
        let is_json = self.output.extension().is_some_and(|extension| extension == "json");
        let stem = if is_json { self.output.with_extension("") } else { self.output.to_owned() };
        PathBuf::from(format!("{}-{}{}", stem.display(), self.runs, if is_json { ".json" } else { "" }))
    }
}

impl Runner for Tracing<'_, '_> {
    fn check(&mut self, case: &Case) -> Result<(), Failure> {
        self.runner.check(case)
    }

    fn run(&mut self, case: &Case, watch: Watch<'_>) -> Result<Measured, Failure> {
        let mut measured = self.runner.run(case, watch)?;
        let mut taken = Taken::of(self.disk, &case.groups, std::mem::take(&mut measured.trace));
        let output = self.files.next();
        let files = taken.write(&output).map_err(|error| format!("{}: {error}", output.display()))?;
        self.files.lines.push(format!("{case}: {} events: {}", taken.events(), files.join(", ")));
        Ok(measured)
    }
}
