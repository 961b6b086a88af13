//! Rbd: an image of a Ceph cluster, by librbd.
//!
//! librbd has threads of its own, and a callback for each request would have to wake a worker each time. So it is asked to write to
//! an eventfd instead, which lies in the worker's ring: one wake-up for all that has ended. Example: 32 reads of one turn are
//! handed over one by one, without a copy, and come back as three or four events.
//!
//! rbd.1  An image is opened once, for all workers. Its requests may be handed over by any worker; what has ended is taken out by
//!        whichever sees the event, and told to those whose it is.
//! rbd.2  Memory of a request is librbd's until it has answered (engine.1). librbd asks the cluster again and again; what is not done
//!        within `timeout` it ends itself (`rados_osd_op_timeout`), for nobody else can take the memory back.
//! rbd.3  All images of a pool are one disk unless the config says otherwise: the cluster is the device, and weights count among
//!        all tenants of this gateway.
//! rbd.4  librbd cuts what reaches beyond the end of an image that was made smaller, and says that it is done. So what has ended is held
//!        against the image's size of that time: a request that does not lie within it fails, and no client is told that stale
//!        memory was read, or that what was not written was.

mod lane;
pub(super) mod words;

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fairlift_core::{ContextId, Errno, Limits, Sector, Tag};

use super::lane::{Address, Lane};
use super::mail::Mail;
use super::{Device, Facts, Run, home};
use crate::Error;
use crate::ceph::{Api, EVENT_TYPE_EVENTFD, Handle, Pool, done, says, text};
use lane::OnRbd;

/// The largest request. Chosen: eight objects of the usual 4 MiB.
const REQUEST_MAX: u64 = 32 << 20;

pub(crate) struct Rbd {
    image: Image,
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

/// An image, opened.
struct Image {
    api: &'static Api,
    handle: Handle,
    /// Its header has changed, says librbd to its watchers, by this name.
    has_changed: Box<AtomicBool>,
    watch: Option<u64>,
    _pool: Pool,
}

// SAFETY: librbd's images may be used by several threads at once; the pool is not used any more but to be closed.
unsafe impl Send for Image {}
// SAFETY: as above.
unsafe impl Sync for Image {}

impl Drop for Image {
    fn drop(&mut self) {
        if let Some(watch) = self.watch {
            // SAFETY: the image is open; it is told no more afterwards.
            unsafe { (self.api.rbd_update_unwatch)(self.handle, watch) };
        }
        // SAFETY: the image is open, and nobody has a request: lanes are gone, and those that gave up live for ever.
        unsafe { (self.api.rbd_close)(self.handle) };
    }
}

impl Rbd {
    pub(crate) fn open(rbd: &words::Rbd, read_only: bool) -> Result<Self, Error> {
        Self::open_image(rbd, read_only).map_err(|why| Error::Backing { what: rbd.name.clone(), why })
    }

    fn open_image(rbd: &words::Rbd, read_only: bool) -> Result<Self, String> {
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
        let mut image = Image { api, handle, has_changed, watch: None, _pool: pool };
        if !read_only {
            image.watch();
        }
        // SAFETY: takes numbers and returns a new descriptor or -1, which is checked before it is owned.
        let event = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if event < 0 {
            return Err(io::Error::last_os_error().to_string());
        }
        // SAFETY: the descriptor is new and nobody else's.
        let event = unsafe { OwnedFd::from_raw_fd(event) };
        // SAFETY: the image is open; the descriptor outlives it (`Rbd`).
        let told = unsafe { (api.rbd_set_image_notification)(image.handle, event.as_raw_fd(), EVENT_TYPE_EVENTFD) };
        done(told).map_err(|errno| format!("librbd has no events: {}", says(errno)))?;
        let size = image.size().map_err(says)?;
        tracing::info!(image = rbd.name, size, read_only, "opened by librbd {}", api.version());
        Ok(Self {
            image,
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
        let told = done(unsafe { (self.api.rbd_update_watch)(self.handle, &raw mut watch, changed, argument) });
        self.watch = told.is_ok().then_some(watch);
    }

    fn size(&self) -> Result<u64, Errno> {
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

    fn run(&self, _at: u64, len: u64) -> io::Result<Run> {
        Ok(Run { len, hole: false })
    }

    fn flush_now(&self) -> io::Result<()> {
        if self.read_only {
            return Ok(());
        }
        // SAFETY: the image is open.
        let flushed = unsafe { (self.image.api.rbd_flush)(self.image.handle) };
        done(flushed).map_err(|errno| io::Error::from_raw_os_error(errno.0))
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
