//! A Ceph cluster: connections to it, and its pools.
//!
//! Images of a pool (`rbd:`) and reports of gateways (`rados:`) reach their cluster by this.
//!
//! ceph.1  Images with the same configuration, user and time limit share one connection, which has threads and sockets of its own.
//! ceph.2  librados asks the cluster again and again. It ends a request itself that is not done within the time limit
//!         (`rados_osd_op_timeout`, `rados_mon_op_timeout`), so that no call lasts for ever.
//! ceph.3  librados has two threads by default, which hand each request to each other. With few processors most of their time goes there:
//!         then it has one thread (docs/ceph.md).

mod api;
mod omap;

use std::ffi::{CStr, CString, c_char};
use std::io;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::{Arc, LazyLock, Weak};

use fairlift_core::time::ms;
use fairlift_core::units::{parse_time, show_time_in};
use fairlift_core::{Duration, Errno};

use crate::sync::{Mutex, lock};
pub(crate) use api::{Api, EVENT_TYPE_EVENTFD, Handle, THICK};

/// With this number of processors or fewer librados has one thread (ceph.3).
const FEW: usize = 4;

/// How a cluster is reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Login {
    /// The user, without `client.`; `None`: `admin`.
    pub user: Option<String>,
    /// Ceph's configuration; `None`: where Ceph looks for it.
    pub conf: Option<PathBuf>,
    /// How long the cluster may take for an operation.
    pub timeout: Duration,
}

impl Login {
    /// By the values of the options `user`, `conf` and `timeout`, as people write them.
    pub(crate) fn new(
        user: Option<&str>,
        conf: Option<&str>,
        timeout: Option<&str>,
        usual_timeout: Duration,
    ) -> Result<Self, String> {
        let timeout = timeout.map_or(Ok(usual_timeout), parse_time).map_err(|why| format!("timeout: {why}"))?;
        if timeout < ms(1) {
            return Err("timeout: takes 1ms or more: a cluster that hangs would be waited for without end".into());
        }
        Ok(Self {
            user: user.map(|user| user.strip_prefix("client.").unwrap_or(user).into()),
            conf: conf.map(PathBuf::from),
            timeout,
        })
    }

    /// Ceph's configuration.
    pub(crate) fn conf(&self) -> &Path {
        self.conf.as_deref().unwrap_or(Path::new("/etc/ceph/ceph.conf"))
    }

    /// The options, as people write them: `,user=USER,conf=PATH,timeout=TIME`, and nothing for the usual values.
    pub(crate) fn written(&self, usual_timeout: Duration) -> String {
        let user = self.user.as_ref().map(|user| format!(",user={user}"));
        let conf = self.conf.as_ref().map(|conf| format!(",conf={}", conf.display()));
        let timeout =
            (self.timeout != usual_timeout).then(|| format!(",timeout={}", show_time_in(self.timeout, ms(1), "ms")));
        [user, conf, timeout].into_iter().flatten().collect()
    }
}

/// A connection to a cluster (ceph.1).
struct Cluster {
    api: &'static Api,
    handle: Handle,
}

// SAFETY: librados' clusters may be used by several threads at once.
unsafe impl Send for Cluster {}
// SAFETY: as above.
unsafe impl Sync for Cluster {}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: the handle was made, and all pools of it are closed.
        unsafe { (self.api.rados_shutdown)(self.handle) };
    }
}

type Clusters = Vec<(Login, Weak<Cluster>)>;

static CLUSTERS: LazyLock<Mutex<Clusters>> = LazyLock::new(|| Mutex::new(Vec::new()));

/// A string as librados takes it: without a NUL character.
pub(crate) fn text(text: &str) -> Result<CString, String> {
    CString::new(text).map_err(|_| format!("{text:?}: a name has no NUL character"))
}

fn or_null(text: Option<&CStr>) -> *const c_char {
    text.map_or(std::ptr::null(), CStr::as_ptr)
}

/// Whether one of their calls succeeded, and else why not.
pub(crate) fn done(result: std::ffi::c_int) -> Result<(), Errno> {
    if result < 0 { Err(Errno(-result)) } else { Ok(()) }
}

pub(crate) fn says(errno: Errno) -> String {
    io::Error::from_raw_os_error(errno.0).to_string()
}

