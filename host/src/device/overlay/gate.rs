//! Gate: one flush at a time writes the map (overlay.3). Pure.
//!
//! Two workers may flush at once. If the second found no page to write, because the first has taken them, it would answer before they are
//! on the disk. So it waits for the first.

use std::collections::VecDeque;

/// Whether a flush that writes the map is in flight, and its waiters.
#[derive(Debug)]
pub(super) struct FlushGate<K> {
    busy: bool,
    waiting: VecDeque<K>,
}

impl<K> Default for FlushGate<K> {
    fn default() -> Self {
        Self { busy: false, waiting: VecDeque::new() }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FlushTurn {
    /// It makes the top durable, and no more.
    Plain,
    /// It writes the map, and tells when it has ended.
    Alone,
    /// It is told when it may ask again.
    Wait,
}

impl<K> FlushGate<K> {
    /// A flush is asked for; `dirty`: there are pages to be written.
    pub(super) fn enter(&mut self, dirty: bool, who: K) -> FlushTurn {
        match (self.busy, dirty) {
            (true, _) => {
                self.waiting.push_back(who);
                FlushTurn::Wait
            }
            (false, true) => {
                self.busy = true;
                FlushTurn::Alone
            }
            (false, false) => FlushTurn::Plain,
        }
    }

    /// The flush that was alone has ended; those who may ask again.
    pub(super) fn leave(&mut self) -> VecDeque<K> {
        assert!(std::mem::take(&mut self.busy), "a flush ended that was not alone");
        std::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_flush_writes_the_map_and_all_that_come_meanwhile_wait_for_it() {
        let mut gate = FlushGate::default();
        assert_eq!(gate.enter(false, 'a'), FlushTurn::Plain);
        assert_eq!(gate.enter(true, 'b'), FlushTurn::Alone);
        assert_eq!((gate.enter(false, 'c'), gate.enter(true, 'd')), (FlushTurn::Wait, FlushTurn::Wait));
        assert_eq!(gate.leave(), ['c', 'd']);
        assert_eq!(gate.enter(true, 'c'), FlushTurn::Alone);
    }
}
