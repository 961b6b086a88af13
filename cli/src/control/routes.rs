//! The routes of `/v1`: one row for each, from which the router and the OpenAPI document are made.

mod change;
mod look;
mod openapi;
mod request;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{MatchedPath, RawPathParams, Request};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodFilter, Router, on};
use fairlift::Handle;
use fairlift::control::{Refused, State};
use fairlift_lab::suggestion;
use serde::Serialize;
use serde_json::{Value, json};

#[cfg(test)]
pub(crate) use self::openapi::document;
use super::failure::{Failure, bad};
use super::roles::{self, Right};
use super::room::Room;
use super::show::{self, Objects};
use super::take_over::Handed;
use super::{Act, ConfigFile, Kind, history, metrics, page, pools};
use request::{ApiRequest, drain};

/// How often removed exports and disks are swept, and the knowledge of schedulers is read.
pub(super) const SWEEP: Duration = Duration::from_millis(200);

#[derive(Clone)]
pub(super) struct App {
    pub(super) handle: Handle,
    pub(super) file: Arc<dyn ConfigFile>,
    pub(super) handed: Arc<Handed>,
    pub(super) texts: metrics::Texts,
    pub(super) looks: metrics::Looks,
    pub(super) history: history::History,
    /// For looks of tenants.
    pub(super) looking: Arc<Room>,
}

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
    History,
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

pub(super) struct Route {
    pub(super) needs: Right,
    pub(super) method: Method,
    /// As axum has it: `{name}` is one part of the path, `{*name}` all that follow.
    pub(super) path: &'static str,
    pub(super) does: Does,
    pub(super) says: &'static str,
}

impl Route {
    /// Its path, and that of the empty name, which an export may have: nothing is behind the last slash.
    fn paths(&self) -> impl Iterator<Item = &'static str> {
        [Some(self.path), self.path.strip_suffix("{name}")].into_iter().flatten()
    }
}

macro_rules! routes {
    ($($needs:ident $method:ident $path:literal $does:ident $(($($of:tt)*))? => $says:literal;)*) => {
        pub(super) const ROUTES: &[Route] = {
            use {Act::*, Kind::*, page::*};
            &[$(Route {
                needs: Right::$needs,
                method: Method::$method,
                path: $path,
                does: Does::$does $(($($of)*))?,
                says: $says,
            }),*]
        };
    };
}

