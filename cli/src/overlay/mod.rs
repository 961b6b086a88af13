//! `fairlift overlay`: what the files of overlays are, what is wrong with them, what they lie over, and how a base gets what a top has.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use fairlift::overlay::format::{BLOCK, Fingerprint};
use fairlift::overlay::{Shifted, TopInfo, commit, flatten, look, rebase};
use serde_json::json;

use crate::syntax::units::show_size;
use crate::terminal::output::hex;
use crate::terminal::progress::bar;
use crate::terminal::stop::stop_on_signal;
use crate::terminal::{complaint, output};

/// Inspect the tops of overlays (overlay:base=PATH,top=PATH), move one to another base, or write one into its base
#[derive(Debug, Args)]
pub(crate) struct OverlayArgs {
    #[command(subcommand)]
    what: OverlayCommand,
}

#[derive(Debug, Subcommand)]
enum OverlayCommand {
    /// Show the size of a top, its content, and its base
    Info {
        /// The top
        top: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Check a top, its whole map, and whether its base is unchanged; exits with 1 if anything is wrong
    Check {
        /// The top
        top: PathBuf,
    },
    /// Put a top over the lowest of the files below it, and copy the data between into it
    ///
    /// The disk reads the same before, during and after. A command that was stopped continues when it is run again. A top that a server has
    /// open is refused: remove its export first.
    Flatten {
        /// The top
        top: PathBuf,
    },
    /// Put a top over another base, and copy into it the blocks that differ
    ///
    /// The disk reads the same before, during and after. A command that was stopped continues when it is run again. A top that a server has
    /// open is refused: remove its export first.
    Rebase {
        /// The top
        top: PathBuf,
        /// The new base: an image, or another top
        base: PathBuf,
    },
    /// Write the data of a top into its base, and empty the top
    ///
    /// The disk reads the same before, during and after. The base changes, so all other tops over it are refused from then on. The command refuses
    /// to start if the directory of either file has another top over the base; it does not search other directories. A command that was
    /// stopped continues when it is run again. A top or base that a server has open is refused: remove its exports first.
    Commit {
        /// The top
        top: PathBuf,
        /// Confirm that no other top lies over the base, and that it may be changed
        #[arg(long)]
        write_to_base: bool,
    },
}

/// How long a command may take before its progress is shown.
const SILENT: Duration = Duration::from_secs(2);

pub(crate) fn overlay(args: &OverlayArgs) -> ExitCode {
    let done = match &args.what {
        OverlayCommand::Info { top, json } => {
            look(top).map(|info| (if *json { as_json(top, &info) } else { as_text(top, &info) }, true))
        }
        OverlayCommand::Check { top } => look(top).map(|info| (findings(top, &info), info.findings.is_empty())),
        OverlayCommand::Flatten { top } => shift(top, "copied into it", |goes_on| flatten(top, goes_on)),
        OverlayCommand::Rebase { top, base } => shift(top, "copied into it", |goes_on| rebase(top, base, goes_on)),
        OverlayCommand::Commit { top, write_to_base: true } => {
            shift(top, "written into its base", |goes_on| commit(top, goes_on))
        }
        OverlayCommand::Commit { top, .. } => look(top).and_then(|info| Err(asks(top, &info))),
    };
    match done
        .and_then(|(text, is_well)| output::print(text.as_bytes()).map_err(|error| error.to_string()).map(|()| is_well))
    {
        Ok(false) => ExitCode::FAILURE,
        other => complaint::done(other.map(drop)),
    }
}

/// Told how much was looked at, of how much; whether to go on.
type GoesOn<'a> = &'a mut dyn FnMut(u64, u64) -> bool;

/// Does what may take long, with its progress, until Ctrl-C.
fn shift(
    top: &Path,
    what: &str,
    does: impl FnOnce(GoesOn<'_>) -> Result<Shifted, String>,
) -> Result<(String, bool), String> {
    let stop = stop_on_signal().map_err(|error| error.to_string())?;
    let (start, mut shown) = (Instant::now(), None);
    let done = does(&mut |looked_at, size| {
        if start.elapsed() > SILENT {
            let bar = shown.get_or_insert_with(bar);
            bar.set_length(size);
            bar.set_position(looked_at);
        }
        stop.signal().is_none()
    });
    shown.iter().for_each(|bar| bar.finish_and_clear());
    let top = top.display();
    match done? {
        Shifted::Done(bytes) => Ok((format!("{top}: done, {} {what}\n", show_size(bytes)), true)),
        Shifted::Stopped => Err(format!("{top}: stopped; it reads as before, and the same command goes on")),
    }
}

/// Of a top that was not said to be written into its base.
fn asks(top: &Path, info: &TopInfo) -> String {
    format!(
        "{}: this changes its base {}, and all other tops over that are refused from then on. If there are none, say so: --write-to-base",
        top.display(),
        info.header.base.path.display()
    )
}

fn as_text(top: &Path, info: &TopInfo) -> String {
    let TopInfo { header, data, zeroes, takes, below, findings } = info;
    let mut out = String::new();
    let mut row = |name: &str, value: String| _ = writeln!(out, "{name:8} {value}");
    row("top", top.display().to_string());
    row("disk", show_size(header.size));
    row("data", show_size(data * BLOCK));
    row("zeroes", show_size(zeroes * BLOCK));
    row("takes", show_size(*takes));
    row("id", hex(&header.id));
    row("closed", if header.clean { "in order" } else { "no: it is served, or its server was killed" }.into());
    below.iter().for_each(|path| row("over", path.display().to_string()));
    findings.iter().for_each(|finding| row("wrong", finding.what.clone()));
    out
}

fn as_json(top: &Path, info: &TopInfo) -> String {
    let TopInfo { header, data, zeroes, takes, below, findings } = info;
    let base = match header.base.is {
        Fingerprint::Raw { size, changed: (seconds, nanos) } => json!({ "size": size, "changed": [seconds, nanos] }),
        Fingerprint::Top { id: name, opened } => json!({ "id": hex(&name), "opened": opened }),
        Fingerprint::Named { size, .. } => json!({ "size": size }),
        Fingerprint::Image { size, files, .. } => json!({ "size": size, "files": files }),
    };
    let all = json!({
        "top": top,
        "size": header.size,
        "data": data * BLOCK,
        "zeroes": zeroes * BLOCK,
        "takes": takes,
        "id": hex(&header.id),
        "opened": header.opened,
        "closed": header.clean,
        "commits": header.commits,
        "base": base,
        "below": below,
        "findings": findings.iter().map(|one| json!({ "what": one.what, "refused": one.is_fatal })).collect::<Vec<_>>(),
    });
    format!("{all:#}\n")
}

fn findings(top: &Path, info: &TopInfo) -> String {
    let line = |what: &str| format!("{}: {what}\n", top.display());
    match &info.findings[..] {
        [] => line("nothing is wrong"),
        all => all.iter().map(|finding| line(&finding.what)).collect(),
    }
}
