//! Qcow2: an image of QEMU with the files below it, to be read.
//!
//! People have images, and most of them are qcow2: compressed, or a few changes over another image. A disk that is to begin as one had to be
//! converted first, which takes minutes and the room of the whole disk. Example: `overlay:base=qcow2:debian.qcow2,top=alice.top`. The crate
//! imago takes the format apart; here are the files, the threads, and the bounds.
//!
//! qcow2.1  It is read, and not written: what is written goes to the top of an overlay.
//! qcow2.2  Each file of the chain is opened by us, in the server's roots and under the lock that readers have, and so that QEMU does not write it. The
//!          crate opens none. A chain has at most [`CHAIN_MAX`](image::CHAIN_MAX) files, and no file twice.
//! qcow2.3  Reads are done by helper threads, never by a worker: a read may have to load a table and unpack a cluster. Unallocated ranges are
//!          zeroes at once.
//! qcow2.4  All tables are looked at when the image is opened. So damage and an image that was cut short are told then, and where the holes are is
//!          known without a read.
//! qcow2.5  An image is a stranger's bytes. A panic of the crate ends at [`image`]: the image is not asked again, and its reads fail with
//!          `EIO`. How much memory its tables take is bounded before they are read.

#[cfg(feature = "qcow2")]
mod header;
#[cfg(feature = "qcow2")]
mod image;
#[cfg(feature = "qcow2")]
mod storage;
pub(super) mod syntax;
#[cfg(all(test, feature = "qcow2"))]
mod tests;
