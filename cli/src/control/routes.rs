//! The routes of `/v1`: one row for each, from which the router and the OpenAPI document are made.

mod asked;
mod openapi;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{MatchedPath, RawPathParams, Request};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::sse::{Event as Told, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodFilter, Router, on};
use fairlift::access::Grant;
use fairlift::config::Backing;
use fairlift::control::{Edit, Made, Refused, State, Step, View, group_meant};
use fairlift::{ForkTop, Handle};
use fairlift_lab::suggestion;
use serde::Serialize;
use serde_json::{Value, json};

use super::door::Who;
use super::failure::{Failure, bad, fail};
use super::roles::{self, Right};
use super::take_over::Handed;
use super::words::Words;
use super::{Act, ConfigFile, Kind, NotRead, ReadAgain, metrics, page, pools, show, status, trace, why};
use crate::words::place::check_path;
use asked::{ApiRequest, if_match, keys};

/// How often it is looked whether what was removed has gone, and what schedulers have found out.
pub(super) const SWEEP: Duration = Duration::from_millis(200);

/// How often somebody who watches events is told.
const EVENTS: Duration = Duration::from_millis(100);

/// The objects of routes.
#[derive(Clone)]
pub(super) struct App {
    pub(super) handle: Handle,
    pub(super) file: Arc<dyn ConfigFile>,
    pub(super) handed: Arc<Handed>,
    pub(super) texts: metrics::Texts,
    pub(super) looks: metrics::Looks,
}

/// The action of a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Does {
    Page(page::Asset),
    Document,
    Server,
    All,
    List(Kind),
    Look(Kind),
    Change(Act, Kind),
    Fork,
    Transaction,
    Connections,
    Status,
    Gateways,
    Metrics,
    Why,
    WhyAll,
    Trace,
    Events,
    Acknowledge,
    Drain,
    Stop,
    Reload,
    Upgrade,
    TakeOver,
}

/// A route.
pub(super) struct Route {
    pub(super) needs: Right,
    pub(super) method: Method,
    /// As axum has it: `{name}` is one part of the path, `{*name}` all that follow.
    pub(super) path: &'static str,
    pub(super) does: Does,
    pub(super) says: &'static str,
}

