//! Allowed: the exports that a client may open, ready for a search by name.
//!
//! A client may ask for 255 names in one packet. Walking through 1,000 exports for each kept the other clients of the worker waiting
//! for 0.6 s. So the exports are gone through once for all clients that may open the same, and then searched.
//!
//! allowed.1  A list is of all clients that the same rules fit (access.2). It is made when the first of them negotiates, and goes when
//!            exports or rules change.
//! allowed.2  A search takes as many steps as the number of exports in the list says, whatever the name; names of other exports are
//!            not in it (access.4).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Export;
use crate::access::{Right, Rights};
use crate::sync::{Mutex, lock};

/// How many places the lists of a server have together; beyond, those that there are go. Chosen: a thousand tenants of a thousand
/// exports each, and 16 MiB.
const PLACES: usize = 1 << 20;

pub(crate) struct Allowed {
    /// Each by its number in [`Exports::list`](super::service::Exports::list), in that order.
    pub(crate) all: Box<[(usize, Right)]>,
    /// Places in `all`, by name.
    by_name: Box<[u32]>,
}

impl Allowed {
    fn new(exports: &[Arc<Export>], rights: &Rights<'_>) -> Self {
        let may = |(number, export): (usize, &Arc<Export>)| Some((number, rights.of(&export.name, &export.path)?));
        let all: Box<[_]> = exports.iter().enumerate().filter_map(may).collect();
        let mut by_name: Box<[u32]> = (0..all.len() as u32).collect();
        by_name.sort_unstable_by_key(|place| &*exports[all[*place as usize].0].name);
        Self { all, by_name }
    }

    pub(crate) fn find(&self, exports: &[Arc<Export>], name: &str) -> Option<(usize, Right)> {
        let at = |place: u32| self.all[place as usize];
        // The library halves the list until one is left, and compares for equality then (allowed.2).
        let found = self.by_name.binary_search_by(|place| exports[at(*place).0].name.as_str().cmp(name));
        found.ok().map(|found| at(self.by_name[found]))
    }
}

/// The lists of a server, by the rules that fit.
#[derive(Default)]
pub(crate) struct Lists(Mutex<BTreeMap<Option<Vec<usize>>, Arc<Allowed>>>);

impl Lists {
    /// The exports that clients with these rights may open.
    pub(crate) fn of(&self, exports: &[Arc<Export>], rights: &Rights<'_>) -> Arc<Allowed> {
        let fitting = rights.fitting();
        let mut lists = lock(&self.0);
        if let Some(there) = lists.get(&fitting) {
            return Arc::clone(there);
        }
        let list = Arc::new(Allowed::new(exports, rights));
        if lists.values().map(|list| list.all.len() + 1).sum::<usize>() + list.all.len() > PLACES {
            lists.clear();
        }
        lists.insert(fitting, Arc::clone(&list));
        list
    }
}
