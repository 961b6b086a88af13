//! Messages of vhost-user: bytes to requests, and answers to bytes. Pure: no socket, no memory of a guest.
//!
//! A message is a header of 12 bytes (code, flags, size) and `size` bytes of payload, in the machine's own byte order; descriptors travel
//! beside it. The `vhost` crate says what the payloads look like. Its own connections block their thread until a message is whole, which a
//! worker cannot.
//!
//! message.1  A message that is not understood ends the connection: an answer to it would be a guess.

use vhost::vhost_user::message::{
    BackendReq, FrontendReq, VhostUserConfig, VhostUserInflight, VhostUserMemory, VhostUserMemoryRegion,
    VhostUserMsgValidator, VhostUserVringAddr, VhostUserVringState,
};
use vm_memory::ByteValued;

use super::memory::HOW_TO_SHARE;

/// The length of a header.
pub const HEADER: usize = 12;
/// The longest payload that is taken: the specification's largest message is a tenth of that.
pub const PAYLOAD_MAX: usize = 4096;
/// The most descriptors of one message.
pub const DESCRIPTORS_MAX: usize = 32;

const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;
/// In the number of a ring that comes with SET_VRING_KICK and the like: there is no descriptor.
const NO_DESCRIPTOR: u64 = 1 << 8;

/// The start of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The request, as a number.
    pub code: u32,
    /// The length of the payload that follows.
    pub size: usize,
    /// An answer is wanted though this request has none of its own.
    pub need_reply: bool,
}

/// A region of a guest's memory, as its virtual machine monitor shares it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// Its address in the guest.
    pub guest: u64,
    /// Its length.
    pub size: u64,
    /// Its address in the monitor, by which the monitor says where rings are.
    pub user: u64,
    /// Where in the shared file it starts.
    pub offset: u64,
}

/// The request of a front-end; SetBackendRequests brings a socket by which the device speaks first.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names are the protocol's")]
pub enum Request {
    GetFeatures,
    SetFeatures(u64),
    SetOwner,
    ResetOwner,
    SetMemTable(Vec<Region>),
    SetVringNum { ring: u32, size: u32 },
    SetVringAddr { ring: u32, descriptors: u64, available: u64, used: u64 },
    SetVringBase { ring: u32, base: u32 },
    GetVringBase { ring: u32 },
    SetVringKick { ring: u32, with_descriptor: bool },
    SetVringCall { ring: u32, with_descriptor: bool },
    SetVringErr { ring: u32, with_descriptor: bool },
    GetProtocolFeatures,
    SetProtocolFeatures(u64),
    GetQueueNum,
    SetVringEnable { ring: u32, on: bool },
    GetConfig { offset: u32, size: u32, flags: u32 },
    SetConfig { offset: u32, data: Vec<u8> },
    GetInflight { queues: u16, size: u16 },
    SetInflight { offset: u64, queues: u16, size: u16 },
    SetBackendRequests,
}

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    /// It is none (message.1).
    pub fn read(bytes: &[u8; HEADER]) -> Result<Self, String> {
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let (code, flags, size) = (word(0), word(4), word(8));
        if flags & 3 != VERSION || flags & REPLY != 0 {
            return Err(format!("a message with flags {flags:#x}: only version {VERSION} is spoken here"));
        }
        if size as usize > PAYLOAD_MAX {
            return Err(format!("message {code} of {size} bytes: none is longer than {PAYLOAD_MAX}"));
        }
        Ok(Self { code, size: size as usize, need_reply: flags & NEED_REPLY != 0 })
    }
}

