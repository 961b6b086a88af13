//! The web page: three files built into the program, which show a person the answers of `/v1`.
//!
//! browser.1  The files contain nothing about the server, so they need no token; the page asks for figures with one.
//! browser.2  The page loads nothing from other hosts and runs no other script: its content security policy forbids both.

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};

/// A file: its type, and its content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Asset(pub(super) &'static str, &'static str);

pub(super) const TEXT: Asset = Asset("text/html; charset=utf-8", include_str!("page/page.html"));
pub(super) const STYLE: Asset = Asset("text/css; charset=utf-8", include_str!("page/page.css"));
pub(super) const SCRIPT: Asset = Asset("text/javascript; charset=utf-8", include_str!("page/page.js"));

/// browser.2
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

impl Asset {
    pub(super) fn answer(self) -> Response {
        let headers = [
            (header::CONTENT_TYPE, self.0),
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
            (header::CACHE_CONTROL, "no-cache"),
        ];
        (headers, Body::from(self.1)).into_response()
    }
}
