//! The pool as this gateway knows it, for its exchange and for those who look.

use fairlift_core::Instant;
use fairlift_core::gateways::{Allotment, Pool};

use super::PoolView;
use crate::clock;
use crate::config::{Shares, SharesAt};
use crate::disk::Disk;

/// A pool, and how its reports are heard of. It is figures alone: what a panic left half done the next period makes anew.
pub(super) struct Known {
    pub(super) pool: Pool,
    /// Why nothing is heard, and when something was last.
    pub(super) trouble: Option<String>,
    pub(super) at: Option<Instant>,
    /// This gateway's part, as of the last period.
    pub(super) turn: Allotment,
}

impl Known {
    pub(super) fn new(pool: Pool) -> Self {
        Self { pool, trouble: None, at: None, turn: Allotment::default() }
    }

    /// Nothing is heard, for this reason: the log says so once.
    pub(super) fn is_in_trouble(&mut self, place: &SharesAt, why: String) {
        if self.trouble.is_none() {
            tracing::warn!("{place}: gateways are not heard of ({why}): shares stay as they are");
        }
        self.trouble = Some(why);
    }

    pub(super) fn view(&self, shares: &Shares, disk: &Disk) -> PoolView {
        PoolView {
            disk: disk.name.clone(),
            place: shares.place.to_string(),
            gateway: shares.gateway.clone(),
            trouble: self.trouble.clone(),
            heard: self.at.map(|at| clock::now().since(at)),
            depth: self.turn.depth,
            room: self.pool.room().map(|(group, room)| (group.to_owned(), room)),
            pool_depth: disk.depth(),
            served: self.pool.served(),
            gateways: self.pool.gateways(),
            groups: self.pool.groups().clone(),
        }
    }
}
