//! The connection of a server to the one that takes over from it: messages with descriptors.

use std::io::{self, IoSlice, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use fairlift_core::record::{Record, Unreadable};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

use super::LOOK;
use crate::wire::hand_over::Frame;

pub(in crate::server) struct Message {
    /// Its name: the part `message`.
    pub(in crate::server) name: String,
    pub(in crate::server) says: Record,
    pub(in crate::server) bytes: Vec<u8>,
    pub(in crate::server) descriptors: Vec<OwnedFd>,
}

pub(in crate::server) struct Channel(UnixStream);

impl Channel {
    pub(in crate::server) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_write_timeout(Some(super::PATIENCE))?;
        Ok(Self(stream))
    }

    /// A message that is its name alone, or with the content of `says`.
    pub(in crate::server) fn tell(&self, name: &str, says: Record) -> io::Result<()> {
        self.send(name, says, &[], &[])
    }

    pub(in crate::server) fn send(
        &self,
        name: &str,
        mut says: Record,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        says.put("message", &name);
        let text = says.to_string();
        let too_long = |_| io::Error::other(format!("a message \"{name}\" is too long"));
        let frame = Frame {
            text: text.len().try_into().map_err(too_long)?,
            bytes: bytes.len().try_into().map_err(too_long)?,
            descriptors: descriptors.len() as u32,
        };
        let frame = frame.encode();
        Frame::decode(&frame).map_err(io::Error::other)?; // as the other side will
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(200))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            beside.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        // They are with the first byte, whatever the kernel takes of the rest.
        let sent = sendmsg(self.0.as_fd(), &[IoSlice::new(&frame)], &mut beside, SendFlags::NOSIGNAL)?;
        (&self.0).write_all(&frame[sent..])?;
        (&self.0).write_all(text.as_bytes())?;
        (&self.0).write_all(bytes)
    }

    /// The next message: within that time, and as long as `goes_on` says so.
    pub(in crate::server) fn receive(
        &self,
        until: Instant,
        goes_on: &dyn Fn() -> Result<(), String>,
    ) -> io::Result<Message> {
        let mut descriptors = Vec::new();
        let mut read = |len: usize| {
            let (mut bytes, mut got) = (vec![0; len], 0);
            while got < len {
                let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(200))];
                let mut beside = RecvAncillaryBuffer::new(&mut space);
                let into = &mut [IoSliceMut::new(&mut bytes[got..])];
                match recvmsg(self.0.as_fd(), into, &mut beside, RecvFlags::CMSG_CLOEXEC) {
                    Ok(received) if received.bytes == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(received) => got += received.bytes,
                    Err(Errno::AGAIN | Errno::INTR) => {
                        goes_on().map_err(io::Error::other)?;
                        if Instant::now() >= until {
                            return Err(io::Error::other("it did not answer in time"));
                        }
                    }
                    Err(error) => return Err(io::Error::from(error)),
                }
                for message in beside.drain() {
                    if let RecvAncillaryMessage::ScmRights(some) = message {
                        descriptors.extend(some);
                    }
                }
            }
            Ok(bytes)
        };
        let frame = read(Frame::LEN)?.try_into().expect("it is as long as was asked");
        let frame = Frame::decode(&frame).map_err(io::Error::other)?;
        let text = read(frame.text as usize)?;
        let text = String::from_utf8(text).map_err(|_| io::Error::other("a message is no text"))?;
        let bytes = read(frame.bytes as usize)?;
        if descriptors.len() != frame.descriptors as usize {
            let (count, of) = (descriptors.len(), frame.descriptors);
            return Err(io::Error::other(format!("{count} of {of} descriptors came (ulimit -n)")));
        }
        let unreadable = |why: Unreadable| io::Error::other(why.to_string());
        let mut says = Record::parse(&text).map_err(unreadable)?;
        let name = says.need("message").map_err(unreadable)?;
        Ok(Message { name, says, bytes, descriptors })
    }
}

/// Whether the other side has ended.
pub(in crate::server) fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}
