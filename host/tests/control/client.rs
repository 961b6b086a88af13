//! Clients, and what they leave behind.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const BLOCK: u64 = 4096;

/// A connection that was greeted and has chosen nothing yet.
pub(crate) fn greeted(path: &Path) -> std::io::Result<UnixStream> {
    let mut socket = UnixStream::connect(path)?;
    socket.set_read_timeout(Some(Duration::from_secs(30)))?;
    socket.read_exact(&mut [0; 18])?;
    socket.write_all(&3u32.to_be_bytes())?;
    Ok(socket)
}

/// The exports that are listed, with their descriptions.
pub(crate) fn listed(path: &Path) -> BTreeMap<String, String> {
    let mut socket = greeted(path).unwrap();
    socket.write_all(b"IHAVEOPT\0\0\0\x03\0\0\0\0").unwrap();
    let mut all = BTreeMap::new();
    loop {
        let mut head = [0; 20];
        socket.read_exact(&mut head).unwrap();
        let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
        let mut data = vec![0; number(16) as usize];
        socket.read_exact(&mut data).unwrap();
        if number(12) == 1 {
            return all;
        }
        assert_eq!(number(12), 2, "an answer that is no export");
        let (length, text) = data.split_at(4);
        let (name, says) = text.split_at(u32::from_be_bytes(length.try_into().unwrap()) as usize);
        all.insert(String::from_utf8_lossy(name).into_owned(), String::from_utf8_lossy(says).into_owned());
    }
}

/// A client that writes what nobody else writes, and reads it back.
pub(crate) struct Client {
    pub(crate) socket: UnixStream,
    pub(crate) cookie: u64,
    pub(crate) size: u64,
    /// What each block of its own holds.
    pub(crate) written: Vec<u64>,
    /// Its blocks start here.
    pub(crate) first: u64,
    pub(crate) read_only: bool,
}

impl Client {
    /// `None`: there is no such export.
    pub(crate) fn connect(path: &Path, export: &str, first: u64, blocks: u64) -> Option<Self> {
        let mut socket = greeted(path).unwrap();
        let mut option = b"IHAVEOPT\0\0\0\x01".to_vec();
        option.extend((export.len() as u32).to_be_bytes());
        option.extend(export.as_bytes());
        socket.write_all(&option).unwrap();
        let mut head = [0; 10];
        socket.read_exact(&mut head).ok()?;
        let size = u64::from_be_bytes(head[..8].try_into().unwrap());
        let read_only = head[9] & 2 != 0;
        Some(Self { socket, cookie: 0, size, written: vec![0; blocks as usize], first, read_only })
    }

    pub(crate) fn ask(&mut self, out: &mut Vec<u8>, command: u16, block: u64) {
        out.extend(0x2560_9513_u32.to_be_bytes());
        out.extend(0u16.to_be_bytes());
        out.extend(command.to_be_bytes());
        out.extend(self.cookie.to_be_bytes());
        out.extend(if command == 3 { 0 } else { (self.first + block) * BLOCK }.to_be_bytes());
        out.extend(if command == 3 { 0 } else { BLOCK as u32 }.to_be_bytes());
        self.cookie += 1;
    }

    pub(crate) fn content(&self, block: u64) -> Vec<u8> {
        let seed = self.written[block as usize];
        let word = |n: u64| if seed == 0 { 0 } else { (seed << 32 | (self.first + block)).wrapping_mul(2 * n + 1) };
        (0..BLOCK / 8).flat_map(|n| word(n).to_be_bytes()).collect()
    }

    /// The error of the next reply, and its cookie; `None`: the server has closed the connection.
    pub(crate) fn reply(&mut self) -> Option<(u32, u64)> {
        let mut head = [0; 16];
        self.socket.read_exact(&mut head).ok()?;
        let error = u32::from_be_bytes(head[4..8].try_into().unwrap());
        Some((error, u64::from_be_bytes(head[8..].try_into().unwrap())))
    }

    /// Writes some blocks and flushes, then reads them back; whether the server was there all the while.
    pub(crate) fn round(&mut self, seed: u64) -> bool {
        const AT_ONCE: u64 = 8;
        let blocks = self.written.len() as u64;
        let first = seed % (blocks - AT_ONCE + 1);
        let mut out = Vec::new();
        for block in first..first + AT_ONCE {
            self.written[block as usize] += 1;
            self.ask(&mut out, 1, block);
            out.extend(self.content(block));
        }
        self.ask(&mut out, 3, 0);
        if self.socket.write_all(&out).is_err() {
            return false;
        }
        for _ in 0..=AT_ONCE {
            match self.reply() {
                Some((error, _)) => assert_eq!(error, 0, "a write failed"),
                None => return false,
            }
        }
        let (base, mut out) = (self.cookie, Vec::new());
        for block in first..first + AT_ONCE {
            self.ask(&mut out, 0, block);
        }
        if self.socket.write_all(&out).is_err() {
            return false;
        }
        for _ in 0..AT_ONCE {
            let Some((error, cookie)) = self.reply() else { return false };
            assert_eq!(error, 0, "a read failed");
            let mut bytes = vec![0; BLOCK as usize];
            if self.socket.read_exact(&mut bytes).is_err() {
                return false;
            }
            assert!(bytes == self.content(first + cookie - base), "a client reads what it wrote");
        }
        true
    }

    /// The error that a write of a block is answered with.
    pub(crate) fn write(&mut self, block: u64) -> u32 {
        let mut out = Vec::new();
        self.ask(&mut out, 1, block);
        out.extend([7; BLOCK as usize]);
        self.socket.write_all(&out).unwrap();
        self.reply().expect("it is answered").0
    }

    /// Reads the last block.
    pub(crate) fn read_end(&mut self) {
        let mut out = Vec::new();
        self.ask(&mut out, 0, self.size / BLOCK - 1);
        self.socket.write_all(&out).unwrap();
        assert_eq!(self.reply().expect("it is answered").0, 0);
        self.socket.read_exact(&mut [0; BLOCK as usize]).unwrap();
    }

    pub(crate) fn is_served(&mut self) -> bool {
        let mut out = Vec::new();
        self.ask(&mut out, 3, 0);
        self.socket.write_all(&out).is_ok() && self.reply().is_some()
    }
}

pub(crate) fn next(random: &mut u64) -> u64 {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *random >> 33
}

pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}
