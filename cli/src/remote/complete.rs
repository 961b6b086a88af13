//! Completions that a shell offers for the words of a command. The names come from the running server, which is asked for a moment; a server
//! that is not there or does not answer offers nothing.

use std::time::Duration;

use clap_complete::CompletionCandidate;
use serde_json::Value;

use super::client::{At, Server};
use crate::control::{Act, Kind, keys, parse_kind};
use crate::syntax::scheduler::{parse_scheduler, tunables};

/// How long a server is asked. Chosen: a person who presses Tab hardly notices it.
const PATIENCE: Duration = Duration::from_millis(300);

/// The existing names of the kind that stands before: `fairlift set group <Tab>`.
pub(crate) fn names() -> Vec<CompletionCandidate> {
    of(Typed::now().kind().as_slice())
}

/// The existing names of these kinds: of groups their paths.
pub(crate) fn of(kinds: &[Kind]) -> Vec<CompletionCandidate> {
    let typed = Typed::now();
    candidates(kinds.iter().flat_map(|kind| typed.names(*kind)).collect())
}

/// The keys of the kind that stands before, or the values of the key that is typed: `fairlift set disk ssd0 scheduler=<Tab>`.
pub(crate) fn settings() -> Vec<CompletionCandidate> {
    candidates(Typed::now().settings())
}

fn candidates(all: Vec<String>) -> Vec<CompletionCandidate> {
    all.into_iter().map(CompletionCandidate::new).collect()
}

/// The words of the command line so far, and which of them is completed.
pub(super) struct Typed {
    pub(super) arguments: Vec<String>,
    at: usize,
}

impl Typed {
    /// All words of a command.
    pub(super) fn new(arguments: Vec<String>) -> Self {
        Self { at: arguments.len(), arguments }
    }

    /// As the shell's script passes them, behind `--`.
    fn now() -> Self {
        let arguments: Vec<_> = std::env::args().skip_while(|word| word != "--").skip(1).collect();
        let at = std::env::var("_CLAP_COMPLETE_INDEX").ok().and_then(|at| at.parse().ok());
        Self { at: at.unwrap_or(arguments.len().saturating_sub(1)), arguments }
    }

    fn before(&self) -> &[String] {
        &self.arguments[..self.at.min(self.arguments.len())]
    }

    fn kind(&self) -> Option<Kind> {
        self.before().iter().skip(1).find_map(|word| parse_kind(word).ok())
    }

    fn server(&self) -> Option<Server> {
        let mut arguments = self.arguments.iter();
        let control = arguments
            .find_map(|word| word.strip_prefix("--control").map(str::to_owned))
            .and_then(|rest| rest.strip_prefix('=').map(str::to_owned).or_else(|| arguments.next().cloned()));
        let control = control.or_else(|| std::env::var("FAIRLIFT_CONTROL").ok());
        Server::find(&At { control, json: true }).ok()
    }

    fn ask(&self, path: &str) -> Option<Value> {
        self.server()?.ask_within(PATIENCE, path)
    }

    /// The server's objects of a kind; empty: no server answers.
    pub(super) fn names(&self, kind: Kind) -> Vec<String> {
        let key = match kind {
            Kind::Export | Kind::Disk | Kind::Client => "name",
            Kind::Listener => "address",
            Kind::Group => "path",
        };
        let mut all = Vec::new();
        match self.ask(&format!("/v1/{}s", kind.name())) {
            Some(Value::Array(list)) => list.iter().for_each(|one| collect(one, key, &mut all)),
            Some(tree) => collect(&tree, key, &mut all),
            None => {}
        }
        all
    }

