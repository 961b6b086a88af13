//! The report of torture: a line for each promise, as text or as JSON.

use std::fmt::Write as _;
use std::time::Duration;

use fairlift_lab::repeat;
use fairlift_proving::torture::runner::Done;
use fairlift_proving::torture::{Broken, Count, PROMISES, Promise, Tally};
use serde_json::{Value, json};

/// The findings.
pub(crate) struct Report<'a> {
    pub(crate) commit: &'a str,
    pub(crate) seed: u64,
    pub(crate) threads: usize,
    pub(crate) time: Duration,
    pub(crate) done: &'a [Done],
}

/// A run that failed.
struct Failure<'a> {
    suite: &'static str,
    seed: u64,
    broken: &'a Broken,
}

impl Failure<'_> {
    fn command(&self) -> String {
        command(self.suite, self.seed)
    }
}

impl Report<'_> {
    fn sum(&self) -> Tally {
        let mut sum = Tally::default();
        self.done.iter().for_each(|one| sum.add_all(&one.tally));
        sum
    }

    fn failures(&self) -> Vec<Failure<'_>> {
        let all =
            self.done.iter().flat_map(|done| done.broken.iter().map(|(seed, broken)| (done.suite, *seed, broken)));
        all.map(|(suite, seed, broken)| Failure { suite, seed, broken }).collect()
    }

    /// The suite and the seed of the first run that failed.
    pub(crate) fn first(&self) -> Option<(&'static str, u64)> {
        self.failures().first().map(|failure| (failure.suite, failure.seed))
    }

    /// Whether any run has ended.
    pub(crate) fn has_runs(&self) -> bool {
        self.sum().get(Count::Runs) > 0
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let (sum, failures) = (self.sum(), self.failures());
        let rate = |count: Count| sum.get(count) as f64 / self.time.as_secs_f64().max(0.001);
        let mut out = format!(
            "{:.0} s on {} threads, seeds from {}, commit {}: {} runs, {} I/Os ({} a second), {} faults, {} power cuts\n\n",
            self.time.as_secs_f64(),
            self.threads,
            self.seed,
            self.commit,
            sum.get(Count::Runs),
            short(sum.get(Count::Ios)),
            short(rate(Count::Ios) as u64),
            short(sum.faults()),
            short(sum.get(Count::Cuts)),
        );
        for promise in PROMISES {
            let broken: Vec<_> = failures.iter().filter(|failure| failure.broken.promise == promise.name).collect();
            let Promise { name, says, tried } = promise;
            let tried: Vec<_> =
                tried.iter().map(|count| format!("{} {}", short(sum.get(*count)), count.name())).collect();
            let verdict = match broken.len() {
                0 if is_tried(promise, &sum) => "kept".to_owned(),
                0 => "not tried".to_owned(),
                times => format!("BROKEN {times} times"),
            };
            let _ = writeln!(out, "{name}  {verdict}  {says}\n    {}", tried.join(", "));
            for failure in broken {
                let _ = writeln!(out, "    {}\n    {}", failure.broken.says, failure.command());
            }
        }
        if sum.get(Count::Lies) > 0 {
            let [lies, found] = [Count::Lies, Count::Found].map(|count| short(sum.get(count)));
            let _ = writeln!(
                out,
                "\nSelf-test of the checker: {lies} writes were lost on purpose; it found {found} bad sectors"
            );
        }
        for failure in
            failures.iter().filter(|failure| PROMISES.iter().all(|promise| promise.name != failure.broken.promise))
        {
            let _ = writeln!(out, "{}\n    {}", failure.broken, failure.command());
        }
        if let Some(first) = failures.first() {
            let _ = writeln!(out, "\n{}", repeat::lines(&first.command(), self.commit));
        }
        out
    }

    /// For programs.
    pub(crate) fn json(&self) -> String {
        let failures = self.failures();
        let counts = |tally: &Tally| -> Value {
            Count::ALL
                .iter()
                .map(|count| (count.name().to_owned(), json!(tally.get(*count))))
                .collect::<serde_json::Map<_, _>>()
                .into()
        };
        let suites = self.done.iter().map(|done| {
            json!({ "suite": done.suite, "thread_seconds": done.time.as_secs_f64(), "counts": counts(&done.tally) })
        });
        let sum = self.sum();
        let promises = PROMISES.iter().map(|promise| {
            let broken = failures.iter().filter(|failure| failure.broken.promise == promise.name).count();
            json!({ "promise": promise.name, "says": promise.says, "tried": is_tried(promise, &sum), "violations": broken })
        });
        let violations = failures.iter().map(|failure| {
            json!({
                "promise": failure.broken.promise,
                "suite": failure.suite,
                "seed": failure.seed,
                "says": failure.broken.says,
                "command": failure.command(),
            })
        });
        let all = json!({
            "commit": self.commit,
            "seed": self.seed,
            "threads": self.threads,
            "seconds": self.time.as_secs_f64(),
            "counts": counts(&sum),
            "faults": sum.faults(),
            "promises": promises.collect::<Vec<_>>(),
            "violations": violations.collect::<Vec<_>>(),
            "suites": suites.collect::<Vec<_>>(),
        });
        format!("{all:#}\n")
    }
}

/// Whether a promise was tried at all.
fn is_tried(promise: &Promise, sum: &Tally) -> bool {
    promise.tried.iter().any(|count| sum.get(*count) > 0)
}

/// The command line that repeats one run.
pub(crate) fn command(suite: &str, seed: u64) -> String {
    format!("cargo run --release -p fairlift-proving -- --only {suite} --seed {seed} --runs 1")
}

/// A number with at most four digits: `1234`, `56.7k`, `150M`.
pub(crate) fn short(number: u64) -> String {
    let (value, unit) = match number {
        0..10_000 => return number.to_string(),
        10_000..1_000_000 => (number as f64 / 1e3, "k"),
        1_000_000..1_000_000_000 => (number as f64 / 1e6, "M"),
        _ => (number as f64 / 1e9, "G"),
    };
    if value < 100.0 { format!("{value:.1}{unit}") } else { format!("{value:.0}{unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlift_proving::torture::SUITES;

    #[test]
    fn a_broken_promise_is_said_with_the_command_that_repeats_it() {
        let broken = Broken { promise: "L1", says: "a bio ends twice".into() };
        let mut tally = Tally::default();
        tally.add(Count::Ios, 12_345);
        tally.add(Count::Limited, 1);
        let again = Broken { promise: "L1", says: "a bio never ends".into() };
        let done = [Done { suite: SUITES[0].name, tally, broken: vec![(17, broken), (18, again)], ..Done::default() }];
        let report = Report { commit: "0123", seed: 1, threads: 2, time: Duration::from_secs(2), done: &done };
        let (text, json) = (report.text(), report.json());
        let command = "cargo run --release -p fairlift-proving -- --only queue --seed 17 --runs 1";
        assert!(
            text.contains("L1  BROKEN 2 times") && text.contains("W2  kept") && text.contains("12.3k I/Os"),
            "{text}"
        );
        // Nothing that was not tried is said to be kept.
        assert!(text.contains("D1  not tried") && json.contains("\"tried\": false"), "{text}{json}");
        assert!(text.contains(command) && json.contains(command), "{text}{json}");
        // Each time it was broken, for the second may be another fault.
        assert!(
            text.contains(
                "a bio never ends\n    cargo run --release -p fairlift-proving -- --only queue --seed 18 --runs 1"
            ),
            "{text}"
        );
        assert_eq!(report.first(), Some(("queue", 17)));
    }
}
