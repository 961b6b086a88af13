//! Recommended settings, each with the figure that it follows from.

use std::fmt::Write as _;

use super::Findings;
use super::findings::{CostModel, Recommend, RecommendFairlift, RecommendKernel};

/// The kernel's name of the disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kernel {
    /// `sda`.
    pub name: String,
    /// Its number, `8:0`.
    pub number: String,
    /// It has a scheduler and a cost model of its own; what is made of several disks (md, dm) leaves both to them.
    pub has_scheduler: bool,
}

impl Default for Kernel {
    /// Of a disk that is not there: to be filled in.
    fn default() -> Self {
        Self { name: "sdX".into(), number: "MAJ:MIN".into(), has_scheduler: true }
    }
}

/// Random reads a second from which on one queue for all is too slow. Chosen: not far below the
/// 400,000 requests a second that the kernel's BFQ sustains on an i7-4850HQ (`bfq-iosched.rst`).
const MANY: f64 = 300_000.0;

/// The settings for a disk like this; `backing` is its name in a config file. Nothing without a verdict.
#[must_use]
pub fn advise(found: &Findings, backing: &str, kernel: &Kernel) -> Recommend {
    let Some(verdict) = &found.verdict else { return Recommend::default() };
    let idle = verdict.says == "idle";
    let iops = found.random.iter().map(|size| size.figure.iops).fold(0.0, f64::max);
    let many = iops >= MANY;
    let mut fairlift = RecommendFairlift::default();
    let scheduler = match () {
        () if idle || found.character.rotational_like == Some(true) => "bfq",
        () if many => "none",
        () => "fair",
    };
    fairlift.scheduler = Some(scheduler.into());
    fairlift.why.push(match scheduler {
        "none" => format!(
            "scheduler none: {iops:.0} reads a second are more than one queue should decide about; fair where weights matter more"
        ),
        "fair" => "scheduler fair: weights hold, in the disk's time, and the disk is never held idle".into(),
        _ => "scheduler bfq: weights hold, in bytes; its cost per request is small beside the time of this disk".into(),
    });
    if scheduler == "bfq" {
        fairlift.slice_idle = Some(verdict.slice_idle.clone());
        fairlift.why.push(format!("slice_idle {}: {}", verdict.slice_idle, verdict.why));
    }
    if scheduler == "fair" {
        fairlift.cost_model = found.model.as_ref().and_then(cost_model);
        fairlift.why.push(match fairlift.cost_model {
            Some(_) => "cost_model: fair starts to learn from these figures".into(),
            None => "no cost_model: no writes were measured (--write); fair learns it while it serves".into(),
        });
        fairlift.why.extend(device_depth(found));
    } else if let Some(depth) = depth(found) {
        fairlift.depth = Some(depth);
        let saturates = found.character.depth_saturates.unwrap_or_default();
        let rises = if found.character.depth_rises == Some(true) { ", and more may give more" } else { "" };
        fairlift.why.push(format!(
            "depth {depth}: {saturates} random reads in flight get 95 % of the most that was seen, {iops:.0} a second{rises}"
        ));
    }
    if let Some(writes) = &found.writes
        && let Some(gain) = writes.shared_gain
    {
        fairlift.flush_coordinate = Some(gain >= 0.95);
        fairlift.why.push(format!(
            "flush_coordinate {}: 16 writers get {gain:.2} times as many durable writes done with flushes shared as without",
            u8::from(gain >= 0.95)
        ));
    }
    fairlift.config = Some(config(&fairlift, backing));
    Recommend { kernel: of_kernel(found, kernel, idle, iops), fairlift }
}

/// Enough for random reads, and for two requests of each of some streams.
fn depth(found: &Findings) -> Option<u16> {
    let saturates = found.character.depth_saturates?;
    Some(saturates.clamp(8, 1024).next_power_of_two() as u16)
}

/// The part of all random reads that a smaller `device_depth` may cost to be worth a word. Chosen.
const KEPT: f64 = 0.8;

/// The cost of the fewest requests in the device that keep most of its random reads, and the gain of a tenant with few requests beside deep ones.
fn device_depth(found: &Findings) -> Option<String> {
    let most = found.random.iter().max_by(|one, other| one.figure.iops.total_cmp(&other.figure.iops))?;
    let few = found.random.iter().find(|size| size.figure.iops >= KEPT * most.figure.iops)?;
    let (depth, less, its_us) = (few.depth, few.figure.iops, few.figure.mean_us);
    let (deepest, all, us) = (most.depth, most.figure.iops, most.figure.mean_us);
    let percent = 100.0 * (1.0 - less / all);
    (depth < deepest && its_us < us).then(|| {
        format!(
            "device_depth {depth}, for tenants with few requests beside some with many: costs {percent:.0} % ({less:.0} of \
             {all:.0} random reads a second), and each takes {its_us:.0} µs in the device, not {us:.0} as with {deepest}; \
             fair chooses by itself without"
        )
    })
}

