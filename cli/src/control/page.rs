//! The web page: three files built into the program, which show a person the answers of `/v1`.
//!
//! browser.1  The files contain nothing about the server, so they need no token; the page asks for figures with one.
//! browser.2  The page loads nothing from other hosts and runs no other script: its content security policy forbids both.

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asset {
    Text,
    Style,
    Script,
}

/// browser.2
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

impl Asset {
    pub(super) const fn kind(self) -> &'static str {
        match self {
            Self::Text => "text/html; charset=utf-8",
            Self::Style => "text/css; charset=utf-8",
            Self::Script => "text/javascript; charset=utf-8",
        }
    }

    pub(super) fn answer(self) -> Response {
        let bytes: &'static str = match self {
            Self::Text => include_str!("page/page.html"),
            Self::Style => include_str!("page/page.css"),
            Self::Script => include_str!("page/page.js"),
        };
        let headers = [
            (header::CONTENT_TYPE, self.kind()),
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
            (header::CACHE_CONTROL, "no-cache"),
        ];
        (headers, Body::from(bytes)).into_response()
    }
}
