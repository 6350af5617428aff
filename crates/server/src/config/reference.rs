//! The reference page and the JSON Schema, written from the table of keys.
