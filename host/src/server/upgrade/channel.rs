//! The connection of a server to the one that takes over from it: messages with descriptors.

use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use fairlift_core::record::Record;
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

#[derive(Debug)]
pub(in crate::server) enum NoMessage {
    /// The other side has ended.
    Ended,
    /// In a line.
    Failed(String),
}

impl From<io::Error> for NoMessage {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Self::Ended,
            _ => Self::Failed(error.to_string()),
        }
    }
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
    pub(in crate::server) fn tell(&self, name: &str, says: Record) -> Result<(), NoMessage> {
        self.send(name, says, &[], &[])
    }

    pub(in crate::server) fn send(
        &self,
        name: &str,
        mut says: Record,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), NoMessage> {
        says.put("message", &name);
        let text = says.to_string();
        let too_long = |_| NoMessage::Failed(format!("a message \"{name}\" is too long"));
        let frame = Frame {
            text: text.len().try_into().map_err(too_long)?,
            bytes: bytes.len().try_into().map_err(too_long)?,
            descriptors: descriptors.len() as u32,
        };
        let frame = frame.encode();
        Frame::decode(&frame).map_err(NoMessage::Failed)?; // as the other side will
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(200))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            beside.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        // They are with the first byte, whatever the kernel takes of the rest.
        let sent = sendmsg(self.0.as_fd(), &[IoSlice::new(&frame)], &mut beside, SendFlags::NOSIGNAL)
            .map_err(io::Error::from)?;
        (&self.0).write_all(&frame[sent..])?;
        (&self.0).write_all(text.as_bytes())?;
        (&self.0).write_all(bytes)?;
        Ok(())
    }

    /// The next message: within that time, and as long as `goes_on` says so.
    pub(in crate::server) fn receive(
        &self,
        until: Instant,
        goes_on: &dyn Fn() -> Result<(), String>,
    ) -> Result<Message, NoMessage> {
        let mut frame = [0; Frame::LEN];
        let mut descriptors = Vec::new();
        let look = || match goes_on() {
            Ok(()) if Instant::now() < until => Ok(()),
            Ok(()) => Err(NoMessage::Failed("it did not answer in time".into())),
            Err(why) => Err(NoMessage::Failed(why)),
        };
        let mut got = 0;
        while got < frame.len() {
            let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(200))];
            let mut beside = RecvAncillaryBuffer::new(&mut space);
            let into = &mut [IoSliceMut::new(&mut frame[got..])];
            match recvmsg(self.0.as_fd(), into, &mut beside, RecvFlags::CMSG_CLOEXEC).map_err(io::Error::from) {
                Ok(received) if received.bytes == 0 => return Err(NoMessage::Ended),
                Ok(received) => got += received.bytes,
                Err(error) if is_to_be_tried_again(&error) => {
                    look()?;
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            for message in beside.drain() {
                if let RecvAncillaryMessage::ScmRights(some) = message {
                    descriptors.extend(some);
                }
            }
        }
        let frame = Frame::decode(&frame).map_err(NoMessage::Failed)?;
        if descriptors.len() != frame.descriptors as usize {
            let (count, of) = (descriptors.len(), frame.descriptors);
            return Err(NoMessage::Failed(format!("{count} of {of} descriptors came (ulimit -n)")));
        }
        let read = |len: u32| {
            let mut bytes = vec![0; len as usize];
            let mut got = 0;
            while got < bytes.len() {
                match (&self.0).read(&mut bytes[got..]) {
                    Ok(0) => return Err(NoMessage::Ended),
                    Ok(count) => got += count,
                    Err(error) if is_to_be_tried_again(&error) => look()?,
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(bytes)
        };
        let text =
            String::from_utf8(read(frame.text)?).map_err(|_| NoMessage::Failed("a message is no text".into()))?;
        let mut says = Record::parse(&text).map_err(|why| NoMessage::Failed(why.to_string()))?;
        let name = says.need("message").map_err(|why| NoMessage::Failed(why.to_string()))?;
        Ok(Message { name, says, bytes: read(frame.bytes)?, descriptors })
    }
}

fn is_to_be_tried_again(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}
