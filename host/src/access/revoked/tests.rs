use std::sync::Arc;
use std::time::Duration;

use fairlift_core::record::Record;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod, KeyPair,
    KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};

use super::*;
use crate::access::{Access, Peer};

/// An authority, and its certificate.
fn authority(name: &str) -> (Issuer<'static, KeyPair>, Vec<u8>) {
    let (mut params, key) = (CertificateParams::default(), KeyPair::generate().unwrap());
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let der = params.self_signed(&key).unwrap().der().to_vec();
    (Issuer::new(params, key), der)
}

fn signed(by: &Issuer<'_, KeyPair>, serial: u64) -> Vec<u8> {
    let mut params = CertificateParams::default();
    params.serial_number = Some(serial.into());
    params.signed_by(&KeyPair::generate().unwrap(), by).unwrap().der().to_vec()
}

fn list(by: &Issuer<'_, KeyPair>, serials: &[u64], until: i32) -> Vec<u8> {
    let revoked = |serial: &u64| RevokedCertParams {
        serial_number: SerialNumber::from(*serial),
        revocation_time: date_time_ymd(2026, 1, 1),
        reason_code: None,
        invalidity_date: None,
    };
    let params = CertificateRevocationListParams {
        this_update: date_time_ymd(2026, 1, 1),
        next_update: date_time_ymd(until, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: serials.iter().map(revoked).collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    params.signed_by(by).unwrap().der().to_vec()
}

const NONE: &[Vec<u8>] = &[];

/// revoked.1, revoked.2
#[test]
fn a_client_is_revoked_whose_chain_has_a_number_on_a_list() {
    let ((ours, root), (others, _)) = (authority("ours"), authority("others"));
    let revoked = Revoked::new(&[list(&ours, &[7, 300], 2100), list(&others, &[8], 2100)], &[root]).unwrap();
    let has = |chain: &[Vec<u8>]| revoked.has(&Certificate::new(chain).unwrap());
    assert!(has(&[signed(&ours, 7)]) && has(&[signed(&ours, 300)]) && has(&[signed(&others, 8)]));
    assert!(!has(&[signed(&ours, 8)]) && !has(&[signed(&others, 7)]), "the number is another authority's");
    assert!(has(&[signed(&ours, 9), signed(&ours, 7)]), "one between is revoked");
    assert!(has(&[b"no certificate".to_vec()]));
    assert_eq!(revoked.count(), 3);
    let without = Revoked::new(NONE, NONE).unwrap();
    assert!(without.is_empty() && !without.has(&Certificate::new(&[b"no certificate"]).unwrap()));
    assert_eq!(Revoked::new(&[signed(&ours, 7)], NONE), None, "a certificate is no list");
}

/// Another server goes on with the client, and has this one's knowledge of its certificate.
#[test]
fn a_client_that_was_handed_over_is_revoked_as_before() {
    let (ours, root) = authority("ours");
    let revoked = Revoked::new(&[list(&ours, &[7], 2100)], &[root]).unwrap();
    let handed = |chain: &[Vec<u8>]| {
        let mut says = Record::default();
        says.put("certificate", &Certificate::new(chain));
        Record::parse(&says.to_string()).unwrap().need::<Certificate>("certificate").unwrap()
    };
    assert!(revoked.has(&handed(&[signed(&ours, 7)])) && !revoked.has(&handed(&[signed(&ours, 8)])));
    assert!(revoked.has(&handed(&[signed(&ours, 9), signed(&ours, 7)])), "one between is revoked");
    assert!(revoked.has(&handed(&[b"no certificate".to_vec()])));
    let chain = [signed(&ours, 8)];
    assert_eq!(handed(&chain).to_string(), Certificate::new(&chain).unwrap().to_string());
}

/// revoked.1, access.6
#[test]
fn a_client_that_is_revoked_may_nothing_any_more() {
    let (ours, root) = authority("ours");
    let peer = |serial| Peer { certificate: Certificate::new(&[signed(&ours, serial)]), ..Peer::default() };
    let before = Access::default();
    let entry = |serial| before.of(&peer(serial)).enter("disk", "/").unwrap();
    let (goes, stays) = (entry(7), entry(8));
    let revoked = Revoked::new(&[list(&ours, &[7], 2100)], &[root]).unwrap();
    let after = Access::new(&[], &Arc::new(revoked), &before);
    assert!(after.of(&peer(7)).keep("disk", "/", &goes).is_none() && after.of(&peer(7)).enter("disk", "/").is_none());
    assert!(after.of(&peer(8)).keep("disk", "/", &stays).is_some());
}

/// revoked.3
#[test]
fn lists_that_keep_clients_out_are_told() {
    let ((ours, root), (others, other_root)) = (authority("ours"), authority("others"));
    let (now, year) = (SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000), 2027); // 15 January 2027
    let warnings_of = |lists: &[Vec<u8>], roots: &[&Vec<u8>]| Revoked::new(lists, roots).unwrap().warnings(now);
    assert_eq!(warnings_of(&[], &[&root]), [""; 0]);
    assert_eq!(warnings_of(&[list(&ours, &[], year + 1)], &[&root]), [""; 0]);
    let expired = Revoked::new(&[list(&ours, &[7], year)], &[&root]).unwrap();
    assert!(expired.has(&Certificate::new(&[signed(&ours, 7)]).unwrap()));
    assert_eq!(expired.warnings(now).len(), 1);
    assert!(expired.warnings(now)[0].contains("ours that has expired"), "{:?}", expired.warnings(now));
    let two = warnings_of(&[list(&ours, &[], year + 1)], &[&root, &other_root]);
    assert!(two.len() == 1 && two[0].contains("has no list of") && two[0].contains("CN=others"), "{two:?}");
    let stray = warnings_of(&[list(&ours, &[], year + 1), list(&others, &[], year)], &[&root]);
    assert!(stray.len() == 1 && stray[0].contains("CN=others, which is no authority"), "{stray:?}");
}
