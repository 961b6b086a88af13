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
    (@row $name:expr, $kind:ident, (), $field:ident, $says:expr) => {
        $crate::tunable::Tunable::$kind($name, |s: &mut Settings| &mut s.$field, $says.trim_ascii_start())
    };
    (@row $name:expr, choice, ($($choices:literal),+), $field:ident, $says:expr) => {
        $crate::tunable::Tunable::choice($name, &[$($choices),+], |s: &mut Settings| &mut s.$field, $says.trim_ascii_start())
    };
    (@row $name:expr, $kind:ident, ($($range:tt)+), $field:ident, $says:expr) => {
        $crate::tunable::Tunable::$kind($name, ($($range)+), |s: &mut Settings| &mut s.$field, $says.trim_ascii_start())
    };
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

/// A knob of the settings `S`.
pub struct Tunable<S: 'static> {
    info: TunableInfo,
    field: Field<S>,
}

enum Field<S> {
    Duration(fn(&mut S) -> &mut Duration),
    Count(fn(&mut S) -> &mut u32),
    Switch(fn(&mut S) -> &mut bool),
    /// By its place in the list.
    Choice(fn(&mut S) -> &mut u8),
    /// `None` is `auto`.
    AutoDuration(fn(&mut S) -> &mut Option<Duration>),
    /// The same, but a bare number counts microseconds, and so it is shown.
    AutoMicros(fn(&mut S) -> &mut Option<Duration>),
    /// `None` is `auto`.
    AutoCostModel(fn(&mut S) -> &mut Option<Model>),
}

/// The word for a value that is found out while running.
const AUTO: &str = "auto";

impl<S> Tunable<S> {
    /// A length of time from `min` to `max`.
    pub const fn duration(
        name: &'static str,
        (min, max): (Duration, Duration),
        field: fn(&mut S) -> &mut Duration,
        says: &'static str,
    ) -> Self {
        Self { info: TunableInfo { name, range: Range::Duration(min, max), says }, field: Field::Duration(field) }
    }

    /// A number from `min` to `max`.
    pub const fn count(
        name: &'static str,
        (min, max): (u32, u32),
        field: fn(&mut S) -> &mut u32,
        says: &'static str,
    ) -> Self {
        Self { info: TunableInfo { name, range: Range::Count(min, max), says }, field: Field::Count(field) }
    }

    /// A length of time from `min` to `max`, or `auto`: the field is `None` then.
    pub const fn auto_duration(
        name: &'static str,
        (min, max): (Duration, Duration),
        field: fn(&mut S) -> &mut Option<Duration>,
        says: &'static str,
    ) -> Self {
        let range = Range::AutoDuration(min, max);
        Self { info: TunableInfo { name, range, says }, field: Field::AutoDuration(field) }
    }

    /// A second name for one of [`Tunable::auto_duration`], in microseconds.
    pub const fn auto_micros(
        name: &'static str,
        (min, max): (u32, u32),
        field: fn(&mut S) -> &mut Option<Duration>,
        says: &'static str,
    ) -> Self {
        Self { info: TunableInfo { name, range: Range::AutoCount(min, max), says }, field: Field::AutoMicros(field) }
    }

    /// One of several words; the field holds the place of the word in the list.
    pub const fn choice(
        name: &'static str,
        choices: &'static [&'static str],
        field: fn(&mut S) -> &mut u8,
        says: &'static str,
    ) -> Self {
        Self { info: TunableInfo { name, range: Range::Choice(choices), says }, field: Field::Choice(field) }
    }

    /// The cost of requests, or `auto`: the field is `None` then.
    pub const fn auto_cost_model(
        name: &'static str,
        field: fn(&mut S) -> &mut Option<Model>,
        says: &'static str,
    ) -> Self {
        Self { info: TunableInfo { name, range: Range::AutoCostModel, says }, field: Field::AutoCostModel(field) }
    }

    /// Yes or no.
    pub const fn switch(name: &'static str, field: fn(&mut S) -> &mut bool, says: &'static str) -> Self {
        Self { info: TunableInfo { name, range: Range::Switch, says }, field: Field::Switch(field) }
    }
}

