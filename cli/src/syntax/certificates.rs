//! Certificates, and whom their owner trusts: PEM files under the names that GnuTLS, qemu, nbdkit and libnbd use.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::secret;
use fairlift::access::Revoked;
use ring::digest;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// The certificate of a server, and the authorities it trusts.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    pub(crate) config: Arc<ServerConfig>,
    /// Another one if one of the files is.
    pub(crate) digest: Vec<u8>,
    pub(crate) revoked: Arc<Revoked>,
}

/// Reads `server-cert.pem` and `server-key.pem` in `dir`, and if clients need a certificate `ca-cert.pem` and, where it is there,
/// `ca-crl.pem`. With revocation lists each authority must have one that holds, as with OpenSSL.
pub(crate) fn load(dir: &Path, verify_peer: bool) -> Result<Certificate, String> {
    let mut files = Files { dir, digest: digest::Context::new(&digest::SHA256) };
    let (chain, key) = (files.certificates("server-cert.pem")?, files.key("server-key.pem")?);
    let provider = provider();
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("cannot set up TLS: {error}"))?;
    let mut revoked = Arc::default();
    let builder = if verify_peer {
        let authorities = files.certificates("ca-cert.pem")?;
        let lists = files.lists("ca-crl.pem")?;
        let malformed = || files.wrong("ca-crl.pem", "not a revocation list of X.509, version 2");
        revoked = Arc::new(Revoked::new(&lists, &authorities).ok_or_else(malformed)?);
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(files.roots("ca-cert.pem", authorities)?), provider)
                .with_crls(lists)
                .enforce_revocation_expiration()
                .build();
        builder.with_client_cert_verifier(verifier.map_err(|error| match error {
            VerifierBuilderError::InvalidCrl(error) => format!("{} ({error:?})", malformed()),
            error => files.wrong("ca-cert.pem", error),
        })?)
    } else {
        builder.with_no_client_auth()
    };
    let built = builder.with_single_cert(chain, key);
    let mut config = built.map_err(|error| files.do_not_fit(error, "server-cert.pem", "server-key.pem"))?;
    if verify_peer {
        // A session that is resumed does not have its client's certificate verified again: it would outlive it.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(Certificate { config: Arc::new(config), digest: files.digest.finish().as_ref().to_vec(), revoked })
}

/// Reads `ca-cert.pem` in `dir`, whose servers a client trusts, and `client-cert.pem` and `client-key.pem`, which it shows: if they are there, or
/// `needs_its_own`.
pub(crate) fn load_client(dir: &Path, needs_its_own: bool) -> Result<Arc<ClientConfig>, String> {
    let mut files = Files { dir, digest: digest::Context::new(&digest::SHA256) };
    let own = match needs_its_own || dir.join("client-cert.pem").exists() {
        true => Some((files.certificates("client-cert.pem")?, files.key("client-key.pem")?)),
        false => None,
    };
    let authorities = files.certificates("ca-cert.pem")?;
    let roots = files.roots("ca-cert.pem", authorities)?;
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("cannot set up TLS: {error}"))?
        .with_root_certificates(roots);
    let Some((chain, key)) = own else { return Ok(Arc::new(builder.with_no_client_auth())) };
    let built = builder.with_client_auth_cert(chain, key);
    built.map(Arc::new).map_err(|error| files.do_not_fit(error, "client-cert.pem", "client-key.pem"))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The files of a directory, and the digest of all that was read.
struct Files<'a> {
    dir: &'a Path,
    digest: digest::Context,
}

