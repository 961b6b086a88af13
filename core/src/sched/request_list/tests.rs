use super::*;
use crate::time::ms;
use crate::{GroupId, Priority};

const PLAIN: BackSeek = BackSeek { max: 1000, penalty: 2 };

fn at(n: u64) -> Instant {
    Instant::ZERO + ms(n)
}

/// A read of 8 sectors at `start`, of stream 1.
fn read(id: u32, start: u64) -> Waiting {
    Waiting {
        id: RequestId(id),
        op: Op::Read,
        flags: Flags::SYNC,
        extent: Extent::new(Sector(start), 8),
        stream: StreamId(1),
        group: GroupId::ROOT,
        priority: Priority::default(),
    }
}

fn of(stream: u32, request: Waiting) -> Waiting {
    Waiting { stream: StreamId(stream), ..request }
}

/// A list of reads at the given places, which came one millisecond after the other; numbered from 0.
fn list(places: &[u64]) -> (RequestTable, RequestList) {
    let (mut table, mut list) = (RequestTable::new(32), RequestList::new(7));
    for (id, &place) in (0..).zip(places) {
        list.add(&mut table, at(id.into()), &read(id, place));
    }
    (table, list)
}

fn by_age(list: &RequestList, table: &RequestTable) -> Vec<u32> {
    let next = |&id: &u32| Some(table.rows[id as usize].links.next).filter(|&next| next != NIL);
    core::iter::successors(list.oldest().map(|id| id.0), next).collect()
}

fn by_place(list: &RequestList, table: &RequestTable) -> Vec<u32> {
    core::iter::successors(list.sorted.first(&table.nodes), |&id| table.nodes.next(id)).collect()
}

/// All of a list, each from where the last one ended.
fn sweep(list: &mut RequestList, table: &mut RequestTable, from: u64, back: BackSeek) -> Vec<u32> {
    let mut head = Sector(from);
    core::iter::from_fn(|| {
        let id = list.next_from(table, head, back)?;
        head = table.extent(id).end();
        list.take(table, id);
        Some(id.0)
    })
    .collect()
}

/// list.1, list.2.
#[test]
fn a_request_is_in_both_orders_until_it_is_taken_and_known_until_it_is_forgotten() {
    let (mut table, mut list) = list(&[300, 100, 200]);
    assert_eq!((by_age(&list, &table), by_place(&list, &table)), (vec![0, 1, 2], vec![1, 2, 0]));
    assert_eq!(list.oldest(), Some(RequestId(0)));
    list.take(&mut table, RequestId(1));
    assert_eq!((by_age(&list, &table), by_place(&list, &table)), (vec![0, 2], vec![2, 0]));
    assert_eq!((table.len(), list.len()), (2, 2));
    let id = RequestId(1);
    assert!(!table.is_in_list(id));
    assert_eq!(table.extent(id), Extent::new(Sector(100), 8), "it is known while it is at the device");
    assert_eq!((table.owner(id), table.stream(id), table.arrived(id)), (7, StreamId(1), at(1)));
    table.forget(id);
    list.add(&mut table, at(9), &read(1, 50));
    assert_eq!(by_place(&list, &table), [1, 2, 0]);
}

/// list.1.
#[test]
#[should_panic(expected = "RequestId(0) waits already")]
fn a_request_waits_once() {
    let (mut table, _line) = list(&[100]);
    RequestList::new(8).add(&mut table, at(5), &read(0, 200));
}

/// list.1.
#[test]
#[should_panic(expected = "RequestId(0) does not wait in list 8")]
fn a_line_gives_out_its_own_only() {
    let (mut table, _line) = list(&[100]);
    RequestList::new(8).take(&mut table, RequestId(0));
}

/// list.3.
#[test]
fn the_next_is_the_nearest_ahead() {
    let (mut table, mut list) = list(&[500, 100, 300]);
    assert_eq!(sweep(&mut list, &mut table, 0, PLAIN), [1, 2, 0]);
}

/// list.3.
#[test]
fn a_way_back_counts_double() {
    let (table, list) = list(&[90, 160]);
    assert_eq!(list.next_from(&table, Sector(113), PLAIN), Some(RequestId(0)), "23 back count 46, 47 ahead");
    assert_eq!(list.next_from(&table, Sector(114), PLAIN), Some(RequestId(1)), "24 back count 48, 46 ahead");
    let dear = BackSeek { penalty: 3, ..PLAIN };
    assert_eq!(list.next_from(&table, Sector(113), dear), Some(RequestId(1)), "23 back count 69");
}

/// list.3.
#[test]
fn what_is_too_far_back_waits_for_the_sweep_and_the_sweep_starts_at_the_first() {
    let (mut table, mut list) = list(&[3000, 5000, 100]);
    assert_eq!(list.next_from(&table, Sector(4500), PLAIN), Some(RequestId(1)), "1500 back is beyond 1000");
    assert_eq!(sweep(&mut list, &mut table, 4500, PLAIN), [1, 2, 0], "with nothing ahead, from the first");
}

/// list.3.
#[test]
fn with_nothing_ahead_a_near_one_behind_goes_before_the_first() {
    let (table, list) = list(&[4000, 100]);
    assert_eq!(list.next_from(&table, Sector(4900), PLAIN), Some(RequestId(0)));
    assert_eq!(list.next_from(&table, Sector(5001), PLAIN), Some(RequestId(1)));
}

