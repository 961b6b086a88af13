//! Negotiations as transcripts, one sentence each.

use fairlift_core::record::Record;

use super::*;

#[path = "../../../../tests/two_exports/mod.rs"]
mod two_exports;
use two_exports::Two;

/// A client that says one thing after the other, and the answers to it.
struct Talk {
    server: Handshake,
    heard: Vec<u8>,
    step: Advance,
}

/// A client of a server with two exports; the greeting and the client's flags are done.
fn talk(tls: Tls) -> Talk {
    talk_with(tls, CLIENT_FIXED_NEWSTYLE | CLIENT_NO_ZEROES)
}

fn talk_with(tls: Tls, flags: u32) -> Talk {
    let mut heard = vec![];
    let server = Handshake::new(tls, &mut heard);
    assert_eq!(heard, *b"NBDMAGICIHAVEOPT\0\x03");
    let mut talk = Talk { server, heard, step: Advance::NeedMore };
    talk.says(&flags.to_be_bytes());
    talk
}

impl Talk {
    /// Says `bytes`: the server uses all of them unless it closes.
    fn says(&mut self, bytes: &[u8]) -> &mut Self {
        self.heard.clear();
        let (used, step) = self.server.receive(bytes, &Two, &mut self.heard);
        assert!(used == bytes.len() || matches!(step, Advance::Close(_)), "{used} of {} used", bytes.len());
        self.step = step;
        self
    }

    fn option(&mut self, option: u32, parts: &[&[u8]]) -> &mut Self {
        self.says(&option_bytes(option, parts))
    }

    /// The replies heard to the last option: their kinds and data.
    #[track_caller]
    fn replies(&self, to: u32) -> Vec<(u32, Vec<u8>)> {
        let mut rest = Take(&self.heard);
        let mut all = vec![];
        while !rest.0.is_empty() {
            assert_eq!(rest.u64(), Some(REPLY_MAGIC));
            assert_eq!(rest.u32(), Some(to), "a reply names the option it answers");
            let kind = rest.u32().unwrap();
            all.push((kind, rest.string().unwrap().to_vec()));
        }
        all
    }

    /// The last option got replies of these kinds, the last of them final.
    #[track_caller]
    fn hears(&mut self, to: u32, kinds: &[u32]) -> &mut Self {
        let heard: Vec<u32> = self.replies(to).iter().map(|(kind, _)| *kind).collect();
        assert_eq!(heard, kinds, "{:?}", self.heard.escape_ascii().to_string());
        self
    }

    /// The message of the last error.
    fn message(&self, to: u32) -> String {
        String::from_utf8(self.replies(to).last().unwrap().1.clone()).unwrap()
    }

    #[track_caller]
    fn session(&self) -> Session {
        match &self.step {
            Advance::Ready(session) => *session,
            other => panic!("not ready: {other:?}"),
        }
    }
}

fn option_bytes(option: u32, parts: &[&[u8]]) -> Vec<u8> {
    let data = parts.concat();
    let header = [&OPTION_MAGIC.to_be_bytes()[..], &option.to_be_bytes(), &(data.len() as u32).to_be_bytes()];
    [header.concat(), data].concat()
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()
}

/// The data of INFO and GO.
fn go(name: &str, wanted: &[u16]) -> Vec<u8> {
    let mut data = string(name);
    data.extend((wanted.len() as u16).to_be_bytes());
    wanted.iter().for_each(|kind| data.extend(kind.to_be_bytes()));
    data
}

/// The data of LIST_META_CONTEXT and SET_META_CONTEXT.
fn contexts(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = string(name);
    data.extend((queries.len() as u32).to_be_bytes());
    queries.iter().for_each(|query| data.extend(string(query)));
    data
}

#[test]
fn an_idle_negotiation_is_small() {
    assert!(size_of::<Handshake>() < 64, "{}", size_of::<Handshake>());
}

#[test]
fn a_client_with_unknown_flags_is_sent_away() {
    assert!(matches!(talk_with(Tls::Off, 4 | 3).step, Advance::Close(why) if why.contains("flags")));
}

