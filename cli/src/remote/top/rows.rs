//! The rows of tenants, a line each, and their order.

use clap::ValueEnum;
use serde_json::Value;

use super::super::tables::{self, number};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum Sort {
    /// The share of the disk's time that it had, the largest first
    #[default]
    #[value(alias = "use")]
    Had,
    /// Operations a second, the most first
    Rate,
    /// The latency that one in a hundred operations exceeds, the longest first
    P99,
    /// Had ÷ due, the least first
    Score,
    /// The cause of its waits, then their part of its time
    Wait,
    /// Its name
    Name,
}

impl Sort {
    /// The one whose name begins with a letter.
    pub(super) fn of_key(letter: char) -> Option<Self> {
        let has_it = |sort: &&Self| sort.to_possible_value().is_some_and(|value| value.get_name().starts_with(letter));
        Self::value_variants().iter().find(has_it).copied()
    }
}

/// The largest part of a tenant's time, and how large it is.
fn waits(tenant: &Value) -> Option<(&str, f64)> {
    let all = tenant["waits"].as_object().into_iter().flatten();
    let all = all.filter_map(|(cause, part)| Some((&**cause, part.as_f64()?)));
    all.max_by(|one, two| one.1.total_cmp(&two.1))
}

/// Whether this text is in a tenant's path, its disk, one of its exports or the cause of its waits.
pub(super) fn holds(tenant: &Value, text: &str) -> bool {
    let text = text.to_lowercase();
    let names = [&tenant["path"], &tenant["disk"]].into_iter().chain(tables::list(&tenant["exports"]));
    let mut words = names.filter_map(Value::as_str).chain(waits(tenant).map(|(cause, _)| cause));
    words.any(|word| word.to_lowercase().contains(&text))
}

/// A tenant's line on a screen divided so.
pub(super) fn line(tenant: &Value, widths: &Widths) -> String {
    let &Widths { name, disk, has_pool } = widths;
    let pool = |key: &str| tenant["pool"][key].as_f64().map_or_else(String::new, percent);
    let pool = if has_pool { format!(" {:>8} {:>8}", pool("had"), pool("due")) } else { String::new() };
    let waits = waits(tenant).map_or_else(String::new, |(cause, part)| format!("{cause} {}", percent(part)));
    format!(
        "{} {} {:>4} {:>4} {:<6} {:>5} {:>6} {:>6} {:>6}{pool} {waits:<12} {}",
        fit(&tables::text(&tenant["path"]), name),
        fit(&tables::text(&tenant["disk"]), disk),
        number(&tenant["had"], percent),
        number(&tenant["due"], percent),
        tables::text(&tenant["due_by"]),
        number(&tenant["score"], |score| format!("{score:.2}")),
        number(&tenant["iops"], tables::short),
        number(&tenant["bps"], |bps| format!("{:.*}", if bps < 1e9 { 1 } else { 0 }, bps / 1e6)),
        number(&tenant["p99_us"], micros),
        tables::limits(tenant),
    )
}

/// Columns of a tenant's name and of its disk's, at least where there is room.
const NAME: usize = 16;
const DISK: usize = 6;
/// Columns of had and due of a pool, and of all but these, the names and the limits.
const POOL: usize = 9 + 9;
const REST: usize = 1 + 5 + 5 + 7 + 6 + 7 + 7 + 7 + 13;

/// How many columns of a screen the names of tenants and disks have, and whether there are columns for pools.
pub(super) struct Widths {
    name: usize,
    disk: usize,
    has_pool: bool,
}

/// Divides a screen so wide: names have as much as the longest needs, if there is room, and pools nothing where no disk is of one.
pub(super) fn widths(rows: &[Value], width: usize) -> Widths {
    let has_pool = rows.iter().any(|row| !row["pool"].is_null());
    let longest = |key: &str| rows.iter().map(|row| columns(&tables::text(&row[key]))).max().unwrap_or(0);
    let free = width.saturating_sub(if has_pool { REST + POOL } else { REST });
    let most = free.saturating_sub(DISK).max(8);
    let name = longest("path").clamp(NAME.min(most), most);
    let most = free.saturating_sub(name).max(DISK);
    Widths { name, disk: longest("disk").clamp(DISK, most), has_pool }
}

