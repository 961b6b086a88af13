//! A table of the config file, read key by key, with every mistake noted and none fatal.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::given::{Amiss, Given, Part};
use super::keys::live_group_keys;
use super::row::{PutOne, Row, Sort};
use crate::syntax::groups::own_path;
use crate::syntax::mistake::{Mistake, SettingPlace, hint};

/// A value, and where it was said.
#[derive(Clone, Debug)]
pub(crate) struct Placed<T> {
    pub(crate) value: T,
    pub(crate) place: SettingPlace,
}

pub(crate) struct Section<'d> {
    /// How its keys are called in messages: `disk.ssd0`.
    pub(crate) path: String,
    pub(crate) at: Range<usize>,
    /// The last part of the path, as it is.
    pub(crate) name: String,
    sort: Sort,
    table: &'d DeTable<'d>,
}

impl<'d> Section<'d> {
    /// A table of one of the known sorts; notes keys that this sort does not have.
    pub(crate) fn new(
        path: String,
        name: &str,
        at: Range<usize>,
        sort: Sort,
        table: &'d DeTable<'d>,
        mistakes: &mut Vec<Mistake>,
    ) -> Self {
        let keys = sort.keys();
        let known = || keys.iter().map(|key| key.name);
        for (key, _) in table.iter().filter(|(key, _)| !known().any(|name| name == key.get_ref())) {
            let hint = match &**key.get_ref() {
                live if sort.header == "[export.NAME]" && live_group_keys().any(|one| one == live) => {
                    let group = table.get("group").and_then(|group| group.get_ref().as_str());
                    let group = group.map_or_else(|| own_path(name), str::to_owned);
                    format!("; that is a group's: [group.{group:?}] {live} = …")
                }
                // The name in other servers.
                "path" | "file" | "image" if sort.header == "[export.NAME]" => "; did you mean \"backing\"?".into(),
                word => {
                    hint(word, known(), || format!("; {} has {}", sort.header, known().collect::<Vec<_>>().join(", ")))
                }
            };
            mistakes.push(Mistake {
                at: Some(key.span()),
                key: join(&path, key.get_ref()),
                says: format!("unknown key{hint}"),
            });
        }
        Self { path, at, name: name.into(), sort, table }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// The value of `key` in the file, unread.
    pub(crate) fn raw(&self, key: &str) -> Option<&'d Spanned<DeValue<'d>>> {
        debug_assert!(self.sort.keys().iter().any(|row| row.name == key), "{key} has no row in keys.rs");
        self.table.get(key)
    }

    /// The value of `key` as `read` understands it; `None` if it is not there or a mistake.
    pub(crate) fn take<T>(
        &self,
        mistakes: &mut Vec<Mistake>,
        key: &str,
        read: impl FnOnce(&Given) -> Result<T, String>,
    ) -> Option<T> {
        self.right(mistakes, key, read(&self.raw(key)?.get_ref().into()))
    }

    /// The meaning of the value of `key`; `None` if it is a mistake.
    pub(crate) fn right<T>(&self, mistakes: &mut Vec<Mistake>, key: &str, read: Result<T, String>) -> Option<T> {
        read.map_err(|says| mistakes.push(self.place(key).says(says))).ok()
    }

    pub(crate) fn put<T>(&self, mistakes: &mut Vec<Mistake>, rows: &[Row<T>], to: &mut T) {
        for row in rows.iter().filter(|row| row.is_read()) {
            let Some(value) = self.raw(row.name) else { continue };
            if let Some((none, put)) = row.list() {
                self.put_list(mistakes, row.name, (none, put), to);
                continue;
            }
            let Err(Amiss(parts)) = row.put(to, &value.get_ref().into()) else { continue };
            for Part { within, is_name, says } in parts {
                let inner = within.as_ref().and_then(|key| value.get_ref().as_table()?.get_key_value(key.as_str()));
                let at = inner.map_or(value.span(), |(name, value)| if is_name { name.span() } else { value.span() });
                let key = join(&self.path, row.name);
                let key = within.map_or_else(|| key.clone(), |within| join(&key, &within));
                mistakes.push(Mistake { at: Some(at), key, says });
            }
        }
    }

    /// A text, or a list of texts.
    fn put_list<T>(&self, mistakes: &mut Vec<Mistake>, key: &str, (none, put): (Option<&str>, PutOne<T>), to: &mut T) {
        let Some(value) = self.raw(key) else { return };
        let one = std::slice::from_ref(value);
        let all: &[Spanned<DeValue<'_>>] = value.get_ref().as_array().map_or(one, |list| list);
        mistakes.extend(none.filter(|_| all.is_empty()).map(|none| self.place(key).says(none)));
        for value in all {
            let place = SettingPlace { at: Some(value.span()), ..self.place(key) };
            let put = Given::from(value.get_ref()).text().and_then(|text| put(to, text, place.clone()));
            mistakes.extend(put.err().map(|says| place.says(says)));
        }
    }

    /// The table itself.
    pub(crate) fn header(&self) -> SettingPlace {
        SettingPlace { at: Some(self.at.clone()), key: self.path.clone() }
    }

    /// The value of `key`, or the table if it is not written.
    pub(crate) fn place(&self, key: &str) -> SettingPlace {
        let at = self.raw(key).map_or(self.at.clone(), Spanned::span);
        SettingPlace { at: Some(at), key: join(&self.path, key) }
    }
}

/// `path.key`, the key quoted where TOML needs it.
pub(crate) fn join(path: &str, key: &str) -> String {
    let bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    let dot = if path.is_empty() { "" } else { "." };
    if bare { format!("{path}{dot}{key}") } else { format!("{path}{dot}{key:?}") }
}

/// Says what a value is, for "…, not this".
pub(crate) fn show(value: &DeValue<'_>) -> String {
    Given::from(value).show()
}
