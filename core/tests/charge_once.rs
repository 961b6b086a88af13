//! What a discard or a write of zeroes costs its group is what a write costs that keeps the device busy for as long (sequence.4).

use fairlift_core::model::Character;
use fairlift_core::queue::Settings;
use fairlift_core::sched::Kind;
use fairlift_core::time::{ms, secs};
use fairlift_core::*;

const C0: ContextId = ContextId(0);

/// The part of the device, in percent, that a group with these requests gets beside one that reads, both always with more to
/// do, on a device that does one request after the other, each for 5 ms.
fn part_of(kind: Kind, op: Op) -> u64 {
    parts(kind, op, 8, ms(5), Duration::ZERO)
}

/// The same where the first group's requests are so long and take so long, and the other reads alone at first.
fn parts(kind: Kind, op: Op, sectors: u64, takes: Duration, alone: Duration) -> u64 {
    let mut settings = Settings { depth: 8, ..Settings::new(kind, Limits::new(1 << 30)) };
    settings.character = Character { rotational: true, volatile_cache: false };
    for path in ["/a", "/b"] {
        settings.groups.push(Group { path: path.into(), parent: Some(GroupId::ROOT), weight: Weight::new(100) });
    }
    let mut queue = Queue::new(settings);
    let stream = |group| Stream { group: GroupId(group), priority: Priority::default(), context: C0 };
    let streams = [1, 2].map(|group| queue.add_stream(stream(group)));
    let (mut now, mut next, mut done) = (Instant::ZERO, 0_u64, [0_u64; 2]);
    let mut ask = |queue: &mut Queue, now: Instant, who: usize| {
        next += 1;
        let start = ((1 - who as u64) << 29) | (next * 7_919 % 100_000 * 64);
        let (op, flags) = if who == 0 { (op, Flags::SYNC) } else { (Op::Read, Flags::SYNC) };
        let extent = Extent::new(Sector(start), if who == 0 { sectors } else { 8 });
        queue.submit(now, Bio { op, flags, extent, stream: streams[who], token: Token(who as u64) }).unwrap();
    };
    (0..8).for_each(|_| ask(&mut queue, now, 1));
    let (mut device, mut began) = (std::collections::VecDeque::new(), false);
    while now < Instant::ZERO + alone + secs(60) {
        if !began && now >= Instant::ZERO + alone {
            (began, done) = (true, [0; 2]);
            (0..8).for_each(|_| ask(&mut queue, now, 0));
        }
        while let Some(dispatch) = queue.poll_dispatch(now, C0) {
            device.push_back(dispatch);
        }
        let Some(first) = device.pop_front() else {
            now = queue.poll_timeout().expect("somebody waits").max(now);
            queue.handle_timeout(now);
            continue;
        };
        now += if first.op == op { takes } else { ms(5) };
        queue.handle_completion(now, first.tag, Outcome::Done);
        while let Some(Finished::Done(token, _)) = queue.poll_finished(C0) {
            done[token.0 as usize] += 1;
            ask(&mut queue, now, token.0 as usize);
        }
    }
    100 * done[0] / (done[0] + done[1])
}

#[test]
fn a_discard_costs_what_a_write_costs_that_takes_as_long() {
    for kind in Kind::ALL {
        let write = part_of(kind, Op::Write);
        for op in [Op::Discard, Op::WriteZeroes] {
            let part = part_of(kind, op);
            println!("{}: {} {part} %, writes {write} %", kind.name(), op.name());
            assert!(part.abs_diff(write) <= 2, "{}: {} get {part} %, writes {write} %", kind.name(), op.name());
        }
    }
}

/// What takes four times as long is done a fourth as often, however short or long it is.
#[test]
fn a_discard_is_charged_for_its_time_and_not_for_its_length() {
    for sectors in [8, 1 << 20] {
        let bfq = parts(Kind::Bfq, Op::Discard, sectors, ms(20), secs(2));
        println!("discards of {sectors} sectors: {bfq} %");
        assert!((14..=26).contains(&bfq), "discards of {sectors} sectors: {bfq} % of all requests");
    }
}
