//! One row per knob.
//!
//! A policy declares its tunables once, with its settings (`settings!`). From those rows come the command line
//! (`--set read_expire=20ms`), the config file, live changes, the ranges that tuning searches, and `docs/tunables.md`.
//! A new knob is a field in that declaration, and its use.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::Duration;
use crate::cost_model::Model;
use crate::time::{ms, secs, us};

/// Declares settings, each knob once: what it does, its field, its default, what values it takes.
///
/// The comment above a field is the text of the knob in the field's documentation, the command line and `docs/tunables.md`. Its name is the
/// field's, unless another follows `as`. A second name, as the kernel's in microseconds, follows `also`. Fields that are no knobs of their
/// own follow `..`, last.
#[macro_export]
macro_rules! settings {
    (
        $(#[$meta:meta])*
        pub struct Settings {
            $(
                $(#[doc = $says:literal])+
                pub $field:ident: $type:ty $(as $name:literal)? = $default:expr, $kind:ident $(($($range:tt)*))?
                $(, also $alias:literal $alias_kind:ident ($($alias_range:tt)*) $alias_says:literal)?;
            )+
            $(.. $(#[doc = $rest_says:literal])+ pub $rest:ident: $rest_type:ty = $rest_default:expr;)?
        }
    ) => {
        $(#[$meta])*
        pub struct Settings {
            $($(#[doc = $says])+ pub $field: $type,)+
            $($(#[doc = $rest_says])+ pub $rest: $rest_type,)?
        }

        impl Default for Settings {
            fn default() -> Self {
                Self { $($field: $default,)+ $($rest: $rest_default,)? }
            }
        }

        impl Settings {
            /// The rows of all that can be set.
            pub const TUNABLES: &'static [$crate::tunable::Tunable<Self>] = &$crate::tunable::settings!(@rows $(
                ($crate::tunable::settings!(@name $field $($name)?), $kind, ($($($range)*)?), $field, concat!($($says),+))
                $(($alias, $alias_kind, ($($alias_range)*), $field, $alias_says))?
            )+);
            /// Their descriptions, without values.
            pub const INFO: &'static [$crate::tunable::TunableInfo] =
                &$crate::tunable::infos(&$crate::tunable::settings!(@rows $(
                    ($crate::tunable::settings!(@name $field $($name)?), $kind, ($($($range)*)?), $field, concat!($($says),+))
                    $(($alias, $alias_kind, ($($alias_range)*), $field, $alias_says))?
                )+));
        }
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $name:literal) => { $name };
    (@rows $(($name:expr, $kind:ident, $range:tt, $field:ident, $says:expr))+) => {
        [$($crate::tunable::settings!(@row $name, $kind, $range, $field, $says)),+]
    };
    (@row $name:expr, $kind:ident, $range:tt, $field:ident, $says:expr) => {
        $crate::tunable::Tunable {
            name: $name,
            says: $says.trim_ascii_start(),
            field: $crate::tunable::settings!(@field $kind, (|s: &mut Settings| &mut s.$field), $range),
        }
    };
    (@field duration, $field:tt, $range:tt) => { $crate::tunable::Field::Duration($field, $range) };
    (@field count, $field:tt, $range:tt) => { $crate::tunable::Field::Count($field, $range) };
    (@field switch, $field:tt, ()) => { $crate::tunable::Field::Switch($field) };
    (@field choice, $field:tt, ($($word:literal),+)) => { $crate::tunable::Field::Choice($field, &[$($word),+]) };
    (@field auto_duration, $field:tt, $range:tt) => { $crate::tunable::Field::AutoDuration($field, $range) };
    (@field auto_micros, $field:tt, $range:tt) => { $crate::tunable::Field::AutoMicros($field, $range) };
    (@field auto_cost_model, $field:tt, ()) => { $crate::tunable::Field::AutoCostModel($field) };
}
pub use settings;

/// Lets the knobs of a scheduler be read and set, which has its [`settings!`] in the field `settings`. A method that is named
/// hears which knob was set.
macro_rules! tune {
    ($scheduler:ty $(, $changed:ident)?) => {
        impl $crate::tunable::Tune for $scheduler {
            fn tunables(&self) -> &'static [$crate::tunable::TunableInfo] {
                Settings::INFO
            }

            fn get(&self, name: &str) -> Option<alloc::string::String> {
                $crate::tunable::get(Settings::TUNABLES, &self.settings, name)
            }

            fn set(&mut self, name: &str, value: &str) -> Result<(), $crate::tunable::Error> {
                $crate::tunable::set(Settings::TUNABLES, &mut self.settings, name, value)?;
                $(self.$changed(name);)?
                Ok(())
            }
        }
    };
}
pub(crate) use tune;

/// Settings that change while requests wait and are in flight. A scheduler without knobs leaves it empty.
pub trait Tune {
    /// The tunables and their present values.
    fn tunables(&self) -> &'static [TunableInfo] {
        &[]
    }

    /// The present value of a tunable, as text that [`Tune::set`] takes.
    fn get(&self, _name: &str) -> Option<String> {
        None
    }

    /// Sets a tunable.
    ///
    /// # Errors
    /// There is no such tunable here, or the value is malformed or out of range.
    fn set(&mut self, name: &str, _value: &str) -> Result<(), Error> {
        Err(Error::unknown(name, self.tunables()))
    }
}

/// The description of a knob, without its settings at hand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TunableInfo {
    /// The kernel's name.
    pub name: &'static str,
    /// Its possible values.
    pub range: Range,
    /// Its effect, in a phrase.
    pub says: &'static str,
}

/// The values a knob takes, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Range {
    /// A length of time. A bare number counts milliseconds, as in the kernel's files.
    Duration(Duration, Duration),
    /// `auto`, or a length of time as in [`Range::Duration`].
    AutoDuration(Duration, Duration),
    /// A number.
    Count(u32, u32),
    /// `auto`, or a number.
    AutoCount(u32, u32),
    /// Yes or no: `1` or `0`, as in the kernel's files.
    Switch,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `auto`, or the six words of a cost model.
    AutoCostModel,
}

/// A knob of the settings `S`: a row that [`settings!`] makes.
pub struct Tunable<S: 'static> {
    /// As [`TunableInfo::name`].
    pub name: &'static str,
    /// As [`TunableInfo::says`].
    pub says: &'static str,
    /// The field that it sets.
    pub field: Field<S>,
}

/// A field that a knob sets, and the ends of its range.
pub enum Field<S: 'static> {
    /// A length of time.
    Duration(fn(&mut S) -> &mut Duration, (Duration, Duration)),
    /// A number.
    Count(fn(&mut S) -> &mut u32, (u32, u32)),
    /// Yes or no.
    Switch(fn(&mut S) -> &mut bool),
    /// The place of a word among these.
    Choice(fn(&mut S) -> &mut u8, &'static [&'static str]),
    /// A length of time; `None` is `auto`.
    AutoDuration(fn(&mut S) -> &mut Option<Duration>, (Duration, Duration)),
    /// The same, but a bare number counts microseconds, and so it is shown.
    AutoMicros(fn(&mut S) -> &mut Option<Duration>, (u32, u32)),
    /// The cost of requests; `None` is `auto`.
    AutoCostModel(fn(&mut S) -> &mut Option<Model>),
}

