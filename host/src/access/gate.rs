//! Gate: how many clients of one address the server hears out before it knows them.
//!
//! A stranger costs a worker more than it costs the stranger: a TLS handshake with a wrong certificate takes about a millisecond, and a
//! client that stays silent has a place for `handshake_timeout`. Example: a script at 192.0.2.7 tries certificates 1,000 times a
//! second. The first hundred are heard, then ten a second; the others are closed as soon as they are accepted, before the greeting.
//!
//! gate.1  An address, a /64 network of IPv6 or a user at a unix socket, has a debt: each client that fails adds to it, and it is paid
//!         off at `handshake_failures` a second. While ten seconds' worth are owed nobody of that address is let in.
//! gate.2  A client that opens an export costs nothing. A client that leaves without one costs a hundredth of a failure, with TLS a tenth,
//!         and each option beyond those that honest clients ask for costs a hundredth.
//! gate.3  Of one address at most `handshake_clients` negotiate at once, and never more than half of `max_connections`.
//! gate.4  The table of addresses has a fixed capacity. An address that owes nothing and has nobody here gives way first, then those that
//!         owe least. So strangers from many addresses make nobody's debt be forgotten that is larger than theirs.
//!
//! The clock is read and the lock taken where a client is accepted and where its negotiation ends, never for a request.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use fairlift_core::time::secs;
use fairlift_core::{Duration, Instant};

use super::Peer;
use crate::quiet::{self, Quiet};
use crate::sync::{Mutex, lock};

/// How much one address may owe, as the time in which it is paid off. Chosen: a hundred mistakes in a row by default, as of a host whose
/// certificate has expired and whose machines all come again; then that host waits seconds, not minutes.
const BURST: Duration = secs(10);

/// Addresses that owe something and have nobody here, beside those that have. Chosen: 64 KiB of them.
const KEPT: usize = 1024;

/// Options that honest clients ask for: those seen ask for up to eight.
const OPTIONS: u32 = 16;

/// A failure, in the unit of costs.
const FAILURE: u64 = 100;

/// The unit that the gate and the log count as one client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Origin {
    User(u32),
    V4(Ipv4Addr),
    /// A /64 network: the owner of one address in it has all.
    V6([u8; 8]),
    Unknown,
}

