//! Where the control server is, who may speak to it, and how much they may hold.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use fairlift::config::{Address, Config};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::{Semaphore, oneshot};

use super::routes::{self, App};
use crate::words::place;

/// Connections at once; more are closed at once (http.1). Chosen: a thousand silent ones leave room for one that speaks.
const CONNECTIONS: usize = 1024;
/// How long a client may take for the head of a request.
const HEAD_TIME: Duration = Duration::from_secs(5);
/// Bytes and fields of a head.
const HEAD_BYTES: usize = 64 << 10;
const HEAD_FIELDS: usize = 64;

/// A place where the control server is, as people write it.
#[derive(Clone, Debug)]
pub(crate) struct ControlAt {
    pub(crate) address: Address,
    /// Of a unix socket.
    pub(crate) mode: u32,
    pub(crate) owner: Option<String>,
    pub(crate) group: Option<String>,
    /// Whether only looking is allowed there.
    pub(crate) read_only: bool,
    /// The file whose first line clients must know; a TCP address needs one.
    pub(crate) token: Option<PathBuf>,
}

/// What `--control` takes; `None`: no control server.
#[derive(Clone, Debug)]
pub(crate) struct ControlPlace(pub(crate) Option<ControlAt>);

/// Reads `off`, or a place.
pub(crate) fn parse_control(text: &str) -> Result<ControlPlace, String> {
    if text == "off" { Ok(ControlPlace(None)) } else { parse_place(text).map(|at| ControlPlace(Some(at))) }
}

/// Reads `unix:PATH[,mode=0660][,owner=NAME][,group=NAME][,read_only]` or `tcp:HOST:PORT,token=FILE[,read_only]`.
pub(crate) fn parse_place(text: &str) -> Result<ControlAt, String> {
    let mut rest = text;
    let mut at = ControlAt {
        address: Address::Unix(PathBuf::new()),
        mode: 0o600,
        owner: None,
        group: None,
        read_only: false,
        token: None,
    };
    // From the end, for a path may contain commas.
    while let Some((before, option)) = rest.rsplit_once(',') {
        match option.split_once('=').unwrap_or((option, "")) {
            ("mode", mode) => {
                let number = u32::from_str_radix(mode, 8).ok().filter(|mode| *mode <= 0o777);
                at.mode = number.ok_or_else(|| format!("mode takes an octal number such as 0660, not \"{mode}\""))?;
            }
            ("owner", name) => at.owner = Some(name.into()),
            ("group", name) => at.group = Some(name.into()),
            ("read_only", "") => at.read_only = true,
            ("token", file) => at.token = Some(file.into()),
            _ => break,
        }
        rest = before;
    }
    at.address = place::parse(rest)?;
    match &at.address {
        Address::Tcp(_) if at.token.is_none() => Err(format!(
            "whoever reaches {rest} could change the server: give the file of a token that clients must send, as in \
             {rest},token=/etc/fairlift/token (openssl rand -hex 32), or use a unix socket"
        )),
        Address::Tcp(_) if at.owner.is_some() || at.group.is_some() || at.mode != 0o600 => {
            Err("mode, owner and group are of unix sockets; a TCP address has a token".into())
        }
        _ => Ok(at),
    }
}

/// Where the control server is if nobody says where: beside the first unix socket, `fairlift.control.sock` for
/// `fairlift.sock`; as a service of systemd `control.sock` in its run directory.
pub(crate) fn default_place(config: &Config) -> Option<ControlAt> {
    let beside = config.listeners.iter().find_map(|listener| match &listener.address {
        Address::Unix(path) => Some(path.with_extension("control.sock")),
        _ => None,
    });
    let run = std::env::var_os("RUNTIME_DIRECTORY").map(|dir| Path::new(&dir).join("control.sock"));
    let usual = || Some(place::default_socket().ok()?.with_extension("control.sock"));
    let path = run.or(beside).or_else(usual)?;
    place::check_length(&path).ok()?;
    let address = Address::Unix(path);
    Some(ControlAt { address, mode: 0o600, owner: None, group: None, read_only: false, token: None })
}

/// A socket that listens, and who may come by it.
pub(crate) struct Opened {
    socket: Socket,
    who: Arc<Place>,
    /// Removed at the end.
    file: Option<PathBuf>,
}

