//! Limits on the depth and width of a client's message. They protect recursive decoders in backends and other clients.

use crate::DecodeError;

/// Maximum value of [`ShapeLimits::json_depth_max`].
pub const JSON_DEPTH_MAX: usize = 256;

/// Limits on one message of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShapeLimits {
    /// Maximum nesting depth of objects and lists, including the command itself. Values above [`JSON_DEPTH_MAX`] count
    /// as that value.
    pub json_depth_max: u32,
    /// Maximum number of fields of one JSON object, and of subscriptions of a `connect` in either encoding.
    pub object_keys_max: u32,
}

impl Default for ShapeLimits {
    /// 32 levels, 1,000 fields.
    fn default() -> Self {
        Self { json_depth_max: 32, object_keys_max: 1_000 }
    }
}

/// Whether a line is long enough to exceed a limit: a level takes at least one byte, and a field four.
fn may_break(line_bytes: usize, limits: ShapeLimits) -> bool {
    let depth_max = (limits.json_depth_max as usize).min(JSON_DEPTH_MAX);
    line_bytes > depth_max || line_bytes > 4 * limits.object_keys_max as usize
}

/// Checks a line against the limits in one pass. Ignores other errors of the line.
///
/// # Errors
/// The exceeded limit.
pub(crate) fn check_json(line: &[u8], limits: ShapeLimits) -> Result<(), DecodeError> {
    if !may_break(line.len(), limits) {
        return Ok(());
    }
    // The number of names that were read at each level.
    let mut keys = [0_u32; JSON_DEPTH_MAX];
    let (levels, _) = keys.split_at_mut((limits.json_depth_max as usize).min(JSON_DEPTH_MAX));
    let mut depth = 0;
    let mut rest = line;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'"' => rest = behind_text(after),
            b'{' | b'[' => {
                *levels.get_mut(depth).ok_or(DecodeError { what: "JSON too deep" })? = 0;
                depth += 1;
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b':' => {
                if let Some(keys) = depth.checked_sub(1).and_then(|level| levels.get_mut(level)) {
                    *keys += 1;
                    if *keys > limits.object_keys_max {
                        return Err(DecodeError { what: "too many fields" });
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The bytes after the quotation mark that ends the string at the beginning of `line`.
fn behind_text(mut line: &[u8]) -> &[u8] {
    while let Some(at) = memchr::memchr2(b'"', b'\\', line) {
        let is_end = line.get(at) == Some(&b'"');
        line = line.get(at + if is_end { 1 } else { 2 }..).unwrap_or_default();
        if is_end {
            return line;
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ShapeLimits = ShapeLimits { json_depth_max: 3, object_keys_max: 2 };

    fn what(line: &str) -> Option<&'static str> {
        check_json(line.as_bytes(), LIMITS).err().map(|error| error.what)
    }

    #[test]
    fn nesting_depth_is_limited() {
        for good in
            [r#"{"a":[[1],[2],{}]}"#, r#"{"a":{"b":{"c":1}}}"#, "[[[]]],[[[]]],[[[]]]", r#"{"a":"[[[[[[[\"[[["}"#]
        {
            assert_eq!(what(good), None, "{good}");
        }
        for deep in [r#"{"a":[[[1]]]}"#, r#"{"a":{"b":{"c":{}}}}"#, "[[[[", "{{{{{{{{{", r#"{"\"":"","b":[[[0]]]}"#] {
            assert_eq!(what(deep), Some("JSON too deep"), "{deep}");
        }
    }

    #[test]
    fn fields_are_counted_in_each_object() {
        for good in
            [r#"{"a":1,"b":{"c":1,"d":2}}"#, r#"[{"a":1,"b":2},{"a":1,"b":2}]"#, r#"{"a":"::::::::::"}"#, "1:2:3:4:5"]
        {
            assert_eq!(what(good), None, "{good}");
        }
        for wide in [r#"{"a":1,"b":2,"c":3}"#, r#"{"a":{"b":1,"c":2,"d":3}}"#, r#"{"a":{"x":1},"b":{"x":1},"c":1}"#] {
            assert_eq!(what(wide), Some("too many fields"), "{wide}");
        }
    }

    #[test]
    fn malformed_json_is_left_to_the_parser() {
        for line in ["]]]]]]]]]]", "]]]][1]", "\"\\", "\"never ends", "}:}:}:}:}:", "", "{\"a\\"] {
            assert_eq!(what(line), None, "{line}");
        }
    }

    /// The shortest lines that exceed a limit must be checked.
    #[test]
    fn short_lines_are_checked_as_well() {
        for limits in [LIMITS, ShapeLimits::default(), ShapeLimits { json_depth_max: 1, object_keys_max: 1 }] {
            let (depth, keys) = (limits.json_depth_max as usize, limits.object_keys_max as usize);
            let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
            let object = |fields: usize| format!("{{{}}}", vec![r#""":0"#; fields].join(","));
            assert_eq!(check_json(nested(depth).as_bytes(), limits), Ok(()));
            assert!(check_json(nested(depth + 1).as_bytes(), limits).is_err());
            assert_eq!(check_json(object(keys).as_bytes(), limits), Ok(()));
            assert!(check_json(object(keys + 1).as_bytes(), limits).is_err());
        }
    }

    #[test]
    fn the_largest_depth_limit_is_enforced() {
        let limits = ShapeLimits { json_depth_max: JSON_DEPTH_MAX as u32, object_keys_max: 1 };
        assert_eq!(check_json("[".repeat(JSON_DEPTH_MAX).as_bytes(), limits), Ok(()));
        assert!(check_json("[".repeat(JSON_DEPTH_MAX + 1).as_bytes(), limits).is_err());
        let beyond = ShapeLimits { json_depth_max: u32::MAX, ..limits };
        assert!(check_json("[".repeat(JSON_DEPTH_MAX + 1).as_bytes(), beyond).is_err());
    }
}
