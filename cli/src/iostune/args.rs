//! The flags of `fairlift iostune`.

use std::path::PathBuf;

use clap::Args;
use fairlift_core::Duration;
use fairlift_core::time::secs;

use crate::syntax::seconds::seconds_or_time;

const EXAMPLES: &str = "\
Examples:
  fairlift iostune sim:eva-raid5-12
      a modelled array, in virtual time
  fairlift iostune /dev/nvme0n1 --quick --html page.html
      a real disk, in half a minute; nothing is written to it
  fairlift iostune /srv/images/a.img --write
      the disk below a file, with writes and flushes: these go to a scratch file
      beside it, which is removed at the end

Without --write nothing is written. With --write a file is not touched either:
writes go to a scratch file (--scratch names it), which is removed at the end,
even after a crash. A block device, or another server's export, is written to
only with --i-know-this-destroys-data.

Ctrl-C: report the figures so far, exit 130. A second one: stop at once.
";

/// Measure a disk, and recommend settings for it, with the reasons
///
/// Measures parallel sequential streams, without a scheduler and under cfq with and without idling; random reads by depth
/// and size; alignment; with --write also writes and flushes. Reports a cost model, whether idling pays (slice_idle), a
/// depth, settings for Fairlift and for the kernel, and warnings where the figures may mislead.
#[derive(Debug, Default, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct IostuneArgs {
    /// The disk, as with --device
    #[arg(value_name = "DEVICE", conflicts_with = "device")]
    pub(crate) path: Option<String>,

    /// The disk: a path, file:PATH, sim:MODEL[,PARAMETER=VALUE], mem:SIZE or null:SIZE[,delay=TIME]
    #[arg(long, value_name = "BACKING")]
    pub(crate) device: Option<String>,

    /// Use fewer steps and repeats: at most about 30 s instead of 3 min
    #[arg(long)]
    pub(crate) quick: bool,

    /// Time limit, in seconds or with a unit, instead of 3 min or (--quick) 30 s
    #[arg(long, value_name = "S", value_parser = parse_limit)]
    pub(crate) time: Option<Duration>,

    /// Measure writes and flushes too; for a file, in a scratch file beside it
    #[arg(long)]
    pub(crate) write: bool,

    /// The scratch file, which must not exist yet [default: the file's name with .iostune appended]
    #[arg(long, value_name = "FILE", requires = "write")]
    pub(crate) scratch: Option<PathBuf>,

    /// With --write: write to the disk itself, which destroys all data on it
    #[arg(long, requires = "write", conflicts_with = "scratch")]
    pub(crate) i_know_this_destroys_data: bool,

    /// The seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Write the results as JSON; - is standard output, instead of the tables
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Write an HTML page with plots, which needs no network; - is standard output, instead of the tables
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// Reads `30`, `2.5` (seconds), `90s`.
fn parse_limit(text: &str) -> Result<Duration, String> {
    let time = seconds_or_time(text, "a time is a number of seconds, or has a unit, as in 90s")?;
    if time < secs(1) || time > secs(86_400) {
        return Err("the limits are 1 s and a day (86400)".into());
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
        for (text, why) in
            [("0.5", "the limits are 1 s"), ("1e9", "and a day"), ("nan", "a number"), ("soon", "a time")]
        {
            let refusal = parse_limit(text).unwrap_err();
            assert!(refusal.contains(why), "{text}: {refusal}");
        }
    }
}