/// The word for a value that is found out while running.
const AUTO: &str = "auto";

impl<S> Tunable<S> {
    const fn info(&self) -> TunableInfo {
        let range = match self.field {
            Field::Duration(_, (min, max)) => Range::Duration(min, max),
            Field::Count(_, (min, max)) => Range::Count(min, max),
            Field::Switch(_) => Range::Switch,
            Field::Choice(_, words) => Range::Choice(words),
            Field::AutoDuration(_, (min, max)) => Range::AutoDuration(min, max),
            Field::AutoMicros(_, (min, max)) => Range::AutoCount(min, max),
            Field::AutoCostModel(_) => Range::AutoCostModel,
        };
        TunableInfo { name: self.name, range, says: self.says }
    }
}

/// The descriptions alone of a table of tunables.
#[must_use]
pub const fn infos<S, const N: usize>(rows: &[Tunable<S>; N]) -> [TunableInfo; N] {
    let mut infos = [rows[0].info(); N];
    let mut row = 1;
    while row < N {
        infos[row] = rows[row].info();
        row += 1;
    }
    infos
}

/// The present value of the knob `name`, as text that [`set`] takes.
pub fn get<S: Clone>(rows: &[Tunable<S>], settings: &S, name: &str) -> Option<String> {
    let row = rows.iter().find(|row| row.name == name)?;
    let settings = &mut settings.clone();
    let auto = |value: Option<String>| value.unwrap_or_else(|| AUTO.into());
    Some(match row.field {
        Field::Duration(field, ..) => field(settings).to_string(),
        Field::Count(field, ..) => field(settings).to_string(),
        Field::Switch(field) => u8::from(*field(settings)).to_string(),
        Field::Choice(field, words) => words[usize::from(*field(settings))].into(),
        Field::AutoDuration(field, ..) => auto(field(settings).map(|time| time.to_string())),
        Field::AutoMicros(field, ..) => auto(field(settings).map(|time| (time.as_nanos() / 1000).to_string())),
        Field::AutoCostModel(field) => auto(field(settings).map(|model| model.to_string())),
    })
}

