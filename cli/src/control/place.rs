//! The address of the control server and the rights to speak to it, as people write them:
//! `unix:/run/fairlift/control.sock,mode=0660,group=adm`.

use std::path::{Path, PathBuf};

use fairlift::config::{Address, Config, SocketMode};

use crate::syntax::certificates::{self, Certificate};
use crate::syntax::place;
use crate::syntax::secret;

const OPTIONS: [&str; 6] = ["mode", "owner", "group", "read_only", "token", "certificates"];

/// A place where the control server is, as people write it.
#[derive(Clone, Debug)]
pub(crate) struct ControlAt {
    pub(crate) address: Address,
    /// The address as it was written: a certificate names the host, and not its number.
    written: String,
    /// Of a unix socket.
    pub(crate) socket: SocketMode,
    pub(crate) read_only: bool,
    /// The file whose first line clients must know.
    pub(crate) token: Option<PathBuf>,
    /// Of TCP: the directory with the certificates, each client's too.
    pub(crate) certificates: Option<PathBuf>,
}

/// The secret or certificate that a client needs.
#[derive(Clone)]
pub(crate) struct Locks {
    pub(crate) token: Option<String>,
    /// Of TCP: clients need a certificate.
    pub(crate) tls: Option<Certificate>,
}

impl Locks {
    pub(crate) fn read(at: &ControlAt) -> Result<Self, String> {
        let tls = at.certificates.as_deref().map(|dir| certificates::load(dir, true)).transpose()?;
        Ok(Self { token: at.token.as_deref().map(token).transpose()?, tls })
    }

    pub(crate) fn changed(&self, now: &Self) -> impl Iterator<Item = &'static str> {
        let digest = |locks: &Self| locks.tls.as_ref().map(|tls| tls.digest.clone());
        let all = [(self.token != now.token, "token"), (digest(self) != digest(now), "certificates")];
        all.into_iter().filter(|(is_changed, _)| *is_changed).map(|(_, what)| what)
    }
}

/// The value of `--control`; `None`: no control server.
#[derive(Clone, Debug)]
pub(crate) struct ControlPlace(pub(crate) Option<ControlAt>);

/// Reads `off`, or a place at which a server can listen.
pub(crate) fn parse_control(text: &str) -> Result<ControlPlace, String> {
    if text == "off" { Ok(ControlPlace(None)) } else { parse_place(text)?.guarded().map(Some).map(ControlPlace) }
}

/// Reads `unix:PATH[,mode=0660][,owner=NAME][,group=NAME][,read_only][,token=FILE]` or
/// `tcp:HOST:PORT[,token=FILE][,certificates=DIR][,read_only]`.
pub(crate) fn parse_place(text: &str) -> Result<ControlAt, String> {
    let mut at = ControlAt::new(Address::Unix(PathBuf::new()));
    let rest = place::options(text, &OPTIONS, |name, value| {
        match name {
            "read_only" if value.is_empty() => at.read_only = true,
            "token" | "certificates" if value.is_empty() => {
                let what = if name == "token" { "a file" } else { "a directory" };
                return Err(format!("{name} takes {what}, as in {name}=…"));
            }
            "token" => at.token = Some(value.into()),
            "certificates" => at.certificates = Some(value.into()),
            _ => return place::take_mode(&mut at.socket, name, value),
        }
        Ok(true)
    })?;
    (at.address, at.written) = (place::parse(rest)?, rest.into());
    at.suits()
}

impl ControlAt {
    fn new(address: Address) -> Self {
        Self {
            written: place::show(&address),
            address,
            socket: SocketMode::default(),
            read_only: false,
            token: None,
            certificates: None,
        }
    }

    /// Whether its options are those of its kind of address.
    fn suits(self) -> Result<Self, String> {
        match &self.address {
            Address::Tcp(_) if self.socket != SocketMode::default() => {
                Err("mode, owner and group are of unix sockets; a TCP address has a token or certificates".into())
            }
            Address::Unix(_) if self.certificates.is_some() => {
                Err("certificates are for TCP addresses; mode, owner and group protect a unix socket".into())
            }
            _ => Ok(self),
        }
    }

    /// Whether it is safe to listen there: clients over TCP know or show something, and no secret crosses a network in plain text.
    fn guarded(self) -> Result<Self, String> {
        let at = &self.written;
        if place::tcp_address(&self.address).is_none() || self.certificates.is_some() {
            return Ok(self);
        }
        if self.token.is_none() {
            return Err(format!(
                "any client that reaches {at} could change the server: give the file of a token that clients must send, as in \
                 {at},token=/etc/fairlift/token ((umask 077; openssl rand -hex 32 > /etc/fairlift/token)), or a directory of certificates, \
                 {at},certificates=/etc/fairlift/pki, or use a unix socket"
            ));
        }
        if place::is_remote(&self.address) {
            return Err(format!(
                "other machines can reach {at}, and the token would cross the network in plain text: add \
                 certificates=DIR, or listen at tcp:127.0.0.1:PORT"
            ));
        }
        Ok(self)
    }

