//! Where clients connect, as people write it (`unix:PATH`, `tcp:HOST:PORT`) and as clients need it (an NBD URI).

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};

use fairlift::config::{Address, Engine, SocketMode, Tls};

use fairlift_lab::suggestion;

use super::mistake::hint;

/// The length of `sun_path` in the kernel, without the final NUL.
const UNIX_PATH_MAX: usize = 107;

/// Where to listen, and whether to encrypt there, if that was said for this place alone.
#[derive(Clone, Debug)]
pub(crate) struct ListenAt {
    pub(crate) address: Address,
    pub(crate) tls: Option<Tls>,
    pub(crate) socket: SocketMode,
}

impl From<Address> for ListenAt {
    fn from(address: Address) -> Self {
        Self { address, tls: None, socket: SocketMode::default() }
    }
}

/// Reads an address, and after it `,tls=off`, `,tls=on` or `,tls=require` where this place differs from the others; of a unix socket
/// also `,mode=0660`, `,owner=NAME` and `,group=NAME`.
pub(crate) fn parse_place(text: &str) -> Result<ListenAt, String> {
    let (mut tls, mut socket) = (None, SocketMode::default());
    let [mode, owner, group] = MODE_OPTIONS;
    let address = parse(options(text, &["tls", mode, owner, group], |name, value| match name {
        "tls" => parse_tls(value).map(|value_of| (tls = Some(value_of), true).1),
        _ => take_mode(&mut socket, name, value),
    })?)?;
    if tcp_address(&address).is_some() && socket != SocketMode::default() {
        return Err("mode, owner and group are of unix sockets".into());
    }
    Ok(ListenAt { address, tls, socket })
}

/// The options for the permissions of a unix socket.
pub(crate) const MODE_OPTIONS: [&str; 3] = ["mode", "owner", "group"];

/// Takes an option, if it is one of these.
pub(crate) fn take_mode(socket: &mut SocketMode, name: &str, value: &str) -> Result<bool, String> {
    match name {
        "mode" => {
            let number = u32::from_str_radix(value, 8).ok().filter(|mode| *mode <= 0o777);
            socket.mode = number.ok_or_else(|| format!("mode takes an octal number such as 0660, not \"{value}\""))?;
        }
        "owner" | "group" if value.is_empty() => {
            return Err(format!("{name} takes a name or a number, as in {name}=…"));
        }
        "owner" => socket.owner = Some(id_of("/etc/passwd", value)?),
        "group" => socket.group = Some(id_of("/etc/group", value)?),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Has `take` see each option behind an address, from the end, for a path may contain commas; answers the address.
///
/// # Errors
/// `take` refuses one, or it takes none that looks like an option.
pub(crate) fn options<'a>(
    text: &'a str,
    known: &[&str],
    mut take: impl FnMut(&str, &str) -> Result<bool, String>,
) -> Result<&'a str, String> {
    let mut rest = text;
    while let Some((before, option)) = rest.rsplit_once(',') {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        if !take(name, value)? {
            let is_word = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
            let hint = match suggestion(name, known.iter().copied()) {
                hint if hint.is_empty() && option.contains('=') && is_word(name) => {
                    format!("; after an address there may be {}", known.join(", "))
                }
                hint if hint.is_empty() => break,
                hint => hint,
            };
            return Err(format!("unknown option \"{option}\"{hint}"));
        }
        rest = before;
    }
    Ok(rest)
}

/// A user's or group's number: it is one, or the third field of its line.
fn id_of(file: &str, name: &str) -> Result<u32, String> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let found = fields(file)?.find(|line| line[0] == name);
    found.and_then(|line| line.get(2)?.parse().ok()).ok_or_else(|| format!("there is no \"{name}\" in {file}"))
}

/// A user's name, or its number where it has none.
pub(crate) fn user(uid: u32) -> String {
    let found = fields("/etc/passwd").ok().and_then(|mut all| all.find(|line| line.get(2) == Some(&uid.to_string())));
    found.map_or_else(|| format!("uid {uid}"), |mut line| line.swap_remove(0))
}

fn fields(file: &str) -> Result<impl Iterator<Item = Vec<String>>, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let lines: Vec<_> = text.lines().map(|line| line.split(':').map(str::to_owned).collect()).collect();
    Ok(lines.into_iter())
}

pub(crate) fn parse_tls(text: &str) -> Result<Tls, String> {
    match text {
        "off" => Ok(Tls::Off),
        "on" | "optional" => Ok(Tls::Optional),
        "require" | "required" => Ok(Tls::Required),
        _ => Err(format!("takes off, on (if the client asks) or require, not \"{text}\"")),
    }
}

