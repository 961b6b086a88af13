//! What a person sees while a command runs, and where its reports go.

pub(crate) mod output;
pub(crate) mod progress;
