//! Objects, as JSON.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use fairlift::access::{Control, Rule};
use fairlift::config::{Config, Disk, Export, Listener, Tls, WayIn};
use fairlift::control::view::{ClientView, DeviceView, DiskView};
use fairlift::control::{Event, State, View};
use fairlift_core::ceiling::{Bounds, Ceiling, Rates};
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::Kind;
use crate::syntax::place;
use crate::ways;

/// Seconds since 1970.
pub(super) fn seconds(at: SystemTime) -> f64 {
    let millis = at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    millis as f64 / 1000.0
}

pub(super) fn server(state: &State, view: &View, (may_change, sees_all): (bool, bool)) -> Value {
    json!({
        "version": state.version,
        "program": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "started": seconds(view.started),
        "workers": view.workers,
        "engine": view.engine,
        "exports": state.config.exports.len(),
        "disks": state.config.disks.len(),
        "groups": state.config.groups.len(),
        "connections": view.clients.len(),
        "listeners": view.listeners,
        "remotes": view.links.iter().map(|(backing, link)| json!({
            "backing": backing,
            "state": if link.up < link.of { "degraded" } else { "connected" },
            "since": seconds(link.since),
            "connections": link.up,
            "wanted": link.of,
            "lost": link.lost,
            "why": link.why,
            "in_doubt": link.in_doubt,
        })).collect::<Value>(),
        "flush_errors": view.flush_errors.iter().map(|(backing, errno)| json!({
            "backing": backing,
            "error": std::io::Error::from_raw_os_error(*errno).to_string(),
        })).collect::<Value>(),
        "leaving": view.leaving,
        "may_change": may_change,
        "sees_all": sees_all,
    })
}

/// The objects of a server; each is found in one step, for there may be ten thousand.
pub(super) struct Objects<'a> {
    config: &'a Config,
    view: &'a View,
    /// By the names of disks and exports.
    disks: HashMap<&'a str, &'a DiskView>,
    bytes: HashMap<&'a str, u64>,
    connections: HashMap<&'a str, usize>,
    block_devices: HashMap<&'a str, &'a DeviceView>,
    /// By group: the names of its exports, and the groups below it.
    exports: Vec<Vec<&'a str>>,
    below: Vec<Vec<usize>>,
}

impl<'a> Objects<'a> {
    pub(super) fn new(config: &'a Config, view: &'a View) -> Self {
        let groups = config.groups.len();
        let mut this = Self {
            config,
            view,
            disks: view.disks.iter().map(|disk| (&*disk.name, disk)).collect(),
            bytes: view.exports.iter().map(|(name, bytes)| (&**name, *bytes)).collect(),
            connections: HashMap::new(),
            // Of several with one name the first is shown.
            block_devices: view.block_devices.iter().rev().map(|device| (&*device.export, device)).collect(),
            exports: vec![Vec::new(); groups],
            below: vec![Vec::new(); groups],
        };
        for name in view.clients.iter().filter_map(|client| client.export.as_deref()) {
            *this.connections.entry(name).or_default() += 1;
        }
        config.exports.iter().for_each(|export| this.exports[usize::from(export.group.0)].push(&export.name));
        for (at, group) in config.groups.iter().enumerate() {
            group.parent.into_iter().for_each(|parent| this.below[usize::from(parent.0)].push(at));
        }
        this
    }

