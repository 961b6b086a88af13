//! A name that was typed without its kind, as in `fairlift set alice weight=100`: the command that was probably meant, with the kinds that
//! have that name at the running server.

use super::complete::Typed;
use crate::control::{Act, KINDS, Kind, keys, parse_place};
use crate::terminal::output::quoted;

/// The text after `unknown kind; there are …`. Empty: nobody knows.
pub(crate) fn meant(name: &str) -> String {
    let typed = Typed::new(std::env::args().collect());
    let all = commands(&typed.arguments, name, |kind| typed.names(kind));
    if all.is_empty() { String::new() } else { format!("; did you mean `{}`?", all.join("` or `")) }
}

/// The commands that the words may be, where `names` gives the names of a kind.
fn commands(arguments: &[String], name: &str, names: impl Fn(Kind) -> Vec<String>) -> Vec<String> {
    let at = arguments.iter().position(|word| word == name).unwrap_or(arguments.len());
    let is_verb = |word: &&String| ["add", "get", "remove", "set"].contains(&word.as_str());
    let Some(verb) = arguments[..at].iter().find(is_verb) else { return Vec::new() };
    let keys_typed: Vec<&str> = arguments[at + 1..].iter().filter_map(|word| Some(word.split_once('=')?.0)).collect();
    let has_keys = |kind: Kind| {
        let known = keys(kind, Act::Set);
        keys_typed.iter().all(|typed| known.iter().any(|key| key.name == *typed))
    };
    let mut found: Vec<(Kind, String)> = match verb.as_str() {
        "add" => to_add(name).map(|kind| (kind, name.to_owned())).into_iter().collect(),
        _ => KINDS.into_iter().flat_map(|(_, kind)| named(name, names(kind)).map(move |it| (kind, it))).collect(),
    };
    if verb == "set" {
        found.retain(|(kind, _)| *kind != Kind::Listener); // which has nothing to set
        if found.iter().any(|(kind, _)| has_keys(*kind)) {
            found.retain(|(kind, _)| has_keys(*kind));
        }
    }
    let rest = arguments[at.min(arguments.len() - 1) + 1..].iter().map(|word| quoted(word));
    let rest: String = rest.map(|word| format!(" {word}")).collect();
    let command = |(kind, name): (Kind, String)| format!("fairlift {verb} {} {}{rest}", kind.name(), quoted(&name));
    found.into_iter().map(command).collect()
}

/// The kind that is added under such a name.
fn to_add(name: &str) -> Option<Kind> {
    match () {
        () if name.starts_with('/') => Some(Kind::Group),
        () if parse_place(name).is_ok() => Some(Kind::Listener),
        () if name.contains('=') => Some(Kind::Export),
        () => None,
    }
}

/// Those of a kind that have the name; a group by the last part of its path too.
fn named(name: &str, all: Vec<String>) -> impl Iterator<Item = String> {
    let name = name.to_owned();
    all.into_iter().filter(move |one| *one == name || (one.starts_with('/') && one.rsplit('/').next() == Some(&name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_its_kind_is_looked_for_among_all_kinds() {
        let names = |kind: Kind| match kind {
            Kind::Group => vec!["/".into(), "/alice".into(), "/t/bob".into()],
            Kind::Export => vec!["alice".into(), "bob".into()],
            Kind::Disk => vec!["vda".into()],
            Kind::Listener => vec!["unix:a.sock".into()],
            Kind::Client => vec!["backup".into()],
        };
        let meant = |line: &str, name: &str| {
            let arguments: Vec<_> = line.split(' ').map(str::to_owned).collect();
            commands(&arguments, name, names).join(" or ")
        };
        assert_eq!(
            meant("fairlift set alice weight=1", "alice"),
            "fairlift set group /alice weight=1",
            "a group's key"
        );
        assert_eq!(meant("fairlift set bob weight=1", "bob"), "fairlift set group /t/bob weight=1");
        assert_eq!(meant("fairlift set alice size=auto", "alice"), "fairlift set export alice size=auto");
        assert_eq!(meant("fairlift set vda device_depth=3", "vda"), "fairlift set disk vda device_depth=3");
        assert_eq!(meant("fairlift get alice", "alice"), "fairlift get group /alice or fairlift get export alice");
        assert_eq!(meant("fairlift remove unix:a.sock", "unix:a.sock"), "fairlift remove listener unix:a.sock");
        assert_eq!(meant("fairlift set backup exports=a,b", "backup"), "fairlift set client backup exports=a,b");
        assert_eq!(meant("fairlift set alise weight=1", "alise"), "");
        assert_eq!(
            meant("fairlift add carol=c.img group=/t", "carol=c.img"),
            "fairlift add export carol=c.img group=/t"
        );
        assert_eq!(meant("fairlift add /t/dave", "/t/dave"), "fairlift add group /t/dave");
        assert_eq!(meant("fairlift add tcp:127.0.0.1:1", "tcp:127.0.0.1:1"), "fairlift add listener tcp:127.0.0.1:1");
    }
}
