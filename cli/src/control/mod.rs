//! Control: HTTP and JSON at a socket, by which a server that runs is looked at and changed.
//!
//! One thread with a runtime of its own serves it. It never touches the path of a request: it reads from the library, and the library
//! passes its changes on to the workers, which hear of them between two batches.
//!
//! http.1  A client that says nothing, sends junk or a body that does not end costs a connection for a few seconds, and there are
//!         bounds on connections, heads and bodies. One user or address has a quarter of the connections at most ([`room`]).
//! http.2  The mode of the unix socket says who may connect. A TCP address needs a bearer token or a client's certificate, and Host and Origin must be
//!         its own. Clients have roles where `[client.NAME]` says so (roles.1). At a unix socket, which ssh may forward to a browser, Host is no name
//!         of the internet. A place can be for reading only. Every change is logged with its author.
//! http.3  A change is answered with the configuration in force afterwards, and the version; `If-Match` makes it fail (409) if somebody
//!         else has changed something since.

mod activity;
mod changes;
mod endpoint;
mod evicted;
mod failure;
mod history;
mod listen;
mod metrics;
mod page;
pub(crate) mod place;
mod pools;
mod roles;
mod room;
mod routes;
mod shares;
mod show;
mod status;
mod take_over;
mod trace;
mod why;

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use fairlift::Handle;
use fairlift::config::Config;
use fairlift::control::{Edit, Refused, Step};
use serde_json::value::RawValue;

pub(crate) use changes::{Changes, parse_kind};
pub(crate) use endpoint::Endpoint;
pub(crate) use listen::{Opened, handed_name};
pub(crate) use place::{ControlAt, ControlPlace, Locks, parse_place, token};
#[cfg(test)]
pub(crate) use routes::document;
pub(crate) use take_over::{PROTOCOL, StartedAs};

pub(crate) use crate::config::keys::keys;
pub(crate) use crate::config::row::{Act, KINDS, Kind};
use crate::syntax::mistake::Wrong;

/// The start of a server: its config file, if it has one, and flags that act later.
pub(crate) trait ConfigFile: Send + Sync {
    fn is_there(&self) -> bool;

    /// Changes that are put into an edit, with its settings where they say nothing.
    fn changes<'a>(&'a self, edit: &'a mut Edit) -> Changes<'a>;

    /// Whether it, or the arguments, named an export when it was read last.
    fn names(&self, export: &str) -> bool;

    /// The settings that cannot act, a line each.
    fn warnings(&self, handle: &Handle) -> Vec<String>;

    /// The settings in these steps that cannot act in the configuration then in force, a line each.
    fn warnings_of(&self, config: &Config, steps: &[Step]) -> Vec<String>;

    /// Reads it again and makes what is different; or why nothing was changed. `version`: only if the server is at it still.
    /// `dry_run`: only says what it would make.
    fn read_again(&self, handle: &Handle, version: Option<u64>, dry_run: bool) -> Result<ReadAgain, NotRead>;
}

#[derive(Debug)]
pub(crate) struct ReadAgain {
    /// The changes, a line each.
    pub(crate) changes: Vec<String>,
    /// The settings of the file that cannot act, a line each.
    pub(crate) warnings: Vec<String>,
}

/// Why a file was not read again; nothing has changed then, but by [`Refused::InPart`].
#[derive(Debug)]
pub(crate) enum NotRead {
    Wrong(Wrong),
    Refused(Refused),
}

impl From<Refused> for NotRead {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl NotRead {
    /// For people, a line each.
    pub(crate) fn lines(self) -> Vec<String> {
        match self {
            Self::Wrong(wrong) => wrong.lines(),
            Self::Refused(refused) => vec![refused.to_string()],
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All current settings of a server, as `GET /v1/state` answers them; `None`: it has ended.
pub(crate) fn settings(handle: &Handle) -> Option<Box<RawValue>> {
    Some(show::state(&handle.state()?, &handle.view(false)?))
}

/// How long the end waits for a call that is running in the library. Chosen: most take milliseconds.
const CALL: Duration = Duration::from_secs(2);

/// The thread that serves, until this is dropped.
pub(crate) struct Control {
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Listens where it was said, or where it usually is (`None`). A usual place that cannot be had is no reason not to serve.
///
/// # Errors
/// A place that was asked for cannot be had: which one, and why. `taken`: the socket of a name that a server hands over.
pub(crate) fn open(
    configured: Option<&[ControlAt]>,
    config: &Config,
    mut taken: impl FnMut(&str) -> Option<OwnedFd>,
) -> Result<Vec<Opened>, (usize, String)> {
    let mut open = |at: &ControlAt| listen::open(at, taken(&handed_name(&crate::syntax::place::show(&at.address))));
    if let Some(configured) = configured {
        return configured.iter().enumerate().map(|(number, at)| open(at).map_err(|why| (number, why))).collect();
    }
    let Some(at) = place::default_place(config) else { return Ok(Vec::new()) };
    match open(&at) {
        Ok(opened) => Ok(vec![opened]),
        Err(why) => {
            let shown = crate::syntax::place::show(&at.address);
            tracing::warn!(
                "cannot listen for control at {shown}: {why}; the server runs without a control socket (choose another: --control ADDRESS)"
            );
            Ok(Vec::new())
        }
    }
}

pub(crate) fn start(
    places: Vec<Opened>,
    handle: Handle,
    file: Arc<dyn ConfigFile>,
    process: Arc<StartedAs>,
) -> std::io::Result<Control> {
    let sockets = places.iter().map(Opened::handed_over).collect::<std::io::Result<_>>()?;
    let handed = Arc::new(take_over::Handed { process, sockets });
    let (stop, stopped) = tokio::sync::oneshot::channel();
    // Calls to the library wait for one lock, so that more threads would only wait together.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build()?;
    let work = move || {
        runtime.block_on(listen::serve(
            places,
            routes::App {
                handle,
                file,
                handed,
                texts: metrics::Texts::default(),
                looks: metrics::Looks::default(),
                history: history::History::default(),
                looking: room::Room::new(routes::LOOKING, usize::MAX),
            },
            stopped,
        ));
        // A call that runs keeps the server's sockets alive, whose files are to be removed. A call that hangs is not waited for.
        runtime.shutdown_timeout(CALL);
    };
    let thread = std::thread::Builder::new().name("control".into()).spawn(work)?;
    Ok(Control { stop: Some(stop), thread: Some(thread) })
}

impl Drop for Control {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            tracing::error!("the control thread panicked");
        }
    }
}
