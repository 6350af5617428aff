//! A second implementation of tag filters.

use std::collections::BTreeMap;

use dunlin_protocol::FilterLimits;
use serde_json::{Value, json};

use super::command::ProtobufWriter;

/// A condition on the tags of a publication.
#[derive(Clone, Debug, PartialEq)]
pub enum Filter {
    /// A combination of filters: `and`, `or` or `not`.
    Of(&'static str, Vec<Self>),
    /// A condition on one tag: its name, the comparison and the operands.
    Tag(&'static str, &'static str, Vec<&'static str>),
}

impl Filter {
    /// Whether a publication with these tags passes.
    pub fn passes(&self, tags: &BTreeMap<String, String>) -> bool {
        match self {
            Self::Of("and", of) => of.iter().all(|filter| filter.passes(tags)),
            Self::Of("or", of) => of.iter().any(|filter| filter.passes(tags)),
            Self::Of(_, of) => !of.iter().any(|filter| filter.passes(tags)),
            Self::Tag(key, comparison, values) => matches_tag(comparison, tags.get(*key).map(String::as_str), values),
        }
    }

    /// Whether it is well-formed and within the limits.
    pub fn is_valid(&self, limits: &FilterLimits) -> bool {
        let (nodes, depth) = self.size();
        self.is_well_formed() && nodes <= limits.nodes_max && depth <= limits.depth_max
    }

    fn is_well_formed(&self) -> bool {
        match self {
            Self::Of("not", of) => of.len() == 1 && of[0].is_well_formed(),
            Self::Of("and" | "or", of) => !of.is_empty() && of.iter().all(Self::is_well_formed),
            Self::Tag(_, "ex" | "nex", values) => values.is_empty(),
            Self::Tag(_, "in" | "nin", values) => !values.is_empty(),
            Self::Tag(_, "eq" | "neq" | "sw" | "ew" | "ct" | "gt" | "gte" | "lt" | "lte", values) => values.len() == 1,
            Self::Of(..) | Self::Tag(..) => false,
        }
    }

    /// The number of nodes and the depth.
    fn size(&self) -> (usize, usize) {
        let Self::Of(_, of) = self else { return (1, 1) };
        of.iter().map(Self::size).fold((1, 1), |(nodes, depth), (more, deep)| (nodes + more, depth.max(deep + 1)))
    }

    pub(super) fn json(&self) -> Value {
        match self {
            Self::Of(op, of) => json!({ "op": op, "nodes": of.iter().map(Self::json).collect::<Vec<_>>() }),
            Self::Tag(key, comparison @ ("in" | "nin"), values) => {
                json!({ "key": key, "cmp": comparison, "vals": values })
            }
            Self::Tag(key, comparison, values) => {
                json!({ "key": key, "cmp": comparison, "val": values.first().copied().unwrap_or_default() })
            }
        }
    }

    pub(super) fn write(&self, node: &mut ProtobufWriter) {
        match self {
            Self::Of(op, of) => {
                node.bytes(1, op.as_bytes());
                for filter in of {
                    node.message(6, |inner| filter.write(inner));
                }
            }
            Self::Tag(key, comparison, values) => {
                node.bytes(2, key.as_bytes());
                node.bytes(3, comparison.as_bytes());
                let field = if matches!(*comparison, "in" | "nin") { 5 } else { 4 };
                for value in values {
                    node.bytes(field, value.as_bytes());
                }
            }
        }
    }
}

fn matches_tag(comparison: &str, tag: Option<&str>, values: &[&str]) -> bool {
    let value = values.first().copied().unwrap_or_default();
    let text = |is: fn(&str, &str) -> bool| tag.is_some_and(|tag| is(tag, value));
    let number = |is: fn(&f64, &f64) -> bool| {
        let pair = (tag.and_then(|tag| tag.parse().ok()), value.parse().ok());
        matches!(pair, (Some(tag), Some(value)) if is(&tag, &value))
    };
    match comparison {
        "eq" => tag == Some(value),
        "neq" => tag != Some(value),
        "in" => values.contains(&tag.unwrap_or_default()),
        "nin" => !values.contains(&tag.unwrap_or_default()),
        "ex" => tag.is_some(),
        "nex" => tag.is_none(),
        "sw" => text(|tag, value| tag.starts_with(value)),
        "ew" => text(|tag, value| tag.ends_with(value)),
        "ct" => text(|tag, value| tag.contains(value)),
        "gt" => number(f64::gt),
        "gte" => number(f64::ge),
        "lt" => number(f64::lt),
        _ => number(f64::le),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_match_tags() {
        let tags = BTreeMap::from([("kind".to_owned(), "ab".to_owned()), ("n".to_owned(), "2.5".to_owned())]);
        let tag = |comparison, value| Filter::Tag("kind", comparison, vec![value]);
        let n = |comparison, value| Filter::Tag("n", comparison, vec![value]);
        for passes in [tag("eq", "ab"), tag("sw", "a"), tag("nin", "a"), n("gt", "2"), n("lte", "2.50"), n("ct", ".")] {
            assert!(passes.passes(&tags), "{passes:?}");
            assert!(!Filter::Of("not", vec![passes.clone()]).passes(&tags), "{passes:?}");
        }
        let missing = |comparison| Filter::Tag("other", comparison, vec!["1"]);
        assert!(missing("neq").passes(&tags) && missing("nin").passes(&tags) && !missing("lt").passes(&tags));
    }
}
