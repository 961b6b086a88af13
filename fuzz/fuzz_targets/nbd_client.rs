//! A server of any kind against our client: the negotiation, and then the answers to some requests.
//!
//! Input: one byte of setting (bits 0-2 how the bytes are cut, bit 3 structured answers where nothing was negotiated, bit 7 the
//! answers only), then what the server says. What it says after STARTTLS is taken as if it had been encrypted.

#![no_main]

use fairlift::wire::nbd::answers::{Answers, Awaited, Sink};
use fairlift::wire::nbd::greeting::{Greeting, Progress};
use fairlift_core::Errno;
use libfuzzer_sys::fuzz_target;

/// What was asked, and what came of it, byte by byte.
#[derive(Default)]
struct Received {
    awaited: Vec<Option<Awaited>>,
    came: Vec<Vec<bool>>,
    runs: Vec<u64>,
    ended: usize,
    to_give_back: Vec<usize>,
}

impl Received {
    fn ask(&mut self, answers: &mut Answers, request: Awaited) {
        let (slot, _) = answers.ask(request);
        assert_eq!(slot, self.awaited.len());
        let len = if let Awaited::Read { len, .. } = request { len as usize } else { 0 };
        self.awaited.push(Some(request));
        self.came.push(vec![false; len]);
        self.runs.push(0);
    }

    fn comes(&mut self, slot: usize, from: u64, len: u64) {
        assert!(matches!(self.awaited[slot], Some(Awaited::Read { .. })));
        for byte in &mut self.came[slot][from as usize..(from + len) as usize] {
            assert!(!std::mem::replace(byte, true), "a byte came twice");
        }
    }
}

impl Sink for Received {
    fn data(&mut self, slot: usize, from: u64, bytes: &[u8]) {
        self.comes(slot, from, bytes.len() as u64);
    }
    fn zeroes(&mut self, slot: usize, from: u64, len: u64) {
        self.comes(slot, from, len);
    }
    fn run(&mut self, slot: usize, len: u64, _state: u32) {
        let Some(Awaited::Status { len: awaited }) = self.awaited[slot] else { panic!("runs of something else") };
        self.runs[slot] += len;
        assert!(len > 0 && self.runs[slot] <= awaited);
    }
    fn ended(&mut self, slot: usize, result: Result<(), Errno>) {
        let request = self.awaited[slot].take().expect("a request ends once");
        self.ended += 1;
        self.to_give_back.push(slot);
        match (request, result) {
            (Awaited::Read { .. }, Ok(())) => assert!(self.came[slot].iter().all(|came| *came), "a byte is missing"),
            (Awaited::Status { .. }, Ok(())) => assert!(self.runs[slot] > 0),
            (_, Ok(()) | Err(_)) => {}
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((setting, mut rest)) = input.split_first() else { return };
    let piece = [1, 2, 3, 7, 16, 17, 300, usize::MAX][usize::from(setting & 7)];
    let (mut structured, mut context) = (setting & 8 != 0, Some(5));
    let mut held = vec![];
    if setting & 1 << 7 == 0 {
        let mut out = vec![];
        let mut client = Greeting::new("disk", setting & 16 != 0);
        loop {
            match client.receive(&held, &mut out) {
                Err(why) => return assert!(!why.is_empty() && why.len() < 2048),
                Ok((used, step)) => {
                    assert!(used <= held.len() && out.len() < 1 << 16);
                    held.drain(..used);
                    match step {
                        Progress::Ready(offer) => {
                            assert!(offer.size > 0 && offer.block_min.is_power_of_two() && offer.block_max >= 512);
                            assert!(offer.structured || offer.context.is_none());
                            (structured, context) = (offer.structured, offer.context);
                            break;
                        }
                        Progress::StartTls => client.tls_established(&mut out),
                        Progress::NeedMore if rest.is_empty() => return,
                        Progress::NeedMore => {
                            assert!(held.len() < 20 + Greeting::REPLY_MAX as usize);
                            let (now, later) = rest.split_at(piece.min(rest.len()));
                            held.extend_from_slice(now);
                            rest = later;
                        }
                    }
                }
            }
        }
    }
    let (mut answers, mut told) = (Answers::new(structured, context), Received::default());
    told.ask(&mut answers, Awaited::Read { at: 8192, len: 1024 });
    told.ask(&mut answers, Awaited::Other);
    told.ask(&mut answers, Awaited::Status { len: 8192 });
    told.ask(&mut answers, Awaited::Read { at: 0, len: 512 });
    while !(rest.is_empty() && held.is_empty()) {
        match answers.receive(&held, &mut told) {
            Err(violation) => {
                assert!(!violation.is_empty() && answers.receive(&[], &mut told).is_err());
                return;
            }
            Ok(used) => {
                held.drain(..used);
                assert!(held.len() < 64, "more is held back than a head has");
            }
        }
        told.to_give_back.drain(..).for_each(|slot| answers.give_back(slot));
        assert_eq!(answers.open() + told.ended, 4);
        if rest.is_empty() {
            return;
        }
        let (now, later) = rest.split_at(piece.min(rest.len()));
        held.extend_from_slice(now);
        rest = later;
    }
});
