//! Answers of a server, as people read them.

use std::fmt::Write as _;

use fairlift_lab::report::printable;
use serde_json::{Map, Value};

use crate::terminal::columns::{Column, table};

const DISKS: [Column<Value>; 5] = [
    ("DISK", '<', |disk| text(&disk["name"])),
    ("SCHEDULER", '<', |disk| text(&disk["scheduler"])),
    ("IN FLIGHT", '>', |disk| format!("{}/{}", text(&disk["in_flight"]), text(&disk["depth"]))),
    ("WAITING", '>', |disk| text(&disk["waiting"])),
    ("MB/s", '>', |disk| rate(&disk["bps"])),
];

/// The last three are shown where a tenant has something there.
const TENANTS: [Column<Value>; 16] = [
    ("TENANT", '<', |tenant| text(&tenant["path"])),
    ("DISK", '<', |tenant| text(&tenant["disk"])),
    ("WEIGHT", '>', |tenant| text(&tenant["weight"])),
    ("HAD", '>', |tenant| percent(&tenant["had"])),
    ("DUE", '>', |tenant| percent(&tenant["due"])),
    ("BY", '>', |tenant| text(&tenant["due_by"])),
    ("SCORE", '>', |tenant| number(&tenant["score"], |score| format!("{score:.2}"))),
    ("IOPS", '>', |tenant| whole(&tenant["iops"])),
    ("MB/s", '>', |tenant| rate(&tenant["bps"])),
    ("P50", '>', |tenant| micros(&tenant["p50_us"])),
    ("P99", '>', |tenant| micros(&tenant["p99_us"])),
    ("IN FLIGHT", '>', |tenant| text(&tenant["in_flight"])),
    ("WAITING", '>', |tenant| text(&tenant["waiting"])),
    ("POOL HAD", '>', |tenant| pool_of(tenant, "had")),
    ("POOL DUE", '>', |tenant| pool_of(tenant, "due")),
    ("LIMITS", '<', limits),
];

const CLIENTS: [Column<Value>; 4] = [
    ("CLIENT", '<', |rule| text(&rule["name"])),
    ("KNOWN BY", '<', |rule| text(&rule["known"])),
    ("CONNECTIONS", '>', |rule| text(&rule["connections"])),
    ("MAY", '<', |rule| text(&rule["may"])),
];

const GATEWAYS: [Column<Value>; 7] = [
    ("GATEWAY", '<', |seen| text(&seen["name"])),
    ("AGE", '>', |seen| text(&seen["periods"])),
    ("GROUPS", '>', |seen| text(&seen["groups"])),
    ("DEPTH", '>', |seen| number(&seen["depth"], |depth| format!("{depth:.1}"))),
    ("HAD", '>', |seen| percent(&seen["had"])),
    ("DUE", '>', |seen| percent(&seen["due"])),
    ("WRONG", '<', |seen| seen["wrong"].as_str().map_or_else(String::new, printable)),
];

const GROUPS: [Column<Value>; 6] = [
    ("GROUP", '<', |group| text(&group["path"])),
    ("WEIGHT", '>', |group| text(&group["weight"])),
    ("HAD", '>', |group| percent(&group["had"])),
    ("HERE", '>', |group| percent(&group["here"])),
    ("DUE", '>', |group| percent(&group["due"])),
    ("WRONG", '<', |group| group["wrong"].as_str().map_or_else(String::new, printable)),
];

