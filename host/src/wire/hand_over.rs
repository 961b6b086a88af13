//! The messages by which one server hands its clients to another one, as bytes.
//!
//! A message is a frame, a [record](fairlift_core::record) whose part `message` says what it is, bytes that are nobody's but the reader's
//! (what a client has sent and nobody has looked at, or replies that are not sent), and descriptors beside them:
//!
//! ```text
//! "flho" 61 28 1 {"message": "client", "export": "alice", "input": 28, …} 25609513…
//! ```
//!
//! frame.1  A message of the other side is bounded before memory is taken for it.

/// The version that is spoken; another one is refused before anything is given away.
pub const VERSION: u32 = 1;

/// The frame before a message: how long its text is, how many bytes follow, and how many descriptors come with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Bytes of text.
    pub text: u32,
    /// Bytes after it.
    pub bytes: u32,
    /// Descriptors.
    pub descriptors: u32,
}

impl Frame {
    /// Its own length.
    pub const LEN: usize = 16;
    /// The most descriptors of a message: the kernel's limit is 253.
    pub const DESCRIPTORS_MAX: u32 = 200;
    const MAGIC: u32 = u32::from_be_bytes(*b"flho");
    const TEXT_MAX: u32 = 1 << 20;
    /// Chosen: a payload of the longest request, and all replies of a connection.
    const BYTES_MAX: u32 = 3 << 30;

    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut all = [0; Self::LEN];
        let parts = [Self::MAGIC, self.text, self.bytes, self.descriptors];
        all.chunks_exact_mut(4).zip(parts).for_each(|(to, part)| to.copy_from_slice(&part.to_be_bytes()));
        all
    }

    /// From bytes.
    ///
    /// # Errors
    /// The other side speaks something else, or asks for more than is taken (frame.1).
    pub fn decode(bytes: &[u8; Self::LEN]) -> Result<Self, String> {
        let part = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if part(0) != Self::MAGIC {
            return Err("the other side does not speak the protocol of a hand-over".into());
        }
        let frame = Self { text: part(4), bytes: part(8), descriptors: part(12) };
        if frame.text > Self::TEXT_MAX || frame.bytes > Self::BYTES_MAX || frame.descriptors > Self::DESCRIPTORS_MAX {
            return Err(format!("a message is larger than any can be: {frame:?}"));
        }
        Ok(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// frame.1
    #[test]
    fn a_frame_that_is_none_or_asks_for_too_much_is_refused() {
        let frame = Frame { text: 7, bytes: 1 << 20, descriptors: 3 };
        assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
        for wrong in
            [Frame { text: u32::MAX, ..frame }, Frame { bytes: u32::MAX, ..frame }, Frame { descriptors: 201, ..frame }]
        {
            assert!(Frame::decode(&wrong.encode()).is_err(), "{wrong:?}");
        }
        assert!(Frame::decode(b"HTTP/1.1 200 OK\r").is_err());
    }
}
