use std::net::IpAddr;

use dunlin_matchmaking::MatchRules;

use super::*;

const LIMITED: Result<(), TicketFault> = Err(TicketFault::RateLimited);
const CROWDED: Result<(), TicketFault> = Err(TicketFault::AddressLimited);

fn requesters(tickets_per_second: u32, address_users_max: u32) -> Requesters {
    let rules = MatchRules { tickets_max: 10, ..MatchRules::default() };
    Requesters::new(&MatchSettings { tickets_per_second, address_users_max, rules, ..MatchSettings::default() })
}

fn from(user: &str, address: &str) -> TicketRequester {
    let source = address.parse::<IpAddr>().ok().map(SourceNetwork::of);
    TicketRequester { user: user.into(), source }
}

fn no_ticket_waits(_: TicketId) -> bool {
    false
}

#[test]
fn one_request_more_than_the_rate_is_refused() {
    let mut requesters = requesters(2, 0);
    let (ada, bob) = (from("ada", ""), from("bob", ""));
    assert_eq!([0, 0].map(|now_us| requesters.try_take(&ada, now_us)), [Ok(()), Ok(())]);
    assert_eq!(requesters.try_take(&ada, 499_999), LIMITED, "the third");
    assert_eq!(requesters.try_take(&bob, 499_999), Ok(()), "another user");
    assert_eq!(requesters.try_take(&ada, 500_000), Ok(()), "half a second later");
    assert_eq!(requesters.try_take(&ada, 500_000), LIMITED);
    assert_eq!(requesters.refused(), RequestsRefused { by_rate: 2, by_address: 0 });
    let mut unlimited = self::requesters(0, 0);
    assert!((0..1_000).all(|_| unlimited.try_take(&ada, 0).is_ok()));
    assert!(unlimited.users.is_empty(), "nothing is remembered");
}

#[test]
fn the_table_is_bounded_and_its_memory_is_returned() {
    let mut requesters = requesters(1, 0);
    let user = |index: usize| from(&index.to_string(), "");
    let users_max = USERS_MAX + 10;
    assert!((0..users_max).all(|index| requesters.try_take(&user(index), 0).is_ok()));
    assert_eq!(requesters.try_take(&user(users_max), 0), LIMITED, "one user too many");
    requesters.sweep(999_999, no_ticket_waits);
    assert_eq!(requesters.users.len(), users_max);
    requesters.sweep(1_000_000, no_ticket_waits);
    assert!(requesters.users.is_empty());
    assert_eq!(requesters.try_take(&user(users_max), 1_000_000), Ok(()));
}

#[test]
fn one_user_more_of_an_address_is_refused() {
    let mut requesters = requesters(1, 2);
    for user in ["ada", "bob"] {
        assert_eq!(requesters.try_take(&from(user, "192.0.2.1"), 0), Ok(()), "{user}");
    }
    assert_eq!(requesters.try_take(&from("cat", "192.0.2.1"), 0), CROWDED);
    assert_eq!(requesters.try_take(&from("cat", "::ffff:192.0.2.1"), 0), CROWDED, "the same address as IPv6");
    assert_eq!(requesters.refused(), RequestsRefused { by_rate: 0, by_address: 2 });
    // A refused user has no entry, so its bucket is full at another address.
    assert_eq!(requesters.try_take(&from("cat", "192.0.2.2"), 0), Ok(()));
    assert_eq!(requesters.try_take(&from("dan", ""), 0), Ok(()), "an unknown address");
    assert_eq!(requesters.try_take(&from("ada", "192.0.2.1"), 0), LIMITED, "a counted user has its rate alone");
    assert_eq!(requesters.try_take(&from("ada", "192.0.2.1"), 1_000_000), Ok(()));
    requesters.sweep(1_000_000, no_ticket_waits);
    assert_eq!(requesters.try_take(&from("cat", "192.0.2.1"), 1_000_000), Ok(()), "the place of bob");
    assert_eq!(requesters.try_take(&from("bob", "192.0.2.1"), 1_000_000), CROWDED);
    requesters.sweep(2_000_000, no_ticket_waits);
    assert!(requesters.users.is_empty() && requesters.sources.is_empty());
}

#[test]
fn addresses_of_one_ipv6_network_count_together() {
    let mut requesters = requesters(1, 1);
    assert_eq!(requesters.try_take(&from("ada", "2001:db8:0:1::1"), 0), Ok(()));
    assert_eq!(requesters.try_take(&from("bob", "2001:db8:0:1:ffff::2"), 0), CROWDED);
    assert_eq!(requesters.try_take(&from("bob", "2001:db8:0:2::1"), 0), Ok(()));
}

#[test]
fn a_user_counts_while_its_ticket_waits() {
    // A rate of 0 disables the rate limit, but not the limit per address.
    for rate in [0, 1] {
        let mut requesters = requesters(rate, 1);
        let (ada, bob) = (from("ada", "192.0.2.1"), from("bob", "192.0.2.1"));
        assert_eq!(requesters.try_take(&ada, 0), Ok(()));
        // The backend's decision takes long.
        requesters.sweep(5_000_000, no_ticket_waits);
        assert_eq!(requesters.renew(&ada), Ok(()));
        requesters.hold("ada", TicketId(7));
        requesters.sweep(6_000_000, |ticket| ticket == TicketId(7));
        assert_eq!(requesters.try_take(&bob, 6_000_000), CROWDED);
        assert_eq!(requesters.renew(&bob), CROWDED, "the backend has answered for bob");
        requesters.sweep(6_000_000, no_ticket_waits);
        assert_eq!(requesters.try_take(&bob, 6_000_000), Ok(()));
    }
}

#[test]
fn a_user_counts_for_the_address_of_its_newest_request() {
    let mut requesters = requesters(10, 1);
    assert_eq!(requesters.try_take(&from("ada", "192.0.2.1"), 0), Ok(()));
    assert_eq!(requesters.try_take(&from("ada", "192.0.2.2"), 0), Ok(()));
    assert_eq!(requesters.try_take(&from("bob", "192.0.2.2"), 0), CROWDED);
    assert_eq!(requesters.try_take(&from("bob", "192.0.2.1"), 0), Ok(()));
    assert_eq!(requesters.try_take(&from("ada", "192.0.2.1"), 0), CROWDED, "bob has that place");
}
