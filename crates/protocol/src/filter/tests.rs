use super::*;
use crate::Encoding;

const LIMITS: FilterLimits = FilterLimits { bytes_max: 200, nodes_max: 4, depth_max: 3 };

fn parse(json: &str) -> Result<TagsFilter, FilterError> {
    TagsFilter::parse(Encoding::Json, json.as_bytes(), &LIMITS)
}

fn passes(json: &str, tags: &[(&str, &str)]) -> bool {
    let tags = tags.iter().map(|(key, value)| (Box::from(*key), Box::from(*value))).collect();
    parse(json).expect(json).passes(&tags)
}

#[test]
fn a_comparison_passes_only_for_matching_tags() {
    for (cmp, val, value, expected) in [
        ("eq", "a", "a", true),
        ("eq", "a", "b", false),
        ("neq", "a", "b", true),
        ("neq", "a", "a", false),
        ("sw", "ab", "abc", true),
        ("sw", "bc", "abc", false),
        ("ew", "bc", "abc", true),
        ("ew", "ab", "abc", false),
        ("ct", "b", "abc", true),
        ("ct", "d", "abc", false),
        ("gt", "9", "10", true),
        ("gt", "10", "10.0", false),
        ("gte", "10", "10.0", true),
        ("gte", "-1.5", "-1.51", false),
        ("lt", "-1.5", "-1.51", true),
        ("lt", "0", "-0", false),
        ("lte", "0", "-0.00", true),
        ("lte", "1", "+1", true),
        ("lt", "100000000000000000000000000000", "99999999999999999999999999999", true),
        // A value that is not a number is neither above nor below another.
        ("gt", "1", "1e3", false),
        ("lt", "1", ".5", false),
        ("lt", "1", "0.", false),
        ("lt", "1", "", false),
        ("lt", "one", "0", false),
        ("lt", "1", "0.12345678901234567890", false),
    ] {
        let filter = format!(r#"{{"key":"k","cmp":"{cmp}","val":"{val}"}}"#);
        assert_eq!(passes(&filter, &[("k", value)]), expected, "{filter} {value}");
        // For an absent tag, only `neq` passes.
        assert_eq!(passes(&filter, &[("other", value)]), cmp == "neq", "{filter}");
    }
}

#[test]
fn lists_and_presence_tests_handle_absent_tags() {
    let one_of = r#"{"key":"k","cmp":"in","vals":["a","b"]}"#;
    let none_of = r#"{"key":"k","cmp":"nin","vals":["a",""]}"#;
    assert_eq!(
        (passes(one_of, &[("k", "b")]), passes(one_of, &[("k", "c")]), passes(one_of, &[])),
        (true, false, false)
    );
    assert_eq!(
        (passes(none_of, &[("k", "b")]), passes(none_of, &[("k", "a")]), passes(none_of, &[])),
        (true, false, false)
    );
    assert!(passes(r#"{"key":"k","cmp":"ex"}"#, &[("k", "")]) && !passes(r#"{"key":"k","cmp":"ex"}"#, &[]));
    assert!(!passes(r#"{"key":"k","cmp":"nex"}"#, &[("k", "")]) && passes(r#"{"cmp":"nex"}"#, &[]));
}

#[test]
fn and_or_and_not_combine_filters() {
    let (yes, no) = (r#"{"key":"k","cmp":"ex"}"#, r#"{"key":"k","cmp":"nex"}"#);
    for (filter, expected) in [
        (format!(r#"{{"op":"and","nodes":[{yes},{yes}]}}"#), true),
        (format!(r#"{{"op":"and","nodes":[{yes},{no}]}}"#), false),
        (format!(r#"{{"op":"or","nodes":[{no},{yes}]}}"#), true),
        (format!(r#"{{"op":"or","nodes":[{no},{no}]}}"#), false),
        (format!(r#"{{"op":"not","nodes":[{no}]}}"#), true),
        (format!(r#"{{"op":"not","nodes":[{{"op":"or","nodes":[{no},{yes}]}}]}}"#), false),
    ] {
        assert_eq!(passes(&filter, &[("k", "v")]), expected, "{filter}");
    }
}

#[test]
fn invalid_filters_are_refused() {
    let leaf = r#"{"key":"k","cmp":"ex"}"#;
    for filter in [
        "{}".to_owned(),
        r#"{"key":"k"}"#.to_owned(),
        r#"{"key":"k","cmp":"like","val":"a"}"#.to_owned(),
        r#"{"cmp":"eq","val":"a"}"#.to_owned(),
        r#"{"key":"k","cmp":"eq"}"#.to_owned(),
        r#"{"key":"k","cmp":"eq","val":"a","vals":["b"]}"#.to_owned(),
        r#"{"key":"k","cmp":"in","val":"a"}"#.to_owned(),
        r#"{"key":"k","cmp":"in","val":"a","vals":["b"]}"#.to_owned(),
        r#"{"key":"k","cmp":"ex","val":"a"}"#.to_owned(),
        r#"{"op":"xor","nodes":[]}"#.to_owned(),
        r#"{"op":"and"}"#.to_owned(),
        r#"{"op":"or","nodes":[]}"#.to_owned(),
        format!(r#"{{"op":"not","nodes":[{leaf},{leaf}]}}"#),
        format!(r#"{{"op":"and","nodes":[{leaf},{{}}]}}"#),
    ] {
        assert_eq!(parse(&filter), Err(FilterError::Invalid), "{filter}");
    }
    for filter in [
        "",
        "1",
        "[]",
        r#"["","k","ex"]"#,
        r#"{"op":1}"#,
        r#"{"nodes":{}}"#,
        r#"{"op":"","op":""}"#,
        r#"{"op":"not","nodes":[["","k","ex"]]}"#,
        r#"{"op":"not","nodes":[{"op":"not","nodes":[["","k","ex"]]}]}"#,
        r#"{"op":"not","nodes":[null]}"#,
        r#"{"op":"not","nodes":[{"op":"","op":""}]}"#,
    ] {
        assert_eq!(parse(filter), Err(FilterError::Malformed), "{filter}");
    }
}

#[test]
fn a_filter_past_a_limit_is_refused() {
    let leaf = r#"{"cmp":"ex"}"#;
    let all = |nodes: usize| format!(r#"{{"op":"and","nodes":[{}]}}"#, vec![leaf; nodes].join(","));
    let deep = |depth: usize| (1..depth).fold(leaf.to_owned(), |node, _| format!(r#"{{"op":"not","nodes":[{node}]}}"#));
    let long = |bytes: usize| format!(r#"{{"cmp":"ex"{}}}"#, " ".repeat(bytes - leaf.len()));
    assert!(parse(&all(3)).is_ok() && parse(&deep(3)).is_ok() && parse(&long(200)).is_ok());
    for filter in [all(4), deep(4), long(201)] {
        assert_eq!(parse(&filter), Err(FilterError::TooLarge), "{filter}");
    }
}
