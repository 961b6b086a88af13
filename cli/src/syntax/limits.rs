//! Limits of a group as people write them: `riops=3000 wbps=50m`, in the words of the kernel's `io.max`.
//!
//! Sizes count in powers of 1024, as everywhere; the kernel writes a number of bytes, so its lines can be pasted.

use fairlift_core::Duration;
use fairlift_core::ceiling::{Ceiling, Rate};
use fairlift_core::time::secs;

use super::mistake::hint;
use super::units::parse_size;

/// The key of a burst's length.
pub(crate) const SECONDS: &str = "seconds";

pub(crate) fn parse_rate(name: &str) -> Result<Rate, String> {
    let names = || Rate::ALL.into_iter().map(Rate::name);
    Rate::ALL.into_iter().find(|rate| rate.name() == name).ok_or_else(|| {
        let hint = hint(name, names(), || format!("; there are {}", names().collect::<Vec<_>>().join(", ")));
        format!("unknown limit {name:?}{hint}")
    })
}

/// The amount of a rate; `None`: no limit (`max`, or `none`). Bytes count in powers of 1024, I/Os in powers of 1000.
pub(crate) fn parse_amount(rate: Rate, text: &str) -> Result<Option<u64>, String> {
    if is_none(text) {
        return Ok(None);
    }
    let none = if text == "0" { "; no limit is \"none\"" } else { "" };
    let range = || format!("takes 1 to {}, not {text}{none}", rate.most());
    let amount = match rate.counts_bytes() {
        true => parse_size(text).map_err(|why| match text.to_ascii_lowercase() {
            text if text.starts_with('-') => range(),
            of_time if of_time.ends_with("/s") || of_time.ends_with("ps") => {
                format!("takes bytes in a second, as in 50m (k, m, g, t: powers of 1024), not {text}")
            }
            _ => why,
        })?,
        false => parse_count(text).ok_or_else(range)?,
    };
    Some(amount).filter(|amount| (1..=rate.most()).contains(amount)).map(Some).ok_or_else(range)
}

fn is_none(text: &str) -> bool {
    matches!(text, "max" | "none")
}

/// I/Os, as in `1500`, `20k` or `1m`.
fn parse_count(text: &str) -> Option<u64> {
    let (digits, times) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1000),
        None => text.strip_suffix(['m', 'M']).map_or((text, 1), |digits| (digits, 1_000_000)),
    };
    digits.parse::<u64>().ok()?.checked_mul(times)
}

/// How long a burst may be.
pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let most = Ceiling::LENGTH_MAX.as_millis() / 1000;
    let seconds = text.parse().ok().filter(|seconds| (1..=most).contains(seconds));
    seconds.map(secs).ok_or_else(|| format!("takes 1 to {most}, not {text}"))
}

/// The names and amounts in a text such as `rbps=100m wiops=3000`; `max` or `none` alone is none.
pub(crate) fn words(text: &str) -> Result<Vec<(&str, &str)>, String> {
    const FORM: &str = "limits have the form riops=3000 wbps=50m, of rbps, wbps, bps, riops, wiops and iops, or none";
    let mut words = text.split([' ', ',']).filter(|word| !word.is_empty()).peekable();
    if words.peek().is_none() {
        return Err(FORM.into());
    }
    let amounts = words.filter(|word| !is_none(word));
    amounts.map(|word| word.split_once('=').ok_or_else(|| format!("{FORM}, not {word:?}"))).collect()
}

#[cfg(test)]
mod tests {
    use fairlift_core::ceiling::Rates;

    use super::*;
    use crate::config::given::{Amiss, Given};

    fn parse(text: &str) -> Result<Rates, String> {
        Given::Word(text.into()).rates().map_err(Amiss::into_text)
    }

    fn parse_burst(text: &str) -> Result<(Rates, Duration), String> {
        Given::Word(text.into()).burst().map_err(Amiss::into_text)
    }

    #[test]
    fn lines_of_the_kernel_can_be_pasted() {
        let rates = Rates::NONE.with(Rate::Rbps, 104_857_600).with(Rate::Wiops, 3000);
        for text in ["rbps=104857600 wbps=max riops=max wiops=3000", "rbps=100m wiops=3000", "wiops=3000,rbps=100m"] {
            assert_eq!(parse(text), Ok(rates), "{text}");
        }
        assert_eq!((parse("max"), parse("none")), (Ok(Rates::NONE), Ok(Rates::NONE)));
        assert_eq!(
            parse("iops=20k wiops=1m riops=none"),
            Ok(Rates::NONE.with(Rate::Iops, 20_000).with(Rate::Wiops, 1_000_000))
        );
        assert!(parse("iops=1g").is_err() && parse("iops=k").is_err() && parse("iops=99999999999999999k").is_err());
        assert_eq!(parse_burst("iops=9 seconds=5"), Ok((Rates::NONE.with(Rate::Iops, 9), secs(5))));
        assert_eq!(parse_burst("iops=9").unwrap().1, secs(1));
    }

    #[test]
    fn what_is_no_limit_is_refused_with_a_reason() {
        for (text, why) in [
            ("", "limits have the form riops=3000 wbps=50m, of rbps, wbps, bps, riops, wiops and iops, or none"),
            (
                "3000",
                "limits have the form riops=3000 wbps=50m, of rbps, wbps, bps, riops, wiops and iops, or none, not \"3000\"",
            ),
            ("riop=1", "unknown limit \"riop\"; did you mean \"riops\"?"),
            ("seconds=5", "unknown limit \"seconds\"; there are rbps, wbps, riops, wiops, bps, iops"),
            ("iops=0", "iops takes 1 to 1000000000, not 0; no limit is \"none\""),
            ("iops=-1", "iops takes 1 to 1000000000, not -1"),
            ("bps=-1", "bps takes 1 to 1000000000000, not -1"),
            ("iops=1000000001", "iops takes 1 to 1000000000, not 1000000001"),
            ("iops=3g", "iops takes 1 to 1000000000, not 3g"),
            ("bps=50MB/s", "bps takes bytes in a second, as in 50m (k, m, g, t: powers of 1024), not 50MB/s"),
            ("bps=2t", "bps takes 1 to 1000000000000, not 2t"),
        ] {
            assert_eq!(parse(text), Err(why.into()), "{text}");
        }
        assert_eq!(parse_burst("iops=9 seconds=0"), Err("seconds takes 1 to 86400, not 0".into()));
    }
}