impl From<&Peer> for Origin {
    fn from(peer: &Peer) -> Self {
        match (peer.user, peer.address.map(|address| address.to_canonical())) {
            (Some((uid, _)), _) => Self::User(uid),
            (None, Some(IpAddr::V4(address))) => Self::V4(address),
            (None, Some(IpAddr::V6(address))) => Self::V6(*address.octets().first_chunk().expect("16 bytes")),
            (None, None) => Self::Unknown,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    Failures,
    Clients,
    Bytes,
}

impl Why {
    const ALL: [Self; 3] = [Self::Failures, Self::Clients, Self::Bytes];

    const fn says(self) -> (&'static str, &'static str) {
        match self {
            Self::Failures => ("failures", "too many of its handshakes have failed (handshake_failures)"),
            Self::Clients => ("clients", "it has as many that negotiate as it may have (handshake_clients)"),
            Self::Bytes => ("bytes", "it has sent too much before it chose an export (handshake_bytes)"),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Visit {
    pub(crate) opened: bool,
    pub(crate) failed: bool,
    pub(crate) tls: bool,
    pub(crate) options: u32,
}

impl Visit {
    /// gate.2
    fn cost(self) -> u64 {
        let way = match self {
            Self { opened: true, .. } => 0,
            Self { failed: true, .. } => FAILURE,
            Self { tls: true, .. } => FAILURE / 10,
            _ => 1,
        };
        way + u64::from(self.options.saturating_sub(OPTIONS))
    }
}

#[derive(Clone, Copy, Debug)]
struct Account {
    /// When its debt is paid off.
    paid: Instant,
    negotiating: u32,
}

/// Admission of clients, as data: no clock.
#[derive(Debug)]
struct Book {
    /// How long a unit of cost is owed; `None`: failures are free.
    unit: Option<Duration>,
    clients: u32,
    capacity: usize,
    accounts: HashMap<Origin, Account>,
    logged: Quiet<Origin>,
    turned_away: [u64; Why::ALL.len()],
}

impl Book {
    fn new(connections: u32, failures: u32, clients: u32) -> Self {
        let unit = secs(1).as_nanos() / FAILURE;
        Self {
            unit: unit.checked_div(failures.into()).map(Duration::from_nanos),
            clients: clients.min(connections / 2).max(1),
            // Those that have somebody here are at most as many as connections.
            capacity: connections as usize + KEPT,
            accounts: HashMap::new(),
            logged: Quiet::default(),
            turned_away: Default::default(),
        }
    }

    fn enter(&mut self, now: Instant, origin: Origin) -> Result<(), Why> {
        if self.accounts.len() >= self.capacity && !self.accounts.contains_key(&origin) {
            self.make_room(now);
        }
        let account = self.accounts.entry(origin).or_insert(Account { paid: now, negotiating: 0 });
        if account.paid.since(now) >= BURST {
            return Err(Why::Failures);
        }
        if account.negotiating >= self.clients {
            return Err(Why::Clients);
        }
        account.negotiating += 1;
        Ok(())
    }

    fn leave(&mut self, now: Instant, origin: Origin, cost: u64) {
        let account = self.accounts.get_mut(&origin).expect("an account stays while one of its clients is here");
        account.negotiating -= 1;
        if let Some(unit) = self.unit {
            account.paid = account.paid.max(now) + Duration::from_nanos(unit.as_nanos() * cost);
        }
    }

    /// gate.4. A quarter at a time, so that a look at all is rare.
    fn make_room(&mut self, now: Instant) {
        let is_here = |account: &Account| account.negotiating > 0;
        self.accounts.retain(|_, account| is_here(account) || account.paid > now);
        if self.accounts.len() >= self.capacity {
            let away = self.accounts.values().filter(|account| !is_here(account));
            let mut debts: Vec<_> = away.map(|account| account.paid).collect();
            debts.sort_unstable();
            let least = debts[debts.len() / 4];
            self.accounts.retain(|_, account| is_here(account) || account.paid > least);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Gate(Mutex<Book>);

impl Gate {
    /// A gate of a server with at most `connections` connections, and with the limits `handshake_failures` and `handshake_clients`.
    pub(crate) fn new(connections: u32, failures: u32, clients: u32) -> Self {
        Self(Mutex::new(Book::new(connections, failures, clients)))
    }

    /// Whether a client that has come is heard; it [leaves](Self::leave) then, in the end.
    pub(crate) fn enter(&self, now: Instant, peer: &Peer) -> bool {
        let entered = lock(&self.0).enter(now, peer.into());
        entered.inspect_err(|why| self.turn_away(now, peer, *why)).is_ok()
    }

    /// A negotiation has ended.
    pub(crate) fn leave(&self, now: Instant, peer: &Peer, visit: Visit) {
        lock(&self.0).leave(now, peer.into(), visit.cost());
    }

    /// Counts a client that is closed unheard, and tells of it once a minute for each address.
    #[cold]
    pub(crate) fn turn_away(&self, now: Instant, peer: &Peer, why: Why) {
        let mut book = lock(&self.0);
        book.turned_away[why as usize] += 1;
        let logged = book.logged.tell(now, peer.into());
        drop(book);
        if let Some(untold) = logged {
            let (client, at, more) = (&peer.shown, &peer.listener, quiet::more(untold));
            tracing::warn!("turned away: {client} at {at}: {}{more}", why.says().1);
        }
    }

    pub(crate) fn turned_away(&self) -> Vec<(&'static str, u64)> {
        let book = lock(&self.0);
        Why::ALL.map(|why| (why.says().0, book.turned_away[why as usize])).into()
    }
}

#[cfg(test)]
mod tests {
    use fairlift_core::time::ms;
    use proptest::prelude::*;

    use super::*;

    fn at(time: Duration) -> Instant {
        Instant::ZERO + time
    }

    const FAILED: Visit = Visit { opened: false, failed: true, tls: false, options: 1 };

    /// gate.1
    #[test]
    fn after_a_hundred_failures_ten_a_second_are_heard() {
        let (mut book, one) = (Book::new(100, 10, 4), Origin::User(7));
        let mut heard = |from: u64, count: u64| {
            let tries = (0..count).map(|n| at(ms(from + n)));
            tries.filter(|now| book.enter(*now, one).map(|()| book.leave(*now, one, FAILED.cost())).is_ok()).count()
        };
        assert_eq!(heard(0, 1000), 110, "those of the first second");
        assert_eq!([heard(1000, 1000), heard(2000, 1000)], [10, 10]);
        assert_eq!(heard(60_000, 1000), 110, "a minute later");
    }

    /// gate.2
    #[test]
    fn who_opens_an_export_costs_nothing_and_who_asks_too_much_does() {
        let visit = Visit { opened: true, failed: false, tls: true, options: 8 };
        assert_eq!(visit.cost(), 0);
        assert_eq!(
            [Visit { opened: false, ..visit }.cost(), Visit { opened: false, tls: false, ..visit }.cost()],
            [10, 1]
        );
        assert_eq!([FAILED.cost(), Visit { options: 256, ..visit }.cost()], [100, 240]);
    }

    /// gate.3
    #[test]
    fn one_address_takes_no_more_than_half_of_the_places() {
        let mut book = Book::new(8, 10, 1024);
        let [one, other] = [Origin::V6([1; 8]), Origin::V6([2; 8])];
        let entered = [(); 5].map(|()| book.enter(at(ms(0)), one));
        assert_eq!(entered, [Ok(()), Ok(()), Ok(()), Ok(()), Err(Why::Clients)]);
        assert_eq!(book.enter(at(ms(0)), other), Ok(()));
        book.leave(at(ms(0)), one, 0);
        assert_eq!(book.enter(at(ms(0)), one), Ok(()));
    }

    /// gate.4
    #[test]
    fn any_number_of_addresses_take_a_fixed_number_of_places_and_forget_no_larger_debt() {
        let (mut book, large) = (Book::new(8, 10, 4), Origin::Unknown);
        for _ in 0..90 {
            book.enter(at(ms(0)), large).unwrap();
            book.leave(at(ms(0)), large, FAILED.cost());
        }
        let waits = Origin::User(u32::MAX);
        book.enter(at(ms(0)), waits).unwrap();
        for n in 0..5000 {
            book.enter(at(ms(0)), Origin::User(n)).unwrap();
            book.leave(at(ms(0)), Origin::User(n), FAILED.cost());
            assert!(book.accounts.len() <= 8 + KEPT, "{} accounts", book.accounts.len());
        }
        assert_eq!(book.accounts[&large].paid, at(secs(9)));
        assert_eq!(book.accounts[&waits].negotiating, 1);
        // A second later most owe nothing, and make room at once.
        for n in 0..KEPT as u32 {
            book.enter(at(secs(1)), Origin::User(n)).unwrap();
            book.leave(at(secs(1)), Origin::User(n), 0);
        }
        assert!(book.accounts.len() <= 8 + KEPT && book.accounts.contains_key(&large));
    }

    #[test]
    fn an_address_is_one_however_it_is_written() {
        let of = |address: &str| Origin::from(&Peer { address: Some(address.parse().unwrap()), ..Peer::default() });
        assert_eq!(of("192.0.2.7"), of("::ffff:192.0.2.7"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert!(of("2001:db8::1") != of("2001:db8:0:1::1") && of("192.0.2.7") != of("192.0.2.8"));
        assert_eq!(Origin::from(&Peer { user: Some((7, 8)), ..Peer::default() }), Origin::User(7));
    }

    /// The dullest gate: it keeps all that has happened, and counts it anew for each question.
    #[derive(Default)]
    struct Dull(Vec<(u64, u32, Option<u64>)>);

    impl Dull {
        fn enter(&mut self, now: u64, who: u32, (failures, clients): (u64, usize)) -> Result<(), Why> {
            let of = self.0.iter().filter(|(_, other, _)| *other == who);
            let (mut owed, mut last, mut here) = (0, 0, 0);
            for (at, _, cost) in of {
                here += if cost.is_some() { -1 } else { 1 };
                owed =
                    u64::saturating_sub(owed, at - last) + cost.map_or(0, |cost| cost * 1_000_000_000 / 100 / failures);
                last = *at;
            }
            if owed.saturating_sub(now - last) >= 10_000_000_000 {
                return Err(Why::Failures);
            }
            if here >= clients as i32 {
                return Err(Why::Clients);
            }
            self.0.push((now, who, None));
            Ok(())
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// gate.1, gate.3: the book says the same as the dull gate.
        #[test]
        fn the_gate_says_what_a_dull_one_says(
            failures in prop::sample::select(vec![1_u32, 2, 5, 10, 100]),
            clients in 1..5_u32,
            steps in prop::collection::vec((0..4_u32, any::<bool>(), 0..1500_u64, 0..340_u64), 1..200),
        ) {
            let (mut book, mut dull) = (Book::new(100, failures, clients), Dull::default());
            let (mut now, mut here) = (Instant::ZERO, Vec::new());
            for (who, leaves, pause, cost) in steps {
                now += ms(pause);
                match here.iter().position(|one| *one == who).filter(|_| leaves) {
                    Some(one) => {
                        here.swap_remove(one);
                        book.leave(now, Origin::User(who), cost);
                        dull.0.push((now.as_nanos(), who, Some(cost)));
                    }
                    None => {
                        let got = book.enter(now, Origin::User(who));
                        prop_assert_eq!(got, dull.enter(now.as_nanos(), who, (failures.into(), clients as usize)));
                        if got.is_ok() {
                            here.push(who);
                        }
                    }
                }
            }
        }
    }
}