pub(super) const ROUTES: &[Route] = &[
    row(Right::Nothing, Method::GET, "/", Does::Page(page::Asset::Text), "The web page"),
    row(Right::Nothing, Method::GET, "/page.css", Does::Page(page::Asset::Style), "Its style"),
    row(Right::Nothing, Method::GET, "/page.js", Does::Page(page::Asset::Script), "Its script"),
    row(Right::Own, Method::GET, "/v1", Does::Server, "The server: version, workers, listeners, flush errors"),
    row(Right::Own, Method::GET, "/v1/openapi.json", Does::Document, "This document"),
    row(
        Right::Own,
        Method::GET,
        "/v1/state",
        Does::All,
        "All current settings: exports, disks, groups, listeners, clients",
    ),
    row(
        Right::Own,
        Method::GET,
        "/v1/status",
        Does::Status,
        "The share of each disk that each tenant had and was due, over ?seconds=1",
    ),
    row(
        Right::See,
        Method::GET,
        "/v1/gateways",
        Does::Gateways,
        "The pools that this server shares with other gateways, with the share and due of each gateway and group",
    ),
    row(
        Right::Own,
        Method::GET,
        "/metrics",
        Does::Metrics,
        "Metrics for Prometheus: OpenMetrics, or the older text format",
    ),
    row(
        Right::Own,
        Method::GET,
        "/v1/why",
        Does::WhyAll,
        "The causes of waits of each tenant, or of ?tenant=PATH and those below it, over ?seconds=1",
    ),
    row(
        Right::Own,
        Method::GET,
        "/v1/why/{name}",
        Does::Why,
        "The causes of waits of an export's tenant, over ?seconds=1",
    ),
    row(
        Right::See,
        Method::GET,
        "/v1/trace",
        Does::Trace,
        "The steps of each request for ?seconds=5, of ?export=NAME or of all, as blktrace records",
    ),
    row(Right::Own, Method::GET, "/v1/exports", Does::List(Kind::Export), "All exports"),
    row(Right::Change, Method::POST, "/v1/exports", Does::Change(Act::Add, Kind::Export), "Adds an export"),
    row(Right::Own, Method::GET, "/v1/exports/{name}", Does::Look(Kind::Export), "An export"),
    row(Right::Change, Method::PATCH, "/v1/exports/{name}", Does::Change(Act::Set, Kind::Export), "Changes an export"),
    row(
        Right::Change,
        Method::DELETE,
        "/v1/exports/{name}",
        Does::Change(Act::Remove, Kind::Export),
        "Removes an export: its clients are drained, or disconnected at once with ?now=true",
    ),
    row(
        Right::Change,
        Method::POST,
        "/v1/exports/{name}/fork",
        Does::Fork,
        "Adds an export, {\"name\": …}, with the content of this overlay at one instant; each then writes to a top of its own",
    ),
    row(
        Right::See,
        Method::GET,
        "/v1/disks",
        Does::List(Kind::Disk),
        "All disks, with their tunables and the findings of `auto`",
    ),
    row(Right::Change, Method::POST, "/v1/disks", Does::Change(Act::Add, Kind::Disk), "Adds a disk"),
    row(Right::See, Method::GET, "/v1/disks/{name}", Does::Look(Kind::Disk), "A disk"),
    row(
        Right::Change,
        Method::PATCH,
        "/v1/disks/{name}",
        Does::Change(Act::Set, Kind::Disk),
        "Changes a disk: scheduler, depth, tunables",
    ),
    row(
        Right::Change,
        Method::DELETE,
        "/v1/disks/{name}",
        Does::Change(Act::Remove, Kind::Disk),
        "Removes a disk that no export is on",
    ),
    row(Right::Own, Method::GET, "/v1/groups", Does::List(Kind::Group), "The tree of groups"),
    row(Right::Change, Method::POST, "/v1/groups", Does::Change(Act::Add, Kind::Group), "Adds a group"),
    row(Right::Own, Method::GET, "/v1/groups/{*name}", Does::Look(Kind::Group), "A group and those below it"),
    row(
        Right::Delegated,
        Method::PATCH,
        "/v1/groups/{*name}",
        Does::Change(Act::Set, Kind::Group),
        "Changes a group: weight, limits, latency",
    ),
    row(
        Right::Change,
        Method::DELETE,
        "/v1/groups/{*name}",
        Does::Change(Act::Remove, Kind::Group),
        "Removes an empty group",
    ),
    row(Right::See, Method::GET, "/v1/listeners", Does::List(Kind::Listener), "The addresses for clients"),
    row(Right::Change, Method::POST, "/v1/listeners", Does::Change(Act::Add, Kind::Listener), "Adds a listener"),
    row(
        Right::Change,
        Method::DELETE,
        "/v1/listeners/{*name}",
        Does::Change(Act::Remove, Kind::Listener),
        "Closes a listener; connections made through it stay open",
    ),
    row(Right::See, Method::GET, "/v1/clients", Does::List(Kind::Client), "The rights of clients"),
    row(Right::Change, Method::POST, "/v1/clients", Does::Change(Act::Add, Kind::Client), "Adds a client"),
    row(Right::See, Method::GET, "/v1/clients/{name}", Does::Look(Kind::Client), "A client, and its rights"),
    row(
        Right::Change,
        Method::PATCH,
        "/v1/clients/{name}",
        Does::Change(Act::Set, Kind::Client),
        "Changes the identity or the rights of a client",
    ),
    row(
        Right::Change,
        Method::DELETE,
        "/v1/clients/{name}",
        Does::Change(Act::Remove, Kind::Client),
        "Removes a client: connections that no other allows are answered and closed",
    ),
    row(Right::Own, Method::GET, "/v1/connections", Does::Connections, "All connections"),
    row(
        Right::Own,
        Method::GET,
        "/v1/events",
        Does::Events,
        "Events, as server-sent events; ?after=NUMBER continues after one, ?last=10 starts with that many past ones",
    ),
    row(
        Right::Change,
        Method::POST,
        "/v1/changes",
        Does::Transaction,
        "Several changes, all or none: {\"changes\": [{\"set\": \"group\", \"name\": \"/a\", \"weight\": 300}]}",
    ),
    row(
        Right::Change,
        Method::POST,
        "/v1/reload",
        Does::Reload,
        "Re-reads the config file and applies the differences",
    ),
    row(
        Right::Change,
        Method::POST,
        "/v1/upgrade",
        Does::Upgrade,
        "The command line of the server, and the state that another server would take over, or the obstacles",
    ),
    row(
        Right::Change,
        Method::POST,
        "/v1/take-over",
        Does::TakeOver,
        "For another server alone, which takes over from this one: ?version=NUMBER is that of the settings that it begins with",
    ),
    row(
        Right::Change,
        Method::POST,
        "/v1/acknowledge",
        Does::Acknowledge,
        "Acknowledges flush errors, so that flushes may succeed again",
    ),
    row(
        Right::Change,
        Method::POST,
        "/v1/drain",
        Does::Drain,
        "Finishes the requests in flight, flushes, and ends the server",
    ),
    row(
        Right::Change,
        Method::POST,
        "/v1/stop",
        Does::Stop,
        "Ends the server at once; writes that were not flushed may be lost",
    ),
];

