//! Access: which exports a client may open, and whether it may write to them.
//!
//! The tenants of a server must not reach each other's disks. Example: processes of user 1000 open the exports of `/tenants/alice`,
//! the backup host at 192.0.2.9 reads those of all tenants, and for every other client there is no export at all.
//!
//! access.1  Without a rule that allows exports, every client may open everything. With one or more, what no rule allows is refused.
//!           A rule that knows its client by a token is for control alone, where its role says what it may (role.1).
//! access.2  A rule fits a client if all holds that the rule says of it. Without TLS a client has no certificate, and at a unix socket
//!           no address; over TCP it has no user and no cgroup.
//! access.3  A client may do what the rules that fit it allow together: an export is read-only for it only if each rule that
//!           allows this export says so.
//! access.4  An export that a client may not open is neither listed nor found, and the search for it takes the same steps as for a
//!           name that no export has: which exports a client may open is asked before any name is compared.
//! access.5  A connection counts in one rule: the first that allows its export, those that let it write before the others. A rule
//!           with `max_connections` of them lets no more in.
//! access.6  When rules or groups change, a connection keeps what it may still do, or is closed once it has been answered. It goes on
//!           counting in its rule, also where that has more than `max_connections` by now; another rule takes it over only if it has room,
//!           or is the only one. A write counts as asked for when its payload has come.
//! access.7  A new rule goes on with the count of a removed one that knew a client by the same: a rule that is renamed lets in no more than
//!           before. Where fewer rules know it by the same, the first of them that is new or another has the counts of those that are left over, too.

mod certificate;
mod cgroup;
mod gate;
mod network;
mod revoked;
mod role;

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

pub use certificate::{Certificate, Subject};
pub use cgroup::Cgroup;
pub(crate) use gate::{Gate, Origin, Visit, Why};
pub use network::Network;
pub use revoked::Revoked;
pub use role::{Control, Grant, Token};

/// The identity of a client, and its rights. (A client of a server: a person would say a tenant's machines.)
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// The user of the process at the other end of a unix socket.
    pub uid: Option<u32>,
    /// The group that this process has; its further groups do not count.
    pub gid: Option<u32>,
    /// A cgroup that this process is in.
    pub cgroup: Option<Cgroup>,
    /// A name in its certificate, which was verified, or the certificate's digest.
    pub certificate: Option<Subject>,
    /// Where it comes from.
    pub address: Option<Network>,
    /// The place that it came by, as [`config::Address`](crate::config::Address) is shown.
    pub listener: Option<String>,
    /// The token that it sends to the control server.
    pub token: Option<Token>,
    /// The exports that it may open.
    pub exports: BTreeSet<String>,
    /// A group: it may open the exports of this one and of all below it.
    pub group: Option<String>,
    /// Whether it may only read.
    pub read_only: bool,
    /// How many connections it may have; `None`: as many as the server takes.
    pub max_connections: Option<u32>,
    /// Its rights at the control server; `None`: the rule does not say.
    pub control: Option<Control>,
}

impl Rule {
    /// Whether the rule identifies a client, and names exports or a role.
    ///
    /// # Errors
    /// The missing key, and the mistake.
    pub fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let Self { token, exports, group, control, .. } = self;
        match control {
            _ if self.known().is_empty() => Err((
                "uid",
                "says not how the client is known: say uid, gid, cgroup, certificate, address, listener or token",
            )),
            None if token.is_some() => {
                Err(("token", "is for the control server alone: add control, with the client's rights there"))
            }
            None if exports.is_empty() && group.is_none() => {
                let says = "allows nothing: add exports, the group whose exports the client may open, or control";
                Err(("exports", says))
            }
            Some(Control::Tenant) if group.is_none() => {
                Err(("control", "\"tenant\" needs the group that is the client's"))
            }
            Some(_) if self.listener.is_some() => {
                Err(("listener", "is where clients come for exports: say control in a table of its own"))
            }
            _ => Ok(()),
        }
    }

    /// Whether the rule is about exports (access.1).
    #[must_use]
    pub fn is_of_exports(&self) -> bool {
        self.token.is_none() && (self.group.is_some() || !self.exports.is_empty())
    }

    /// access.2
    fn fits(&self, peer: &Peer) -> bool {
        let holds = [
            self.uid.is_none_or(|uid| peer.user.is_some_and(|(its, _)| its == uid)),
            self.gid.is_none_or(|gid| peer.user.is_some_and(|(_, its)| its == gid)),
            self.cgroup.as_ref().is_none_or(|above| peer.cgroup.as_ref().is_some_and(|its| its.is_in(above))),
            self.address.is_none_or(|all| peer.address.is_some_and(|one| all.contains(one))),
            self.listener.as_ref().is_none_or(|place| *place == peer.listener),
            self.certificate.as_ref().is_none_or(|one| peer.certificate.as_ref().is_some_and(|its| its.is(one))),
            self.token.is_none_or(|token| peer.token.is_some_and(|its| its == token)),
        ];
        holds == [true; 7]
    }

    /// Whether the client may open this export, which is in this group.
    #[must_use]
    pub fn allows(&self, export: &str, group: &str) -> bool {
        self.exports.contains(export) || self.group.as_ref().is_some_and(|above| is_below(group, above))
    }
}