/// Whether a path that somebody says to a server means the same there.
pub(crate) fn check_path(path: &Path) -> Result<(), String> {
    if path.is_absolute() {
        return Ok(());
    }
    Err(format!("takes a path from the root, for the server has another directory, not \"{}\"", path.display()))
}

/// Reads what workers give the kernel their work through.
pub(crate) fn parse_engine(text: &str) -> Result<Engine, String> {
    match text {
        "auto" => Ok(Engine::Auto),
        "io_uring" => Ok(Engine::IoUring),
        "poll" => Ok(Engine::Poll),
        _ => Err(format!("takes auto, io_uring or poll, not \"{text}\"")),
    }
}

/// Reads `unix:PATH` or `tcp:HOST:PORT`. Of a host's several addresses, the first IPv4 one is taken, else the first.
pub(crate) fn parse(text: &str) -> Result<Address, String> {
    const FORM: &str = "an address is unix:PATH or tcp:HOST:PORT";
    match text.split_once(':') {
        Some(("unix", "")) => Err(format!("{FORM}; the path is missing")),
        Some(("unix", path)) => parse_unix(path),
        Some(("tcp", place)) => parse_tcp(place),
        Some((kind @ ("vsock" | "rdma" | "ssh" | "fd" | "http" | "https"), _)) => {
            Err(format!("{kind} is not supported; {FORM}"))
        }
        Some(("nbd" | "nbds" | "nbd+unix" | "nbds+unix", _)) => Err(format!("{FORM}, and not a URI: clients use that")),
        Some((kind, rest)) if !kind.contains('/') => {
            let hint = hint(kind, ["unix", "tcp"], || match (kind, rest.parse::<u16>()) {
                ("", Ok(_)) => format!("; did you mean \"tcp:127.0.0.1{text}\"?"),
                (_, Ok(_)) => format!("; did you mean \"tcp:{text}\"?"),
                (_, Err(_)) => String::new(),
            });
            Err(format!("{FORM}, not {text:?}{hint}"))
        }
        _ if text.contains('/') => Err(format!("{FORM}; did you mean \"unix:{text}\"?")),
        _ if text.parse::<u16>().is_ok() => Err(format!("{FORM}; did you mean \"tcp:127.0.0.1:{text}\"?")),
        _ => Err(format!("{FORM}, not {text:?}")),
    }
}

pub(crate) fn parse_unix(path: &str) -> Result<Address, String> {
    if path.contains('\0') {
        return Err("a path cannot contain a NUL character".into());
    }
    check_length(Path::new(path))?;
    Ok(Address::Unix(path.into()))
}

/// Has the path of a unix socket start at a directory.
pub(crate) fn root(address: &mut Address, dir: &Path) -> Result<(), String> {
    let Address::Unix(path) = address else { return Ok(()) };
    *path = dir.join(&*path);
    check_length(path)
}

/// Whether a socket can have that path.
pub(crate) fn check_length(path: &Path) -> Result<(), String> {
    let length = path.as_os_str().len();
    if length > UNIX_PATH_MAX {
        return Err(format!("a socket's path has at most {UNIX_PATH_MAX} bytes; this path has {length}"));
    }
    Ok(())
}

fn parse_tcp(place: &str) -> Result<Address, String> {
    let Some((host, port)) = place.rsplit_once(':').filter(|(host, _)| !host.is_empty()) else {
        let port = place.trim_start_matches(':').parse::<u16>();
        let hint = port.map_or_else(|_| String::new(), |port| format!("; for all addresses: tcp:0.0.0.0:{port}"));
        return Err(format!("tcp: needs a host and a port, as in tcp:127.0.0.1:10809{hint}"));
    };
    let Ok(port) = port.parse::<u16>() else {
        return Err(format!("\"{port}\" is not a port: a port is a number from 0 to 65535, as in tcp:127.0.0.1:10809"));
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    if let Ok(ip) = bare.unwrap_or(host).parse::<IpAddr>() {
        if ip.is_ipv6() && bare.is_none() {
            return Err(format!("an IPv6 address is written in brackets: tcp:[{host}]:{port}"));
        }
        return Ok(Address::Tcp(SocketAddr::new(ip, port)));
    }
    let found = (host, port).to_socket_addrs().map_err(|error| format!("unknown host \"{host}\": {error}"))?;
    let found: Vec<_> = found.collect();
    let chosen = found.iter().find(|address| address.is_ipv4()).or(found.first());
    chosen.copied().map(Address::Tcp).ok_or_else(|| format!("the host \"{host}\" has no address"))
}

/// The socket that serves when nobody said where.
pub(crate) fn default_socket() -> Result<PathBuf, String> {
    use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};

    let run = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute() && dir.is_dir());
    let uid = rustix::process::geteuid();
    let root_run = || uid.is_root().then(|| PathBuf::from("/run")).filter(|dir| dir.is_dir());
    if let Some(dir) = run.or_else(root_run) {
        return Ok(dir.join("fairlift.sock"));
    }
    let dir = std::env::temp_dir().join(format!("fairlift-{}", uid.as_raw()));
    if let Err(error) = std::fs::DirBuilder::new().mode(0o700).create(&dir)
        && error.kind() != std::io::ErrorKind::AlreadyExists
    {
        let shown = dir.display();
        return Err(format!("cannot create {shown}: {error}; choose another address with --listen unix:PATH"));
    }
    // Not followed: a link of somebody else's could lead anywhere.
    let found = std::fs::symlink_metadata(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    if !found.is_dir() || found.uid() != uid.as_raw() || found.mode() & 0o022 != 0 {
        return Err(format!(
            "{} is not a directory, or other users can write to it; choose another address with --listen unix:PATH",
            dir.display()
        ));
    }
    Ok(dir.join("fairlift.sock"))
}

