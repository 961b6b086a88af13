use proptest::prelude::*;
use rcgen::{CertificateParams, DnType, KeyPair, SanType};

use super::*;

fn shown(der: &[u8]) -> Certificate {
    Certificate::new(&[der]).unwrap()
}

/// The DER of a certificate with these common names and alternative names.
fn der(common: &[&str], alternative: Vec<SanType>) -> Vec<u8> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "CN=root");
    for (number, name) in common.iter().enumerate() {
        // A table has each type once: the further ones are written by their number.
        let kind = if number == 0 { DnType::CommonName } else { DnType::CustomDnType(vec![2, 5, 4, 3]) };
        params.distinguished_name.push(kind, *name);
    }
    params.subject_alt_names = alternative;
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
}

#[test]
fn a_certificate_has_the_names_that_openssl_shows() {
    let alternative = vec![
        SanType::DnsName("Alice.Example".try_into().unwrap()),
        SanType::URI("spiffe://example/alice".try_into().unwrap()),
        SanType::Rfc822Name("alice@example".try_into().unwrap()),
        SanType::IpAddress("192.0.2.7".parse().unwrap()),
    ];
    let shown = shown(&der(&["alice"], alternative));
    assert_eq!(shown.names, ["CN=alice", "DNS:alice.example", "URI:spiffe://example/alice", "email:alice@example"]);
    for subject in ["CN=alice", "DNS:ALICE.example", "URI:spiffe://example/alice", "email:alice@example"] {
        assert!(shown.is(&subject.parse().unwrap()), "{subject}");
    }
    for subject in ["CN=root", "CN=Alice", "CN=alice.example", "DNS:alice", "DNS:192.0.2.7", "URI:spiffe://example"] {
        assert!(!shown.is(&subject.parse().unwrap()), "{subject}");
    }
}

#[test]
fn of_two_common_names_none_is_meant() {
    let shown = shown(&der(&["alice", "bob"], Vec::new()));
    assert!(!["CN=alice", "CN=bob"].iter().any(|name| shown.is(&name.parse().unwrap())));
}

#[test]
fn a_common_name_that_cannot_be_read_is_one_more() {
    use rcgen::DnValue;
    for other in [
        DnValue::TeletexString("mallory".try_into().unwrap()),
        DnValue::BmpString("mallory".try_into().unwrap()),
        DnValue::UniversalString("mallory".try_into().unwrap()),
        DnValue::PrintableString("mallory".try_into().unwrap()),
        DnValue::Ia5String("mallory".try_into().unwrap()),
    ] {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "alice");
        params.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 3]), other.clone());
        let der = params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec();
        assert_eq!(shown(&der).names, [""; 0], "{other:?}");
    }
}

#[test]
fn a_name_does_not_end_at_a_nul() {
    let shown = shown(&der(&["alice\0mallory"], Vec::new()));
    assert_eq!(shown.names, ["CN=alice\0mallory"]);
    assert!(!shown.is(&"CN=alice".parse().unwrap()));
}

#[test]
fn a_certificate_is_known_by_its_digest() {
    let der = der(&[], Vec::new());
    let digest: String =
        digest::digest(&digest::SHA256, &der).as_ref().iter().map(|byte| format!("{byte:02X}:")).collect();
    let subject: Subject = format!("sha256:{}", digest.trim_end_matches(':')).parse().unwrap();
    let shown = shown(&der);
    assert!(shown.is(&subject));
    assert!(!shown.is(&Subject::Sha256([7; 32])));
    assert_eq!((shown.to_string(), subject.to_string().parse()), (subject.to_string(), Ok(subject)));
}

#[test]
fn what_names_no_certificate_is_told_what_would() {
    let says = |text: &str| text.parse::<Subject>().unwrap_err();
    for text in ["alice", "", "CN=", "dns:alice", "O=alice"] {
        assert!(says(text).starts_with("takes CN=NAME, DNS:NAME"), "{text}");
    }
    for text in ["sha256:", "sha256:12", &format!("sha256:+{}", "1".repeat(63)), &format!("sha256:{}", "ä".repeat(32))]
    {
        assert!(says(text).starts_with("takes the 64 hexadecimal digits"), "{text}");
    }
}

proptest! {
    /// Bytes that are no certificate yield no names, and a damaged certificate yields none that it does not have.
    #[test]
    fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..300), at in 0..400_usize, byte: u8) {
        let _ = shown(&bytes);
        let mut nearly = der(&["alice"], vec![SanType::DnsName("alice.example".try_into().unwrap())]);
        let at = at % nearly.len();
        let _ = shown(&nearly[..at]);
        nearly[at] = byte;
        let _ = shown(&nearly);
    }
}