routes! {
    None GET "/" Page(TEXT) => "The web page";
    None GET "/page.css" Page(STYLE) => "Its style";
    None GET "/page.js" Page(SCRIPT) => "Its script";
    Own GET "/v1" Server => "The server: version, workers, listeners, flush errors";
    Own GET "/v1/openapi.json" Document => "This document";
    Own GET "/v1/state" All => "All current settings: exports, disks, groups, listeners, clients";
    Own GET "/v1/status" Status => "The share of each disk that each tenant had and was due, over ?seconds=1";
    See GET "/v1/history" History =>
        "The share, due, rate and latency of each tenant over the last ten minutes, and the changes made in them";
    See GET "/v1/gateways" Gateways =>
        "The pools that this server shares with other gateways, with the share and due of each gateway and group";
    Own GET "/metrics" Metrics => "Metrics for Prometheus: OpenMetrics, or the older text format";
    Own GET "/v1/why" WhyAll =>
        "The causes of waits of each tenant, or of ?tenant=PATH and those below it, over ?seconds=1";
    Own GET "/v1/why/{name}" Why => "The causes of waits of an export's tenant, over ?seconds=1";
    See GET "/v1/trace" Trace =>
        "The steps of each request for ?seconds=5, of ?export=NAME or of all, as blktrace records";
    Own GET "/v1/exports" List(Export) => "All exports";
    Change POST "/v1/exports" Change(Add, Export) => "Adds an export";
    Own GET "/v1/exports/{name}" Look(Export) => "An export";
    Change PATCH "/v1/exports/{name}" Change(Set, Export) => "Changes an export";
    Change DELETE "/v1/exports/{name}" Change(Remove, Export) =>
        "Removes an export: its clients are drained, or disconnected at once with ?now=true";
    Change POST "/v1/exports/{name}/fork" Fork =>
        "Adds an export, {\"name\": …}, with the content of this overlay at one instant; each then writes to a top of its own";
    See GET "/v1/disks" List(Disk) => "All disks, with their tunables and the findings of `auto`";
    Change POST "/v1/disks" Change(Add, Disk) => "Adds a disk";
    See GET "/v1/disks/{name}" Look(Disk) => "A disk";
    Change PATCH "/v1/disks/{name}" Change(Set, Disk) => "Changes a disk: scheduler, depth, tunables";
    Change DELETE "/v1/disks/{name}" Change(Remove, Disk) => "Removes a disk that no export is on";
    Own GET "/v1/groups" List(Group) => "The tree of groups";
    Change POST "/v1/groups" Change(Add, Group) => "Adds a group";
    Own GET "/v1/groups/{*name}" Look(Group) => "A group and those below it";
    Delegated PATCH "/v1/groups/{*name}" Change(Set, Group) => "Changes a group: weight, limits, latency";
    Change DELETE "/v1/groups/{*name}" Change(Remove, Group) => "Removes an empty group";
    See GET "/v1/listeners" List(Listener) => "The addresses for clients";
    Change POST "/v1/listeners" Change(Add, Listener) => "Adds a listener";
    See GET "/v1/listeners/{*name}" Look(Listener) => "A listener";
    Change DELETE "/v1/listeners/{*name}" Change(Remove, Listener) =>
        "Closes a listener; connections made through it stay open";
    See GET "/v1/clients" List(Client) => "The rights of clients";
    Change POST "/v1/clients" Change(Add, Client) => "Adds a client";
    See GET "/v1/clients/{name}" Look(Client) => "A client, and its rights";
    Change PATCH "/v1/clients/{name}" Change(Set, Client) => "Changes the identity or the rights of a client";
    Change DELETE "/v1/clients/{name}" Change(Remove, Client) =>
        "Removes a client: connections that no other allows are answered and closed";
    Own GET "/v1/connections" Connections => "All connections";
    Own GET "/v1/events" Events =>
        "Events, as server-sent events; ?after=NUMBER continues after one, ?last=10 starts with that many past ones";
    Change POST "/v1/changes" Transaction =>
        "Several changes, all or none: {\"changes\": [{\"set\": \"group\", \"name\": \"/a\", \"weight\": 300}]}";
    Change POST "/v1/reload" Reload => "Re-reads the config file and applies the differences";
    Change POST "/v1/upgrade" Upgrade =>
        "The command line of the server, and the state that another server would take over, or the obstacles";
    Change POST "/v1/take-over" TakeOver =>
        "Takeover by another server; ?version=NUMBER is the version of the settings that it begins with";
    Change POST "/v1/acknowledge" Acknowledge => "Acknowledges flush errors, so that flushes may succeed again";
    Change POST "/v1/drain" Drain => "Finishes the requests in flight, flushes, and ends the server";
    Change POST "/v1/stop" Stop => "Ends the server at once; writes that were not flushed may be lost";
}

/// Looks of a tenant's user or address at once. Chosen: as many pages that are open. A look keeps the figures of all tenants for as long as it takes.
pub(super) const LOOKING: usize = 16;

type Answer = Result<Response, Failure>;

