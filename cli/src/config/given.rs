//! A value as it was given: in the config file, in JSON, or as text on a command line. One parser reads all three.

use std::ops::RangeInclusive;

use fairlift_core::Duration;
use fairlift_core::ceiling::{Ceiling, Rates};
use serde_json::Value;
use toml::de::DeValue;

use crate::syntax::{limits, units};

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Given {
    /// Text that may stand for anything: of JSON, whose numbers may be text, and of a command line.
    Word(String),
    /// Text in quotes in the config file.
    Text(String),
    /// A whole number, as it is written; `None`: it is too large.
    Number(String, Option<i128>),
    Switch(bool),
    List(Vec<Given>),
    Table(Vec<(String, Given)>),
    /// A value of a rare kind, as it is shown.
    Other(String),
}

/// The mistakes in a value, or in several within it, each by its path.
#[derive(Debug)]
pub(crate) struct Amiss(pub(crate) Vec<Part>);

#[derive(Debug)]
pub(crate) struct Part {
    /// The key within the table, if it is within one.
    pub(crate) within: Option<String>,
    /// The key is wrong, not its value.
    pub(crate) is_name: bool,
    pub(crate) says: String,
}

impl From<String> for Amiss {
    fn from(says: String) -> Self {
        Self(vec![Part { within: None, is_name: false, says }])
    }
}

impl Amiss {
    pub(crate) fn into_text(self) -> String {
        let one = |part: Part| match part.within {
            Some(within) if !part.is_name => format!("{within} {}", part.says),
            _ => part.says,
        };
        self.0.into_iter().map(one).collect::<Vec<_>>().join("; ")
    }
}

impl From<&DeValue<'_>> for Given {
    fn from(value: &DeValue<'_>) -> Self {
        match value {
            DeValue::String(text) => Self::Text(text.to_string()),
            DeValue::Integer(number) => {
                let whole = i128::from_str_radix(number.as_str(), number.radix()).ok();
                Self::Number(number.to_string(), whole)
            }
            DeValue::Float(number) => Self::Other(number.as_str().to_owned()),
            DeValue::Boolean(yes) => Self::Switch(*yes),
            DeValue::Datetime(_) => Self::Other("a date".into()),
            DeValue::Array(list) => Self::List(list.iter().map(|value| value.get_ref().into()).collect()),
            DeValue::Table(table) => Self::Table(
                table.iter().map(|(key, value)| (key.get_ref().to_string(), value.get_ref().into())).collect(),
            ),
        }
    }
}

impl From<&Value> for Given {
    fn from(value: &Value) -> Self {
        match value {
            Value::String(text) => Self::Word(text.clone()),
            Value::Number(number) => Self::Word(number.to_string()),
            Value::Bool(switch) => Self::Word(switch.to_string()),
            Value::Null => Self::Word("auto".into()),
            Value::Array(list) => Self::List(list.iter().map(Self::from).collect()),
            Value::Object(table) => Self::Table(table.iter().map(|(key, value)| (key.clone(), value.into())).collect()),
        }
    }
}

impl Given {
    /// Says what it is, for "…, not this".
    pub(crate) fn show(&self) -> String {
        match self {
            Self::Word(text) | Self::Text(text) if text.chars().count() > 40 => {
                format!("{:?}…", text.chars().take(40).collect::<String>())
            }
            Self::Word(text) | Self::Text(text) => format!("{text:?}"),
            Self::Number(text, _) | Self::Other(text) => text.clone(),
            Self::Switch(yes) => yes.to_string(),
            Self::List(_) => "a list".into(),
            Self::Table(_) => "a table".into(),
        }
    }

