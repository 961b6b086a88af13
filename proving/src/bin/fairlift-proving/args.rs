//! The command line.

use std::time::Duration;

use clap::Parser;
use clap::builder::PossibleValuesParser;
use fairlift_proving::torture::SUITES;

const EXAMPLES: &str = "\
Examples:
  fairlift-proving                                 a minute, on all processors
  fairlift-proving --hours 2 --seed N              two hours, from another seed on
  fairlift-proving --only queue --seed N --runs 1  one run once more: what failed is shrunk and shown

The exit status is 1 if a promise was broken.
";

/// Try to break Fairlift's promises, in simulated time: faults, power cuts, changes, drawn at random and repeated by seed
///
/// Each run draws a disk, a scheduler, settings, clients, and faults. The report has a line for each promise: what was tried and how often,
/// and whether it was broken. Nothing outside of this process is touched.
#[derive(Debug, Parser)]
#[command(name = "fairlift-proving", version, after_long_help = EXAMPLES, max_term_width = 110)]
pub(crate) struct Args {
    /// How long, in hours
    #[arg(long, value_name = "N", value_parser = parse_hours, conflicts_with_all = ["seconds", "runs"])]
    pub(crate) hours: Option<Duration>,

    /// How long, in seconds [default: 60]
    #[arg(long, value_name = "S", conflicts_with = "runs", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seconds: Option<u64>,

    /// How many runs of each suite, instead of a time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) runs: Option<u64>,

    /// The seed of each suite's first run; the runs after it have the seeds after it
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Only this suite; may be given several times [default: all]
    #[arg(long, value_name = "SUITE", value_parser = PossibleValuesParser::new(SUITES.iter().map(|suite| suite.name)))]
    pub(crate) only: Vec<String>,

    /// How many runs at a time [default: one on each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,

    /// Write the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl Args {
    /// How long, unless a number of runs is given.
    pub(crate) fn time(&self) -> Option<Duration> {
        let usual = Duration::from_secs(self.seconds.unwrap_or(60));
        self.runs.is_none().then(|| self.hours.unwrap_or(usual))
    }
}

fn parse_hours(text: &str) -> Result<Duration, String> {
    match text.trim().parse::<f64>() {
        Ok(hours) if hours * 3600.0 >= 1.0 && hours <= 10_000.0 => Ok(Duration::from_secs_f64(hours * 3600.0)),
        _ => Err("a number of hours, such as 2 or 0.5: at least a second, 10,000 at most".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_are_a_number_and_a_second_at_least() {
        assert_eq!(parse_hours("0.5"), Ok(Duration::from_secs(1800)));
        for bad in ["0", "0.0001", "-1", "nan", "soon", "1e9"] {
            assert!(parse_hours(bad).is_err(), "{bad}");
        }
    }
}