/// Whether a group is another one, or below it.
#[must_use]
pub fn is_below(group: &str, above: &str) -> bool {
    let below = || group.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    above == "/" || below()
}

/// As in `uid 1000 at unix:/run/a.sock: exports disk, group /tenants/alice, read-only`.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.known(), self.may())
    }
}

impl Rule {
    /// How the client is known, in a phrase.
    #[must_use]
    pub fn known(&self) -> String {
        let all = [
            self.uid.map(|uid| format!("uid {uid}")),
            self.gid.map(|gid| format!("gid {gid}")),
            self.cgroup.as_ref().map(|path| format!("cgroup {path}")),
            self.certificate.as_ref().map(|subject| format!("certificate {subject}")),
            self.address.map(|network| format!("address {network}")),
            self.listener.as_ref().map(|place| format!("listener {place}")),
            self.token.map(|token| format!("token {token}")),
        ];
        all.into_iter().flatten().collect::<Vec<_>>().join(" and ")
    }

    /// The rights of the client, in a phrase.
    #[must_use]
    pub fn may(&self) -> String {
        let exports = self.exports.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let all = [
            Some(format!("exports {exports}")).filter(|_| !exports.is_empty()),
            self.group.as_ref().map(|group| format!("group {group}")),
            self.read_only.then(|| "read-only".to_owned()),
            self.max_connections.map(|most| format!("{most} connection{}", if most == 1 { "" } else { "s" })),
            self.control.map(|control| format!("control {}", control.name())),
        ];
        all.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// The known facts about a client.
#[derive(Clone, Default, Debug)]
pub struct Peer {
    /// For people: `tcp:192.0.2.7:51234`, `pid 4711, uid 1000`.
    pub shown: String,
    /// The user and group of a process at a unix socket.
    pub user: Option<(u32, u32)>,
    /// Where this process is; `None` too: no rule has asked (cgroup.2).
    pub cgroup: Option<Cgroup>,
    /// Where it comes from, over TCP.
    pub address: Option<IpAddr>,
    /// The place that it came by; empty: one of control.
    pub listener: String,
    /// The one that it has shown and that was verified.
    pub certificate: Option<Certificate>,
    /// The token that it has sent to the control server.
    pub token: Option<Token>,
}

impl Peer {
    /// Whether it is root or the server's own user, at a unix socket (role.2).
    #[must_use]
    pub fn is_root_or_own(&self) -> bool {
        self.user.is_some_and(|(uid, _)| uid == 0 || uid == rustix::process::geteuid().as_raw())
    }
}

#[derive(Default, Debug)]
pub(crate) struct Access {
    rules: Vec<InForce>,
    revoked: Arc<Revoked>,
}

#[derive(Debug)]
struct InForce {
    rule: Rule,
    count: Arc<AtomicU32>,
    /// Those of removed rules (access.7): they fall as each connection is let into this rule, or leaves.
    merged: Vec<Arc<AtomicU32>>,
}

impl Access {
    /// These rules from now on; connections that were let in by `before` are counted on, by the names of the rules.
    pub(crate) fn new(rules: &[Rule], revoked: &Arc<Revoked>, before: &Self) -> Self {
        let went = |there: &&InForce| rules.iter().all(|rule| rule.name != there.rule.name);
        let mut went: Vec<_> = before.rules.iter().filter(went).collect();
        let in_force = |rule: &Rule| {
            let named = before.rules.iter().find(|there| there.rule.name == rule.name);
            // access.7
            // A removed rule that differs in its name alone comes before a rule for the same clients at other exports.
            let same = |there: &&InForce| Rule { name: there.rule.name.clone(), ..rule.clone() } == there.rule;
            let alike = |there: &&InForce| there.rule.known() == rule.known();
            let at = || went.iter().position(same).or_else(|| went.iter().position(alike));
            let renamed = if named.is_none() { at().map(|at| went.remove(at)) } else { None };
            let (count, merged) =
                named.or(renamed).map(|there| (Arc::clone(&there.count), there.merged())).unwrap_or_default();
            InForce { rule: rule.clone(), count, merged }
        };
        let mut rules: Vec<_> = rules.iter().map(in_force).collect();
        // A rule that stays as it was has nothing to do with those that are left over.
        let is_other = |there: &InForce| before.rules.iter().all(|one| one.rule != there.rule);
        let known: Vec<_> = rules.iter().map(|there| is_other(there).then(|| there.rule.known())).collect();
        for left in went {
            let its = Some(left.rule.known());
            if let Some(first) = known.iter().position(|one| *one == its) {
                rules[first].merged.push(Arc::clone(&left.count));
                rules[first].merged.extend(left.merged());
            }
        }
        Self { rules, revoked: Arc::clone(revoked) }
    }

    pub(crate) fn is(&self, rules: &[Rule], revoked: &Arc<Revoked>) -> bool {
        self.rules.iter().map(|there| &there.rule).eq(rules) && self.revoked == *revoked
    }

    pub(crate) fn asks_for_cgroups(&self) -> bool {
        self.rules.iter().any(|there| there.rule.cgroup.is_some())
    }

    pub(crate) fn has_revoked(&self, peer: &Peer) -> bool {
        peer.certificate.as_ref().is_some_and(|shown| self.revoked.has(shown))
    }

    /// How many connections each rule has let in.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (String, u32)> {
        let count = |there: &InForce| there.merged_count() + there.count.load(Ordering::Relaxed);
        self.rules.iter().map(move |there| (there.rule.name.clone(), count(there)))
    }

    pub(crate) fn of(&self, peer: &Peer) -> Rights<'_> {
        if self.has_revoked(peer) {
            return Rights(Some(Vec::new()));
        }
        let bounded = self.rules.iter().any(|there| there.rule.is_of_exports()); // access.1
        let fitting = || self.rules.iter().enumerate().filter(|(_, there)| there.rule.fits(peer));
        Rights(bounded.then(|| fitting().collect()))
    }

