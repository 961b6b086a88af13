//! Counters: operations, bytes, merges, latencies and their causes, by operation.
//!
//! Counting is done once, for the stream; what a group or a disk did is added up when it is asked for.
//!
//! A server hands its counters to the one that takes over, which may be newer and count more (record.1). So a counter that is missing is
//! zero, also an operation or a part of time, and the others go on.

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::record::any_length;
use crate::time::scale;
use crate::waits::Times;
use crate::{Bytes, Duration, Op, Outcome};

/// The counters of one stream, group or disk.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Stats {
    #[serde(deserialize_with = "any_length")]
    ops: [Counters; Op::COUNT],
    #[serde(deserialize_with = "any_length")]
    timing: [Option<Box<Timing>>; Op::COUNT],
    /// Bios that waited for a ceiling and have passed it.
    pub held: Held,
    /// Reads that passed through memory above the disk.
    pub cache: Cache,
    /// The device time of flushes that was charged.
    pub flushed: Duration,
    /// For how long streams each had a bio that had not ended, added up.
    pub active: Duration,
    /// For how long bios would have been outstanding, had each stream always had the most that it had at once (waits.5).
    pub could: Duration,
}

/// Declares counters that only rise.
macro_rules! counters {
    ($(#[doc = $says:literal])+ pub struct $name:ident { $($(#[doc = $field_says:literal])+ pub $field:ident: u64,)+ }) => {
        $(#[doc = $says])+
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $name {
            $($(#[doc = $field_says])+ pub $field: u64,)+
        }

        impl $name {
            /// The difference to `before`.
            #[must_use]
            pub const fn since(&self, before: &Self) -> Self {
                Self { $($field: self.$field.saturating_sub(before.$field),)+ }
            }

            /// Adds what others have counted. Sums stop at their end: what another server has told may be close to it.
            pub const fn add(&mut self, other: &Self) {
                $(self.$field = self.$field.saturating_add(other.$field);)+
            }

            fn each(&self) -> impl Iterator<Item = u64> + use<> {
                [$(self.$field),+].into_iter()
            }
        }
    };
}

counters! {
    /// Reads that passed through memory above the disk, the page cache (queue.19).
    pub struct Cache {
        /// Bios that memory answered.
        pub hits: u64,
        /// Bytes of those.
        pub hit_bytes: u64,
        /// Bios that the disk answered, all or in part.
        pub misses: u64,
        /// Bytes of those.
        pub miss_bytes: u64,
    }
}

counters! {
    /// The counters of one operation.
    pub struct Counters {
        /// Bios that ended, failed ones included.
        pub ops: u64,
        /// Bytes of bios that succeeded.
        pub bytes: u64,
        /// Bios that joined another's request instead of making one of their own.
        pub merges: u64,
        /// Bios that failed.
        pub failed: u64,
        /// Bios that the disk answered and that began near the end of their stream's last one ([`Model::FAR`](crate::cost_model::Model::FAR)).
        pub near: u64,
    }
}

/// The latency of bios of one operation, and its parts.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
struct Timing {
    latency: Histogram,
    times: Times,
}

/// Waits for a ceiling ([`crate::ceiling`]).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Held {
    /// Bios that waited.
    pub bios: u64,
    /// For how long, all together.
    pub time: Duration,
}

impl Stats {
    /// A bio ended, `latency` after it was submitted.
    pub fn ended(&mut self, op: Op, bytes: Bytes, outcome: Outcome, latency: Duration) {
        let counters = &mut self.ops[op as usize];
        counters.ops += 1;
        match outcome {
            Outcome::Done => counters.bytes += bytes.get(),
            Outcome::Failed(_) => counters.failed += 1,
        }
        self.timing[op as usize].get_or_insert_default().latency.record(latency);
    }

    /// The counters of `op`, to be added to.
    #[inline]
    pub(crate) fn of_mut(&mut self, op: Op) -> &mut Counters {
        &mut self.ops[op as usize]
    }

    /// A bio has waited for a ceiling for so long.
    pub fn held(&mut self, time: Duration) {
        self.held.bios += 1;
        self.held.time = self.held.time + time;
    }

    /// A read that passed through memory above the disk has ended; `hit`: memory answered all of it.
    #[inline]
    pub fn passed_cache(&mut self, bytes: Bytes, hit: bool) {
        let Cache { hits, hit_bytes, misses, miss_bytes } = &mut self.cache;
        let (count, sum) = if hit { (hits, hit_bytes) } else { (misses, miss_bytes) };
        (*count, *sum) = (*count + 1, *sum + bytes.get());
    }

    /// The counters of `op`.
    #[must_use]
    pub fn of(&self, op: Op) -> Counters {
        self.ops[op as usize]
    }

    /// Reads and writes that ended, and their bytes.
    #[must_use]
    pub fn moved(&self) -> (u64, u64) {
        let [reads, writes] = [Op::Read, Op::Write].map(|op| self.of(op));
        (reads.ops.saturating_add(writes.ops), reads.bytes.saturating_add(writes.bytes))
    }

    /// How long bios of `op` took from submission to their end; `None` if there was none.
    #[must_use]
    pub fn latency(&self, op: Op) -> Option<&Histogram> {
        self.timing[op as usize].as_deref().map(|timing| &timing.latency)
    }

    /// Bios of an operation have spent time.
    #[inline]
    pub fn spent(&mut self, op: Op, times: &Times) {
        self.timing[op as usize].get_or_insert_default().times.add(times);
    }

    /// The time of bios of an operation by cause, to be added to.
    #[inline]
    pub(crate) fn times_mut(&mut self, op: Op) -> &mut Times {
        &mut self.timing[op as usize].get_or_insert_default().times
    }

    /// The time of bios of `op` by cause. All parts but [`Part::Reply`](crate::waits::Part::Reply) together are the latencies of those that ended.
    #[must_use]
    pub fn times(&self, op: Op) -> Times {
        self.timing[op as usize].as_deref().map_or_else(Times::default, |timing| timing.times)
    }

    /// Whether these counts are possible. Any time is: the time of 4,096 requests is 2^62 ns after two weeks, and sums stop at their end.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        const MOST: u64 = 1 << 62;
        let counters = self.ops.iter().flat_map(Counters::each).chain(self.cache.each()).chain([self.held.bios]);
        let latencies = self.timing.iter().flatten().flat_map(|one| one.latency.counts);
        counters.chain(latencies).all(|count| count < MOST)
    }

    /// Adds what another has done.
    pub fn add(&mut self, other: &Self) {
        self.held.bios = self.held.bios.saturating_add(other.held.bios);
        self.held.time = self.held.time + other.held.time;
        self.cache.add(&other.cache);
        self.flushed = self.flushed + other.flushed;
        self.active = self.active + other.active;
        self.could = self.could + other.could;
        for op in Op::ALL {
            self.ops[op as usize].add(&other.ops[op as usize]);
            if let Some(theirs) = &other.timing[op as usize] {
                let mine = self.timing[op as usize].get_or_insert_default();
                mine.latency.add(&theirs.latency);
                mine.times.add(&theirs.times);
            }
        }
    }
}

/// Latencies in buckets of an eighth of an octave: 256 ns to 137 s, each value known to 12.5 %.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(into = "Vec<(usize, u64)>", from = "Vec<(usize, u64)>")]
pub struct Histogram {
    counts: [u64; Self::BUCKETS],
}

/// The buckets that counted something, by their numbers.
impl From<Histogram> for Vec<(usize, u64)> {
    fn from(all: Histogram) -> Self {
        all.counts.into_iter().enumerate().filter(|(_, count)| *count > 0).collect()
    }
}

impl From<Vec<(usize, u64)>> for Histogram {
    fn from(counted: Vec<(usize, u64)>) -> Self {
        let mut all = Self::default();
        for (bucket, count) in counted {
            let at = &mut all.counts[bucket.min(Self::BUCKETS - 1)];
            *at = at.saturating_add(count);
        }
        all
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [0; Self::BUCKETS] }
    }
}

impl Histogram {
    // Chosen: 256 ns is less than a device takes, and 137 s more than a request may (`io_timeout` is 30 s by default), in 1,856
    // bytes. A bucket of 32 bits would be full after 72 minutes at a million requests a second.
    const LOWEST_BIT: u32 = 8;
    const OCTAVES: usize = 29;
    const BUCKETS: usize = 8 * Self::OCTAVES;

    /// Counts one value; what lies outside the range counts in the first or last bucket.
    pub fn record(&mut self, value: Duration) {
        let nanos = value.as_nanos().max(1 << Self::LOWEST_BIT);
        let octave = 63 - nanos.leading_zeros();
        let eighth = (nanos >> (octave - 3)) & 7;
        let bucket = (octave - Self::LOWEST_BIT) as usize * 8 + eighth as usize;
        let count = &mut self.counts[bucket.min(Self::BUCKETS - 1)];
        *count += 1;
    }

    /// The difference to `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let counts = core::array::from_fn(|at| self.counts[at].saturating_sub(before.counts[at]));
        Self { counts }
    }

    /// How many values were counted.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Whether none was.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bucket of the value that so many thousandths of the values do not exceed, and how many values of it are beyond; `None`: there are
    /// no values.
    fn find(&self, per_mille: u32) -> Option<(usize, u64)> {
        let wanted = (u128::from(self.len()) * u128::from(per_mille)).div_ceil(1000).max(1) as u64;
        let mut seen = 0u64;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen = seen.saturating_add(*count);
            if seen >= wanted {
                return Some((bucket, seen - wanted));
            }
        }
        None
    }

    /// The value that `per_mille` thousandths of the values do not exceed, rounded up to its bucket's end; zero if empty.
    #[must_use]
    pub fn quantile(&self, per_mille: u32) -> Duration {
        self.find(per_mille).map_or(Duration::ZERO, |(bucket, _)| Self::end(bucket))
    }

    /// As [`Histogram::quantile`], but not rounded up: the values of a bucket are taken to be spread evenly over it.
    #[must_use]
    pub fn estimate(&self, per_mille: u32) -> Duration {
        let Some((bucket, beyond)) = self.find(per_mille) else { return Duration::ZERO };
        let end = Self::end(bucket).as_nanos();
        // An octave's eighths start where the one before ends.
        let width = end / (9 + bucket as u64 % 8);
        Duration::from_nanos(end - scale(width, beyond, self.counts[bucket]))
    }

    /// The buckets that counted something, rising: the end of each, and how many values lie in it.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let counted = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        counted.map(|(bucket, count)| (Self::end(bucket), *count))
    }

    const fn end(bucket: usize) -> Duration {
        let (octave, eighth) = (bucket as u32 / 8 + Self::LOWEST_BIT, bucket as u64 % 8);
        Duration::from_nanos((9 + eighth) << (octave - 3))
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts) {
            *mine = mine.saturating_add(theirs);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::String;

    use super::*;
    use crate::time::{ms, secs, us};
    use crate::waits::{Doing, Part};

    #[test]
    fn a_quantile_is_right_to_an_eighth() {
        let mut latencies = Histogram::default();
        for n in 1..=1000 {
            latencies.record(us(n));
        }
        for (per_mille, exact) in [(500, 500), (990, 990), (1000, 1000)] {
            let found = latencies.quantile(per_mille);
            assert!(us(exact) <= found && found.as_nanos() <= us(exact).as_nanos() * 9 / 8, "{per_mille}: {found}");
        }
    }

    #[test]
    fn an_estimate_is_right_to_a_hundredth_where_values_are_spread() {
        let mut latencies = Histogram::default();
        for n in 1..=100_000 {
            latencies.record(us(n));
        }
        for (per_mille, exact) in [(10, 1_000), (500, 50_000), (990, 99_000)] {
            let found = latencies.estimate(per_mille).as_nanos() as f64 / 1e3;
            assert!((found / f64::from(exact) - 1.0).abs() < 0.01, "{per_mille}: {found}");
            assert!(latencies.estimate(per_mille) <= latencies.quantile(per_mille));
        }
        assert_eq!(Histogram::default().estimate(500), Duration::ZERO);
    }

    #[test]
    fn sums_of_what_other_servers_told_stop_at_their_end() {
        let most = Histogram::from(alloc::vec![(3, u64::MAX - 1), (9, u64::MAX - 1)]);
        let mut stats = Stats::default();
        stats.ended(Op::Read, Bytes(u64::MAX - 1), Outcome::Done, ms(1));
        stats.timing[Op::Read as usize].get_or_insert_default().latency.add(&most);
        let other = stats.clone();
        stats.add(&other);
        assert_eq!(stats.of(Op::Read).bytes, u64::MAX);
        let latency = stats.latency(Op::Read).unwrap();
        assert!(
            latency.quantile(990) > Duration::ZERO && latency.estimate(990) > Duration::ZERO && !stats.is_possible()
        );
    }

    #[test]
    fn times_of_a_group_that_has_had_thousands_of_requests_outstanding_for_months_are_possible() {
        let (mut stats, most) = (Stats::default(), Duration::MAX);
        stats.times_mut(Op::Read).spend(Part::Device, most);
        stats.times_mut(Op::Read).spend(Part::Others, most);
        stats.held(most);
        stats.active = stats.active + most;
        stats.could = stats.could + most;
        assert!(stats.is_possible());
        assert_eq!(stats.times(Op::Read).sum(), most);
    }

    /// The names of all that is in a value, each as the keys and places that lead to it.
    fn names(value: &serde_json::Value, at: &str) -> Vec<String> {
        let below = |(key, value): (&String, &serde_json::Value)| {
            let at = format!("{at}/{key}");
            let mut all = names(value, &at);
            all.push(at);
            all
        };
        match value {
            serde_json::Value::Object(fields) => fields.iter().flat_map(below).collect(),
            serde_json::Value::Array(each) => {
                each.iter().enumerate().flat_map(|(place, value)| names(value, &format!("{at}/{place}"))).collect()
            }
            _ => Vec::new(),
        }
    }

    fn without(mut value: serde_json::Value, name: &str) -> serde_json::Value {
        let (object, key) = name.rsplit_once('/').unwrap();
        value.pointer_mut(object).unwrap().as_object_mut().unwrap().remove(key).unwrap();
        value
    }

    #[test]
    fn a_counter_that_an_older_server_did_not_have_is_zero_and_the_others_go_on() {
        let mut stats = Stats::default();
        stats.ended(Op::Read, Bytes(4096), Outcome::Done, ms(1));
        stats.spent(Op::Read, &Times::default());
        stats.passed_cache(Bytes(512), true);
        stats.flushed = ms(3);
        let (handed, zero) = [&stats, &Stats::default()].map(|stats| serde_json::to_value(stats).unwrap()).into();
        let all = names(&handed, "");
        assert!(
            ["/cache", "/held/bios", "/ops/0/near", "/timing/0/times"].iter().all(|name| all.contains(&(*name).into()))
        );
        for name in all {
            let read: Stats = serde_json::from_value(without(handed.clone(), &name))
                .unwrap_or_else(|why| panic!("without {name}: {why}"));
            let again = serde_json::to_value(&read).unwrap();
            if let Some(usual) = zero.pointer(&name) {
                assert_eq!(again.pointer(&name), Some(usual));
            }
            assert_eq!(without(again, &name), without(handed.clone(), &name), "{name}");
        }
        assert_eq!(serde_json::from_str::<Doing>("{}").unwrap(), Doing::default());
    }

    #[test]
    fn operations_and_parts_of_time_of_which_another_server_has_fewer_or_more_cost_no_others() {
        let mut stats = Stats::default();
        stats.ended(Op::Read, Bytes(4096), Outcome::Done, ms(1));
        let handed = serde_json::to_value(&stats).unwrap();
        for list in ["/ops", "/timing", "/timing/0/times"] {
            let (mut fewer, mut more) = (handed.clone(), handed.clone());
            fewer.pointer_mut(list).unwrap().as_array_mut().unwrap().pop();
            let all = more.pointer_mut(list).unwrap().as_array_mut().unwrap();
            all.push(all[0].clone());
            for other in [fewer, more] {
                let read: Stats = serde_json::from_value(other).unwrap_or_else(|why| panic!("{list}: {why}"));
                assert_eq!(serde_json::to_value(&read).unwrap(), handed, "{list}");
            }
        }
    }

    #[test]
    fn a_counter_of_a_later_server_is_left_out_and_the_others_go_on() {
        let mut stats = Stats::default();
        stats.ended(Op::Read, Bytes(4096), Outcome::Done, ms(1));
        let mut handed = serde_json::to_value(&stats).unwrap();
        handed["ops"][0]["turned"] = 3.into();
        handed["weighed"] = 5.into();
        let read: Stats = serde_json::from_value(handed).unwrap();
        assert_eq!(read.of(Op::Read), stats.of(Op::Read));
    }

    #[test]
    fn what_lies_outside_the_range_is_counted_at_its_ends() {
        let mut latencies = Histogram::default();
        latencies.record(Duration::ZERO);
        latencies.record(secs(100_000));
        assert_eq!(latencies.len(), 2);
        assert!(latencies.quantile(500) < us(1) && latencies.quantile(1000) > secs(100));
    }

    #[test]
    fn a_group_is_the_sum_of_its_streams() {
        let (mut a, mut b) = (Stats::default(), Stats::default());
        a.ended(Op::Read, Bytes(4096), Outcome::Done, ms(1));
        b.ended(Op::Read, Bytes(512), Outcome::Done, ms(2));
        b.ended(Op::Read, Bytes(512), Outcome::Failed(crate::Errno::EIO), ms(2));
        b.of_mut(Op::Read).merges += 1;
        b.of_mut(Op::Read).near += 1;
        b.flushed = ms(3);
        a.add(&b);
        assert_eq!(a.of(Op::Read), Counters { ops: 3, bytes: 4608, merges: 1, failed: 1, near: 1 });
        assert_eq!(a.flushed, ms(3));
        assert_eq!(a.latency(Op::Read).unwrap().len(), 3);
        assert_eq!(a.latency(Op::Write), None);
    }
}
