//! What a client's certificate says of it: its names, and its digest.
//!
//! rustls has verified the certificate before anybody reads it here; what is not as X.509 wants it has no names.

use std::fmt;
use std::str::FromStr;

use ring::digest;

/// How a certificate is named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Subject {
    /// The SHA-256 of all of it.
    Sha256([u8; 32]),
    /// A name in it, as OpenSSL shows it: `CN=alice` of its subject; `DNS:alice.example`, `URI:…`, `email:…` of its alternative names.
    Name(String),
}

/// The kinds of names, and the tags of those that are alternative names (RFC 5280, 4.2.1.6).
const COMMON_NAME: &str = "CN=";
const ALTERNATIVE: [(&str, u8); 3] = [("email:", 0x81), ("DNS:", 0x82), ("URI:", 0x86)];
const DIGEST: &str = "sha256:";

impl FromStr for Subject {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with(DIGEST) {
            return parse_digest(text).map(Self::Sha256).ok_or_else(|| {
                "takes the 64 hexadecimal digits that `openssl x509 -noout -fingerprint -sha256` prints, after sha256:".into()
            });
        }
        let kinds = || std::iter::once(COMMON_NAME).chain(ALTERNATIVE.map(|(kind, _)| kind));
        match kinds().find(|kind| text.strip_prefix(kind).is_some_and(|name| !name.is_empty())) {
            Some(kind) => Ok(Self::Name(name(kind, &text[kind.len()..]))),
            None => Err(format!(
                "takes CN=NAME, DNS:NAME, URI:NAME or email:NAME as the certificate has it, or sha256: and its fingerprint, not \"{text}\""
            )),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Sha256(digest) => {
                f.write_str(DIGEST)?;
                digest.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

/// `sha256:` and 64 hexadecimal digits, between which colons may stand.
pub(super) fn parse_digest(text: &str) -> Option<[u8; 32]> {
    let digits: String = text.strip_prefix(DIGEST)?.chars().filter(|c| *c != ':').collect();
    let byte = |at: usize| u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..32).map(byte).collect();
    bytes.filter(|_| digits.len() == 64 && digits.bytes().all(|c| c.is_ascii_hexdigit()))?.try_into().ok()
}

/// A name with its kind. Case makes no difference in those of the DNS.
fn name(kind: &str, name: &str) -> String {
    format!("{kind}{}", if kind == "DNS:" { name.to_ascii_lowercase() } else { name.to_owned() })
}

pub(super) fn sha256(bytes: &[u8]) -> [u8; 32] {
    digest::digest(&digest::SHA256, bytes).as_ref().try_into().expect("32 bytes")
}

/// A certificate that a client has shown.
#[derive(Clone, Debug)]
pub struct Certificate {
    sha256: [u8; 32],
    names: Vec<String>,
}

impl Certificate {
    /// From its DER.
    #[must_use]
    pub fn new(der: &[u8]) -> Self {
        Self { sha256: sha256(der), names: names(der).unwrap_or_default() }
    }

    pub(super) fn is(&self, subject: &Subject) -> bool {
        match subject {
            Subject::Sha256(digest) => *digest == self.sha256,
            Subject::Name(name) => self.names.contains(name),
        }
    }
}

/// For people: its names, or else its digest.
impl fmt::Display for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.names[..] {
            [] => write!(f, "{}", Subject::Sha256(self.sha256)),
            names => write!(f, "{}", names.join(" ").escape_debug()),
        }
    }
}

/// The values of DER that follow each other: the tag of each, and what it holds. What is malformed ends them.
struct Der<'a>(&'a [u8]);

impl<'a> Iterator for Der<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (&[tag, short], mut rest) = self.0.split_first_chunk()?;
        let mut length = usize::from(short);
        if short > 0x80 {
            let bytes;
            (bytes, rest) = rest.split_at_checked(length & 0x7f).filter(|(bytes, _)| bytes.len() <= 4)?;
            length = bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        }
        let (inside, rest) = rest.split_at_checked(length).filter(|_| short != 0x80)?;
        self.0 = rest;
        Some((tag, inside))
    }
}

const OID: u8 = 0x06;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// UTF8String, PrintableString, IA5String.
const TEXTS: [u8; 3] = [0x0c, 0x13, 0x16];
const OID_COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];
const OID_ALTERNATIVE: [u8; 3] = [0x55, 0x1d, 0x11];

/// The names of a certificate (RFC 5280, 4.1). Of several common names, also of those that cannot be read here, it is not plain
/// which one is meant: none is.
fn names(der: &[u8]) -> Option<Vec<String>> {
    let inside = |of| Der(of).next().map(|(_, inside)| inside);
    let signed = inside(inside(der)?)?;
    let mut fields = Der(signed).skip_while(|(tag, _)| *tag == VERSION);
    let (_, subject) = fields.nth(4)?; // after the serial number, the algorithm, the issuer and the dates
    let of_subject = Der(subject).flat_map(|(_, set)| Der(set)).filter_map(|(_, pair)| {
        let mut pair = Der(pair);
        let text = (pair.next()? == (OID, &OID_COMMON_NAME[..])).then(|| pair.next())?;
        let text = text.filter(|(tag, _)| TEXTS.contains(tag)).and_then(|(_, value)| std::str::from_utf8(value).ok());
        Some(text.map(|text| name(COMMON_NAME, text)))
    });
    let common: Vec<Option<String>> = of_subject.collect();
    let mut all: Vec<String> =
        common.into_iter().collect::<Option<_>>().filter(|all: &Vec<_>| all.len() == 1).unwrap_or_default();
    let extensions = fields.find(|(tag, _)| *tag == EXTENSIONS).and_then(|(_, all)| inside(all));
    let extensions = extensions.into_iter().flat_map(Der);
    let alternative = extensions.filter_map(|(_, extension)| {
        let mut parts = Der(extension);
        if parts.next()? != (OID, &OID_ALTERNATIVE[..]) {
            return None;
        }
        inside(parts.last()?.1)
    });
    all.extend(alternative.flat_map(Der).filter_map(|(tag, value)| {
        let (kind, _) = ALTERNATIVE.into_iter().find(|(_, of)| *of == tag)?;
        Some(name(kind, std::str::from_utf8(value).ok()?))
    }));
    Some(all)
}

#[cfg(test)]
mod tests;
