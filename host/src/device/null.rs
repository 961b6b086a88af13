//! Null: takes writes, forgets them, and reads as zeroes. For measuring all that is not the backing.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use fairlift_core::queue::Segment;
use fairlift_core::time::us;
use fairlift_core::units::{parse_capacity, parse_time, show_size, show_time_in};
use fairlift_core::{Duration, Flags, Instant, Outcome, Tag};

use vm_memory::VolatileSlice;

use super::backing::{About, BackingKind, Options, Syntax};
use super::handed::OpenFile;
use super::lane::{Address, AtOnce, Io, Lane, Request, answer, each};
use super::roots::Roots;
use super::{Device, Facts, Inline, Run};
use crate::kernel::ticket::zero;

/// Takes writes, forgets them, and reads as zeroes: for measuring all that is not the backing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Null {
    /// How large it claims to be, in bytes.
    pub size: u64,
    /// How long each request takes at least.
    pub delay: Duration,
}

pub(super) const SYNTAX: Syntax = Syntax {
    schemes: &["null"],
    form: "null:SIZE",
    takes: "null:SIZE[,delay=TIME]",
    parse: |text, _| {
        let options = Options::new("null", &["delay"], text)?;
        let size = parse_capacity(options.main)?;
        Ok(Null { size, delay: options.get("delay").map_or(Ok(Duration::ZERO), parse_time)? }.into())
    },
};

impl BackingKind for Null {
    fn about(&self) -> About<'_> {
        let delay = Some(self.delay)
            .filter(|delay| *delay != Duration::ZERO)
            .map(|delay| format!(",delay={}", show_time_in(delay, us(1), "us")));
        let written = format!("null:{}{}", self.size, delay.unwrap_or_default());
        let shown = format!("null, {}", show_size(self.size));
        About { name: "null".into(), shown, size: Some(self.size), ..About::new(written, "null") }
    }

    fn open(&self, _read_only: bool, _roots: &Roots) -> Result<Arc<dyn Device>, String> {
        Ok(Arc::new(self.clone()))
    }
}

impl Device for Null {
    fn facts(&self) -> Facts {
        Facts { in_ram: true, ..Facts::plain(self.size) }
    }

    fn called(&self) -> String {
        "null".into()
    }

    fn hand_over(self: Arc<Self>) -> Result<Vec<OpenFile>, String> {
        Ok(Vec::new()) // it holds nothing
    }

    fn lane(self: Arc<Self>, _address: Address) -> Box<dyn Lane> {
        match self.delay {
            Duration::ZERO => Box::new(AtOnce(self)),
            _ => Box::new(Delayed { device: self, due: VecDeque::new() }),
        }
    }

    fn run(&self, _at: u64, len: u64) -> io::Result<Run> {
        Ok(Run { len, hole: true })
    }
}

/// Answers a while after it was asked: each request as late as every other, so in their order.
struct Delayed {
    device: Arc<Null>,
    due: VecDeque<(Instant, Tag, Outcome)>,
}

impl Lane for Delayed {
    fn queue(&mut self, io: &mut Io<'_>, now: Instant, requests: &[Request], segments: &[Segment]) {
        for (request, segments) in each(requests, segments) {
            let outcome = answer(&*self.device, io.tickets, request, segments);
            self.due.push_back((now + self.device.delay, request.tag, outcome));
        }
    }

    fn is_by_the_clock(&self) -> bool {
        true
    }

    fn poll(&mut self, io: &mut Io<'_>, now: Instant) {
        while let Some((_, tag, outcome)) = self.due.pop_front_if(|(at, ..)| *at <= now) {
            io.ended.push((tag, outcome));
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due.front().map(|(at, ..)| *at)
    }

    fn in_flight(&self) -> usize {
        self.due.len()
    }
}

impl Inline for Null {
    fn read(&self, _at: u64, into: VolatileSlice<'_>) -> Outcome {
        zero(&into); // or what another tenant left in the buffer would go out
        Outcome::Done
    }

    fn write(&self, _at: u64, _from: VolatileSlice<'_>, _flags: Flags) -> Outcome {
        Outcome::Done
    }

    fn discard(&self, _at: u64, _len: u64) -> Outcome {
        Outcome::Done
    }

    fn write_zeroes(&self, _at: u64, _len: u64, _flags: Flags) -> Outcome {
        Outcome::Done
    }
}