impl Request {
    /// Reads a request, with a number of descriptors beside it.
    ///
    /// # Errors
    /// It makes no sense (message.1).
    pub fn read(header: &Header, payload: &[u8], descriptors: usize) -> Result<Self, String> {
        let unknown = || format!("message {}, which is none of a block device's", header.code);
        let code = FrontendReq::try_from(header.code).map_err(|_| unknown())?;
        let payload = Payload { code, bytes: payload };
        let request = match code {
            FrontendReq::GET_FEATURES => payload.empty(Self::GetFeatures),
            FrontendReq::SET_FEATURES => payload.only().map(Self::SetFeatures),
            FrontendReq::SET_OWNER => payload.empty(Self::SetOwner),
            FrontendReq::RESET_OWNER => payload.empty(Self::ResetOwner),
            FrontendReq::SET_MEM_TABLE => payload.memory().map(Self::SetMemTable),
            FrontendReq::SET_VRING_NUM => payload.ring(|ring, size| Self::SetVringNum { ring, size }),
            FrontendReq::SET_VRING_ADDR => payload.addresses(),
            FrontendReq::SET_VRING_BASE => payload.ring(|ring, base| Self::SetVringBase { ring, base }),
            FrontendReq::GET_VRING_BASE => payload.ring(|ring, _| Self::GetVringBase { ring }),
            FrontendReq::SET_VRING_KICK => {
                payload.event(|ring, with_descriptor| Self::SetVringKick { ring, with_descriptor })
            }
            FrontendReq::SET_VRING_CALL => {
                payload.event(|ring, with_descriptor| Self::SetVringCall { ring, with_descriptor })
            }
            FrontendReq::SET_VRING_ERR => {
                payload.event(|ring, with_descriptor| Self::SetVringErr { ring, with_descriptor })
            }
            FrontendReq::GET_PROTOCOL_FEATURES => payload.empty(Self::GetProtocolFeatures),
            FrontendReq::SET_PROTOCOL_FEATURES => payload.only().map(Self::SetProtocolFeatures),
            FrontendReq::GET_QUEUE_NUM => payload.empty(Self::GetQueueNum),
            FrontendReq::SET_VRING_ENABLE => payload.ring(|ring, on| Self::SetVringEnable { ring, on: on != 0 }),
            FrontendReq::GET_CONFIG => payload
                .config()
                .map(|(VhostUserConfig { offset, size, flags }, _)| Self::GetConfig { offset, size, flags }),
            FrontendReq::SET_CONFIG => {
                payload.config().map(|(config, data)| Self::SetConfig { offset: config.offset, data: data.to_vec() })
            }
            FrontendReq::GET_INFLIGHT_FD => {
                payload.inflight().map(|(_, queues, size)| Self::GetInflight { queues, size })
            }
            FrontendReq::SET_INFLIGHT_FD => {
                payload.inflight().map(|(offset, queues, size)| Self::SetInflight { offset, queues, size })
            }
            FrontendReq::SET_BACKEND_REQ_FD => payload.empty(Self::SetBackendRequests),
            _ => return Err(unknown()),
        }?;
        let wanted = request.descriptors();
        if descriptors != wanted {
            return Err(format!("{code:?} with {descriptors} descriptors, where {wanted} belong to it"));
        }
        Ok(request)
    }

    fn descriptors(&self) -> usize {
        match self {
            Self::SetMemTable(regions) => regions.len(),
            Self::SetVringKick { with_descriptor, .. }
            | Self::SetVringCall { with_descriptor, .. }
            | Self::SetVringErr { with_descriptor, .. } => usize::from(*with_descriptor),
            Self::SetInflight { .. } | Self::SetBackendRequests => 1,
            _ => 0,
        }
    }
}

/// The attachments of a message.
struct Payload<'a> {
    code: FrontendReq,
    bytes: &'a [u8],
}

