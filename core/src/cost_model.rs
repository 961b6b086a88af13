//! The cost model of a disk, as the kernel's `io.cost.model` has it.

use alloc::format;
use alloc::string::String;
use core::fmt;

use crate::stats::Counters;

/// The cost of requests, in the words of the kernel's `io.cost.model`: bytes a second, and requests of 4 KiB a second, of a disk
/// that does nothing else.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Model {
    /// Bytes read in a second, in long runs.
    pub rbps: f64,
    /// Reads of 4 KiB in a second, each after the one before it.
    pub rseqiops: f64,
    /// Reads of 4 KiB in a second, here and there.
    pub rrandiops: f64,
    /// As `rbps`, of writes.
    pub wbps: f64,
    /// As `rseqiops`, of writes.
    pub wseqiops: f64,
    /// As `rrandiops`, of writes.
    pub wrandiops: f64,
}

/// In the order of its [words](Model::WORDS).
impl From<[f64; 6]> for Model {
    fn from(figures: [f64; 6]) -> Self {
        let [rbps, rseqiops, rrandiops, wbps, wseqiops, wrandiops] = figures;
        Self { rbps, rseqiops, rrandiops, wbps, wseqiops, wrandiops }
    }
}

impl Model {
    /// The words, in the order of the fields.
    pub const WORDS: [&str; 6] = ["rbps", "rseqiops", "rrandiops", "wbps", "wseqiops", "wrandiops"];

    /// How far from the end of the stream's last request a request is far, in sectors: 4096 pages, as in Linux's `blk-iocost`.
    pub const FAR: u64 = 4096 * 8;

    /// The costs that a scheduler has learned, as its counters tell; `None`: it learns none.
    pub fn of_counters(value: impl Fn(&str) -> Option<u64>) -> Option<Self> {
        let mut figures = [0.0; 6];
        for (figure, word) in figures.iter_mut().zip(Self::WORDS) {
            *figure = value(&format!("cost_{word}")).filter(|value| *value > 0)? as f64;
        }
        Some(Self::from(figures))
    }

    /// The seconds of the disk that requests take: by bytes, by requests near the end of their stream's
    /// last one, and by requests far from it.
    #[must_use]
    pub fn seconds(&self, write: bool, near: f64, far: f64, bytes: f64) -> f64 {
        let (bps, seqiops, randiops) = match write {
            false => (self.rbps, self.rseqiops, self.rrandiops),
            true => (self.wbps, self.wseqiops, self.wrandiops),
        };
        near / seqiops + far / randiops + (bytes - 4096.0 * (near + far)).max(0.0) / bps
    }

    /// How many seconds of the disk counted reads or writes took. A merged one counts as near; `from_memory` are the reads and
    /// bytes that memory answered, which took no time.
    #[must_use]
    pub fn seconds_of(&self, write: bool, counted: &Counters, from_memory: (u64, u64)) -> f64 {
        let (ops, bytes) = (counted.ops.saturating_sub(from_memory.0), counted.bytes.saturating_sub(from_memory.1));
        let (near, far) =
            (counted.near.saturating_sub(counted.merges), ops.saturating_sub(counted.near.max(counted.merges)));
        self.seconds(write, near as f64, far as f64, bytes as f64)
    }

    /// The same ratios, with a random read of 4 KiB for the unit: its [seconds](Model::seconds) are such reads.
    #[must_use]
    pub fn in_reads(&self) -> Self {
        Self::from(self.values().map(|value| value / self.rrandiops))
    }

    /// The geometric mean of some models, each with its weight; `None`: there is none that weighs anything.
    #[must_use]
    pub fn mean(models: impl Iterator<Item = (f64, Self)>) -> Option<Self> {
        let (mut sums, mut weights) = ([0.0; 6], 0.0);
        for (weight, model) in models {
            weights += weight;
            sums.iter_mut().zip(model.values()).for_each(|(sum, value)| *sum += weight * libm::log(value));
        }
        (weights > 0.0).then(|| Self::from(sums.map(|sum| libm::exp(sum / weights))))
    }

    /// Its figures, in the order of its [words](Model::WORDS).
    #[must_use]
    pub const fn values(&self) -> [f64; 6] {
        [self.rbps, self.rseqiops, self.rrandiops, self.wbps, self.wseqiops, self.wrandiops]
    }

