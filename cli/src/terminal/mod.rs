//! What a person sees while a command runs, how it is stopped, and where its reports go.

pub(crate) mod columns;
pub(crate) mod complaint;
pub(crate) mod output;
pub(crate) mod progress;
pub(crate) mod stop;