/// The descriptions alone of a table of tunables.
#[must_use]
pub const fn infos<S, const N: usize>(rows: &[Tunable<S>; N]) -> [TunableInfo; N] {
    let mut infos = [rows[0].info; N];
    let mut row = 1;
    while row < N {
        infos[row] = rows[row].info;
        row += 1;
    }
    infos
}

/// The present value of the knob `name`, as text that [`set`] takes.
pub fn get<S: Clone>(rows: &[Tunable<S>], settings: &S, name: &str) -> Option<String> {
    let row = rows.iter().find(|row| row.info.name == name)?;
    let mut settings = settings.clone();
    Some(match row.field {
        Field::Duration(field) => field(&mut settings).to_string(),
        Field::Count(field) => field(&mut settings).to_string(),
        Field::Switch(field) => u8::from(*field(&mut settings)).to_string(),
        Field::AutoDuration(field) => field(&mut settings).map_or_else(|| AUTO.into(), |time| time.to_string()),
        Field::AutoMicros(field) => match field(&mut settings) {
            Some(time) => (time.as_nanos() / 1000).to_string(),
            None => AUTO.into(),
        },
        Field::AutoCostModel(field) => field(&mut settings).map_or_else(|| AUTO.into(), |model| model.to_string()),
        Field::Choice(field) => match row.info.range {
            Range::Choice(choices) => choices[usize::from(*field(&mut settings))].to_string(),
            _ => unreachable!("a row's field and range are made together"),
        },
    })
}

/// Sets the knob `name` to `value`; on error nothing has changed.
///
/// # Errors
/// No row has that name, or the value is malformed or out of the row's range.
pub fn set<S>(rows: &[Tunable<S>], settings: &mut S, name: &str, value: &str) -> Result<(), Error> {
    let Some(row) = rows.iter().find(|row| row.info.name == name) else {
        let names: Vec<_> = rows.iter().map(|row| row.info).collect();
        return Err(Error::unknown(name, &names));
    };
    let bad = || Error::value(&row.info, value);
    match (&row.field, row.info.range) {
        (Field::Duration(field), Range::Duration(min, max)) => {
            let length = parse_duration(value).filter(|length| (min..=max).contains(length)).ok_or_else(bad)?;
            *field(settings) = length;
        }
        (Field::Count(field), Range::Count(min, max)) => {
            let count = value.trim().parse().ok().filter(|count| (min..=max).contains(count)).ok_or_else(bad)?;
            *field(settings) = count;
        }
        (Field::AutoDuration(field), Range::AutoDuration(..)) if value.trim() == AUTO => *field(settings) = None,
        (Field::AutoDuration(field), Range::AutoDuration(min, max)) => {
            let length = parse_duration(value).filter(|length| (min..=max).contains(length)).ok_or_else(bad)?;
            *field(settings) = Some(length);
        }
        (Field::AutoMicros(field), Range::AutoCount(..)) if value.trim() == AUTO => *field(settings) = None,
        (Field::AutoMicros(field), Range::AutoCount(min, max)) => {
            let count = value.trim().parse().ok().filter(|count| (min..=max).contains(count)).ok_or_else(bad)?;
            *field(settings) = Some(us(count.into()));
        }
        (Field::AutoCostModel(field), Range::AutoCostModel) if value.trim() == AUTO => *field(settings) = None,
        (Field::AutoCostModel(field), Range::AutoCostModel) => {
            let model = Model::parse(value).map_err(|why| Error(format!("{name}: {why}")))?;
            *field(settings) = Some(model);
        }
        (Field::Choice(field), Range::Choice(choices)) => {
            let place = choices.iter().position(|word| *word == value.trim()).ok_or_else(bad)?;
            *field(settings) = place as u8;
        }
        (Field::Switch(field), Range::Switch) => {
            *field(settings) = match value.trim() {
                "1" | "true" | "on" | "yes" => true,
                "0" | "false" | "off" | "no" => false,
                _ => return Err(bad()),
            }
        }
        _ => unreachable!("a row's field and range are made together"),
    }
    Ok(())
}

