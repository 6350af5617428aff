//! Checks the metrics page against the list of families.

use std::collections::HashMap;

use dunlin_cluster::core::{
    CoreCounters, StrayCounters, leases::LeaseCounters, peers::PeerCounters, room_logs::RoomLogCounters,
};
use dunlin_engine::api::Survey;

use super::*;
use crate::{http::api::ApiError, profiling::ProfileCounts, webhooks::WebhookCounts};

fn shard(index: u16) -> ShardReport {
    let mut report = ShardReport {
        shard: ShardIndex(index),
        counters: Counters::new(2),
        survey: Survey { sessions: 3, users: vec![1, 2 + u64::from(index)], channels: 5, ..Survey::default() },
        net: NetCounters {
            busy_us: 250_000,
            idle_us: 750_000,
            busy_ppm: 250_000,
            writes: 11,
            ..NetCounters::default()
        },
    };
    report.counters.namespaces[1].publications = 7;
    report.counters.namespaces[1].publish_to_socket.observe(60);
    report.counters.namespaces[1].publish_to_socket.observe(20_000_000);
    report.counters.count_close(3008);
    report.counters.count_close(4321);
    report.survey.queue_age_ms_max = 1_500;
    report.survey.behind_sessions = [5, 4, 3, 2, 1];
    report
}

fn moment<'a>(shards: &'a [ShardReport], control: &'a ControlCounters) -> Moment<'a> {
    let (process, uptime) = (ProcessUse::default(), Duration::ZERO);
    let (tokens, backends) = (TokenCounts::default(), BackendCounts::default());
    Moment {
        shards,
        silent_shards: &[ShardIndex(7)],
        room_threads: &[],
        room_builder: BuilderReport::default(),
        room_relay: Some(dunlin_relay::RelayCounters::default()),
        room_memory_bytes: 0,
        room_survival: None,
        paths: PathCounts::default(),
        recordings: RecordingReport::default(),
        matchmaking: MatchmakingReport::default(),
        rooms: &[],
        control,
        access: AccessCounts::default(),
        tokens,
        backends,
        webhooks: WebhookCounts::default(),
        profiles: ProfileCounts::default(),
        otlp: OtlpCounts::default(),
        storage: None,
        cluster: None,
        peers: None,
        process,
        uptime,
    }
}

fn samples_of(text: &str) -> HashMap<&str, f64> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples.map(|line| line.rsplit_once(' ').unwrap()).map(|(name, value)| (name, value.parse().unwrap())).collect()
}

#[test]
fn the_page_has_exactly_the_listed_families() {
    let scrape = Scrape::new("0", "epoll", ["chat".to_owned()]);
    let (control, shard) = (ControlCounters::default(), shard(0));
    let moment = moment(std::slice::from_ref(&shard), &control);
    let text = page(&scrape, &moment);
    let on_page: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let listed: Vec<_> = m::FAMILIES.iter().map(|family| family.name).collect();
    assert_eq!(on_page, listed);
}

#[test]
fn the_imbalance_is_that_of_the_fullest_shard() {
    let with = |sessions: u64| {
        let mut report = shard(0);
        report.net.sessions = sessions;
        report
    };
    assert!((imbalance(&[with(30), with(10)]) - 1.5).abs() < 1e-9);
    assert!((imbalance(&[with(0), with(0)]) - 1.0).abs() < 1e-9 && (imbalance(&[]) - 1.0).abs() < 1e-9);
}

#[test]
fn shards_are_summed_or_listed_separately() {
    let scrape = Scrape::new("0", "epoll", ["chat".to_owned()]);
    let control = ControlCounters::default();
    control.set_memory_bytes_max(1_000);
    control.count_request(Method::Publish, Some(&ApiError::NOT_AVAILABLE));
    let shards = [shard(0), shard(1)];
    let moment = moment(&shards, &control);
    let text = page(&scrape, &moment);
    let samples = samples_of(&text);
    for (name, value) in [
        ("dunlin_publications_total{namespace=\"chat\"}", 14.0),
        ("dunlin_publications_total{namespace=\"-\"}", 0.0),
        ("dunlin_sessions{shard=\"1\"}", 3.0),
        ("dunlin_users", 3.0),
        ("dunlin_channels", 10.0),
        ("dunlin_writes_total{shard=\"0\"}", 11.0),
        ("dunlin_shard_busy_ratio{shard=\"1\"}", 0.25),
        ("dunlin_shard_answered{shard=\"1\"}", 1.0),
        ("dunlin_shard_answered{shard=\"7\"}", 0.0),
        ("dunlin_shard_busy_seconds_total{shard=\"1\"}", 0.25),
        ("dunlin_disconnects_total{code=\"3008\"}", 2.0),
        ("dunlin_disconnects_total{code=\"other\"}", 2.0),
        ("dunlin_disconnects_total{code=\"3500\"}", 0.0),
        ("dunlin_queue_age_seconds{shard=\"0\"}", 1.5),
        ("dunlin_sessions_behind{over_seconds=\"0.1\"}", 6.0),
        ("dunlin_publish_to_socket_seconds_bucket{namespace=\"chat\",le=\"0.00005\"}", 0.0),
        ("dunlin_publish_to_socket_seconds_bucket{namespace=\"chat\",le=\"0.0001\"}", 2.0),
        ("dunlin_publish_to_socket_seconds_bucket{namespace=\"chat\",le=\"10\"}", 2.0),
        ("dunlin_publish_to_socket_seconds_bucket{namespace=\"chat\",le=\"+Inf\"}", 4.0),
        ("dunlin_publish_to_socket_seconds_count{namespace=\"chat\"}", 4.0),
        ("dunlin_api_requests_total{method=\"publish\"}", 1.0),
        ("dunlin_process_memory_limit_bytes", 1_000.0),
        ("dunlin_api_errors_total{method=\"publish\",code=\"108\"}", 1.0),
    ] {
        assert_eq!(samples.get(name), Some(&value), "{name}");
    }
}