#[test]
fn go_tells_size_flags_and_blocks_and_then_requests_may_come() {
    let mut client = talk(Tls::Off);
    client.option(OPT_GO, &[&go("disk", &[])]).hears(OPT_GO, &[REP_INFO, REP_INFO, REP_ACK]);
    let replies = client.replies(OPT_GO);
    assert_eq!(replies[0].1, *b"\0\0\0\0\0\0\x40\0\0\0\0\x05", "export: 1 GiB, flags without DF");
    assert_eq!(replies[1].1, *b"\0\x03\0\0\x02\0\0\0\x10\0\x02\0\0\0", "blocks: 512, 4096, 32 MiB");
    let session = Session { export: 0, structured: false, extended: false, contexts: Contexts::default() };
    assert_eq!(client.session(), session);
}

#[test]
fn info_tells_name_and_description_when_asked_and_the_negotiation_goes_on() {
    let mut client = talk(Tls::Off);
    let all = [INFO_NAME, INFO_DESCRIPTION, INFO_BLOCK_SIZE, 99];
    client.option(OPT_INFO, &[&go("disk", &all)]).hears(OPT_INFO, &[REP_INFO, REP_INFO, REP_INFO, REP_INFO, REP_ACK]);
    assert_eq!(client.step, Advance::NeedMore);
    let replies = client.replies(OPT_INFO);
    assert_eq!((&replies[2].1[..], &replies[3].1[..]), (&b"\0\x01disk"[..], &b"\0\x02the first"[..]));
    client.option(OPT_INFO, &[&go("other", &all)]).hears(OPT_INFO, &[REP_INFO, REP_INFO, REP_INFO, REP_ACK]);
}

#[test]
fn reads_in_one_piece_are_offered_only_with_structured_replies() {
    let mut client = talk(Tls::Off);
    let df = |client: &Talk| client.replies(OPT_INFO)[0].1[11] & FLAG_SEND_DF as u8 != 0;
    assert!(!df(client.option(OPT_INFO, &[&go("disk", &[])])));
    client.option(OPT_STRUCTURED_REPLY, &[]).hears(OPT_STRUCTURED_REPLY, &[REP_ACK]);
    assert!(df(client.option(OPT_INFO, &[&go("disk", &[])])));
    client.option(OPT_GO, &[&go("disk", &[])]);
    assert!(client.session().structured && !client.session().extended);
}

#[test]
fn the_answer_to_an_unknown_name_says_what_was_asked_and_where_to_look() {
    let mut client = talk(Tls::Off);
    client.option(OPT_GO, &[&go("dusk", &[])]).hears(OPT_GO, &[REP_ERR_UNKNOWN]);
    assert_eq!(client.message(OPT_GO), "no export \"dusk\" here; LIST shows the 2 there are");
    assert_eq!(client.step, Advance::NeedMore);
    client.option(OPT_GO, &[&go("a\0b\n", &[])]).hears(OPT_GO, &[REP_ERR_UNKNOWN]);
    assert!(client.message(OPT_GO).starts_with("no export \"a\\0b\\n\""), "a string of the protocol has no NUL");
    client.option(OPT_GO, &[&go(&"x".repeat(4096), &[])]).hears(OPT_GO, &[REP_ERR_UNKNOWN]);
    assert!(client.message(OPT_GO).len() < 120, "a long name is cut");
    client.option(OPT_GO, &[&go(&"x".repeat(4097), &[])]).hears(OPT_GO, &[REP_ERR_TOO_BIG]);
    client.option(OPT_GO, &[&[0, 0, 0, 2, 0xff, 0xfe, 0, 0]]).hears(OPT_GO, &[REP_ERR_UNKNOWN]);
}

