//! The body of the fuzz target `config`.

use dunlin_config::{Config, ConfigInput, Document, Format};

/// A configuration file: the first byte chooses its format, the rest is its text.
pub fn config(data: &[u8]) {
    let Some((kind, text)) = data.split_first() else { return };
    let format = match kind % 3 {
        0 => Format::Json,
        1 => Format::Yaml,
        _ => Format::Toml,
    };
    let text = String::from_utf8_lossy(text).into_owned();
    let document = Document { name: "fuzz".to_owned(), format, text };
    match Config::from_input(&ConfigInput { document: Some(document), ..ConfigInput::default() }) {
        Ok((config, _)) => check_config(&config),
        Err(problems) => {
            assert!(!problems.errors.is_empty(), "a refusal has a reason");
            assert!(!problems.to_string().is_empty());
        }
    }
}

/// What others build on without looking again.
fn check_config(config: &Config) {
    let engine = &config.engine;
    let client = &engine.client;
    assert!((1..=256).contains(&config.shards));
    assert!(client.ping_interval_ms == 0 || client.ping_interval_ms > client.pong_timeout_ms);
    assert!(client.channel_limit > 0 && client.queue_bytes_max > 0 && client.queue_frames_max > 0);
    assert!(config.websocket.limits.message_bytes_max > 0 && config.websocket.limits.frame_bytes_max > 0);
    let mut names: Vec<_> = engine.namespaces.iter().map(|namespace| &namespace.name).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), engine.namespaces.len());
    for namespace in engine.namespaces.iter().chain([&engine.without_namespace]) {
        let recovers = namespace.force_recovery || namespace.allow_recovery;
        assert!(!recovers || namespace.has_stream());
        assert_eq!(namespace.history_size > 0, namespace.history_ttl_ms > 0);
    }
}
