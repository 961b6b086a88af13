//! `fairlift completions`.

use std::io;

use clap::CommandFactory as _;

use crate::args::Cli;

/// The variable that tells the program to complete, and for which shell.
const COMPLETE: &str = "COMPLETE";

/// A completion script, which has the program say what can follow: it asks a running server for names.
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

    /// Words for those who work on the program: a rule (`fair.2`), a commit, a numbered seed or issue.
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

    /// The texts of a command, its arguments and its values, and of the commands below it.
    fn texts(command: &clap::Command, into: &mut Vec<String>) {
        into.extend(command.get_about().map(ToString::to_string));
        for argument in command.get_arguments() {
            into.extend(argument.get_help().map(ToString::to_string));
            into.extend(
                argument.get_possible_values().iter().filter_map(|value| value.get_help()).map(ToString::to_string),
            );
        }
        command.get_subcommands().for_each(|below| texts(below, into));
    }

    /// The texts of the API's document.
    fn described(value: &serde_json::Value, into: &mut Vec<String>) {
        for (key, value) in value.as_object().into_iter().flatten() {
            match value.as_str() {
                Some(text) if ["title", "summary", "description"].contains(&&**key) => into.push(text.to_owned()),
                _ => described(value, into),
            }
        }
        value.as_array().into_iter().flatten().for_each(|value| described(value, into));
    }

    /// Whether a text begins with a clause where the name of the thing should be: "how long it waits" for "the time that it waits".
    fn hides_its_subject(text: &str) -> bool {
        let first = text.trim_start().split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_lowercase();
        [
            "what", "who", "whoever", "whose", "how", "where", "when", "which", "that", "those", "so", "one", "as",
            "if", "it",
        ]
        .contains(&&*first)
    }

    #[test]
    fn each_text_of_help_and_api_is_a_noun_phrase_or_an_imperative() {
        let mut all = Vec::new();
        texts(&Cli::command(), &mut all);
        for sort in crate::config::keys::SORTS {
            all.extend(sort.keys().iter().map(|key| key.says.to_owned()));
        }
        for kind in fairlift_core::sched::Kind::ALL {
            all.extend(kind.tunables().iter().map(|tunable| tunable.says.to_owned()));
        }
        described(&crate::control::document(), &mut all);
        assert!(all.len() > 250, "{} texts", all.len());
        let found: Vec<_> = all.iter().filter(|text| hides_its_subject(text)).collect();
        assert!(found.is_empty(), "{found:#?}");
        assert!(hides_its_subject("what clients ask for") && !hides_its_subject("whether clients may only read"));
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
