//! Routes that look at the server, at one moment, over a while, or for as long as the client stays.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use fairlift::access::{Grant, is_below};
use fairlift::config::Export;
use fairlift::control::{Refused, State, View, group_meant};
use fairlift::gateways::PoolView;
use fairlift_lab::suggestion;
use serde::Serialize;
use serde_json::{Value, json};

use super::request::ApiRequest;
use super::{Answer, App, LOOKING, ask, json_response, tagged};
use crate::control::failure::{Failure, bad, fail};
use crate::control::roles::{self, Right};
use crate::control::show::{self, Objects};
use crate::control::{Kind, metrics, pools, status, trace, why};

/// How often somebody who watches events is told.
const EVENTS: Duration = Duration::from_millis(100);

impl App {
    /// The state and the server's activity at one moment, as far as a client of this role may see them.
    pub(super) async fn look<T: Serialize + Send + 'static>(
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

    pub(super) async fn status(self, request: &ApiRequest) -> Answer {
        let (state, [before, after], pools) = self.look_twice(request).await?;
        let (file, handle) = (Arc::clone(&self.file), self.handle.clone());
        let of_settings = ask(move || file.warnings(&handle)).await?;
        let role = self.still(request)?;
        let mut value = status::status(&role, &state, [&before, &after], &pools);
        let all = of_settings.into_iter().chain(status::warnings(&after)).chain(pools::warnings(&pools));
        // They are about what others have, too.
        value["warnings"] = all.filter(|_| !matches!(role, Grant::Tenant(_))).collect();
        Ok(tagged(json_response(&value), state.version))
    }

    /// The role that a client has by now, if it may still see what it asked for (roles.1).
    fn still(&self, request: &ApiRequest) -> Result<Grant, Failure> {
        let role = request.who.role(&self.handle);
        Right::Own.is_of(&role).map(|()| role)
    }

    /// Of one export's tenant, or of each that is below a group.
    pub(super) async fn why(self, request: &ApiRequest, is_of_one: bool) -> Answer {
        let tenant = request.query.get("tenant").map_or("/", String::as_str);
        let (kind, name) = if is_of_one { (Kind::Export, &*request.name) } else { (Kind::Group, tenant) };
        // A client that may not see it has its answer at once, and not after a look of a second.
        let (app, role, of) = (self.clone(), request.role.clone(), name.to_owned());
        app.look(role, move |state, view| one(kind, &of, state, view)).await?;
        let (state, [before, after], pools) = self.look_twice(request).await?;
        let is_meant = |export: &Export, path: &str| if is_of_one { export.name == name } else { is_below(path, name) };
        let mut all = why::why(&self.still(request)?, &state, [&before, &after], &pools, is_meant);
        let gone = || Failure(StatusCode::NOT_FOUND, format!("export \"{name}\" has gone"));
        let value = if is_of_one { all.pop().ok_or_else(gone)? } else { all.into() };
        Ok(tagged(json_response(&value), state.version))
    }

    /// The server at two moments, `seconds` of the query apart, with the configuration and the pools at the second.
    async fn look_twice(&self, request: &ApiRequest) -> Result<(State, [View; 2], Vec<PoolView>), Failure> {
        let seconds = seconds(&request.query, 1.0, 60.0)?;
        let _place = match (&request.role, self.looking.enter(&request.who.peer)) {
            (Grant::Tenant(_), None) => {
                let says = format!("this client waits for {LOOKING} answers over a time already");
                return fail(StatusCode::TOO_MANY_REQUESTS, says);
            }
            (_, place) => place,
        };
        let handle = self.handle.clone();
        let before = ask(move || handle.view(true)).await?.ok_or(Refused::Ended)?;
        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
        let handle = self.handle.clone();
        let look = move || Some((handle.view(true)?, handle.state()?, handle.pools()));
        let (after, state, pools) = ask(look).await?.ok_or(Refused::Ended)?;
        Ok((state, [before, after], pools))
    }

    pub(super) async fn trace(self, request: ApiRequest) -> Answer {
        let ApiRequest { query, who, role, .. } = request;
        let seconds = seconds(&query, 5.0, 3600.0)?;
        let handle = self.handle.clone();
        let (state, trace) = ask(move || Some((handle.state()?, handle.trace()))).await?.ok_or(Refused::Ended)?;
        let trace = trace.ok_or_else(|| Failure(StatusCode::CONFLICT, "a trace is being taken already".into()))?;
        let export = match query.get("export") {
            None => None,
            Some(name) => Some(trace.exports.iter().find(|export| export.name == *name).cloned().ok_or_else(|| {
                let known = state.config.exports.iter().map(|export| &*export.name);
                let says = format!("there is no export \"{}\"{}", name.escape_debug(), suggestion(name, known));
                Failure(StatusCode::NOT_FOUND, says)
            })?),
        };
        let may_go_on = move || who.still_is(&role, &self.handle);
        Ok(trace::answer(trace, export, Duration::from_secs_f64(seconds), Box::new(may_go_on)))
    }

