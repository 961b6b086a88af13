//! `fairlift completions` and `fairlift man`.

use std::io;
use std::path::Path;

use clap::CommandFactory as _;

use crate::args::Cli;

/// A completion script.
pub(crate) fn completions(shell: clap_complete::Shell) -> Vec<u8> {
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "fairlift", &mut out);
    out
}

/// The manual page, or one for each command in `directory`.
///
/// # Errors
/// A page cannot be written.
pub(crate) fn man(directory: Option<&Path>) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    match directory {
        None => clap_mangen::Man::new(Cli::command()).render(&mut out)?,
        Some(directory) => {
            std::fs::create_dir_all(directory)?;
            clap_mangen::generate_to(Cli::command(), directory)?;
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_page_and_completions_can_be_made() {
        assert!(String::from_utf8(man(None).unwrap()).unwrap().contains("fairlift"));
        let dir = tempfile::tempdir().unwrap();
        man(Some(dir.path())).unwrap();
        assert!(dir.path().join("fairlift-serve.1").exists());
        assert!(!completions(clap_complete::Shell::Bash).is_empty());
    }
}
