//! A request to the control server, read to its end, of a client that may make it.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, Method, StatusCode, header};
use fairlift::Handle;
use fairlift::access::{Grant, Token};
use http_body_util::BodyExt as _;
use serde_json::{Map, Value};

use super::{Does, Route};
use crate::control::Kind;
use crate::control::endpoint::Caller;
use crate::control::failure::{Failure, bad, fail};
use crate::control::roles::Right;

/// A body at most; ten thousand changes of the usual length fit in.
const BODY: usize = 2 << 20;
/// How long a client may take for it.
const BODY_TIME: Duration = Duration::from_secs(10);
/// The header by which a browser tells whose page has made a request.
const SITE: header::HeaderName = header::HeaderName::from_static("sec-fetch-site");

pub(super) struct ApiRequest {
    pub(super) who: Caller,
    pub(super) role: Grant,
    /// The object of the path.
    pub(super) name: String,
    pub(super) headers: HeaderMap,
    pub(super) query: BTreeMap<String, String>,
    /// The body.
    pub(super) keys: Map<String, Value>,
    /// The connection, if the client wants to speak something else by it.
    pub(super) upgrade: Option<hyper::upgrade::OnUpgrade>,
}

impl ApiRequest {
    /// Reads a request to its end: a client that asks for a change without a body may send one all the same, and one that is
    /// refused would not read why not while it sends.
    pub(super) async fn read(
        handle: &Handle,
        route: &Route,
        name: Option<String>,
        request: Request,
    ) -> Result<Self, Failure> {
        let (mut parts, body) = request.into_parts();
        let upgrade = parts.extensions.remove();
        let who = parts.extensions.get::<Caller>().cloned();
        let Some(mut who) = who else { return fail(StatusCode::INTERNAL_SERVER_ERROR, "nobody asks") };
        let given =
            parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        who.peer.token = given.map(Token::new);
        let allowed = || {
            let role = who.role(handle);
            may(&who, &parts.headers, route.needs, handle).and_then(|()| route.needs.is_of(&role)).map(|()| role)
        };
        let keys = match allowed() {
            Err(refused) => {
                drain(body).await;
                return Err(refused);
            }
            Ok(_) if parts.method == Method::GET => Ok(Map::new()),
            Ok(_) => keys(body).await,
        };
        let role = allowed()?; // roles.1: not that of ten seconds ago
        // A path of groups starts at the root, and that slash ends the path of the route.
        let group = matches!(route.does, Does::Look(Kind::Group) | Does::Change(_, Kind::Group));
        let name = name.map(|name| if group && !name.starts_with('/') { format!("/{name}") } else { name });
        let query = query(parts.uri.query().unwrap_or_default());
        Ok(Self { who, role, name: name.unwrap_or_default(), headers: parts.headers, query, keys: keys?, upgrade })
    }

    /// The name of the addition, which stands in the body.
    pub(super) fn new_name(&mut self, kind: Kind) -> Result<String, Failure> {
        // A client's address is not its name.
        let [first, last] = match kind {
            Kind::Group => ["path", "address"],
            Kind::Client => ["name", "name"],
            _ => ["name", "address"],
        };
        match [first, "name", last].iter().find_map(|key| self.keys.remove(*key)) {
            Some(Value::String(name)) => Ok(name),
            _ => Err(bad("name is missing: the body is an object such as {\"name\": \"alice\", …}")),
        }
    }

    /// Whether it is only to be said what would be.
    pub(super) fn dry_run(&mut self) -> Result<bool, Failure> {
        let value = self.query.remove("dry_run").map(Value::String).or_else(|| self.keys.remove("dry_run"));
        match value {
            None | Some(Value::Bool(false)) => Ok(false),
            Some(Value::Bool(true)) => Ok(true),
            Some(Value::String(text)) if text.is_empty() || text == "true" || text == "1" => Ok(true),
            Some(Value::String(text)) if text == "false" || text == "0" => Ok(false),
            Some(other) => Err(bad(format!("dry_run takes true or false, not {other}"))),
        }
    }
}