enum Socket {
    Unix(std::os::unix::net::UnixListener),
    Tcp(std::net::TcpListener),
}

/// What holds for all clients of a place.
pub(crate) struct Place {
    pub(crate) read_only: bool,
    pub(crate) token: Option<String>,
    /// Of TCP: the addresses by which clients may name it.
    pub(crate) hosts: Option<Vec<String>>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            let _ = std::fs::remove_file(file); // somebody may have removed it already
        }
    }
}

/// Listens.
///
/// # Errors
/// The address is taken or cannot be had, or there is no such owner or group, or no token in the file.
pub(crate) fn open(at: &ControlAt) -> Result<Opened, String> {
    let shown = place::show(&at.address);
    let fail = |why: String| format!("cannot listen for control at {shown}: {why}");
    let token = at.token.as_deref().map(token).transpose().map_err(&fail)?;
    let who = |hosts| Arc::new(Place { read_only: at.read_only, token, hosts });
    match &at.address {
        Address::Unix(path) => {
            let socket = unix(path, at).map_err(fail)?;
            Ok(Opened { socket: Socket::Unix(socket), who: who(None), file: Some(path.clone()) })
        }
        Address::Tcp(address) => {
            let socket = std::net::TcpListener::bind(address).map_err(|error| fail(error.to_string()))?;
            let bound = socket.local_addr().map_err(|error| fail(error.to_string()))?;
            tracing::info!("control at tcp:{bound}");
            Ok(Opened { socket: Socket::Tcp(socket), who: who(Some(hosts(bound))), file: None })
        }
        Address::Inherited(_) => Err(fail("an inherited socket is for NBD clients".into())),
    }
}

/// The first line of a file.
pub(crate) fn token(path: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("token {}: {error}", path.display()))?;
    let token = text.lines().next().unwrap_or_default().trim();
    if token.len() < 16 {
        return Err(format!("token {}: its first line has to have at least 16 letters", path.display()));
    }
    Ok(token.into())
}

/// How clients may name a place on this machine, so that no page of another can (http.2).
fn hosts(bound: SocketAddr) -> Vec<String> {
    let port = bound.port();
    vec![bound.to_string(), format!("localhost:{port}"), format!("127.0.0.1:{port}"), format!("[::1]:{port}")]
}

/// Listens at a path; replaces the socket file of a server that is gone.
fn unix(path: &Path, at: &ControlAt) -> Result<std::os::unix::net::UnixListener, String> {
    use std::os::unix::fs::FileTypeExt as _;
    use std::os::unix::net::{UnixListener, UnixStream};
    if let Ok(there) = std::fs::symlink_metadata(path) {
        if !there.file_type().is_socket() {
            return Err("there is a file of that name, and it is not a socket".into());
        }
        match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path)
                    .map_err(|error| format!("a stale socket file cannot be removed: {error}"))?;
            }
            _ => return Err("another server is listening there".into()),
        }
    }
    // No other user may connect before the socket has its mode.
    let old = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(path);
    rustix::process::umask(old);
    let listener = bound.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "its directory does not exist".into(),
        _ => error.to_string(),
    })?;
    let own = || {
        let id = |file: &str, name: &Option<String>| name.as_deref().map(|name| id_of(file, name)).transpose();
        let (owner, group) = (id("/etc/passwd", &at.owner)?, id("/etc/group", &at.group)?);
        if owner.is_some() || group.is_some() {
            std::os::unix::fs::chown(path, owner, group)
                .map_err(|error| format!("its owner cannot be changed: {error}"))?;
        }
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(at.mode))
            .map_err(|error| format!("its mode cannot be changed: {error}"))
    };
    own().inspect_err(|_: &String| drop(std::fs::remove_file(path)))?;
    Ok(listener)
}

/// A user's or group's number: it is one, or the third field of its line.
fn id_of(file: &str, name: &str) -> Result<u32, String> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let line = text.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|line| line[0] == name);
    line.and_then(|line| line.get(2)?.parse().ok()).ok_or_else(|| format!("there is no \"{name}\" in {file}"))
}

/// The client that asks.
#[derive(Clone)]
pub(crate) struct Who {
    pub(crate) place: Arc<Place>,
    /// For the log: `uid 1000 (pid 4711)`, `127.0.0.1:51234`.
    pub(crate) name: String,
}