/// Whether others than this machine can connect there.
pub(crate) fn is_remote(address: &Address) -> bool {
    tcp_address(address).is_some_and(|address| !address.ip().to_canonical().is_loopback())
}

/// The TCP address behind `address`, if it is one.
pub(crate) fn tcp_address(address: &Address) -> Option<SocketAddr> {
    match address {
        Address::Unix(_) => None,
        Address::Tcp(address) => Some(*address),
        Address::Inherited(socket) => rustix::net::getsockname(socket).ok()?.try_into().ok(),
    }
}

/// Shows an address as it is written in flags.
pub(crate) fn show(address: &Address) -> String {
    match address {
        Address::Unix(path) => format!("unix:{}", path.display()),
        Address::Tcp(address) => format!("tcp:{address}"),
        Address::Inherited(_) => match tcp_address(address) {
            Some(address) => format!("tcp:{address}"),
            None => "an inherited unix socket".into(),
        },
    }
}

/// The NBD URI of an export: what every NBD client takes.
///
/// A server that listens on all addresses is named `localhost`, for that is where the reader is.
pub(crate) fn uri(address: &Address, tls: Tls, export: &str) -> Option<String> {
    let secure = if tls == Tls::Required { "nbds" } else { "nbd" };
    let name = encode(export.as_bytes(), b"/");
    if let Some(tcp) = tcp_address(address) {
        let (ip, port) = (tcp.ip(), tcp.port());
        let host =
            if ip.is_unspecified() { format!("localhost:{port}") } else { SocketAddr::new(ip, port).to_string() };
        return Some(format!("{secure}://{host}/{name}"));
    }
    let path = match address {
        Address::Unix(path) => std::path::absolute(path).unwrap_or_else(|_| path.clone()),
        Address::Inherited(socket) => unix_path(socket)?,
        Address::Tcp(_) => return None,
    };
    use std::os::unix::ffi::OsStrExt as _;
    Some(format!("{secure}+unix:///{name}?socket={}", encode(path.as_os_str().as_bytes(), b"/")))
}

fn unix_path(socket: &std::os::fd::OwnedFd) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt as _;
    let address: rustix::net::SocketAddrUnix = rustix::net::getsockname(socket).ok()?.try_into().ok()?;
    Some(std::ffi::OsString::from_vec(address.path()?.to_bytes().to_vec()).into())
}

