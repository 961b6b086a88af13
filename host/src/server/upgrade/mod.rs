//! Upgrade: another server takes over from this one, and no client notices.
//!
//! Block clients never end, so a server that is to be replaced cannot wait for them. Here the new server is started beside the old one, opens
//! all by the old one's open files, and says that it is ready; then the old one has its clients stand still for some milliseconds, says what each is,
//! and ends. The two speak [messages](channel) over a unix socket:
//!
//! ```text
//! old                                              new
//! offer: listeners, files, what the caller has --->
//!                                              <-- ready (config read, all opened, workers wait)
//! (clients stand still)
//! client, client, …, all                       --->
//!                                              <-- accepted (each client can be served)
//! yours                                        --->
//! (ends)                                           (serves)
//! ```
//!
//! upgrade.1  Until the clients stand still nothing changes for anybody. Any state that cannot be handed over, and any failure on either
//!            side, makes the old server go on, and say why.
//! upgrade.2  From the moment that they stand still until the old server writes *off*, or the new one reads *yours*, no server does anything
//!            for a client. *Off* is an event that both have open: it is written before the first client is served again, and no new server
//!            begins after it.
//! upgrade.3  With *yours* the responsibility moves. The old server touches no socket and no file after it, and ends without closing anything in
//!            an orderly way: what it holds is the new one's. It ends only what is its own and would outlive it elsewhere (rbd.6).
//! upgrade.4  The old server gives up after a bound: if what clients have asked does not end, a disk takes too long to be told, or the new server
//!            does not answer. Then it is off.
//! upgrade.5  A file's lock belongs to the open file, which both have from the offer on. So it is never free. The process lock beside it
//!            moves when the old process has ended.
//! upgrade.6  A block device is one process's. The new server recovers it once the old process has ended, and until then its requests are with the
//!            kernel. So its death in between costs no request: the next server recovers the device.
//! upgrade.7  Two servers need more memory than one. All that can be refused is read before the new server accepts; what cannot fail (a
//!            connection gets its place, a counter its value) is done after *yours*, while the old server's memory becomes free. Both give back
//!            before that the memory left over from answers and comparisons, and the old one that of payloads (hold.5). The new one accepts
//!            only if some memory is left for its clients.
//!
//! The cost of each death:
//!
//! | dies | before `all` was read | after it, before `yours` | after `yours` |
//! |---|---|---|---|
//! | new | the old one hears that the connection ended: off, clients go on | the same | as any server that is killed: clients reconnect |
//! | old | the new one has not all clients and ends: as any server that is killed | the connection ended and nothing is off: the new one has all, and serves | nothing: it was to end |
//!
//! With `all` comes what the old server has learned, counted and owes ([`handed`](super::handed)): parts that cannot be read are left out, and told.

pub(super) mod channel;
mod give;
pub(super) mod take;

pub use give::Beside;
pub use take::Taking;

use std::time::Duration;

use fairlift_core::record::Record;

/// How long what clients have asked may take to end once they stand still; with it, how long a new server may take to have them. Chosen: a
/// client's own patience is 30 s or more, and a disk that works ends what it has in a tenth of this.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a new server may take from the offer until it is ready: it reads its config, and opens thousands of exports.
const READY: Duration = Duration::from_secs(120);
/// How long it is waited for removed exports and disks. Chosen: its clients have left, and its file is flushed and closed in less.
const LEAVE: Duration = Duration::from_secs(1);
/// How often it is looked whether the server ends meanwhile.
const LOOK: Duration = Duration::from_millis(100);

fn with(part: &str, what: &str) -> Record {
    let mut says = Record::default();
    says.put(part, &what);
    says
}
