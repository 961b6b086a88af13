//! A queue goes on where that of another server was: queue.18.

use fairlift_core::queue::Settings;
use fairlift_core::record::Record;
use fairlift_core::sched::Kind;
use fairlift_core::time::{ms, us};
use fairlift_core::*;

const C0: ContextId = ContextId(0);

fn queue(kind: Kind, paths: &[&str]) -> Queue {
    let groups =
        paths.iter().map(|path| Group { path: (*path).into(), parent: Some(GroupId::ROOT), weight: Weight::new(100) });
    let groups = std::iter::once(Group::root()).chain(groups).collect();
    Queue::new(Settings { groups, ..Settings::new(kind, Limits::new(1_000_000)) })
}

/// Reads of 4 KiB of a stream of a group, each of so long.
fn reads(queue: &mut Queue, group: GroupId, count: u64) {
    let stream = queue.add_stream(Stream { group, priority: Priority::default(), context: C0 });
    for n in 0..count {
        let now = Instant::ZERO + ms(n);
        let extent = Extent::new(Sector(1000 * n), 8);
        queue.submit(now, Bio { op: Op::Read, flags: Flags::NONE, extent, stream, token: Token(n) }).unwrap();
        let dispatch = queue.poll_dispatch(now, C0).unwrap();
        queue.handle_completion(now + us(100), dispatch.tag, Outcome::Done);
        assert!(queue.poll_finished(C0).is_some());
    }
    queue.remove_stream(stream);
}

fn handed(from: &Queue, to: &mut Queue) -> Vec<String> {
    let mut left_out = vec![];
    to.take_on(&mut Record::parse(&from.hand_on().to_string()).unwrap(), &mut left_out);
    left_out.iter().map(ToString::to_string).collect()
}

#[test]
fn what_another_scheduler_learned_is_left_out_and_what_nobody_knows_is_named() {
    let mut before = queue(Kind::Fair, &["/a"]);
    reads(&mut before, GroupId(1), 7);
    let mut after = queue(Kind::Bfq, &["/a"]);
    assert_eq!(handed(&before, &mut after), [""; 0]);
    let mut record = before.hand_on();
    record.put("colour", &"blue");
    let mut left_out = vec![];
    queue(Kind::Fair, &["/a"]).take_on(&mut record, &mut left_out);
    assert_eq!(left_out.iter().map(ToString::to_string).collect::<Vec<_>>(), ["queue: colour: not known here"]);
}

#[test]
fn bfq_begins_with_the_depth_and_the_way_that_it_had() {
    let mut before = queue(Kind::Bfq, &["/a"]);
    let learned_by = |queue: &Queue| {
        let mut record = queue.hand_on();
        record.take::<Record>("learned").unwrap().unwrap().to_string()
    };
    let mut record = Record::parse(&before.hand_on().to_string()).unwrap();
    let mut learned = Record::default();
    learned.put("rotates", &true);
    learned.put("idles", &true);
    learned.put("depths", &[4, 24]);
    record.put("learned", &learned);
    let mut left_out = vec![];
    before.take_on(&mut record, &mut left_out);
    assert_eq!((left_out.len(), learned_by(&before)), (0, learned.to_string()));
}
