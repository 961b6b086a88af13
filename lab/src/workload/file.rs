//! Workloads from a TOML file.

use std::collections::BTreeMap;
use std::ops::Range;

use fairlift_core::tunable::{parse_duration, parse_size};
use fairlift_core::{Group, Op, Sector, Weight};
use serde::Deserialize;
use toml::Spanned;

use super::{Does, Role, Workload, is_at_or_below};
use crate::program::Pattern;
use crate::suggestion;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWorkload {
    #[serde(default)]
    about: String,
    #[serde(default)]
    roles: Vec<Spanned<RawRole>>,
    #[serde(default)]
    tenants: Vec<Spanned<RawRole>>,
    #[serde(default)]
    weights: BTreeMap<Spanned<String>, Spanned<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRole {
    name: Option<Spanned<String>>,
    does: Spanned<String>,
    order: Option<Spanned<String>>,
    block_size: Option<Spanned<Size>>,
    think: Option<Spanned<String>>,
    share: Option<Spanned<i64>>,
    once: Option<bool>,
    group: Option<Spanned<String>>,
    iodepth: Option<Spanned<i64>>,
    flush_every: Option<Spanned<i64>>,
    read_ahead: Option<Spanned<Size>>,
    weight: Option<Spanned<i64>>,
    ioprio: Option<Spanned<String>>,
    rate: Option<Spanned<i64>>,
    fua: Option<Spanned<bool>>,
}

/// Bytes: `4096` or `"4k"`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Size {
    Number(u64),
    Text(String),
}

const ORDERS: [&str; 2] = ["sequential", "random"];

/// The largest block. Chosen: what fits into memory many times.
const BLOCK_MAX: u64 = 64 << 20;

/// Where in the text, in bytes, and the mistake.
type Problem = (Range<usize>, String);

impl Workload {
    /// Reads the workloads of a TOML file, in its order. `docs/iostest.md` has the keys of roles, `docs/iostest-tenants.md` those of tenants;
    /// `built_in.toml` and `tenants.toml`, beside this file, are examples of both.
    ///
    /// # Errors
    /// The first thing that is wrong: a key or name that nobody knows, a value that is not possible, or nobody for the
    /// jobs to play; with its line and column, as in `3:9: unknown order "sequentail": …`.
    pub fn read(text: &str) -> Result<Vec<Self>, String> {
        let raw: BTreeMap<Spanned<String>, RawWorkload> = toml::from_str(text).map_err(|error| {
            let says = explain(error.message());
            mistake(text, (error.span().unwrap_or_default(), says))
        })?;
        let mut found = Vec::new();
        for (name, raw) in raw {
            let at = name.span();
            let workload = workload(&name, raw).map_err(|wrong| mistake(text, wrong))?;
            found.push((at.start, workload));
        }
        if found.is_empty() {
            return Err(mistake(text, (0..0, "the file has no workload: add [NAME] and [[NAME.roles]]".into())));
        }
        found.sort_by_key(|(at, _)| *at);
        Ok(found.into_iter().map(|(_, workload)| workload).collect())
    }
}

fn workload(name: &Spanned<String>, raw: RawWorkload) -> Result<Workload, Problem> {
    if !raw.tenants.is_empty() {
        return situation(name, raw);
    }
    if let Some((path, _)) = raw.weights.first_key_value() {
        return Err((path.span(), "weights are for groups of tenants: [[NAME.tenants]]".into()));
    }
    let mut roles: Vec<Role> = Vec::new();
    for raw in raw.roles {
        let at = raw.span();
        let raw = raw.into_inner();
        if let Some(weight) = &raw.weight {
            return Err((weight.span(), "a role has no weight; only tenants have one".into()));
        }
        let role = role(raw)?;
        if roles.iter().any(|other| other.name == role.name) {
            return Err((at, format!("two roles are named \"{}\"; choose another name", role.name)));
        }
        roles.push(role);
    }
    let name_text = name.get_ref().clone();
    if !roles.iter().any(|role| !role.once && role.share > 0) {
        return Err((
            name.span(),
            format!("{name_text}: the workload has no role for the jobs: add [[{name_text}.roles]]"),
        ));
    }
    Ok(Workload { name: name_text, about: raw.about, roles, groups: Vec::new() })
}

