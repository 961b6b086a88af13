//! Rbd: an image of a Ceph cluster, by librbd.
//!
//! librbd has threads of its own, and a callback for each request would have to wake a worker each time. So it is asked to write to
//! an eventfd instead, which lies in the worker's ring: one wake-up for all that has ended. Example: 32 reads of one turn are
//! handed over one by one, without a copy, and come back as three or four events.
//!
//! rbd.1  An image is opened once, for all workers. Its requests may be handed over by any worker; ended requests are taken out by the
//!        first worker that sees the event, and told to their workers.
//! rbd.2  Memory of a request is librbd's until it has answered (engine.1). librbd asks the cluster again and again; what is not done
//!        within `timeout` it ends itself (`rados_osd_op_timeout`), for nobody else can take the memory back.
//! rbd.3  All images of a pool are one disk unless the config says otherwise: the cluster is the device, and weights count among
//!        all tenants of this gateway.
//! rbd.4  librbd cuts a request that reaches beyond the end of an image that was made smaller, and says that it is done. So an ended
//!        request is held against the image's size of that time: one that does not lie within it fails, and no client takes stale memory
//!        for data, or a lost write for a written one.
//! rbd.5  A server that takes over opens the image beside the old one. Once nothing is asked of that any more, it flushes the image and lets go of
//!        its exclusive lock, which the new server takes with its first write; a server that goes on instead takes it again by itself. A flush that
//!        fails then fails the next one of a client, for librbd says so once.
//! rbd.6  A process that ends with an image open is its watcher for half a minute more, which keeps others from removing or resizing it. So an old
//!        server closes it once it has handed over, and a new one if it is not to serve.

mod lane;
pub(super) mod syntax;

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, mpsc};
use std::time::Duration;

use fairlift_core::record::Record;
use fairlift_core::{ContextId, Errno, Limits, Sector, Tag};
use rustix::event::{EventfdFlags, eventfd};

use super::handed::OpenFile;
use super::lane::{Address, Lane};
use super::mail::Mail;
use super::untold::Untold;
use super::{Device, Facts, home};
use crate::ceph::{Api, EVENT_TYPE_EVENTFD, Handle, Pool, done, says, text};
use lane::OnRbd;

/// The largest request. Chosen: eight objects of the usual 4 MiB.
const REQUEST_MAX: u64 = 32 << 20;

/// How long clients may stand still for an image that is handed over. Chosen: as for their requests.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) struct Rbd {
    image: Arc<Image>,
    /// `rbd:POOL/IMAGE`, for messages.
    name: PathBuf,
    pool: String,
    size: AtomicU64,
    read_only: bool,
    /// Counts what has ended.
    event: OwnedFd,
    /// Completions of a worker's requests that another worker saw.
    mail: Mail<Vec<(Tag, isize)>>,
}

struct Image {
    api: &'static Api,
    handle: Handle,
    /// Its header has changed, says librbd to its watchers, by this name.
    has_changed: Box<AtomicBool>,
    watch: Option<u64>,
    /// It is not closed yet (rbd.6).
    is_open: RwLock<bool>,
    /// The error of a flush that no client has asked for (rbd.5).
    untold: Untold,
    _pool: Pool,
}

// SAFETY: librbd's images may be used by several threads at once; the pool is not used any more but to be closed.
unsafe impl Send for Image {}
// SAFETY: as above.
unsafe impl Sync for Image {}

impl Drop for Image {
    fn drop(&mut self) {
        self.close();
    }
}

impl Image {
    fn close(&self) {
        let mut is_open = self.is_open.write().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::take(&mut *is_open) {
            return;
        }
        if let Some(watch) = self.watch {
            // SAFETY: the image is open; it is told no more afterwards.
            unsafe { (self.api.rbd_update_unwatch)(self.handle, watch) };
        }
        // SAFETY: the image is open, and nobody has a request: lanes are gone or idle, and those that gave up live for ever. A thread that
        // calls librbd for it holds `open`.
        unsafe { (self.api.rbd_close)(self.handle) };
    }