/// A list; empty if it is none.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub(super) fn status(value: &Value) -> String {
    let mut out = String::new();
    table(&mut out, &DISKS, list(&value["disks"]));
    out.push('\n');
    let tenants = list(&value["tenants"]);
    let (always, others) = TENANTS.split_at(TENANTS.len() - 3);
    let others = others.iter().filter(|(.., cell)| tenants.iter().any(|tenant| !cell(tenant).is_empty()));
    table(&mut out, &always.iter().chain(others).copied().collect::<Vec<_>>(), tenants);
    let rules = list(&value["clients"]);
    if !rules.is_empty() {
        out.push('\n');
        table(&mut out, &CLIENTS, rules);
    }
    let connections = value["connections"].as_u64().unwrap_or_default();
    let plural = if connections == 1 { "" } else { "s" };
    let length = seconds(value);
    let _ =
        write!(out, "\nover {length}; {connections} connection{plural}, config version {}", text(&value["version"]));
    match value["engine"].as_str() {
        Some("io_uring") | None => out.push('\n'),
        Some(engine) => drop(writeln!(out, ", engine={engine}")),
    }
    out += &idle(value);
    list(&value["warnings"]).iter().for_each(|warning| _ = writeln!(out, "warning: {}", text(warning)));
    if value["flush_errors"].as_u64().is_some_and(|count| count > 0) {
        let _ = writeln!(out, "flushes have failed: see `fairlift get server`");
    }
    out
}

/// For each pool its gateways, then its groups.
pub(super) fn gateways(value: &Value) -> String {
    let mut out = String::new();
    for pool in list(value) {
        let heard = match (pool["trouble"].as_str(), pool["heard_seconds"].as_f64()) {
            (Some(why), _) => format!("not heard of ({}): shares stay as they are", printable(why)),
            (None, Some(seconds)) => format!("heard {seconds:.1} s ago"),
            (None, None) => "not heard of yet".into(),
        };
        let (disk, shares, own) = (text(&pool["disk"]), text(&pool["shares"]), text(&pool["gateway"]));
        let _ = writeln!(out, "{disk} at {shares}: this is {own}; gateways {heard}");
        if let Some(part) = pool["room"]["part"].as_f64() {
            let group = text(&pool["room"]["group"]);
            let _ = writeln!(out, "it makes room for the latency of {group}: {:.0}% of its depth", 100.0 * part);
        }
        out.push('\n');
        table(&mut out, &GATEWAYS, list(&pool["gateways"]));
        out.push('\n');
        table(&mut out, &GROUPS, list(&pool["groups"]));
        out.push('\n');
    }
    if out.is_empty() { "no disk has `shares`: this server shares no pool with others\n".into() } else { out }
}

/// A tenant's part of all that the gateways of its disk's pool served (`had`), or the part that it was `due`; empty: the disk is of no pool.
fn pool_of(tenant: &Value, key: &str) -> String {
    if tenant["pool"].is_null() { String::new() } else { percent(&tenant["pool"][key]) }
}

/// Which part of a disk's time is told of that no tenant had. Chosen: one that is busy all the time is so by a few parts of a hundred.
const IDLE: f64 = 0.05;

/// The part of the disks' time that no shown tenant had, where some had a part; a tenant is not told whether others had the rest.
fn idle(value: &Value) -> String {
    let (disks, tenants) = (list(&value["disks"]), list(&value["tenants"]));
    let of = |disk: &Value| {
        let rows = tenants.iter().filter(|row| row["disk"] == disk["name"]);
        let had: f64 = rows.filter_map(|row| row["had"].as_f64()).sum();
        let is_told = had > 0.0 && had < 1.0 - IDLE;
        is_told.then(|| format!("{} {:.1}%", text(&disk["name"]), 100.0 * (1.0 - had)))
    };
    let all: Vec<_> = disks.iter().filter_map(of).collect();
    let sees_all = disks.iter().all(|disk| !disk["busy"].is_null());
    let what = if sees_all { "idle" } else { "idle, or others'" };
    if all.is_empty() { String::new() } else { format!("{what}: {}\n", all.join(", ")) }
}

/// The limits of a tenant, and the latency that it is to have; empty: there are none.
pub(super) fn limits(tenant: &Value) -> String {
    let number = |value: &Value| value.as_f64().map_or_else(|| text(value), short);
    let of = |key: &str| {
        let rates = tenant[key].as_object()?;
        let rates: Vec<_> = rates.iter().map(|(rate, value)| format!("{rate}={}", number(value))).collect();
        Some(format!("{key} {}", rates.join(",")))
    };
    let kept = match (tenant["latency_given_up"] == true, &tenant["latency_met"]) {
        (true, _) => ", given up".to_owned(),
        (false, Value::Null) => String::new(),
        (false, met) => format!(", kept in {:.0} % of the last 60 s", 100.0 * met.as_f64().unwrap_or_default()),
    };
    let latency = tenant["latency_target_us"].as_f64();
    let latency = latency.map(|_| format!("latency {}{kept}", micros(&tenant["latency_target_us"])));
    ["max", "burst", "min"].into_iter().filter_map(of).chain(latency).collect::<Vec<_>>().join(" ")
}