    /// Its meaning: of text, and of a number within a table of numbers and texts.
    pub(crate) fn plain(&self) -> Option<String> {
        match self {
            Self::Word(text) | Self::Text(text) => Some(text.clone()),
            Self::Number(..) => Some(self.show()),
            _ => None,
        }
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self, Self::Word(text) | Self::Text(text) if text == word)
    }

    pub(crate) fn text(&self) -> Result<&str, String> {
        match self {
            Self::Word(text) | Self::Text(text) => Ok(text),
            _ => Err(format!("takes text in quotes, not {}", self.show())),
        }
    }

    /// The texts of a list. On a command line, and in JSON where it is one text, commas part them.
    pub(crate) fn texts(&self) -> Result<Vec<&str>, String> {
        match self {
            Self::Word(text) => Ok(text.split(',').filter(|one| !one.is_empty()).collect()),
            Self::List(all) => all.iter().map(Self::text).collect(),
            one => Ok(vec![one.text()?]),
        }
    }

    pub(crate) fn number(&self, range: RangeInclusive<u64>) -> Result<u64, String> {
        let number = match self {
            Self::Word(text) => text.parse().ok(),
            Self::Number(_, number) => number.and_then(|number| u64::try_from(number).ok()),
            _ => None,
        };
        number
            .filter(|number| range.contains(number))
            .ok_or_else(|| format!("takes a number from {} to {}, not {}", range.start(), range.end(), self.show()))
    }

    /// The result of `read`; `None`: `auto`.
    pub(crate) fn auto<T>(&self, read: impl FnOnce(&Self) -> Result<T, String>) -> Result<Option<T>, String> {
        if self.is_word("auto") { Ok(None) } else { read(self).map(Some) }
    }

    pub(crate) fn switch(&self) -> Result<bool, String> {
        match self {
            Self::Switch(yes) => Ok(*yes),
            Self::Word(word) if ["true", "1", "yes", "on"].contains(&&**word) => Ok(true),
            Self::Word(word) if ["false", "0", "no", "off"].contains(&&**word) => Ok(false),
            _ => Err(format!("takes true or false, not {}", self.show())),
        }
    }

    /// A size: a number of bytes, or text with a unit.
    pub(crate) fn size(&self) -> Result<u64, String> {
        match self {
            Self::Number(_, number) => {
                let bytes = number.and_then(|number| i64::try_from(number).ok()).filter(|bytes| *bytes >= 0);
                bytes.map(i64::unsigned_abs).ok_or_else(|| format!("takes a size, not {}", self.show()))
            }
            Self::Word(text) | Self::Text(text) => units::parse_size(text),
            _ => Err(format!("takes a size such as 65536 or \"64k\", not {}", self.show())),
        }
    }

    pub(crate) fn sectors(&self) -> Result<u64, String> {
        self.size().and_then(units::whole_sectors)
    }

    pub(crate) fn time(&self) -> Result<Duration, String> {
        let text = self.plain().ok_or_else(|| format!("takes a time such as \"10s\", not {}", self.show()))?;
        units::parse_time(&text)
    }

    pub(crate) fn some_time(&self) -> Result<Duration, String> {
        self.time().and_then(units::some_time)
    }

    pub(crate) fn rates(&self) -> Result<Rates, Amiss> {
        self.rates_and_length(None)
    }

    /// Without `seconds` a burst is one second long, as in QEMU.
    pub(crate) fn burst(&self) -> Result<(Rates, Duration), Amiss> {
        let mut length = Ceiling::NONE.length;
        Ok((self.rates_and_length(Some(&mut length))?, length))
    }

    fn rates_and_length(&self, mut length: Option<&mut Duration>) -> Result<Rates, Amiss> {
        let all: Vec<(&str, Result<String, String>)> = match self {
            Self::Table(table) => {
                let amount = |value: &Self| {
                    value.plain().ok_or_else(|| format!("takes a number or a size, not {}", value.show()))
                };
                table.iter().map(|(name, value)| (&**name, amount(value))).collect()
            }
            _ if self.is_word("auto") => Vec::new(),
            Self::Word(text) | Self::Text(text) => {
                limits::words(text)?.into_iter().map(|(name, amount)| (name, Ok(amount.to_owned()))).collect()
            }
            _ => {
                let says = format!("takes a table such as {{ riops = 3000, wbps = \"50m\" }}, not {}", self.show());
                return Err(says.into());
            }
        };
        let (mut rates, mut wrong) = (Rates::NONE, Vec::new());
        for (name, text) in all {
            let mut note = |is_name, says| wrong.push(Part { within: Some(name.to_owned()), is_name, says });
            let length = length.as_deref_mut().filter(|_| name == limits::SECONDS);
            match (text, length, limits::parse_rate(name)) {
                (Err(says), ..) => note(false, says),
                (Ok(text), Some(length), _) => match limits::parse_seconds(&text) {
                    Ok(seconds) => *length = seconds,
                    Err(says) => note(false, says),
                },
                (Ok(_), None, Err(says)) => note(true, says),
                (Ok(text), None, Ok(rate)) => match limits::parse_amount(rate, &text) {
                    Ok(amount) => rates = rates.with(rate, amount.unwrap_or(0)),
                    Err(says) => note(false, says),
                },
            }
        }
        if wrong.is_empty() { Ok(rates) } else { Err(Amiss(wrong)) }
    }

    /// A latency; `None`: none.
    pub(crate) fn latency(&self) -> Result<Option<Duration>, String> {
        if self.is_word("none") { Ok(None) } else { self.auto(Self::some_time) }
    }
}