impl Files<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn read(&mut self, name: &str) -> Result<Vec<u8>, String> {
        let path = self.path(name);
        let is_secret = name.ends_with("-key.pem");
        let bytes = if is_secret { secret::read(&path)? } else { secret::read_trusted(&path)? };
        self.digest.update(name.as_bytes());
        self.digest.update(&(bytes.len() as u64).to_be_bytes());
        self.digest.update(&bytes);
        Ok(bytes)
    }

    /// The items of one kind in a file; messages call the kind `what`.
    fn all<T: PemObject>(&mut self, name: &str, what: &str) -> Result<Vec<T>, String> {
        let bytes = self.read(name)?;
        match T::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>() {
            Ok(all) if all.is_empty() => Err(self.wrong(name, format!("no {what} in it"))),
            Ok(all) => Ok(all),
            Err(error) => Err(self.wrong(name, format!("not a PEM file: {error}"))),
        }
    }

    fn certificates(&mut self, name: &str) -> Result<Vec<CertificateDer<'static>>, String> {
        self.all(name, "certificate")
    }

    fn key(&mut self, name: &str) -> Result<PrivateKeyDer<'static>, String> {
        let bytes = self.read(name)?;
        PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| match error {
            PemError::NoItemsFound => self.wrong(name, "no private key in it (an encrypted key cannot be used)"),
            error => self.wrong(name, format!("not a PEM file: {error}")),
        })
    }

    /// Revocation lists; none if there is no such file.
    fn lists(&mut self, name: &str) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
        if !self.path(name).try_exists().unwrap_or(true) {
            return Ok(Vec::new());
        }
        self.all(name, "revocation list")
    }

    fn roots(&self, name: &str, certificates: Vec<CertificateDer<'static>>) -> Result<RootCertStore, String> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates {
            roots.add(certificate).map_err(|error| self.wrong(name, error))?;
        }
        Ok(roots)
    }

    fn wrong(&self, name: &str, why: impl Display) -> String {
        format!("{}: {why}", self.path(name).display())
    }

    fn do_not_fit(&self, error: rustls::Error, certificate: &str, key: &str) -> String {
        let (certificate, key) = (self.path(certificate), self.path(key));
        match error {
            rustls::Error::InconsistentKeys(_) => {
                format!("{}: the key does not belong to {}", key.display(), certificate.display())
            }
            error => format!("{} with {}: {error}", certificate.display(), key.display()),
        }
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
        secret::write(dir.path().join("server-key.pem"), made.signing_key.serialize_pem());
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
        load_client(dir.path(), false).unwrap();
        for name in ["cert", "key"] {
            let path = |who: &str| dir.path().join(format!("{who}-{name}.pem"));
            std::fs::copy(path("server"), path("client")).unwrap();
        }
        load_client(dir.path(), true).unwrap();
        load_client(dir.path(), false).unwrap();
    }

    #[test]
    fn another_certificate_has_another_digest() {
        let (one, other) = (directory(), directory());
        let digest = |dir: &tempfile::TempDir, verify| load(dir.path(), verify).unwrap().digest;
        assert_eq!(digest(&one, false), digest(&one, false));
        assert_ne!(digest(&one, false), digest(&one, true));
        assert_ne!(digest(&one, false), digest(&other, false));
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

        let list = dir.path().join("ca-crl.pem");
        write(dir.path().join("ca-cert.pem"), std::fs::read(dir.path().join("server-cert.pem")).unwrap()).unwrap();
        secret::write(dir.path().join("server-key.pem"), &key);
        load(dir.path(), true).unwrap();
        write(&list, "").unwrap();
        assert_eq!(refusal(&dir, true), "ca-crl.pem: no revocation list in it");
        write(&list, "-----BEGIN X509 CRL-----\nMAA=\n-----END X509 CRL-----\n").unwrap();
        assert_eq!(refusal(&dir, true), "ca-crl.pem: not a revocation list of X.509, version 2");
        load(dir.path(), false).unwrap();
        std::fs::set_permissions(&list, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        assert!(refusal(&dir, true).starts_with("ca-crl.pem: every user of this machine can change it"));
        std::fs::remove_file(&list).unwrap();

        write(dir.path().join("server-cert.pem"), "no certificate").unwrap();
        assert_eq!(refusal(&dir, false), "server-cert.pem: no certificate in it");
    }
}