#[test]
fn a_list_of_requests_that_lies_about_its_length_is_refused() {
    let mut client = talk(Tls::Off);
    for data in [&b""[..], b"\0\0\0\x04disk", b"\0\0\0\x05disk\0\0", b"\0\0\0\x04disk\0\x01", b"\0\0\0\x04disk\0\0\0"] {
        client.option(OPT_GO, &[data]).hears(OPT_GO, &[REP_ERR_INVALID]);
    }
    client.option(OPT_GO, &[&go("disk", &[])]).session();
}

#[test]
fn list_shows_every_export_and_its_description() {
    let mut client = talk(Tls::Off);
    client.option(OPT_LIST, &[]).hears(OPT_LIST, &[REP_SERVER, REP_SERVER, REP_ACK]);
    assert_eq!(client.replies(OPT_LIST)[0].1, *b"\0\0\0\x04diskthe first");
    assert_eq!(client.replies(OPT_LIST)[1].1, *b"\0\0\0\x05other");
    client.option(OPT_LIST, &[b"x"]).hears(OPT_LIST, &[REP_ERR_INVALID]);
}

#[test]
fn export_name_gets_zeroes_unless_the_client_can_do_without() {
    for (flags, len) in [(CLIENT_FIXED_NEWSTYLE, 10 + 124), (CLIENT_FIXED_NEWSTYLE | CLIENT_NO_ZEROES, 10), (0, 134)] {
        let mut client = talk_with(Tls::Off, flags);
        client.option(OPT_EXPORT_NAME, &[b"other"]);
        assert_eq!((client.heard.len(), client.session().export), (len, 1));
        assert_eq!(client.heard[..10], *b"\0\0\0\0\x40\0\0\0\0\x05");
    }
}

#[test]
fn a_wrong_export_name_ends_the_connection_without_a_word() {
    for name in [&b"dusk"[..], b"\xff\xfe", &[b'x'; 4097]] {
        let mut client = talk(Tls::Off);
        client.option(OPT_EXPORT_NAME, &[name]);
        assert!(matches!(&client.step, Advance::Close(why) if !why.is_empty() && why.len() < 200));
        assert!(client.heard.is_empty());
    }
}

/// handshake.2: EXPORT_NAME cannot be refused in words, so its data is not waited for.
#[test]
fn a_long_export_name_ends_the_connection_before_it_has_come() {
    let mut client = talk(Tls::Off);
    client.says(&option_bytes(OPT_EXPORT_NAME, &[&[b'x'; 4097]])[..16]);
    assert!(matches!(&client.step, Advance::Close(why) if why.contains("4097")));
}

#[test]
fn export_name_is_no_way_to_extended_headers() {
    let mut client = talk(Tls::Off);
    client.option(OPT_EXTENDED_HEADERS, &[]).hears(OPT_EXTENDED_HEADERS, &[REP_ACK]);
    assert!(matches!(client.option(OPT_EXPORT_NAME, &[b"disk"]).step, Advance::Close(_)));
}

#[test]
fn abort_is_acknowledged_and_ends_politely_whatever_its_data() {
    for data in [&b""[..], b"bye"] {
        let mut client = talk(Tls::Required);
        client.option(OPT_ABORT, &[data]).hears(OPT_ABORT, &[REP_ACK]);
        assert_eq!(client.step, Advance::Close(String::new()));
    }
}

#[test]
fn extended_headers_bring_structured_replies_and_there_is_no_way_back() {
    let mut client = talk(Tls::Off);
    client.option(OPT_EXTENDED_HEADERS, &[b"x"]).hears(OPT_EXTENDED_HEADERS, &[REP_ERR_INVALID]);
    client.option(OPT_STRUCTURED_REPLY, &[b"x"]).hears(OPT_STRUCTURED_REPLY, &[REP_ERR_INVALID]);
    client.option(OPT_EXTENDED_HEADERS, &[]).hears(OPT_EXTENDED_HEADERS, &[REP_ACK]);
    client.option(OPT_STRUCTURED_REPLY, &[]).hears(OPT_STRUCTURED_REPLY, &[REP_ERR_EXT_HEADER_REQD]);
    client.option(OPT_GO, &[&go("disk", &[])]);
    assert!(client.session().structured && client.session().extended);
}

