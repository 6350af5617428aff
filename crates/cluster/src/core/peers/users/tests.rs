use super::*;

const PAYLOAD_BYTES_MAX: usize = 1 << 20;
const USERS_MAX: usize = 1_000;

fn body(message: &Bytes) -> UserSessionsBody {
    serde_json::from_slice(message).expect("it is JSON")
}

/// Delivers the next message to another node.
fn pass(from: &mut SharedUsers, to: &mut SharedUsers) {
    if let Some(message) = from.next_message(PAYLOAD_BYTES_MAX) {
        to.take("a", body(&message), USERS_MAX);
    }
}

fn sessions(users: &SharedUsers) -> Vec<(&str, u32)> {
    users.totals.iter().map(|(user, sessions)| (&**user, *sessions)).collect()
}

#[test]
fn later_cycles_repair_lost_messages() {
    let (mut a, mut b) = (SharedUsers::default(), SharedUsers::default());
    assert_eq!(a.next_message(PAYLOAD_BYTES_MAX), None, "nothing is shared without a limit");
    a.set_own("ann".into(), 1);
    a.set_own("bob".into(), 2);
    let lost = a.next_message(PAYLOAD_BYTES_MAX).expect("the changes");
    assert_eq!(body(&lost).users.len(), 4, "two changes, and the cycle");
    pass(&mut a, &mut b);
    assert_eq!(sessions(&b), [("ann", 1), ("bob", 2)]);
    // The message that a user has left is lost as well.
    a.set_own("bob".into(), 0);
    a.next_message(PAYLOAD_BYTES_MAX);
    for _ in 0..2 {
        pass(&mut a, &mut b);
    }
    assert_eq!(sessions(&b), [("ann", 1)]);
    a.set_own("ann".into(), 0);
    pass(&mut a, &mut b);
    assert_eq!((sessions(&b), b.counted), (Vec::new(), 0));
}

#[test]
fn many_users_span_several_messages_without_duplicates() {
    let mut a = SharedUsers::default();
    let users = REPEATED_MAX * 2 + 1;
    for user in 0..users {
        a.set_own(format!("user-{user}").into(), 1);
    }
    while !a.changed.is_empty() {
        a.next_message(PAYLOAD_BYTES_MAX);
    }
    let first = a.cycle + 1;
    let mut b = SharedUsers::default();
    while a.cycle < first {
        a.next_message(PAYLOAD_BYTES_MAX);
    }
    let mut named = 0;
    while a.cycle == first {
        let message = a.next_message(PAYLOAD_BYTES_MAX).expect("it goes on");
        named += body(&message).users.len();
        b.take("a", body(&message), usize::MAX);
    }
    assert_eq!((named, b.totals.len()), (users, users));
    // A small message contains as much as fits, and the rest follows later.
    let mut seen = BTreeSet::new();
    a.repeat_all();
    while !a.changed.is_empty() {
        let message = a.next_message(4_096).expect("it goes on");
        assert!(message.len() <= 4_096, "{} bytes", message.len());
        seen.extend(body(&message).users.into_iter().map(|(user, _)| user));
    }
    assert_eq!(seen.len(), users);
}

#[test]
fn users_past_the_limit_are_not_counted() {
    let mut b = SharedUsers::default();
    let message = |users: &[&str]| UserSessionsBody {
        v: 1,
        cycle: 0,
        number: 0,
        users: users.iter().map(|user| ((*user).into(), 1)).collect(),
    };
    b.take("a", message(&["ann", "bob"]), 2);
    assert_eq!((sessions(&b).len(), b.uncounted), (2, 0));
    b.take("a", message(&["cid", "bob"]), 2);
    assert_eq!((sessions(&b), b.uncounted), (vec![("ann", 1), ("bob", 1)], 1));
    // Ids that no node shares are not counted either.
    let long = "x".repeat(USER_BYTES_MAX + 1);
    b.take("c", message(&[&long, ""]), 10);
    assert_eq!((sessions(&b).len(), b.uncounted), (2, 3));
    let mut a = SharedUsers::default();
    a.set_own(long.into(), 1);
    assert!(body(&a.next_message(PAYLOAD_BYTES_MAX).expect("a message")).users.is_empty());
}