    /// The host as it was written, without brackets.
    pub(crate) fn host(&self) -> &str {
        let host =
            self.written.strip_prefix("tcp:").and_then(|rest| rest.rsplit_once(':')).map_or("", |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }

    /// Has its paths start at a directory.
    pub(crate) fn root(&mut self, dir: &Path) -> Result<(), String> {
        [&mut self.token, &mut self.certificates].into_iter().flatten().for_each(|path| *path = dir.join(&*path));
        place::root(&mut self.address, dir)
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let all = |at: &Self| format!("{} {at:?}", place::show(&at.address));
        all(self) == all(other)
    }

    /// Whether a server can listen there; nothing stays behind.
    pub(crate) fn check(&self) -> Result<(), String> {
        Locks::read(self)?;
        match &self.address {
            Address::Inherited(_) => Ok(()),
            address => address.check(self.socket),
        }
    }
}

/// Where the control server is if nobody says where: beside the first unix socket, `fairlift.control.sock` for
/// `fairlift.sock`; as a service of systemd `control.sock` in its run directory.
pub(super) fn default_place(config: &Config) -> Option<ControlAt> {
    let beside = config.listeners.iter().find_map(|listener| match &listener.address {
        Address::Unix(path) => Some(path.with_extension("control.sock")),
        _ => None,
    });
    let run = std::env::var_os("RUNTIME_DIRECTORY").map(|dir| Path::new(&dir).join("control.sock"));
    let usual = || Some(place::default_socket().ok()?.with_extension("control.sock"));
    let path = run.or(beside).or_else(usual)?;
    place::check_length(&path).ok()?;
    Some(ControlAt::new(Address::Unix(path)))
}

/// The first line of a file.
pub(crate) fn token(path: &Path) -> Result<String, String> {
    let bytes = secret::read(path).map_err(|why| format!("token {why}"))?;
    let text = String::from_utf8_lossy(&bytes);
    let token = text.lines().next().unwrap_or_default().trim();
    if token.len() < 16 {
        return Err(format!("token {}: its first line has to have at least 16 letters", path.display()));
    }
    Ok(token.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_an_address_and_who_may_come() {
        let at = parse_place("unix:/run/a,b.sock,mode=0660,group=root,read_only").unwrap();
        assert!(matches!(&at.address, Address::Unix(path) if path == Path::new("/run/a,b.sock")));
        assert_eq!((at.socket.mode, at.socket.group, at.read_only), (0o660, Some(0), true));
        let mut at = parse_place("tcp:localhost:9000,certificates=pki,token=t").unwrap();
        at.root(Path::new("/etc")).unwrap();
        assert_eq!((at.host(), at.certificates.as_deref()), ("localhost", Some(Path::new("/etc/pki"))));
        assert_eq!(parse_place("tcp:[::1]:9000,token=/t").unwrap().host(), "::1");
        assert!(parse_control("off").unwrap().0.is_none());
        assert!(parse_control("tcp:0.0.0.0:9000,certificates=/pki").is_ok());
        for (text, why) in [
            ("tcp:127.0.0.1:1", "give the file of a token"),
            ("tcp:0.0.0.0:1,token=/t", "would cross the network in plain text"),
            ("unix:/a,mode=999", "mode takes an octal number"),
            ("unix:/a,mod=0660", "unknown option \"mod=0660\"; did you mean \"mode\"?"),
            ("unix:/a,readonly", "did you mean \"read_only\"?"),
            ("unix:/a,group=", "group takes a name or a number"),
            ("unix:/a,owner=nobody-of-that-name", "there is no \"nobody-of-that-name\" in /etc/passwd"),
            ("unix:/a,certificates=/pki", "are for TCP addresses"),
            ("tcp:127.0.0.1:1,token=/t,mode=0660", "are of unix sockets"),
            ("tcp:127.0.0.1:1,token=", "token takes a file"),
            ("/a", "did you mean \"unix:/a\"?"),
        ] {
            let says = parse_control(text).unwrap_err();
            assert!(says.contains(why), "{text}: {says}");
        }
    }

    #[test]
    fn two_places_are_the_same_if_all_of_them_is() {
        let at = |text: &str| parse_place(text).unwrap();
        assert!(at("unix:/a,mode=0660").is_same(&at("unix:/a,mode=0660")));
        assert!(!at("unix:/a,mode=0660").is_same(&at("unix:/a")));
        assert!(!at("tcp:127.0.0.1:1,token=/t").is_same(&at("tcp:127.0.0.1:1,token=/u")));
    }

    #[test]
    fn a_check_finds_what_a_start_would() {
        let dir = tempfile::tempdir().unwrap();
        let check =
            |text: &str| parse_control(&text.replace("DIR", dir.path().to_str().unwrap())).unwrap().0.unwrap().check();
        assert_eq!(check("unix:DIR/a.sock"), Ok(()));
        assert!(!dir.path().join("a.sock").exists(), "nothing stays behind");
        secret::write(dir.path().join("file"), "short\n");
        std::fs::write(dir.path().join("open"), "0123456789abcdef\n").unwrap();
        let _served = std::os::unix::net::UnixListener::bind(dir.path().join("served.sock")).unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = format!("tcp:{},certificates=DIR", port.local_addr().unwrap());
        for (text, why) in [
            ("unix:DIR/no/a.sock", "its directory does not exist"),
            ("unix:DIR/file/a.sock", "is not a directory"),
            ("unix:DIR/file", "it is not a socket"),
            ("unix:DIR/served.sock", "another server is listening there"),
            ("tcp:127.0.0.1:0,token=DIR/file", "at least 16 letters"),
            ("tcp:127.0.0.1:0,token=DIR/none", "No such file"),
            ("tcp:127.0.0.1:0,token=DIR/open", "every user of this machine can read it"),
            (taken.as_str(), "server-cert.pem: No such file"),
        ] {
            let says = check(text).unwrap_err();
            assert!(says.contains(why), "{text}: {says}");
        }
        secret::write(dir.path().join("token"), "0123456789abcdef\n");
        let taken = format!("tcp:{},token=DIR/token", port.local_addr().unwrap());
        assert_eq!(check(&taken), Err("the port is in use by another server".into()));
    }
}