#[test]
fn an_unknown_option_is_refused_and_the_next_is_heard() {
    let mut client = talk(Tls::Off);
    for option in [0, 4, 12, u32::MAX] {
        client.option(option, &[b"whatever"]).hears(option, &[REP_ERR_UNSUP]);
    }
    client.option(OPT_GO, &[&go("disk", &[])]).session();
}

#[test]
fn contexts_are_listed_by_name_by_namespace_or_all() {
    let mut client = talk(Tls::Off);
    client.option(OPT_LIST_META_CONTEXT, &[&contexts("disk", &[])]).hears(OPT_LIST_META_CONTEXT, &[REP_ERR_INVALID]);
    client.option(OPT_STRUCTURED_REPLY, &[]);
    let (holes, changes) = (b"\0\0\0\0base:allocation", b"\0\0\0\0qemu:dirty-bitmap:top");
    for (name, queries, found) in [
        ("disk", &[][..], &[&holes[..], changes][..]),
        ("disk", &["base:"], &[holes]),
        ("disk", &["x-y:z", "base:allocation"], &[holes]),
        ("disk", &["qemu:", "base:a"], &[changes]),
        ("disk", &["qemu:dirty-bitmap:", "qemu:"], &[changes]),
        ("disk", &["qemu:dirty-bitmap:top", "base:"], &[holes, changes]),
        ("disk", &["qemu:dirty-bitmap:to", "qemu:dirty-bitmap:top2", "qemu"], &[]),
        ("other", &[], &[holes]),
        ("other", &["qemu:", "qemu:dirty-bitmap:", "qemu:dirty-bitmap:top"], &[]),
    ] {
        client.option(OPT_LIST_META_CONTEXT, &[&contexts(name, queries)]);
        let heard: Vec<Vec<u8>> = client.replies(OPT_LIST_META_CONTEXT).into_iter().map(|(_, data)| data).collect();
        assert_eq!(heard, [found, &[b""]].concat(), "{name}: {queries:?}");
    }
    client.option(OPT_GO, &[&go("disk", &[])]);
    assert!(client.session().contexts.is_none(), "listed is not chosen");
}

/// handshake.4
#[test]
fn a_context_counts_for_the_export_it_was_last_chosen_for() {
    let chosen = |choices: &[(&str, &[&str])], goes: &str| {
        let mut client = talk(Tls::Off);
        client.option(OPT_STRUCTURED_REPLY, &[]);
        for (name, queries) in choices {
            client.option(OPT_SET_META_CONTEXT, &[&contexts(name, queries)]);
        }
        client.option(OPT_GO, &[&go(goes, &[])]).session().contexts.allocation
    };
    let all = &["base:allocation"][..];
    assert!(chosen(&[("disk", all)], "disk"));
    assert!(!chosen(&[("disk", all)], "other"));
    assert!(!chosen(&[("disk", all), ("disk", &[])], "disk"), "an empty choice replaces the one before");
    assert!(!chosen(&[("disk", all), ("dusk", all)], "disk"), "so does one that fails");
    assert!(!chosen(&[("disk", &["base:"])], "disk"), "a namespace chooses nothing");
    assert!(chosen(&[("other", all), ("disk", all)], "disk"));
}