/// http.2, browser.1
fn may(who: &Caller, headers: &HeaderMap, needs: Right, handle: &Handle) -> Result<(), Failure> {
    let header = |name: header::HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("\u{fffd}"));
    let host = header(header::HOST).unwrap_or_default();
    if let Some(hosts) = &who.place.hosts
        && !hosts.iter().any(|known| known.eq_ignore_ascii_case(host))
    {
        return fail(StatusCode::FORBIDDEN, format!("this is {}, and not the host \"{host}\"", hosts[0]));
    }
    if who.place.is_unix && !is_local(host) {
        return fail(StatusCode::FORBIDDEN, format!("this is localhost, and not the host \"{host}\""));
    }
    let locks = who.place.locks();
    let scheme = if locks.tls.is_some() { "https" } else { "http" };
    if let Some(origin) = header(header::ORIGIN)
        && origin != format!("{scheme}://{host}")
    {
        return fail(StatusCode::FORBIDDEN, format!("pages of \"{origin}\" may not speak to this server"));
    }
    // A page asks for a picture without an Origin; the browser tells whose page it is.
    let site = header(SITE);
    if needs != Right::None && site.is_some_and(|site| site != "same-origin" && site != "none") {
        return fail(StatusCode::FORBIDDEN, "pages of other sites may not speak to this server");
    }
    if who.is_revoked() {
        return fail(StatusCode::FORBIDDEN, "the certificate that was shown is revoked");
    }
    if needs != Right::None && !who.has_token(handle) {
        return fail(StatusCode::UNAUTHORIZED, "the token is missing or wrong: Authorization: Bearer TOKEN");
    }
    if needs.changes() && who.place.read_only {
        return fail(StatusCode::FORBIDDEN, "this control address is read-only");
    }
    Ok(())
}

/// Whether a host's name cannot be that of a page of the internet: it has no dot, or is this machine's address.
fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|letter| letter.is_ascii_digit()) => name,
        _ => host,
    };
    name == "127.0.0.1" || name == "[::1]" || !name.contains(['.', ':'])
}

/// The version that the server must have for a change to be made.
pub(super) fn if_match(headers: &HeaderMap) -> Result<Option<u64>, Failure> {
    match headers.get(header::IF_MATCH).map(|value| value.to_str().unwrap_or_default()) {
        None | Some("*") => Ok(None),
        Some(text) => text.trim_matches('"').parse().map(Some).map_err(|_| {
            bad(format!("If-Match takes the version that an answer had as ETag, such as \"7\", not {text:?}"))
        }),
    }
}

/// The bytes of a body; `None`: there are more than `most`. Those are read too, and not kept, up to a bound: a client that is still
/// sending would not read why not.
async fn whole(mut body: Body, most: usize) -> Result<Option<Vec<u8>>, axum::Error> {
    const PATIENCE: usize = 64 << 20;
    let (mut bytes, mut seen) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        seen += data.len();
        if seen <= most {
            bytes.extend_from_slice(&data);
        } else if seen > PATIENCE {
            break;
        }
    }
    Ok((seen <= most).then_some(bytes))
}

/// Reads the body of a request that is refused, and keeps nothing of it: a client without rights takes no memory.
pub(super) async fn drain(body: Body) {
    let _ = tokio::time::timeout(BODY_TIME, whole(body, 0)).await; // the refusal is the same however it ends
}

/// The body, which is an object or nothing (http.1).
pub(super) async fn keys(body: Body) -> Result<Map<String, Value>, Failure> {
    let bytes = match tokio::time::timeout(BODY_TIME, whole(body, BODY)).await {
        Err(_) => return fail(StatusCode::REQUEST_TIMEOUT, "the body has not come to its end in 10 s"),
        Ok(Err(error)) => return fail(StatusCode::BAD_REQUEST, format!("the body cannot be read: {error}")),
        Ok(Ok(None)) => {
            return fail(StatusCode::PAYLOAD_TOO_LARGE, format!("the body has more than {} MiB", BODY >> 20));
        }
        Ok(Ok(Some(bytes))) => bytes,
    };
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(Map::new());
    }
    match serde_json::from_slice(&bytes) {
        Ok(Value::Object(keys)) => Ok(keys),
        Ok(_) => fail(StatusCode::BAD_REQUEST, "the body is JSON, and not an object such as {\"weight\": 300}"),
        Err(error) => fail(StatusCode::BAD_REQUEST, format!("the body is not JSON: {error}")),
    }
}

fn query(text: &str) -> BTreeMap<String, String> {
    form_urlencoded::parse(text.as_bytes()).into_owned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_the_internet_has_no_local_name() {
        for host in ["localhost", "localhost:9000", "127.0.0.1:9000", "[::1]:9000", "x", ""] {
            assert!(is_local(host), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:9000",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "[2001:db8::1]:9000",
            "localhost.",
        ] {
            assert!(!is_local(host), "{host}");
        }
    }

    #[test]
    fn a_query_is_decoded() {
        let all = query("dry_run&name=a%2Fb+c&bad=%zz");
        assert_eq!((&*all["dry_run"], &*all["name"], &*all["bad"]), ("", "a/b c", "%zz"));
    }
}
