//! All of it, to be read again: the schema is in `docs/iostest-json.md`.

use std::io;

use serde::Serialize as _;
use serde_json::ser::Formatter;

use crate::result::Results;

/// Results as text; each run is on a line of its own.
#[must_use]
pub fn to_json(results: &Results) -> String {
    let mut out = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, Lines { depth: 0 });
    // Writing to memory does not fail, and every key is text.
    results.serialize(&mut serializer).expect("results are plain data");
    out.push(b'\n');
    String::from_utf8(out).expect("JSON is text")
}

/// Reads results again.
///
/// # Errors
/// It is not JSON, or not that of `iostest`, in words that say where; or a figure in it cannot be.
pub fn from_json(text: &str) -> Result<Results, String> {
    let results: Results = serde_json::from_str(text).map_err(|error| format!("not results of iostest: {error}"))?;
    if results.tool != "iostest" {
        return Err(format!("not results of iostest, but of \"{}\"", super::printable(&results.tool)));
    }
    // It was read above: this is JSON.
    match serde_json::from_str(text).ok().and_then(|value| implausible("", &value)) {
        Some((name, figure)) => Err(format!("not results of iostest: {} is {figure:e}", super::printable(&name))),
        None => Ok(results),
    }
}

/// No disk has done more, in any of the units: a figure beyond it would make pages that nobody can draw.
const FIGURE_MAX: f64 = 1e15;

/// The name and value of a figure that no measurement has: below zero, or beyond all disks. Whole numbers are counts and
/// seeds, and may be anything.
fn implausible(name: &str, value: &serde_json::Value) -> Option<(String, f64)> {
    match value {
        serde_json::Value::Number(figure) if figure.is_f64() => {
            let figure = figure.as_f64()?;
            (!(0.0..=FIGURE_MAX).contains(&figure)).then(|| (name.to_owned(), figure))
        }
        serde_json::Value::Array(list) => list.iter().find_map(|value| implausible(name, value)),
        serde_json::Value::Object(map) => map.iter().find_map(|(name, value)| implausible(name, value)),
        _ => None,
    }
}

/// Breaks lines between the keys of the whole and between runs, and nowhere deeper.
struct Lines {
    depth: usize,
}

impl Lines {
    fn open<W: ?Sized + io::Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        out.write_all(bracket)
    }

    fn next<W: ?Sized + io::Write>(&self, out: &mut W, first: bool) -> io::Result<()> {
        if !first {
            out.write_all(b",")?;
        }
        if self.depth <= 2 {
            out.write_all(b"\n")?;
            out.write_all(&b"  "[..self.depth])?;
        }
        Ok(())
    }

    fn close<W: ?Sized + io::Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        if self.depth == 1 {
            out.write_all(b"\n")?;
        }
        self.depth -= 1;
        out.write_all(bracket)
    }
}

