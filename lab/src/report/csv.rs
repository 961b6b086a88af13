//! One line for each run and group: the form that spreadsheets, R and pandas read.
//!
//! Figures of the whole run (`total_kb_s` to `jain`) are repeated on each line of its groups. The path without
//! Fairlift has the scheduler `raw`.

use std::fmt::Write as _;

use super::summary::shown_settings;
use crate::result::{Results, Run};

/// The columns.
pub const HEADER: &str = "device,scheduler,workload,set,jobs,runtime_s,group,weight,kb_s,iops,share,ideal,lat_p50_us,\
                          lat_p99_us,lat_max_us,total_kb_s,total_iops,share_error_max,jain,unserved_max_us,settings,\
                          does,capacity,demand,entitled,score,isolation,use,share_error_1s,held_us";

/// The header, then the lines of all results.
#[must_use]
pub fn csv(all: &[Results]) -> String {
    let mut out = format!("{HEADER}\n");
    for results in all {
        for run in &results.runs {
            lines(&mut out, &results.device, &results.scheduler, run);
        }
        for run in &results.baseline {
            lines(&mut out, &results.device, "raw", run);
        }
    }
    out
}

fn lines(out: &mut String, device: &str, scheduler: &str, run: &Run) {
    for group in &run.groups {
        let _ = write!(out, "{},{},{},", quoted(device), quoted(scheduler), quoted(&run.workload));
        let _ = write!(out, "{},{},{},{},{},", run.set, run.jobs, run.runtime_s, quoted(&group.path), group.weight);
        let _ = write!(out, "{},{},{},{},", group.kb_s, group.iops, group.share, group.ideal);
        let _ = write!(out, "{},{},{},", group.lat_p50_us, group.lat_p99_us, group.lat_max_us);
        let _ = write!(out, "{},{},{},{},", run.total_kb_s, run.iops, run.share_error_max, run.jain);
        let _ = write!(out, "{},{},", group.unserved_max_us, quoted(&shown_settings(run)));
        // Empty where there are no tenants.
        let _ = match &group.tenant {
            Some(one) => {
                write!(out, "{},{},{},{},{},", quoted(&one.does), one.capacity, one.demand, one.entitled, one.score)
            }
            None => write!(out, ",,,,,"),
        };
        let _ = match &run.together {
            Some(one) => {
                let error = one.share_error_1s.map_or(String::new(), |error| error.to_string());
                write!(out, "{},{},{error},", one.isolation, one.used)
            }
            None => write!(out, ",,,"),
        };
        let _ = writeln!(out, "{}", group.held_us);
    }
}

/// As RFC 4180 has it: in quotes if it holds a comma, a quote or a line's end (report.2).
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{results, run, situation};

    #[test]
    fn each_run_and_group_has_a_line_with_as_many_cells_as_the_header() {
        let mut results = results(&[]);
        results.runs = vec![run("bsr", 1, 4, &[(100, 100.0), (300, 300.0)])];
        results.runs[0].settings.insert("fifo_batch".into(), "16".into());
        results.baseline = vec![run("bsr", 1, 4, &[(100, 200.5)])];
        let text = csv(&[results]);
        let expected = "\
device,scheduler,workload,set,jobs,runtime_s,group,weight,kb_s,iops,share,ideal,lat_p50_us,lat_p99_us,lat_max_us,total_kb_s,total_iops,share_error_max,jain,unserved_max_us,settings,does,capacity,demand,entitled,score,isolation,use,share_error_1s,held_us
sim:eva-raid5-12,cfq,bsr,1,4,30,/g1,100,100,25,0.25,0.25,100,1000,20000,400,100,0,0.987,0,fifo_batch=16,,,,,,,,,0
sim:eva-raid5-12,cfq,bsr,1,4,30,/g2,300,300,75,0.75,0.75,200,2000,40000,400,100,0,0.987,0,fifo_batch=16,,,,,,,,,0
sim:eva-raid5-12,raw,bsr,1,4,30,/g1,100,200.5,50.125,1,1,100,1000,20000,200.5,50.125,0,0.987,0,,,,,,,,,,0
";
        assert!(text == expected, "{text}");
    }

    #[test]
    fn a_tenant_has_its_figures_behind_the_others() {
        let mut results = results(&[]);
        results.runs = vec![situation("tenants:many")];
        let text = csv(&[results]);
        let line = text.lines().nth(2).unwrap();
        assert!(line.ends_with(",randread 4k x32,1000,0.9,0.75,0.5,0.5,0.75,0.5,0"), "{line}");
        let cells = |line: &str| line.split(',').count();
        assert!(text.lines().all(|line| cells(line) == cells(HEADER)), "{text}");
    }

    /// report.2
    #[test]
    fn a_name_cannot_make_cells_or_lines() {
        assert_eq!(quoted("sim:sata-7200,size=1G"), "\"sim:sata-7200,size=1G\"");
        assert_eq!(quoted("a\"b\nc"), "\"a\"\"b\nc\"");
        assert_eq!(quoted("a\nb"), "\"a\nb\"");
        assert_eq!(quoted("plain"), "plain");
    }
}