/// Reads `20ms`, `1s`, `125us`, `7ns`; a bare number counts milliseconds.
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    Some(match unit.trim_start() {
        "" | "ms" => ms(number),
        "s" => secs(number),
        "us" | "µs" => us(number),
        "ns" => Duration::from_nanos(number),
        _ => return None,
    })
}

/// Reads a number of bytes: `512`, `4k`, `64KiB`, `1g`, `2t`. Every unit is a power of 1024, as in fio. A unit that some
/// tools count in thousands and others in 1024s (`kb`) is refused rather than guessed.
///
/// # Errors
/// The text is not a whole number with one of the units, or the number is too large: what is possible, in a line.
pub fn parse_size(text: &str) -> Result<u64, String> {
    const FORM: &str = "a size is a whole number of bytes, or has a unit (k, m, g, t: powers of 1024), as in 4k or 10g";
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

    fn value(info: &TunableInfo, value: &str) -> Self {
        Self(format!("{} takes {}, not {value:?}", info.name, info.range))
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
mod tests {
    use super::*;

    #[derive(Clone)]
    struct Settings {
        expire: Duration,
        batch: u32,
        front: bool,
        merge: u8,
        idle: Option<Duration>,
    }

    const ROWS: [Tunable<Settings>; 5] = [
        Tunable::duration("expire", (ms(1), secs(60)), |s| &mut s.expire, "how long one may wait"),
        Tunable::count("batch", (1, 100), |s| &mut s.batch, "how many at once"),
        Tunable::switch("front", |s| &mut s.front, "whether to look in front"),
        Tunable::choice("merge", &["auto", "on", "off"], |s| &mut s.merge, "whether to merge"),
        Tunable::auto_micros("idle_us", (0, 1_000_000), |s| &mut s.idle, "how long to idle, in µs"),
    ];

    fn settings() -> Settings {
        Settings { expire: ms(500), batch: 16, front: true, merge: 0, idle: None }
    }

    #[test]
    fn what_get_shows_set_takes_back() {
        let mut s = settings();
        for row in infos(&ROWS) {
            let shown = get(&ROWS, &s, row.name).unwrap();
            set(&ROWS, &mut s, row.name, &shown).unwrap();
            assert_eq!(get(&ROWS, &s, row.name), Some(shown));
        }
    }

    #[test]
    fn a_bare_number_counts_milliseconds() {
        let mut s = settings();
        set(&ROWS, &mut s, "expire", "20").unwrap();
        assert_eq!(s.expire, ms(20));
        set(&ROWS, &mut s, "expire", "1500 us").unwrap();
        assert_eq!(s.expire, us(1500));
    }

    #[test]
    fn one_of_several_words_is_chosen_by_the_word_and_a_bare_number_counts_microseconds_where_the_name_says_so() {
        let mut s = settings();
        set(&ROWS, &mut s, "merge", "off").unwrap();
        assert_eq!((s.merge, get(&ROWS, &s, "merge").unwrap().as_str()), (2, "off"));
        let refused = set(&ROWS, &mut s, "merge", "maybe").unwrap_err().to_string();
        assert_eq!(refused, "merge takes one of auto, on, off, not \"maybe\"");
        set(&ROWS, &mut s, "idle_us", "1500").unwrap();
        assert_eq!(s.idle, Some(us(1500)));
        assert_eq!(get(&ROWS, &s, "idle_us").unwrap(), "1500");
    }

    #[test]
    fn a_refusal_says_what_is_possible() {
        let mut s = settings();
        let out = |r: Result<(), Error>| r.unwrap_err().to_string();
        assert_eq!(
            out(set(&ROWS, &mut s, "expire", "2h")),
            "expire takes a time from 1ms to 60s (a bare number counts ms), not \"2h\""
        );
        assert_eq!(out(set(&ROWS, &mut s, "batch", "0")), "batch takes a number from 1 to 100, not \"0\"");
        assert_eq!(out(set(&ROWS, &mut s, "front", "maybe")), "front takes 0 or 1, not \"maybe\"");
        assert_eq!(
            out(set(&ROWS, &mut s, "quantum", "1")),
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