/// Tenants, each in a leaf of its own, and the tree of their weights.
fn situation(name: &Spanned<String>, raw: RawWorkload) -> Result<Workload, Problem> {
    if let Some(role) = raw.roles.first() {
        return Err((role.span(), "a workload has roles or tenants, not both".into()));
    }
    let (mut groups, mut roles) = (vec![Group::root()], Vec::<Role>::new());
    for (place, raw) in raw.tenants.into_iter().enumerate() {
        let at = raw.span();
        let raw = raw.into_inner();
        if raw.share.is_some() || raw.once.is_some() || raw.iodepth.is_none() {
            return Err((at, "a tenant needs an iodepth, and takes neither share nor once".into()));
        }
        let weight = raw.weight.as_ref().map_or(Ok(Weight::DEFAULT), weight)?;
        let mut role = role(raw)?;
        if !matches!(role.does, Does::Direct(..)) {
            return Err((at, "a tenant is direct-read or direct-write".into()));
        }
        let path = role.group.take().unwrap_or_else(|| format!("/t{}", place + 1));
        let is_near =
            |other: &Role| other.is_of(&path) || other.group.as_deref().is_some_and(|own| is_at_or_below(own, &path));
        if roles.iter().any(is_near) {
            return Err((at, format!("a tenant needs a group of its own: {path} has another tenant")));
        }
        if path.split('/').skip(1).any(str::is_empty) {
            return Err((at, format!("\"{path}\" is not a group's path, such as \"/a\" or \"/a/b\"")));
        }
        let leaf = Group::place(&mut groups, &path, usize::from(u16::MAX)).map_err(|says| (at, says))?;
        groups[usize::from(leaf.0)].weight = weight;
        role.name = path.clone();
        role.group = Some(path);
        roles.push(role);
    }
    for (path, given) in raw.weights {
        let weight = weight(&given)?;
        let is_above = |role: &Role| {
            let own = role.group.as_deref().unwrap_or_default();
            own != path.get_ref() && is_at_or_below(own, path.get_ref())
        };
        if !roles.iter().any(is_above) {
            let says = format!("{} has no tenants below it; a tenant's own weight goes into its table", path.get_ref());
            return Err((path.span(), says));
        }
        if let Some(group) = groups.iter_mut().find(|group| group.path == *path.get_ref()) {
            group.weight = weight;
        }
    }
    Ok(Workload { name: name.get_ref().clone(), about: raw.about, roles, groups })
}

fn weight(given: &Spanned<i64>) -> Result<Weight, Problem> {
    given.get_ref().to_string().parse().map_err(|why| (given.span(), why))
}

