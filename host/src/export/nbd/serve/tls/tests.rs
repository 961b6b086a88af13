use proptest::prelude::*;

use super::*;

fn record(content: usize) -> Vec<u8> {
    let [high, low] = (content as u16).to_be_bytes();
    let mut bytes = vec![23, 3, 3, high, low];
    bytes.resize(5 + content, 7);
    bytes
}

/// keys.1: a record of 300 bytes comes as 2 bytes of the header, then the rest of it, then half of the content.
#[test]
fn the_end_of_a_record_is_known_once_its_header_is_there() {
    let (bytes, mut records) = (record(300), Records::default());
    assert_eq!(records.missing(), 0, "none has begun");
    for (upto, missing) in [(2, 3), (5, 300), (155, 150), (305, 0)] {
        let from = upto - [2, 3, 150, 150][[2, 5, 155, 305].iter().position(|one| *one == upto).unwrap()];
        records.pass(&bytes[from..upto]);
        assert_eq!(records.missing(), missing, "after {upto} bytes");
    }
}

proptest! {
    /// In whatever pieces records come, each piece ends where a reader of all bytes from the start finds it.
    #[test]
    fn records_end_where_they_end(contents in prop::collection::vec(0..400_usize, 1..8), cuts in prop::collection::vec(0..3000_usize, 0..12)) {
        let bytes: Vec<u8> = contents.iter().flat_map(|content| record(*content)).collect();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).chain([bytes.len()]).collect();
        cuts.sort_unstable();
        let (mut records, mut from) = (Records::default(), 0);
        for cut in cuts {
            records.pass(&bytes[from..cut]);
            from = cut;
            prop_assert_eq!(records.missing(), missing(&contents, cut), "after {} bytes", cut);
        }
    }
}

/// The dullest way: whole records are taken off the front.
fn missing(contents: &[usize], mut bytes: usize) -> usize {
    for content in contents {
        match bytes {
            0 => return 0,
            1..5 => return 5 - bytes,
            _ if bytes < 5 + content => return 5 + content - bytes,
            _ => bytes -= 5 + content,
        }
    }
    bytes
}
