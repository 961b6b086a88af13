//! Evicted: which tenant's reads push out of the page cache the data of others.
//!
//! Sandboxes over one base read it from memory. A tenant that reads a large base, or a large disk of its own, through the same memory pushes the
//! others' blocks out of it: their reads go to the disk from then on, and each of them seems slow by itself. Example: memory answered
//! 98 % of alice's reads since the start and 12 % of those in the last second, in which bob read 900 MB/s that were not there.
//!
//! evicted.1  A tenant's reads are no longer answered if memory had most of them before ([`MOST`]), and now has [`FALLEN`] of all less.
//! evicted.2  The tenant that read most bytes that were not in memory is named, if that was more than the tenant itself did: all tenants
//!            share memory, and the one that brings most into it pushes most out.
//! evicted.3  To that tenant it is said as long as the reads of another one are no longer answered.

use fairlift_core::stats::Cache;

/// The part of a tenant's reads that memory is to have had. Chosen: most.
const MOST: f64 = 0.5;
/// By which part of all reads that is to be less. Chosen: a program that starts makes less of a difference for a second.
const FALLEN: f64 = 0.2;
/// Fewer reads say nothing. Chosen.
const FEW: u64 = 32;

/// A tenant's reads through the page cache: up to a look, and in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reads<'a> {
    pub(super) path: &'a str,
    pub(super) before: Cache,
    pub(super) now: Cache,
}

/// The part that memory answered; `None`: of too few.
fn answered(cache: &Cache) -> Option<f64> {
    let all = cache.hits + cache.misses;
    (all >= FEW).then(|| cache.hits as f64 / all as f64)
}

impl Reads<'_> {
    /// evicted.1: which part memory answered before, and which now.
    fn fell(&self) -> Option<[f64; 2]> {
        let [before, now] = [answered(&self.before)?, answered(&self.now)?];
        (before >= MOST && before - now >= FALLEN).then_some([before, now])
    }
}

/// The sentences for a tenant; `others`: all the others of the disk; `sees`: whether a path may be told.
pub(super) fn says(mine: Reads<'_>, others: &[Reads<'_>], seconds: f64, sees: impl Fn(&str) -> bool) -> Option<String> {
    let percent = |part: f64| format!("{:.0} %", 100.0 * part);
    let rate = |reads: &Reads<'_>| format!("{:.0} MB/s", reads.now.miss_bytes as f64 / seconds / 1e6);
    let most = others.iter().max_by_key(|other| other.now.miss_bytes)?;
    if let Some([before, now]) = mine.fell()
        && most.now.miss_bytes > mine.now.miss_bytes
    {
        let of = match sees(most.path) {
            true => format!(
                "{} reads {} through it from the disk (remedy: base_direct=on, or direct=on, there)",
                most.path,
                rate(most)
            ),
            false => "another tenant reads more through it".into(),
        };
        return Some(format!(
            "the page cache answers {} of its reads, and answered {} before: {of}",
            percent(now),
            percent(before)
        ));
    }
    // evicted.3
    let evicted = others.iter().find(|other| other.fell().is_some())?;
    if mine.now.miss_bytes < most.now.miss_bytes {
        return None;
    }
    let of = if sees(evicted.path) { format!("the data of {}", evicted.path) } else { "the data of others".into() };
    let mut says =
        format!("its reads pass through the page cache, {} of them from the disk, and evict {of}", rate(&mine));
    says += "; remedy: base_direct=on for an overlay, direct=on for a file";
    Some(says)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(hits: u64, misses: u64) -> Cache {
        Cache { hits, hit_bytes: hits * 4096, misses, miss_bytes: misses * 65_536 }
    }

    const ALICE: Reads<'_> = Reads {
        path: "/alice",
        before: Cache { hits: 980, hit_bytes: 0, misses: 20, miss_bytes: 0 },
        now: Cache { hits: 12, hit_bytes: 0, misses: 88, miss_bytes: 360_448 },
    };

    fn bob() -> Reads<'static> {
        Reads { path: "/bob", before: cache(0, 0), now: cache(3, 14_000) }
    }

    /// evicted.1, evicted.2
    #[test]
    fn a_tenant_whose_reads_are_no_longer_answered_is_told_which_tenant_pushed_them_out() {
        let message = says(ALICE, &[bob()], 1.0, |_| true).unwrap();
        assert_eq!(
            message,
            "the page cache answers 12 % of its reads, and answered 98 % before: /bob reads 918 MB/s through it from the disk (remedy: base_direct=on, or direct=on, there)"
        );
        let hidden = says(ALICE, &[bob()], 1.0, |path| path == "/alice").unwrap();
        assert!(hidden.ends_with("another tenant reads more through it") && !hidden.contains("bob"), "{hidden}");
    }

    /// evicted.3
    #[test]
    fn the_tenant_that_pushes_out_others_is_told_what_helps() {
        let message = says(bob(), &[ALICE], 1.0, |_| true).unwrap();
        assert_eq!(
            message,
            "its reads pass through the page cache, 918 MB/s of them from the disk, and evict the data of /alice; remedy: base_direct=on for an overlay, direct=on for a file"
        );
    }

    #[test]
    fn nothing_is_said_where_reads_are_answered_as_before_or_nobody_else_misses() {
        let well = Reads { now: cache(90, 10), ..ALICE };
        assert_eq!(says(well, &[bob()], 1.0, |_| true), None, "as before");
        assert_eq!(says(bob(), &[well], 1.0, |_| true), None, "it takes nobody's place");
        let idle = Reads { now: cache(0, 0), ..bob() };
        assert_eq!(says(ALICE, &[idle], 1.0, |_| true), None, "its own reads are others than before");
        let few = Reads { before: cache(20, 0), ..ALICE };
        assert_eq!(says(few, &[bob()], 1.0, |_| true), None, "20 reads say nothing");
    }
}
