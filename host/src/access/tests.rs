use proptest::prelude::*;

use super::*;

fn rule(name: &str, says: impl FnOnce(&mut Rule)) -> Rule {
    let mut rule = Rule { name: name.into(), ..Rule::default() };
    says(&mut rule);
    rule
}

fn access(rules: &[Rule]) -> Access {
    Access::new(rules, &Arc::default(), &Access::default())
}

fn peer(user: Option<(u32, u32)>, address: Option<&str>) -> Peer {
    let address = address.map(|address| address.parse().unwrap());
    Peer { user, address, listener: "unix:/run/a".into(), ..Peer::default() }
}

fn root() -> Peer {
    peer(Some((0, 0)), None)
}

/// access.1
#[test]
fn without_rules_everybody_may_everything_and_with_one_nobody_else_anything() {
    assert_eq!(access(&[]).of(&root()).of("a", "/a"), Some(Right::Write));
    let alice = rule("alice", |rule| (rule.uid, rule.group) = (Some(1000), Some("/a".into())));
    assert_eq!(access(&[alice]).of(&root()).of("a", "/a"), None);
}

/// access.2
#[test]
fn all_that_a_rule_says_of_a_client_must_hold() {
    let both = rule("both", |rule| {
        (rule.uid, rule.gid, rule.listener) = (Some(1), Some(2), Some("unix:/run/a".into()));
        rule.exports.insert("a".into());
    });
    let may = |user, at: &str| {
        let peer = Peer { listener: at.into(), ..peer(Some(user), None) };
        access(std::slice::from_ref(&both)).of(&peer).of("a", "/").is_some()
    };
    assert!(may((1, 2), "unix:/run/a"));
    assert!(!may((1, 2), "unix:/run/b") && !may((1, 1), "unix:/run/a") && !may((2, 2), "unix:/run/a"));
}

#[test]
fn a_group_has_those_below_it_and_not_those_that_begin_alike() {
    let below = |group, above| is_below(group, above);
    assert!(below("/a", "/a") && below("/a/b", "/a") && below("/a/b/c", "/a") && below("/", "/") && below("/a", "/"));
    assert!(!below("/ab", "/a") && !below("/", "/a") && !below("/b/a", "/a") && !below("/a", "/a/b"));
}

/// access.5
#[test]
fn a_full_rule_lets_nobody_more_in_and_the_others_are_asked() {
    let one = |name: &str, read_only, most| {
        rule(name, |rule| {
            (rule.uid, rule.group, rule.read_only, rule.max_connections) = (Some(0), Some("/".into()), read_only, most);
        })
    };
    let access = access(&[one("reads", true, Some(1)), one("writes", false, Some(2))]);
    let peer = root();
    let enter = || access.of(&peer).enter("a", "/a");
    let entries = [enter(), enter(), enter(), enter()];
    let rights = entries.iter().map(|entry| entry.as_ref().map(|entry| entry.right));
    assert_eq!(rights.collect::<Vec<_>>(), [Some(Right::Write), Some(Right::Write), Some(Right::Read), None]);
    assert_eq!(access.counts().collect::<Vec<_>>(), [("reads".into(), 1), ("writes".into(), 2)]);
    drop(entries);
    assert_eq!(enter().map(|entry| entry.right), Some(Right::Write), "connections that have left leave room");
}

/// access.6
#[test]
fn other_rules_count_on_and_keep_connections_beyond_their_number() {
    let with =
        |most| rule("a", |rule| (rule.uid, rule.group, rule.max_connections) = (Some(0), Some("/".into()), Some(most)));
    let (before, peer) = (access(&[with(2)]), root());
    let entries = [before.of(&peer).enter("a", "/"), before.of(&peer).enter("a", "/")];
    let after = Access::new(&[with(1)], &Arc::default(), &before);
    let kept = entries.map(|entry| {
        let entry = entry.unwrap();
        after.of(&peer).keep("a", "/", &entry)
    });
    assert!(kept.iter().all(Option::is_some) && after.of(&peer).enter("a", "/").is_none());
    assert_eq!(after.counts().next(), Some(("a".into(), 2)));
}

