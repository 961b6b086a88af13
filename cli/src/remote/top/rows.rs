//! The rows of tenants, a line each, and their order.

use clap::ValueEnum;
use serde_json::Value;

use super::super::tables;

/// The sort keys of tenants.
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
    /// The key that chooses it.
    pub(super) const KEYS: [(char, Self); 6] = [
        ('h', Self::Had),
        ('r', Self::Rate),
        ('p', Self::P99),
        ('s', Self::Score),
        ('w', Self::Wait),
        ('n', Self::Name),
    ];
}

/// A tenant on a disk.
#[derive(Clone, Debug, Default)]
pub(super) struct TenantRow {
    pub(super) name: String,
    pub(super) disk: String,
    pub(super) exports: Vec<String>,
    had: f64,
    due: Option<f64>,
    /// The reason for its due: weight, demand, floor or ceiling.
    by: String,
    score: Option<f64>,
    /// It had less than 80 % of its due.
    pub(super) is_short: bool,
    iops: f64,
    bps: f64,
    p99: Option<f64>,
    /// The largest part of its time, and how large it is.
    waits: Option<(String, f64)>,
    /// Had and due of the pool of its disk.
    pool: Option<[f64; 2]>,
    limits: String,
}

impl TenantRow {
    pub(super) fn new(tenant: &Value) -> Self {
        let number = |name: &str| tenant[name].as_f64();
        let waits = tenant["waits"].as_object().into_iter().flatten();
        let waits = waits.filter_map(|(name, part)| Some((name.clone(), part.as_f64()?)));
        Self {
            name: tables::text(&tenant["path"]),
            disk: tables::text(&tenant["disk"]),
            exports: tenant["exports"].as_array().into_iter().flatten().map(tables::text).collect(),
            had: number("had").unwrap_or_default(),
            due: number("due"),
            by: tenant["due_by"].as_str().map_or_else(|| "-".into(), str::to_owned),
            score: number("score"),
            is_short: tenant["short"] == true,
            iops: number("iops").unwrap_or_default(),
            bps: number("bps").unwrap_or_default(),
            p99: number("p99_us"),
            waits: waits.max_by(|one, two| one.1.total_cmp(&two.1)),
            pool: tenant["pool"]["had"].as_f64().zip(tenant["pool"]["due"].as_f64()).map(|(had, due)| [had, due]),
            limits: tables::limits(tenant),
        }
    }

    pub(super) fn holds(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        let waits = self.waits.iter().map(|(cause, _)| cause);
        [&self.name, &self.disk]
            .into_iter()
            .chain(&self.exports)
            .chain(waits)
            .any(|word| word.to_lowercase().contains(&text))
    }

    /// Its line on a screen divided so.
    pub(super) fn line(&self, widths: &Widths) -> String {
        let &Widths { name, disk, has_pool } = widths;
        let pool = match self.pool.map(|pool| pool.map(percent)) {
            Some([had, due]) => format!(" {had:>8} {due:>8}"),
            None if has_pool => format!("{:POOL$}", ""),
            None => String::new(),
        };
        let waits = self.waits.as_ref().map_or_else(String::new, |(cause, part)| format!("{cause} {}", percent(*part)));
        format!(
            "{} {} {:>4} {:>4} {:<6} {:>5} {:>6} {:>6} {:>6}{pool} {waits:<12} {}",
            fit(&self.name, name),
            fit(&self.disk, disk),
            percent(self.had),
            self.due.map_or_else(|| "-".into(), percent),
            self.by,
            self.score.map_or_else(|| "-".into(), |score| format!("{score:.2}")),
            tables::short(self.iops),
            format!("{:.*}", if self.bps < 1e9 { 1 } else { 0 }, self.bps / 1e6),
            self.p99.map_or_else(|| "-".into(), micros),
            self.limits,
        )
    }
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
pub(super) fn widths(rows: &[TenantRow], width: usize) -> Widths {
    let has_pool = rows.iter().any(|row| row.pool.is_some());
    let longest = |of: fn(&TenantRow) -> &str| rows.iter().map(|row| columns(of(row))).max().unwrap_or(0);
    let free = width.saturating_sub(if has_pool { REST + POOL } else { REST });
    let most = free.saturating_sub(DISK).max(8);
    let name = longest(|row| &row.name).clamp(NAME.min(most), most);
    let most = free.saturating_sub(name).max(DISK);
    Widths { name, disk: longest(|row| &row.disk).clamp(DISK, most), has_pool }
}

pub(super) fn heads(widths: &Widths) -> String {
    let &Widths { name, disk, has_pool } = widths;
    let pool = if has_pool { " POOL HAD POOL DUE" } else { "" };
    format!(
        "{:name$} {:disk$} {:>4} {:>4} {:<6} {:>5} {:>6} {:>6} {:>6}{pool} {:<12} {}",
        "TENANT", "DISK", "HAD", "DUE", "BY", "SCORE", "IOPS", "MB/s", "P99", "WAITS FOR", "LIMITS"
    )
}

/// On a screen.
pub(super) fn columns(text: &str) -> usize {
    ratatui::text::Span::raw(text).width()
}

/// Sorts tenants; those that are alike by name.
pub(super) fn sort(rows: &mut [TenantRow], by: Sort, reversed: bool) {
    let largest = |one: Option<f64>, two: Option<f64>| two.unwrap_or(-1.0).total_cmp(&one.unwrap_or(-1.0));
    rows.sort_by(|one, two| {
        let order = match by {
            Sort::Had => largest(Some(one.had), Some(two.had)),
            Sort::Rate => largest(Some(one.iops), Some(two.iops)),
            Sort::P99 => largest(one.p99, two.p99),
            Sort::Score => one.score.unwrap_or(f64::MAX).total_cmp(&two.score.unwrap_or(f64::MAX)),
            Sort::Wait => {
                let of = |row: &TenantRow| row.waits.clone().unwrap_or_default();
                let ((one, part), (two, other)) = (of(one), of(two));
                // Those that wait for nothing come last.
                one.is_empty().cmp(&two.is_empty()).then(one.cmp(&two)).then(other.total_cmp(&part))
            }
            Sort::Name => std::cmp::Ordering::Equal,
        };
        let order = order.then_with(|| (&one.name, &one.disk).cmp(&(&two.name, &two.disk)));
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

/// Text in at most `columns` columns; of a longer text the beginning is shown.
pub(super) fn fit_start(text: &str, columns: usize) -> String {
    let mut kept = String::new();
    for letter in text.chars() {
        kept.push(letter);
        if ratatui::text::Span::raw(&*kept).width() > columns {
            kept.pop();
            break;
        }
    }
    kept
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
        let row = |pool: Value| TenantRow::new(&json!({"path": "/a", "disk": "d", "max": {"iops": 9}, "pool": pool}));
        let without = row(Value::Null);
        let both = [row(json!({"had": 0.2, "due": 0.25})), without.clone()];
        let all = widths(&both, 200);
        let shown = [heads(&all), both[0].line(&all), both[1].line(&all)];
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
