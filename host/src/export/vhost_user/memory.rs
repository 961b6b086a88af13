//! A guest's memory, as its virtual machine monitor shares it.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::fstat;
use vm_memory::{
    FileOffset, GuestAddress, GuestMemoryBackend as _, GuestMemoryMmap, GuestMemoryRegion as _, GuestRegionMmap,
    MmapRegion,
};

use super::proto::Region;
use crate::kernel::lent::Machine;

/// The advice to the owner of a guest whose memory is not shared.
pub(super) const HOW_TO_SHARE: &str =
    "QEMU: -object memory-backend-memfd,id=ram,size=SIZE,share=on -machine memory-backend=ram";

pub(super) struct Shared {
    regions: Vec<Region>,
    /// By the guest's own addresses. Requests under way keep it mapped.
    pub(super) guest: Arc<Machine>,
}

impl Shared {
    pub(super) fn map(mut regions: Vec<Region>, files: Vec<OwnedFd>) -> Result<Self, String> {
        let mut parts: Vec<_> = regions.iter().copied().zip(files).collect();
        parts.sort_by_key(|(region, _)| region.guest);
        regions.sort_by_key(|region| region.guest);
        let mapped = parts.into_iter().map(|(region, file)| {
            let Region { guest, size, user, offset } = region;
            let fail = |why: String| format!("{size} bytes at {guest:#x} cannot be mapped: {why}");
            let ends = [guest, user, offset].iter().all(|start| start.checked_add(size).is_some());
            if size == 0 || !ends {
                return Err(fail("they have no end".into()));
            }
            let length = fstat(&file).map_err(|error| fail(error.to_string()))?.st_size as u64;
            // Behind the end of its file, memory is there and cannot be touched.
            if offset + size > length {
                return Err(fail(format!("the shared file ends after {length} bytes")));
            }
            let region = MmapRegion::from_file(FileOffset::new(file.into(), offset), size as usize)
                .map_err(|error| fail(error.to_string()))?;
            GuestRegionMmap::new(region, GuestAddress(guest)).ok_or_else(|| fail("they have no end".into()))
        });
        let mapped = mapped.collect::<Result<Vec<_>, _>>()?;
        let guest = GuestMemoryMmap::from_regions(mapped).map_err(|error| error.to_string())?;
        Ok(Self { regions, guest: Arc::new(Machine::new(guest)) })
    }

    pub(super) fn regions(&self) -> impl Iterator<Item = (&Region, BorrowedFd<'_>)> {
        // Both are in the order of the guest's addresses.
        let both = self.regions.iter().zip(self.guest.iter());
        both.filter_map(|(region, mapped)| Some((region, mapped.file_offset()?.file().as_fd())))
    }

    /// Where in the guest an address of the monitor is.
    pub(super) fn translate(&self, user: u64) -> Result<GuestAddress, String> {
        let found = self.regions.iter().find(|region| user.wrapping_sub(region.user) < region.size);
        found.map(|region| GuestAddress(region.guest + (user - region.user))).ok_or_else(|| {
            format!(
                "{user:#x} is in none of the {} regions of memory that are shared ({HOW_TO_SHARE})",
                self.regions.len()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use vm_memory::Bytes as _;

    use super::*;

    fn file(bytes: &[u8]) -> OwnedFd {
        let fd = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        std::fs::File::from(fd.try_clone().unwrap()).write_all(bytes).unwrap();
        fd
    }

    #[test]
    fn regions_come_in_any_order_and_are_found_by_either_address() {
        let low = Region { guest: 0, size: 0x1000, user: 0x70_0000, offset: 0x1000 };
        let high = Region { guest: 0x10_0000, size: 0x1000, user: 0x60_0000, offset: 0 };
        let bytes = [[1; 0x1000], [2; 0x1000]].concat();
        let shared = Shared::map(vec![high, low], vec![file(&bytes), file(&bytes)]).unwrap();
        assert_eq!(shared.translate(0x70_0010), Ok(GuestAddress(0x10)));
        assert_eq!(shared.translate(0x60_0fff), Ok(GuestAddress(0x10_0fff)));
        assert!(shared.translate(0x60_1000).unwrap_err().contains("none of the 2 regions"));
        assert_eq!(shared.guest.read_obj::<u8>(GuestAddress(0x10)).unwrap(), 2);
        assert_eq!(shared.guest.read_obj::<u8>(GuestAddress(0x10_0000)).unwrap(), 1);
    }

    #[test]
    fn what_cannot_be_mapped_is_named() {
        let region = Region { guest: 0, size: 0x2000, user: 0, offset: 0 };
        let fails = |region, file| Shared::map(vec![region], vec![file]).err().expect("it cannot be mapped");
        assert!(fails(region, file(&[0; 0x1000])).contains("ends after 4096 bytes"));
        assert!(fails(Region { size: u64::MAX, user: 1, ..region }, file(&[0; 0x1000])).contains("no end"));
        let (pipe, _end) = rustix::pipe::pipe().unwrap();
        assert!(fails(region, pipe).contains("cannot be mapped"));
        let two = Shared::map(vec![region; 2], vec![file(&[0; 0x2000]), file(&[0; 0x2000])]);
        assert!(two.err().unwrap().contains("intersect"));
    }
}
