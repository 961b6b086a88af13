//! `fairlift tunables`.

use std::fmt::Write as _;

use fairlift_core::model::Character;
use fairlift_core::sched::{Kind, Setup};
use fairlift_core::{flush, tunable};

use crate::terminal::columns::{SettingRow, write_rows};

/// The tunables of one scheduler or of all, for a terminal.
pub(crate) fn tunables(only: Option<Kind>) -> String {
    let mut out = String::new();
    for kind in Kind::ALL.into_iter().filter(|kind| only.is_none_or(|only| only == *kind)) {
        if !out.is_empty() {
            out.push('\n');
        }
        let rows = rows(kind);
        if rows.is_empty() {
            let _ = writeln!(out, "{}: no tunables", kind.name());
            continue;
        }
        let _ = writeln!(out, "{}:", kind.name());
        write_rows(&mut out, &rows);
    }
    out.push_str("\nwith every scheduler:\n");
    write_rows(&mut out, &flush_rows());
    out
}

pub(super) fn rows(kind: Kind) -> Vec<SettingRow> {
    // Defaults that follow from the device are those of one that rotates; what they are for others is in the row's words.
    let character = Character { rotational: true, volatile_cache: true };
    let scheduler = kind.build(&Setup { character, ..Setup::new(1) });
    kind.tunables().iter().map(|info| SettingRow::new(info, scheduler.get(info.name))).collect()
}

pub(super) fn flush_rows() -> Vec<SettingRow> {
    let usual = flush::Settings::default();
    let usual = |name| tunable::get(flush::Settings::TUNABLES, &usual, name);
    flush::Settings::INFO.iter().map(|info| SettingRow::new(info, usual(info.name))).collect()
}