/// access.6: a connection that had no room where it might write has none there by a reload.
#[test]
fn other_rules_let_no_connection_into_a_rule_that_is_full() {
    let one = |name: &str, read_only, most| {
        rule(name, |rule| {
            (rule.uid, rule.group) = (Some(0), Some("/".into()));
            (rule.read_only, rule.max_connections) = (read_only, most);
        })
    };
    let rules = |most| [one("writes", false, Some(1)), one("more", false, Some(most)), one("reads", true, None)];
    let (mut now, peer) = (access(&rules(1)), root());
    let mut entries = [(); 4].map(|()| now.of(&peer).enter("a", "/a").unwrap());
    let rights = |entries: &[Entry; 4]| entries.each_ref().map(|entry| entry.right);
    assert_eq!(rights(&entries), [Right::Write, Right::Write, Right::Read, Right::Read]);
    for most in [1, 1, 2] {
        now = Access::new(&rules(most), &Arc::default(), &now);
        for entry in &mut entries {
            *entry = now.of(&peer).keep("a", "/a", entry).unwrap();
        }
    }
    assert_eq!(rights(&entries), [Right::Write, Right::Write, Right::Write, Right::Read], "one more has room now");
    assert_eq!(now.counts().map(|(_, count)| count).collect::<Vec<_>>(), [1, 2, 1]);
}

/// access.7: connections are told of other rules one by one, and others knock meanwhile.
#[test]
fn a_rule_that_is_renamed_lets_in_no_more_than_before() {
    let called = |name: &str, uid| {
        rule(name, |rule| (rule.uid, rule.group, rule.max_connections) = (Some(uid), Some("/".into()), Some(3)))
    };
    let reads = || rule("z", |rule| (rule.uid, rule.group, rule.read_only) = (Some(0), Some("/".into()), true));
    let (mut now, peer) = (access(&[called("a", 0)]), root());
    let mut entries = [(); 3].map(|()| now.of(&peer).enter("a", "/").unwrap());
    for (name, count) in [("b", 2), ("c", 0), ("b", 1), ("d", 3)] {
        now = Access::new(&[called(name, 0), reads()], &Arc::default(), &now);
        let knocks = |now: &Access| now.of(&peer).enter("a", "/").map(|entry| entry.right);
        assert_eq!(knocks(&now), Some(Right::Read), "{name} is full");
        for entry in &mut entries[..count] {
            *entry = now.of(&peer).keep("a", "/", entry).unwrap();
            assert_eq!((entry.right, knocks(&now)), (Right::Write, Some(Right::Read)), "one after the other");
        }
    }
    assert_eq!(now.counts().map(|(_, count)| count).collect::<Vec<_>>(), [3, 0]);
    let other = Access::new(&[called("bob", 7)], &Arc::default(), &now);
    assert!(other.of(&self::peer(Some((7, 7)), None)).enter("a", "/").is_some(), "another client has none of them");
    drop(entries);
    assert_eq!(now.of(&peer).enter("a", "/").unwrap().right, Right::Write, "connections that have left leave room");
}

/// A rule of root for these exports, with so many connections.
fn bounded(name: &str, exports: &[&str], most: u32) -> Rule {
    rule(name, |rule| {
        (rule.uid, rule.max_connections) = (Some(0), Some(most));
        rule.exports = exports.iter().map(|export| (*export).to_owned()).collect();
    })
}

/// access.7: alice's two rules become one, which first has another name and then the name of one of the two.
#[test]
fn rules_that_become_one_let_in_no_more_than_together() {
    for name in ["both", "b"] {
        let (before, peer) = (access(&[bounded("a", &["a"], 2), bounded("b", &["b"], 2)]), root());
        let mut entries = ["a", "a", "b"].map(|export| (export, before.of(&peer).enter(export, "/").unwrap()));
        let one = bounded(name, &["a", "b"], 3);
        let mut now = Access::new(std::slice::from_ref(&one), &Arc::default(), &before);
        for (export, entry) in &mut entries {
            let knocks = now.of(&peer).enter("a", "/");
            assert!(knocks.is_none() && now.counts().next() == Some((name.into(), 3)), "{now:?}");
            now = Access::new(std::slice::from_ref(&one), &Arc::default(), &now);
            *entry = now.of(&peer).keep(export, "/", entry).unwrap();
        }
        assert!(now.of(&peer).enter("a", "/").is_none(), "all went over");
        drop(entries);
        assert_eq!([(); 4].map(|()| now.of(&peer).enter("b", "/")).iter().flatten().count(), 3, "and have left");
    }
}

/// access.7: a rule for the same client that stays as it is has no count of others, be it before them or left alone.
#[test]
fn a_rule_that_stays_counts_its_own_connections_alone() {
    let counts = |now: &Access| now.counts().map(|(_, count)| count).collect::<Vec<_>>();
    let (x, a, b) = (bounded("x", &["x"], 1), bounded("a", &["a"], 2), bounded("b", &["b"], 2));
    let (before, peer) = (access(&[x.clone(), a, b]), root());
    let entries = ["a", "a", "b"].map(|export| before.of(&peer).enter(export, "/").unwrap());
    let now = Access::new(&[x.clone(), bounded("ab", &["a", "b"], 3)], &Arc::default(), &before);
    assert_eq!((counts(&now), now.of(&peer).enter("x", "/").is_some()), (vec![0, 3], true));
    assert!(now.of(&peer).enter("a", "/").is_none(), "both count in the one that they became");
    assert_eq!(counts(&Access::new(&[x], &Arc::default(), &before)), [0], "no rule took their place");
    drop(entries);
}

