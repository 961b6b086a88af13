//! The socket of a front-end: whole messages, with the descriptors that came beside them.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

use super::proto::{DESCRIPTORS_MAX, HEADER, Header};

/// The socket, and the part of a message that has come.
pub(super) struct Socket {
    fd: OwnedFd,
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

pub(super) struct Message {
    pub(super) header: Header,
    pub(super) payload: Vec<u8>,
    pub(super) descriptors: Vec<OwnedFd>,
}

#[derive(Debug)]
pub(super) enum NoMessage {
    NotYet,
    /// The front-end has closed its end.
    Closed,
    /// The socket failed, or the bytes are no message.
    Broken(String),
}

impl Socket {
    pub(super) const fn new(fd: OwnedFd) -> Self {
        Self { fd, bytes: Vec::new(), descriptors: Vec::new() }
    }

    /// A socket that another server has handed over, with the part of a message received there.
    pub(super) const fn resume(fd: OwnedFd, bytes: Vec<u8>, descriptors: Vec<OwnedFd>) -> Self {
        Self { fd, bytes, descriptors }
    }

    /// The part of a message that has come, and the descriptors beside it.
    pub(super) fn begun(&self) -> (&[u8], &[OwnedFd]) {
        (&self.bytes, &self.descriptors)
    }

    /// The next message, if it is there.
    pub(super) fn receive(&mut self) -> Result<Message, NoMessage> {
        loop {
            let header = match self.bytes.first_chunk() {
                Some(bytes) => Some(Header::read(bytes).map_err(NoMessage::Broken)?),
                None => None,
            };
            let wanted = HEADER + header.map_or(0, |header| header.size);
            match header {
                Some(header) if self.bytes.len() == wanted => {
                    let payload = self.bytes.split_off(HEADER);
                    self.bytes.clear();
                    return Ok(Message { header, payload, descriptors: std::mem::take(&mut self.descriptors) });
                }
                // No more than this message: descriptors beside the next one belong to that.
                _ => self.receive_up_to(wanted)?,
            }
        }
    }

    fn receive_up_to(&mut self, wanted: usize) -> Result<(), NoMessage> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let before = self.bytes.len();
        self.bytes.resize(wanted, 0);
        let into = &mut [IoSliceMut::new(&mut self.bytes[before..])];
        let result = recvmsg(&self.fd, into, &mut beside, RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC);
        self.bytes.truncate(before + result.as_ref().map_or(0, |received| received.bytes));
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        match result {
            // No message has that many, whatever they are.
            Ok(_) if self.descriptors.len() > DESCRIPTORS_MAX => Err(NoMessage::Closed),
            Ok(received) if received.bytes == 0 => Err(NoMessage::Closed),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(Errno::AGAIN) => Err(NoMessage::NotYet),
            Err(error) => Err(NoMessage::Broken(format!("its socket failed: {error}"))),
        }
    }

    /// Sends an answer, with a descriptor beside it.
    ///
    /// # Errors
    /// It could not be sent at once: a front-end waits for each answer, and so has room for it.
    pub(super) fn send(&self, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        let descriptors: Vec<_> = descriptor.into_iter().collect();
        if !descriptors.is_empty() {
            beside.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        let sent = sendmsg(&self.fd, &[IoSlice::new(bytes)], &mut beside, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
        if sent == bytes.len() { Ok(()) } else { Err(Errno::AGAIN) }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_message_comes_in_pieces_and_the_next_one_is_not_mixed_with_it() {
        let (mut client, server) = UnixStream::pair().unwrap();
        let mut socket = Socket::new(server.into());
        assert!(matches!(socket.receive(), Err(NoMessage::NotYet)));
        let message: Vec<u8> = [2u32, 1, 8, 7, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
        client.write_all(&message[..13]).unwrap();
        assert!(matches!(socket.receive(), Err(NoMessage::NotYet)));
        client.write_all(&message[13..]).unwrap();
        client.write_all(&message).unwrap();
        for _ in 0..2 {
            let Message { header, payload, descriptors } = socket.receive().unwrap();
            assert_eq!((header.code, payload.as_slice(), descriptors.len()), (2, &message[12..], 0));
        }
        drop(client);
        assert!(matches!(socket.receive(), Err(NoMessage::Closed)));
    }

    #[test]
    fn descriptors_stay_with_their_message() {
        let (client, server) = UnixStream::pair().unwrap();
        let (client, mut socket) = (Socket::new(client.into()), Socket::new(server.into()));
        let message: Vec<u8> = [13u32, 1, 8, 0, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let (pipe, _end) = rustix::pipe::pipe().unwrap();
        client.send(&message, None).unwrap();
        client.send(&message, Some(pipe.as_fd())).unwrap();
        let counts: Vec<_> = (0..2).map(|_| socket.receive().unwrap().descriptors.len()).collect();
        assert_eq!(counts, [0, 1]);
    }
}