    /// The names of the objects of a kind, in their order.
    pub(super) fn names(&self, kind: Kind) -> Vec<Cow<'a, str>> {
        let Config { exports, disks, groups, listeners, clients, .. } = self.config;
        match kind {
            Kind::Export => exports.iter().map(|export| (&*export.name).into()).collect(),
            Kind::Disk => disks.iter().map(|disk| (&*disk.name).into()).collect(),
            Kind::Group => groups.iter().map(|group| (&*group.path).into()).collect(),
            Kind::Listener => listeners.iter().map(|listener| place::show(&listener.address).into()).collect(),
            Kind::Client => clients.iter().map(|rule| (&*rule.name).into()).collect(),
        }
    }

    /// One of a kind, by its place; of a group also those below it. `None`: a disk of which there are no figures.
    pub(super) fn one(&self, kind: Kind, at: usize) -> Option<Value> {
        let Config { exports, disks, listeners, clients, .. } = self.config;
        Some(match kind {
            Kind::Export => self.export(&exports[at]),
            Kind::Disk => disk(&disks[at], self.disks.get(&*disks[at].name)?),
            Kind::Group => self.group(at),
            Kind::Listener => listener(&listeners[at]),
            Kind::Client => rule(&clients[at], self.view),
        })
    }

    /// All of a kind: of groups the tree.
    pub(super) fn all(&self, kind: Kind) -> Value {
        match kind {
            Kind::Group => self.group(0),
            _ => self.each(kind).collect(),
        }
    }

    fn each(&self, kind: Kind) -> impl Iterator<Item = Value> + Clone {
        (0..self.names(kind).len()).filter_map(move |at| self.one(kind, at))
    }

    fn export(&self, export: &Export) -> Value {
        let (config, name) = (self.config, &*export.name);
        let mut shown = json!({
            "name": name,
            "description": export.description,
            "backing": export.backing.about().written,
            "offset": export.offset,
            "size": self.bytes.get(name),
            "disk": export.disk.map(|disk| &config.disks[disk].name),
            "group": config.group(export).path,
            "ioprio": export.priority.to_string(),
            "read_only": export.read_only,
            "block_device": self.block_devices.get(name).map(|block| json!({"path": block.path, "link": block.link, "live": block.live, "recovered": block.recovered})),
            "connections": self.connections.get(name).unwrap_or(&0),
        });
        for row in ways::ROWS {
            shown[row.name] = export.ways.find(row.name).map(WayIn::written).into();
        }
        shown
    }

    /// A group, and those below it: as deep as the tree, which is bounded.
    fn group(&self, at: usize) -> Value {
        let own = &self.config.groups[at];
        let mut shown = json!({"path": own.path, "weight": own.weight.get(), "exports": self.exports[at]});
        bounds(self.config, &own.path, &mut shown);
        shown["groups"] = self.below[at].iter().map(|child| self.group(*child)).collect();
        shown
    }
}

fn disk(settings: &Disk, view: &DiskView) -> Value {
    let knob = |knob: &fairlift::control::view::Knob| json!({"name": knob.name, "value": knob.value, "takes": knob.range.to_string(), "says": knob.says});
    let finding = |finding: &fairlift_core::learn::idling_trial::Finding| {
        json!({
            "found": format!("{:?}", finding.to).to_lowercase(),
            "before": format!("{:?}", finding.from).to_lowercase(),
            "idle_kib_s": finding.idle,
            "parallel_kib_s": finding.parallel,
        })
    };
    let mut shown = json!({
        "name": settings.name,
        "scheduler": settings.scheduler.name(),
        "scheduler_in_place": view.scheduler.name(),
        "frozen": view.frozen,
        "set": settings.set.iter().map(|(knob, value)| (knob.clone(), json!(value))).collect::<Map<_, _>>(),
        "depth": view.depth,
        "nr_requests": view.nr_requests,
        "in_flight": view.in_flight,
        "waiting": view.waiting,
        "rotational": view.rotational,
        "concurrency": view.concurrency,
        "devices": view.devices.iter().map(|(path, size)| json!({"path": path, "size": size})).collect::<Value>(),
        "tunables": view.knobs.iter().map(knob).collect::<Value>(),
        "findings": view.findings.iter().map(finding).collect::<Value>(),
    });
    // An upgrade compares these settings, which only a restart changes (begin.1). A setting is shown if it differs from the default.
    let usual = Disk::new("", settings.scheduler);
    if settings.shared_tags {
        shown["shared_tags"] = true.into();
    }
    if let Some(time) = settings.io_timeout {
        shown["io_timeout"] = time.to_string().into();
    }
    if settings.concurrency != usual.concurrency {
        let key = if settings.concurrency.fixed { "concurrency_given" } else { "concurrency_max" };
        shown[key] = settings.concurrency.most.into();
    }
    if let Some(shares) = &settings.shares {
        shown["shares"] = json!({"place": shares.place.to_string(), "gateway": shares.gateway});
    }
    shown
}

fn rates(rates: &Rates) -> Value {
    rates.iter().map(|(rate, amount)| (rate.name().to_owned(), Value::from(amount))).collect()
}