/// Serves until told to stop.
pub(crate) async fn serve(places: Vec<Opened>, app: App, mut stop: oneshot::Receiver<()>) {
    let router = routes::router(app.clone());
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let mut tasks = tokio::task::JoinSet::new();
    // The files go when this ends, and not before.
    let mut kept = Vec::new();
    for mut place in places {
        let (router, room, who) = (router.clone(), Arc::clone(&room), Arc::clone(&place.who));
        let socket = match &place.socket {
            Socket::Unix(socket) => socket.set_nonblocking(true).and_then(|()| socket.try_clone()).map(Socket::Unix),
            Socket::Tcp(socket) => socket.set_nonblocking(true).and_then(|()| socket.try_clone()).map(Socket::Tcp),
        };
        match socket {
            Ok(Socket::Unix(socket)) => drop(tasks.spawn(accept_unix(socket, who, router, room))),
            Ok(Socket::Tcp(socket)) => drop(tasks.spawn(accept_tcp(socket, who, router, room))),
            Err(error) => {
                tracing::error!(%error, "a control socket cannot be served");
                place.file = None;
            }
        }
        kept.push(place);
    }
    let mut look = tokio::time::interval(routes::SWEEP);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = &mut stop => return,
            _ = look.tick() => app.sweep().await,
        }
    }
}

async fn accept_unix(
    socket: std::os::unix::net::UnixListener,
    place: Arc<Place>,
    router: axum::Router,
    room: Arc<Semaphore>,
) {
    let Ok(socket) = tokio::net::UnixListener::from_std(socket) else { return };
    loop {
        match socket.accept().await {
            Ok((stream, _)) => {
                let name = match stream.peer_cred() {
                    Ok(peer) => format!("uid {} (pid {})", peer.uid(), peer.pid().unwrap_or(0)),
                    Err(_) => "unknown".into(),
                };
                connection(TokioIo::new(stream), Who { place: Arc::clone(&place), name }, &router, &room);
            }
            Err(error) => pause(&error).await,
        }
    }
}

async fn accept_tcp(socket: std::net::TcpListener, place: Arc<Place>, router: axum::Router, room: Arc<Semaphore>) {
    let Ok(socket) = tokio::net::TcpListener::from_std(socket) else { return };
    loop {
        match socket.accept().await {
            Ok((stream, from)) => {
                let who = Who { place: Arc::clone(&place), name: from.to_string() };
                connection(TokioIo::new(stream), who, &router, &room);
            }
            Err(error) => pause(&error).await,
        }
    }
}

/// Out of descriptors or memory: asking again at once would only fail again.
async fn pause(error: &io::Error) {
    tracing::warn!(%error, "a control connection could not be accepted");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

/// Serves a connection in a task of its own (http.1).
fn connection<I>(io: I, who: Who, router: &axum::Router, room: &Arc<Semaphore>)
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let Ok(place) = Arc::clone(room).try_acquire_owned() else {
        tracing::debug!(who = who.name, "a control connection was closed: there are {CONNECTIONS} already");
        return;
    };
    let router = router.clone();
    tokio::spawn(async move {
        let _place = place;
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
            .await;
        if let Err(error) = served {
            tracing::debug!(%error, "a control connection ended");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_an_address_and_who_may_come() {
        let at = parse_place("unix:/run/a,b.sock,mode=0660,group=adm,read_only").unwrap();
        assert!(matches!(&at.address, Address::Unix(path) if path == Path::new("/run/a,b.sock")));
        assert_eq!((at.mode, at.group.as_deref(), at.read_only), (0o660, Some("adm"), true));
        assert!(parse_control("off").unwrap().0.is_none());
        for (text, why) in [
            ("tcp:127.0.0.1:1", "give the file of a token"),
            ("unix:/a,mode=999", "mode takes an octal number"),
            ("tcp:127.0.0.1:1,token=/t,mode=0660", "are of unix sockets"),
            ("/a", "did you mean \"unix:/a\"?"),
        ] {
            let says = parse_control(text).unwrap_err();
            assert!(says.contains(why), "{text}: {says}");
        }
    }

    #[test]
    fn an_owner_is_a_name_or_a_number() {
        assert_eq!(id_of("/etc/passwd", "root"), Ok(0));
        assert_eq!(id_of("/etc/passwd", "1234"), Ok(1234));
        assert!(id_of("/etc/group", "no such group").is_err());
    }
}