    /// Reads `rbps=500000000 rseqiops=90000 …`: all six words, each once, in any order. Words of the kernel's line that say no
    /// figure (`ctrl=user model=linear`, a device number) are passed over.
    ///
    /// # Errors
    /// The missing or malformed part.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut values = [None; 6];
        for word in text.split([' ', ',']).filter(|word| !word.is_empty()) {
            let Some((name, value)) = word.split_once('=') else { continue };
            let Some(at) = Self::WORDS.iter().position(|known| *known == name) else {
                if ["ctrl", "model"].contains(&name) {
                    continue;
                }
                return Err(format!("\"{name}\" is no word of a cost model: there is {}", Self::WORDS.join(", ")));
            };
            let value = value.parse::<f64>().ok().filter(|value| (1.0..=1e15).contains(value));
            values[at] = Some(value.ok_or_else(|| format!("{word}: a rate is a number from 1 to 10^15"))?);
        }
        match values.iter().position(Option::is_none) {
            None => Ok(Self::from(values.map(Option::unwrap_or_default))),
            Some(at) => Err(format!("{} is missing from the cost model", Self::WORDS[at])),
        }
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (word, value)) in Self::WORDS.iter().zip(self.values()).enumerate() {
            write!(f, "{}{word}={value:.0}", if n == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_read_from_the_words_that_it_is_written_in() {
        let text = "rbps=1024000000 rseqiops=125000 rrandiops=62500 wbps=512000000 wseqiops=62500 wrandiops=31250";
        let model = Model::parse(text).unwrap();
        assert_eq!(format!("{model}"), text);
        assert_eq!(Model::parse(&format!("8:0 ctrl=user model=linear {model}")), Ok(model));
    }

    #[test]
    fn a_request_takes_what_4_kib_take_and_so_much_for_each_byte_beyond() {
        let text = "rbps=1000000 rseqiops=1000 rrandiops=100 wbps=500000 wseqiops=500 wrandiops=50";
        let model = Model::parse(text).unwrap();
        let near = |one: f64, other: f64| assert!((one - other).abs() < 1e-9, "{one} and not {other}");
        near(model.seconds(false, 2.0, 3.0, 5.0 * 4096.0), 0.032);
        near(model.seconds(true, 0.0, 1.0, 4096.0 + 1e6), 2.02);
        near(model.seconds(false, 0.0, 1.0, 512.0), 0.01);
    }

    #[test]
    fn what_was_counted_takes_what_its_requests_take() {
        let text = "rbps=1000000 rseqiops=1000 rrandiops=100 wbps=500000 wseqiops=500 wrandiops=50";
        let model = Model::parse(text).unwrap();
        let counted = |ops, merges, near| Counters { ops, bytes: 4096 * ops, merges, near, failed: 0 };
        let near = |one: f64, other: f64| assert!((one - other).abs() < 1e-9, "{one} and not {other}");
        near(model.seconds_of(false, &counted(10, 0, 0), (0, 0)), 0.1);
        near(model.seconds_of(true, &counted(10, 0, 4), (0, 0)), 4.0 * 0.002 + 6.0 * 0.02);
        near(model.seconds_of(false, &counted(10, 0, 0), (4, 4 * 4096)), 0.06);
        // Nine of ten joined one request.
        near(model.seconds_of(false, &counted(10, 9, 9), (0, 0)), 0.01 + 9.0 * 4096e-6);
        near(model.seconds_of(false, &counted(1, 0, 0), (2, 8192)), 0.0);
    }

    #[test]
    fn a_model_that_is_no_model_says_why() {
        for (text, why) in [
            ("rbps=1", "rseqiops is missing from the cost model"),
            ("rbps=0 rseqiops=1", "rbps=0: a rate is a number from 1 to 10^15"),
            ("rbps=NaN", "rbps=NaN: a rate is a number from 1 to 10^15"),
            ("rbps=inf", "rbps=inf: a rate is a number from 1 to 10^15"),
            (
                "bps=1",
                "\"bps\" is no word of a cost model: there is rbps, rseqiops, rrandiops, wbps, wseqiops, wrandiops",
            ),
        ] {
            assert_eq!(Model::parse(text), Err(why.into()));
        }
    }
}
