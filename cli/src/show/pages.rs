//! `fairlift completions`.

use std::io;

use clap::CommandFactory as _;

use crate::args::Cli;

/// The variable that tells the program to complete, and for which shell.
const COMPLETE: &str = "COMPLETE";

/// A completion script, which has the program say what can follow: it asks a running server for names.
///
/// # Errors
/// There is no such shell.
pub(crate) fn completions(shell: clap_complete::Shell) -> io::Result<Vec<u8>> {
    let shells = clap_complete::env::Shells::builtins();
    let shell = shells.completer(&shell.to_string()).ok_or(io::ErrorKind::Unsupported)?;
    let mut out = Vec::new();
    shell.write_registration(COMPLETE, "fairlift", "fairlift", "fairlift", &mut out)?;
    Ok(out)
}

/// Completes, and ends the program, if a shell's script asks for it.
pub(crate) fn complete() {
    clap_complete::CompleteEnv::with_factory(Cli::command).var(COMPLETE).complete();
}

#[cfg(test)]
mod tests {
    use super::super::manual::man;
    use super::*;

    /// The long help of a command and of those below it.
    fn help(command: &mut clap::Command) -> String {
        let mut text = command.render_long_help().to_string();
        for below in command.get_subcommands_mut() {
            text += &help(below);
        }
        text
    }

    /// What the people who work on the program say among themselves: a rule (`fair.2`), a commit, a numbered seed or
    /// issue.
    fn is_inside_talk(word: &str, before: &str) -> bool {
        let is_number = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
        let letters = word.trim_end_matches(|c: char| c.is_ascii_digit());
        let is_rule = matches!(letters.len(), 1 | 2)
            && letters.chars().all(|c| c.is_ascii_uppercase())
            && matches!(word.len() - letters.len(), 1 | 2)
            || word
                .split_once('.')
                .is_some_and(|(name, number)| name.chars().all(char::is_lowercase) && is_number(number));
        let is_commit = matches!(word.len(), 7..=40)
            && word.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
            && word.contains(|c: char| c.is_ascii_digit())
            && word.contains(|c: char| c.is_ascii_lowercase());
        let is_numbered =
            is_number(word) && matches!(before.to_lowercase().as_str(), "seed" | "issue" | "rule" | "commit");
        (is_rule || is_commit || is_numbered) && !["M5", "fairlift.1"].contains(&word) // a disk, a manual page
    }

    #[test]
    fn no_help_text_names_a_rule_a_seed_or_a_commit() {
        let mut text = help(&mut Cli::command()) + &super::super::tunables(None);
        for sort in crate::config::keys::SORTS {
            text += sort.says;
            sort.keys().iter().for_each(|key| text += &format!("\n{} {} {}", key.takes, key.default, key.says));
        }
        for profile in fairlift_lab::model::profiles() {
            text += &super::super::models(Some(profile.name)).unwrap();
        }
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '_' || c == '-';
        let words: Vec<_> = text.split(|c| !is_part(c)).map(|word| word.trim_matches(['.', '-'])).collect();
        let found: Vec<_> =
            words.windows(2).filter(|two| is_inside_talk(two[1], two[0])).map(|two| two.join(" ")).collect();
        assert!(found.is_empty(), "{found:?}");
        for (before, word) in [("writes", "S5"), ("by", "fair.2"), ("at", "65c8df8"), ("seed", "001")] {
            assert!(is_inside_talk(word, before), "{word} goes unnoticed");
        }
    }

    #[test]
    fn a_manual_page_and_completions_can_be_made() {
        assert!(String::from_utf8(man(None).unwrap()).unwrap().contains("fairlift"));
        let dir = tempfile::tempdir().unwrap();
        man(Some(dir.path())).unwrap();
        assert!(dir.path().join("fairlift-serve.1").exists());
        for shell in <clap_complete::Shell as clap::ValueEnum>::value_variants() {
            let script = String::from_utf8(completions(*shell).unwrap()).unwrap();
            assert!(script.contains("COMPLETE") && script.contains("fairlift"), "{script}");
        }
    }
}