/// list.3.
#[test]
fn the_more_urgent_neighbour_goes_first() {
    let urgent = |id, place| Waiting { flags: Flags::SYNC | Flags::PRIO, ..read(id, place) };
    let (mut table, mut list) = (RequestTable::new(4), RequestList::new(0));
    list.add(&mut table, at(0), &read(0, 110));
    list.add(&mut table, at(0), &urgent(1, 20));
    assert_eq!(list.next_from(&table, Sector(100), PLAIN), Some(RequestId(1)));
    list.add(&mut table, at(0), &urgent(2, 105));
    assert_eq!(list.next_from(&table, Sector(100), PLAIN), Some(RequestId(2)), "of two urgent ones, the nearer");
}

#[test]
fn the_nearest_is_looked_for_on_both_sides() {
    let (table, list) = list(&[100, 200]);
    let nearest = |to| list.nearest(&table, Sector(to)).map(|id| id.0);
    assert_eq!([nearest(0), nearest(140), nearest(160), nearest(900)], [Some(0), Some(0), Some(1), Some(1)]);
    assert_eq!(RequestList::new(1).nearest(&table, Sector(5)), None);
}

/// list.4.
#[test]
fn a_newcomer_joins_the_neighbour_of_its_line_and_direction() {
    let (table, list) = list(&[100]);
    let found = |request| list.merge_candidate(&table, &request);
    assert_eq!(found(read(1, 108)), Some((RequestId(0), Side::Back)));
    assert_eq!(found(read(1, 92)), Some((RequestId(0), Side::Front)));
    assert_eq!(found(read(1, 109)), None);
    assert_eq!(found(Waiting { op: Op::Write, ..read(1, 108) }), None, "the other direction");
    assert_eq!(RequestList::new(8).merge_candidate(&table, &read(1, 108)), None, "another list");
}

/// list.4.
#[test]
fn a_request_that_grew_in_front_is_found_at_its_new_place() {
    let (mut table, mut list) = list(&[100, 95]);
    let grown = Waiting { extent: Extent::new(Sector(92), 16), ..read(0, 0) };
    list.grown(&mut table, &grown, Side::Front);
    assert_eq!(by_place(&list, &table), [0, 1]);
    assert_eq!(table.extent(RequestId(0)), grown.extent);
}

/// list.4.
#[test]
fn two_that_become_one_keep_the_older_place() {
    let (mut table, mut list) = list(&[108, 500, 100]);
    let kept = Waiting { extent: Extent::new(Sector(100), 16), ..read(2, 0) };
    assert_eq!(list.neighbour_after(&table, &read(2, 100)), Some(RequestId(0)));
    list.absorbed(&mut table, &kept, RequestId(0));
    assert_eq!((by_age(&list, &table), by_place(&list, &table)), (vec![2, 1], vec![2, 1]));
    assert_eq!((table.arrived(RequestId(2)), table.extent(RequestId(2))), (at(0), kept.extent));
    assert_eq!((table.len(), list.len()), (2, 2));
    list.add(&mut table, at(9), &read(0, 900));
    assert_eq!(by_age(&list, &table), [2, 1, 0], "its number is free");
}

/// list.5.
#[test]
fn lines_become_one_and_part_again() {
    let (mut table, mut one, mut two) = (RequestTable::new(8), RequestList::new(1), RequestList::new(2));
    for (id, place) in [(0, 10), (2, 30), (4, 50)] {
        one.add(&mut table, at(id), &of(1, read(id as u32, place)));
    }
    for (id, place) in [(1, 40), (3, 20), (5, 60)] {
        two.add(&mut table, at(id), &of(2, read(id as u32, place)));
    }
    assert_eq!(one.move_to(&mut table, &mut two, |_| true), 3);
    assert!(one.is_empty());
    assert_eq!((by_age(&two, &table), by_place(&two, &table)), (vec![0, 1, 2, 3, 4, 5], vec![0, 3, 2, 1, 4, 5]));
    assert!((0..6).all(|id| table.owner(RequestId(id)) == 2));
    assert_eq!(two.move_to(&mut table, &mut one, |stream| stream == StreamId(1)), 3);
    assert_eq!((by_age(&one, &table), by_age(&two, &table)), (vec![0, 2, 4], vec![1, 3, 5]));
    assert_eq!((one.len(), two.len(), table.len()), (3, 3, 6));
}

/// list.6.
#[test]
fn what_was_turned_back_goes_first_the_last_one_before_the_others() {
    let (mut table, mut list) = list(&[100, 200]);
    for id in [0, 1] {
        list.take(&mut table, RequestId(id));
    }
    assert_eq!((table.len(), table.requeued()), (0, None));
    table.requeue(RequestId(0));
    table.requeue(RequestId(1));
    assert_eq!((table.len(), list.len()), (2, 0));
    assert_eq!(table.take_requeued(), Some(RequestId(1)));
    assert_eq!(table.take_requeued(), Some(RequestId(0)));
    assert_eq!((table.take_requeued(), table.len()), (None, 0));
    assert_eq!(table.arrived(RequestId(0)), at(0), "with the age that it had");
}

/// list.6.
#[test]
#[should_panic(expected = "RequestId(0) is turned back, but is not at the device")]
fn what_waits_cannot_be_turned_back() {
    let (mut table, _line) = list(&[100]);
    table.requeue(RequestId(0));
}
