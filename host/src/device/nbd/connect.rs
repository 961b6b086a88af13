//! Connecting to a server: all that may block (names, the connection, TLS, the negotiation), with a deadline.
//!
//! The thread that opens the backing does it, and later a thread of the device's own: no worker waits for a server that accepts and then
//! says nothing.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fairlift_core::Errno;
use rustix::net::SendFlags;
use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use super::syntax::{Nbd, NbdAddress};
use crate::wire::nbd::answers::{Answers, Awaited, Sink};
use crate::wire::nbd::greeting::{Greeting, Offer, Progress};
use crate::wire::nbd::{Command, RequestHeader, encode_request};

/// A connection over which requests can be sent.
pub(super) struct Established {
    pub(super) socket: Arc<OwnedFd>,
    pub(super) tls: Option<Box<ClientConnection>>,
    pub(super) offer: Offer,
    /// Its other end is a process of this machine.
    pub(super) is_local: bool,
}

/// A socket that is waited for, and the time by which all has to be done: a server that sends a byte now and then gains nothing. It may be a unix
/// socket, which is read and written alike.
struct Timed {
    socket: TcpStream,
    deadline: Instant,
}

impl Timed {
    fn arm(&self) -> io::Result<()> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { self.set_timeout(Some(left)) }
    }

    /// Waits no longer than this, each time.
    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.set_read_timeout(timeout).and(self.socket.set_write_timeout(timeout))
    }

    /// Appends what the server says next; how many bytes.
    fn hear(&mut self, tls: Option<&mut ClientConnection>, held: &mut Vec<u8>) -> io::Result<usize> {
        let mut bytes = [0; 16 << 10];
        let count = match tls {
            None => self.read(&mut bytes)?,
            Some(tls) => rustls::Stream::new(tls, self).read(&mut bytes)?,
        };
        held.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn send(&mut self, tls: Option<&mut ClientConnection>, out: &mut Vec<u8>) -> Result<(), String> {
        let sent = match tls {
            None => self.write_all(out),
            Some(tls) => {
                let mut stream = rustls::Stream::new(tls, self);
                stream.write_all(out).and_then(|()| stream.flush())
            }
        };
        out.clear();
        sent.map_err(|error| says(&error))
    }
}

impl Read for Timed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            self.arm()?;
            match self.socket.read(into) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }
}

impl Write for Timed {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.arm()?;
        self.socket.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Connects and negotiates, in no more than this time.
///
/// # Errors
/// Why there is no connection, for people.
pub(super) fn connect(nbd: &Nbd, within: Duration) -> Result<Established, String> {
    let deadline = Instant::now() + within;
    let (socket, is_local) = match &nbd.address {
        NbdAddress::Tcp { host, port } => (connect_tcp(host, *port, deadline)?, false),
        NbdAddress::Unix(path) => (connect_unix(path, within)?, true),
    };
    let mut timed = Timed { socket, deadline };
    let mut greeting = Greeting::new(&nbd.export, nbd.tls.is_some());
    let (mut tls, mut held, mut out) = (None::<Box<ClientConnection>>, Vec::new(), Vec::new());
    let offer = loop {
        if timed.hear(tls.as_deref_mut(), &mut held).map_err(|error| says(&error))? == 0 {
            return Err("the server closed the connection during the negotiation".into());
        }
        let (used, step) = greeting.receive(&held, &mut out).map_err(|why| format!("the server {why}"))?;
        held.drain(..used);
        match &step {
            Progress::Ready(offer) if held.is_empty() => break offer.clone(),
            Progress::Ready(_) => return Err("the server answers before it was asked".into()),
            Progress::NeedMore | Progress::StartTls => {}
        }
        timed.send(tls.as_deref_mut(), &mut out)?;
        if step == Progress::StartTls {
            let of = nbd.tls.as_ref().expect("TLS is asked for where it is wanted");
            let name = ServerName::try_from(of.name.clone())
                .map_err(|_| format!("\"{}\" is no name that a certificate can have", of.name))?;
            let config = (of.load.0)(&of.certificates)?;
            let new = ClientConnection::new(config, name).map_err(|error| format!("TLS: {error}"))?;
            let new = tls.insert(Box::new(new));
            new.set_buffer_limit(None); // what is put in is taken out at once
            greeting.tls_established(&mut out);
            timed.send(Some(new), &mut out)?;
        }
    };
    timed.set_timeout(None).map_err(|error| error.to_string())?;
    if !is_local {
        tune(&timed.socket);
    }
    Ok(Established { socket: Arc::new(timed.socket.into()), tls, offer, is_local })
}

fn says(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no answer in time".into(),
        _ => error.to_string(),
    }
}