const fn row(needs: Right, method: Method, path: &'static str, does: Does, says: &'static str) -> Route {
    Route { needs, method, path, does, says }
}

type Answer = Result<Response, Failure>;

pub(super) fn router(app: App) -> Router {
    let mut router = Router::new();
    for route in ROUTES {
        let filter = MethodFilter::try_from(route.method.clone()).expect("the methods of the table are usual ones");
        let app = app.clone();
        router = router.route(
            route.path,
            on(filter, move |path: RawPathParams, request: Request| {
                let name = path.iter().next().map(|(_, value)| value.to_owned());
                let app = app.clone();
                async move { answer(app.answer(route, name, request).await) }
            }),
        );
    }
    let router = router.method_not_allowed_fallback(|path: MatchedPath, request: Request| async move {
        let there = ROUTES.iter().filter(|route| route.path == path.as_str()).map(|route| route.method.as_str());
        let there: Vec<_> = there.collect();
        let says =
            format!("{} {} is not possible; it takes {}", request.method(), request.uri().path(), there.join(", "));
        refuse(request, StatusCode::METHOD_NOT_ALLOWED, says).await
    });
    router.fallback(|request: Request| async move {
        let path = request.uri().path().to_owned();
        let known = ROUTES.iter().map(|route| route.path);
        let says = format!("there is no {path}{}; GET /v1/openapi.json lists what there is", suggestion(&path, known));
        refuse(request, StatusCode::NOT_FOUND, says).await
    })
}

/// Refuses a request that no route takes, when its body has been read: a client that is still sending would not read why not.
async fn refuse(request: Request, status: StatusCode, says: String) -> Response {
    let _ = keys(request.into_body()).await;
    answer(Err(Failure(status, says)))
}

fn answer(result: Answer) -> Response {
    result.unwrap_or_else(|Failure(status, says)| {
        let mut response = json_response(&json!({"error": says}));
        *response.status_mut() = status;
        response
    })
}

fn json_response(value: &impl Serialize) -> Response {
    let text = serde_json::to_string_pretty(value).unwrap_or_default() + "\n";
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

/// Asks the library, which may look at files or wait for a lock, from a thread that may wait.
async fn ask<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| Failure(StatusCode::INTERNAL_SERVER_ERROR, "the server could not answer: see its log".into()))
}

impl App {
    /// Lets go of what was removed.
    pub(super) async fn sweep(&self) {
        let handle = self.handle.clone();
        let _ = tokio::task::spawn_blocking(move || handle.sweep()).await;
    }