impl Payload<'_> {
    fn misfit(&self) -> String {
        format!("{:?} with {} bytes, which does not fit it", self.code, self.bytes.len())
    }

    /// A value of the protocol, at the start of the bytes.
    fn first<T: ByteValued + Default>(&self) -> Result<T, String> {
        take(self.bytes).ok_or_else(|| self.misfit())
    }

    /// A value of the protocol, and no more.
    fn only<T: ByteValued + Default>(&self) -> Result<T, String> {
        if self.bytes.len() == size_of::<T>() { self.first() } else { Err(self.misfit()) }
    }

    fn empty(&self, request: Request) -> Result<Request, String> {
        if self.bytes.is_empty() { Ok(request) } else { Err(self.misfit()) }
    }

    /// A ring, and a number.
    fn ring(&self, to: impl FnOnce(u32, u32) -> Request) -> Result<Request, String> {
        let VhostUserVringState { index, num } = self.only()?;
        Ok(to(index, num))
    }

    /// A ring, and whether there is a descriptor.
    fn event(&self, to: impl FnOnce(u32, bool) -> Request) -> Result<Request, String> {
        let value: u64 = self.only()?;
        Ok(to((value & 0xff) as u32, value & NO_DESCRIPTOR == 0))
    }

    fn memory(&self) -> Result<Vec<Region>, String> {
        let table: VhostUserMemory = self.first()?;
        if !table.is_valid() {
            return Err(format!("{:?} with no region: the guest's memory is not shared ({HOW_TO_SHARE})", self.code));
        }
        let regions = &self.bytes[size_of::<VhostUserMemory>()..];
        let one = size_of::<VhostUserMemoryRegion>();
        if regions.len() != table.num_regions as usize * one {
            return Err(self.misfit());
        }
        regions.chunks_exact(one).map(region).collect::<Option<_>>().ok_or_else(|| self.misfit())
    }

    fn addresses(&self) -> Result<Request, String> {
        let address: VhostUserVringAddr = self.only()?;
        if !address.is_valid() {
            return Err(format!("{:?} with addresses that are not aligned, or undefined flags", self.code));
        }
        let VhostUserVringAddr { index: ring, descriptor: descriptors, available, used, .. } = address;
        Ok(Request::SetVringAddr { ring, descriptors, available, used })
    }

    /// A part of the device's configuration, and its bytes.
    fn config(&self) -> Result<(VhostUserConfig, &[u8]), String> {
        let config: VhostUserConfig = self.first()?;
        let (data, size) = (&self.bytes[size_of_val(&config)..], config.size);
        if !config.is_valid() || size as usize != data.len() {
            return Err(self.misfit());
        }
        Ok((config, data))
    }

    /// Tables of requests under way: where, for how many queues of which size.
    fn inflight(&self) -> Result<(u64, u16, u16), String> {
        // Front-ends send it with or without the padding at its end.
        let mut whole = [0; size_of::<VhostUserInflight>()];
        if !(20..=whole.len()).contains(&self.bytes.len()) {
            return Err(self.misfit());
        }
        whole[..self.bytes.len()].copy_from_slice(self.bytes);
        let table: VhostUserInflight = take(&whole).ok_or_else(|| self.misfit())?;
        if !table.is_valid() {
            return Err(format!("{:?} for no queue", self.code));
        }
        Ok((table.mmap_offset, table.num_queues, table.queue_size))
    }
}

/// A value of the protocol at the start of some bytes.
fn take<T: ByteValued + Default>(bytes: &[u8]) -> Option<T> {
    let mut value = T::default();
    value.as_mut_slice().copy_from_slice(bytes.get(..size_of::<T>())?);
    Some(value)
}

fn region(bytes: &[u8]) -> Option<Region> {
    let VhostUserMemoryRegion { guest_phys_addr: guest, memory_size: size, user_addr: user, mmap_offset: offset } =
        take(bytes)?;
    Some(Region { guest, size, user, offset })
}

/// An answer to a request, whole.
#[must_use]
pub fn reply(code: u32, payload: &[u8]) -> Vec<u8> {
    let words = [code, VERSION | REPLY, payload.len() as u32];
    words.iter().flat_map(|word| word.to_ne_bytes()).chain(payload.iter().copied()).collect()
}