    /// The image stays open for as long as this is held; `None`: it is closed, and its handle must not be used.
    fn open(&self) -> Option<RwLockReadGuard<'_, bool>> {
        let is_open = self.is_open.read().unwrap_or_else(PoisonError::into_inner);
        is_open.then_some(is_open)
    }

    fn flush(&self) -> Result<(), Errno> {
        let _open = self.open().ok_or(Errno::ESHUTDOWN)?;
        // SAFETY: the image is open.
        done(unsafe { (self.api.rbd_flush)(self.handle) })
    }

    /// Makes durable all that was written, and lets go of the lock, if it has one (rbd.5).
    fn settle(&self) -> Result<(), Errno> {
        self.flush().inspect_err(|errno| self.untold.keep(*errno))?;
        let _open = self.open().ok_or(Errno::ESHUTDOWN)?;
        let mut is_owner = 0;
        // SAFETY: the image is open; it writes a number.
        done(unsafe { (self.api.rbd_is_exclusive_lock_owner)(self.handle, &raw mut is_owner) })?;
        if is_owner == 0 {
            return Ok(());
        }
        // SAFETY: the image is open.
        done(unsafe { (self.api.rbd_lock_release)(self.handle) })
    }
}

/// Waits no longer than this for a call that may take as long as the cluster does not answer; it goes on all the same.
fn within<T: Send + 'static>(time: Duration, call: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (tell, result) = mpsc::channel();
    let work = move || _ = tell.send(call());
    std::thread::Builder::new().name("rbd".into()).spawn(work).ok()?;
    result.recv_timeout(time).ok()
}

impl Rbd {
    fn open(rbd: &syntax::Rbd, read_only: bool) -> Result<Self, String> {
        let pool = Pool::open(&rbd.login, &rbd.pool, rbd.namespace.as_deref())?;
        let (api, mut handle) = (pool.api(), null_mut());
        let image_name = text(&rbd.image)?;
        let snapshot = rbd.snapshot.as_deref().map(text).transpose()?;
        let read_only = read_only || snapshot.is_some();
        let open = if read_only { api.rbd_open_read_only } else { api.rbd_open };
        let snapshot = snapshot.as_ref().map_or(std::ptr::null(), |snapshot| snapshot.as_ptr());
        // SAFETY: as above.
        let opened = unsafe { open(pool.handle(), image_name.as_ptr(), &raw mut handle, snapshot) };
        done(opened).map_err(|errno| match errno.0 {
            libc::ENOENT => format!("pool \"{}\" has no such image, or the image no such snapshot", rbd.pool),
            _ => says(errno),
        })?;
        let has_changed = Box::new(AtomicBool::new(false));
        let (is_open, untold) = (RwLock::new(true), Untold::default());
        let mut image = Image { api, handle, has_changed, watch: None, is_open, untold, _pool: pool };
        if !read_only {
            image.watch();
        }
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let event = event.map_err(|error| io::Error::from(error).to_string())?;
        // SAFETY: the image is open; the descriptor outlives it (`Rbd`).
        let result = unsafe { (api.rbd_set_image_notification)(image.handle, event.as_raw_fd(), EVENT_TYPE_EVENTFD) };
        done(result).map_err(|errno| format!("librbd has no events: {}", says(errno)))?;
        let size = image.size().map_err(says)?;
        tracing::info!(image = rbd.name, size, read_only, "opened by librbd {}", api.version());
        Ok(Self {
            image: Arc::new(image),
            name: PathBuf::from(&rbd.name),
            pool: rbd.pool.clone(),
            size: AtomicU64::new(size),
            read_only,
            event,
            mail: Mail::new(),
        })
    }
}

/// librbd calls it in a thread of its own: the image's header has changed.
///
/// # Safety
/// The argument is the image's `has_changed`.
unsafe extern "C" fn changed(argument: *mut c_void) {
    // SAFETY: the caller's promise; it is an atomic.
    unsafe { &*argument.cast::<AtomicBool>() }.store(true, Ordering::Relaxed);
}