#[test]
fn a_rule_says_who_it_is_for_and_what_that_client_may_do() {
    let mut a_rule = rule("a", |rule| rule.group = Some("/a".into()));
    assert_eq!(a_rule.check().unwrap_err().0, "uid");
    a_rule.uid = Some(7);
    a_rule.check().unwrap();
    a_rule.group = None;
    assert_eq!(a_rule.check().unwrap_err().0, "exports");
    for (control, wrong) in [(Control::See, None), (Control::Tenant, Some("control"))] {
        a_rule.control = Some(control);
        assert_eq!(a_rule.check().err().map(|(key, _)| key), wrong);
    }
    a_rule.control = None;
    a_rule.exports.extend(["b".to_owned(), "a".to_owned()]);
    (a_rule.read_only, a_rule.max_connections) = (true, Some(1));
    (a_rule.address, a_rule.listener) = (Some("10.0.0.0/8".parse().unwrap()), Some("unix:/run/a".into()));
    let shown = "uid 7 and address 10.0.0.0/8 and listener unix:/run/a: exports a, b, read-only, 1 connection";
    assert_eq!(a_rule.to_string(), shown);
}

/// role.1, role.2
#[test]
fn a_client_has_the_role_that_the_rules_that_fit_it_give_together() {
    let with = |uid: u32, group: &str, control| {
        rule("r", |rule| (rule.uid, rule.group, rule.control) = (Some(uid), Some(group.into()), control))
    };
    let user = |uid| peer(Some((uid, 7)), None);
    let own = rustix::process::geteuid().as_raw();
    let [one, two, three] = [1, 2, 3].map(|more| own + more);
    assert_eq!(access(&[with(one, "/a", None)]).role(&user(two)), Grant::Change, "no rule says control");
    let rules = access(&[
        with(one, "/a", Some(Control::Tenant)),
        with(one, "/b", Some(Control::Tenant)),
        with(one, "/c", Some(Control::None)),
        with(one, "/d", None),
        with(two, "/a", Some(Control::Tenant)),
        with(two, "/b", Some(Control::See)),
        with(three, "/", Some(Control::None)),
        rule("t", |rule| (rule.token, rule.control) = (Some(Token::new("secret")), Some(Control::Change))),
    ]);
    let tenant = rules.role(&user(one));
    assert_eq!(tenant, Grant::Tenant(vec!["/a".into(), "/b".into()]));
    let sees = ["/a", "/a/x", "/b", "/c", "/d", "/ab", "/"].map(|group| tenant.sees(group));
    assert_eq!(sees, [true, true, true, false, false, false, false]);
    let all = Grant::Tenant(vec!["/".into()]);
    assert!(all.sees("/t") && !all.sees_all() && Grant::See.sees_all());
    assert_eq!([two, three, own + 4].map(|uid| rules.role(&user(uid))), [Grant::See, Grant::None, Grant::None]);
    assert_eq!([0, own].map(|uid| rules.role(&user(uid))), [Grant::Change, Grant::Change]);
    assert_eq!(rules.role(&peer(None, Some("10.0.0.1"))), Grant::None);
    for (text, role) in [("secret", Grant::Change), ("Secret", Grant::None), ("", Grant::None)] {
        let token = Token::new(text);
        assert_eq!(rules.role(&Peer { token: Some(token), ..user(three) }), role);
        assert_eq!(rules.knows(token), role == Grant::Change);
    }
}

/// access.1, role.3
#[test]
fn a_token_is_kept_as_its_digest_and_bounds_no_exports() {
    let token: Token = "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b".parse().unwrap();
    assert_eq!((token, token.to_string()), (Token::new("secret"), "sha256:2bb80d53…".into()));
    assert!("secret".parse::<Token>().is_err());
    let mut a_rule = rule("t", |rule| (rule.token, rule.group) = (Some(token), Some("/a".into())));
    assert_eq!(a_rule.check().unwrap_err().0, "token");
    a_rule.control = Some(Control::Tenant);
    a_rule.check().unwrap();
    assert_eq!(access(&[a_rule]).of(&peer(Some((1, 1)), None)).of("b", "/b"), Some(Right::Write));
}

const EXPORTS: [(&str, &str); 6] =
    [("a", "/t/a"), ("a2", "/t/a/2"), ("b", "/t/b"), ("bare", "/t"), ("root", "/"), ("ab", "/t/ab")];

