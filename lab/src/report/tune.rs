//! The findings of `iostune`, as text and as JSON.
//!
//! The tables of streams have the columns of the script of 2010: how many, MB/s in total, MB/s of each.

use std::fmt::Write as _;

use super::printable;
use crate::iostune::{Beside, Findings, Op, Size, Streams};

/// All of it, as JSON: the schema is in `docs/iostune-output.md`.
#[must_use]
pub fn to_json(found: &Findings) -> String {
    let mut out = serde_json::to_string_pretty(found).expect("findings are plain data");
    out.push('\n');
    out
}

/// For a terminal.
#[must_use]
pub fn text(found: &Findings) -> String {
    let header = &found.header;
    let mut out = String::new();
    let time = if header.virtual_time { "virtual time" } else { "time" };
    let _ = writeln!(
        out,
        "{}\n{}\n{:.1} GB, smallest request {} bytes, seed {}, {:.0} s of {time}{}",
        printable(&header.device),
        "=".repeat(header.device.chars().count().max(9)),
        header.bytes as f64 / 1e9,
        header.block,
        header.seed,
        header.took_s,
        if header.interrupted { "; interrupted: the rest was not measured" } else { "" }
    );
    if let Some(host) = &header.host {
        let _ = writeln!(out, "{}", printable(&host.to_string()));
    }
    out.push_str("\nSequential streams, far apart: how many, MB/s in total, MB/s of each\n");
    for (title, rows) in [
        ("Noop", &found.streams),
        ("Noop, buffered", &found.streams_buffered),
        ("CFQ, slice_idle=8ms", &found.streams_idling),
        ("CFQ, slice_idle=0", &found.streams_not_idling),
    ] {
        if !rows.is_empty() {
            let _ = writeln!(out, "\n{title}\n{}", "-".repeat(title.len()));
            rows.iter().for_each(|row| stream(&mut out, row));
        }
    }
    if !found.random.is_empty() {
        out.push_str("\nRandom reads of 4 KiB\n---------------------\n");
        let _ = writeln!(out, "depth      IOPS   mean us    p99 us   spread");
        for Size { depth, figure, .. } in &found.random {
            let (iops, mean, p99) = (figure.iops, figure.mean_us, figure.p99_us);
            let _ = writeln!(out, "{depth:>5} {iops:>9.0} {mean:>9.0} {p99:>9.0}  {:>5.1} %", figure.spread_percent);
        }
    }
    sizes(&mut out, "Other reads", &found.sizes);
    if let Some(writes) = &found.writes {
        sizes(&mut out, "Writes", &writes.sizes);
        if let Some(iops) = writes.mixed_iops {
            let _ = writeln!(out, "22 random reads and 10 random writes of 4 KiB in flight: {iops:.0} a second");
        }
        for Beside { slice_idle, figure } in &writes.beside {
            let _ = writeln!(
                out,
                "a random read of 4 KiB beside buffered writers, slice_idle={slice_idle}: {:.0} us, 99 % at most {:.0}",
                figure.mean_us, figure.p99_us
            );
        }
        for durable in &writes.durable {
            let shared = if durable.shared { ", flushes shared by Fairlift" } else { "" };
            let s = if durable.writers == 1 { "" } else { "s" };
            let _ = writeln!(
                out,
                "{} writer{s}, each 4 KiB durable before the next{shared}: {:.0} a second, {:.0} us each",
                durable.writers, durable.figure.iops, durable.figure.mean_us
            );
        }
    }
    costs(&mut out, found);
    character(&mut out, found);
    advice(&mut out, found);
    if !found.warnings.is_empty() {
        out.push_str("\nWarnings\n--------\n");
        for warning in &found.warnings {
            let _ = writeln!(out, "- {}", printable(warning));
        }
    }
    out
}

/// `2 18.7 9.4 9.3`.
fn stream(out: &mut String, row: &Streams) {
    let _ = write!(out, "{} {:.1}", row.n, row.total_mb_s);
    for each in &row.each_mb_s {
        let _ = write!(out, " {each:.1}");
    }
    out.push('\n');
}

fn sizes(out: &mut String, title: &str, sizes: &[Size]) {
    if sizes.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{title}\n{}", "-".repeat(title.len()));
    let _ = writeln!(out, "order        size depth      IOPS    MB/s   mean us    p99 us   spread");
    for Size { op, block, depth, figure } in sizes {
        let order = if matches!(op, Op::RandomRead | Op::RandomWrite) { "random" } else { "sequential" };
        let size = crate::model::show_size(u64::from(*block));
        let _ = writeln!(
            out,
            "{order:<10} {size:>6} {depth:>5} {:>9.0} {:>7.1} {:>9.0} {:>9.0}  {:>5.1} %",
            figure.iops, figure.mb_s, figure.mean_us, figure.p99_us, figure.spread_percent
        );
    }
}