/// Sets the knob `name` to `value`; on error nothing has changed.
///
/// # Errors
/// No row has that name, or the value is malformed or out of the row's range.
pub fn set<S>(rows: &[Tunable<S>], settings: &mut S, name: &str, value: &str) -> Result<(), Error> {
    let Some(row) = rows.iter().find(|row| row.name == name) else {
        let known: Vec<_> = rows.iter().map(Tunable::info).collect();
        return Err(Error::unknown(name, &known));
    };
    let (text, is_auto) = (value.trim(), value.trim() == AUTO);
    let bad = || Error(format!("{name} takes {}, not {value:?}", row.info().range));
    let time = |min, max| parse_duration(text).filter(|time| (min..=max).contains(time)).ok_or_else(bad);
    let count = |min, max| text.parse().ok().filter(|count| (min..=max).contains(count)).ok_or_else(bad);
    match row.field {
        Field::Duration(field, (min, max)) => *field(settings) = time(min, max)?,
        Field::Count(field, (min, max)) => *field(settings) = count(min, max)?,
        Field::Switch(field) => {
            *field(settings) = match text {
                "1" | "true" | "on" | "yes" => true,
                "0" | "false" | "off" | "no" => false,
                _ => return Err(bad()),
            }
        }
        Field::Choice(field, words) => {
            *field(settings) = words.iter().position(|word| *word == text).ok_or_else(bad)? as u8;
        }
        Field::AutoDuration(field, ..) | Field::AutoMicros(field, ..) if is_auto => *field(settings) = None,
        Field::AutoDuration(field, (min, max)) => *field(settings) = Some(time(min, max)?),
        Field::AutoMicros(field, (min, max)) => *field(settings) = Some(us(count(min, max)?.into())),
        Field::AutoCostModel(field) if is_auto => *field(settings) = None,
        Field::AutoCostModel(field) => {
            *field(settings) = Some(Model::parse(value).map_err(|why| Error(format!("{name}: {why}")))?);
        }
    }
    Ok(())
}

/// Reads `20ms`, `1s`, `125us`, `7ns`; a bare number counts milliseconds.
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = number_and_unit(text);
    let number: u64 = number.parse().ok()?;
    Some(match unit {
        "" | "ms" => ms(number),
        "s" => secs(number),
        "us" | "µs" => us(number),
        "ns" => Duration::from_nanos(number),
        _ => return None,
    })
}

fn number_and_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    (number, unit.trim_start())
}