/// Percent-encodes everything but unreserved characters (RFC 3986) and those in `also`.
pub(crate) fn encode(bytes: &[u8], also: &[u8]) -> String {
    let mut out = String::new();
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || also.contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown_alike() {
        for text in
            ["unix:/run/a.sock", "unix:relative.sock", "tcp:127.0.0.1:10809", "tcp:[::1]:10809", "tcp:0.0.0.0:0"]
        {
            assert_eq!(show(&parse(text).unwrap()), text);
        }
        assert_eq!(show(&parse("tcp:localhost:10809").unwrap()), "tcp:127.0.0.1:10809");
    }

    #[test]
    fn behind_a_listeners_address_stands_who_may_connect_and_how() {
        let parsed = parse_place("unix:/run/a,b.sock,mode=0660,group=0,tls=require").unwrap();
        assert_eq!((&*show(&parsed.address), parsed.tls), ("unix:/run/a,b.sock", Some(Tls::Required)));
        assert_eq!(parsed.socket, SocketMode { mode: 0o660, owner: None, group: Some(0) });
        assert_eq!(parse_place("unix:/a").unwrap().socket, SocketMode::default());
        for (text, why) in [
            ("unix:z.sock,tsl=require", "unknown option \"tsl=require\"; did you mean \"tls\"?"),
            (
                "unix:z.sock,colour=red",
                "unknown option \"colour=red\"; after an address there may be tls, mode, owner, group",
            ),
            ("unix:z.sock,mode=rw", "mode takes an octal number such as 0660, not \"rw\""),
            ("tcp:127.0.0.1:1,mode=0660", "mode, owner and group are of unix sockets"),
        ] {
            assert_eq!(parse_place(text).map(|place| show(&place.address)), Err(why.into()), "{text}");
        }
    }

    #[test]
    fn an_owner_is_a_name_or_a_number() {
        assert_eq!(id_of("/etc/passwd", "root"), Ok(0));
        assert_eq!(id_of("/etc/passwd", "1234"), Ok(1234));
        assert!(id_of("/etc/group", "no such group").is_err());
    }

    #[test]
    fn a_bad_address_is_refused_with_what_was_probably_meant() {
        let long = format!("unix:/{}", "x".repeat(200));
        for (text, why) in [
            ("", "an address is unix:PATH or tcp:HOST:PORT, not \"\""),
            ("unix:", "an address is unix:PATH or tcp:HOST:PORT; the path is missing"),
            ("/run/a.sock", "an address is unix:PATH or tcp:HOST:PORT; did you mean \"unix:/run/a.sock\"?"),
            ("10809", "an address is unix:PATH or tcp:HOST:PORT; did you mean \"tcp:127.0.0.1:10809\"?"),
            ("uinx:/a", "an address is unix:PATH or tcp:HOST:PORT, not \"uinx:/a\"; did you mean \"unix\"?"),
            (
                "127.0.0.1:10809",
                "an address is unix:PATH or tcp:HOST:PORT, not \"127.0.0.1:10809\"; did you mean \"tcp:127.0.0.1:10809\"?",
            ),
            ("vsock:2:10809", "vsock is not supported; an address is unix:PATH or tcp:HOST:PORT"),
            ("nbd://localhost", "an address is unix:PATH or tcp:HOST:PORT, and not a URI: clients use that"),
            (
                "tcp:10809",
                "tcp: needs a host and a port, as in tcp:127.0.0.1:10809; for all addresses: tcp:0.0.0.0:10809",
            ),
            ("tcp:host", "tcp: needs a host and a port, as in tcp:127.0.0.1:10809"),
            (
                "tcp:127.0.0.1:99999",
                "\"99999\" is not a port: a port is a number from 0 to 65535, as in tcp:127.0.0.1:10809",
            ),
            ("tcp:::1:10809", "an IPv6 address is written in brackets: tcp:[::1]:10809"),
            (&long, "a socket's path has at most 107 bytes; this path has 201"),
        ] {
            assert_eq!(parse(text).map(|address| show(&address)), Err(why.into()), "{text}");
        }
    }

    #[test]
    fn only_loopback_and_unix_are_local() {
        for (text, remote) in [
            ("unix:/run/a.sock", false),
            ("tcp:127.0.0.1:1", false),
            ("tcp:127.9.9.9:1", false),
            ("tcp:[::1]:1", false),
            ("tcp:[::ffff:127.0.0.1]:1", false),
            ("tcp:0.0.0.0:1", true),
            ("tcp:[::]:1", true),
            ("tcp:192.168.1.1:1", true),
        ] {
            assert_eq!(is_remote(&parse(text).unwrap()), remote, "{text}");
        }
    }

    #[test]
    fn uris_are_what_nbd_clients_take() {
        let uri = |address: &str, tls, name: &str| uri(&parse(address).unwrap(), tls, name).unwrap();
        assert_eq!(uri("unix:/run/a b.sock", Tls::Off, "al ice"), "nbd+unix:///al%20ice?socket=/run/a%20b.sock");
        assert_eq!(uri("unix:/run/a&b.sock", Tls::Required, ""), "nbds+unix:///?socket=/run/a%26b.sock");
        assert_eq!(uri("tcp:127.0.0.1:10809", Tls::Optional, "ü"), "nbd://127.0.0.1:10809/%C3%BC");
        assert_eq!(uri("tcp:[::1]:10809", Tls::Required, "a/b"), "nbds://[::1]:10809/a/b");
        assert_eq!(uri("tcp:0.0.0.0:10809", Tls::Off, "a?#"), "nbd://localhost:10809/a%3F%23");
    }
}
