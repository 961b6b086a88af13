//! One request after the other: the cost of each, and its result.

use super::*;

/// An overlay that one worker is asked of, over a base whose sectors all hold 7.
struct Calm {
    workers: Workers,
    overlay: Arc<Overlay>,
    base: Arc<Volatile>,
    top: Arc<Volatile>,
    now: Instant,
}

impl Calm {
    fn new() -> Self {
        let windows = std::slice::from_ref(&(0..160));
        let base = Volatile::new(SIZE, windows, 1, (0, 0));
        base.put(0, &[7; 160 * SECTOR as usize]);
        let top = made(windows, 1, (0, 0));
        let files = [base, top];
        let overlay = opened(&files).unwrap();
        let workers = workers(Arc::clone(&overlay) as Arc<dyn Device>, sched::Kind::None, 1);
        let [base, top] = files;
        top.take_log();
        Self { workers, overlay, base, top, now: Instant::ZERO }
    }

    /// Does something: the outcome, and the data read.
    fn does(&mut self, op: Op, sectors: Range<u64>, value: u8) -> (Outcome, Vec<u8>) {
        let bytes = vec![value; ((sectors.end - sectors.start) * SECTOR) as usize];
        let ticket = submit(&mut self.workers[0], op, Flags::SYNC, &sectors, &bytes);
        for _ in 0..1000 {
            let (engine, _) = &mut self.workers[0];
            turned(engine, &mut self.now);
            if let Some((_, News::Ended(outcome))) = engine.news.pop() {
                let bytes = if op == Op::Read { engine.memory(ticket).bytes().to_vec() } else { Vec::new() };
                engine.release(ticket);
                return (outcome, bytes);
            }
        }
        panic!("it did not end");
    }

    /// The value of each sector that is read.
    fn reads(&mut self, sectors: Range<u64>) -> Vec<u8> {
        let (outcome, bytes) = self.does(Op::Read, sectors, 0);
        assert_eq!(outcome, Outcome::Done);
        bytes.chunks_exact(SECTOR as usize).map(|sector| sector[0]).collect()
    }

    fn done(&mut self, op: Op, sectors: Range<u64>, value: u8) {
        assert_eq!(self.does(op, sectors, value).0, Outcome::Done);
    }

    /// The requests to the top and the base since.
    fn take_logs(&self) -> (String, String) {
        (self.top.take_log(), self.base.take_log())
    }
}

fn logs(top: &str, base: &str) -> (String, String) {
    (top.into(), base.into())
}

/// overlay.1, overlay.3: what each kind of request costs.
#[test]
fn a_first_write_of_a_block_is_one_write_and_one_of_a_part_reads_once() {
    let mut calm = Calm::new();
    calm.done(Op::Write, 8..16, 1);
    assert_eq!(calm.take_logs(), logs("w", ""));
    calm.done(Op::Write, 17..18, 2);
    assert_eq!(calm.take_logs(), logs("w", "r"), "a part reads its block, and is written with it");
    calm.done(Op::Write, 18..19, 3);
    calm.done(Op::Write, 8..16, 4);
    assert_eq!(calm.take_logs(), logs("ww", ""), "what is in the top is written straight");
    calm.done(Op::Flush, 0..0, 0);
    assert_eq!(calm.take_logs(), logs("fwf", ""), "data, the page that tells of it, and again");
    calm.done(Op::Write, 8..16, 5);
    calm.done(Op::Flush, 0..0, 0);
    assert_eq!(calm.take_logs(), logs("wf", ""), "the map is as it was");
    assert_eq!(calm.reads(16..20), [7, 2, 3, 7]);
    calm.take_logs();
    // Three blocks, the first and the last of them in part: one write.
    calm.done(Op::Write, 30..42, 6);
    assert_eq!(calm.take_logs(), logs("w", "rr"));
    assert_eq!(calm.reads(29..44), [7, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 7, 7]);
    assert_eq!(calm.take_logs(), logs("r", ""));
    assert_eq!(calm.reads(0..16)[7..9], [7, 5]);
    assert_eq!(calm.take_logs(), logs("r", "r"), "a read in two runs");
}

/// overlay.4
#[test]
fn what_is_discarded_reads_as_zeroes_and_costs_the_top_nothing() {
    let mut calm = Calm::new();
    calm.done(Op::Write, 8..16, 1);
    calm.take_logs();
    calm.done(Op::Discard, 4..36, 0);
    assert_eq!(calm.take_logs(), logs("d", ""), "whole blocks, and what is there of them in the top");
    assert_eq!(calm.reads(0..40), [[7; 8].as_slice(), &[0; 24], &[7; 8]].concat());
    calm.take_logs();
    calm.done(Op::WriteZeroes, 42..72, 0);
    assert_eq!(calm.take_logs(), logs("w", "r"), "the block that is not whole is read and written");
    assert_eq!(calm.reads(40..73), [[7; 2].as_slice(), &[0; 30], &[7]].concat());
    calm.take_logs();
    // A file system that cannot punch holes leaves there what was.
    calm.top.put(data_offset(SIZE) + BLOCK, &[9; BLOCK as usize]);
    assert_eq!(calm.reads(8..16), [0; 8]);
    calm.take_logs();
    calm.done(Op::Write, 9..10, 3);
    assert_eq!(calm.take_logs(), logs("w", ""), "around it are zeroes, whatever is below");
    assert_eq!(calm.reads(8..16), [0, 3, 0, 0, 0, 0, 0, 0]);
    assert_eq!(calm.overlay.layers().own.run(1, 2), (BlockState::Data, 2));
    let hole = |at, len| calm.overlay.run(at * SECTOR, len * SECTOR).unwrap();
    assert_eq!(
        (hole(16, 24), hole(8, 24)),
        (Run { len: 16 * SECTOR, hole: true }, Run { len: 8 * SECTOR, hole: false })
    );
}

