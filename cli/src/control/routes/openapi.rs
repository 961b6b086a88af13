//! The OpenAPI document, made from the rows of the routes and of the words.

use axum::http::Method;
use serde_json::{Value, json};

use super::{Does, ROUTES, Route};
use crate::control::{Act, keys};

pub(crate) fn document() -> Value {
    let mut paths = json!({});
    for route in ROUTES {
        paths[route.path.replace("{*", "{")][route.method.as_str().to_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Fairlift control",
            "version": "1",
            "description": "Looks at a running server and changes it. docs/control.md explains it.",
        },
        "paths": paths,
        "components": {"schemas": {"Error": {
            "type": "object",
            "required": ["error"],
            "properties": {"error": {"type": "string", "description": "The value that was refused, and the possible ones"}},
        }}},
    })
}

fn operation(route: &Route) -> Value {
    let mut parameters = Vec::new();
    if let Some((_, rest)) = route.path.split_once('{') {
        let name = rest.trim_start_matches('*').trim_end_matches('}');
        parameters.push(json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}));
    }
    let query: &[(&str, &str)] = match route.does {
        Does::Change(Act::Remove, _) => &[("dry_run", "boolean"), ("now", "boolean")],
        Does::Change(..) | Does::Fork | Does::Transaction | Does::Reload => &[("dry_run", "boolean")],
        Does::Status | Does::Why => &[("seconds", "number")],
        Does::WhyAll => &[("seconds", "number"), ("tenant", "string")],
        Does::Trace => &[("seconds", "number"), ("export", "string")],
        Does::Events => &[("after", "integer"), ("last", "integer")],
        Does::TakeOver => &[("version", "integer")],
        _ => &[],
    };
    let query = query.iter().map(|(name, kind)| json!({"name": name, "in": "query", "schema": {"type": kind}}));
    parameters.extend(query);
    let changes = matches!(route.does, Does::Change(..) | Does::Fork | Does::Transaction | Does::Reload);
    if changes {
        parameters.push(json!({"name": "If-Match", "in": "header", "schema": {"type": "string"}}));
    }
    let kind = match route.does {
        Does::Page(file) => file.0,
        Does::Events => "text/event-stream",
        Does::Metrics => "text/plain",
        Does::Trace => "application/octet-stream",
        _ => "application/json",
    };
    let error = json!({
        "description": "The reason for the refusal",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    });
    let more: &[&str] = match route.does {
        _ if changes => &["400", "408", "409", "413", "422"],
        Does::Look(_) => &["404"],
        Does::Status => &["422", "429"],
        Does::Why | Does::WhyAll => &["404", "422", "429"],
        Does::Trace => &["404", "409", "422"],
        Does::Events | Does::TakeOver => &["422"],
        _ => &[],
    };
    let mut responses = json!({"200": {"description": "The settings in force", "content": {kind: {}}}});
    ["401", "403"].iter().chain(more).for_each(|code| responses[*code] = error.clone());
    let mut operation = json!({"summary": route.says, "parameters": parameters, "responses": responses});
    if let Some(schema) = body(route) {
        operation["requestBody"] = json!({"content": {"application/json": {"schema": schema}}});
    }
    operation
}

/// The keys of a body: of a disk the tunables of its scheduler too.
fn body(route: &Route) -> Option<Value> {
    if route.method == Method::GET || route.method == Method::DELETE {
        return None;
    }
    match route.does {
        Does::Change(act, kind) => {
            let mut properties = json!({});
            if act == Act::Add {
                properties["name"] = json!({"type": "string"});
            }
            for key in keys(kind, act) {
                properties[key.name] = key.schema;
                properties[key.name]["description"] = key.says.into();
            }
            Some(json!({"type": "object", "properties": properties}))
        }
        Does::Fork => Some(json!({
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string"},
                "top": {"type": "string", "description": "the file for the writes of the fork, or the copy of a file; by default NAME.top beside the origin's top, or NAME with the ending of the origin's file"},
                "ephemeral": {"type": ["boolean", "string"], "description": "whether the writes of the fork disappear with its export or the server; or the directory that holds them until then, by default that of the origin's top"},
                "group": {"type": "string", "description": "by default that of the origin"},
                "dry_run": {"type": "boolean"},
            },
        })),
        Does::Transaction => Some(json!({
            "type": "object",
            "required": ["changes"],
            "properties": {"changes": {"type": "array", "items": {"type": "object"}}, "dry_run": {"type": "boolean"}},
        })),
        _ => None,
    }
}
