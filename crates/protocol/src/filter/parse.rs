//! Parses the field `tf` into a filter.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};

use crate::{Encoding, protobuf::read_filter};

use super::{FilterError, FilterLimits, TagTest, TagsFilter};

/// A node in its encoded form.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RawNode<'a> {
    #[serde(borrow)]
    pub(crate) op: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(crate) key: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(crate) cmp: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(crate) val: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(crate) vals: Option<Vec<Cow<'a, str>>>,
    #[serde(borrow, deserialize_with = "objects")]
    pub(crate) nodes: Option<Vec<RawNode<'a>>>,
}

/// Reads nodes, which must be objects. The derived `Deserialize` would also accept an array of the field values.
fn objects<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<RawNode<'de>>>, D::Error> {
    let nodes = Option::<Vec<ObjectNode<'de>>>::deserialize(deserializer)?;
    Ok(nodes.map(|nodes| nodes.into_iter().map(|ObjectNode(node)| node).collect()))
}

struct ObjectNode<'a>(RawNode<'a>);

impl<'de> Deserialize<'de> for ObjectNode<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor)
    }
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = ObjectNode<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        RawNode::deserialize(MapAccessDeserializer::new(map)).map(ObjectNode)
    }
}

impl TagsFilter {
    /// Parses the field `tf` in this encoding.
    ///
    /// # Errors
    /// See [`FilterError`].
    pub fn parse(encoding: Encoding, bytes: &[u8], limits: &FilterLimits) -> Result<Self, FilterError> {
        if bytes.len() > limits.bytes_max {
            return Err(FilterError::TooLarge);
        }
        let mut nodes_left = limits.nodes_max;
        let raw = match encoding {
            // `serde_json` limits the depth.
            Encoding::Json => {
                let ObjectNode(node) = serde_json::from_slice(bytes).map_err(|_| FilterError::Malformed)?;
                node
            }
            Encoding::Protobuf => read_filter(bytes, limits.depth_max)?,
        };
        filter(raw, limits.depth_max, &mut nodes_left)
    }
}

fn filter(node: RawNode<'_>, depth_left: usize, nodes_left: &mut usize) -> Result<TagsFilter, FilterError> {
    let depth_left = depth_left.checked_sub(1).ok_or(FilterError::TooLarge)?;
    *nodes_left = nodes_left.checked_sub(1).ok_or(FilterError::TooLarge)?;
    let op = node.op.as_deref().unwrap_or_default();
    if op.is_empty() {
        return leaf(&node);
    }
    let nodes = node.nodes.unwrap_or_default().into_iter();
    let mut filters = nodes.map(|node| filter(node, depth_left, nodes_left)).collect::<Result<Vec<_>, _>>()?;
    match (op, filters.len()) {
        ("and", 1..) => Ok(TagsFilter::All(filters.into())),
        ("or", 1..) => Ok(TagsFilter::Any(filters.into())),
        ("not", 1) => filters.pop().map(|filter| TagsFilter::Not(Box::new(filter))).ok_or(FilterError::Invalid),
        _ => Err(FilterError::Invalid),
    }
}

fn leaf(node: &RawNode<'_>) -> Result<TagsFilter, FilterError> {
    let owned = |text: &Option<Cow<'_, str>>| Box::<str>::from(text.as_deref().unwrap_or_default());
    let (key, value) = (owned(&node.key), owned(&node.val));
    let values: Box<[Box<str>]> = node.vals.iter().flatten().map(|value| Box::from(&**value)).collect();
    let comparison = node.cmp.as_deref().unwrap_or_default();
    let takes = match comparison {
        "in" | "nin" => value.is_empty() && !values.is_empty() && !key.is_empty(),
        "ex" | "nex" => value.is_empty() && values.is_empty(),
        _ => !value.is_empty() && values.is_empty() && !key.is_empty(),
    };
    if !takes {
        return Err(FilterError::Invalid);
    }
    let test = match comparison {
        "eq" => TagTest::Equals(value),
        "neq" => TagTest::Differs(value),
        "in" => TagTest::OneOf(values),
        "nin" => TagTest::NoneOf(values),
        "ex" => TagTest::Exists,
        "nex" => TagTest::IsMissing,
        "sw" => TagTest::StartsWith(value),
        "ew" => TagTest::EndsWith(value),
        "ct" => TagTest::Contains(value),
        "gt" => TagTest::Above(value),
        "gte" => TagTest::AtLeast(value),
        "lt" => TagTest::Below(value),
        "lte" => TagTest::AtMost(value),
        _ => return Err(FilterError::Invalid),
    };
    Ok(TagsFilter::Tag { key, test })
}
