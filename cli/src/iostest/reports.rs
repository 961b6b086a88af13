//! The destinations of reports, and results kept before.
//!
//! reports.1  Whether a report can be written is tried before anything is measured, without changing what is there.
//! reports.2  A directory that holds results already is not written over.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use fairlift_lab::report;
use fairlift_lab::result::Results;

use super::args::IostestArgs;
use crate::blktrace;
use crate::syntax::mistake::Mistake;
use crate::terminal::output::{are_same, is_stdout, print, try_writing};

/// The name of the results in a directory.
const KEPT: &str = "iostest.json";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Text,
    Json,
    Html,
}

/// The reports to write, and their places; `-` is standard output.
#[derive(Debug)]
pub(crate) struct Reports {
    files: Vec<(Form, PathBuf)>,
    /// Made when the reports are written.
    directory: Option<PathBuf>,
    /// The first file of a trace: others write it, run by run.
    trace: Option<PathBuf>,
}

impl Reports {
    /// Those that the flags ask for, each tried (reports.1).
    pub(crate) fn prepare(flags: &IostestArgs, mistakes: &mut Vec<Mistake>) -> Self {
        let trace = flags.trace.as_deref().map(blktrace::first_file);
        let mut reports = Self::new([&flags.json, &flags.html], trace, mistakes);
        if let Some(dir) = &flags.output {
            match try_directory(dir) {
                Ok(()) => {
                    let forms = [(Form::Json, KEPT), (Form::Text, "iostest.txt"), (Form::Html, "iostest.html")];
                    reports.files.extend(forms.map(|(form, name)| (form, dir.join(name))));
                }
                Err(says) => mistakes.push(Mistake::in_flag("--output", says)),
            }
        }
        reports.directory.clone_from(&flags.output);
        reports
    }

    pub(crate) fn new(
        [json, html]: [&Option<PathBuf>; 2],
        trace: Option<PathBuf>,
        mistakes: &mut Vec<Mistake>,
    ) -> Self {
        let mut files = Vec::new();
        let given = [("--json", Some(Form::Json), json), ("--html", Some(Form::Html), html), ("--trace", None, &trace)];
        for (flag, form, path) in given {
            let Some(path) = path else { continue };
            if files.iter().any(|(_, other)| other == path) {
                let says = format!("{} is given twice", path.display());
                mistakes.push(Mistake::in_flag(flag, says));
            } else if !is_stdout(path)
                && let Err(error) = try_writing(path)
            {
                mistakes.push(Mistake::in_flag(flag, format!("{}: {error}", path.display())));
            }
            files.extend(form.map(|form| (form, path.clone())));
        }
        Self { files, directory: None, trace }
    }

    /// Whether these results can be reported so: a JSON document holds one.
    pub(crate) fn check(&self, all: &[Results], mistakes: &mut Vec<Mistake>) {
        if all.len() > 1 && self.files.iter().any(|(form, _)| *form == Form::Json) {
            let says = format!("a JSON file holds one result, and there are {}; give -R a single file", all.len());
            mistakes.push(Mistake::in_flag("--json", says));
        }
    }

    /// Notes a report that would go to the disk that is measured.
    pub(crate) fn check_device(&self, device: &Path, mut note: impl FnMut(&str, String)) {
        let mut all = self.files.iter().map(|(_, path)| path).chain(&self.trace);
        if all.any(|path| are_same(path, device)) {
            let says = format!("{} is the disk that is measured; write the report to another file", device.display());
            note("--device", says);
        }
    }

    /// Writes all reports, as `text` has them in each form. A report that cannot be written after all does not keep the others from it. Standard
    /// output has the text, if no report goes there.
    pub(crate) fn write(&self, text: impl Fn(Form) -> String) -> Result<(), String> {
        let (mut shown, mut failed) = (None, Vec::new());
        if let Some(directory) = &self.directory {
            let made = fs::create_dir_all(directory);
            failed.extend(made.err().map(|error| format!("{}: {error}", directory.display())));
        }
        for (form, path) in &self.files {
            let text = text(*form);
            if is_stdout(path) {
                shown = Some(text);
                continue;
            }
            failed.extend(fs::write(path, text).err().map(|error| format!("{}: {error}", path.display())));
        }
        let shown = shown.unwrap_or_else(|| text(Form::Text));
        failed.extend(print(shown.as_bytes()).err().map(|error| error.to_string()));
        if failed.is_empty() { Ok(()) } else { Err(failed.join("\nerror: ")) }
    }
}

