//! `fairlift units`: units for systemd that start this program.

use std::io;
use std::path::Path;

/// Where the package has the program, and so the units.
const PACKAGED: &str = "/usr/bin/fairlift";

/// The names of the units, and their content.
const UNITS: [(&str, &str); 4] = [
    ("fairlift.service", include_str!("../../systemd/fairlift.service")),
    ("fairlift@.service", include_str!("../../systemd/fairlift@.service")),
    ("fairlift-ublk.service", include_str!("../../systemd/fairlift-ublk.service")),
    ("fairlift.socket", include_str!("../../systemd/fairlift.socket")),
];

/// The unit of the service; or all of them, in `directory`.
pub(crate) fn units(directory: Option<&Path>) -> io::Result<Vec<u8>> {
    let program = std::env::current_exe()?;
    let program = program.to_str().ok_or_else(|| io::Error::other("the path of this program is not UTF-8"))?;
    if is_hidden(program) {
        eprintln!(
            "warning: a service cannot start {program}: its unit hides /home, /root and /tmp from it. Install the program in /usr/local/bin, \
             and call `fairlift units` there"
        );
    }
    super::files(directory, UNITS.map(|(name, unit)| (name, starting(program, unit))).into())
}

/// Whether the service does not see the program (`ProtectHome`, `PrivateTmp` in the units).
fn is_hidden(program: &str) -> bool {
    ["/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/"].iter().any(|directory| program.starts_with(directory))
}

/// A unit with the program where it is. Its path is quoted as systemd reads it.
fn starting(program: &str, unit: &str) -> String {
    let plain = program.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+".contains(&byte));
    let quoted = program.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    let program = if plain { program.to_owned() } else { format!("\"{quoted}\"") };
    let keys = ["ExecStart=", "ExecReload=-"];
    keys.iter()
        .fold(unit.to_owned(), |unit, key| unit.replace(&format!("{key}{PACKAGED} "), &format!("{key}{program} ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_services_start_the_program_where_it_is() {
        let mut started = 0;
        for (name, unit) in UNITS {
            let shown = starting("/opt/100% fair/fairlift", unit);
            assert!(!shown.contains(PACKAGED), "{name}: {shown}");
            started += shown.matches("\nExecStart=\"/opt/100%% fair/fairlift\" serve --config /etc/fairlift/").count();
            assert_eq!(starting(PACKAGED, unit), unit, "{name} as the package has it");
        }
        assert_eq!(started, 3);
    }

    #[test]
    fn a_program_that_the_service_would_not_see_is_told_of() {
        assert!(["/root/.cargo/bin/fairlift", "/home/a/fairlift", "/tmp/fairlift"].into_iter().all(is_hidden));
        assert!(!["/usr/local/bin/fairlift", "/opt/tmp/fairlift", "/homes/fairlift"].into_iter().any(is_hidden));
    }

    #[test]
    fn they_are_written_where_they_are_asked_for() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(units(Some(directory.path())).unwrap(), b"");
        let service = std::fs::read(directory.path().join("fairlift.service")).unwrap();
        assert_eq!(units(None).unwrap(), service);
        assert!(
            directory.path().join("fairlift.socket").exists() && directory.path().join("fairlift@.service").exists()
        );
    }
}