    async fn answer(self, route: &Route, name: Option<String>, request: Request) -> Answer {
        let mut asked = ApiRequest::read(&self.handle, route, name, request).await?;
        let role = asked.role.clone();
        match route.does {
            Does::Page(file) => Ok(file.answer()),
            Does::Document => Ok(json_response(&openapi::document())),
            Does::Server => {
                let config = self.state().await?.config;
                let may_change = !asked.who.place.read_only && roles::may_change(&role, &config);
                let sees_all = role.sees("/");
                self.look(role, move |state, view| Ok(show::server(state, view, (may_change, sees_all)))).await
            }
            Does::All => self.look(role, |state, view| Ok(show::state(state, view))).await,
            Does::List(kind) => self.look(role, move |state, view| Ok(list(kind, state, view))).await,
            Does::Look(kind) => self.look(role, move |state, view| one(kind, &asked.name, state, view)).await,
            Does::Connections => {
                self.look(role, |_, view| Ok(view.clients.iter().map(show::client).collect::<Value>())).await
            }
            Does::Status => self.status(&asked).await,
            Does::Gateways => Ok(json_response(&pools::gateways(&ask(move || self.handle.pools()).await?))),
            Does::Why => self.why(&asked).await,
            Does::WhyAll => self.why_all(&asked).await,
            Does::Trace => self.trace(asked),
            Does::Metrics => self.metrics(role, metrics::Format::wanted(&asked.headers)).await,
            Does::Events => self.events(asked),
            Does::Change(act, kind) => self.one_change(act, kind, asked).await,
            Does::Fork => self.fork(asked).await,
            Does::Transaction => self.transaction(asked).await,
            Does::Reload => {
                let dry_run = asked.dry_run()?;
                self.reload(asked.who, &asked.headers, dry_run).await
            }
            Does::Upgrade => {
                Ok(json_response(&ask(move || self.handed.plan(&asked.who, &self.handle, &*self.file)).await??))
            }
            Does::TakeOver => {
                let version = asked.query.get("version").and_then(|text| text.parse().ok());
                let version =
                    version.ok_or_else(|| bad("version is missing: ?version=NUMBER, as GET /v1/state has it"))?;
                self.handed.begin(asked.who, self.handle.clone(), version, asked.upgrade)
            }
            Does::Acknowledge => self.acknowledge(asked.who).await,
            Does::Drain => {
                tracing::info!(who = asked.who.name, "draining: finishing requests in flight");
                self.handle.drain();
                Ok(json_response(&json!({"draining": true})))
            }
            Does::Stop => {
                tracing::warn!(who = asked.who.name, "stopped at once; writes that were not flushed may be lost");
                tokio::spawn(async {
                    tokio::time::sleep(Duration::from_millis(50)).await; // for the answer to go out
                    std::process::exit(1);
                });
                Ok(json_response(&json!({"stopping": true})))
            }
        }
    }

    /// Adds, changes or removes one thing.
    async fn one_change(self, act: Act, kind: Kind, mut asked: ApiRequest) -> Answer {
        let name = match act {
            Act::Add => asked.new_name(kind)?,
            Act::Set | Act::Remove => std::mem::take(&mut asked.name),
        };
        let dry_run = asked.dry_run()?;
        if act == Act::Remove
            && let Some(now) = asked.query.remove("now")
        {
            asked.keys.insert("now".into(), Value::String(now));
        }
        let (file, keys, role) = (Arc::clone(&self.file), asked.keys, asked.role);
        if let Grant::Tenant(_) = role {
            roles::may_set(&role, &self.state().await?.config, &name, &keys)?;
        }
        self.change(asked.who, asked.headers, dry_run, Some((kind, name.clone())), move |edit| {
            Words::new(edit, file.ways(), file.verifies()).change(act, kind, &name, keys)
        })
        .await
    }

    /// Adds an export that is what another one is now. Keys that are not said are those of that one.
    async fn fork(self, mut asked: ApiRequest) -> Answer {
        let name = asked.new_name(Kind::Export)?;
        let dry_run = asked.dry_run()?;
        let path = |key: &str, path: String| {
            let path = PathBuf::from(path);
            check_path(&path).map_err(|why| bad(format!("{key} {why}")))?;
            Ok::<_, Failure>(Some(path))
        };
        let top = match (asked.keys.remove("top"), asked.keys.remove("ephemeral")) {
            (Some(_), Some(Value::Bool(true) | Value::String(_))) => {
                return Err(bad("top is a file that stays, and ephemeral has none: give one of the two"));
            }
            (None, None | Some(Value::Bool(false))) => ForkTop::Named(None),
            (Some(Value::String(top)), None | Some(Value::Bool(false))) => ForkTop::Named(path("top", top)?),
            (None, Some(Value::Bool(true))) => ForkTop::Ephemeral(None),
            (None, Some(Value::String(directory))) => ForkTop::Ephemeral(path("ephemeral", directory)?),
            (_, Some(other)) => {
                return Err(bad(format!("ephemeral takes true, false, or the path of a directory, not {other}")));
            }
            (Some(other), None) => return Err(bad(format!("top takes the path of a file, not {other}"))),
        };
        for key in ["backing", "offset", "size", "read_only"] {
            if asked.keys.contains_key(key) {
                return Err(bad(format!("{key}: a fork has the whole content of its origin")));
            }
        }
        let (file, keys, of) = (Arc::clone(&self.file), asked.keys, asked.name);
        let made = {
            let name = name.clone();
            move |handle: &Handle, version, dry_run| {
                let add = |edit: &mut Edit, backing: Backing| {
                    let mut keys = keys.clone();
                    let export = edit.export(&of)?.clone();
                    let path = &edit.config.groups[usize::from(export.group.0)].path;
                    keys.entry("group").or_insert_with(|| Value::String(path.clone()));
                    if let Some(disk) = export.disk {
                        keys.insert("disk".into(), Value::String(edit.config.disks[disk].name.clone()));
                    }
                    if export.offset > 0 {
                        keys.insert("offset".into(), export.offset.into());
                    }
                    if let Some(size) = export.size {
                        keys.insert("size".into(), size.into());
                    }
                    keys.insert("backing".into(), Value::String(backing.about().written));
                    Words::new(edit, file.ways(), file.verifies()).change(Act::Add, Kind::Export, &name, keys)
                };
                handle.fork((&of, &name), &top, add, version, dry_run)
            }
        };
        self.make(asked.who, asked.headers, dry_run, Some((Kind::Export, name)), made).await
    }

