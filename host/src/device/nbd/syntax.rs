//! Another NBD server, as people write it: the URIs of the NBD project, and our options behind them.
//!
//! `nbd://HOST[:PORT]/EXPORT`, `nbds://…` with TLS, `nbd+unix:///EXPORT?socket=PATH`, `nbds+unix:///…`; then
//! `,reconnect=TIME,connections=NUMBER,tls=DIR`. In front there may be `nbd:`.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fairlift_core::time::{ms, secs};
use fairlift_core::units::{parse_time, show_time_in};
use fairlift_core::{Duration, suggestion};

use super::Remote;
use super::below::RemoteBase;
use crate::device::backing::{About, BackingKind, Opaque, Outside, Sharing, Syntax};
use crate::device::roots::Roots;
use crate::device::{Backing, Device, Layer, home};

/// An export of another NBD server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Nbd {
    /// As the user wrote it: `nbd://host/export`.
    pub uri: String,
    /// Where the server is.
    pub address: NbdAddress,
    /// The name of the export there.
    pub export: String,
    /// How it is encrypted, if it is.
    pub tls: Option<NbdTls>,
    /// How long requests wait for a connection that was lost, before they fail.
    pub reconnect: Duration,
    /// How many connections there are at most, 1 to 16: more than one where the server offers that.
    pub connections: u16,
}

/// Where an NBD server is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NbdAddress {
    /// A host by its name or address.
    Tcp {
        /// The host.
        host: String,
        /// The port.
        port: u16,
    },
    /// A unix socket.
    Unix(PathBuf),
}

impl Nbd {
    /// Its name for people: exports that do not share it are told apart.
    pub(super) fn name(&self) -> String {
        let of = self.tls.as_ref().map(|tls| format!(",tls={}", tls.certificates.display()));
        self.uri.clone() + &of.unwrap_or_default()
    }

    /// The URI, with its socket where that is by now: a relative path has been followed from where it was written.
    fn uri_from_here(&self) -> String {
        let (NbdAddress::Unix(path), Some((place, query))) = (&self.address, self.uri.split_once('?')) else {
            return self.uri.clone();
        };
        let pair = |pair: &str| match pair.strip_prefix("socket=") {
            Some(socket) if decode(socket).is_none_or(|socket| Path::new(&socket) != path) => {
                format!("socket={}", encode(path))
            }
            _ => pair.to_owned(),
        };
        format!("{place}?{}", query.split('&').map(pair).collect::<Vec<_>>().join("&"))
    }
}

impl NbdAddress {
    /// All exports of a server share the disks behind it.
    pub(super) fn home(&self) -> u64 {
        match self {
            Self::Tcp { host, port } => home((host, port)),
            Self::Unix(path) => home(path),
        }
    }
}

/// Reads a client's certificates from their directory.
pub type LoadCertificates = fn(&std::path::Path) -> Result<Arc<rustls::ClientConfig>, String>;

/// How a connection to an NBD server is encrypted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NbdTls {
    /// Where the certificates are.
    pub certificates: PathBuf,
    /// The name that the server's certificate must have.
    pub name: String,
    /// Reads them, anew for each connection.
    pub load: Opaque<LoadCertificates>,
}

pub(in crate::device) const SYNTAX: Syntax = Syntax {
    schemes: &["nbd", "nbds", "nbd+unix", "nbds+unix"],
    form: "nbd:URI",
    takes: "nbd:URI[,reconnect=TIME][,connections=NUMBER][,tls=DIR]",
    parse,
};

