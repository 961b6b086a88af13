//! Revoked: certificates that their authority takes back before they expire, on a list that it has signed.
//!
//! A handshake with a certificate on a list is refused by rustls. The client that is connected already is the problem: alice's key is stolen, its
//! certificate comes onto the list, and the thief's connection would live on. With other lists connections are looked at again, as with
//! other rules (access.6).
//!
//! revoked.1  A client is revoked if the list of its certificate's authority has its serial number, or if that is so of a certificate
//!            between, which it has shown with its own.
//! revoked.2  Where there are lists, a certificate whose authority or serial number cannot be read is revoked.
//! revoked.3  An expired list still revokes its certificates. (That an authority without a list that holds lets nobody in is rustls' doing.)

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use x509_cert::certificate::{CertificateInner, Raw};
use x509_cert::crl::CertificateList;
use x509_cert::der::{Decode as _, Encode as _};

use super::Certificate;

/// The certificates that are revoked.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Revoked {
    /// The serial numbers, by the names of the authorities.
    serials: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>,
    lists: Vec<List>,
    /// The server's authorities that have none.
    without: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct List {
    authority: String,
    until: Option<SystemTime>,
    /// Whether the authority is one that the server trusts.
    is_trusted: bool,
}

pub(super) type Number = (Vec<u8>, Vec<u8>);

pub(super) fn number(certificate: &CertificateInner<Raw>) -> Option<Number> {
    let signed = certificate.tbs_certificate();
    Some((signed.issuer().to_der().ok()?, signed.serial_number().as_bytes().to_vec()))
}

impl Revoked {
    /// From the DER of revocation lists, and of the certificates of the authorities that are trusted; `None`: one is no list.
    #[must_use]
    pub fn new(lists: &[impl AsRef<[u8]>], authorities: &[impl AsRef<[u8]>]) -> Option<Self> {
        let trusted = authorities.iter().filter_map(|one| CertificateInner::<Raw>::from_der(one.as_ref()).ok());
        let trusted: Vec<_> = trusted.map(|one| one.tbs_certificate().subject().clone()).collect();
        let mut all = Self::default();
        for list in lists {
            let contents = CertificateList::<Raw>::from_der(list.as_ref()).ok()?.tbs_cert_list;
            let serials = all.serials.entry(contents.issuer.to_der().ok()?).or_default();
            let revoked = contents.revoked_certificates.unwrap_or_default();
            serials.extend(revoked.iter().map(|one| one.serial_number.as_bytes().to_vec()));
            all.lists.push(List {
                authority: contents.issuer.to_string(),
                until: contents.next_update.map(|until| SystemTime::UNIX_EPOCH + until.to_unix_duration()),
                is_trusted: trusted.contains(&contents.issuer),
            });
        }
        let shown = trusted.iter().map(ToString::to_string);
        all.without = shown.filter(|one| !all.lists.iter().any(|list| list.authority == *one)).collect();
        Some(all)
    }

    /// Whether a client is revoked (revoked.1, revoked.2).
    #[must_use]
    pub fn has(&self, client: &Certificate) -> bool {
        let on_a_list =
            |(authority, serial): &Number| self.serials.get(authority).is_some_and(|all| all.contains(serial));
        !self.lists.is_empty() && client.numbers.as_ref().is_none_or(|chain| chain.iter().any(on_a_list))
    }

    /// Whether there is no list.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// How many certificates are revoked.
    #[must_use]
    pub fn count(&self) -> usize {
        self.serials.values().map(BTreeSet::len).sum()
    }

    /// Whom the lists keep out that are not revoked, and which list does nothing, a line each.
    #[must_use]
    pub fn warnings(&self, now: SystemTime) -> Vec<String> {
        if self.lists.is_empty() {
            return Vec::new();
        }
        let without =
            self.without.iter().map(|one| format!("has no list of {one}: clients that it has signed are refused"));
        let lists = self.lists.iter().filter_map(|List { authority, until, is_trusted }| {
            let expired =
                || format!("has a list of {authority} that has expired: clients that it has signed are refused");
            match is_trusted {
                true => until.is_some_and(|until| until <= now).then(expired),
                false => Some(format!("has a list of {authority}, which is no authority of ca-cert.pem")),
            }
        });
        without.chain(lists).collect()
    }
}

#[cfg(test)]
mod tests;
