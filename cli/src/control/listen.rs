//! The sockets of the control server, and how much its clients may hold.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use axum::extract::Request;
use fairlift::access::Peer;
use fairlift::config::{Address, SocketMode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::oneshot;

use super::endpoint::{Caller, Endpoint};
use super::history;
use super::place::{ControlAt, Locks};
use super::room::{Place, Room};
use super::routes::{self, App};
use crate::syntax::certificates::Certificate;

/// Connections at once; more are closed at once (http.1). Chosen: a thousand silent ones leave room for one that speaks.
const CONNECTIONS: usize = 1024;
/// Those of one user or address. Chosen: three that take all they can leave room for others.
const EACH: usize = 256;
/// How long a client may take for the head of a request.
const HEAD_TIME: Duration = Duration::from_secs(5);
const HEAD_BYTES: usize = 64 << 10;
const HEAD_FIELDS: usize = 64;

/// A socket that listens, and the clients that it lets in.
pub(crate) struct Opened {
    socket: OwnedFd,
    pub(crate) who: Arc<Endpoint>,
    /// Where it is, as clients name it.
    pub(crate) at: String,
    /// Where it is said to be: the same for a server that takes it over.
    address: String,
    /// Removed at the end.
    file: Option<PathBuf>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            let _ = std::fs::remove_file(file); // somebody may have removed it already
        }
    }
}

impl Opened {
    /// The socket once more, and its name among what a server hands over.
    pub(crate) fn handed_over(&self) -> io::Result<(String, OwnedFd)> {
        Ok((handed_name(&self.address), self.socket.try_clone()?))
    }

    /// The server that had it has ended: its file goes with this one.
    pub(crate) fn is_ours(&mut self) {
        self.file = self.address.strip_prefix("unix:").map(PathBuf::from);
        if self.who.is_unix {
            Address::is_ours(&self.socket);
        }
    }
}

/// The name of a socket of control among descriptors that go over to another server.
pub(crate) fn handed_name(address: &str) -> String {
    format!("control {address}")
}

/// Listens; `taken`: at a socket of a server from which this one takes over.
pub(crate) fn open(at: &ControlAt, taken: Option<OwnedFd>) -> Result<Opened, String> {
    let name = crate::syntax::place::show(&at.address);
    let locks = Locks::read(at)?;
    let has_certificates = locks.tls.is_some();
    let is_unix = matches!(at.address, Address::Unix(_));
    let who = |hosts| Arc::new(Endpoint { is_unix, read_only: at.read_only, hosts, locks: RwLock::new(locks) });
    match &at.address {
        Address::Unix(path) => {
            let file = taken.is_none().then(|| path.clone());
            let socket = taken.map_or_else(|| at.address.listen(at.socket), Ok)?;
            let place = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            Ok(Opened { socket, who: who(None), at: format!("unix:{}", place.display()), address: name, file })
        }
        Address::Tcp(_) => {
            let socket = taken.map_or_else(|| at.address.listen(SocketMode::default()), Ok).map(TcpListener::from)?;
            let bound = socket.local_addr().map_err(|error| error.to_string())?;
            let token = at.token.as_ref().map_or_else(String::new, |file| format!(",token={}", file.display()));
            let hosts = (!has_certificates).then(|| hosts(bound));
            let at = format!("tcp:{bound}{token}");
            Ok(Opened { socket: socket.into(), who: who(hosts), at, address: name, file: None })
        }
        Address::Inherited(_) => Err("an inherited socket is for NBD clients".into()),
    }
}

/// How clients may name a place on this machine, so that no page of another can (http.2).
fn hosts(bound: SocketAddr) -> Vec<String> {
    let port = bound.port();
    vec![bound.to_string(), format!("localhost:{port}"), format!("127.0.0.1:{port}"), format!("[::1]:{port}")]
}

pub(crate) async fn serve(places: Vec<Opened>, app: App, stop: oneshot::Receiver<()>) {
    let router = routes::router(app.clone());
    let room = Room::new(EACH, CONNECTIONS);
    let mut tasks = tokio::task::JoinSet::new();
    // Their files go when this ends, and not before.
    for place in &places {
        let (router, room, who) = (router.clone(), Arc::clone(&room), Arc::clone(&place.who));
        let socket = rustix::io::ioctl_fionbio(&place.socket, true).map_err(io::Error::from);
        match socket.and_then(|()| place.socket.try_clone()) {
            Ok(socket) if who.is_unix => drop(tasks.spawn(accept_unix(socket.into(), who, app.clone(), router, room))),
            Ok(socket) => drop(tasks.spawn(accept_tcp(socket.into(), who, router, room))),
            Err(error) => tracing::error!(%error, at = place.at, "a control socket cannot be served"),
        }
    }
    let (sweeps, looks) = (app.handle.clone(), app.handle);
    tasks.spawn(over_and_over(routes::SWEEP, move || sweeps.sweep()));
    tasks.spawn(over_and_over(history::EVERY, move || app.history.look(&looks)));
    let _ = stop.await; // or its other end is dropped
}