/// A number in at most five letters.
pub(super) fn short(number: f64) -> String {
    match number {
        ..1e4 => format!("{number:.0}"),
        ..1e6 => format!("{:.1}k", number / 1e3),
        _ => format!("{:.2}M", number / 1e6),
    }
}

fn seconds(value: &Value) -> String {
    format!("{:.1} s", value["seconds"].as_f64().unwrap_or_default())
}

/// The tenants short of their due, and the time measured; then the cause of each tenant, a line each.
pub(super) fn why_each(value: &Value) -> String {
    let all = list(value);
    let Some(first) = all.first() else { return "there is no tenant: no export is served\n".into() };
    let short = all.iter().filter(|one| one["short"] == true);
    let short: Vec<_> = short.map(|one| format!("{} {}", text(&one["tenant"]), had_of(one))).collect();
    let mut out = match &*short {
        [] => format!("no tenant is short of its due, over {}\n", seconds(first)),
        all => format!("short of its due, over {}: {}\n", seconds(first), all.join("; ")),
    };
    for one in all {
        let _ = writeln!(out, "{} on {}: {}", text(&one["tenant"]), text(&one["disk"]), text(&one["says"]));
        ["helps", "cache"].iter().for_each(|key| beside(&mut out, &one[*key]));
    }
    out
}

/// A sentence beside a cause, if there is one.
fn beside(out: &mut String, says: &Value) {
    if let Some(says) = says.as_str() {
        let _ = writeln!(out, "  {}", printable(says));
    }
}

/// The share that a tenant had, and its due.
fn had_of(one: &Value) -> String {
    let (had, due) = (percent(&one["had"]), percent(&one["due"]));
    format!("had {had} of {} and was due {due} by {}", text(&one["disk"]), text(&one["due_by"]))
}

pub(super) fn why_tenant(value: &Value) -> String {
    let all: Vec<_> = list(value).iter().map(|one| why_of("tenant", one)).collect();
    if all.is_empty() { "no export is in this group, nor below it\n".into() } else { all.join("\n") }
}

pub(super) fn why(value: &Value) -> String {
    why_of("export", value)
}

/// Whether the tenant had its due; the cause in a line, the other parts of the time, the largest first, and the tenant's activity.
fn why_of(name: &str, value: &Value) -> String {
    let mut out = String::new();
    let (tenant, length) = (text(&value["tenant"]), seconds(value));
    let _ = match (value["due"].is_null(), value["short"] == true) {
        (true, _) => writeln!(out, "{tenant} asked for nothing of {}, over {length}", text(&value["disk"])),
        (_, true) => writeln!(out, "{tenant} is short: it {}, over {length}", had_of(value)),
        (_, false) => writeln!(out, "{tenant} is not short: it {}, over {length}", had_of(value)),
    };
    let _ = writeln!(out, "{}: {}", text(&value[name]), text(&value["says"]));
    beside(&mut out, &value["helps"]);
    for cause in list(&value["causes"]).iter().skip(1) {
        let _ = writeln!(out, "  {:>4}  {}", percent(&cause["part"]), text(&cause["says"]));
    }
    beside(&mut out, &value["cache"]);
    if let Some(says) = value["latency"]["says"].as_str() {
        let _ = writeln!(out, "  {says}");
    }
    let outstanding = value["outstanding"].as_f64().unwrap_or_default();
    let limits = Some(limits(value)).filter(|limits| !limits.is_empty());
    let limits = limits.map_or_else(String::new, |limits| format!("; {limits}"));
    let pool = match value["pool"].is_null() {
        true => String::new(),
        false => format!("; of the pool had {} and due {}", pool_of(value, "had"), pool_of(value, "due")),
    };
    let _ = writeln!(
        out,
        "({tenant} on {}: {} operations and {} MB a second, {outstanding:.1} outstanding{pool}{limits})",
        text(&value["disk"]),
        whole(&value["iops"]),
        rate(&value["bps"]),
    );
    out
}