    /// Makes several changes, or none.
    async fn transaction(self, mut asked: ApiRequest) -> Answer {
        let dry_run = asked.dry_run()?;
        let list = asked.keys.remove("changes").ok_or_else(|| bad("changes is missing: a list of changes"))?;
        if let Some(key) = asked.keys.keys().next() {
            let hint = suggestion(key, ["changes", "dry_run"]);
            let says = format!("unknown key \"{}\"; a transaction has changes and dry_run{hint}", key.escape_debug());
            return Err(bad(says));
        }
        let file = Arc::clone(&self.file);
        self.change(asked.who, asked.headers, dry_run, None, move |edit| {
            Words::new(edit, file.ways(), file.verifies()).transaction(&list)
        })
        .await
    }

    async fn acknowledge(self, who: Who) -> Answer {
        let handle = self.handle.clone();
        let count = ask(move || handle.acknowledge_flush_errors()).await?;
        self.handle.tell("noted", vec![("flush_errors", count.to_string()), ("who", who.name)]);
        Ok(json_response(&json!({"acknowledged": count})))
    }

    async fn state(&self) -> Result<State, Failure> {
        let handle = self.handle.clone();
        Ok(ask(move || handle.state()).await?.ok_or(Refused::Ended)?)
    }

    /// The state and what the server does, as they are at one moment, as far as a client of this role may see them.
    async fn look<T: Serialize + Send + 'static>(
        self,
        role: Grant,
        show: impl FnOnce(&State, &View) -> Result<T, Failure> + Send + 'static,
    ) -> Answer {
        let shown = ask(move || {
            let (state, view) = (self.handle.state(), self.handle.view(false));
            let (state, view) = state.zip(view).ok_or(Refused::Ended)?;
            let (state, view) = roles::seen(&role, state, view);
            Ok::<_, Failure>((state.version, show(&state, &view)?))
        });
        let (version, value) = shown.await??;
        Ok(tagged(json_response(&value), version))
    }

    async fn status(self, asked: &ApiRequest) -> Answer {
        let (state, before, after) = self.look_twice(&asked.query).await?;
        let seconds = after.at.since(before.at).as_nanos() as f64 / 1e9;
        let file = Arc::clone(&self.file);
        let handle = self.handle.clone();
        let (mut warnings, pools) = ask(move || (file.warnings(&handle), handle.pools())).await?;
        let mut value = status::status(&state, &before, &after, seconds);
        for tenant in value["tenants"].as_array_mut().into_iter().flatten() {
            tenant["pool"] = pools::beside(&pools, &tenant["disk"], &tenant["path"]);
        }
        warnings.extend(status::warnings(&after));
        warnings.extend(pools::warnings(&pools));
        value["warnings"] = warnings.into();
        roles::hide(&self.still(asked)?, &mut value);
        Ok(tagged(json_response(&value), state.version))
    }

    /// The role that a client has by now, if it may still see what it asked for (roles.1).
    fn still(&self, asked: &ApiRequest) -> Result<Grant, Failure> {
        let role = asked.who.role(&self.handle);
        Right::Own.is_of(&role).map(|()| role)
    }

    async fn why(self, asked: &ApiRequest) -> Answer {
        self.is_there(Kind::Export, &asked.name, asked).await?;
        let (state, before, after) = self.look_twice(&asked.query).await?;
        let value = why::why(&self.still(asked)?, &state, &before, &after, &asked.name);
        let gone = || Failure(StatusCode::NOT_FOUND, format!("export \"{}\" has gone", asked.name));
        let mut value = value.ok_or_else(gone)?;
        self.beside(std::slice::from_mut(&mut value)).await?;
        Ok(tagged(json_response(&value), state.version))
    }

    async fn why_all(&self, asked: &ApiRequest) -> Answer {
        let tenant = asked.query.get("tenant").map_or("/", String::as_str);
        self.is_there(Kind::Group, tenant, asked).await?;
        let (state, before, after) = self.look_twice(&asked.query).await?;
        let mut value = why::all(&self.still(asked)?, &state, &before, &after, tenant);
        self.beside(value.as_array_mut().map_or(&mut [], Vec::as_mut_slice)).await?;
        Ok(tagged(json_response(&value), state.version))
    }

    /// Adds what tenants have of the pools of their disks.
    async fn beside(&self, all: &mut [Value]) -> Result<(), Failure> {
        let handle = self.handle.clone();
        let pools = ask(move || handle.pools()).await?;
        for one in all {
            one["pool"] = pools::beside(&pools, &one["disk"], &one["tenant"]);
        }
        Ok(())
    }

    /// Whether there is such a thing for this client: what is not there is not looked at for a second.
    async fn is_there(&self, kind: Kind, name: &str, asked: &ApiRequest) -> Result<(), Failure> {
        let (role, name) = (asked.role.clone(), name.to_owned());
        self.clone().look(role, move |state, view| one(kind, &name, state, view)).await.map(drop)
    }

    /// The server at two moments, `seconds` of the query apart, and what is in force at the second.
    async fn look_twice(&self, query: &BTreeMap<String, String>) -> Result<(State, View, View), Failure> {
        let seconds = seconds(query, 1.0, 60.0)?;
        let handle = self.handle.clone();
        let before = ask(move || handle.view(true)).await?.ok_or(Refused::Ended)?;
        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
        let handle = self.handle.clone();
        let (after, state) = ask(move || handle.view(true).zip(handle.state())).await?.ok_or(Refused::Ended)?;
        Ok((state, before, after))
    }

    fn trace(self, asked: ApiRequest) -> Answer {
        let ApiRequest { query, who, role, .. } = asked;
        let seconds = seconds(&query, 5.0, 3600.0)?;
        let state = self.handle.state().ok_or(Refused::Ended)?;
        let trace = self.handle.trace();
        let trace = trace.ok_or_else(|| Failure(StatusCode::CONFLICT, "a trace is being taken already".into()))?;
        let export = match query.get("export") {
            None => None,
            Some(name) => Some(trace::find(&trace, name).ok_or_else(|| {
                let known = state.config.exports.iter().map(|export| &*export.name);
                let says = format!("there is no export \"{}\"{}", name.escape_debug(), suggestion(name, known));
                Failure(StatusCode::NOT_FOUND, says)
            })?),
        };
        let may_go_on = move || who.role(&self.handle) == role;
        Ok(trace::answer(trace, export, Duration::from_secs_f64(seconds), Box::new(may_go_on)))
    }

    async fn metrics(self, role: Grant, format: metrics::Format) -> Answer {
        let (handle, looks) = (self.handle.clone(), self.looks.clone());
        let text = ask(move || {
            let (state, view) = handle.state().zip(handle.view(true)).ok_or(Refused::Ended)?;
            Ok::<_, Refused>(metrics::text(&role, &state, view, &looks, handle.pools(), format))
        });
        Ok(self.texts.answer(text.await??, format))
    }

    fn events(self, asked: ApiRequest) -> Answer {
        let ApiRequest { query, headers, who, role, .. } = asked;
        // Browsers say where they were when they connect again.
        let last = headers.get("last-event-id").and_then(|value| value.to_str().ok()).map(str::to_owned);
        let number = |name: &str, text: Option<String>| -> Result<Option<u64>, Failure> {
            let Some(text) = text else { return Ok(None) };
            let says = || bad(format!("{name} takes a number, not \"{}\"", text.escape_debug()));
            text.parse().map(Some).map_err(|_| says())
        };
        let after = number("after", query.get("after").cloned().or(last))?;
        let past = number("last", query.get("last").cloned())?.unwrap_or(0);
        // A tenant is told from now on: a name in what was before may have been another's then.
        let is_tenant = matches!(role, Grant::Tenant(_));
        let latest = self.handle.events(None).1;
        // A number that is yet to come is that of a server before, which was killed: all that this one has to tell came after it.
        let after = after.map(|after| if after > latest { 0 } else { after });
        let after =
            after.filter(|_| !is_tenant).unwrap_or_else(|| latest.saturating_sub(if is_tenant { 0 } else { past }));
        let told = futures_util::stream::unfold(
            (self, who, role, after, Vec::new()),
            move |(app, who, role, mut after, mut ready)| async move {
                loop {
                    if who.role(&app.handle) != role {
                        return None; // roles.1
                    }
                    if let Some(event) = ready.pop() {
                        return Some((Ok::<_, Infallible>(event), (app, who, role, after, ready)));
                    }
                    if !app.handle.is_there() {
                        return None;
                    }
                    let (events, missing) = app.handle.events(Some(after));
                    let config =
                        if events.is_empty() { None } else { app.state().await.ok().map(|state| state.config) };
                    if missing > 0 {
                        let says = json!({"event": "missing", "count": missing});
                        ready.push(Told::default().event("missing").data(says.to_string()));
                    }
                    for event in events {
                        after = event.number;
                        if !config.as_ref().is_some_and(|config| roles::tells(&role, config, &event)) {
                            continue;
                        }
                        let mut told = Told::default().event(event.kind);
                        let mut data = show::event(&event);
                        match is_tenant {
                            true => drop(data.as_object_mut().and_then(|data| data.remove("number"))), // It counts others' events.
                            false => told = told.id(event.number.to_string()),
                        }
                        ready.push(told.data(data.to_string()));
                    }
                    ready.reverse();
                    if ready.is_empty() {
                        tokio::time::sleep(EVENTS).await;
                    }
                }
            },
        );
        Ok(Sse::new(told).keep_alive(KeepAlive::default()).into_response())
    }

    /// Reads the config file again, and answers what has changed.
    async fn reload(self, who: Who, headers: &HeaderMap, dry_run: bool) -> Answer {
        if !self.file.is_there() {
            let says = "this server has no config file that could be read again: it was started without --config";
            return fail(StatusCode::CONFLICT, says);
        }
        let asked = if_match(headers)?;
        let work = move || {
            let ReadAgain { changes, warnings } =
                self.file.read_again(&self.handle, asked, dry_run).map_err(|why| match why {
                    NotRead::Refused(refused) => refused.into(),
                    NotRead::Wrong(wrong) => bad(wrong.answer()),
                })?;
            let version = self.handle.state().ok_or(Refused::Ended)?.version;
            if !dry_run && !changes.is_empty() {
                changes.iter().for_each(|change| tracing::info!(who = who.name, version, "reloaded: {change}"));
                let what = changes.join("; ");
                self.handle.tell("changed", vec![("version", version.to_string()), ("who", who.name), ("what", what)]);
            }
            Ok::<_, Failure>((
                version,
                json!({"version": version, "dry_run": dry_run, "changes": changes, "warnings": warnings}),
            ))
        };
        let (version, value) = ask(work).await??;
        Ok(tagged(json_response(&value), version))
    }

    /// Makes changes, and answers what is then in force (http.3): the thing that was changed, or all.
    async fn change(
        self,
        who: Who,
        headers: HeaderMap,
        dry_run: bool,
        of: Option<(Kind, String)>,
        words: impl FnOnce(&mut Edit) -> Result<(), String> + Send + 'static,
    ) -> Answer {
        self.make(who, headers, dry_run, of, |handle, version, dry_run| handle.change(words, version, dry_run)).await
    }

    /// The same, of a change that is made so.
    async fn make(
        self,
        who: Who,
        headers: HeaderMap,
        dry_run: bool,
        of: Option<(Kind, String)>,
        make: impl FnOnce(&Handle, Option<u64>, bool) -> Result<Made, Refused> + Send + 'static,
    ) -> Answer {
        let asked = if_match(&headers)?;
        let work = move || -> Result<(u64, Value), Failure> {
            let handle = &self.handle;
            let Made { state, steps, mut suited } = make(handle, asked, dry_run)?;
            let is_tenant = matches!(who.role(handle), Grant::Tenant(_));
            if is_tenant {
                suited.clear(); // They are about disks, which others have too.
            }
            let also: Vec<_> = suited.iter().map(Step::to_string).collect();
            let made: Vec<_> = steps.iter().map(Step::to_string).chain(also.iter().cloned()).collect();
            let warnings = self.file.warnings_of(&state.config, &steps);
            if !dry_run && !made.is_empty() {
                for change in &made {
                    tracing::info!(who = who.name, version = state.version, "changed: {change}");
                }
                let what = made.join("; ");
                let mut told = vec![("version", state.version.to_string()), ("who", who.name.clone()), ("what", what)];
                told.extend(of.as_ref().map(|(kind, name)| (kind.name(), name.clone())));
                handle.tell("changed", told);
                warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
            }
            let view = handle.view(false).ok_or(Refused::Ended)?;
            let thing = match &of {
                // Objects that were removed, or will only be there, cannot be shown; all can.
                Some((kind, name)) if !dry_run => one(*kind, name, &state, &view).ok(),
                _ => None,
            };
            let mut value = thing.unwrap_or_else(|| json!({"version": state.version, "dry_run": dry_run}));
            value["changes"] = made.into();
            if of.is_some() && !dry_run && !also.is_empty() {
                value["also"] = also.into();
            }
            if !warnings.is_empty() && !is_tenant {
                value["warnings"] = warnings.into();
            }
            Ok((state.version, value))
        };
        let (version, value) = ask(work).await??;
        Ok(tagged(json_response(&value), version))
    }
}

