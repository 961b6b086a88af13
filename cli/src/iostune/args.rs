//! What can be said to `fairlift iostune`.

use std::path::PathBuf;

use clap::Args;
use fairlift_core::Duration;
use fairlift_core::time::secs;

use crate::words::units;

const EXAMPLES: &str = "\
Examples:
  fairlift iostune sim:eva-raid5-12
      a modelled array, in virtual time
  fairlift iostune /dev/nvme0n1 --quick --html page.html
      a real disk, half a minute; nothing is written
  fairlift iostune /srv/images/a.img --write
      the disk below a file, writes and flushes too: inside a scratch file
      beside it, which goes at the end

Without --write nothing is written. With it, a file is not touched either: a
scratch file is made (--scratch names it), and it is gone at the end however
that comes. A block device is written to only with --i-know-this-destroys-data.

Ctrl-C: report what was measured so far, exit 130. A second one: stop at once.
";

/// Measure what a disk is like, and say what to set and why
///
/// Parallel sequential streams straight to the disk and under cfq with and without idling, random reads by depth, sizes,
/// alignment; with --write also writes and flushes. From these follow a model of costs, whether to idle (slice_idle), a depth,
/// settings for Fairlift and for the kernel, and warnings where the figures may mislead.
#[derive(Debug, Default, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct IostuneArgs {
    /// The disk, as with --device
    #[arg(value_name = "DEVICE", conflicts_with = "device")]
    pub(crate) path: Option<String>,

    /// The disk: a path, file:PATH, sim:MODEL[,PARAMETER=VALUE], mem:SIZE or null:SIZE[,delay=TIME]
    #[arg(long, value_name = "BACKING")]
    pub(crate) device: Option<String>,

    /// Fewer steps and repeats: at most about 30 s instead of 3 min
    #[arg(long)]
    pub(crate) quick: bool,

    /// At most so long, in seconds or with a unit, instead of 3 min or (--quick) 30 s
    #[arg(long, value_name = "S", value_parser = parse_limit)]
    pub(crate) time: Option<Duration>,

    /// Measure writes and flushes too; of a file, inside a scratch file
    #[arg(long)]
    pub(crate) write: bool,

    /// The scratch file, which must not be there [default: beside the file, its name with .iostune behind it]
    #[arg(long, value_name = "FILE", requires = "write")]
    pub(crate) scratch: Option<PathBuf>,

    /// With --write: write on the block device itself. All that is on it is lost
    #[arg(long, requires = "write", conflicts_with = "scratch")]
    pub(crate) i_know_this_destroys_data: bool,

    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Write what was found as JSON; - is standard output, instead of the tables
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Write one page with plots, which needs no network; - is standard output, instead of the tables
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// Reads `30`, `2.5` (seconds), `90s`.
fn parse_limit(text: &str) -> Result<Duration, String> {
    let time = match text.trim().parse::<f64>() {
        Ok(seconds) if seconds.is_finite() && seconds >= 0.0 => Duration::from_nanos((seconds * 1e9).round() as u64),
        Ok(_) => return Err("a time is a number of seconds, or has a unit, as in 90s".into()),
        Err(_) => units::parse_time(text)?,
    };
    if time < secs(1) || time > secs(86_400) {
        return Err("it takes at least 1 s, and at most a day: 86400".into());
    }
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_in_seconds_or_has_a_unit() {
        assert_eq!(parse_limit("30"), Ok(secs(30)));
        assert_eq!(parse_limit("90s"), Ok(secs(90)));
        for (text, why) in [("0.5", "at least 1 s"), ("1e9", "at most a day"), ("nan", "a number"), ("soon", "a time")]
        {
            let refusal = parse_limit(text).unwrap_err();
            assert!(refusal.contains(why), "{text}: {refusal}");
        }
    }
}