fn connect_tcp(host: &str, port: u16, deadline: Instant) -> Result<TcpStream, String> {
    let places = (host, port).to_socket_addrs().map_err(|error| format!("{host}: {error}"))?;
    let mut last = format!("{host}: no address");
    for place in places {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err("no answer in time".into());
        }
        match TcpStream::connect_timeout(&place, left) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = format!("{place}: {}", says(&error)),
        }
    }
    Err(last)
}

/// Connects to a unix socket; one whose server does not accept is waited for no longer than this.
fn connect_unix(path: &Path, within: Duration) -> Result<TcpStream, String> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt};
    let connect = || {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(within))?;
        rustix::io::retry_on_intr(|| connect(&socket, &SocketAddrUnix::new(path)?))?;
        Ok(socket.into())
    };
    connect().map_err(|error: rustix::io::Errno| format!("{}: {}", path.display(), says(&error.into())))
}

/// A server that is gone is noticed: nobody asks it anything for long, or the network does not carry what is sent.
fn tune(socket: &TcpStream) {
    use rustix::net::sockopt;
    // Chosen: a dead server is noticed in half a minute, as a disk that hangs (`io_timeout`).
    let set = || {
        sockopt::set_socket_keepalive(socket, true)?;
        sockopt::set_tcp_keepidle(socket, Duration::from_secs(10))?;
        sockopt::set_tcp_keepintvl(socket, Duration::from_secs(5))?;
        sockopt::set_tcp_keepcnt(socket, 4)?;
        sockopt::set_tcp_user_timeout(socket, 30_000)?;
        sockopt::set_tcp_nodelay(socket, true)
    };
    if let Err(error) = set() {
        tracing::debug!(%error, "a connection could not be tuned");
    }
}

impl Established {
    /// Asks for a read, or something that has no payload, and waits for the answer.
    ///
    /// # Errors
    /// There is no answer in time, and the connection is of no use any more.
    pub(super) fn ask(
        &mut self,
        command: Command,
        offset: u64,
        into: &mut [u8],
        within: Duration,
    ) -> io::Result<Result<(), Errno>> {
        let length = into.len() as u64;
        let mut answers = Answers::new(self.offer.structured, None);
        let (_, cookie) = answers.ask(match command {
            Command::Read => Awaited::Read { at: offset, len: length },
            _ => Awaited::Other,
        });
        let mut timed = Timed { socket: self.socket.try_clone()?.into(), deadline: Instant::now() + within };
        let (mut out, mut held) = (Vec::new(), Vec::new());
        encode_request(&mut out, false, &RequestHeader { flags: 0, command, cookie, offset, length });
        timed.send(self.tls.as_deref_mut(), &mut out).map_err(io::Error::other)?;
        let mut ended = OneAnswer { into, result: None };
        while ended.result.is_none() {
            if timed.hear(self.tls.as_deref_mut(), &mut held)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let used = answers.receive(&held, &mut ended).map_err(io::Error::other)?;
            held.drain(..used);
        }
        timed.set_timeout(None)?;
        Ok(ended.result.expect("waited for above"))
    }

    /// Says goodbye, if the socket takes it at once.
    pub(super) fn leave(mut self) {
        let header = RequestHeader { flags: 0, command: Command::Disconnect, cookie: 0, offset: 0, length: 0 };
        let mut out = Vec::new();
        encode_request(&mut out, false, &header);
        if let Some(tls) = &mut self.tls {
            let plain = std::mem::take(&mut out);
            let _ = tls.writer().write_all(&plain);
            tls.send_close_notify();
            while tls.wants_write() && tls.write_tls(&mut out).is_ok() {}
        }
        // Whether it is taken does not matter: the server sees the end of the connection.
        _ = rustix::net::send(&self.socket, &out, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

struct OneAnswer<'a> {
    into: &'a mut [u8],
    result: Option<Result<(), Errno>>,
}

/// The answer lies within the question (answers.1).
impl Sink for OneAnswer<'_> {
    fn data(&mut self, _slot: usize, from: u64, bytes: &[u8]) {
        self.into[from as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn zeroes(&mut self, _slot: usize, from: u64, len: u64) {
        self.into[from as usize..][..len as usize].fill(0);
    }

    fn run(&mut self, _slot: usize, _len: u64, _state: u32) {}

    fn ended(&mut self, _slot: usize, result: Result<(), Errno>) {
        self.result = Some(result);
    }
}
