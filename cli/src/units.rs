//! Sizes and times as people write them.
//!
//! Sizes follow fio: `4k` is 4096 bytes. A unit that some tools count in thousands and others in 1024s (`kb`) is
//! refused rather than guessed.

use fairlift_core::{Duration, tunable};

/// Reads a number of bytes: `512`, `4k`, `64KiB`, `1g`, `2t`. Every unit is a power of 1024.
///
/// # Errors
/// The text is not a whole number with one of the units, or the number is too large.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    const FORM: &str = "a size is a whole number of bytes, or of k, m, g, t (powers of 1024) as in 4k or 10g";
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" => 0,
        "k" | "ki" | "kib" => 10,
        "m" | "mi" | "mib" => 20,
        "g" | "gi" | "gib" => 30,
        "t" | "ti" | "tib" => 40,
        "p" | "pi" | "pib" => 50,
        "kb" | "mb" | "gb" | "tb" | "pb" if !number.is_empty() => {
            let unit = unit.trim_start();
            let letter = &unit[..1];
            return Err(format!(
                "\"{unit}\" means 1000s to some tools and 1024s to others; write {number}{} (1024s), or the number of bytes",
                letter.to_ascii_lowercase()
            ));
        }
        unit if unit.starts_with('.') => return Err(format!("{FORM}; a fraction is written in the next smaller unit")),
        _ => return Err(FORM.into()),
    };
    if number.is_empty() {
        return Err(FORM.into());
    }
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    // Offsets in Linux are signed.
    bytes.filter(|bytes| i64::try_from(*bytes).is_ok()).ok_or_else(|| "a size is at most 8191p".into())
}

/// Reads the size of something made of sectors: above zero, a multiple of 512.
///
/// # Errors
/// As [`parse_size`], or it is not such a multiple.
pub(crate) fn parse_capacity(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => Err("a size of zero leaves nothing to serve".into()),
        bytes => whole_sectors(bytes),
    }
}

/// Passes a number of bytes on if it is a whole number of sectors.
///
/// # Errors
/// It is not a multiple of 512.
pub(crate) fn whole_sectors(bytes: u64) -> Result<u64, String> {
    if bytes.is_multiple_of(512) {
        return Ok(bytes);
    }
    Err(format!("{bytes} bytes are not a multiple of 512 (one sector)"))
}

/// Reads a length of time with its unit: `10s`, `250ms`, `20us`, `7ns`.
///
/// # Errors
/// The text is not a whole number with one of the units.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    if !text.trim().is_empty() && text.trim().chars().all(|c| c.is_ascii_digit()) {
        return Err(format!("a time needs a unit: {0}s, {0}ms, {0}us", text.trim()));
    }
    tunable::parse_duration(text).ok_or_else(|| "a time is a whole number of s, ms, us or ns, as in 10s".into())
}

/// Passes a length of time on if it is above zero.
///
/// # Errors
/// It is zero.
pub(crate) fn some_time(time: Duration) -> Result<Duration, String> {
    if time == Duration::ZERO { Err("a time of zero would end before it began".into()) } else { Ok(time) }
}

/// Shows a number of bytes in the largest unit that leaves no remainder: `1 GiB`, `1536 KiB`, `512 bytes`.
pub(crate) fn show_size(bytes: u64) -> String {
    const UNITS: [(u32, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    match UNITS.iter().find(|(shift, _)| bytes > 0 && bytes.trailing_zeros() >= *shift) {
        Some((shift, unit)) => format!("{} {unit}", bytes >> shift),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlift_core::time::{ms, secs};

    #[test]
    fn sizes_count_in_1024s_whatever_the_case() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("4k", 4096),
            ("4K", 4096),
            ("4 KiB", 4096),
            ("1m", 1 << 20),
            ("1gi", 1 << 30),
            ("2T", 2 << 40),
            ("8191p", 8191 << 50),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_with_a_reason() {
        for (text, why) in [
            ("", "a size is a whole number"),
            ("k", "a size is a whole number"),
            ("kb", "a size is a whole number"),
            ("-1", "a size is a whole number"),
            ("4x", "a size is a whole number"),
            ("4µ", "a size is a whole number"),
            ("1.5g", "a fraction is written in the next smaller unit"),
            ("64kB", "\"kB\" means 1000s to some tools and 1024s to others; write 64k (1024s)"),
            ("8192p", "at most 8191p"),
            ("99999999999999999999", "at most 8191p"),
        ] {
            let refusal = parse_size(text).unwrap_err();
            assert!(refusal.contains(why), "{text}: {refusal}");
        }
    }

    #[test]
    fn a_capacity_is_whole_sectors() {
        assert_eq!(parse_capacity("1k"), Ok(1024));
        assert!(parse_capacity("0").is_err());
        assert_eq!(parse_capacity("1000"), Err("1000 bytes are not a multiple of 512 (one sector)".into()));
    }

    #[test]
    fn times_need_a_unit() {
        assert_eq!(parse_time("10s"), Ok(secs(10)));
        assert_eq!(parse_time("250 ms"), Ok(ms(250)));
        assert_eq!(parse_time("10"), Err("a time needs a unit: 10s, 10ms, 10us".into()));
        assert!(parse_time("soon").is_err());
    }

    #[test]
    fn a_size_is_shown_in_its_largest_whole_unit() {
        assert_eq!(show_size(1 << 30), "1 GiB");
        assert_eq!(show_size(1536 << 10), "1536 KiB");
        assert_eq!(show_size(513), "513 bytes");
        assert_eq!(show_size(0), "0 bytes");
    }
}