fn any_rule() -> impl Strategy<Value = Rule> {
    let known = (
        prop::option::of(0..3_u32),
        prop::option::of(0..3_u32),
        prop::option::of(prop::sample::select(vec!["/", "/s", "/s/a", "/s/a/b", "/x"])),
        prop::option::of(prop::sample::select(vec!["10.0.0.0/31", "10.0.0.1", "0.0.0.0/0", "::/0"])),
        prop::option::of(prop::sample::select(vec!["unix:/run/a", "unix:/run/b"])),
    );
    let may = (
        prop::collection::btree_set(prop::sample::select(vec!["a", "a2", "b", "bare", "none"]), 0..3),
        prop::option::of(prop::sample::select(vec!["/", "/t", "/t/a", "/t/b", "/t/a/2", "/x"])),
        any::<bool>(),
    );
    (known, may).prop_map(|((uid, gid, cgroup, address, listener), (exports, group, read_only))| Rule {
        uid,
        gid,
        cgroup: cgroup.map(|text| text.parse().unwrap()),
        address: address.map(|text| text.parse().unwrap()),
        listener: listener.map(Into::into),
        exports: exports.into_iter().map(Into::into).collect(),
        group: group.map(Into::into),
        read_only,
        ..Rule::default()
    })
}

fn any_peer() -> impl Strategy<Value = Peer> {
    let cgroup = prop::option::of(prop::sample::select(vec!["/", "/s", "/s/a", "/s/ab", "/s/a/b/c"]));
    let user = (0..3_u32, 0..3_u32, cgroup).prop_map(|(uid, gid, cgroup)| (Some((uid, gid)), None, cgroup));
    let address = prop::sample::select(vec!["10.0.0.0", "10.0.0.1", "10.0.0.2", "::1", "::ffff:10.0.0.1"]);
    let address = address.prop_map(|text| (None, Some(text), None));
    (prop_oneof![user, address], prop::sample::select(vec!["unix:/run/a", "unix:/run/b"])).prop_map(
        |((user, address, cgroup), at)| {
            let cgroup = cgroup.map(|text| text.parse().unwrap());
            Peer { listener: at.into(), cgroup, ..peer(user, address) }
        },
    )
}

/// Whether a rule is about a client and an export, said in the dullest way.
fn is_about(rule: &Rule, peer: &Peer, (export, group): (&str, &str)) -> bool {
    let (uid, gid) = peer.user.map_or((None, None), |(uid, gid)| (Some(uid), Some(gid)));
    if rule.uid.is_some() && rule.uid != uid || rule.gid.is_some() && rule.gid != gid {
        return false;
    }
    let parts = |path: &str| path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    if let Some(above) = &rule.cgroup {
        let Some(its) = &peer.cgroup else { return false };
        if !parts(&its.to_string()).starts_with(&parts(&above.to_string())) {
            return false;
        }
    }
    if rule.listener.is_some() && rule.listener.as_ref() != Some(&peer.listener) {
        return false;
    }
    if let Some(network) = rule.address {
        let Some(address) = peer.address.map(|address| address.to_canonical().to_string()) else { return false };
        let inside: &[&str] = match network.to_string().as_str() {
            "10.0.0.0/31" => &["10.0.0.0", "10.0.0.1"],
            "10.0.0.1" => &["10.0.0.1"],
            "0.0.0.0/0" => &["10.0.0.0", "10.0.0.1", "10.0.0.2"],
            _ => &["::1"],
        };
        if !inside.contains(&&*address) {
            return false;
        }
    }
    rule.exports.contains(export) || rule.group.as_ref().is_some_and(|above| parts(group).starts_with(&parts(above)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    /// access.1, access.2, access.3: the rights of clients are those of a dull model, before and after another set of rules.
    #[test]
    fn clients_may_what_the_rules_say(
        sets in prop::collection::vec(prop::collection::vec(any_rule(), 0..5), 1..4),
        peer in any_peer(),
    ) {
        let mut access = Access::default();
        for rules in &sets {
            access = Access::new(rules, &Arc::default(), &access);
            for export in EXPORTS {
                let about: Vec<_> = rules.iter().filter(|rule| is_about(rule, &peer, export)).collect();
                let wanted = match &about[..] {
                    _ if rules.iter().all(|rule| rule.exports.is_empty() && rule.group.is_none()) => Some(Right::Write),
                    [] => None,
                    about if about.iter().all(|rule| rule.read_only) => Some(Right::Read),
                    _ => Some(Right::Write),
                };
                let rights = access.of(&peer);
                let new = || Entry { right: Right::Read, counted: None };
                let got = (rights.of(export.0, export.1), rights.keep(export.0, export.1, &new()).map(|entry| entry.right));
                prop_assert_eq!(got, (wanted, wanted), "{:?} {:?}", export, about);
            }
        }
    }
}
