//! An object's omap: keys and their values, which the cluster keeps in a database beside the object.
//!
//! omap.1  Values are set by one operation, which takes effect whole or not at all (librados.h, "Object Operations": "atomically", "no partial
//!         results will be visible"). Keys that others set stay as they are, so that no lock is needed.
//! omap.2  All values are read by one operation for each [`AT_ONCE`] of them. Each value is whole; two of them may be of different moments.

use std::ffi::{CStr, CString, c_char};
use std::ptr::null_mut;

use fairlift_core::Errno;

use super::{Pool, done};

/// As many values are read by one operation. Chosen: one operation for most clusters, and less than an OSD gives at once by default
/// (`osd_max_omap_entries_per_request`, 1,024).
const AT_ONCE: u64 = 256;

type Values = Vec<(String, Vec<u8>)>;

impl Pool {
    /// Sets values of an object's omap (omap.1). The object is made if there is none, also for no values.
    ///
    /// # Errors
    /// The cluster refuses, or did not answer in time (ceph.2): the values may be set all the same.
    pub(crate) fn set(&self, object: &CStr, values: &[(&str, &[u8])]) -> Result<(), Errno> {
        let api = self.api();
        let keys: Vec<*const c_char> = values.iter().map(|(key, _)| key.as_ptr().cast()).collect();
        let key_lens: Vec<usize> = values.iter().map(|(key, _)| key.len()).collect();
        let bytes: Vec<*const c_char> = values.iter().map(|(_, value)| value.as_ptr().cast()).collect();
        let lens: Vec<usize> = values.iter().map(|(_, value)| value.len()).collect();
        // SAFETY: the operation is made, used and released here; it copies keys and values, which live during the call, by their lengths.
        done(unsafe {
            let op = (api.rados_create_write_op)();
            let (keys, bytes) = (keys.as_ptr(), bytes.as_ptr());
            (api.rados_write_op_omap_set2)(op, keys, bytes, key_lens.as_ptr(), lens.as_ptr(), values.len());
            let result = (api.rados_write_op_operate)(op, self.handle(), object.as_ptr(), null_mut(), 0);
            (api.rados_release_write_op)(op);
            result
        })
    }

    /// All values of an object's omap (omap.2); none if there is no object. A key that is no text is left out.
    ///
    /// # Errors
    /// The cluster refuses, or did not answer in time (ceph.2).
    pub(crate) fn values(&self, object: &CStr) -> Result<Values, Errno> {
        let (mut all, mut after) = (Vec::new(), CString::default());
        loop {
            let (some, last, has_more) = match self.values_after(object, &after) {
                Err(Errno(libc::ENOENT)) => return Ok(all),
                other => other?,
            };
            all.extend(some);
            match last {
                Some(last) if has_more => after = last,
                _ => return Ok(all),
            }
        }
    }

    /// Some values of an object's omap, the key of the last, and whether there are more.
    fn values_after(&self, object: &CStr, after: &CStr) -> Result<(Values, Option<CString>, bool), Errno> {
        let api = self.api();
        let (mut found, mut has_more, mut got) = (null_mut(), 0, 0);
        // SAFETY: the operation is made, used and released here, and the memory that it writes into lives as long.
        let result = unsafe {
            let op = (api.rados_create_read_op)();
            let (found, has_more, got) = (&raw mut found, &raw mut has_more, &raw mut got);
            (api.rados_read_op_omap_get_vals2)(op, after.as_ptr(), c"".as_ptr(), AT_ONCE, found, has_more, got);
            let result = (api.rados_read_op_operate)(op, self.handle(), object.as_ptr(), 0);
            (api.rados_release_read_op)(op);
            result
        };
        let (mut values, mut last, mut ended) = (Values::new(), None, done(result).and(done(got)));
        while ended.is_ok() {
            let (mut key, mut value, mut key_len, mut len) = (null_mut(), null_mut(), 0, 0);
            // SAFETY: the iterator was made above, and its operation has succeeded.
            let next = unsafe {
                let (key, value) = (&raw mut key, &raw mut value);
                (api.rados_omap_get_next2)(found, key, value, &raw mut key_len, &raw mut len)
            };
            ended = done(next);
            if ended.is_err() || key.is_null() {
                break;
            }
            // SAFETY: they are as long as was said, and the iterator's until it is given back below.
            let (key, value) = unsafe { (bytes(key, key_len), bytes(value, len)) };
            last = CString::new(key).ok();
            if let Ok(key) = std::str::from_utf8(key) {
                values.push((key.to_owned(), value.to_vec()));
            }
        }
        // SAFETY: it was made above, also by an operation that failed; nothing of it is used any more.
        unsafe { (api.rados_omap_get_end)(found) };
        ended.map(|()| (values, last, has_more != 0))
    }
}

/// # Safety
/// As many bytes are there, and stay for as long as the slice is used; of none, there need be no place.
unsafe fn bytes<'a>(at: *const c_char, len: usize) -> &'a [u8] {
    // SAFETY: the caller's promise.
    if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(at.cast(), len) } }
}