#[test]
fn a_chosen_context_is_told_once_with_its_number() {
    let mut client = talk(Tls::Off);
    let twice = contexts("disk", &["base:allocation", "base:allocation"]);
    client.option(OPT_SET_META_CONTEXT, &[&twice]).hears(OPT_SET_META_CONTEXT, &[REP_ERR_INVALID]);
    client.option(OPT_STRUCTURED_REPLY, &[]);
    client.option(OPT_SET_META_CONTEXT, &[&twice]).hears(OPT_SET_META_CONTEXT, &[REP_META_CONTEXT, REP_ACK]);
    assert_eq!(client.replies(OPT_SET_META_CONTEXT)[0].1, *b"\0\0\0\x01base:allocation");
    let both = contexts("disk", &["qemu:", "qemu:dirty-bitmap:top", "base:allocation"]);
    let kinds = &[REP_META_CONTEXT, REP_META_CONTEXT, REP_ACK];
    client.option(OPT_SET_META_CONTEXT, &[&both]).hears(OPT_SET_META_CONTEXT, kinds);
    assert_eq!(client.replies(OPT_SET_META_CONTEXT)[1].1, *b"\0\0\0\x02qemu:dirty-bitmap:top");
    for cut in 0..twice.len() {
        client.option(OPT_SET_META_CONTEXT, &[&twice[..cut]]).hears(OPT_SET_META_CONTEXT, &[REP_ERR_INVALID]);
    }
    let more = [twice, vec![0]].concat();
    client.option(OPT_SET_META_CONTEXT, &[&more]).hears(OPT_SET_META_CONTEXT, &[REP_ERR_INVALID]);
    let many = [string("disk"), u32::MAX.to_be_bytes().to_vec()].concat();
    client.option(OPT_SET_META_CONTEXT, &[&many]).hears(OPT_SET_META_CONTEXT, &[REP_ERR_INVALID]);
}

/// handshake.1
#[test]
fn nothing_is_said_before_an_option_is_there_whole() {
    let bytes = option_bytes(OPT_GO, &[&go("disk", &[INFO_NAME])]);
    for cut in 0..bytes.len() {
        let mut client = talk(Tls::Off);
        let mut heard = vec![];
        assert_eq!(client.server.receive(&bytes[..cut], &Two, &mut heard), (0, Advance::NeedMore));
        assert!(heard.is_empty());
        client.says(&bytes).session();
    }
}

/// handshake.2
#[test]
fn more_data_than_fits_is_refused_at_once_and_passed_over() {
    let mut client = talk(Tls::Off);
    let len = Handshake::DATA_MAX + 1;
    let header = [&OPTION_MAGIC.to_be_bytes()[..], &OPT_INFO.to_be_bytes(), &len.to_be_bytes()].concat();
    client.says(&header).hears(OPT_INFO, &[REP_ERR_TOO_BIG]);
    client.says(&vec![0; len as usize - 1]).hears(OPT_INFO, &[]);
    let last_and_next = [vec![0], option_bytes(OPT_LIST, &[])].concat();
    client.says(&last_and_next).hears(OPT_LIST, &[REP_SERVER, REP_SERVER, REP_ACK]);
}

/// handshake.2
#[test]
fn data_that_just_fits_is_looked_at() {
    let mut client = talk(Tls::Off);
    client.option(77, &[&[0; Handshake::DATA_MAX as usize]]).hears(77, &[REP_ERR_UNSUP]);
}

/// handshake.2
#[test]
fn a_client_that_never_stops_asking_is_sent_away() {
    let mut client = talk(Tls::Off);
    for _ in 0..Handshake::OPTIONS_MAX {
        client.option(77, &[]).hears(77, &[REP_ERR_UNSUP]);
    }
    assert!(matches!(&client.option(77, &[]).step, Advance::Close(why) if why.contains("256")));
    assert!(client.heard.is_empty());
}

/// handshake.2
#[test]
fn what_is_too_big_counts_as_well() {
    let mut client = talk(Tls::Off);
    let len = Handshake::DATA_MAX + 1;
    for _ in 0..Handshake::OPTIONS_MAX {
        client.option(77, &[&vec![0; len as usize]]).hears(77, &[REP_ERR_TOO_BIG]);
    }
    assert!(matches!(client.option(77, &[&vec![0; len as usize]]).step, Advance::Close(_)));
}

/// handshake.2
#[test]
fn lists_are_dearer_than_other_options() {
    let mut client = talk(Tls::Off);
    for _ in 0..16 {
        client.option(OPT_LIST, &[]).hears(OPT_LIST, &[REP_SERVER, REP_SERVER, REP_ACK]);
    }
    assert!(matches!(client.option(OPT_LIST, &[]).step, Advance::Close(_)));
}