/// The value of `seconds` in a query.
fn seconds(query: &BTreeMap<String, String>, usual: f64, most: f64) -> Result<f64, Failure> {
    let Some(text) = query.get("seconds") else { return Ok(usual) };
    let seconds = text.parse().ok().filter(|seconds| (0.05..=most).contains(seconds));
    seconds.ok_or_else(|| bad(format!("seconds takes a number from 0.05 to {most}, not \"{}\"", text.escape_debug())))
}

fn tagged(mut response: Response, version: u64) -> Response {
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{version}\"")) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

fn list(kind: Kind, state: &State, view: &View) -> Value {
    let config = &state.config;
    match kind {
        Kind::Export => config.exports.iter().map(|export| show::export(config, export, view)).collect(),
        Kind::Disk => config.disks.iter().filter_map(|disk| disk_of(disk, view)).collect(),
        Kind::Group => show::tree(config, 0),
        Kind::Listener => config.listeners.iter().map(show::listener).collect(),
        Kind::Client => config.clients.iter().map(|rule| show::rule(rule, view)).collect(),
    }
}

fn disk_of(disk: &fairlift::config::Disk, view: &View) -> Option<Value> {
    Some(show::disk(disk, view.disks.iter().find(|view| view.name == disk.name)?))
}

fn one(kind: Kind, name: &str, state: &State, view: &View) -> Result<Value, Failure> {
    let config = &state.config;
    let find = |what: &str, names: Vec<&str>| {
        names.iter().position(|one| *one == name).ok_or_else(|| {
            let meant = Some(config).filter(|_| kind == Kind::Group).and_then(|config| group_meant(config, name));
            let hint = match meant.unwrap_or_else(|| suggestion(name, names.iter().copied())) {
                hint if hint.is_empty() && names.is_empty() => "; there is none".into(),
                hint if hint.is_empty() && names.len() <= 8 => format!("; there are {}", names.join(", ")),
                hint => hint,
            };
            Failure(StatusCode::NOT_FOUND, format!("there is no {what} \"{}\"{hint}", name.escape_debug()))
        })
    };
    Ok(match kind {
        Kind::Export => {
            let at = find("export", config.exports.iter().map(|export| &*export.name).collect())?;
            show::export(config, &config.exports[at], view)
        }
        Kind::Disk => {
            let at = find("disk", config.disks.iter().map(|disk| &*disk.name).collect())?;
            disk_of(&config.disks[at], view).unwrap_or_default()
        }
        Kind::Group => {
            let at = find("group", config.groups.iter().map(|group| &*group.path).collect())?;
            show::tree(config, at)
        }
        Kind::Listener => {
            let names: Vec<_> =
                config.listeners.iter().map(|listener| crate::words::place::show(&listener.address)).collect();
            let at = find("listener", names.iter().map(String::as_str).collect())?;
            show::listener(&config.listeners[at])
        }
        Kind::Client => {
            let at = find("client", config.clients.iter().map(|rule| &*rule.name).collect())?;
            show::rule(&config.clients[at], view)
        }
    })
}
