//! Secrets: files that are of use only as long as few can read them.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Reads a file that nobody but its owner and its group may read: a token, a private key.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    read_unless(path, 0o006, "it is a secret: chmod o=")
}

/// Reads a file that is trusted, and no secret: a certificate, a revocation list.
pub(crate) fn read_trusted(path: &Path) -> Result<Vec<u8>, String> {
    read_unless(path, 0o002, "it decides which peers are trusted: chmod o-w")
}

fn read_unless(path: &Path, open_to: u32, why: &str) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let fail = |error: std::io::Error| format!("{shown}: {error}");
    let mut file = std::fs::File::open(path).map_err(fail)?;
    let mode = file.metadata().map_err(fail)?.permissions().mode() & 0o7777;
    if mode & open_to != 0 {
        let does = if mode & open_to & 0o004 != 0 { "read" } else { "change" };
        return Err(format!("{shown}: every user of this machine can {does} it (mode {mode:04o}), and {why} {shown}"));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(fail)?;
    Ok(bytes)
}

/// Writes a file that only its owner can read.
#[cfg(test)]
pub(crate) fn write(path: impl AsRef<Path>, text: impl AsRef<[u8]>) {
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_that_others_can_read_or_change_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, "secret").unwrap();
        let with = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            read(&path)
        };
        assert_eq!(with(0o600), Ok(b"secret".to_vec()));
        assert_eq!(with(0o640), Ok(b"secret".to_vec()), "a group is chosen");
        assert!(with(0o644).unwrap_err().contains("every user of this machine can read it (mode 0644)"));
        assert!(with(0o602).unwrap_err().contains("can change it"));
        assert!(
            read_trusted(&path)
                .unwrap_err()
                .contains("can change it (mode 0602), and it decides which peers are trusted")
        );
        with(0o644).unwrap_err();
        assert_eq!(read_trusted(&path), Ok(b"secret".to_vec()));
        assert!(read(&dir.path().join("none")).unwrap_err().contains("No such file"));
    }
}