/// Reads a number of bytes: `512`, `4k`, `64KiB`, `1g`, `2t`. Every unit is a power of 1024, as in fio. A unit that some
/// tools count in thousands and others in 1024s (`kb`) is refused rather than guessed.
///
/// # Errors
/// The text is not a whole number with one of the units, or the number is too large: what is possible, in a line.
pub fn parse_size(text: &str) -> Result<u64, String> {
    const FORM: &str = "a size is a whole number of bytes, or has a unit (k, m, g, t: powers of 1024), as in 4k or 10g";
    let (number, unit) = number_and_unit(text);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" => 0,
        "k" | "ki" | "kib" => 10,
        "m" | "mi" | "mib" => 20,
        "g" | "gi" | "gib" => 30,
        "t" | "ti" | "tib" => 40,
        "p" | "pi" | "pib" => 50,
        "kb" | "mb" | "gb" | "tb" | "pb" if !number.is_empty() => {
            let letter = &unit[..1];
            return Err(format!(
                "\"{unit}\" is ambiguous (powers of 1000 or of 1024); write {number}{} (powers of 1024), or the number of bytes",
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

/// Why a knob was not set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error(String);

impl Error {
    /// There is no knob of that name among `known`.
    #[must_use]
    pub fn unknown(name: &str, known: &[TunableInfo]) -> Self {
        if known.is_empty() {
            return Self(format!("unknown tunable \"{name}\": this scheduler has none"));
        }
        let names: Vec<_> = known.iter().map(|info| info.name).collect();
        Self(format!("unknown tunable \"{name}\": this scheduler has {}", names.join(", ")))
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duration(min, max) => write!(f, "a time from {min} to {max} (a bare number counts ms)"),
            Self::AutoDuration(min, max) => write!(f, "auto, or {}", Self::Duration(*min, *max)),
            Self::Count(min, max) => write!(f, "a number from {min} to {max}"),
            Self::AutoCount(min, max) => write!(f, "auto, or {}", Self::Count(*min, *max)),
            Self::Switch => write!(f, "0 or 1"),
            Self::Choice(choices) => write!(f, "one of {}", choices.join(", ")),
            Self::AutoCostModel => write!(f, "auto, or {}", Model::WORDS.map(|word| format!("{word}=N")).join(" ")),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for Error {}

#[cfg(test)]
#[expect(unreachable_pub, reason = "what `settings!` makes is public")]
mod tests {
    use super::*;

    settings! {
        #[derive(Clone)]
        pub struct Settings {
            /// how long one may wait
            pub expire: Duration = ms(500), duration(ms(1), secs(60));
            /// how many at once
            pub batch: u32 = 16, count(1, 100);
            /// whether to look in front
            pub front: bool = true, switch;
            /// whether to merge
            pub merge: u8 = 0, choice("auto", "on", "off");
            /// how long to idle, in µs
            pub idle: Option<Duration> as "idle_us" = None, auto_micros(0, 1_000_000);
        }
    }

    const ROWS: &[Tunable<Settings>] = Settings::TUNABLES;

    #[test]
    fn what_get_shows_set_takes_back() {
        let mut s = Settings::default();
        for row in Settings::INFO {
            let shown = get(ROWS, &s, row.name).unwrap();
            set(ROWS, &mut s, row.name, &shown).unwrap();
            assert_eq!(get(ROWS, &s, row.name), Some(shown));
        }
    }

    #[test]
    fn a_bare_number_counts_milliseconds() {
        let mut s = Settings::default();
        set(ROWS, &mut s, "expire", "20").unwrap();
        assert_eq!(s.expire, ms(20));
        set(ROWS, &mut s, "expire", "1500 us").unwrap();
        assert_eq!(s.expire, us(1500));
    }

    #[test]
    fn one_of_several_words_is_chosen_by_the_word_and_a_bare_number_counts_microseconds_where_the_name_says_so() {
        let mut s = Settings::default();
        set(ROWS, &mut s, "merge", "off").unwrap();
        assert_eq!((s.merge, get(ROWS, &s, "merge").unwrap().as_str()), (2, "off"));
        let refused = set(ROWS, &mut s, "merge", "maybe").unwrap_err().to_string();
        assert_eq!(refused, "merge takes one of auto, on, off, not \"maybe\"");
        set(ROWS, &mut s, "idle_us", "1500").unwrap();
        assert_eq!(s.idle, Some(us(1500)));
        assert_eq!(get(ROWS, &s, "idle_us").unwrap(), "1500");
    }

    #[test]
    fn a_refusal_says_what_is_possible() {
        let mut s = Settings::default();
        let out = |r: Result<(), Error>| r.unwrap_err().to_string();
        assert_eq!(
            out(set(ROWS, &mut s, "expire", "2h")),
            "expire takes a time from 1ms to 60s (a bare number counts ms), not \"2h\""
        );
        assert_eq!(out(set(ROWS, &mut s, "batch", "0")), "batch takes a number from 1 to 100, not \"0\"");
        assert_eq!(out(set(ROWS, &mut s, "front", "maybe")), "front takes 0 or 1, not \"maybe\"");
        assert_eq!(
            out(set(ROWS, &mut s, "quantum", "1")),
            "unknown tunable \"quantum\": this scheduler has expire, batch, front, merge, idle_us"
        );
        assert_eq!((s.expire, s.batch, s.front), (ms(500), 16, true), "a refused value changes nothing");
    }

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
            ("64kB", "\"kB\" is ambiguous (powers of 1000 or of 1024); write 64k"),
            ("8192p", "at most 8191p"),
            ("99999999999999999999", "at most 8191p"),
        ] {
            let refusal = parse_size(text).unwrap_err();
            assert!(refusal.contains(why), "{text}: {refusal}");
        }
    }
}