impl Cluster {
    /// The cluster, connected.
    fn get(api: &'static Api, login: &Login) -> Result<Arc<Self>, String> {
        // Held while it connects: two pools of one cluster wait for each other.
        let mut all = lock(&CLUSTERS);
        all.retain(|(_, cluster)| cluster.strong_count() > 0);
        if let Some(there) = all.iter().find(|(there, _)| there == login).and_then(|(_, cluster)| cluster.upgrade()) {
            return Ok(there);
        }
        let user = login.user.as_deref().map(text).transpose()?;
        let mut handle = null_mut();
        // SAFETY: the strings live during the call, which makes a handle.
        let made = unsafe { (api.rados_create)(&raw mut handle, or_null(user.as_deref())) };
        done(made).map_err(|errno| format!("librados: {}", says(errno)))?;
        let cluster = Self { api, handle };
        let conf = login.conf.as_ref().map(|path| text(&path.to_string_lossy())).transpose()?;
        // SAFETY: as above; without a path it looks at the usual places.
        let read = unsafe { (api.rados_conf_read_file)(handle, or_null(conf.as_deref())) };
        done(read)
            .map_err(|errno| format!("the configuration of Ceph, {}: {}", login.conf().display(), says(errno)))?;
        let seconds = text(&login.timeout.as_millis().div_ceil(1000).to_string())?;
        // ceph.2; and the monitors are waited for as long.
        cluster.set(c"rados_osd_op_timeout", &seconds);
        cluster.set(c"rados_mon_op_timeout", &seconds);
        cluster.set(c"client_mount_timeout", c"10");
        cluster.be_frugal();
        // SAFETY: the handle was made above.
        done(unsafe { (api.rados_connect)(handle) }).map_err(|errno| match errno.0 {
            libc::ETIMEDOUT => "no monitor of the cluster answers, or they have no quorum".into(),
            libc::EACCES | libc::EPERM | libc::EOPNOTSUPP | libc::ENOENT => {
                let user = login.user.as_deref().unwrap_or("admin");
                format!("the cluster does not let client.{user} in, or its keyring is not found: {}", says(errno))
            }
            _ => format!("the cluster cannot be reached: {}", says(errno)),
        })?;
        let cluster = Arc::new(cluster);
        all.push((login.clone(), Arc::downgrade(&cluster)));
        Ok(cluster)
    }

    /// Asks for fewer threads where there are few processors, unless the configuration has asked for another number (ceph.3).
    fn be_frugal(&self) {
        if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > FEW) {
            return;
        }
        let (key, mut is) = (c"librados_thread_count", [0; 8]);
        // SAFETY: the handle was made by `rados_create`; the value is written into as many bytes as there are.
        if unsafe { (self.api.rados_conf_get)(self.handle, key.as_ptr(), is.as_mut_ptr().cast(), is.len()) } >= 0
            && is.starts_with(b"2\0")
        {
            self.set(key, c"1");
        }
    }

    fn set(&self, key: &CStr, value: &CStr) {
        // SAFETY: the handle was made by `rados_create`; the strings live during the call.
        unsafe { (self.api.rados_conf_set)(self.handle, key.as_ptr(), value.as_ptr()) };
    }
}

/// A pool, opened.
pub(crate) struct Pool {
    handle: Handle,
    cluster: Arc<Cluster>,
}

// SAFETY: librados' pools may be used by any thread.
unsafe impl Send for Pool {}

impl Pool {
    /// A pool of a cluster, or a namespace within it.
    ///
    /// # Errors
    /// Ceph's libraries are not here; the cluster cannot be reached; it has no such pool.
    pub(crate) fn open(login: &Login, name: &str, namespace: Option<&str>) -> Result<Self, String> {
        let api = Api::get()?;
        let cluster = Cluster::get(api, login)?;
        let (pool, namespace) = (text(name)?, namespace.map(text).transpose()?);
        let mut handle = null_mut();
        // SAFETY: the cluster is connected; the strings live during the call.
        let opened = unsafe { (api.rados_ioctx_create)(cluster.handle, pool.as_ptr(), &raw mut handle) };
        done(opened).map_err(|errno| match errno.0 {
            libc::ENOENT => format!("the cluster has no pool \"{name}\""),
            _ => format!("pool \"{name}\": {}", says(errno)),
        })?;
        let pool = Self { handle, cluster };
        if let Some(namespace) = &namespace {
            // SAFETY: as above.
            unsafe { (api.rados_ioctx_set_namespace)(pool.handle, namespace.as_ptr()) };
        }
        Ok(pool)
    }

    pub(crate) fn api(&self) -> &'static Api {
        self.cluster.api
    }

    /// The pool as librbd takes it, for as long as `self` lives.
    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the pool is open, and nothing of it is: an image is closed before its pool.
        unsafe { (self.cluster.api.rados_ioctx_destroy)(self.handle) };
    }
}
