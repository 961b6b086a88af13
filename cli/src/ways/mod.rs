//! The ways by which clients reach an export beside listeners: of each protocol its key, its flag and their help, in a file and a row.

mod ublk;
mod vhost_user;

use clap::Args;
use fairlift::config::Ways;

use crate::config::row::Row;

/// The flag of a way, for all exports.
trait Flag {
    /// Whether it is of exports that are added to a running server, too.
    const IS_OF_ADDED: bool;

    /// Puts it into the ways of an export, unless it cannot be of that one.
    fn put(&self, export: &str, to: &mut Ways) -> Result<(), String>;
}

macro_rules! ways {
    ($($way:ident,)*) => {
        /// Their keys.
        pub(crate) const ROWS: &[Row<Ways>] = &[$($way::ROW,)*];

        /// Their flags.
        #[derive(Clone, Default, Debug, Args)]
        #[group(skip)]
        pub(crate) struct Flags {
            $(#[command(flatten)]
            $way: $way::Flag,)*
        }

        impl Flags {
            /// The ways of an export that says some itself, or has the value false for one: those of the flags beside them, and for
            /// each of these that cannot be the flag, and why. `is_added`: a server that runs gets the export.
            pub(crate) fn fill(
                &self,
                export: &str,
                is_set: impl Fn(&str) -> bool,
                is_added: bool,
                to: &mut Ways,
            ) -> Vec<(String, String)> {
                let mut wrong = Vec::new();
                $(if !is_set($way::ROW.name) && (!is_added || <$way::Flag as Flag>::IS_OF_ADDED) {
                    wrong.extend(self.$way.put(export, to).err().map(|why| (flag($way::ROW.name), why)));
                })*
                wrong
            }
        }
    };
}

ways! {
    vhost_user,
    ublk,
}

/// The flag that stands for a key.
pub(crate) fn flag(key: &str) -> String {
    format!("--{}", key.replace('_', "-"))
}