#[test]
fn an_option_without_its_magic_ends_the_connection() {
    assert!(matches!(talk(Tls::Off).says(b"IHAVEOPS").step, Advance::Close(_)));
}

/// handshake.3
#[test]
fn where_tls_is_required_nothing_is_told_before_it() {
    let mut client = talk(Tls::Required);
    for option in [OPT_LIST, OPT_INFO, OPT_GO, OPT_STRUCTURED_REPLY, OPT_LIST_META_CONTEXT, 77] {
        for name in ["disk", "dusk"] {
            client.option(option, &[&go(name, &[])]).hears(option, &[REP_ERR_TLS_REQD]);
            assert_eq!(client.message(option), "TLS is required here: send STARTTLS first");
        }
        client.option(option, &[&[0; 70000]]).hears(option, &[REP_ERR_TLS_REQD]);
    }
    client.option(OPT_EXPORT_NAME, &[b"disk"]);
    assert!(matches!(client.step, Advance::Close(_)) && client.heard.is_empty());
}

/// handshake.3
#[test]
fn tls_starts_when_asked_and_only_once() {
    for tls in [Tls::Optional, Tls::Required] {
        let mut client = talk(tls);
        client.option(OPT_STARTTLS, &[b"x"]).hears(OPT_STARTTLS, &[REP_ERR_INVALID]);
        client.option(OPT_STARTTLS, &[]).hears(OPT_STARTTLS, &[REP_ACK]);
        assert_eq!(client.step, Advance::StartTls);
        client.server.tls_established();
        client.option(OPT_STARTTLS, &[]).hears(OPT_STARTTLS, &[REP_ERR_INVALID]);
        client.option(OPT_GO, &[&go("disk", &[])]).session();
    }
    talk(Tls::Off).option(OPT_STARTTLS, &[]).hears(OPT_STARTTLS, &[REP_ERR_POLICY]);
}

/// handshake.3
#[test]
fn what_was_negotiated_before_tls_is_forgotten() {
    let mut client = talk(Tls::Optional);
    client.option(OPT_EXTENDED_HEADERS, &[]);
    client.option(OPT_SET_META_CONTEXT, &[&contexts("disk", &["base:allocation"])]);
    client.option(OPT_STARTTLS, &[]);
    client.server.tls_established();
    client.option(OPT_GO, &[&go("disk", &[])]);
    let session = client.session();
    assert_eq!((session.structured, session.extended, session.contexts), (false, false, Contexts::default()));
}

/// handshake.3: an attacker who can write in front of the client's first encrypted byte gets nothing done.
#[test]
fn plain_text_after_starttls_is_not_used() {
    let injected = option_bytes(OPT_STRUCTURED_REPLY, &[]);
    let mut server = talk(Tls::Required).server;
    let mut heard = vec![];
    let start = option_bytes(OPT_STARTTLS, &[]);
    let (used, step) = server.receive(&[start.clone(), injected.clone()].concat(), &Two, &mut heard);
    assert_eq!((used, step), (start.len(), Advance::StartTls), "the caller can see what came after");
    heard.clear();
    let (used, step) = server.receive(&injected, &Two, &mut heard);
    assert!(used == 0 && heard.is_empty() && matches!(step, Advance::Close(_)), "{step:?}");
}

/// The same at another server.
fn handed_over(server: &Handshake) -> Handshake {
    assert!(!server.begins_tls());
    let mut says = Record::default();
    says.put("negotiation", server);
    Record::parse(&says.to_string()).unwrap().need("negotiation").unwrap()
}

/// An older server says so of a negotiation whose option of 70,000 bytes it passes over.
#[test]
fn a_negotiation_is_handed_over_as_ever() {
    let says = r#"{"negotiation":{"awaits":"skip","bytes":99,"failed":false,"skip":70000,"tls":"optional","options":3,"no_zeroes":true,
        "structured":true,"extended":false,"allocation":true,"changes":false,"chosen_for":"disk"}}"#;
    let mut server: Handshake = Record::parse(says).unwrap().need("negotiation").unwrap();
    let mut heard = vec![];
    let rest = [vec![0; 70_000], option_bytes(OPT_GO, &[&go("disk", &[])])].concat();
    let (used, step) = server.receive(&rest, &Two, &mut heard);
    let Advance::Ready(session) = step else { panic!("{step:?}") };
    assert!(used == rest.len() && session.structured && session.contexts.allocation && server.options == 4);
}

