//! Control: a server is changed while it serves.
//!
//! control.1  Several changes are one transaction: all are made, or none.
//! control.2  After any changes the same is in force as in a server started with [`State::config`].

pub(crate) mod arrange;
mod difference;
mod edit;
mod keys;
pub(crate) mod live;
pub(crate) mod naming;
mod state;
mod tenants;
pub mod trace;
pub mod view;

pub use crate::events::{self, Event};
pub use difference::{Becomes, FROM_START_TO_END, Impossible, Of, Step, check_name, difference};
pub use edit::{Edit, Leave, check_path, group_meant};
pub use keys::live_keys_of_exports;
pub use state::{Made, Refused, State};
pub use tenants::{check_floors, settle, tenants};
pub use trace::Trace;
pub use view::View;
