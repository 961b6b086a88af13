//! Reports of measurements, for people and for programs.
//!
//! | module | view of [`Results`](crate::result::Results) |
//! |---|---|
//! | [`table`] | text, in the layout of the `iostest` of 2010 |
//! | [`json`] | all of it, to be read again |
//! | [`html`] | one page with plots |
//! | [`tune`] | findings of `iostune`, as text and JSON |
//!
//! report.1  The same results give the same bytes.
//! report.2  Text from outside (devices, paths, names) cannot change the form of a report: it is quoted or escaped.

mod grid;
pub mod html;
pub mod json;
mod summary;
pub mod table;
mod tenants;
pub mod tune;

#[cfg(test)]
mod fixture;

/// Text without control characters, which could move the cursor of a terminal (report.2) or begin a line of a log.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Whether a group is the one of a run without groups: the root.
fn is_ungrouped(groups: &[crate::result::Group]) -> bool {
    matches!(groups, [only] if only.path == "/")
}

/// The bytes of an operation: as asked, else the workload's own if that is built in and has one size.
fn block_size(results: &crate::result::Results, workload: &str) -> Option<u64> {
    match results.block_size {
        0 => crate::workload::Workload::named(workload).ok()?.block_size().map(u64::from),
        bytes => Some(bytes),
    }
}

/// The name of a group in a heading: `/g3` is `cgrp3`, as in the tables of 2010; others have their path. The root is
/// all there is.
fn heading(path: &str) -> String {
    if path == "/" {
        return "all".into();
    }
    match path.strip_prefix("/g") {
        Some(number) if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) => format!("cgrp{number}"),
        _ => printable(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_numbered_group_has_the_heading_of_2010_and_others_their_path() {
        assert_eq!(heading("/g12"), "cgrp12");
        assert_eq!(heading("/"), "all");
        assert_eq!(heading("/g"), "/g");
        assert_eq!(heading("/g1x"), "/g1x");
        assert_eq!(heading("/tenants/a\u{1b}[2J"), "/tenants/a\u{fffd}[2J");
    }
}