fn role(raw: RawRole) -> Result<Role, Problem> {
    let wrong = |at: Range<usize>, says: String| Err((at, says));
    let order = match &raw.order {
        None => Pattern::Sequential,
        Some(order) => match order.get_ref().as_str() {
            "sequential" => Pattern::Sequential,
            "random" => Pattern::Random,
            other => return Err((order.span(), unknown("order", other, &ORDERS))),
        },
    };
    let kind = raw.does.get_ref().as_str();
    let rate = number(raw.rate.as_ref(), 10_000_000, "a rate is", " (arrivals in a second)")?.unwrap_or(0);
    let fua = raw.fua.as_ref().is_some_and(|fua| *fua.get_ref());
    let known = [
        ("buffered-read", Does::Buffered(Op::Read, order)),
        ("buffered-write", Does::Buffered(Op::Write, order)),
        ("direct-read", Does::Direct(Op::Read, order)),
        ("direct-write", Does::Direct(Op::Write, order)),
        ("open-read", Does::OpenLoop { op: Op::Read, order, rate }),
        ("open-write", Does::OpenLoop { op: Op::Write, order, rate }),
        ("fsync", Does::Fsync { fua }),
        ("interleaved", Does::Interleaved),
        ("journal", Does::Journal),
        ("mail", Does::Mail),
        ("interactive", Does::Interactive),
    ];
    let Some((_, does)) = known.into_iter().find(|(name, _)| *name == kind) else {
        return wrong(raw.does.span(), unknown("program", kind, &known.map(|(name, _)| name)));
    };
    if matches!(does, Does::OpenLoop { rate: 0, .. }) {
        return wrong(raw.does.span(), format!("{kind} needs a rate (arrivals in a second)"));
    }
    // A key without effect is refused.
    let is_open = matches!(does, Does::OpenLoop { .. });
    let is_direct = matches!(does, Does::Direct(..));
    let reads_ahead = does == Does::Buffered(Op::Read, Pattern::Sequential);
    let keys = [
        (span(&raw.order), is_open || is_direct || matches!(does, Does::Buffered(..)), "order"),
        (span(&raw.rate), is_open, "rate; open-read and open-write do"),
        (span(&raw.fua), matches!(does, Does::Fsync { .. }), "fua; fsync does"),
        (span(&raw.think), !is_open && does != Does::Interactive, "think time"),
        (span(&raw.iodepth), is_direct, "iodepth; direct-read and direct-write do"),
        (span(&raw.flush_every), matches!(does, Does::Direct(Op::Write, _)), "flush_every; direct-write does"),
        (span(&raw.read_ahead), reads_ahead, "read_ahead; a sequential buffered-read does"),
    ];
    if let Some((Some(at), _, key)) = keys.into_iter().find(|(at, has_effect, _)| at.is_some() && !has_effect) {
        return wrong(at, format!("{kind} takes no {key}"));
    }
    let mut role = Role::new(raw.name.as_ref().map_or(kind, |name| name.get_ref()), does);
    role.once = raw.once.unwrap_or(false);
    if let Some(group) = raw.group {
        let path = group.get_ref();
        if !path.starts_with('/') || (path.len() > 1 && path.ends_with('/')) {
            return wrong(group.span(), "a group's path starts at the root: \"/g1\"".into());
        }
        role.group = Some(path.clone());
    }
    role.iodepth = number(raw.iodepth.as_ref(), 4096, "an iodepth is", " (requests in flight)")?;
    role.flush_every = number(raw.flush_every.as_ref(), 1_000_000, "flush_every is", " (writes)")?.unwrap_or(0);
    if let Some(size) = raw.read_ahead {
        role.read_ahead = block_size(size.get_ref())
            .filter(|bytes| *bytes >= 16 << 10)
            .ok_or_else(|| (size.span(), "read_ahead is a size from 16k to 64m, such as \"512k\"".to_string()))?
            .into();
    }
    if let Some(size) = raw.block_size {
        role.block_size = block_size(size.get_ref()).ok_or_else(|| {
            (size.span(), "a block size is a multiple of 512 up to 64 MiB, such as 4096 or \"4k\"".to_string())
        })?;
    }
    if let Some(think) = raw.think {
        role.think = parse_duration(think.get_ref())
            .ok_or_else(|| (think.span(), "a think time has a unit, such as \"2ms\" or \"500us\"".to_string()))?;
    }
    role.share = number(raw.share.as_ref(), 1000, "a share is", "")?.unwrap_or(role.share);
    if let Some(priority) = raw.ioprio {
        role.priority = priority.get_ref().parse().map_err(|form: &str| (priority.span(), form.to_string()))?;
    }
    Ok(role)
}

/// Where a key's value is, if there is one.
fn span<T>(value: &Option<Spanned<T>>) -> Option<Range<usize>> {
    value.as_ref().map(Spanned::span)
}

/// A number from 1 on, if there is one.
fn number(given: Option<&Spanned<i64>>, most: u32, what: &str, of: &str) -> Result<Option<u32>, Problem> {
    let Some(given) = given else { return Ok(None) };
    match u32::try_from(*given.get_ref()) {
        Ok(number) if (1..=most).contains(&number) => Ok(Some(number)),
        _ => Err((given.span(), format!("{what} a number from 1 to {most}{of}"))),
    }
}

fn block_size(size: &Size) -> Option<u32> {
    let bytes = match size {
        Size::Number(bytes) => *bytes,
        Size::Text(text) => parse_size(text).ok()?,
    };
    let is_possible = bytes > 0 && bytes.is_multiple_of(Sector::SIZE) && bytes <= BLOCK_MAX;
    is_possible.then_some(bytes as u32)
}

fn unknown(what: &str, word: &str, known: &[&str]) -> String {
    format!("unknown {what} \"{word}\": choose from {}{}", known.join(", "), suggestion(word, known.iter().copied()))
}

/// serde's words for an unknown key, in ours.
fn explain(message: &str) -> String {
    if !message.starts_with("unknown field `") {
        return message.trim_end().replace('\n', ": ");
    }
    // All between backticks: the key, and those that there are.
    let words: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    unknown("key", words[0], &words[1..])
}

