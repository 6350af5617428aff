//! Key sets fetched from a real HTTP server.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex, mpsc},
    thread,
};

use super::{families::Signer, *};

/// Publishes the given key sets, one for each request, and counts the requests.
struct Publisher {
    address: SocketAddr,
    paths: Arc<Mutex<Vec<String>>>,
    response: Arc<Mutex<String>>,
    /// Each answer waits for a word from here, if there is one.
    gate: Option<mpsc::Sender<()>>,
}

impl Publisher {
    fn start(keys: &[serde_json::Value], gated: bool) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (paths, response) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<Mutex<String>>::default());
        let (sender, gate) = mpsc::channel();
        let (seen, answer) = (Arc::clone(&paths), Arc::clone(&response));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut head = Vec::new();
                let mut piece = [0; 1_024];
                while !head.windows(4).any(|window| window == b"\r\n\r\n") {
                    match stream.read(&mut piece) {
                        Ok(count) if count > 0 => head.extend_from_slice(&piece[..count]),
                        _ => break,
                    }
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                seen.lock().unwrap().push(head.split(' ').nth(1).unwrap_or_default().to_owned());
                if gated && gate.recv().is_err() {
                    return;
                }
                let response = answer.lock().unwrap().clone();
                let _ = stream.write_all(response.as_bytes());
            }
        });
        let publisher = Self { address, paths, response, gate: gated.then_some(sender) };
        publisher.publish(keys, "");
        publisher
    }

    fn publish(&self, keys: &[serde_json::Value], field: &str) {
        let body = serde_json::json!({ "keys": keys }).to_string();
        *self.response.lock().unwrap() =
            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{field}Connection: close\r\n\r\n{body}", body.len());
    }

    fn answer(&self, response: &str) {
        *self.response.lock().unwrap() = response.to_owned();
    }

    fn fetches(&self) -> usize {
        self.paths.lock().unwrap().len()
    }

    fn options(&self, path: &str, rules: &Rules) -> JwksOptions {
        let endpoint = format!("http://{}{path}", self.address);
        JwksOptions {
            endpoint: Endpoint::parse(&endpoint, rules, true).unwrap(),
            timeout_ms: 30_000,
            response_bytes_max: 10_000,
            cache_min_ms: 60_000,
            cache_max_ms: 3_600_000,
            is_unsafe_allowed: true,
        }
    }

    fn verifier(&self) -> Verifier {
        Self::verifier_with(self.options("/keys", &Rules::default()), Rules::default())
    }

    fn verifier_with(options: JwksOptions, rules: Rules) -> Verifier {
        with_keys(TokenKeys { jwks: Some(Arc::new(options)), rules, ..TokenKeys::default() })
    }
}

