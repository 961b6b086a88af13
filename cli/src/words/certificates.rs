//! The server's certificate, and whom it trusts: PEM files under the names that GnuTLS, qemu, nbdkit and libnbd use.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// Reads `server-cert.pem` and `server-key.pem` in `dir`, and `ca-cert.pem` if clients need a certificate.
///
/// # Errors
/// A file is missing or malformed, or certificate and key do not belong together.
pub(crate) fn load(dir: &Path, verify_peer: bool) -> Result<Arc<ServerConfig>, String> {
    let (certificate_path, key_path) = (dir.join("server-cert.pem"), dir.join("server-key.pem"));
    let chain = certificates(&certificate_path)?;
    let key = PrivateKeyDer::from_pem_file(&key_path).map_err(|error| match error {
        PemError::NoItemsFound => {
            format!("{}: no private key in it (an encrypted key cannot be used)", key_path.display())
        }
        error => describe(&key_path, &error),
    })?;

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("cannot set up TLS: {error}"))?;
    let builder = if verify_peer {
        let authority_path = dir.join("ca-cert.pem");
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&authority_path)? {
            roots.add(certificate).map_err(|error| format!("{}: {error}", authority_path.display()))?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| format!("{}: {error}", authority_path.display()))?;
        builder.with_client_cert_verifier(verifier)
    } else {
        builder.with_no_client_auth()
    };
    let config = builder.with_single_cert(chain, key).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            format!("{}: the key does not belong to {}", key_path.display(), certificate_path.display())
        }
        error => format!("{} with {}: {error}", certificate_path.display(), key_path.display()),
    })?;
    Ok(Arc::new(config))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match all {
        Ok(all) if all.is_empty() => Err(format!("{}: no certificate in it", path.display())),
        Ok(all) => Ok(all),
        Err(error) => Err(describe(path, &error)),
    }
}

fn describe(path: &Path, error: &PemError) -> String {
    match error {
        PemError::Io(error) => format!("{}: {error}", path.display()),
        error => format!("{}: not a PEM file: {error}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::write;

    /// A directory with a certificate and its key.
    fn directory() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        write(dir.path().join("server-cert.pem"), made.cert.pem()).unwrap();
        write(dir.path().join("ca-cert.pem"), made.cert.pem()).unwrap();
        write(dir.path().join("server-key.pem"), made.signing_key.serialize_pem()).unwrap();
        dir
    }

    fn refusal(dir: &tempfile::TempDir, verify_peer: bool) -> String {
        let refusal = load(dir.path(), verify_peer).unwrap_err();
        refusal.replace(&format!("{}/", dir.path().display()), "")
    }

    #[test]
    fn a_directory_as_qemu_has_it_is_taken() {
        let dir = directory();
        load(dir.path(), false).unwrap();
        load(dir.path(), true).unwrap();
    }

    #[test]
    fn each_missing_or_malformed_file_is_named() {
        let dir = directory();
        std::fs::remove_file(dir.path().join("ca-cert.pem")).unwrap();
        load(dir.path(), false).unwrap();
        assert_eq!(refusal(&dir, true), "ca-cert.pem: No such file or directory (os error 2)");

        let key = std::fs::read_to_string(dir.path().join("server-key.pem")).unwrap();
        write(dir.path().join("server-key.pem"), "").unwrap();
        let empty = "server-key.pem: no private key in it (an encrypted key cannot be used)";
        assert_eq!(refusal(&dir, false), empty);
        write(dir.path().join("server-key.pem"), key.replace("-----END", "-----")).unwrap();
        assert!(refusal(&dir, false).starts_with("server-key.pem: not a PEM file: "));
        write(dir.path().join("server-key.pem"), rcgen::KeyPair::generate().unwrap().serialize_pem()).unwrap();
        assert!(refusal(&dir, false).starts_with("server-key.pem: the key does not belong to"));

        write(dir.path().join("server-cert.pem"), "no certificate").unwrap();
        assert_eq!(refusal(&dir, false), "server-cert.pem: no certificate in it");
    }
}