    pub(super) async fn metrics(self, role: Grant, format: metrics::Format) -> Answer {
        let (handle, looks) = (self.handle.clone(), self.looks.clone());
        let text = ask(move || {
            let (state, view) = handle.state().zip(handle.view(true)).ok_or(Refused::Ended)?;
            Ok::<_, Refused>(metrics::text(&role, &state, &view, &looks, &handle.pools(), format))
        });
        Ok(self.texts.answer(text.await??, format))
    }

    pub(super) fn events(self, request: ApiRequest) -> Answer {
        let ApiRequest { query, headers, who, role, .. } = request;
        // Browsers say where they were when they connect again.
        let last = headers.get("last-event-id").and_then(|value| value.to_str().ok()).map(str::to_owned);
        let number = |name: &str, text: Option<String>| -> Result<Option<u64>, Failure> {
            let Some(text) = text else { return Ok(None) };
            let says = || bad(format!("{name} takes a number, not \"{}\"", text.escape_debug()));
            text.parse().map(Some).map_err(|_| says())
        };
        let after = number("after", query.get("after").cloned().or(last))?;
        let past = number("last", query.get("last").cloned())?.unwrap_or(0);
        // A tenant sees events from now on: a name in earlier ones may have been another's then.
        let is_tenant = matches!(role, Grant::Tenant(_));
        let latest = self.handle.events(None).1;
        // A number that is yet to come is that of a previous server, which was killed: all that this one has to tell came after it.
        let after = after.map(|after| if after > latest { 0 } else { after });
        let after =
            after.filter(|_| !is_tenant).unwrap_or_else(|| latest.saturating_sub(if is_tenant { 0 } else { past }));
        let stream = futures_util::stream::unfold(
            (self, who, role, after, Vec::new()),
            move |(app, who, role, mut after, mut ready)| async move {
                loop {
                    if !who.still_is(&role, &app.handle) {
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
                        ready.push(SseEvent::default().event("missing").data(says.to_string()));
                    }
                    for event in events {
                        after = event.number;
                        if !config.as_ref().is_some_and(|config| roles::tells(&role, config, &event)) {
                            continue;
                        }
                        let mut message = SseEvent::default().event(event.kind);
                        let mut data = show::event(&event);
                        match is_tenant {
                            true => drop(data.as_object_mut().and_then(|data| data.remove("number"))), // It counts others' events.
                            false => message = message.id(event.number.to_string()),
                        }
                        ready.push(message.data(data.to_string()));
                    }
                    ready.reverse();
                    if ready.is_empty() {
                        tokio::time::sleep(EVENTS).await;
                    }
                }
            },
        );
        Ok(Sse::new(stream).keep_alive(KeepAlive::default()).into_response())
    }
}

fn seconds(query: &BTreeMap<String, String>, usual: f64, most: f64) -> Result<f64, Failure> {
    let Some(text) = query.get("seconds") else { return Ok(usual) };
    let seconds = text.parse().ok().filter(|seconds| (0.05..=most).contains(seconds));
    seconds.ok_or_else(|| bad(format!("seconds takes a number from 0.05 to {most}, not \"{}\"", text.escape_debug())))
}

pub(super) fn one(kind: Kind, name: &str, state: &State, view: &View) -> Result<Value, Failure> {
    let objects = Objects::new(&state.config, view);
    let names = objects.names(kind);
    let at = names.iter().position(|one| one == name).ok_or_else(|| {
        let meant = if kind == Kind::Group { group_meant(&state.config, name) } else { None };
        let hint = match meant.unwrap_or_else(|| suggestion(name, names.iter().map(|one| &**one))) {
            hint if hint.is_empty() && names.is_empty() => "; there is none".into(),
            hint if hint.is_empty() && names.len() <= 8 => format!("; there are {}", names.join(", ")),
            hint => hint,
        };
        Failure(StatusCode::NOT_FOUND, format!("there is no {} \"{}\"{hint}", kind.name(), name.escape_debug()))
    })?;
    Ok(objects.one(kind, at).unwrap_or_default())
}