    pub(crate) fn role(&self, peer: &Peer) -> Grant {
        Grant::of(self.rules.iter().map(|there| &there.rule), peer)
    }

    pub(crate) fn knows(&self, token: Token) -> bool {
        self.rules.iter().any(|there| there.rule.token.is_some_and(|known| known == token))
    }
}

/// The rights of a client: the rules that fit it, each with its number; `None`: everything.
pub(crate) struct Rights<'a>(Option<Vec<(usize, &'a InForce)>>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Right {
    Write,
    Read,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) right: Right,
    counted: Option<Counted>,
}

/// One more in a rule, until it is dropped.
#[derive(Debug)]
struct Counted(Arc<AtomicU32>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl Rights<'_> {
    pub(crate) const fn are_bounded(&self) -> bool {
        self.0.is_some()
    }

    /// The numbers of the rules that fit: clients with the same numbers have the same rights.
    pub(crate) fn fitting(&self) -> Option<Vec<usize>> {
        self.0.as_ref().map(|rules| rules.iter().map(|(number, _)| *number).collect())
    }

    /// The client's rights to an export of a group; `None`: for this client there is no such export (access.3).
    pub(crate) fn of(&self, export: &str, group: &str) -> Option<Right> {
        let Some(rules) = &self.0 else { return Some(Right::Write) };
        // Each is asked, whatever those before it say.
        let rules = rules.iter().map(|(_, there)| &there.rule);
        let rights = rules.filter(|rule| rule.allows(export, group)).map(right);
        rights.fold(None, |all, one| if all == Some(Right::Write) { all } else { Some(one) })
    }

    /// Lets a connection in (access.5); `None`: it may not open the export, or each rule by which it might has enough.
    pub(crate) fn enter(&self, export: &str, group: &str) -> Option<Entry> {
        self.count(export, group, InForce::has_room)
    }

    /// The rights that a connection let in before keeps (access.6).
    pub(crate) fn keep(&self, export: &str, group: &str, before: &Entry) -> Option<Entry> {
        let enters = |there: &InForce| there.count.fetch_add(1, Ordering::Relaxed) < u32::MAX;
        let stays = |there: &InForce| if there.has(before) { enters(there) } else { there.has_room() };
        self.count(export, group, stays).or_else(|| self.count(export, group, enters))
    }

    fn count(&self, export: &str, group: &str, has_room: impl Fn(&InForce) -> bool) -> Option<Entry> {
        let Some(rules) = &self.0 else { return Some(Entry { right: Right::Write, counted: None }) };
        let rules = || rules.iter().map(|(_, there)| *there);
        let of = |wanted| move |there: &&InForce| right(&there.rule) == wanted && there.rule.allows(export, group);
        let mut rules = rules().filter(of(Right::Write)).chain(rules().filter(of(Right::Read)));
        let there = rules.find(|there| has_room(there))?;
        Some(Entry { right: right(&there.rule), counted: Some(Counted(Arc::clone(&there.count))) })
    }
}

impl InForce {
    /// Whether one more connection counts in the rule, which it then does.
    fn has_room(&self) -> bool {
        let most = self.rule.max_connections.unwrap_or(u32::MAX).saturating_sub(self.merged_count());
        let one_more = |now: u32| (now < most).then(|| now + 1);
        self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    fn has(&self, entry: &Entry) -> bool {
        let is_its = |count| entry.counted.as_ref().is_some_and(|its| Arc::ptr_eq(&its.0, count));
        is_its(&self.count) || self.merged.iter().any(is_its)
    }

    /// The counts of removed rules that still count somebody.
    fn merged(&self) -> Vec<Arc<AtomicU32>> {
        self.merged.iter().filter(|count| count.load(Ordering::Relaxed) > 0).cloned().collect()
    }

    /// Read before the rule's own count: a connection goes over into that before it leaves here.
    fn merged_count(&self) -> u32 {
        self.merged.iter().map(|count| count.load(Ordering::Acquire)).sum()
    }
}

const fn right(rule: &Rule) -> Right {
    if rule.read_only { Right::Read } else { Right::Write }
}

#[cfg(test)]
mod tests;
