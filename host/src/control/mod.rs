//! Control: a server is changed while it serves.
//!
//! control.1  Several changes are one transaction: all are made, or none.
//! control.2  What is in force after any changes is what a server started with [`State::config`] would have.

pub(crate) mod arrange;
pub mod change;
pub(crate) mod live;
pub(crate) mod naming;
mod plan;
pub mod trace;
pub mod view;

pub use crate::events::{self, Event};
pub use change::{Change, Leave, NewExport, Refused, State};
pub use plan::{change as make, check_floors, check_path, settle, tenants};
pub use trace::Trace;
pub use view::View;