fn costs(out: &mut String, found: &Findings) {
    let Some(model) = &found.model else { return };
    out.push_str("\nWhat a read costs\n-----------------\n");
    let (seq, rand, kib) = (model.read_base_sequential_us, model.read_base_random_us, model.read_kib_us);
    let _ = writeln!(out, "busy:  {seq:.1} us in order, {rand:.1} us elsewhere, and {kib:.2} us for each KiB");
    if let (Some(base), Some(kib)) = (model.alone_base_us, model.alone_kib_us) {
        let _ = writeln!(out, "alone: {base:.1} us elsewhere, and {kib:.2} us for each KiB");
    }
}

fn character(out: &mut String, found: &Findings) {
    let character = &found.character;
    let mut lines = Vec::new();
    let yes = |yes: bool| if yes { "yes" } else { "no" };
    if let (Some(like), Some(cost)) = (character.rotational_like, character.random_cost) {
        lines.push(format!(
            "rotational-like: {}; a random read takes {cost:.1} times as long as one in order",
            yes(like)
        ));
    }
    if let (Some(queues), Some(gain)) = (character.queues, character.depth_gain) {
        lines.push(format!("queues: {}; {gain:.1} times as many random reads with more in flight", yes(queues)));
    }
    if let Some(depth) = character.depth_saturates {
        let more = if character.depth_rises == Some(true) { ", still rising" } else { "" };
        lines.push(format!("saturates: 95 % of the most with {depth} in flight{more}"));
    }
    if let (Some(two), Some(most)) = (character.parallel_gain, character.parallel_gain_max) {
        lines.push(format!(
            "parallel gain: 2 streams move {two:.2} times what one does, any number of streams at most {most:.2} times"
        ));
    }
    if let Some(alignment) = &found.alignment {
        let part = alignment.shifted_iops / alignment.aligned_iops * 100.0;
        lines.push(format!("alignment: reads shifted by 512 bytes get {part:.0} % of the rate"));
    }
    if let Some(writes) = &found.writes {
        if let Some(us) = writes.flush_us {
            lines.push(format!("flush: adds {us:.0} us to a write of 4 KiB"));
        }
        if let Some(gain) = writes.flush_gain {
            let together = if gain >= 3.0 { "together" } else { "one by one" };
            lines.push(format!(
                "concurrent flushes: the disk does them {together}; 16 writers get {gain:.1} times what one gets"
            ));
        }
    }
    if !lines.is_empty() {
        let _ = writeln!(out, "\nCharacter\n---------\n{}", lines.join("\n"));
    }
}

fn advice(out: &mut String, found: &Findings) {
    if let Some(verdict) = &found.verdict {
        let says = match verdict.says.as_str() {
            "idle" => "idle (slice_idle=8ms)",
            "don't" => "don't idle (slice_idle=0)",
            _ => "idling doesn't matter (slice_idle=0 makes no stream wait)",
        };
        let _ = writeln!(out, "\nVerdict: {says}\n{}", verdict.why);
        verdict.root_disk.iter().for_each(|root| _ = writeln!(out, "{root}"));
    }
    let (fairlift, kernel) = (&found.recommend.fairlift, &found.recommend.kernel);
    let (of_depth, others): (Vec<_>, Vec<_>) = fairlift.why.iter().partition(|why| why.starts_with("device_depth "));
    of_depth.iter().for_each(|why| _ = writeln!(out, "{}", printable(why)));
    if let Some(config) = &fairlift.config {
        let _ = write!(out, "\nFairlift (fairlift serve --config FILE)\n{0}\n{config}", "-".repeat(39));
        remarks(out, others);
    }
    if !kernel.udev.is_empty() {
        let _ = writeln!(out, "\nLinux (/etc/udev/rules.d/60-fairlift.rules)\n{}", "-".repeat(43));
        for rule in &kernel.udev {
            let _ = writeln!(out, "{rule}");
        }
        if let Some(model) = &kernel.io_cost_model {
            let _ = writeln!(out, "echo \"{model}\" > /sys/fs/cgroup/io.cost.model");
        }
        remarks(out, &kernel.why);
    }
}

fn remarks<'a>(out: &mut String, why: impl IntoIterator<Item = &'a String>) {
    for why in why {
        let _ = writeln!(out, "# {}", printable(why));
    }
}
