//! Arbitrary bytes as bodies of the server API: the corpus of the fuzz target, and nearly valid bodies.

use dunlin_proof::corpus;
use proptest::prelude::*;

use crate::http_api;

#[test]
fn the_corpus() {
    corpus::play("http_api", http_api::body);
}

/// JSON with values of wrong types.
fn nearly_right() -> impl Strategy<Value = Vec<u8>> {
    let field = prop::sample::select(vec![
        "channel",
        "channels",
        "data",
        "b64data",
        "tags",
        "user",
        "client",
        "disconnect",
        "whitelist",
        "limit",
        "since",
        "offset",
        "epoch",
        "pattern",
        "commands",
        "publish",
        "history",
        "method",
        "params",
        "id",
        "code",
        "reason",
    ]);
    let value = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        any::<i64>().prop_map(|number| number.to_string()),
        any::<f64>().prop_map(|number| format!("{number:e}")),
        "\"[a-z:*?{},\\[\\]]{0,12}\"",
        "\"\\\\u[d-f]{1}[0-9a-f]{3}\"",
        Just("\"eyJuIjo0fQ==\"".to_owned()),
    ];
    let tree = value.prop_recursive(4, 32, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec((field.clone(), inner), 0..6).prop_map(|fields| {
                let fields: Vec<_> = fields.into_iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
                format!("{{{}}}", fields.join(","))
            }),
        ]
    });
    (any::<u8>(), tree).prop_map(|(choice, text)| [&[choice], text.as_bytes()].concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nearly_right_bodies(body in nearly_right()) {
        http_api::body(&body);
    }

    #[test]
    fn any_bytes(body in prop::collection::vec(any::<u8>(), 0..200)) {
        http_api::body(&body);
    }
}
