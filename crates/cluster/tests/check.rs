//! `check_cluster` against real servers: a good cluster, and each kind of fault.

use dunlin_cluster::{
    check::{ClusterFinding, FindingState, check_cluster},
    links::{LinkOptions, open_once, parsed_servers},
    streams::{StreamTerms, ensure},
    thread::ClusterOptions,
};
use dunlin_proof::nats::NatsServers;

use crate::{
    links::{PATIENCE, options, terms},
    thread::cluster_options,
};

/// The accounts of docs/clustering.md. Each restricted user lacks one of the permissions.
pub fn accounts() -> String {
    let publish =
        ["dn.>", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.CREATE.*", "$JS.API.DIRECT.GET.*", "$JS.API.DIRECT.GET.*.>"];
    let subscribe = ["dn.>", "_DN.>", "_INBOX.>", "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.>"];
    let user = |name: &str, lacked: &str| {
        let listed = |subjects: &[&str]| {
            let kept: Vec<String> =
                subjects.iter().filter(|one| **one != lacked).map(|one| format!("\"{one}\"")).collect();
            kept.join(", ")
        };
        format!(
            "{{ user: {name}, password: secret, permissions: {{ publish: [{}], subscribe: [{}] }} }}",
            listed(&publish),
            listed(&subscribe)
        )
    };
    let users = [
        user("node", ""),
        user("no_create", "$JS.API.STREAM.CREATE.*"),
        user("no_info", "$JS.API.STREAM.INFO.*"),
        user("no_dn", "_DN.>"),
        user("no_inbox", "_INBOX.>"),
        user("no_advisory", "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.>"),
    ]
    .join(", ");
    format!(
        "accounts {{ DUNLIN {{ jetstream: enabled, users: [{users}] }}, SYS {{ users: [{{ user: sys, password: secret }}] }} }}\n\
         system_account: SYS"
    )
}

pub fn url_of(servers: &NatsServers, user: &str) -> String {
    let urls: Vec<String> =
        servers.urls().split(',').map(|url| url.replace("nats://", &format!("nats://{user}:secret@"))).collect();
    urls.join(",")
}

fn options_of(servers: &NatsServers, user: &str, replicas: u16) -> ClusterOptions {
    ClusterOptions { partitions: 1, ..cluster_options(&url_of(servers, user), "check", replicas) }
}

fn system_options(servers: &NatsServers) -> LinkOptions {
    LinkOptions { servers: parsed_servers(&url_of(servers, "sys")).expect("addresses"), ..options(&servers.urls()).0 }
}

/// Creates the stream of a namespace and the stream of leases.
async fn make_streams(servers: &NatsServers, replicas: u16) {
    let client = open_once(&options(&url_of(servers, "node")).0).await.expect("a server takes the connection");
    let terms = StreamTerms { age_max_ms: 3_660_000, ..terms(replicas) };
    let leases = StreamTerms {
        name: "dn_LEASE".into(),
        source: "dn.l.node.>".into(),
        destination: "dn.lw.node.>".into(),
        messages_per_subject_max: 1,
        age_max_ms: 3_600_000,
        duplicate_window_ms: 60_000,
        ..terms.clone()
    };
    for terms in [terms, leases] {
        ensure(&client, &terms, "epoch-1", PATIENCE).await.expect("the stream is made");
    }
}

/// Stores a message in the stream of [`make_streams`]. Retries, because the stream may have to elect a leader first.
async fn store_one(options: &ClusterOptions) {
    let client = open_once(&options.links).await.expect("a server takes the connection");
    let store = async {
        loop {
            let answer = client.request("dn.p.chat.0.one", "1".into()).await;
            if answer.is_ok_and(|answer| !answer.payload.windows(7).any(|part| part == b"\"error\"")) {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, store).await.expect("the stream stores the message");
}

fn states(findings: &[ClusterFinding], state: FindingState) -> Vec<String> {
    let texts = findings.iter().filter(|finding| finding.state == state);
    texts.map(|finding| format!("{}: {}", finding.subject, finding.text)).collect()
}

#[tokio::test]
async fn a_cluster_as_documented_is_good_and_its_system_account_shows_the_rest() {
    let servers = NatsServers::start(3, &accounts());
    make_streams(&servers, 3).await;
    let options = options_of(&servers, "node", 3);
    let is_good = |findings: &[ClusterFinding]| {
        states(findings, FindingState::Wrong).is_empty() && states(findings, FindingState::Warning).is_empty()
    };
    let findings = until(&options, is_good).await;
    let unknown = states(&findings, FindingState::Unknown);
    assert!(matches!(&unknown[..], [text] if text.starts_with("sync_interval: ")), "{unknown:?}");
    let good = states(&findings, FindingState::Good);
    for part in [
        "server 127.0.0.1:",
        "permissions: ",
        "stream dn_chat_0: as configured, leader n",
        "3 copies in step",
        "clock of n",
    ] {
        assert!(good.iter().any(|text| text.contains(part)), "{part}: {good:?}");
    }

    let system = system_options(&servers);
    let findings = check_cluster(&options, Some(&system)).await;
    let warnings = states(&findings, FindingState::Warning);
    for index in 0..3 {
        let subject = format!("sync_interval of n{index}: is not `always`");
        assert!(warnings.iter().any(|text| text.starts_with(&subject)), "{subject}: {warnings:?}");
    }
    assert_eq!(states(&findings, FindingState::Unknown), [""; 0], "{findings:?}");

    // A user of another account sees no server.
    let findings = check_cluster(&options, Some(&options.links)).await;
    let unknown = states(&findings, FindingState::Unknown);
    assert!(matches!(&unknown[..], [text] if text.contains("no server answers")), "{unknown:?}");
}

#[tokio::test]
async fn each_missing_permission_is_named_with_its_remedy() {
    let servers = NatsServers::start(1, &accounts());
    make_streams(&servers, 1).await;
    for (user, action, pattern) in [
        ("no_create", "publish", "$JS.API.STREAM.CREATE.*"),
        ("no_info", "publish", "$JS.API.STREAM.INFO.*"),
        ("no_dn", "subscribe", "_DN.>"),
        ("no_inbox", "subscribe", "_INBOX.>"),
        ("no_advisory", "subscribe", "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.>"),
    ] {
        let findings = check_cluster(&options_of(&servers, user, 1), None).await;
        let wrong = states(&findings, FindingState::Wrong);
        let remedy = format!("add \"{pattern}\" to `{action}`");
        assert!(
            wrong.iter().any(|text| text.starts_with("permissions: ") && text.contains(&remedy)),
            "{user}: {wrong:?}"
        );
        let named = wrong.iter().filter(|text| text.starts_with("permissions: ")).count();
        assert_eq!(named, 1, "{user}: {wrong:?}");
    }
}

#[tokio::test]
async fn wrong_credentials_and_servers_that_are_down_are_named() {
    let mut servers = NatsServers::start(1, &accounts());
    let findings = check_cluster(&options_of(&servers, "nobody", 1), None).await;
    let wrong = states(&findings, FindingState::Wrong);
    assert!(matches!(&wrong[..], [text] if text.contains("correct the credentials in `broker.nats.url`")), "{wrong:?}");
    servers.kill(0);
    let findings = check_cluster(&options_of(&servers, "node", 1), None).await;
    let wrong = states(&findings, FindingState::Wrong);
    assert!(matches!(&wrong[..], [text] if text.contains("start it, or correct `broker.nats.url`")), "{wrong:?}");
}

#[tokio::test]
async fn streams_that_are_missing_foreign_or_out_of_step_are_named() {
    let mut servers = NatsServers::start(3, &accounts());
    let options = options_of(&servers, "node", 3);
    let missing = ["dn_chat_0", "dn_LEASE"]
        .map(|stream| format!("stream {stream}: does not exist: the next node that starts makes it"));
    until(&options, |findings| states(findings, FindingState::Warning) == missing).await;

    make_streams(&servers, 3).await;
    let client = open_once(&options.links).await.expect("a server takes the connection");
    let foreign = r#"{"name":"dn_news_0","subjects":["dn.p.news.0.>"],"storage":"file","num_replicas":1}"#;
    client.request("$JS.API.STREAM.CREATE.dn_news_0", foreign.into()).await.expect("the stream is made");
    let mut others = options.clone();
    if let Some(namespace) = others.namespaces.iter_mut().flatten().next() {
        namespace.name = "news".into();
    }
    until(&others, |findings| {
        states(findings, FindingState::Wrong).iter().any(|text| text.contains("somebody else made or changed it"))
    })
    .await;

    servers.kill(2);
    let mut remaining = options.clone();
    remaining.links.servers.truncate(2);
    // A copy of an idle stream cannot be behind, so the stream needs a message.
    store_one(&remaining).await;
    until(&remaining, |findings| {
        let warnings = states(findings, FindingState::Warning);
        warnings.iter().any(|text| text.contains("not all of its 3 copies are in step: n2"))
    })
    .await;
}

/// Repeats the check until its findings satisfy `is_so`: leader elections and failure detection take time.
async fn until(options: &ClusterOptions, is_so: impl Fn(&[ClusterFinding]) -> bool) -> Vec<ClusterFinding> {
    let give_up = tokio::time::Instant::now() + PATIENCE;
    loop {
        let findings = check_cluster(options, None).await;
        if is_so(&findings) {
            return findings;
        }
        assert!(tokio::time::Instant::now() < give_up, "{findings:?}");
    }
}