pub(super) fn text(form: Form, all: &[Results], total: bool) -> String {
    match form {
        Form::Text => all.iter().map(|results| report::table::table(results, total)).collect::<Vec<_>>().join("\n"),
        Form::Json => all.iter().map(report::json::to_json).collect(),
        Form::Html => report::html::html(all),
    }
}

/// Tries to make the directory if it is not there, and to write in it; what was made is removed again (reports.1, reports.2).
fn try_directory(dir: &Path) -> Result<(), String> {
    let is_absent = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    let absent: Vec<&Path> = dir.ancestors().take_while(is_absent).collect();
    let outcome = fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()));
    let outcome = outcome.and_then(|()| try_in_directory(dir));
    for made in absent {
        let _ = fs::remove_dir(made); // The innermost is first.
    }
    outcome
}

fn try_in_directory(dir: &Path) -> Result<(), String> {
    let shown = dir.display();
    if dir.join(KEPT).exists() {
        return Err(format!("{shown} already holds results ({KEPT}); choose another directory, or remove them"));
    }
    try_writing(&dir.join(KEPT)).map_err(|error| format!("{shown}: {error}"))
}

/// Reads what was kept: one file, or all results in a directory, by name.
pub(crate) fn read(path: &Path) -> Result<Vec<Results>, String> {
    let shown = path.display();
    let one = |path: &Path| {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        report::json::from_json(&text).map_err(|why| format!("{}: {why}", path.display()))
    };
    if !path.is_dir() {
        return Ok(vec![one(path)?]);
    }
    let entries = fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let mut paths: Vec<_> =
        entries.map_err(|error| format!("{shown}: {error}"))?.iter().map(fs::DirEntry::path).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    if paths.is_empty() {
        return Err(format!("{shown} holds no results: no {KEPT} nor other .json"));
    }
    paths.iter().map(|path| one(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepare(flags: &IostestArgs) -> Vec<String> {
        let mut mistakes = Vec::new();
        Reports::prepare(flags, &mut mistakes);
        mistakes.into_iter().map(|mistake| format!("{}: {}", mistake.key, mistake.says)).collect()
    }

    /// reports.1
    #[test]
    fn trying_a_report_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("old.json"), dir.path().join("new.html"));
        fs::write(&old, "kept").unwrap();
        let flags = IostestArgs { json: Some(old.clone()), html: Some(new.clone()), ..IostestArgs::default() };
        assert_eq!(prepare(&flags), Vec::<String>::new());
        assert_eq!(fs::read_to_string(old).unwrap(), "kept");
        assert!(!new.exists());
    }

    /// reports.1
    #[test]
    fn a_report_that_cannot_be_written_is_a_mistake_before_the_run() {
        let dir = tempfile::tempdir().unwrap();
        let shown = dir.path().display();
        let missing = dir.path().join("missing/x.html");
        let flags =
            IostestArgs { json: Some(dir.path().into()), html: Some(missing.clone()), ..IostestArgs::default() };
        assert_eq!(
            prepare(&flags),
            [
                format!("--json: {shown}: Is a directory (os error 21)"),
                format!("--html: {shown}/missing/x.html: No such file or directory (os error 2)"),
            ]
        );
        let flags = IostestArgs { json: Some(missing.clone()), html: Some(missing), ..IostestArgs::default() };
        assert_eq!(prepare(&flags)[1], format!("--html: {shown}/missing/x.html is given twice"));
    }

    /// reports.1
    #[test]
    fn a_trace_that_cannot_be_written_is_a_mistake_before_the_run() {
        let dir = tempfile::tempdir().unwrap();
        let (disk, missing) = (dir.path().join("x.json"), dir.path().join("missing/t"));
        let flags = |trace: &Path, json| IostestArgs { trace: Some(trace.into()), json, ..IostestArgs::default() };
        let says = format!("--trace: {}.blktrace.0: No such file or directory (os error 2)", missing.display());
        assert_eq!(prepare(&flags(&missing, None)), [says]);
        let says = format!("--trace: {} is given twice", disk.display());
        assert_eq!(prepare(&flags(&disk, Some(disk.clone()))), [says]);
        assert_eq!(prepare(&flags(&dir.path().join("t"), None)), Vec::<String>::new());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing was changed");
        fs::write(&disk, "kept").unwrap();
        let reports = Reports::prepare(&flags(&disk, None), &mut Vec::new());
        let mut noted = Vec::new();
        reports.check_device(&disk, |flag, _| noted.push(flag.to_owned()));
        assert_eq!(noted, ["--device"], "it is the disk that is measured");
    }

    /// reports.2
    #[test]
    fn a_directory_with_results_is_not_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let flags = |dir: PathBuf| IostestArgs { output: Some(dir), ..IostestArgs::default() };
        assert_eq!(prepare(&flags(dir.path().join("a/b"))), Vec::<String>::new(), "it can be made");
        assert!(!dir.path().join("a").exists(), "but is not yet");
        let reports = Reports::prepare(&flags(dir.path().join("a/b")), &mut Vec::new());
        reports.write(|form| text(form, &[], false)).unwrap();
        assert!(dir.path().join("a/b").join(KEPT).exists());
        fs::write(dir.path().join(KEPT), "").unwrap();
        let shown = dir.path().display();
        let refusal =
            format!("--output: {shown} already holds results (iostest.json); choose another directory, or remove them");
        assert_eq!(prepare(&flags(dir.path().into())), [refusal]);
        let file = dir.path().join(KEPT);
        assert_eq!(prepare(&flags(file.clone())), [format!("--output: {}: File exists (os error 17)", file.display())]);
    }

    /// The measurements are not lost with the first report that fails.
    #[test]
    fn a_report_that_fails_after_all_keeps_no_other_from_being_written() {
        let dir = tempfile::tempdir().unwrap();
        let (gone, page) = (dir.path().join("gone"), dir.path().join("x.html"));
        fs::create_dir(&gone).unwrap();
        let flags = IostestArgs { json: Some(gone.join("x.json")), html: Some(page.clone()), ..IostestArgs::default() };
        let reports = Reports::prepare(&flags, &mut Vec::new());
        fs::remove_dir(&gone).unwrap();
        let failed = reports.write(|form| text(form, &[], false)).unwrap_err();
        assert_eq!(failed, format!("{}/x.json: No such file or directory (os error 2)", gone.display()));
        assert!(page.exists());
    }

    /// Two documents in a row are none.
    #[test]
    fn only_one_result_is_written_as_json() {
        let flags = IostestArgs { json: Some("-".into()), ..IostestArgs::default() };
        let reports = Reports::prepare(&flags, &mut Vec::new());
        let text = r#"{"tool": "iostest", "version": "0", "device": "d", "scheduler": "none", "settings": {}, "seed": 1, "runs": []}"#;
        let results = report::json::from_json(text).unwrap();
        let mut mistakes = Vec::new();
        reports.check(std::slice::from_ref(&results), &mut mistakes);
        assert!(mistakes.is_empty());
        reports.check(&[results.clone(), results], &mut mistakes);
        assert_eq!(mistakes.len(), 1);
    }

    #[test]
    fn what_is_no_result_is_not_reported_again() {
        let dir = tempfile::tempdir().unwrap();
        let shown = dir.path().display().to_string();
        let why = |path: &Path| read(path).unwrap_err();
        assert_eq!(why(dir.path()), format!("{shown} holds no results: no iostest.json nor other .json"));
        assert_eq!(why(&dir.path().join("x")), format!("{shown}/x: No such file or directory (os error 2)"));
        fs::write(dir.path().join("a.json"), "{}").unwrap();
        assert!(why(dir.path()).starts_with(&format!("{shown}/a.json: not results of iostest: missing field")));
    }
}
