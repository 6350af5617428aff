//! Many simultaneous connects, and the number of verifications that they cause.

use std::sync::mpsc;

use dunlin_engine::event::ConnectionClaims;

use super::{families::Signer, *};

/// Asks as a shard does: at once, and elsewhere if need be.
fn ask(verifier: &Verifier, token: &str, now_s: u64, sender: &mpsc::Sender<Result<ConnectionClaims, TokenError>>) {
    match verifier.verify_connection(token, now_s) {
        Judged::Now(outcome) => sender.send(outcome).unwrap(),
        Judged::Elsewhere => {
            let sender = sender.clone();
            let answer = Box::new(move |answer| match answer {
                TokenAnswer::Connection(outcome) => drop(sender.send(outcome)),
                TokenAnswer::Subscription(_) => panic!("a connection token was asked about"),
            });
            verifier.verify_elsewhere(TokenRequest { kind: TokenKind::Connection, token: token.into(), answer });
        }
    }
}

fn ec_verifier(signer: &Signer, options: TokenOptions) -> Verifier {
    let ecdsa = Some(PublicKey::ec_from_pem(&signer.pem()).unwrap());
    with_options(&TokenOptions { connection: TokenKeys { ecdsa, ..TokenKeys::default() }, ..options })
}

fn tokens(signer: &Signer, count: usize) -> Vec<String> {
    let header = r#"{"alg":"ES256"}"#;
    (0..count).map(|user| signer.sign(header, &format!(r#"{{"sub":"{user}","exp":4000000000}}"#))).collect()
}

#[test]
fn ten_thousand_connects_with_a_hundred_tokens_check_a_hundred_signatures() {
    let signer = Signer::ec("P-256");
    let verifier = ec_verifier(&signer, TokenOptions::default());
    let tokens = tokens(&signer, 100);
    let (sender, receiver) = mpsc::channel();
    for connect in 0..10_000 {
        ask(&verifier, &tokens[connect % 100], NOW_MS, &sender);
    }
    let mut by_user = [0; 100];
    for _ in 0..10_000 {
        let claims = receiver.recv().unwrap().unwrap();
        by_user[claims.user.parse::<usize>().unwrap()] += 1;
    }
    assert_eq!(by_user, [100; 100]);
    let counts = verifier.counters().now();
    assert_eq!((counts.signatures, counts.accepted, counts.waiting), (100, 10_000, 0));
    assert_eq!(counts.cache_hits + counts.cache_misses, 10_000);
    // From here on the cache has all results.
    for token in &tokens {
        assert!(matches!(verifier.verify_connection(token, NOW_MS), Judged::Now(Ok(_))));
    }
    // What is remembered expires with its token.
    assert!(matches!(verifier.verify_connection(&tokens[0], 4_000_000_000_000), Judged::Now(Err(TokenError::Expired))));
}

#[test]
fn waiting_tokens_are_limited() {
    let signer = Signer::ec("P-256");
    let (waiting_max, cache_bytes_max) = (3, 0);
    let verifier = ec_verifier(&signer, TokenOptions { waiting_max, cache_bytes_max, ..TokenOptions::default() });
    let token = &tokens(&signer, 1)[0];
    // The first three answers hold the thread up until they are read.
    let (sender, receiver) = mpsc::sync_channel(0);
    let ask = || {
        let sender = sender.clone();
        let answer = Box::new(move |answer| drop(sender.send(answer)));
        verifier.verify_elsewhere(TokenRequest { kind: TokenKind::Connection, token: token.as_str().into(), answer });
    };
    // One is being answered and no longer waits as soon as its turn has come.
    ask();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while verifier.counters().now().waiting > 0 {
        assert!(std::time::Instant::now() < deadline, "its turn never came");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    for _ in 0..waiting_max {
        ask();
    }
    assert_eq!(verifier.counters().now().waiting, 3);
    let (busy_sender, busy_receiver) = mpsc::channel();
    let answer = Box::new(move |answer| drop(busy_sender.send(answer)));
    verifier.verify_elsewhere(TokenRequest { kind: TokenKind::Connection, token: token.as_str().into(), answer });
    let busy = busy_receiver.try_recv();
    assert!(matches!(busy, Ok(TokenAnswer::Connection(Err(TokenError::Unavailable)))), "{busy:?}");
    for _ in 0..=waiting_max {
        assert!(matches!(receiver.recv(), Ok(TokenAnswer::Connection(Ok(_)))));
    }
}

#[test]
fn a_token_that_is_refused_is_refused_again() {
    let signer = Signer::ec("P-256");
    let verifier = ec_verifier(&signer, TokenOptions::default());
    let forged = &tokens(&Signer::ec("P-256"), 1)[0];
    let expired = signer.sign(r#"{"alg":"ES256"}"#, r#"{"exp":1}"#);
    for _ in 0..2 {
        assert_eq!(verifier.judge_connection(forged, NOW_MS).err(), Some(TokenFault::Signature));
        assert_eq!(verifier.judge_connection(&expired, NOW_MS).err(), Some(TokenFault::Time));
    }
}
