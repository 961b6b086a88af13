//! Record: what is handed from one server to the next, by name.
//!
//! A server that takes over from another begins with that one's knowledge of its disks, its counters, and the debts to it. The two may be
//! of different versions, so each part has a name, and stands or falls alone. Example: a record of a disk says `{"ceilings": …, "fair":
//! …}`; a server that has no scheduler `fair` any more takes the ceilings.
//!
//! record.1  A reader takes the parts that it knows. The others are named ([`Record::rest`]), so that somebody can be told of them.
//! record.2  A part that cannot be read, or says what cannot be, is left out whole: its reader begins as if it had not been there.
//! record.3  Times are lengths, never instants: the clocks of two servers begin apart.
//! record.4  A part is kept as its text until it is taken. As a tree of values, what 1,000 tenants have counted would take ten times as much, in
//!           both servers at once.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::{RawValue, to_raw_value};

/// Parts by name: see the [module](self).
///
/// ```
/// use fairlift_core::record::Record;
///
/// let mut record = Record::default();
/// record.put("depth", &32);
/// record.put("colour", &"blue");
///
/// let mut read = Record::parse(&record.to_string()).unwrap();
/// assert_eq!(read.take::<u32>("depth"), Ok(Some(32)));
/// assert_eq!(read.take::<u32>("height"), Ok(None));
/// assert_eq!(read.rest().collect::<Vec<_>>(), ["colour"]);
/// ```
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Record(BTreeMap<String, Box<RawValue>>);

/// A part that cannot be taken (record.2).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreadable {
    /// Its name.
    pub part: String,
    /// For people.
    pub why: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.part, self.why)
    }
}

impl From<Unreadable> for String {
    fn from(why: Unreadable) -> Self {
        why.to_string()
    }
}

impl Record {
    /// Reads what [`fmt::Display`] wrote.
    ///
    /// # Errors
    /// It is no record.
    pub fn parse(text: &str) -> Result<Self, Unreadable> {
        serde_json::from_str(text).map_err(|why| Unreadable { part: "record".into(), why: why.to_string() })
    }

    /// Puts a part in; nothing, if it has numbers that are not finite.
    pub fn put(&mut self, part: &str, what: &impl Serialize) {
        if let Ok(text) = to_raw_value(what) {
            self.0.insert(part.into(), text);
        }
    }

    /// Takes a part out; `None`: it is not there.
    ///
    /// # Errors
    /// It is not of this kind.
    pub fn take<T: DeserializeOwned>(&mut self, part: &str) -> Result<Option<T>, Unreadable> {
        let text = self.0.remove(part);
        text.map(|text| serde_json::from_str(text.get()))
            .transpose()
            .map_err(|why| Unreadable { part: part.into(), why: why.to_string() })
    }

    /// Takes a part out that has to be there.
    ///
    /// # Errors
    /// It is missing, or not of this kind.
    pub fn need<T: DeserializeOwned>(&mut self, part: &str) -> Result<T, Unreadable> {
        self.take(part)?.ok_or_else(|| Unreadable { part: part.into(), why: "it is missing".into() })
    }

    /// The parts that nobody has taken (record.1).
    pub fn rest(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// As JSON.
impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(&self.0).unwrap_or_default())
    }
}

/// Reads a list that may be longer or shorter in another version: a missing member is its default, and a member too many is left out.
pub(crate) fn any_length<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default, const N: usize>(
    from: D,
) -> Result<[T; N], D::Error> {
    let mut each = Vec::deserialize(from)?.into_iter();
    Ok(core::array::from_fn(|_| each.next().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_another_kind_is_refused_and_the_others_are_taken() {
        let mut record = Record::parse(r#"{"depth": "deep", "left": 3, "inner": {"a": 1}}"#).unwrap();
        assert_eq!(record.take::<u32>("depth").unwrap_err().part, "depth");
        assert_eq!(record.take::<u32>("left"), Ok(Some(3)));
        let mut inner: Record = record.take("inner").unwrap().unwrap();
        assert_eq!(inner.need::<u8>("a"), Ok(1));
        assert_eq!(inner.need::<u8>("a").unwrap_err().to_string(), "a: it is missing");
        assert!(record.is_empty() && Record::parse("[1]").is_err());
    }

    #[test]
    fn fractions_come_back_as_they_were() {
        let mut record = Record::default();
        let all: Vec<f64> = (1..200).map(|n| 1e9 / f64::from(n) * 1.000_000_1).collect();
        record.put("all", &all);
        assert_eq!(Record::parse(&record.to_string()).unwrap().take("all"), Ok(Some(all)));
    }
}