impl Formatter for Lines {
    fn begin_array<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"[")
    }

    fn begin_array_value<W: ?Sized + io::Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.next(out, first)
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"]")
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"{")
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.next(out, first)
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{decision, results, role, run, situation};

    #[test]
    fn what_is_written_is_read_again() {
        let mut results = results(&[]);
        results.device = "file:/srv/\"quoted\"\n\u{e4}".into();
        results.runs = vec![run("bsr", 1, 4, &[(100, 100.0), (300, 1.0 / 3.0)]), run("bsr", 2, 4, &[(100, 0.1)])];
        results.runs.push(situation("tenants:many"));
        let text = to_json(&results);
        assert_eq!(from_json(&text), Ok(results.clone()));
        assert!(!text.contains("baseline"), "what was not measured is left out");
        results.baseline = vec![run("bsr", 1, 4, &[(100, 100.0)])];
        assert_eq!(from_json(&to_json(&results)), Ok(results));
    }

    #[test]
    fn a_run_is_a_line() {
        let mut results = results(&[]);
        results.settings.clear();
        results.runs = vec![run("bsr", 1, 4, &[(100, 100.0)]), run("bsr", 2, 4, &[(100, 100.0)])];
        let text = to_json(&results);
        let runs: Vec<_> = text.lines().filter(|line| line.contains("\"workload\":")).collect();
        assert_eq!(runs.len(), 2, "{text}");
        assert!(runs[0].starts_with("  {\"workload\":\"bsr\",\"set\":1,\"jobs\":4,"), "{text}");
        assert!(text.starts_with("{\n \"tool\":\"iostest\",\n \"version\":\"0.1.0\",\n"), "{text}");
        assert!(text.ends_with("]\n}\n"), "{text}");
    }

    /// The format of the design document is taken, though fields were added since.
    #[test]
    fn the_json_of_the_design_document_is_read() {
        let text = r#"{"tool":"iostest","version":"0.1.0","device":"sim:eva-raid5-12","scheduler":"cfq","settings":{"slice_idle":"0"},"seed":1,
 "runs":[{"workload":"bsr","set":1,"jobs":4,"runtime_s":30.0,"total_kb_s":356520.0,"iops":89130.0,"share_error_max":0.01,"jain":0.999,
   "groups":[{"path":"/g1","weight":100,"kb_s":11045.0,"iops":2761.0,"share":0.031,"ideal":0.028,"lat_p50_us":1,"lat_p99_us":1,"lat_max_us":1}],
   "device_stats":{"requests":1,"flushes":0,"busy":0.98,"depth_mean":12.1},"counters":{"queue_merges":0,"position_tree_ops":0}}]}"#;
        let results = from_json(text).unwrap();
        assert_eq!(results.runs[0].groups[0].path, "/g1");
        assert!(!results.interrupted);
    }

    #[test]
    fn what_is_not_of_iostest_is_refused() {
        for (text, why) in [
            ("", "not results of iostest: EOF while parsing a value at line 1 column 0"),
            ("{}", "not results of iostest: missing field `tool` at line 1 column 2"),
            ("[1]", "not results of iostest: invalid type: integer `1`, expected a string at line 1 column 2"),
        ] {
            assert_eq!(from_json(text), Err(why.into()), "{text}");
        }
        let mut beyond = results(&[100]);
        beyond.runs = vec![run("bsr", 1, 4, &[(100, 100.0)])];
        beyond.runs[0].groups[0].share = 1.7e308;
        assert_eq!(from_json(&to_json(&beyond)), Err("not results of iostest: share is 1.7e308".into()));
        let other = to_json(&results(&[])).replace("\"iostest\"", "\"iostune\"");
        assert_eq!(from_json(&other), Err("not results of iostest, but of \"iostune\"".into()));
    }

    /// Adds every key of an object and of its values; the keys of `settings` and `counters` are not ours.
    fn keys(value: &serde_json::Value, out: &mut std::collections::BTreeSet<String>) {
        match value {
            serde_json::Value::Object(map) => {
                for (key, value) in map {
                    out.insert(key.clone());
                    if key != "settings" && key != "counters" {
                        keys(value, out);
                    }
                }
            }
            serde_json::Value::Array(list) => list.iter().for_each(|value| keys(value, out)),
            _ => {}
        }
    }

    #[test]
    fn every_field_is_documented() {
        let mut results = results(&[]);
        results.runs = vec![run("bsr", 1, 4, &[(100, 100.0)])];
        results.runs[0].roles = vec![role("journal", 1.0)];
        results.runs[0].decisions = vec![decision()];
        results.runs.push(situation("tenants:many"));
        results.baseline = results.runs.clone();
        let mut fields = std::collections::BTreeSet::new();
        keys(&serde_json::from_str(&to_json(&results)).unwrap(), &mut fields);
        let document = include_str!("../../../docs/iostest-json.md");
        let rows: String = document.lines().filter(|line| line.starts_with("| `")).collect();
        for field in fields {
            assert!(rows.contains(&format!("`{field}`")), "{field} has no row in docs/iostest-json.md");
        }
    }
}
