//! The page: three files that are in the program, and show a person what `/v1` answers.
//!
//! browser.1  The files say nothing of the server, so that they need no token; all that they show is asked for with one.
//! browser.2  Nothing of other hosts is loaded, and no script but this one runs: the content security policy says so.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};

/// A file of the page.
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
        let headers: [(HeaderName, HeaderValue); 5] = [
            (header::CONTENT_TYPE, HeaderValue::from_static(self.kind())),
            (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
            (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
            (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
            (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        ];
        (headers, Body::from(bytes)).into_response()
    }
}
