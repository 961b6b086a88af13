//! Seconds: a time for which a command runs, as flags write it.

use fairlift_core::{Duration, units};

/// Reads a number of seconds, or a time with its unit; a number that is none of a time is refused by `form`.
pub(crate) fn seconds_or_time(text: &str, form: &str) -> Result<Duration, String> {
    match text.trim().parse::<f64>() {
        Ok(seconds) if seconds.is_finite() && seconds >= 0.0 => {
            Ok(Duration::from_nanos((seconds * 1e9).round() as u64))
        }
        Ok(_) => Err(form.into()),
        Err(_) => units::parse_time(text),
    }
}