/// The changes, a line each, then the object after them, and its settings that cannot act. The command tells the version, at the end.
pub(super) fn changed(value: &Value) -> String {
    let mut rest = value.clone();
    let mut lines = |key: &str, head: &str| {
        let all = rest.as_object_mut().and_then(|all| all.shift_remove(key));
        let all = all.iter().filter_map(Value::as_array).flatten();
        all.map(|one| format!("{head}{}\n", text(one))).collect::<String>()
    };
    let (changes, warnings) = (lines("changes", ""), lines("warnings", "warning: "));
    ["version", "dry_run", "also"].into_iter().for_each(|key| drop(lines(key, ""))); // `also` is among the changes
    changes + &any(&rest) + &warnings
}

/// Names and values, one a line; what is in something is indented.
pub(super) fn any(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Array(list) if list.is_empty() => out.push_str("none\n"),
        _ => write_value(&mut out, value, 0),
    }
    out
}

fn write_value(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Array(list) => {
            for one in list {
                let start = out.len();
                write_value(out, one, indent + 2);
                if out.len() > start + indent {
                    out.replace_range(start + indent..start + indent + 1, "-");
                }
            }
        }
        Value::Object(all) => all.iter().for_each(|(name, value)| write_pair(out, name, value, indent)),
        plain => {
            let _ = writeln!(out, "{:indent$}{}", "", text(plain));
        }
    }
}

fn write_pair(out: &mut String, name: &str, value: &Value, indent: usize) {
    if name == "tunables"
        && let Some(knobs) = value.as_array()
    {
        let _ = writeln!(out, "{:indent$}tunables:", "");
        for knob in knobs {
            let (name, value, takes) = (text(&knob["name"]), text(&knob["value"]), text(&knob["takes"]));
            let _ = writeln!(out, "{:indent$}  {name} = {value}  ({takes})", "");
        }
        return;
    }
    match value {
        Value::Array(list) if list.is_empty() => {}
        Value::Object(all) if all.is_empty() => {}
        Value::Array(list) if list.iter().all(|one| !one.is_object() && !one.is_array()) => {
            let all = list.iter().map(text).collect::<Vec<_>>().join(", ");
            let _ = writeln!(out, "{:indent$}{name}: {all}", "");
        }
        Value::Array(_) | Value::Object(_) => {
            let _ = writeln!(out, "{:indent$}{name}:", "");
            write_value(out, value, if value.is_array() { indent } else { indent + 2 });
        }
        Value::Null => {}
        Value::String(text) if text.is_empty() => {}
        plain => {
            let _ = writeln!(out, "{:indent$}{name}: {}", "", text(plain));
        }
    }
}

/// One line: when, what, and the rest.
pub(super) fn event(event: &Value) -> String {
    let none = Map::new();
    let all = event.as_object().unwrap_or(&none);
    let rest = all.iter().filter(|(name, _)| !["number", "at", "event"].contains(&name.as_str()));
    let rest: Vec<_> = rest.map(|(name, value)| format!("{name}={}", text(value))).collect();
    format!("{} {} {}", text(&event["number"]), text(&event["event"]), rest.join(" "))
}

/// A plain value, without control characters that could move the cursor.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => printable(text),
        Value::Null => "-".into(),
        other => other.to_string(),
    }
}

/// A number; `-`: there is none.
pub(super) fn number(value: &Value, show: fn(f64) -> String) -> String {
    value.as_f64().map_or_else(|| "-".into(), show)
}

fn percent(value: &Value) -> String {
    number(value, |part| format!("{:.1}%", 100.0 * part))
}

