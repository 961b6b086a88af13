//! A fork: an export that is what another one is at one instant, made while that is written.

use std::path::Path;
use std::sync::Arc;

use super::{Handle, Shared};
use crate::config::{Backing, Null};
use crate::control::{Edit, Made, Of, Refused};
use crate::device::overlay::fork;

impl Handle {
    /// Adds an export that is what an overlay is at one instant: all writes that were answered before are in both, none that is begun later is in
    /// the fork. What is forked goes on, above the same; it is durable up to there. `top` is the file that gets what the fork writes (`None`:
    /// beside that of what is forked), and must not be there. `add` adds the export with the backing that it is given; it is called
    /// twice, the first time to see whether it can be added.
    ///
    /// # Errors
    /// It is no overlay, too many lie over each other, what is under way does not end within a few seconds, or why the export cannot
    /// be added. If the last is found out late, what is forked lies over one top more.
    pub fn fork(
        &self,
        (of, name): (&str, &str),
        top: Option<&Path>,
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
        let beside = fork::top_beside(&backing, name).map_err(refused)?;
        let top = top.map_or(beside.ok_or_else(|| refused(fork::needs_a_top(name))), |top| Ok(top.to_owned()))?;
        let top = std::path::absolute(top).map_err(|error| refused(error.to_string()))?;
        shared.is_free(&top).map_err(refused)?;
        // With a backing that costs nothing: what is wrong beside that is found before anything is frozen.
        let stand_in = || Null { size: 1 << 20, delay: Default::default() }.into();
        let would = self.change(|edit| add(edit, stand_in()), version, true)?;
        if dry_run {
            return Ok(would);
        }
        let base = shared.freeze(of).map_err(refused)?;
        let made = fork::forked(&backing, base, top).expect("it is an overlay");
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

    /// Freezes what an export is, by the thread that calls.
    fn freeze(&self, export: &str) -> Result<fork::NowBase, String> {
        let exports = self.served.service.exports();
        let there = exports.list.iter().find(|one| one.name == export);
        let device = there.map(|export| Arc::clone(&export.device)).ok_or("it has been removed")?;
        let roots = self.live().roots();
        device.freeze(&|worker, lane| self.backend.helpers.tell(worker, (lane, 0)), &roots)
    }
}