impl BackingKind for Nbd {
    /// Another server's data outlives ours, as a rule; but a server that comes after us does not know which writes that one owes a flush
    /// (ledger.1). So it is said not to.
    fn about(&self) -> About<'_> {
        let mut written = format!("nbd:{}", self.uri_from_here());
        if self.reconnect != RECONNECT {
            written += &format!(",reconnect={}", show_time_in(self.reconnect, ms(1), "ms"));
        }
        if self.connections != CONNECTIONS {
            written += &format!(",connections={}", self.connections);
        }
        if let Some(tls) = &self.tls {
            written += &format!(",tls={}", tls.certificates.display());
        }
        let own_name = if self.export.is_empty() { "nbd" } else { &self.export };
        About { written, ..About::new(self.uri.clone(), own_name) }
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        let socket = match &mut self.address {
            NbdAddress::Unix(path) => Some(path),
            NbdAddress::Tcp { .. } => None,
        };
        socket.into_iter().chain(self.tls.as_mut().map(|tls| &mut tls.certificates)).collect()
    }

    fn sharing(&self, _disk: Option<usize>) -> Sharing {
        // By other certificates it is asked and trusted otherwise; and of one text, paths may start elsewhere.
        Sharing::Name(format!("{} {:?}", self.name(), self.address))
    }

    fn open(&self, read_only: bool, roots: &Roots) -> Result<Arc<dyn Device>, String> {
        Ok(Arc::new(Remote::open(self, read_only, roots.links(&self.uri))?))
    }

    fn open_below(&self, _roots: &Roots) -> Result<Arc<dyn Layer>, String> {
        Ok(Arc::new(RemoteBase::open(self)?))
    }
}

/// IANA's, for NBD.
const PORT: u16 = 10809;

/// Chosen: a server that is restarted is back by then, and a client's own time limit (30 s, as a rule) is not reached.
const RECONNECT: Duration = secs(10);

/// Chosen: as many as the machine's first workers, and as nbdcopy makes.
const CONNECTIONS: u16 = 4;

const OPTIONS: [&str; 3] = ["reconnect", "connections", "tls"];

fn parse(text: &str, outside: &Outside) -> Result<Backing, String> {
    let text = text.strip_prefix("nbd:").filter(|rest| !rest.starts_with("//")).unwrap_or(text);
    let (uri, options) = take_options(text)?;
    let mut nbd = parse_uri(uri, outside.certificates)?;
    for (key, value) in options {
        match key {
            "reconnect" => nbd.reconnect = parse_time(value).map_err(|why| format!("nbd: reconnect: {why}"))?,
            "connections" => {
                let number = value.parse().ok().filter(|number| (1..=16).contains(number));
                nbd.connections =
                    number.ok_or_else(|| format!("nbd: connections takes a number from 1 to 16, not \"{value}\""))?;
            }
            _ => match &mut nbd.tls {
                Some(tls) => tls.certificates = value.into(),
                None => return Err("nbd: tls=DIR goes with nbds:// or nbds+unix://".into()),
            },
        }
    }
    if nbd.tls.as_ref().is_some_and(|tls| tls.certificates.as_os_str().is_empty()) {
        return Err(
            "nbd: TLS needs to know whom to trust: tls=DIR, with ca-cert.pem, and client-cert.pem and client-key.pem if \
             the server wants them"
                .into(),
        );
    }
    Ok(nbd.into())
}

type Options<'a> = Vec<(&'a str, &'a str)>;

/// `URI,KEY=VALUE,…` taken apart. Only a known option parts from the URI, for names may contain commas.
fn take_options(text: &str) -> Result<(&str, Options<'_>), String> {
    let (mut uri, mut options) = (text, Options::new());
    while let Some((before, option)) = uri.rsplit_once(',') {
        let Some((key, value)) = option.split_once('=') else { break };
        if !OPTIONS.contains(&key) {
            let other = suggestion(key, OPTIONS);
            if other.is_empty() {
                break;
            }
            return Err(format!("unknown option \"{key}\": nbd: takes {}{other}", OPTIONS.join(", ")));
        }
        if options.iter().any(|(there, _)| *there == key) {
            return Err(format!("nbd: {key} is given twice"));
        }
        options.push((key, value));
        uri = before;
    }
    Ok((uri, options))
}