fn mistake(text: &str, (at, says): Problem) -> String {
    let before = &text[..at.start.min(text.len())];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("{line}:{column}: {says}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlift_core::Priority;
    use fairlift_core::time::ms;

    const EXAMPLE: &str = r#"
[backup]
about = "one who reads all beside a database"
[[backup.roles]]
name = "backup"
does = "buffered-read"
once = true
ioprio = "be/7"
[[backup.roles]]
name = "database"
does = "open-read"
order = "random"
rate = 200
block_size = "8k"
share = 3
[[backup.roles]]
name = "log"
does = "fsync"
fua = true
think = "2ms"

[alone]
roles = [{ does = "direct-write", block_size = 1048576 }]
"#;

    #[test]
    fn a_file_has_workloads_in_its_order_with_what_it_says_and_defaults_for_the_rest() {
        let read = Workload::read(EXAMPLE).unwrap();
        let [backup, alone] = &read[..] else { panic!("{read:?}") };
        let priority: Priority = "be/7".parse().unwrap();
        let role = |name, does| Role::new(name, does);
        let roles = [
            Role { once: true, priority, ..role("backup", Does::Buffered(Op::Read, Pattern::Sequential)) },
            Role {
                block_size: 8192,
                share: 3,
                ..role("database", Does::OpenLoop { op: Op::Read, order: Pattern::Random, rate: 200 })
            },
            Role { think: ms(2), ..role("log", Does::Fsync { fua: true }) },
        ];
        assert_eq!((&backup.name[..], &backup.roles[..]), ("backup", &roles[..]));
        let writes = Does::Direct(Op::Write, Pattern::Sequential);
        assert_eq!(alone.roles, [Role { block_size: 1 << 20, ..role("direct-write", writes) }]);
    }

    /// workload.5
    #[test]
    fn tenants_have_leaves_of_their_own_in_a_tree_of_weights() {
        let read = Workload::read(
            r#"
[office]
weights = { "/web" = 300 }
tenants = [
  { group = "/web/a", does = "direct-read", order = "random", block_size = "4k", iodepth = 8 },
  { weight = 50, does = "direct-write", block_size = "16k", iodepth = 4, flush_every = 1 },
]
"#,
        );
        let [office] = &read.unwrap()[..] else { panic!("one") };
        let weights: Vec<_> = office.groups.iter().map(|group| (group.path.as_str(), group.weight.get())).collect();
        assert_eq!(weights, [("/", 100), ("/web", 300), ("/web/a", 100), ("/t2", 50)]);
        let says: Vec<_> = office.roles.iter().map(|role| (role.name.as_str(), role.says())).collect();
        assert_eq!(says, [("/web/a", "randread 4k x8".to_string()), ("/t2", "write 16k x4 flush_every=1".to_string())]);
        assert!(office.is_situation() && office.writes());
    }

    #[test]
    fn what_is_wrong_with_tenants_is_said_with_its_place() {
        let reader = "does = \"direct-read\", iodepth = 1";
        for (tenants, says) in [
            (format!("{{ {reader}, weight = 0 }}"), "a weight is a number from 1 to 1000"),
            (format!("{{ {reader}, once = true }}"), "a tenant needs an iodepth, and takes neither share nor once"),
            ("{ does = \"direct-read\" }".into(), "a tenant needs an iodepth, and takes neither share nor once"),
            (format!("{{ {reader}, flush_every = 1 }}"), "direct-read takes no flush_every; direct-write does"),
            (format!("{{ {reader}, group = \"/a\" }}, {{ {reader}, group = \"/a\" }}"), "/a has another tenant"),
            (format!("{{ {reader}, group = \"/a\" }}, {{ {reader}, group = \"/a/b\" }}"), "/a/b has another tenant"),
            (format!("{{ {reader}, group = \"/a/b\" }}, {{ {reader}, group = \"/a\" }}"), "/a has another tenant"),
            (format!("{{ {reader}, group = \"/a//b\" }}"), "\"/a//b\" is not a group's path"),
        ] {
            let why = Workload::read(&format!("[x]\ntenants = [{tenants}]")).unwrap_err();
            assert!(why.starts_with("2:") && why.contains(says), "{tenants}: {why}");
        }
        for (text, says) in [
            ("[a]\nweights = { \"/a\" = 3 }\n[[a.roles]]\ndoes = \"fsync\"", "2:13: weights are for groups of tenants"),
            ("[[a.roles]]\ndoes = \"fsync\"\nweight = 3", "3:10: a role has no weight; only tenants have one"),
            (
                "[a]\nweights = { \"/t1\" = 3 }\n[[a.tenants]]\ndoes = \"direct-read\"\niodepth = 1",
                "2:13: /t1 has no tenants below it; a tenant's own weight goes into its table",
            ),
            (
                "[[a.roles]]\ndoes = \"fsync\"\n[[a.tenants]]\ndoes = \"direct-read\"\niodepth = 1",
                "1:1: a workload has roles or tenants, not both",
            ),
        ] {
            let why = Workload::read(text).unwrap_err();
            assert!(why.starts_with(says), "{text}: {why}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place_and_what_is_possible() {
        let keys = "name, does, order, block_size, think, share, once, group, iodepth, flush_every, read_ahead, weight, \
                    ioprio, rate, fua";
        let programs = "buffered-read, buffered-write, direct-read, direct-write, open-read, open-write, fsync, \
                        interleaved, journal, mail, interactive";
        for (text, says) in [
            ("", "1:1: the file has no workload: add [NAME] and [[NAME.roles]]".to_string()),
            (
                "[a]\nabuot = \"x\"",
                "2:1: unknown key \"abuot\": choose from about, roles, tenants, weights; did you mean \"about\"?"
                    .into(),
            ),
            (
                "[[a.roles]]\ndoes = \"fsync\"\nblocksize = 1",
                format!("3:1: unknown key \"blocksize\": choose from {keys}; did you mean \"block_size\"?"),
            ),
            (
                "[[a.roles]]\ndoes = \"direct-raed\"",
                format!("2:8: unknown program \"direct-raed\": choose from {programs}; did you mean \"direct-read\"?"),
            ),
            (
                "[[a.roles]]\ndoes = \"direct-read\"\norder = \"randm\"",
                "3:9: unknown order \"randm\": choose from sequential, random; did you mean \"random\"?".into(),
            ),
            ("[[a.roles]]\ndoes = \"open-read\"", "2:8: open-read needs a rate (arrivals in a second)".into()),
            ("[[a.roles]]\ndoes = \"fsync\"\nrate = 3", "3:8: fsync takes no rate; open-read and open-write do".into()),
            ("[[a.roles]]\ndoes = \"journal\"\norder = \"random\"", "3:9: journal takes no order".into()),
            ("[[a.roles]]\ndoes = \"fsync\"\ngroup = \"g1\"", "3:9: a group's path starts at the root: \"/g1\"".into()),
            (
                "[[a.roles]]\ndoes = \"fsync\"\niodepth = 4",
                "3:11: fsync takes no iodepth; direct-read and direct-write do".into(),
            ),
            (
                "[[a.roles]]\ndoes = \"fsync\"\nread_ahead = \"1m\"",
                "3:14: fsync takes no read_ahead; a sequential buffered-read does".into(),
            ),
            (
                "[[a.roles]]\ndoes = \"buffered-read\"\nread_ahead = \"8k\"",
                "3:14: read_ahead is a size from 16k to 64m, such as \"512k\"".into(),
            ),
            ("[[a.roles]]\ndoes = \"fsync\"\nshare = 0", "3:9: a share is a number from 1 to 1000".into()),
            (
                "[[a.roles]]\ndoes = \"fsync\"\nblock_size = 100",
                "3:14: a block size is a multiple of 512 up to 64 MiB, such as 4096 or \"4k\"".into(),
            ),
            (
                "[[a.roles]]\ndoes = \"fsync\"\nthink = \"soon\"",
                "3:9: a think time has a unit, such as \"2ms\" or \"500us\"".into(),
            ),
            (
                "[[a.roles]]\ndoes = \"fsync\"\nioprio = \"be/9\"",
                "3:10: a priority is rt/0 to rt/7, be/0 to be/7, or idle".into(),
            ),
            ("[a]\nabout = \"nobody\"", "1:2: a: the workload has no role for the jobs: add [[a.roles]]".into()),
            (
                "[[a.roles]]\ndoes = \"fsync\"\n[[a.roles]]\ndoes = \"fsync\"",
                "3:1: two roles are named \"fsync\"; choose another name".into(),
            ),
        ] {
            assert_eq!(Workload::read(text).unwrap_err(), says, "{text}");
        }
    }

    #[test]
    fn what_is_no_toml_or_of_another_type_is_said_with_its_place() {
        for (text, place) in [("[a", "1:"), ("a = 3", "1:5: "), ("[[a.roles]]\ndoes = 3", "2:8: ")] {
            let why = Workload::read(text).unwrap_err();
            assert!(why.starts_with(place) && !why.contains('\n'), "{text}: {why}");
        }
    }
}
