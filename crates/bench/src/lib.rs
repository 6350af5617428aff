//! The load generator behind `dunlin bench`.