fn parse_uri(uri: &str, load: LoadCertificates) -> Result<Nbd, String> {
    const FORMS: &str = "nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH, with nbds for TLS";
    let malformed = |why: &str| format!("\"{uri}\": {why}: {FORMS}");
    let decoded = |text| decode(text).ok_or_else(|| malformed("a % must be followed by two hexadecimal digits"));
    let (scheme, rest) = uri.split_once("://").ok_or_else(|| malformed("no URI of NBD"))?;
    let (is_unix, has_tls) = match scheme {
        "nbd" => (false, false),
        "nbds" => (false, true),
        "nbd+unix" => (true, false),
        "nbds+unix" => (true, true),
        _ => return Err(malformed("no URI of NBD")),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (place, export) = rest.split_once('/').unwrap_or((rest, ""));
    let (mut socket, mut certificates, mut name) = (None, PathBuf::new(), None);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = decoded(value)?;
        match key {
            "socket" => socket = Some(value),
            "tls-certificates" => certificates = value.into(),
            "tls-hostname" => name = Some(value),
            other => {
                let known = ["socket", "tls-certificates", "tls-hostname"];
                let other = format!("\"{other}\" is not known{}", suggestion(other, known));
                return Err(malformed(&other));
            }
        }
    }
    let address = match (is_unix, socket) {
        (true, Some(path)) if !path.is_empty() && place.is_empty() => NbdAddress::Unix(path.into()),
        (true, _) => return Err(malformed("a unix socket is named by ?socket=PATH, and has no host")),
        (false, Some(_)) => return Err(malformed("?socket= goes with nbd+unix")),
        (false, None) => {
            let (host, port) =
                host_and_port(place).ok_or_else(|| malformed("a host is needed, and a port is a number"))?;
            NbdAddress::Tcp { host, port }
        }
    };
    let of = match &address {
        NbdAddress::Tcp { host, .. } => host.clone(),
        NbdAddress::Unix(_) => "localhost".into(),
    };
    let tls = NbdTls { certificates, name: name.unwrap_or(of), load: Opaque(load) };
    Ok(Nbd {
        uri: uri.into(),
        address,
        export: decoded(export)?,
        tls: has_tls.then_some(tls),
        reconnect: RECONNECT,
        connections: CONNECTIONS,
    })
}

fn host_and_port(place: &str) -> Option<(String, u16)> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            (host, rest.strip_prefix(':').or(rest.is_empty().then_some(""))?)
        }
        None => place.split_once(':').unwrap_or((place, "")),
    };
    let port = if port.is_empty() { PORT } else { port.parse().ok()? };
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

/// A path as [`decode`] reads it.
fn encode(path: &Path) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    let bytes = path.as_os_str().as_bytes().iter();
    bytes.map(|&byte| if is_plain(byte) { char::from(byte).into() } else { format!("%{byte:02X}") }).collect()
}