pub(super) fn bounds(config: &Config, path: &str, shown: &mut Value) {
    let Some(Bounds { ceiling: Ceiling { max, burst, length }, floor, latency }) = config.bounds.get(path) else {
        return;
    };
    for (key, limit) in [("max", max), ("min", floor)].into_iter().filter(|(_, limit)| !limit.is_none()) {
        shown[key] = rates(limit);
    }
    if !burst.is_none() {
        shown["burst"] = rates(burst);
        shown["burst"]["seconds"] = (length.as_millis() / 1000).into();
    }
    if let Some(latency) = latency {
        shown["latency"] = latency.to_string().into();
    }
}

fn listener(listener: &Listener) -> Value {
    let tls = match listener.tls {
        Tls::Off => "off",
        Tls::Optional => "on",
        Tls::Required => "require",
    };
    json!({"address": place::show(&listener.address), "tls": tls})
}

pub(super) fn client(client: &ClientView) -> Value {
    json!({
        "client": client.peer,
        "export": client.export,
        "worker": client.worker,
        "since": seconds(client.since),
    })
}

pub(super) fn client_rule(rule: &Rule, view: &View) -> Value {
    json!({
        "name": rule.name,
        "known": rule.known(),
        "may": rule.may(),
        "connections": view.let_in.get(&rule.name),
    })
}

/// The keys of a rule and their values, as they can be asked for; of a token the beginning.
pub(super) fn rule_keys(rule: &Rule) -> Value {
    // By name, so that the compiler asks for a new one: without it, `set` of another key would take it away.
    let Rule {
        name: _,
        uid,
        gid,
        cgroup,
        certificate,
        address,
        listener,
        token,
        exports,
        group,
        read_only,
        max_connections,
        control,
    } = rule;
    json!({
        "uid": uid,
        "gid": gid,
        "cgroup": cgroup.as_ref().map(ToString::to_string),
        "certificate": certificate.as_ref().map(ToString::to_string),
        "address": address.map(|network| network.to_string()),
        "listener": listener,
        "token": token.map(|token| token.to_string()),
        "exports": exports,
        "group": group,
        "control": control.map(Control::name),
        "read_only": read_only,
        "max_connections": max_connections,
    })
}

fn rule(rule: &Rule, view: &View) -> Value {
    let mut shown = client_rule(rule, view);
    let keys = rule_keys(rule).as_object_mut().map(std::mem::take).unwrap_or_default();
    keys.into_iter().for_each(|(key, value)| shown[key] = value);
    shown
}

/// All settings, as text.
pub(super) fn state(state: &State, view: &View) -> Box<RawValue> {
    let text = serde_json::to_string_pretty(&All(state, view)).and_then(RawValue::from_string);
    text.unwrap_or_default()
}

/// All settings. A thing is made when it is written: as values all of them would take ten times the memory of the text.
struct All<'a>(&'a State, &'a View);

impl Serialize for All<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let objects = Objects::new(&self.0.config, self.1);
        let mut all = to.serialize_map(None)?;
        all.serialize_entry("version", &self.0.version)?;
        all.serialize_entry("exports", &Each(objects.each(Kind::Export)))?;
        // Their tunables are many, and are shown with each.
        all.serialize_entry("disks", &Each(objects.each(Kind::Disk).map(without_tunables)))?;
        all.serialize_entry("groups", &objects.all(Kind::Group))?;
        all.serialize_entry("listeners", &Each(objects.each(Kind::Listener)))?;
        all.serialize_entry("clients", &Each(objects.each(Kind::Client)))?;
        all.end()
    }
}

/// Things that are made one by one.
struct Each<I>(I);

impl<I: Iterator<Item = Value> + Clone> Serialize for Each<I> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.clone())
    }
}

fn without_tunables(mut disk: Value) -> Value {
    if let Some(all) = disk.as_object_mut() {
        all.remove("tunables");
    }
    disk
}

pub(super) fn event(event: &Event) -> Value {
    let mut shown = json!({"number": event.number, "at": seconds(event.at), "event": event.kind});
    event.of.iter().for_each(|(name, value)| shown[*name] = value.as_str().into());
    shown
}
