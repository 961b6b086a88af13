//! The identity in a client's certificate: its names, and its digest.
//!
//! rustls has verified the certificate before anybody reads it here; what is not as X.509 wants it has no names.

use std::fmt;
use std::str::FromStr;

use ring::digest;
use serde::{Deserialize, Serialize};
use x509_cert::certificate::{CertificateInner, Raw};
use x509_cert::der::asn1::{Any, ObjectIdentifier};
use x509_cert::der::{Decode as _, Tag, Tagged as _};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use super::revoked::{Number, number};

/// How a certificate is named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Subject {
    /// The SHA-256 of all of it.
    Sha256([u8; 32]),
    /// A name in it, as OpenSSL shows it: `CN=alice` of its subject; `DNS:alice.example`, `URI:…`, `email:…` of its alternative names.
    Name(String),
}

/// The kinds of names; all but the first are alternative names (RFC 5280, 4.2.1.6).
const KINDS: [&str; 4] = [COMMON_NAME, EMAIL, DNS, URI];
const COMMON_NAME: &str = "CN=";
const EMAIL: &str = "email:";
const DNS: &str = "DNS:";
const URI: &str = "URI:";
const COMMON_NAME_OID: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const DIGEST: &str = "sha256:";

impl FromStr for Subject {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with(DIGEST) {
            return parse_digest(text).map(Self::Sha256).ok_or_else(|| {
                "takes the 64 hexadecimal digits that `openssl x509 -noout -fingerprint -sha256` prints, after sha256:".into()
            });
        }
        match KINDS.into_iter().find(|kind| text.strip_prefix(kind).is_some_and(|name| !name.is_empty())) {
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
    format!("{kind}{}", if kind == DNS { name.to_ascii_lowercase() } else { name.to_owned() })
}

pub(super) fn sha256(bytes: &[u8]) -> [u8; 32] {
    digest::digest(&digest::SHA256, bytes).as_ref().try_into().expect("32 bytes")
}

/// A certificate that a client has shown. (It is `Raw`: its serial number, for one, is as any authority writes it.)
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Certificate {
    sha256: [u8; 32],
    names: Vec<String>,
    /// Of it and of those between it and its authority; `None`: one cannot be read.
    pub(super) numbers: Option<Vec<Number>>,
}

impl Certificate {
    /// From the DER of it and of those that were shown with it, as they came; `None`: none was.
    #[must_use]
    pub fn new(chain: &[impl AsRef<[u8]>]) -> Option<Self> {
        let read: Vec<_> = chain.iter().map(|one| CertificateInner::<Raw>::from_der(one.as_ref()).ok()).collect();
        let names = read.first()?.as_ref().map(names).unwrap_or_default();
        let numbers = read.iter().map(|one| number(one.as_ref()?)).collect();
        Some(Self { sha256: sha256(chain.first()?.as_ref()), names, numbers })
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

/// The names of a certificate (RFC 5280, 4.1). Of several common names, also of those that cannot be read here, it is not plain
/// which one is meant: none is.
fn names(certificate: &CertificateInner<Raw>) -> Vec<String> {
    let signed = certificate.tbs_certificate();
    let common: Vec<_> = signed.subject().iter().filter(|pair| pair.oid == COMMON_NAME_OID).collect();
    let text = |value: &Any| {
        let text =
            matches!(value.tag(), Tag::Utf8String | Tag::PrintableString | Tag::Ia5String).then(|| value.value())?;
        Some(name(COMMON_NAME, std::str::from_utf8(text).ok()?))
    };
    let common = if let [one] = common[..] { text(&one.value) } else { None };
    let alternative = signed.get_extension::<SubjectAltName>().ok().flatten().map_or(Vec::new(), |(_, all)| all.0);
    let alternative = alternative.iter().filter_map(|one| match one {
        GeneralName::Rfc822Name(text) => Some(name(EMAIL, text.as_str())),
        GeneralName::DnsName(text) => Some(name(DNS, text.as_str())),
        GeneralName::UniformResourceIdentifier(text) => Some(name(URI, text.as_str())),
        _ => None,
    });
    common.into_iter().chain(alternative).collect()
}

#[cfg(test)]
mod tests;