pub(super) fn heads(widths: &Widths) -> String {
    let &Widths { name, disk, has_pool } = widths;
    let pool = if has_pool { " POOL HAD POOL DUE" } else { "" };
    format!(
        "{:name$} {:disk$} {:>4} {:>4} {:<6} {:>5} {:>6} {:>6} {:>6}{pool} {:<12} {}",
        "TENANT", "DISK", "HAD", "DUE", "BY", "SCORE", "IOPS", "MB/s", "P99", "WAITS FOR", "LIMITS"
    )
}

pub(super) fn columns(text: &str) -> usize {
    ratatui::text::Span::raw(text).width()
}

/// Sorts tenants; those that are alike by name.
pub(super) fn sort(rows: &mut [Value], by: Sort, reversed: bool) {
    rows.sort_by(|one, two| {
        let figure = |row: &Value, key: &str, none: f64| row[key].as_f64().unwrap_or(none);
        let largest = |key: &str| figure(two, key, -1.0).total_cmp(&figure(one, key, -1.0));
        let order = match by {
            Sort::Had => largest("had"),
            Sort::Rate => largest("iops"),
            Sort::P99 => largest("p99_us"),
            Sort::Score => figure(one, "score", f64::MAX).total_cmp(&figure(two, "score", f64::MAX)),
            Sort::Wait => {
                let [(one, part), (two, other)] = [one, two].map(|row| waits(row).unwrap_or_default());
                // Those that wait for nothing come last.
                one.is_empty().cmp(&two.is_empty()).then(one.cmp(two)).then(other.total_cmp(&part))
            }
            Sort::Name => std::cmp::Ordering::Equal,
        };
        let name = |row: &Value| ["path", "disk"].map(|key| tables::text(&row[key]));
        let order = order.then_with(|| name(one).cmp(&name(two)));
        if reversed { order.reverse() } else { order }
    });
}

/// Text in `columns` columns; of a longer text the end is shown, for names differ there.
pub(super) fn fit(text: &str, columns: usize) -> String {
    let width = self::columns;
    if width(text) <= columns {
        return format!("{text}{:1$}", "", columns - width(text));
    }
    let mut from = text.len();
    for (at, _) in text.char_indices().rev() {
        if width(&text[at..]) + 1 > columns {
            break;
        }
        from = at;
    }
    let kept = &text[from..];
    format!("…{kept}{:1$}", "", columns.saturating_sub(1 + width(kept)))
}

pub(super) fn percent(part: f64) -> String {
    format!("{:.0}%", 100.0 * part)
}

fn micros(us: f64) -> String {
    match us {
        ..1e3 => format!("{us:.0}us"),
        ..1e6 => format!("{:.1}ms", us / 1e3),
        _ => format!("{:.1}s", us / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tenants_of_a_pool_have_columns_for_it_and_without_a_pool_there_are_none() {
        let row = |pool: Value| json!({"path": "/a", "disk": "d", "max": {"iops": 9}, "pool": pool});
        let without = row(Value::Null);
        let both = [row(json!({"had": 0.2, "due": 0.25})), without.clone()];
        let all = widths(&both, 200);
        let shown = [heads(&all), line(&both[0], &all), line(&both[1], &all)];
        assert!(shown[0].contains("   P99 POOL HAD POOL DUE WAITS FOR "), "{}", shown[0]);
        let at = |line: &str, word: &str| line.find(word).unwrap_or_else(|| panic!("{word}: {line}")) + word.len();
        assert_eq!(at(&shown[0], "HAD POOL DUE"), at(&shown[1], " 25%"), "{shown:?}");
        assert_eq!(shown[1].find("max iops"), shown[2].find("max iops"), "{shown:?}");
        assert!(!heads(&widths(&[without], 200)).contains("POOL"));
    }

    #[test]
    fn numbers_are_short_and_names_fit() {
        assert_eq!([0.4, 9_999.0, 28_140.0, 1_234_567.0].map(tables::short), ["0", "9999", "28.1k", "1.23M"]);
        assert_eq!([90.0, 3_640.0, 1.25e6].map(micros), ["90us", "3.6ms", "1.2s"]);
        assert_eq!(fit("alice", 7), "alice  ");
        assert_eq!(fit("/tenants/alice", 8), "…s/alice");
        assert_eq!(fit("/日本語", 5), "…本語", "two columns each");
        assert_eq!(fit("/日本語", 6), "…本語 ", "half a letter is not shown");
    }
}