/// Counters with distinct values.
fn cluster_counters() -> CoreCounters {
    CoreCounters {
        followed: 1,
        attached: 2,
        delivered: 3,
        late: 4,
        gaps: 5,
        lost_tails: 6,
        truncations: 21,
        holes: 45,
        streams_absent: 36,
        streams_created: 37,
        lingering: 44,
        window_bytes: 42,
        undelivered: 43,
        overflows: 47,
        seen_keys: 38,
        seen_keys_bytes: 39,
        keys_answered: 40,
        keys_unanswered: 48,
        shared_reads: 24,
        peer_windows: 25,
        silent_connections: 23,
        ahead: 22,
        filled: 7,
        interrupted: 8,
        audits: 9,
        stale_answers: 10,
        damaged_messages: 11,
        strays: StrayCounters { late: 49, impossible: 50 },
        retries: 11,
        abandoned: 12,
        in_flight: 13,
        reads: 14,
        links_opened: [15, 16, 17],
        broadcast_channels: 21,
        follows_unconfirmed: 28,
        broadcasts_sent: 22,
        broadcasts_received: 23,
        broadcasts_dropped: [24, 25, 26, 27, 41],
        peers: PeerCounters {
            live: 21,
            other_version: 22,
            clock_off: 23,
            same_id: true,
            lost: 24,
            own_silences: 58,
            surveys: 25,
            incomplete: 26,
            surveys_refused: 27,
            queries: 28,
            queries_refused: 29,
            users_elsewhere: 31,
            users_uncounted: 32,
            dropped: 30,
        },
        leases: LeaseCounters { term: 77, others: 33, taken: 34, lost: 35, dropped: 100 },
        room_logs: RoomLogCounters {
            held: 51,
            taken: 52,
            lost: 53,
            messages: 54,
            bytes: 55,
            retries: 56,
            lists_refused: 57,
        },
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one row for each metric")]
fn the_state_of_the_cluster_is_exported_only_in_a_cluster() {
    let scrape = Scrape::new("0", "epoll", []);
    let control = ControlCounters::default();
    let alone = page(&scrape, &moment(&[], &control));
    assert!(samples_of(&alone).keys().all(|name| !name.starts_with("dunlin_cluster_")), "{alone}");
    let counters = cluster_counters();
    let state = ClusterState {
        counters,
        is_ready: true,
        requests_queued: 18,
        requests_refused: 19,
        effects_waiting: 20,
        ..ClusterState::default()
    };
    let peers =
        QuestionCounts { questions_refused: [51, 52, 53], questions_not_understood: 54, answers_not_understood: 55 };
    let moment_of_cluster = Moment { cluster: Some(state.clone()), peers: Some(peers), ..moment(&[], &control) };
    let text = page(&scrape, &moment_of_cluster);
    let mut exported = samples_of(&text);
    exported.retain(|name, _| name.starts_with("dunlin_cluster_"));
    let expected = HashMap::from([
        ("dunlin_cluster_ready", 1.0),
        ("dunlin_cluster_shard_questions_refused_total{about=\"presence\"}", 51.0),
        ("dunlin_cluster_shard_questions_refused_total{about=\"keys\"}", 52.0),
        ("dunlin_cluster_shard_questions_refused_total{about=\"rooms\"}", 53.0),
        ("dunlin_cluster_peer_messages_not_understood_total{message=\"question\"}", 54.0),
        ("dunlin_cluster_peer_messages_not_understood_total{message=\"answer\"}", 55.0),
        ("dunlin_cluster_streams_unusable", 0.0),
        ("dunlin_cluster_streams_absent_total", 36.0),
        ("dunlin_cluster_streams_created_total", 37.0),
        ("dunlin_cluster_channels_lingering", 44.0),
        ("dunlin_cluster_window_bytes", 42.0),
        ("dunlin_cluster_undelivered_total", 43.0),
        ("dunlin_cluster_overflows_total", 47.0),
        ("dunlin_cluster_seen_keys", 38.0),
        ("dunlin_cluster_seen_keys_bytes", 39.0),
        ("dunlin_cluster_keys_answered_total", 40.0),
        ("dunlin_cluster_keys_unanswered_total", 48.0),
        ("dunlin_cluster_broadcasts_dropped_total{reason=\"late\"}", 41.0),
        ("dunlin_cluster_channels_followed", 1.0),
        ("dunlin_cluster_channels_attached_total", 2.0),
        ("dunlin_cluster_messages_received_total", 3.0),
        ("dunlin_cluster_messages_known_total", 4.0),
        ("dunlin_cluster_gaps_total", 5.0),
        ("dunlin_cluster_lost_tails_total", 6.0),
        ("dunlin_cluster_truncations_total", 21.0),
        ("dunlin_cluster_holes_total", 45.0),
        ("dunlin_cluster_positions_ahead_total", 22.0),
        ("dunlin_cluster_connections_silent_total", 23.0),
        ("dunlin_cluster_reads_shared_total", 24.0),
        ("dunlin_cluster_peer_windows_total", 25.0),
        ("dunlin_cluster_messages_filled_total", 7.0),
        ("dunlin_cluster_channels_interrupted_total", 8.0),
        ("dunlin_cluster_audits_total", 9.0),
        ("dunlin_cluster_stale_answers_total", 10.0),
        ("dunlin_cluster_damaged_messages_total", 11.0),
        ("dunlin_cluster_late_messages_total", 49.0),
        ("dunlin_cluster_impossible_events_total", 50.0),
        ("dunlin_cluster_publications_retried_total", 11.0),
        ("dunlin_cluster_publications_abandoned_total", 12.0),
        ("dunlin_cluster_publications_in_flight", 13.0),
        ("dunlin_cluster_reads_total", 14.0),
        ("dunlin_cluster_connections_opened_total{link=\"live\"}", 15.0),
        ("dunlin_cluster_connections_opened_total{link=\"publish\"}", 16.0),
        ("dunlin_cluster_connections_opened_total{link=\"read\"}", 17.0),
        ("dunlin_cluster_requests_queued", 18.0),
        ("dunlin_cluster_requests_refused_total", 19.0),
        ("dunlin_cluster_operations_waiting", 20.0),
        ("dunlin_cluster_lease_held", 1.0),
        ("dunlin_cluster_leases_elsewhere", 33.0),
        ("dunlin_cluster_leases_taken_total", 34.0),
        ("dunlin_cluster_leases_lost_total", 35.0),
        ("dunlin_cluster_room_logs", 51.0),
        ("dunlin_cluster_room_logs_taken_total", 52.0),
        ("dunlin_cluster_room_logs_lost_total", 53.0),
        ("dunlin_cluster_room_log_messages_total", 54.0),
        ("dunlin_cluster_room_log_bytes_total", 55.0),
        ("dunlin_cluster_room_log_retries_total", 56.0),
        ("dunlin_cluster_room_lists_refused_total", 57.0),
        ("dunlin_cluster_broadcast_channels", 21.0),
        ("dunlin_cluster_follows_unconfirmed_total", 28.0),
        ("dunlin_cluster_broadcasts_sent_total", 22.0),
        ("dunlin_cluster_broadcasts_received_total", 23.0),
        ("dunlin_cluster_broadcasts_dropped_total{reason=\"disconnected\"}", 24.0),
        ("dunlin_cluster_broadcasts_dropped_total{reason=\"too_large\"}", 25.0),
        ("dunlin_cluster_broadcasts_dropped_total{reason=\"malformed\"}", 26.0),
        ("dunlin_cluster_broadcasts_dropped_total{reason=\"queue_full\"}", 27.0),
        ("dunlin_cluster_peers", 21.0),
        ("dunlin_cluster_peers_other_version", 22.0),
        ("dunlin_cluster_peers_clock_off", 23.0),
        ("dunlin_cluster_same_id", 1.0),
        ("dunlin_cluster_peers_lost_total", 24.0),
        ("dunlin_cluster_silences_total", 58.0),
        ("dunlin_cluster_surveys_total", 25.0),
        ("dunlin_cluster_surveys_partial_total", 26.0),
        ("dunlin_cluster_surveys_refused_total", 27.0),
        ("dunlin_cluster_queries_total", 28.0),
        ("dunlin_cluster_queries_refused_total", 29.0),
        ("dunlin_cluster_users_elsewhere", 31.0),
        ("dunlin_cluster_users_uncounted_total", 32.0),
        ("dunlin_cluster_peer_messages_dropped_total", 130.0),
    ]);
    assert_eq!(exported, expected);
    let text =
        page(&scrape, &Moment { cluster: Some(ClusterState { is_ready: false, ..state }), ..moment(&[], &control) });
    assert_eq!(samples_of(&text).get("dunlin_cluster_ready"), Some(&0.0));
}