pub(super) fn router(app: App) -> Router {
    let mut router = Router::new();
    for route in ROUTES {
        let filter = MethodFilter::try_from(route.method.clone()).expect("the methods of the table are usual ones");
        for path in route.paths() {
            let app = app.clone();
            router = router.route(
                path,
                on(filter, move |path: RawPathParams, request: Request| {
                    let name = path.iter().next().map(|(_, value)| value.to_owned());
                    let app = app.clone();
                    async move { answer(app.answer(route, name, request).await) }
                }),
            );
        }
    }
    let router = router.method_not_allowed_fallback(|path: MatchedPath, request: Request| async move {
        let is_it = |route: &&Route| route.paths().any(|one| one == path.as_str());
        let there: Vec<_> = ROUTES.iter().filter(is_it).map(|route| route.method.as_str()).collect();
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
    drain(request.into_body()).await;
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
    async fn answer(self, route: &Route, name: Option<String>, request: Request) -> Answer {
        let request = ApiRequest::read(&self.handle, route, name, request).await?;
        let role = request.role.clone();
        match route.does {
            Does::Page(file) => Ok(file.answer()),
            Does::Document => Ok(json_response(&openapi::document())),
            Does::Server => {
                let config = self.state().await?.config;
                let may_change = !request.who.place.read_only && roles::may_change(&role, &config);
                let sees_all = role.sees_all();
                self.look(role, move |state, view| Ok(show::server(state, view, (may_change, sees_all)))).await
            }
            Does::All => self.look(role, |state, view| Ok(show::state(state, view))).await,
            Does::List(kind) => {
                self.look(role, move |state, view| Ok(Objects::new(&state.config, view).all(kind))).await
            }
            Does::Look(kind) => self.look(role, move |state, view| look::one(kind, &request.name, state, view)).await,
            Does::Connections => {
                self.look(role, |_, view| Ok(view.clients.iter().map(show::client).collect::<Value>())).await
            }
            Does::Status => self.status(&request).await,
            Does::History => {
                let (history, handle) = (self.history.clone(), self.handle.clone());
                self.look(role, move |_, view| Ok(history.show(view.at, &handle.events(Some(0)).0))).await
            }
            Does::Gateways => Ok(json_response(&pools::gateways(&ask(move || self.handle.pools()).await?))),
            Does::Why => self.why(&request, true).await,
            Does::WhyAll => self.why(&request, false).await,
            Does::Trace => self.trace(request).await,
            Does::Metrics => self.metrics(role, metrics::Format::wanted(&request.headers)).await,
            Does::Events => self.events(request),
            Does::Change(act, kind) => self.one_change(act, kind, request).await,
            Does::Fork => self.fork(request).await,
            Does::Transaction => self.transaction(request).await,
            Does::Reload => self.reload(request).await,
            Does::Upgrade => {
                Ok(json_response(&ask(move || self.handed.plan(&request.who, &self.handle, &*self.file)).await??))
            }
            Does::TakeOver => {
                let missing = || bad("version is missing: ?version=NUMBER, as GET /v1/state has it");
                let version = request.query.get("version").and_then(|text| text.parse().ok()).ok_or_else(missing)?;
                self.handed.begin(request.who, self.handle.clone(), version, request.upgrade)
            }
            Does::Acknowledge => {
                let handle = self.handle.clone();
                let count = ask(move || handle.acknowledge_flush_errors()).await?;
                self.handle.tell("noted", vec![("flush_errors", count.to_string()), ("who", request.who.name)]);
                Ok(json_response(&json!({"acknowledged": count})))
            }
            Does::Drain => {
                tracing::info!(who = request.who.name, "draining: finishing requests in flight");
                self.handle.drain();
                Ok(json_response(&json!({"draining": true})))
            }
            Does::Stop => {
                tracing::warn!(who = request.who.name, "stopped at once; writes that were not flushed may be lost");
                tokio::spawn(async {
                    tokio::time::sleep(Duration::from_millis(50)).await; // for the answer to go out
                    std::process::exit(1);
                });
                Ok(json_response(&json!({"stopping": true})))
            }
        }
    }

    async fn state(&self) -> Result<State, Failure> {
        let handle = self.handle.clone();
        Ok(ask(move || handle.state()).await?.ok_or(Refused::Ended)?)
    }
}

fn tagged(mut response: Response, version: u64) -> Response {
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{version}\"")) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}