impl Image {
    /// Hears of changes to its header from now on. Where that is refused, whoever resizes it says so to us.
    fn watch(&mut self) {
        let (mut watch, argument) = (0, std::ptr::from_ref(&*self.has_changed).cast_mut().cast());
        // SAFETY: the image is open; what is told lives until it is told no more (`drop`).
        let result = done(unsafe { (self.api.rbd_update_watch)(self.handle, &raw mut watch, changed, argument) });
        self.watch = result.is_ok().then_some(watch);
    }

    fn size(&self) -> Result<u64, Errno> {
        let open = self.open().ok_or(Errno::ESHUTDOWN)?;
        self.size_while(&open)
    }

    /// Its size, for a caller that holds it open.
    fn size_while(&self, _open: &RwLockReadGuard<'_, bool>) -> Result<u64, Errno> {
        let mut size = 0;
        // SAFETY: the image is open.
        done(unsafe { (self.api.rbd_get_size)(self.handle, &raw mut size) })?;
        Ok(size)
    }
}

impl Device for Rbd {
    fn facts(&self) -> Facts {
        let size = self.size.load(Ordering::Relaxed);
        let limits = Limits {
            rw_max: (REQUEST_MAX / Sector::SIZE) as u32,
            discard_max: 32 * REQUEST_MAX / Sector::SIZE,
            write_zeroes_max: REQUEST_MAX / Sector::SIZE,
            ..Limits::new(size.div_ceil(Sector::SIZE))
        };
        let home = Some(home(("rbd", &self.pool))); // rbd.3
        Facts { limits, home, volatile_cache: true, fua: false, read_only: self.read_only, ..Facts::plain(size) }
    }

    fn called(&self) -> String {
        self.pool.clone()
    }

    fn lane(self: Arc<Self>, address: Address) -> Box<dyn Lane> {
        Box::new(OnRbd::new(self, address))
    }

    fn hand_over(self: Arc<Self>) -> Result<Vec<OpenFile>, String> {
        Ok(Vec::new())
    }

    /// rbd.5
    fn hand_on(&self, _says: &mut Record) -> Result<Vec<u8>, String> {
        let image = Arc::clone(&self.image);
        let settled = if self.read_only { Some(Ok(())) } else { within(PATIENCE, move || image.settle()) };
        match settled {
            Some(Ok(())) => Ok(Vec::new()),
            Some(Err(errno)) => Err(format!("cannot be flushed or unlocked: {}", says(errno))),
            None => Err("is not flushed within 2 s; try again once the cluster is quicker".into()),
        }
    }

    /// rbd.6
    fn let_go(&self) {
        let image = Arc::clone(&self.image);
        within(PATIENCE, move || image.close());
    }

    fn flush_now(&self) -> io::Result<()> {
        if self.read_only {
            return Ok(());
        }
        self.image.flush().map_err(|errno| io::Error::from_raw_os_error(errno.0))
    }

    fn was_resized(&self) -> bool {
        self.image.has_changed.swap(false, Ordering::Relaxed)
    }

    fn look_at_size(&self) -> io::Result<u64> {
        self.image.size().map_err(|errno| {
            self.image.has_changed.store(true, Ordering::Relaxed); // it may have, and is asked again
            io::Error::from_raw_os_error(errno.0)
        })
    }

    fn grow(&self, size: u64) {
        self.size.fetch_max(size, Ordering::Relaxed);
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.name)
    }
}

/// The worker and the request of a completion, as the argument that librbd hands back.
fn pack(worker: ContextId, tag: Tag) -> *mut c_void {
    std::ptr::without_provenance_mut(usize::from(worker.0) << 16 | usize::from(tag.0))
}

fn unpack(argument: *mut c_void) -> (ContextId, Tag) {
    let number = argument.addr();
    (ContextId((number >> 16) as u16), Tag((number & 0xffff) as u16))
}