/// Calls the library from a thread that may wait, with a pause before the next call.
async fn over_and_over<T: Send + 'static>(pause: Duration, call: impl Fn() -> T + Clone + Send + 'static) {
    loop {
        let _ = tokio::task::spawn_blocking(call.clone()).await;
        tokio::time::sleep(pause).await;
    }
}

async fn accept_unix(socket: UnixListener, place: Arc<Endpoint>, app: App, router: axum::Router, room: Arc<Room>) {
    let Ok(socket) = tokio::net::UnixListener::from_std(socket) else { return };
    loop {
        let (stream, _) = next(|| socket.accept()).await;
        let peer = stream.peer_cred().ok();
        let named = peer.map(|peer| format!("uid {} (pid {})", peer.uid(), peer.pid().unwrap_or(0)));
        let mut peer = Peer { user: peer.map(|peer| (peer.uid(), peer.gid())), ..Peer::default() };
        app.handle.learn_cgroup(stream.as_fd(), &mut peer);
        let who = Caller { place: Arc::clone(&place), name: named.unwrap_or_else(|| "unknown".into()), peer };
        in_a_task(room.enter(&who.peer), speak(TokioIo::new(stream), who, router.clone()));
    }
}

async fn accept_tcp(socket: TcpListener, place: Arc<Endpoint>, router: axum::Router, room: Arc<Room>) {
    let Ok(socket) = tokio::net::TcpListener::from_std(socket) else { return };
    loop {
        let (stream, from) = next(|| socket.accept()).await;
        let peer = Peer { address: Some(from.ip()), ..Peer::default() };
        let who = Caller { place: Arc::clone(&place), name: from.to_string(), peer };
        in_a_task(room.enter(&who.peer), greet(stream, who, router.clone()));
    }
}

/// The next connection. Out of descriptors or memory, asking again at once would only fail again.
async fn next<T, A: Future<Output = io::Result<T>>>(accept: impl Fn() -> A) -> T {
    loop {
        match accept().await {
            Ok(connection) => return connection,
            Err(error) => tracing::warn!(%error, "a control connection could not be accepted"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Serves a connection in a task of its own, if there is a place for it (http.1).
fn in_a_task(place: Option<Place>, connection: impl Future<Output = ()> + Send + 'static) {
    let Some(place) = place else {
        return tracing::debug!(
            "a control connection was closed: there are {CONNECTIONS}, or {EACH} of its user or address"
        );
    };
    tokio::spawn(async move {
        let _place = place;
        connection.await;
    });
}

/// Has a client of a place with certificates show its own, then serves it.
async fn greet(stream: tokio::net::TcpStream, mut who: Caller, router: axum::Router) {
    let Some(Certificate { config: tls, .. }) = who.place.locks().tls else {
        return speak(TokioIo::new(stream), who, router).await;
    };
    match tokio::time::timeout(HEAD_TIME, tokio_rustls::TlsAcceptor::from(tls).accept(stream)).await {
        Ok(Ok(stream)) => {
            let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
            who.peer.certificate = fairlift::access::Certificate::new(chain);
            who.name += &chain.first().map_or_else(String::new, |shown| format!(" certificate {}", fingerprint(shown)));
            speak(TokioIo::new(stream), who, router).await;
        }
        // Without the port: the log counts what repeats.
        Ok(Err(error)) => {
            let who = who.peer.address.map_or_else(String::new, |address| address.to_string());
            tracing::info!(who, %error, "a control connection was refused");
        }
        Err(_) => tracing::debug!(who = who.name, "a control connection ended: it did not say who it is"),
    }
}

/// As `openssl x509 -fingerprint -sha256` begins it.
fn fingerprint(certificate: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
    let first: Vec<_> = digest.as_ref()[..8].iter().map(|byte| format!("{byte:02X}")).collect();
    first.join(":")
}

async fn speak<I>(io: I, who: Caller, router: axum::Router)
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let service = hyper::service::service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(who.clone());
        let mut router = router.clone();
        async move {
            use tower_service::Service as _;
            router.call(Request::from(request.map(axum::body::Body::new))).await
        }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEAD_FIELDS)
        .serve_connection(io, service)
        .with_upgrades()
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a control connection ended");
    }
}