/// With an option that is passed over, one that is answered at length, and the choice of an export.
#[test]
fn wherever_another_server_goes_on_with_a_negotiation_it_is_the_same() {
    let too_long = vec![0; Handshake::DATA_MAX as usize + 3];
    let bytes = [
        (CLIENT_FIXED_NEWSTYLE | CLIENT_NO_ZEROES).to_be_bytes().to_vec(),
        option_bytes(OPT_EXTENDED_HEADERS, &[]),
        option_bytes(OPT_INFO, &[&too_long]),
        option_bytes(OPT_SET_META_CONTEXT, &[&contexts("disk", &["base:allocation"])]),
        option_bytes(OPT_GO, &[&go("disk", &[])]),
    ]
    .concat();
    let run = |cuts: &[usize]| {
        let (mut heard, mut input) = (vec![], vec![]);
        let mut server = Handshake::new(Tls::Optional, &mut heard);
        let mut step = Advance::NeedMore;
        let ends = cuts.iter().copied().chain([bytes.len()]);
        let mut from = 0;
        for end in ends {
            input.extend_from_slice(&bytes[from..end]);
            let (used, next) = server.receive(&input, &Two, &mut heard);
            input.drain(..used);
            (from, step) = (end, next);
            server = handed_over(&server);
        }
        (heard, step, input)
    };
    let whole = run(&[]);
    assert!(matches!(
        whole.1,
        Advance::Ready(Session { extended: true, contexts: Contexts { allocation: true, .. }, .. })
    ));
    let skipped = 36..bytes.len() - 200;
    for cut in (0..bytes.len()).filter(|cut| !skipped.contains(cut) || cut % 997 == 0) {
        assert!(run(&[cut]) == whole, "cut at {cut}");
        assert!(cut + 3 >= bytes.len() || run(&[cut, cut + 3]) == whole, "cut at {cut} and behind it");
    }
}

#[test]
fn what_another_server_says_of_a_negotiation_is_not_believed_blindly() {
    let mut heard = vec![];
    let mut says = Record::default();
    says.put("negotiation", &Handshake::new(Tls::Off, &mut heard));
    let negotiation: Record = says.take("negotiation").unwrap().unwrap();
    for (part, value, why) in [
        ("awaits", "tls", "`tls`, expected one of `flags`, `option`, `skip`"),
        ("tls", "maybe", "`maybe`, expected one of `off`, `optional`, `required`"),
        ("skip", "much", "\"much\", expected u32"),
        ("options", "", "\"\", expected u32"),
    ] {
        let mut negotiation = negotiation.clone();
        negotiation.put(part, &value);
        says.put("negotiation", &negotiation);
        let unreadable = says.take::<Handshake>("negotiation").unwrap_err();
        assert!(unreadable.part == "negotiation" && unreadable.why.contains(why), "{unreadable}");
    }
    says.put("negotiation", &Record::default());
    assert!(says.take::<Handshake>("negotiation").is_err());
}

/// handshake.3: a client that is encrypted is told everything by another server too, and one that is about to be does not go over.
#[test]
fn a_client_that_was_encrypted_before_is_so_at_another_server() {
    let mut client = talk(Tls::Required);
    client.option(OPT_STARTTLS, &[]).hears(OPT_STARTTLS, &[REP_ACK]);
    assert!(client.server.begins_tls());
    client.server.tls_established();
    client.server = handed_over(&client.server);
    client.option(OPT_STARTTLS, &[]).hears(OPT_STARTTLS, &[REP_ERR_INVALID]);
    client.option(OPT_GO, &[&go("disk", &[])]).session();
}