/// The six words that `io.cost.model` and fair's `cost_model` share; nothing where no writes were measured.
fn cost_model(model: &CostModel) -> Option<String> {
    let (wbps, wseq, wrand) = (model.wbps?, model.wseqiops?, model.wrandiops?);
    let reads = format!("rbps={:.0} rseqiops={:.0} rrandiops={:.0}", model.rbps, model.rseqiops, model.rrandiops);
    Some(format!("{reads} wbps={wbps:.0} wseqiops={wseq:.0} wrandiops={wrand:.0}"))
}

/// A config file that serves the disk so.
fn config(set: &RecommendFairlift, backing: &str) -> String {
    let mut out = String::from("# By fairlift iostune.\n[disk.tuned]\n");
    if let Some(scheduler) = &set.scheduler {
        let _ = writeln!(out, "scheduler = \"{scheduler}\"");
    }
    if let Some(depth) = set.depth {
        let _ = writeln!(out, "depth = {depth}");
    }
    let idle = set.slice_idle.iter().map(|value| format!("slice_idle = \"{value}\""));
    let flush = set.flush_coordinate.iter().map(|shared| format!("flush_coordinate = \"{}\"", u8::from(*shared)));
    let model = set.cost_model.iter().map(|model| format!("cost_model = \"{model}\""));
    let turned: Vec<String> = idle.chain(model).chain(flush).collect();
    if !turned.is_empty() {
        let _ = writeln!(out, "set = {{ {} }}", turned.join(", "));
    }
    let _ = writeln!(out, "\n[export.disk]\nbacking = {}\ndisk = \"tuned\"", quoted(backing));
    out
}

/// As TOML has text.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn of_kernel(found: &Findings, kernel: &Kernel, idle: bool, iops: f64) -> RecommendKernel {
    let mut set = RecommendKernel::default();
    if !kernel.has_scheduler {
        let name = &kernel.name;
        set.why.push(format!("{name} has no scheduler: its member disks have, so measure and set each of them"));
        return set;
    }
    let rotates = found.character.rotational_like == Some(true);
    let (scheduler, why) = match () {
        () if idle => ("bfq", format!("bfq with slice_idle=8: {}", found.verdict.as_ref().map_or("", |one| &one.why))),
        () if rotates => {
            ("mq-deadline", "mq-deadline: the order of requests matters, waiting for one stream does not pay".into())
        }
        () if iops >= 100_000.0 => {
            ("none", format!("none: {iops:.0} random reads a second; a scheduler would cost some of them"))
        }
        () => (
            "mq-deadline",
            format!("mq-deadline: {iops:.0} random reads a second, in any order; it bounds how long one waits"),
        ),
    };
    set.scheduler = Some(scheduler.into());
    set.why.push(why);
    let name = &kernel.name;
    let rule = |what: &str| format!("ACTION==\"add|change\", SUBSYSTEM==\"block\", KERNEL==\"{name}\", {what}");
    set.udev.push(rule(&format!("ATTR{{queue/scheduler}}=\"{scheduler}\"")));
    if scheduler == "bfq" {
        set.udev.push(rule("ATTR{queue/iosched/slice_idle}=\"8\""));
    }
    if let Some(rotational) = found.character.rotational_like {
        set.udev.push(rule(&format!("ATTR{{queue/rotational}}=\"{}\"", u8::from(rotational))));
        let (random, times) = (
            found.random.first().map_or(0.0, |size| size.figure.mean_us),
            found.character.random_cost.unwrap_or_default(),
        );
        set.why.push(format!(
            "rotational={}: a random read of 4 KiB takes {random:.0} µs, {times:.1} times as long as one in order",
            u8::from(rotational)
        ));
    }
    if let Some(model) = &found.model {
        let coefficients = cost_model(model).unwrap_or_else(|| {
            set.why.push("io.cost.model without writes: none were measured (--write); the kernel keeps its own".into());
            format!("rbps={:.0} rseqiops={:.0} rrandiops={:.0}", model.rbps, model.rseqiops, model.rrandiops)
        });
        let line = format!("{} ctrl=user model=linear {coefficients}", kernel.number);
        set.io_cost_model = Some(line);
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_a_config_file_is_text_whatever_is_in_it() {
        assert_eq!(quoted("file:/a \"b\"\\\n"), "\"file:/a \\\"b\\\"\\\\\\u000A\"");
    }
}
