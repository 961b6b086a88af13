//! A catalogue of two exports, for the tests of the negotiation.

use super::*;

pub(crate) const DISK: ExportInfo<'static> = ExportInfo {
    index: 0,
    name: "disk",
    description: "the first",
    size: 1 << 30,
    transmission_flags: FLAG_HAS_FLAGS | FLAG_SEND_FLUSH | FLAG_SEND_DF,
    block_min: 512,
    block_preferred: 4096,
    block_max: 32 << 20,
    changes: Some("top"),
};
pub(crate) const OTHER: ExportInfo<'static> =
    ExportInfo { index: 1, name: "other", description: "", changes: None, ..DISK };

pub(crate) struct Two;

impl Catalogue for Two {
    fn find(&self, name: &str) -> Option<ExportInfo<'_>> {
        [DISK, OTHER].into_iter().find(|export| export.name == name)
    }
    fn for_each(&self, visit: &mut dyn FnMut(&ExportInfo<'_>)) {
        [DISK, OTHER].iter().for_each(visit);
    }
}