/// A message to the front-end that nobody asked for: the configuration has changed.
#[must_use]
pub fn config_changed() -> Vec<u8> {
    [BackendReq::CONFIG_CHANGE_MSG.into(), VERSION, 0u32].iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// The payload of an answer that is a number.
#[must_use]
pub fn number(value: u64) -> Vec<u8> {
    value.to_ne_bytes().to_vec()
}

/// The payload of the answer to GET_VRING_BASE.
#[must_use]
pub fn base(ring: u32, base: u16) -> Vec<u8> {
    VhostUserVringState::new(ring, base.into()).as_slice().to_vec()
}

/// The payload of the answer to GET_INFLIGHT_FD.
#[must_use]
pub fn inflight(bytes: u64, queues: u16, size: u16) -> Vec<u8> {
    let mut payload = [0; size_of::<VhostUserInflight>()];
    payload[..8].copy_from_slice(&bytes.to_ne_bytes());
    payload[16..18].copy_from_slice(&queues.to_ne_bytes());
    payload[18..20].copy_from_slice(&size.to_ne_bytes());
    payload.to_vec()
}

/// The payload of the answer to GET_CONFIG: what was asked for, from the device's configuration, zeroes beyond its end.
#[must_use]
pub fn config(offset: u32, size: u32, flags: u32, space: &[u8]) -> Vec<u8> {
    let head = [offset, size, flags];
    let part = space.iter().copied().skip(offset as usize).chain(std::iter::repeat(0)).take(size as usize);
    head.iter().flat_map(|word| word.to_ne_bytes()).chain(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(code: u32, flags: u32, size: u32) -> Result<Header, String> {
        let bytes: Vec<u8> = [code, flags, size].iter().flat_map(|word| word.to_ne_bytes()).collect();
        Header::read(&bytes.try_into().unwrap())
    }

    fn read(code: u32, payload: &[u8], descriptors: usize) -> Result<Request, String> {
        let header = header(code, 1, payload.len() as u32).unwrap();
        Request::read(&header, payload, descriptors)
    }

    #[test]
    fn only_version_1_is_spoken_and_answers_are_not_requests() {
        assert_eq!(header(1, 9, 0), Ok(Header { code: 1, size: 0, need_reply: true }));
        for flags in [0, 2, 3, 5] {
            assert_eq!(
                header(1, flags, 0),
                Err(format!("a message with flags {flags:#x}: only version 1 is spoken here"))
            );
        }
        assert!(header(5, 1, 4097).is_err_and(|why| why.starts_with("message 5 of 4097 bytes")));
    }

    #[test]
    fn a_memory_table_has_as_many_descriptors_as_regions() {
        let region = [0x1000u64, 0x2000, 0x7000, 0x10];
        let mut payload = [1u32, 0].iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
        payload.extend(region.iter().flat_map(|word| word.to_ne_bytes()));
        let wanted = Region { guest: 0x1000, size: 0x2000, user: 0x7000, offset: 0x10 };
        assert_eq!(read(5, &payload, 1), Ok(Request::SetMemTable(vec![wanted])));
        let wrong = |payload, descriptors| read(5, payload, descriptors).unwrap_err();
        assert_eq!(wrong(&payload, 0), "SET_MEM_TABLE with 0 descriptors, where 1 belong to it");
        assert_eq!(wrong(&payload[..39], 1), "SET_MEM_TABLE with 39 bytes, which does not fit it");
        let none = wrong(&[0; 8], 0);
        assert!(none.contains("share=on"), "it says what would be right: {none}");
    }

    #[test]
    fn an_event_may_come_without_its_descriptor() {
        let request = |value: u64, descriptors| read(12, &value.to_ne_bytes(), descriptors);
        assert_eq!(request(3, 1), Ok(Request::SetVringKick { ring: 3, with_descriptor: true }));
        assert_eq!(request(3 | 1 << 8, 0), Ok(Request::SetVringKick { ring: 3, with_descriptor: false }));
        assert!(request(3, 2).is_err_and(|why| why.starts_with("SET_VRING_KICK with 2 descriptors")));
        assert!(read(1, &[], 1).is_err_and(|why| why.starts_with("GET_FEATURES with 1 descriptors")));
    }

    #[test]
    fn a_part_of_the_configuration_is_told_with_zeroes_beyond_its_end() {
        assert_eq!(config(2, 4, 0, &[1, 2, 3, 4])[12..], [3, 4, 0, 0]);
        assert_eq!(config(9, 2, 0, &[1])[12..], [0, 0]);
    }

    #[test]
    fn an_in_flight_table_comes_with_or_without_its_padding() {
        let payload = inflight(4096, 2, 128);
        let wanted = Request::SetInflight { offset: 0, queues: 2, size: 128 };
        for len in [20, 24] {
            assert_eq!(read(32, &payload[..len], 1), Ok(wanted.clone()));
        }
        assert!(read(32, &payload[..19], 1).is_err_and(|why| why.starts_with("SET_INFLIGHT_FD with 19 bytes")));
    }
}
