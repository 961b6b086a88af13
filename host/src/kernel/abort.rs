//! The end of a thread that panics: it ends the process.

/// A worker or helper that panics found something wrong that was ours to get right: nobody goes on after it.
pub(crate) struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}
