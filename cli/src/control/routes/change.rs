//! Routes that change the server: what is asked is made as one transaction, or refused.

use std::path::PathBuf;
use std::sync::Arc;

use axum::http::StatusCode;
use fairlift::access::Grant;
use fairlift::config::Backing;
use fairlift::control::{Becomes, Edit, Made, Refused, Step};
use fairlift::{ForkTop, Handle};
use fairlift_lab::suggestion;
use serde_json::{Value, json};

use super::look::one;
use super::request::{ApiRequest, if_match};
use super::{Answer, App, ask, json_response, tagged};
use crate::control::failure::{Failure, bad, fail};
use crate::control::roles;
use crate::control::{Act, Kind, NotRead, ReadAgain};
use crate::syntax::place::check_path;

impl App {
    pub(super) async fn one_change(self, act: Act, kind: Kind, mut request: ApiRequest) -> Answer {
        let name = match act {
            Act::Add => request.new_name(kind)?,
            Act::Set | Act::Remove => std::mem::take(&mut request.name),
        };
        let dry_run = request.dry_run()?;
        if act == Act::Remove
            && let Some(now) = request.query.remove("now")
        {
            request.keys.insert("now".into(), Value::String(now));
        }
        let (file, keys) = (Arc::clone(&self.file), std::mem::take(&mut request.keys));
        if let Grant::Tenant(_) = request.role {
            roles::may_set(&request.role, &self.state().await?.config, &name, &keys)?;
        }
        let of = Some((kind, name.clone()));
        self.change(request, dry_run, of, move |edit| file.changes(edit).change(act, kind, &name, keys)).await
    }

    /// Adds an export with the present data of another one. Keys that are not said are those of that one.
    pub(super) async fn fork(self, mut request: ApiRequest) -> Answer {
        let name = request.new_name(Kind::Export)?;
        let dry_run = request.dry_run()?;
        let path = |key: &str, path: String| {
            let path = PathBuf::from(path);
            check_path(&path).map_err(|why| bad(format!("{key} {why}")))?;
            Ok::<_, Failure>(Some(path))
        };
        let top = match (request.keys.remove("top"), request.keys.remove("ephemeral")) {
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
            if request.keys.contains_key(key) {
                return Err(bad(format!("{key}: a fork has the whole content of its origin")));
            }
        }
        let (file, keys) = (Arc::clone(&self.file), std::mem::take(&mut request.keys));
        let (origin, of) = (std::mem::take(&mut request.name), Some((Kind::Export, name.clone())));
        let made = move |handle: &Handle, version| {
            let add = |edit: &mut Edit, backing: Backing| {
                let mut keys = keys.clone();
                let export = edit.export(&origin)?.clone();
                keys.entry("group").or_insert_with(|| edit.config.group(&export).path.as_str().into());
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
                file.changes(edit).change(Act::Add, Kind::Export, &name, keys)
            };
            handle.fork((&origin, &name), &top, add, version, dry_run)
        };
        self.make(request, dry_run, of, made).await
    }

    pub(super) async fn transaction(self, mut request: ApiRequest) -> Answer {
        let dry_run = request.dry_run()?;
        let list = request.keys.remove("changes").ok_or_else(|| bad("changes is missing: a list of changes"))?;
        if let Some(key) = request.keys.keys().next() {
            let hint = suggestion(key, ["changes", "dry_run"]);
            let says = format!("unknown key \"{}\"; a transaction has changes and dry_run{hint}", key.escape_debug());
            return Err(bad(says));
        }
        let file = Arc::clone(&self.file);
        self.change(request, dry_run, None, move |edit| file.changes(edit).transaction(&list)).await
    }

    pub(super) async fn reload(self, mut request: ApiRequest) -> Answer {
        let dry_run = request.dry_run()?;
        if !self.file.is_there() {
            let says = "this server has no config file that could be read again: it was started without --config";
            return fail(StatusCode::CONFLICT, says);
        }
        let expected = if_match(&request.headers)?;
        let work = move || {
            let ReadAgain { changes, warnings } =
                self.file.read_again(&self.handle, expected, dry_run).map_err(|why| match why {
                    NotRead::Refused(refused) => refused.into(),
                    NotRead::Wrong(wrong) => bad(wrong.answer()),
                })?;
            let version = self.handle.state().ok_or(Refused::Ended)?.version;
            if !dry_run && !changes.is_empty() {
                self.tell("reloaded", &request.who.name, version, &changes, Vec::new());
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
        request: ApiRequest,
        dry_run: bool,
        of: Option<(Kind, String)>,
        change: impl FnOnce(&mut Edit) -> Result<(), String> + Send + 'static,
    ) -> Answer {
        self.make(request, dry_run, of, move |handle, version| handle.change(change, version, dry_run)).await
    }

    /// The same, of a change that is made so.
    async fn make(
        self,
        ApiRequest { who, headers, .. }: ApiRequest,
        dry_run: bool,
        of: Option<(Kind, String)>,
        make: impl FnOnce(&Handle, Option<u64>) -> Result<Made, Refused> + Send + 'static,
    ) -> Answer {
        let expected = if_match(&headers)?;
        let work = move || -> Result<(u64, Value), Failure> {
            let handle = &self.handle;
            let Made { state, steps, mut suited } = make(handle, expected)?;
            let is_tenant = matches!(who.role(handle), Grant::Tenant(_));
            if is_tenant {
                suited.clear(); // They are about disks, which others have too.
            }
            let also: Vec<_> = suited.iter().map(Step::to_string).collect();
            let made: Vec<_> = steps.iter().map(Step::to_string).chain(also.iter().cloned()).collect();
            let warnings = self.file.warnings_of(&state.config, &steps);
            if !dry_run && !made.is_empty() {
                let mut fields: Vec<_> = of.iter().map(|(kind, name)| (kind.name(), name.clone())).collect();
                if steps.iter().any(|step| step.what == Becomes::Key("group")) {
                    fields.push((roles::MOVED, "true".to_owned()));
                }
                self.tell("changed", &who.name, state.version, &made, fields);
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

    /// Tells the log and those who watch events of changes.
    fn tell(&self, done: &str, who: &str, version: u64, changes: &[String], more: Vec<(&'static str, String)>) {
        changes.iter().for_each(|change| tracing::info!(who, version, "{done}: {change}"));
        let mut fields = vec![("version", version.to_string()), ("who", who.to_owned()), ("what", changes.join("; "))];
        fields.extend(more);
        self.handle.tell("changed", fields);
    }
}
