//! Sizes and times as people write them.
//!
//! Sizes follow fio: `4k` is 4096 bytes ([`parse_size`]).

use alloc::format;
use alloc::string::String;

pub use crate::tunable::parse_size;
use crate::{Duration, tunable};

/// Reads the size of something made of sectors: above zero, a multiple of 512.
///
/// # Errors
/// As [`parse_size`], or it is not such a multiple.
pub fn parse_capacity(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => Err("the size must be larger than 0".into()),
        bytes => whole_sectors(bytes),
    }
}

/// Passes a number of bytes on if it is a whole number of sectors.
///
/// # Errors
/// It is not a multiple of 512.
pub fn whole_sectors(bytes: u64) -> Result<u64, String> {
    if bytes.is_multiple_of(512) {
        return Ok(bytes);
    }
    Err(format!("{bytes} bytes is not a multiple of 512 (one sector)"))
}

/// Reads a length of time with its unit: `10s`, `250ms`, `20us`, `7ns`.
///
/// # Errors
/// The text is not a whole number with one of the units.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    if !text.trim().is_empty() && text.trim().chars().all(|c| c.is_ascii_digit()) {
        return Err(format!("a time needs a unit: {0}s, {0}ms, {0}us", text.trim()));
    }
    tunable::parse_duration(text)
        .ok_or_else(|| "a time is a whole number with a unit (s, ms, us, ns), as in 10s".into())
}

/// Passes a length of time on if it is above zero.
///
/// # Errors
/// It is zero.
pub fn some_time(time: Duration) -> Result<Duration, String> {
    if time == Duration::ZERO { Err("the time must be longer than 0".into()) } else { Ok(time) }
}

/// Shows a number of bytes in the largest unit that leaves no remainder: `1 GiB`, `1536 KiB`, `512 bytes`.
pub fn show_size(bytes: u64) -> String {
    const UNITS: [(u32, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    match UNITS.iter().find(|(shift, _)| bytes > 0 && bytes.trailing_zeros() >= *shift) {
        Some((shift, unit)) => format!("{} {unit}", bytes >> shift),
        None => format!("{bytes} bytes"),
    }
}

/// A time as so many of a unit, `30000ms`, or as it shows itself where it is no whole number of them. Two servers compare such texts, of which one
/// may be older.
#[must_use]
pub fn show_time_in(time: Duration, unit: Duration, name: &str) -> String {
    match time.as_nanos() % unit.as_nanos() {
        0 => format!("{}{name}", time.as_nanos() / unit.as_nanos()),
        _ => format!("{time}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{ms, secs};

    #[test]
    fn a_capacity_is_whole_sectors() {
        assert_eq!(parse_capacity("1k"), Ok(1024));
        assert!(parse_capacity("0").is_err());
        assert_eq!(parse_capacity("1000"), Err("1000 bytes is not a multiple of 512 (one sector)".into()));
    }

    #[test]
    fn times_need_a_unit() {
        assert_eq!(parse_time("10s"), Ok(secs(10)));
        assert_eq!(parse_time("250 ms"), Ok(ms(250)));
        assert_eq!(parse_time("10"), Err("a time needs a unit: 10s, 10ms, 10us".into()));
        assert!(parse_time("soon").is_err());
        assert_eq!(show_time_in(secs(30), ms(1), "ms"), "30000ms");
        assert_eq!(show_time_in(Duration::from_nanos(1_500_000), ms(1), "ms"), "1500us");
    }

    #[test]
    fn a_size_is_shown_in_its_largest_whole_unit() {
        assert_eq!(show_size(1 << 30), "1 GiB");
        assert_eq!(show_size(1536 << 10), "1536 KiB");
        assert_eq!(show_size(513), "513 bytes");
        assert_eq!(show_size(0), "0 bytes");
    }
}
