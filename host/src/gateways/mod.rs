//! Gateways: several servers before one pool, whose tenants share it as if one server served them all.
//!
//! Tenant A has a disk of a Ceph pool at gateway 1, tenants B, C and D have theirs at gateway 2. Each gateway divides what it gets of the
//! cluster among its own tenants, and the cluster gives each gateway half: A has 50 %, the others 17 % each. So each gateway leaves a
//! report of its service where the others read it (a `Carrier`), once a second, and works the same shares out from all of them.
//!
//! docs/cluster.md says what holds.

mod count;
mod directory;
mod exchange;
mod known;
mod mail;
mod rados;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use fairlift_core::Duration;
pub use fairlift_core::gateways::{Due, GatewayView};

use crate::config::{Config, Shares, SharesAt};
use crate::disk::{Disk, Disks};
use crate::sync::{Mutex, lock};
use directory::Directory;
use exchange::Exchange;
use known::Known;
use rados::Rados;

/// Where gateways leave their reports for one another.
pub(crate) trait Carrier: Send {
    /// Replaces this gateway's report.
    fn write(&mut self, gateway: &str, report: &[u8]) -> io::Result<()>;
    /// The reports of all gateways, by name (ours too).
    fn read(&mut self) -> io::Result<Vec<(String, Vec<u8>)>>;
}

fn open(place: &SharesAt) -> io::Result<Box<dyn Carrier>> {
    match place {
        SharesAt::Directory(path) => Ok(Box::new(Directory::open(path)?)),
        SharesAt::Rados(at) => Ok(Box::new(Rados::open(at)?)),
    }
}

/// A pool as this gateway knows it, for those who look: the last period's.
#[derive(Clone, Debug)]
pub struct PoolView {
    /// The disk.
    pub disk: String,
    /// Where its gateways meet, as it was written.
    pub place: String,
    /// This gateway's name.
    pub gateway: String,
    /// Why the others are not heard of at present: what held last goes on to hold.
    pub trouble: Option<String>,
    /// How long ago reports were read; `None`: never yet.
    pub heard: Option<Duration>,
    /// How many requests this gateway may have outstanding, on average.
    pub depth: f64,
    /// The part of its requests that it leaves in the cluster for a latency at another gateway, and whose; `None`: all.
    pub room: Option<(String, f64)>,
    /// How many all gateways may have outstanding, as this one is set.
    pub pool_depth: u16,
    /// The service of all gateways a second, in reads of 4 KiB.
    pub served: f64,
    /// The gateways, this one included, by name.
    pub gateways: Vec<GatewayView>,
    /// The groups' parts of the pool, by their paths.
    pub groups: BTreeMap<String, Due>,
}

pub(crate) struct Gateways {
    /// Those that were opened and are not followed yet.
    opened: Mutex<Vec<Exchange>>,
    pools: Vec<(Shares, Arc<Disk>, Arc<Mutex<Known>>)>,
    followed: Mutex<Vec<(Sender<()>, JoinHandle<()>)>>,
}

impl Gateways {
    /// Opens the places where the gateways of disks meet; `takes_over`: another server of this gateway's name is still there.
    ///
    /// # Errors
    /// A place cannot be opened or read, or another gateway has this one's name: the disk, and why.
    pub(crate) fn open(disks: &[Arc<Disk>], takes_over: bool) -> Result<Self, (String, String)> {
        let (mut opened, mut pools) = (Vec::new(), Vec::new());
        for (disk, shares) in disks.iter().filter_map(|disk| Some((disk, disk.settings().shares?))) {
            let exchange = Exchange::open(&shares, Arc::clone(disk), takes_over)
                .map_err(|error| (disk.name.clone(), format!("shares = \"{}\": {error}", shares.place)))?;
            pools.push((shares, Arc::clone(disk), Arc::clone(&exchange.pool)));
            opened.push(exchange);
        }
        Ok(Self { opened: Mutex::new(opened), pools, followed: Mutex::default() })
    }

    /// Exchanges reports from now on, on a thread for each pool. `in_force` tells the server's configuration (`None`: another server of its
    /// name takes over, which does the exchange from then on); `wake` wakes the workers.
    pub(crate) fn follow<S, W>(&self, disks: &Arc<Disks>, in_force: S, wake: W) -> io::Result<()>
    where
        S: Fn() -> Option<Arc<Config>> + Clone + Send + 'static,
        W: Fn() + Clone + Send + 'static,
    {
        let opened = std::mem::take(&mut *lock(&self.opened));
        for exchange in opened {
            let (stop, stopped): (Sender<()>, Receiver<()>) = mpsc::channel();
            let (disks, in_force, wake) = (Arc::clone(disks), in_force.clone(), wake.clone());
            let work = move || exchange.run(&disks, in_force, wake, &stopped);
            let thread = thread::Builder::new().name("gateways".into()).spawn(work)?;
            lock(&self.followed).push((stop, thread));
        }
        Ok(())
    }

    /// Tells the others that this gateway ends, if that does not take long.
    pub(crate) fn end(&self) {
        let followed = std::mem::take(&mut *lock(&self.followed));
        let (stops, threads): (Vec<_>, Vec<_>) = followed.into_iter().unzip();
        drop(stops);
        // A thread that panicked has said so.
        threads.into_iter().for_each(|thread| _ = thread.join());
    }

    pub(crate) fn view(&self) -> Vec<PoolView> {
        self.pools.iter().map(|(shares, disk, known)| lock(known).view(shares, disk)).collect()
    }
}
