//! The functions of librados and librbd that are used, found when the first pool is opened: one program runs with and
//! without Ceph.

use std::ffi::{c_char, c_int, c_uchar, c_void};
use std::sync::OnceLock;

use libloading::Library;

/// A cluster, a pool, an image or a completion: theirs, and opaque.
pub(crate) type Handle = *mut c_void;

/// The kind of notification that is an eventfd.
pub(crate) const EVENT_TYPE_EVENTFD: c_int = 2;
/// Of a write of zeroes: allocate them.
pub(crate) const THICK: c_int = 1;

macro_rules! api {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)+) => {
        /// Functions, by their names there.
        #[allow(clippy::struct_field_names)]
        pub(crate) struct Api {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)+
            /// It stays loaded.
            _library: Library,
        }

        impl Api {
            fn load() -> Result<Self, String> {
                // SAFETY: it is Ceph's, whose initialisers are meant to be run this way too. It brings librados with it.
                let library = unsafe { Library::new("librbd.so.1") }.map_err(|error| {
                    format!("Ceph's librbd cannot be loaded (Debian's package librbd1 has it): {error}")
                })?;
                Ok(Self {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        // SAFETY: the type is that of the function in Ceph's headers, of version 15 and later.
                        *unsafe { library.get(name.as_bytes()) }
                            .map_err(|error| format!("librbd is too old, version 15 is needed: {error}"))?
                    },)+
                    _library: library,
                })
            }
        }
    };
}

api! {
    rados_create(*mut Handle, *const c_char) -> c_int;
    rados_conf_read_file(Handle, *const c_char) -> c_int;
    rados_conf_set(Handle, *const c_char, *const c_char) -> c_int;
    rados_conf_get(Handle, *const c_char, *mut c_char, usize) -> c_int;
    rados_connect(Handle) -> c_int;
    rados_shutdown(Handle);
    rados_ioctx_create(Handle, *const c_char, *mut Handle) -> c_int;
    rados_ioctx_set_namespace(Handle, *const c_char);
    rados_ioctx_destroy(Handle);
    rados_create_write_op() -> Handle;
    rados_write_op_omap_set2(Handle, *const *const c_char, *const *const c_char, *const usize, *const usize, usize);
    rados_write_op_operate(Handle, Handle, *const c_char, *mut libc::time_t, c_int) -> c_int;
    rados_release_write_op(Handle);
    rados_create_read_op() -> Handle;
    rados_read_op_omap_get_vals2(Handle, *const c_char, *const c_char, u64, *mut Handle, *mut c_uchar, *mut c_int);
    rados_read_op_operate(Handle, Handle, *const c_char, c_int) -> c_int;
    rados_release_read_op(Handle);
    rados_omap_get_next2(Handle, *mut *mut c_char, *mut *mut c_char, *mut usize, *mut usize) -> c_int;
    rados_omap_get_end(Handle);
    rbd_open(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
    rbd_open_read_only(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
    rbd_close(Handle) -> c_int;
    rbd_get_size(Handle, *mut u64) -> c_int;
    rbd_update_watch(Handle, *mut u64, unsafe extern "C" fn(*mut c_void), *mut c_void) -> c_int;
    rbd_update_unwatch(Handle, u64) -> c_int;
    rbd_flush(Handle) -> c_int;
    rbd_is_exclusive_lock_owner(Handle, *mut c_int) -> c_int;
    rbd_lock_release(Handle) -> c_int;
    rbd_set_image_notification(Handle, c_int, c_int) -> c_int;
    rbd_poll_io_events(Handle, *mut Handle, c_int) -> c_int;
    rbd_aio_create_completion(*mut c_void, Option<unsafe extern "C" fn(Handle, *mut c_void)>, *mut Handle) -> c_int;
    rbd_aio_get_arg(Handle) -> *mut c_void;
    rbd_aio_get_return_value(Handle) -> isize;
    rbd_aio_release(Handle);
    rbd_aio_readv(Handle, *const libc::iovec, c_int, u64, Handle) -> c_int;
    rbd_aio_writev(Handle, *const libc::iovec, c_int, u64, Handle) -> c_int;
    rbd_aio_discard(Handle, u64, u64, Handle) -> c_int;
    rbd_aio_write_zeroes(Handle, u64, usize, Handle, c_int, c_int) -> c_int;
    rbd_aio_flush(Handle, Handle) -> c_int;
    rbd_version(*mut c_int, *mut c_int, *mut c_int);
}

impl Api {
    /// The functions, if Ceph's libraries are here and not too old.
    pub(crate) fn get() -> Result<&'static Self, String> {
        static API: OnceLock<Result<Api, String>> = OnceLock::new();
        API.get_or_init(Self::load).as_ref().map_err(Clone::clone)
    }

    pub(crate) fn version(&self) -> String {
        let (mut major, mut minor, mut extra) = (0, 0, 0);
        // SAFETY: it writes three numbers.
        unsafe { (self.rbd_version)(&raw mut major, &raw mut minor, &raw mut extra) };
        format!("{major}.{minor}.{extra}")
    }
}
