//! Lines: a text in the format of OpenMetrics or of Prometheus, to which one metric after the other is added.

use std::fmt::Write as _;

use fairlift_core::Duration;

use super::Format;

pub(super) enum SampleValue {
    Count(u64),
    Number(f64),
    /// In seconds, to the nanosecond.
    Time(Duration),
}

/// A metric of a table: its name and description, and the value for an object, if that has one.
pub(super) type MetricRow<T> = (&'static str, &'static str, fn(&T) -> Option<SampleValue>);

pub(super) struct Lines {
    text: String,
    format: Format,
    /// The name of the metric, and the suffix that its samples have.
    name: &'static str,
    suffix: &'static str,
}

impl Lines {
    pub(super) fn new(format: Format, capacity: usize) -> Self {
        Self { text: String::with_capacity(capacity), format, name: "", suffix: "" }
    }

    /// A metric begins; its unit is the end of its name. In the older format there are neither units nor infos, and a description has the
    /// name of its samples.
    pub(super) fn metric(&mut self, kind: &str, name: &'static str, says: &str) {
        self.name = name;
        self.suffix = match kind {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        let (described, kind) = match self.format {
            Format::OpenMetrics => ("", kind),
            Format::Prometheus => (self.suffix, if kind == "info" { "gauge" } else { kind }),
        };
        let _ = writeln!(self.text, "# HELP {name}{described} {says}\n# TYPE {name}{described} {kind}");
        let unit = name.rsplit('_').next().filter(|unit| ["seconds", "bytes"].contains(unit));
        if let (Format::OpenMetrics, Some(unit)) = (self.format, unit) {
            let _ = writeln!(self.text, "# UNIT {name} {unit}");
        }
    }

    /// A sample of the metric; its labels may come in pieces.
    pub(super) fn sample(&mut self, suffix: &str, labels: &[&str], value: SampleValue) {
        let text = &mut self.text;
        let pieces = [self.name, suffix, "{"].into_iter().chain(labels.iter().copied());
        pieces.for_each(|piece| text.push_str(piece));
        let _ = match value {
            SampleValue::Count(count) => writeln!(text, "}} {count}"),
            SampleValue::Number(number) => writeln!(text, "}} {number:?}"),
            SampleValue::Time(time) => {
                let nanos = time.as_nanos();
                writeln!(text, "}} {}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
            }
        };
    }

    /// A metric with all its samples: the labels and the value of each.
    pub(super) fn all(
        &mut self,
        kind: &str,
        name: &'static str,
        says: &str,
        samples: impl IntoIterator<Item = (impl AsRef<str>, SampleValue)>,
    ) {
        self.metric(kind, name, says);
        for (labels, value) in samples {
            self.sample(self.suffix, &[labels.as_ref()], value);
        }
    }

    /// Metrics of the same objects; each of these comes with its labels.
    pub(super) fn table<T>(&mut self, kind: &str, objects: &[(String, T)], rows: &[MetricRow<T>]) {
        for (name, says, of) in rows {
            self.all(kind, name, says, objects.iter().filter_map(|(labels, object)| Some((labels, of(object)?))));
        }
    }

    pub(super) fn end(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

pub(super) fn labels<const N: usize>(all: [(&str, &str); N]) -> String {
    let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    all.map(|(key, value)| format!("{key}=\"{}\"", escaped(value))).join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_format_describes_counters_by_the_name_of_their_samples() {
        let written = |format| {
            let mut out = Lines::new(format, 0);
            out.all("counter", "a_seconds", "Time.", [(labels([("x", "# \"HELP\"")]), SampleValue::Number(1.0))]);
            out.all("info", "b", "A disk.", [(labels([("x", "y"), ("z", "")]), SampleValue::Count(1))]);
            out.all("gauge", "c", "None", [("", SampleValue::Number(0.5))]);
            out.end()
        };
        let text = "# HELP a_seconds Time.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\na_seconds_total{x=\"# \\\"HELP\\\"\"} 1.0\n\
                    # HELP b A disk.\n# TYPE b info\nb_info{x=\"y\",z=\"\"} 1\n# HELP c None\n# TYPE c gauge\nc{} 0.5\n# EOF\n";
        assert_eq!(written(Format::OpenMetrics), text);
        let text = "# HELP a_seconds_total Time.\n# TYPE a_seconds_total counter\na_seconds_total{x=\"# \\\"HELP\\\"\"} 1.0\n\
                    # HELP b_info A disk.\n# TYPE b_info gauge\nb_info{x=\"y\",z=\"\"} 1\n# HELP c None\n# TYPE c gauge\nc{} 0.5\n";
        assert_eq!(written(Format::Prometheus), text);
    }
}