/// Text in which `%20` stands for a space.
fn decode(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        if *first == b'%' {
            let code = std::str::from_utf8(after.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(code, 16).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::backing::tests::OUTSIDE;

    fn nbd(text: &str) -> Nbd {
        match parse(text, &OUTSIDE) {
            Ok(Backing::Nbd(nbd)) => *nbd,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn uris_are_those_of_the_nbd_project() {
        let tcp = |host: &str, port| NbdAddress::Tcp { host: host.into(), port };
        for (text, address, export) in [
            ("nbd://far", tcp("far", 10809), ""),
            ("nbd:nbd://far/", tcp("far", 10809), ""),
            ("nbd://far:99/disk", tcp("far", 99), "disk"),
            ("nbd://[::1]/a/b", tcp("::1", 10809), "a/b"),
            ("nbd://[::1]:99/a%20b%2c", tcp("::1", 99), "a b,"),
            ("nbd+unix:///?socket=/run/a.sock", NbdAddress::Unix("/run/a.sock".into()), ""),
            ("nbd:nbd+unix:///disk?socket=/run/a%20b", NbdAddress::Unix("/run/a b".into()), "disk"),
            ("nbd://far/a,b", tcp("far", 10809), "a,b"),
        ] {
            let nbd = nbd(text);
            assert_eq!((nbd.address, nbd.export.as_str()), (address, export), "{text}");
        }
        let plain = nbd("nbd://far/x");
        assert_eq!((plain.reconnect, plain.connections, plain.tls), (secs(10), 4, None));
        let odd = nbd("nbd:nbds://far/x,y,reconnect=30s,tls=/etc/pki,connections=1");
        assert_eq!((odd.export.as_str(), odd.reconnect, odd.connections), ("x,y", secs(30), 1));
        let tls = odd.tls.clone().unwrap();
        assert_eq!((tls.certificates, tls.name.as_str()), ("/etc/pki".into(), "far"));
        let by_uri = nbd("nbds+unix:///?socket=/s&tls-certificates=/c&tls-hostname=far");
        assert_eq!(by_uri.tls.map(|tls| (tls.certificates, tls.name)), Some(("/c".into(), "far".into())));
        for text in ["nbd://far/x", "nbds://far/x,reconnect=500us,connections=1,tls=/etc/pki"] {
            assert_eq!(nbd(&nbd(text).about().written), nbd(text), "{text}");
        }
    }

    #[test]
    fn exports_of_one_uri_share_it_unless_they_name_other_certificates() {
        let sharing = |text: &str| nbd(text).sharing(None);
        assert_eq!(sharing("nbds://far/x,tls=/a"), sharing("nbds://far/x,tls=/a,reconnect=1s,connections=1"));
        assert_ne!(sharing("nbds://far/x,tls=/a"), sharing("nbds://far/x,tls=/b"));
    }

    #[test]
    fn a_bad_uri_is_refused_with_what_is_possible() {
        for (text, why) in [
            ("nbd:", "no URI of NBD: nbd://HOST[:PORT]/EXPORT"),
            ("nbd:far/x", "no URI of NBD"),
            ("nbd:///x", "a host is needed"),
            ("nbd://far:x/y", "a port is a number"),
            ("nbd://far:70000/y", "a port is a number"),
            ("nbd+unix:///x", "named by ?socket=PATH"),
            ("nbd+unix://far/x?socket=/a", "has no host"),
            ("nbd://far/x?socket=/a", "goes with nbd+unix"),
            ("nbd+unix:///x?sokcet=/a", "\"sokcet\" is not known; did you mean \"socket\"?"),
            ("nbd://far/%zz", "two hexadecimal digits"),
            ("nbds://far/x", "tls=DIR, with ca-cert.pem"),
            ("nbd://far/x,tls=/a", "goes with nbds://"),
            ("nbd://far/x,reconect=1s", "did you mean \"reconnect\"?"),
            ("nbd://far/x,reconnect=1", "reconnect: a time needs a unit"),
            ("nbd://far/x,connections=17", "from 1 to 16"),
            ("nbd://far/x,connections=1,connections=2", "given twice"),
        ] {
            let says = parse(text, &OUTSIDE).expect_err(text);
            assert!(says.contains(why), "{text}: {says}");
        }
    }

    #[test]
    fn paths_start_where_they_were_written() {
        let mut all = nbd("nbds+unix:///?socket=a.sock,tls=pki");
        all.paths().into_iter().for_each(|path| *path = Path::new("/etc").join(&path));
        assert_eq!(all.paths(), [Path::new("/etc/a.sock"), Path::new("/etc/pki")]);
        assert_eq!(all.about().written, "nbd:nbds+unix:///?socket=/etc/a.sock,tls=/etc/pki");
        assert_eq!(all.about().name, all.uri, "by which tops over it know it");
        let mut odd = nbd("nbd+unix:///x?socket=a%20b");
        odd.paths().into_iter().for_each(|path| *path = "/c,d&e/a b".into());
        assert_eq!(nbd(&odd.about().written).address, odd.address);
    }
}