fn sign(signer: &Signer, alg: &str, key_id: &str) -> String {
    signer.sign(&format!(r#"{{"alg":"{alg}","kid":"{key_id}"}}"#), r#"{"sub":"42"}"#)
}

#[test]
fn every_family_verifies_with_one_fetch() {
    let (ed, p256, p384, p521) = (Signer::ed(), Signer::ec("P-256"), Signer::ec("P-384"), Signer::ec("P-521"));
    let rsa = Signer::rsa(aws_lc_rs::rsa::KeySize::Rsa2048);
    let secret = serde_json::json!({"kty": "oct", "kid": "oct", "k": encode(SECRET)});
    let odd = [secret, serde_json::json!({"kty": "XY", "kid": "x"}), serde_json::json!(7), serde_json::json!({})];
    let jwks = [rsa.jwk("r"), p256.jwk("a"), p384.jwk("b"), p521.jwk("c"), ed.jwk("e")];
    let publisher = Publisher::start(&[&odd[..], &jwks[..]].concat(), false);
    let verifier = publisher.verifier();
    for (signer, alg, key_id) in [
        (&rsa, "RS256", "r"),
        (&rsa, "RS384", "r"),
        (&rsa, "RS512", "r"),
        (&p256, "ES256", "a"),
        (&p384, "ES384", "b"),
        (&p521, "ES512", "c"),
        (&ed, "EdDSA", "e"),
    ] {
        let judged = verifier.judge_connection(&sign(signer, alg, key_id), NOW_MS);
        assert_eq!(judged.unwrap().user, "42", "{alg}");
    }
    // A key of another kind, a signature of another's, no name, the set's secret, and a secret of ours.
    for (token, fault) in [
        (sign(&ed, "EdDSA", "a"), TokenFault::Algorithm),
        (sign(&Signer::ed(), "EdDSA", "e"), TokenFault::Signature),
        (ed.sign(r#"{"alg":"EdDSA"}"#, "{}"), TokenFault::KeyId),
        (ed.sign(r#"{"alg":"EdDSA","kid":""}"#, "{}"), TokenFault::KeyId),
        (token_with(r#"{"alg":"HS256","kid":"oct"}"#, "{}", SECRET), TokenFault::Algorithm),
        (token("{}"), TokenFault::Algorithm),
    ] {
        assert_eq!(verifier.judge_connection(&token, NOW_MS).err(), Some(fault), "{fault:?}");
    }
    assert_eq!(publisher.fetches(), 1);
}

#[test]
fn unknown_key_names_cause_one_fetch_per_interval() {
    let signer = Signer::ed();
    let publisher = Publisher::start(&[signer.jwk("known")], false);
    let verifier = publisher.verifier();
    assert_eq!(
        verifier.judge_connection(&sign(&signer, "EdDSA", "unknown"), NOW_MS).err(),
        Some(TokenFault::UnknownKey)
    );
    assert_eq!(
        verifier.judge_connection(&sign(&signer, "EdDSA", "unknown"), NOW_MS).err(),
        Some(TokenFault::UnknownKey)
    );
    assert!(verifier.judge_connection(&sign(&signer, "EdDSA", "known"), NOW_MS).is_ok());
    // It may be a new key that nobody has looked for: its owner is to try again.
    for index in 0..100 {
        let token = sign(&signer, "EdDSA", &format!("guess-{index}"));
        assert_eq!(verifier.judge_connection(&token, NOW_MS).err(), Some(TokenFault::KeysUnavailable));
    }
    assert_eq!(publisher.fetches(), 1);
    assert_eq!(verifier.counters().now().fetches, 1);
}

#[test]
fn lookups_of_a_new_key_share_one_fetch() {
    let signer = Signer::ed();
    let publisher = Publisher::start(&[signer.jwk("new")], true);
    let verifier = Arc::new(publisher.verifier());
    let waiting: Vec<_> = (0..50)
        .map(|user| {
            let claims = format!(r#"{{"sub":"{user}"}}"#);
            let token = signer.sign(r#"{"alg":"EdDSA","kid":"new"}"#, &claims);
            let verifier = Arc::clone(&verifier);
            thread::spawn(move || verifier.judge_connection(&token, NOW_MS).map(|claims| claims.user))
        })
        .collect();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while verifier.counters().now().waiting < 50 || publisher.fetches() == 0 {
        assert!(std::time::Instant::now() < deadline, "they do not all wait");
        thread::sleep(std::time::Duration::from_millis(1));
    }
    publisher.gate.as_ref().unwrap().send(()).unwrap();
    for (user, thread) in waiting.into_iter().enumerate() {
        assert_eq!(thread.join().unwrap(), Ok(user.to_string()));
    }
    assert_eq!((publisher.fetches(), verifier.counters().now().signatures), (1, 50));
}

#[test]
fn an_unavailable_key_set_is_a_temporary_fault() {
    let signer = Signer::ed();
    let publisher = Publisher::start(&[signer.jwk("a")], false);
    let big = "x".repeat(20_000);
    for response in [
        "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n".to_owned(),
        "HTTP/1.1 302 Found\r\nLocation: https://evil.example/\r\nContent-Length: 0\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnull".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"keys\":".to_owned(),
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{{\"keys\":[],\"x\":\"{big}\"}}", big.len() + 17),
        "nonsense\r\n\r\n".to_owned(),
        String::new(),
    ] {
        publisher.answer(&response);
        let verifier = publisher.verifier();
        let fault = verifier.judge_connection(&sign(&signer, "EdDSA", "a"), NOW_MS).err();
        assert_eq!(fault, Some(TokenFault::KeysUnavailable), "{response}");
        assert_eq!(verifier.counters().now().fetches_failed, 1, "{response}");
    }
}

#[test]
fn keys_are_not_fetched_from_private_networks() {
    let publisher = Publisher::start(&[], false);
    let options = JwksOptions { is_unsafe_allowed: false, ..publisher.options("/keys", &Rules::default()) };
    let verifier = Publisher::verifier_with(options, Rules::default());
    let token = sign(&Signer::ed(), "EdDSA", "a");
    assert_eq!(verifier.judge_connection(&token, NOW_MS).err(), Some(TokenFault::KeysUnavailable));
    assert_eq!(publisher.fetches(), 0);
}

#[test]
fn the_address_follows_the_issuer() {
    let (one, two) = (Signer::ed(), Signer::ed());
    let issuer = regex::Regex::new("^https://id.example/(?P<realm>one|two)$").unwrap();
    let rules = Rules { issuer: Some(Rule::Matches(issuer)), ..Rules::default() };
    let publisher = Publisher::start(&[one.jwk("a")], false);
    let verifier = Publisher::verifier_with(publisher.options("/{{realm}}/keys", &rules), rules.clone());
    let token = |signer: &Signer, issuer: &str| {
        signer.sign(r#"{"alg":"EdDSA","kid":"a"}"#, &format!(r#"{{"iss":"https://id.example/{issuer}"}}"#))
    };
    assert!(verifier.judge_connection(&token(&one, "one"), NOW_MS).is_ok());
    publisher.publish(&[two.jwk("a")], "");
    assert!(verifier.judge_connection(&token(&two, "two"), NOW_MS).is_ok());
    // The name of a key counts for its own issuer alone.
    assert_eq!(verifier.judge_connection(&token(&two, "one"), NOW_MS).err(), Some(TokenFault::Signature));
    assert_eq!(verifier.judge_connection(&token(&one, "three"), NOW_MS).err(), Some(TokenFault::Issuer));
    assert_eq!(*publisher.paths.lock().unwrap(), ["/one/keys", "/two/keys"]);
}