    fn settings(&self) -> Vec<String> {
        let (Some(kind), Some(act)) = (self.kind(), self.act()) else { return Vec::new() };
        let current = self.arguments.get(self.at).map_or("", String::as_str);
        let last = self.before().last().map_or("", String::as_str);
        if let Some((key, _)) = current.split_once('=') {
            return self.values(key).iter().map(|value| format!("{key}={value}")).collect();
        }
        // Bash takes `=` for a word of its own.
        let known: Vec<String> = self.keys(kind, act);
        let key = match last {
            "=" => self.before().iter().rev().nth(1).map(String::as_str),
            key => Some(key).filter(|key| known.iter().any(|one| one == key)),
        };
        match key {
            Some(key) => self.values(key),
            None => known.iter().map(|key| format!("{key}=")).collect(),
        }
    }

    fn act(&self) -> Option<Act> {
        match self.arguments.get(1)?.as_str() {
            "add" => Some(Act::Add),
            "set" => Some(Act::Set),
            _ => None,
        }
    }

    /// The keys that can be said, and of a disk the tunables of the scheduler that it has.
    fn keys(&self, kind: Kind, act: Act) -> Vec<String> {
        let all = keys(kind, act).into_iter().map(|key| key.name);
        let mut all: Vec<String> =
            all.filter(|key| !["backing", "tunables"].contains(key)).map(str::to_owned).collect();
        if (kind, act) == (Kind::Disk, Act::Set)
            && let Some(name) = self.arguments.get(3)
            && let Some(disk) = self.ask(&super::thing(kind, name))
        {
            let scheduler = disk["scheduler"].as_str().and_then(|name| parse_scheduler(name).ok());
            all.extend(scheduler.into_iter().flat_map(tunables).map(|info| info.name.to_owned()));
        }
        all
    }

    fn values(&self, key: &str) -> Vec<String> {
        match key {
            "group" => self.names(Kind::Group),
            "disk" => self.names(Kind::Disk),
            "exports" => self.names(Kind::Export),
            "listener" => self.names(Kind::Listener),
            _ => {
                let known = self.kind().zip(self.act()).map_or_else(Vec::new, |(kind, act)| keys(kind, act));
                let choices =
                    known.into_iter().find(|known| known.name == key).map_or_else(Vec::new, |key| key.choices);
                choices.into_iter().map(str::to_owned).collect()
            }
        }
    }
}

/// A name, and those of groups below.
fn collect(one: &Value, key: &str, all: &mut Vec<String>) {
    all.extend(one[key].as_str().map(str::to_owned));
    one["groups"].as_array().into_iter().flatten().for_each(|below| collect(below, key, all));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(line: &str) -> Typed {
        let arguments: Vec<_> = line.split(' ').map(str::to_owned).collect();
        Typed { at: arguments.len() - 1, arguments }
    }

    /// Without a server: what is always possible.
    #[test]
    fn keys_and_values_are_offered_where_they_can_stand() {
        let nowhere = "--control=unix:/nowhere.sock";
        let offered = |line: &str| typed(&format!("fairlift set {line}")).settings().join(" ");
        assert_eq!(offered("group /a "), "weight= max= burst= min= latency=");
        assert!(offered(&format!("disk d {nowhere} ")).starts_with("scheduler= depth="));
        assert!(offered("disk d scheduler=b").contains("scheduler=bfq"));
        assert!(offered("disk d scheduler = b").split(' ').any(|word| word == "bfq"), "as bash splits it");
        assert_eq!(offered("export a read_only "), "true false");
        assert_eq!(offered("export a description="), "");
        assert_eq!(typed(&format!("fairlift get {nowhere} export ")).names(Kind::Export), [""; 0]);
        assert_eq!(typed("fairlift get export a").kind(), Some(Kind::Export));
    }

    #[test]
    fn groups_are_offered_with_those_below() {
        let tree = serde_json::json!({"path": "/", "groups": [{"path": "/a", "groups": [{"path": "/a/b"}]}]});
        let mut all = Vec::new();
        collect(&tree, "path", &mut all);
        assert_eq!(all, ["/", "/a", "/a/b"]);
    }
}