pub(super) fn rate(value: &Value) -> String {
    number(value, |bytes| format!("{:.1}", bytes / 1e6))
}

fn whole(value: &Value) -> String {
    number(value, |number| format!("{number:.0}"))
}

fn micros(value: &Value) -> String {
    number(value, |us| if us < 1000.0 { format!("{us:.0}us") } else { format!("{:.1}ms", us / 1000.0) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn status_is_one_screen() {
        let value = json!({
            "version": 3, "seconds": 1.04, "connections": 2, "flush_errors": 1, "engine": "poll (io_uring: EPERM)",
            "disks": [{"name": "ssd0", "scheduler": "fair", "in_flight": 5, "depth": 32, "waiting": 7, "bps": 1.5e6}],
            "tenants": [{"path": "/a", "disk": "ssd0", "weight": 300, "had": 0.75, "due": 0.5, "due_by": "max", "score": 1.5,
                "iops": 10.4, "bps": 1.5e6, "p50_us": 90.0, "p99_us": 1500.0, "in_flight": 5, "waiting": 7,
                "max": {"riops": 28_000, "wbps": 500}, "min": {"iops": 5}, "latency_target_us": 2000.0, "latency_met": 0.96}],
        });
        let shown = status(&value);
        let foot = "\nover 1.0 s; 2 connections, config version 3, engine=poll (io_uring: EPERM)\n";
        for part in [
            "ssd0  fair",
            "5/32",
            "75.0%  50.0%  max   1.50",
            "90us",
            "1.5ms",
            "LIMITS\n",
            "  max riops=28.0k,wbps=500 min iops=5 latency 2.0ms, kept in 96 % of the last 60 s\n",
            foot,
            "flushes have failed",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }

    #[test]
    fn gateways_are_listed_with_what_is_wrong_and_a_tenant_has_its_pool_in_columns_of_its_own() {
        let value = json!([{
            "disk": "pool", "shares": "rados:vms/shares", "gateway": "gw1", "heard_seconds": 0.42, "trouble": null, "depth": 32,
            "room": {"group": "/e", "part": 0.42},
            "gateways": [
                {"name": "gw1", "own": true, "periods": 0, "groups": 1, "depth": 8.04, "had": 0.25, "due": 0.25, "wrong": null},
                {"name": "gw2", "own": false, "periods": 4, "groups": 3, "depth": 24.0, "had": 0.75, "due": 0.75, "wrong": "gone"},
            ],
            "groups": [{"path": "/a", "weight": 100, "had": 0.25, "here": 0.25, "due": 0.25, "wrong": null}],
        }]);
        let shown = gateways(&value);
        for part in [
            "pool at rados:vms/shares: this is gw1; gateways heard 0.4 s ago\nit makes room for the latency of /e: 42% of its depth\n\n",
            "gw1        0       1    8.0  25.0%  25.0%",
            "gw2        4       3   24.0  75.0%  75.0%  gone",
            "/a        100  25.0%  25.0%  25.0%",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(gateways(&json!([])).contains("no disk has `shares`"));
        let tenant = json!({"max": {"iops": 1000}, "pool": {"had": 0.2, "here": 0.1, "due": 0.25}});
        assert_eq!(limits(&tenant), "max iops=1000");
        let bursts = json!({"max": {"iops": 1000}, "burst": {"iops": 9000, "seconds": 2}});
        assert_eq!(limits(&bursts), "max iops=1000 burst iops=9000,seconds=2");
        assert!(
            why(&tenant).contains("outstanding; of the pool had 20.0% and due 25.0%; max iops=1000)"),
            "{}",
            why(&tenant)
        );
        // Tenants of a disk with no pool have empty cells; without any pool there are no such columns.
        let two = status(&json!({"tenants": [tenant, {"pool": null}]}));
        assert!(
            two.contains("POOL HAD  POOL DUE  LIMITS\n") && two.contains("   20.0%     25.0%  max iops=1000\n"),
            "{two}"
        );
        let none = status(&json!({"tenants": [{"pool": null}]}));
        assert!(!none.contains("POOL") && !none.contains("LIMITS"), "{none}");
    }

    /// The shares of tenants do not add up to all of a disk's time: the rest is told.
    #[test]
    fn what_no_tenant_had_is_idle_or_perhaps_others() {
        let idle = |had: [f64; 2], busy: Value| {
            let row = |had: f64| json!({"disk": "d", "had": had});
            idle(&json!({"disks": [{"name": "d", "busy": busy}, {"name": "e", "busy": busy}], "tenants": had.map(row)}))
        };
        assert_eq!(idle([0.25, 0.1], json!(0.35)), "idle: d 65.0%\n");
        assert_eq!(idle([0.25, 0.1], Value::Null), "idle, or others': d 65.0%\n");
        assert_eq!(idle([0.5, 0.46], json!(1.0)), "", "all of it but for what a look's edges take");
        assert_eq!(idle([0.0, 0.0], json!(0.0)), "", "nobody asked for anything");
    }

    #[test]
    fn a_change_is_told_with_its_warnings_and_the_version_is_left_to_the_end() {
        let shown = changed(&json!({"version": 3, "dry_run": false, "changes": ["a", "b"], "warnings": ["c", "d"]}));
        assert_eq!(shown, "a\nb\nwarning: c\nwarning: d\n");
        let group = json!({"path": "/a", "weight": 300, "changes": ["group \"/a\": weight 300 (was 100)"], "also": []});
        assert_eq!(changed(&group), "group \"/a\": weight 300 (was 100)\npath: /a\nweight: 300\n");
    }

    #[test]
    fn every_tenant_has_a_line_and_one_that_is_asked_for_all_of_its_own() {
        let one = |tenant: &str, disk: &str| {
            json!({"export": "x", "tenant": tenant, "disk": disk, "says": "it waits", "causes": [], "iops": 1.0, "bps": 0.0,
                "seconds": 1.0, "outstanding": 2.0})
        };
        let all = json!([one("/a", "d"), one("/b", "d"), one("/b", "e")]);
        let lines = "/a on d: it waits\n/b on d: it waits\n/b on e: it waits\n";
        assert_eq!(why_each(&all), format!("no tenant is short of its due, over 1.0 s\n{lines}"));
        let mut wronged = all.clone();
        [("short", json!(true)), ("had", json!(0.123)), ("due", json!(0.5)), ("due_by", json!("weight"))]
            .into_iter()
            .for_each(|(key, value)| wronged[1][key] = value);
        let head = "short of its due, over 1.0 s: /b had 12.3% of d and was due 50.0% by weight\n";
        assert_eq!(why_each(&wronged), format!("{head}{lines}"));
        let head = "/b is short: it had 12.3% of d and was due 50.0% by weight, over 1.0 s\n/b: it waits\n";
        assert!(why_tenant(&wronged).contains(head), "{}", why_tenant(&wronged));
        wronged[1]["short"] = json!(false);
        assert!(why_tenant(&wronged).contains("/b is not short: it had 12.3% of d"), "{}", why_tenant(&wronged));
        let shown = why_tenant(&json!([one("/b", "d"), one("/b", "e")]));
        assert_eq!(shown.matches("/b: it waits\n(/b on ").count(), 2, "{shown}");
        assert!(why_each(&json!([])).contains("no export") && why_tenant(&json!([])).contains("no export"));
        assert!(why(&one("/a", "d")).starts_with("/a asked for nothing of d, over 1.0 s\nx: it waits"));
    }

    #[test]
    fn what_is_in_something_is_indented_and_nothing_moves_the_cursor() {
        let shown = any(&json!({"a": 1, "b": {"c": "x\u{1b}[2J"}, "d": [], "e": ["x", "y"], "f": null}));
        assert_eq!(shown, "a: 1\nb:\n  c: x\u{fffd}[2J\ne: x, y\n");
        assert_eq!(any(&json!([])), "none\n");
        assert_eq!(any(&json!({"l": [{"a": 1, "b": 2}, {"a": 3}]})), "l:\n- a: 1\n  b: 2\n- a: 3\n");
    }
}
