//! Null: takes writes, forgets them, and reads as zeroes. For measuring all that is not the backing.

use fairlift_core::{Duration, Flags, Outcome};

use super::{Facts, Inline};

pub(crate) struct Null {
    size: u64,
    delay: Duration,
}

impl Null {
    pub(crate) const fn new(size: u64, delay: Duration) -> Self {
        Self { size, delay }
    }

    pub(crate) const fn facts(&self) -> Facts {
        Facts::plain(self.size)
    }

    pub(crate) const fn delay(&self) -> Duration {
        self.delay
    }
}

impl Inline for Null {
    fn read(&self, _at: u64, into: &mut [u8]) -> Outcome {
        into.fill(0); // or what another tenant left in the buffer would go out
        Outcome::Done
    }

    fn write(&self, _at: u64, _from: &[u8], _flags: Flags) -> Outcome {
        Outcome::Done
    }

    fn flush(&self) -> Outcome {
        Outcome::Done
    }

    fn discard(&self, _at: u64, _len: u64) -> Outcome {
        Outcome::Done
    }

    fn write_zeroes(&self, _at: u64, _len: u64, _flags: Flags) -> Outcome {
        Outcome::Done
    }
}
