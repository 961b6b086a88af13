//! Lines: a text in the format of OpenMetrics or of Prometheus, to which one metric after the other is added.

use std::fmt::Write as _;

use fairlift_core::Duration;

use super::Format;

/// The name of a metric, what it says, and where its value is.
pub(super) type Described<F> = (&'static str, &'static str, F);

/// A text that grows by lines.
pub(super) struct Lines {
    pub(super) text: String,
    format: Format,
    /// The name of the metric, and the suffix that its samples have.
    name: &'static str,
    pub(super) suffix: &'static str,
}

/// A sample's value: a count, or anything else.
pub(super) enum SampleValue {
    Count(u64),
    Number(f64),
}

impl From<u64> for SampleValue {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<f64> for SampleValue {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
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

    /// A metric with all its samples: the labels and the value of each.
    pub(super) fn all<'a, const N: usize, V: Into<SampleValue>>(
        &mut self,
        kind: &str,
        name: &'static str,
        says: &str,
        samples: impl IntoIterator<Item = ([(&'a str, &'a str); N], V)>,
    ) {
        self.metric(kind, name, says);
        for (labels, value) in samples {
            let labels: Vec<_> = labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escaped(value))).collect();
            self.begin(self.suffix, &labels.join(","));
            self.text.push_str("} ");
            match value.into() {
                SampleValue::Count(count) => self.whole(count),
                SampleValue::Number(number) => {
                    self.text.push_str(dtoa::Buffer::new().format(number));
                    self.text.push('\n');
                }
            }
        }
    }

    pub(super) fn begin(&mut self, suffix: &str, labels: &str) {
        let text = &mut self.text;
        [self.name, suffix, "{", labels].into_iter().for_each(|piece| text.push_str(piece));
    }

    pub(super) fn count(&mut self, labels: &str, value: u64) {
        self.begin(self.suffix, labels);
        self.text.push_str("} ");
        self.whole(value);
    }

    pub(super) fn gauge(&mut self, labels: &str, value: f64) {
        self.begin(self.suffix, labels);
        let _ = writeln!(self.text, "}} {value:?}");
    }

    pub(super) fn seconds(&mut self, labels: &str, time: Duration) {
        self.begin(self.suffix, labels);
        self.text.push_str("} ");
        self.time(time);
    }

    pub(super) fn whole(&mut self, value: u64) {
        self.text.push_str(itoa::Buffer::new().format(value));
        self.text.push('\n');
    }

    /// In seconds, to the nanosecond.
    pub(super) fn time(&mut self, time: Duration) {
        let nanos = time.as_nanos();
        self.text.push_str(itoa::Buffer::new().format(nanos / 1_000_000_000));
        let parts = 1_000_000_000 + nanos % 1_000_000_000; // has a 1 and nine digits
        let from = self.text.len();
        self.text.push_str(itoa::Buffer::new().format(parts));
        self.text.replace_range(from..=from, ".");
        self.text.push('\n');
    }

    pub(super) fn end(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

/// As a label's value is written.
pub(super) fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_format_describes_counters_by_the_name_of_their_samples() {
        let written = |format| {
            let mut out = Lines::new(format, 0);
            out.all("counter", "a_seconds", "Time.", [([("x", "# \"HELP\"")], 1.0)]);
            out.all("info", "b", "A disk.", [([("x", "y"), ("z", "")], 1)]);
            out.all("gauge", "c", "None", [([], 0.5)]);
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
