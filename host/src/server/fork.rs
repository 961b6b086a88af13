//! A fork: an export that is what another one is at one instant, made while that is written.

use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;

use super::{Handle, Shared};
use crate::config::{Backing, Null};
use crate::control::{Edit, Made, Of, Refused};
use crate::device::overlay::fork;

/// Where a fork keeps what it writes. `None`: beside the top of what is forked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ForkTop {
    /// In this file, which must not be there.
    Named(Option<PathBuf>),
    /// In this directory, in a file without a name: it is gone with the export, or with the server.
    Ephemeral(Option<PathBuf>),
}

impl Handle {
    /// Adds an export that is what an overlay is at one instant: all writes that were answered before are in both, none that is begun later is in
    /// the fork. What is forked goes on, above the same; it is durable up to there. `top` is where what the fork writes goes. `add` adds the export with the backing that it is given; it is called
    /// twice, the first time to see whether it can be added.
    ///
    /// # Errors
    /// It is no overlay, too many lie over each other, what is under way does not end within a few seconds, or why the export cannot
    /// be added. If the last is found out late, what is forked lies over one top more.
    pub fn fork(
        &self,
        (of, name): (&str, &str),
        top: &ForkTop,
        add: impl Fn(&mut Edit, Backing) -> Result<(), String>,
        version: Option<u64>,
        dry_run: bool,
    ) -> Result<Made, Refused> {
        let refused =
            |why: String| Refused::Change { of: Of::Export(of.into()), why: format!("export \"{of}\": {why}") };
        let shared = self.shared.upgrade().ok_or(Refused::Ended)?;
        let state = shared.live().state();
        let mut there = Edit::from(crate::config::Config::clone(&state.config));
        let backing =
            there.export(of).map_err(|why| Refused::Change { of: Of::Export(of.into()), why })?.backing.clone();
        let beside = fork::directory_beside(&backing).map_err(refused)?;
        let (top, is_ephemeral) = match top {
            ForkTop::Named(top) => (top.clone().or_else(|| fork::top_in(beside, name)), false),
            ForkTop::Ephemeral(directory) => (Some(directory.clone().unwrap_or_else(|| beside.to_owned())), true),
        };
        let top = top.ok_or_else(|| refused(fork::needs_a_top(name)))?;
        let top = absolute(top).map_err(|error| refused(error.to_string()))?;
        let takes = if is_ephemeral { shared.takes_tops(&top) } else { shared.is_free(&top) };
        takes.map_err(refused)?;
        // With a backing that costs nothing: what is wrong beside that is found before anything is frozen.
        let stand_in = || Null { size: 1 << 20, delay: Default::default() }.into();
        let would = self.change(|edit| add(edit, stand_in()), version, true)?;
        if dry_run {
            return Ok(would);
        }
        let base = shared.freeze(of).map_err(refused)?;
        let made = fork::forked(&backing, base, (top, is_ephemeral)).expect("it is an overlay");
        self.change(|edit| add(edit, made), version, false)
    }
}

impl Shared {
    /// Whether a top can be made there: no file has the name.
    fn is_free(&self, top: &Path) -> Result<(), String> {
        let roots = self.live().roots();
        match roots.place(top)?.metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(format!("its fork's top {}: {error}", top.display())),
            Ok(_) => Err(format!("its fork's top {} is there already; say another one (top=PATH)", top.display())),
        }
    }

    /// Whether a top without a name can be made in a directory: it is made, and gone.
    fn takes_tops(&self, directory: &Path) -> Result<(), String> {
        let roots = self.live().roots();
        let made = roots.place(directory)?.make_unnamed();
        made.map(drop).map_err(|error| format!("its fork's top cannot be made in {}: {error}", directory.display()))
    }

    /// Freezes what an export is, by the thread that calls.
    fn freeze(&self, export: &str) -> Result<fork::NowBase, String> {
        let exports = self.served.service.exports();
        let there = exports.list.iter().find(|one| one.name == export);
        let device = there.map(|export| Arc::clone(&export.device)).ok_or("it has been removed")?;
        let roots = self.live().roots();
        device.freeze(&|worker, lane| self.backend.helpers.tell(worker, (lane, 0)), &roots)
    }
}
