//! Connecting to a server: all that may block (names, the connection, TLS, the negotiation), with a deadline.
//!
//! The thread that opens the backing does it, and later a thread of the device's own: no worker waits for a server that accepts and then
//! says nothing.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fairlift_core::Errno;
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

/// A socket that is waited for.
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Waits no longer than this, each time.
    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.set_read_timeout(timeout).and(socket.set_write_timeout(timeout)),
            Self::Unix(socket) => socket.set_read_timeout(timeout).and(socket.set_write_timeout(timeout)),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.read(into),
            Self::Unix(socket) => socket.read(into),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.write(from),
            Self::Unix(socket) => socket.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A socket, and the time by which all has to be done: a server that sends a byte now and then gains nothing.
struct Timed {
    socket: Socket,
    deadline: Instant,
}

impl Timed {
    fn arm(&self) -> io::Result<()> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { self.socket.set_timeout(Some(left)) }
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
    let socket = match &nbd.address {
        NbdAddress::Tcp { host, port } => Socket::Tcp(connect_tcp(host, *port, deadline)?),
        NbdAddress::Unix(path) => Socket::Unix(connect_unix(path, within)?),
    };
    let mut timed = Timed { socket, deadline };
    let mut greeting = Greeting::new(&nbd.export, nbd.tls.is_some());
    let (mut tls, mut held, mut out) = (None::<Box<ClientConnection>>, Vec::new(), Vec::new());
    let offer = loop {
        let mut bytes = [0; 4096];
        let count = match &mut tls {
            None => timed.read(&mut bytes),
            Some(tls) => rustls::Stream::new(&mut **tls, &mut timed).read(&mut bytes),
        };
        let count = count.map_err(|error| says(&error))?;
        if count == 0 {
            return Err("the server closed the connection during the negotiation".into());
        }
        held.extend_from_slice(&bytes[..count]);
        let (used, step) = greeting.receive(&held, &mut out).map_err(|why| format!("the server {why}"))?;
        held.drain(..used);
        match &step {
            Progress::Ready(offer) if held.is_empty() => break offer.clone(),
            Progress::Ready(_) => return Err("the server answers before it was asked".into()),
            Progress::NeedMore | Progress::StartTls => {}
        }
        send(&mut timed, tls.as_deref_mut(), &mut out)?;
        if step == Progress::StartTls {
            let of = nbd.tls.as_ref().expect("TLS is asked for where it is wanted");
            let name = ServerName::try_from(of.name.clone())
                .map_err(|_| format!("\"{}\" is no name that a certificate can have", of.name))?;
            let config = (of.load)(&of.certificates)?;
            let new = ClientConnection::new(config, name).map_err(|error| format!("TLS: {error}"))?;
            greeting.tls_established(&mut out);
            let mut new = Box::new(new);
            send(&mut timed, Some(&mut new), &mut out)?;
            tls = Some(new);
        }
    };
    if let Some(tls) = &mut tls {
        tls.set_buffer_limit(None); // what is put in is taken out at once
    }
    timed.socket.set_timeout(None).map_err(|error| error.to_string())?;
    let (socket, is_local) = match timed.socket {
        Socket::Tcp(socket) => {
            tune(&socket);
            (OwnedFd::from(socket), false)
        }
        Socket::Unix(socket) => (OwnedFd::from(socket), true),
    };
    Ok(Established { socket: Arc::new(socket), tls, offer, is_local })
}

fn send(timed: &mut Timed, tls: Option<&mut ClientConnection>, out: &mut Vec<u8>) -> Result<(), String> {
    let sent = match tls {
        None => timed.write_all(out),
        Some(tls) => {
            let mut stream = rustls::Stream::new(tls, timed);
            stream.write_all(out).and_then(|()| stream.flush())
        }
    };
    out.clear();
    sent.map_err(|error| says(&error))
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
fn connect_unix(path: &Path, within: Duration) -> Result<UnixStream, String> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt};
    let connect = || {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(within))?;
        rustix::io::retry_on_intr(|| connect(&socket, &SocketAddrUnix::new(path)?))?;
        Ok(UnixStream::from(socket))
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
    /// Asks something that has no payload, and waits for the answer.
    ///
    /// # Errors
    /// There is no answer in time, or it is an error.
    pub(super) fn flush(&mut self, within: Duration) -> io::Result<()> {
        let header = RequestHeader { flags: 0, command: Command::Flush, cookie: 0, offset: 0, length: 0 };
        let mut ended = OneAnswer { into: &mut [], result: None };
        self.ask(header, Awaited::Other, &mut ended, within)?.map_err(|errno| io::Error::from_raw_os_error(errno.0))
    }

    /// Reads, and waits for the answer.
    ///
    /// # Errors
    /// There is no answer in time, and the connection is of no use any more.
    pub(super) fn read(&mut self, at: u64, into: &mut [u8], within: Duration) -> io::Result<Result<(), Errno>> {
        let length = into.len() as u32;
        let header = RequestHeader { flags: 0, command: Command::Read, cookie: 0, offset: at, length: length.into() };
        let awaited = Awaited::Read { at, len: length.into() };
        self.ask(header, awaited, &mut OneAnswer { into, result: None }, within)
    }

    fn ask(
        &mut self,
        header: RequestHeader,
        awaited: Awaited,
        ended: &mut OneAnswer<'_>,
        within: Duration,
    ) -> io::Result<Result<(), Errno>> {
        let mut answers = Answers::new(self.offer.structured, None);
        let (_, cookie) = answers.ask(awaited);
        let mut timed =
            Timed { socket: Socket::Tcp(self.socket.try_clone()?.into()), deadline: Instant::now() + within };
        let (mut out, mut held) = (Vec::new(), Vec::new());
        encode_request(&mut out, &RequestHeader { cookie, ..header });
        send(&mut timed, self.tls.as_deref_mut(), &mut out).map_err(io::Error::other)?;
        while ended.result.is_none() {
            let mut bytes = [0; 16 << 10];
            let count = match &mut self.tls {
                None => timed.read(&mut bytes)?,
                Some(tls) => rustls::Stream::new(&mut **tls, &mut timed).read(&mut bytes)?,
            };
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            held.extend_from_slice(&bytes[..count]);
            let used = answers.receive(&held, ended).map_err(|violation| io::Error::other(violation.0))?;
            held.drain(..used);
        }
        timed.socket.set_timeout(None)?;
        Ok(ended.result.expect("waited for above"))
    }

    /// Says goodbye, if the socket takes it at once.
    pub(super) fn leave(mut self) {
        let header = RequestHeader { flags: 0, command: Command::Disconnect, cookie: 0, offset: 0, length: 0 };
        let mut out = Vec::new();
        encode_request(&mut out, &header);
        if let Some(tls) = &mut self.tls {
            let plain = std::mem::take(&mut out);
            let _ = tls.writer().write_all(&plain);
            tls.send_close_notify();
            while tls.wants_write() && tls.write_tls(&mut out).is_ok() {}
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the memory is `out`'s. Whether it is taken does not matter: the server sees the end of the connection.
        unsafe { libc::send(self.socket.as_raw_fd(), out.as_ptr().cast(), out.len(), flags) };
    }
}

/// How the one request ended, and the memory of a read.
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
