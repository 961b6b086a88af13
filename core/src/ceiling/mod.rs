//! Ceilings: how much a group may do in a second, at most.
//!
//! A group with `max = { riops = 3000 }` reads 3,000 times a second and not more, however idle the disk is. A ceiling that is a
//! window (3,000 in each second, then nothing) comes in jerks: all is done in the first tenth, and the rest of the second is a
//! pause. So there are no windows here. Each rate keeps one point in time: when all that was let through so far is paid for.
//! A read at 3,000 IOPS moves it on by 333 µs, and the next one goes when that time has come.
//!
//! An example: at 1,000 IOPS the reads of a client that keeps 64 in flight go 5 ms ahead of their time at first (6 reads), then
//! one each millisecond. A 1 MiB write at `wbps = 1 MiB` goes at once, and the next one a second later.
//!
//! ceiling.1  A bio goes when no ceiling above its group is behind: it is let through whole, and paid for afterwards. So a request
//!            that is larger than a second's worth passes, and the rate holds all the same.
//! ceiling.2  The work let through is never more than [`TOLERANCE`] ahead of the rate, or ahead of the burst's rate during a
//!            burst, but for the last bio. A worker that wakes late makes up for it within the same time.
//! ceiling.3  A ceiling binds all below it: a bio is charged to each group from its own to the root.
//! ceiling.4  A bio counts as its client asked, before it is cut or merged: one I/O, and its bytes. A discard counts as one write
//!            of 512 bytes, as in the kernel; a write of zeroes as a write of its length; a flush as nothing.
//! ceiling.5  A bio that is held has no tag, no place in the device, and no row in the queue's tables; a flush is never held, and
//!            need not wait for writes that are: those are not acknowledged. Of one group and direction the oldest goes first.
//! ceiling.6  Where several groups wait for the ceiling above them, each is let through by its weight.
//! ceiling.7  A burst goes at its own rate for as long as it says, if nothing was used for long enough before: the unused rate is saved, up
//!            to the amount that the burst needs beyond it.
//! ceiling.8  The state of a group's ceiling is one for all queues that know it, whatever their disks and workers, and has no lock. Where
//!            several queues wait for it, none takes more than its part of the rate.
//! ceiling.9  A changed ceiling holds from the next bio on. The debt stays, and so does what was saved for a burst, in bytes and I/Os: a burst
//!            that was used is no debt when it is taken away, and a new one is to be saved first.
//! ceiling.10  The debt is handed to the next server as the time that it takes to pay: a group does not begin with a new burst there.
//! ceiling.11  Where what was asked is to end soon, for the server ends or hands its clients over, nothing is held. All that goes then is paid
//!             for afterwards: 32 MiB at a limit of 1 MiB/s are a debt of half a minute.
//!
//! [`Rates`] and [`Ceiling`] are what people say; [`Budget`] is the state; `held` is where bios wait in one queue.

mod budget;
mod held;
mod rates;

pub use budget::{Budget, TOLERANCE};
pub use held::{Ceilings, HeldBio};
pub use rates::{Bounds, Ceiling, Rate, Rates, Wrong};
