//! Failures: answers that are no success.

use axum::http::StatusCode;
use fairlift::control::Refused;

pub(super) struct Failure(pub(super) StatusCode, pub(super) String);

pub(super) fn fail<T>(status: StatusCode, says: impl Into<String>) -> Result<T, Failure> {
    Err(Failure(status, says.into()))
}

pub(super) fn bad(says: impl Into<String>) -> Failure {
    Failure(StatusCode::UNPROCESSABLE_ENTITY, says.into())
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        let status = match &refused {
            Refused::Version { .. } => StatusCode::CONFLICT,
            Refused::Ended => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        };
        Self(status, refused.to_string())
    }
}
