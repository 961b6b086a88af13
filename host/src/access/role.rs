//! Role: what a client may see and change of the server itself, at the control server.
//!
//! role.1  Without a rule that says `control`, whoever the place lets in may change all. If some rule says it, a client has the rights
//!         of all rules that fit it together; a client that no rule fits has none.
//! role.2  Root and the server's own user, at a unix socket, may change all: a mistake in the rules could be mended by nobody else.
//! role.3  Of a token the server knows the SHA-256. All bytes of both digests are compared, so that the time tells nothing.

use std::fmt;
use std::str::FromStr;

use subtle::ConstantTimeEq as _;

use super::certificate::{Subject, parse_digest, sha256};
use super::{Peer, Rule, is_below};

/// The rights that a rule gives at the control server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Control {
    /// Nothing.
    None,
    /// To see what is of the rule's group, and to change there what is delegated.
    Tenant,
    /// To see all.
    See,
    /// To see and change all.
    Change,
}

impl Control {
    /// From the least to the most.
    pub const ALL: [Self; 4] = [Self::None, Self::Tenant, Self::See, Self::Change];

    /// As a config file has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Tenant => "tenant",
            Self::See => "see",
            Self::Change => "change",
        }
    }
}

impl FromStr for Control {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || format!("takes {}, not \"{text}\"", Self::ALL.map(Self::name).join(", "));
        Self::ALL.into_iter().find(|one| one.name() == text).ok_or_else(form)
    }
}

/// The rights of a client to see and to change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Grant {
    /// Nothing.
    None,
    /// The objects of these groups and below them.
    Tenant(Vec<String>),
    /// To see all.
    See,
    /// To see and change all.
    Change,
}

impl Grant {
    /// That of a client (role.1, role.2).
    pub(super) fn of<'a>(rules: impl Iterator<Item = &'a Rule> + Clone, peer: &Peer) -> Self {
        let with_roles = rules.filter_map(|rule| Some((rule, rule.control?)));
        if with_roles.clone().next().is_none() || peer.is_root_or_own() {
            return Self::Change;
        }
        let fitting = || with_roles.clone().filter(|(rule, _)| rule.fits(peer));
        match fitting().map(|(_, control)| control).max() {
            None | Some(Control::None) => Self::None,
            Some(Control::Tenant) => {
                let tenants = fitting().filter(|(_, control)| *control == Control::Tenant);
                Self::Tenant(tenants.filter_map(|(rule, _)| rule.group.clone()).collect())
            }
            Some(Control::See) => Self::See,
            Some(Control::Change) => Self::Change,
        }
    }

    /// Whether what is of a group may be seen.
    #[must_use]
    pub fn sees(&self, group: &str) -> bool {
        match self {
            Self::None => false,
            Self::Tenant(own) => own.iter().any(|above| is_below(group, above)),
            Self::See | Self::Change => true,
        }
    }

    /// Whether what is of no group may be seen, such as disks and listeners: by no tenant, whatever its groups.
    #[must_use]
    pub const fn sees_all(&self) -> bool {
        matches!(self, Self::See | Self::Change)
    }
}

/// A token, as it is kept: its SHA-256.
#[derive(Clone, Copy, Eq, Debug)]
pub struct Token([u8; 32]);

impl Token {
    /// That of a text that a client sends.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(sha256(text.as_bytes()))
    }
}

/// role.3
impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl FromStr for Token {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "takes sha256: and the 64 hexadecimal digits that `printf %s \"$TOKEN\" | sha256sum` prints, and not the token itself";
        parse_digest(text).map(Self).ok_or_else(|| form.into())
    }
}

/// Its beginning, which is enough for people.
impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.15}…", Subject::Sha256(self.0).to_string())
    }
}