/// A first write that finds the disk full changes nothing, and the next may succeed.
#[test]
fn a_full_disk_fails_one_write_and_its_block_is_as_it_was() {
    let mut calm = Calm::new();
    for sectors in [8..16, 17..18] {
        calm.top.content().next_write = Some(Errno::ENOSPC);
        assert_eq!(calm.does(Op::Write, sectors.clone(), 1).0, Outcome::Failed(Errno::ENOSPC));
        assert_eq!(calm.reads(sectors.clone()), vec![7; (sectors.end - sectors.start) as usize]);
        calm.done(Op::Flush, 0..0, 0);
        calm.done(Op::Write, sectors.clone(), 2);
        assert_eq!(calm.reads(sectors.clone()), vec![2; (sectors.end - sectors.start) as usize]);
    }
}

/// slot.2, as a server meets it.
#[test]
fn a_map_that_is_damaged_is_refused_and_one_that_was_torn_by_a_crash_is_not() {
    let page = |sequence| format::page_offset(0, sequence);
    let mut calm = Calm::new();
    for value in 1..3 {
        calm.done(Op::Write, u64::from(value) * 8..u64::from(value) * 8 + 8, value);
        calm.done(Op::Flush, 0..0, 0);
    }
    let Calm { top, base, overlay, workers, .. } = calm;
    drop((workers, overlay));
    let torn = |slots: &[u64], clean: bool| {
        let copy = top.cut(&mut Random::new(0));
        if clean {
            opened(&[Arc::clone(&base), Arc::clone(&copy)]).unwrap().flush_now().unwrap();
        }
        slots.iter().for_each(|sequence| copy.put(page(*sequence) + 1024, &[9; 512]));
        opened(&[Arc::clone(&base), Arc::clone(&copy)]).map(|overlay| overlay.layers().own.run(0, 4))
    };
    // A torn page is written again when the top is closed, even if nothing else is.
    let copy = top.cut(&mut Random::new(0));
    copy.put(page(2) + 1024, &[9; 512]);
    opened(&[Arc::clone(&base), Arc::clone(&copy)]).unwrap().flush_now().unwrap();
    assert_eq!(
        opened(&[Arc::clone(&base), Arc::clone(&copy)]).unwrap().layers().own.run(0, 4),
        (BlockState::Absent, 1)
    );
    assert_eq!(torn(&[], false), Ok((BlockState::Absent, 1)));
    assert_eq!(torn(&[2], false), Ok((BlockState::Absent, 1)), "the page before counts");
    assert!(torn(&[1, 2], false).unwrap_err().contains("page 0 of its map: slot A"), "none is whole");
    assert!(
        torn(&[2], true).unwrap_err().contains("is damaged: page 0"),
        "it was closed in order, so nothing was being written"
    );
    let copy = top.cut(&mut Random::new(0));
    copy.put(1024, &[9; 512]);
    copy.put(4096 + 1024, &[9; 512]);
    assert!(
        opened(&[Arc::clone(&base), Arc::clone(&copy)])
            .map(drop)
            .unwrap_err()
            .contains("slot A: its checksum is wrong; slot B")
    );
}

/// slot.2: a crash has left a page torn, and the top is only read.
#[test]
fn a_flush_of_a_top_that_is_only_read_writes_nothing_though_a_page_is_torn() {
    let mut calm = Calm::new();
    calm.done(Op::Write, 8..16, 1);
    calm.done(Op::Flush, 0..0, 0);
    let top = calm.top.cut(&mut Random::new(0));
    top.put(format::page_offset(0, 2) + 1024, &[9; 512]);
    let header = read_header(&*top).unwrap().0;
    let below = below(&[Arc::clone(&calm.base)]).unwrap();
    let (layers, _) = Layers::read(Arc::clone(&top) as _, header, below, BaseAt::File("base".into())).unwrap();
    let overlay = Arc::new(Overlay::of(layered(), layers, true));
    let workers = workers(Arc::clone(&overlay) as Arc<dyn Device>, sched::Kind::None, 1);
    let mut calm = Calm { workers, overlay, top, ..calm };
    assert!(calm.overlay.layers().own.is_dirty(), "who writes it writes the page again");
    calm.done(Op::Flush, 0..0, 0);
    assert_eq!(calm.take_logs().0, "f");
    assert_eq!(calm.reads(8..16), [1; 8]);
}
