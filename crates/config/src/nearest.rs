//! Finds the known key that is most similar to an unknown one.

use super::{
    keys::{self, Groups, Support, ValueKind},
    value::shortened,
};

/// Minimum similarity of a suggestion, from 0 to 1.
const LIKENESS_MIN: f64 = 0.7;

/// What a key gets because it is of the same table, and because it is supported.
const BONUS_MAX: f64 = SAME_TABLE_BONUS + SUPPORTED_BONUS;
const SAME_TABLE_BONUS: f64 = 0.1;
const SUPPORTED_BONUS: f64 = 0.05;

/// Longer names are not compared; every key is less than half as long.
const NAME_BYTES_MAX: usize = 128;

/// The message about an unknown key.
pub(super) fn unknown_key(path: &str, hurried: bool) -> String {
    match (!hurried).then(|| nearest_key(path)).flatten() {
        Some(near) => format!("is unknown; did you mean {near}?"),
        None => "is unknown; see `docs/configuration.md` for all keys".to_owned(),
    }
}

/// The message about an environment variable that sets no key.
pub(super) fn unknown_variable(name: &str, known: &[String]) -> String {
    match best(known.iter().map(|known| (known, likeness(known, &short(name))))) {
        Some(near) => format!("sets no known key; did you mean {near}?"),
        None => "sets no known key; unset it, or see `docs/configuration.md` for all keys".to_owned(),
    }
}

fn nearest_key(path: &str) -> Option<String> {
    let wanted = without_indices(path);
    let (wanted_table, wanted_name) = wanted.rsplit_once('.').unwrap_or(("", &wanted));
    let mut candidates = Vec::new();
    collect_paths(keys::root(), "", &mut candidates);
    let scored = candidates.iter().map(|(candidate, supported)| {
        let (table, name) = candidate.rsplit_once('.').unwrap_or(("", candidate));
        let likeness = if table == wanted_table {
            // A key of the same table takes precedence over the same name elsewhere.
            likeness(name, &short(wanted_name)) + SAME_TABLE_BONUS
        } else if name == wanted_name {
            let same_top = table.split('.').next() == wanted_table.split('.').next();
            if same_top { 0.85 } else { 0.8 }
        } else {
            // Older versions of Centrifugo had flat keys: `token_hmac_secret_key` is now
            // `client.token.hmac_secret_key`.
            let flat = candidate.replace('.', "_");
            let wanted_flat = short(&wanted.replace('.', "_"));
            if wanted_flat.contains('_') && flat.ends_with(&format!("_{wanted_flat}")) {
                0.9
            } else {
                likeness(&flat, &wanted_flat)
            }
        };
        (candidate, likeness + if *supported { SUPPORTED_BONUS } else { 0.0 })
    });
    let near = best(scored)?;
    // For a key of the same table, the table's index is known.
    let (table, name) = near.rsplit_once('.').unwrap_or(("", &near));
    match path.rsplit_once('.') {
        Some((numbered_table, _)) if table == wanted_table => Some(format!("{numbered_table}.{name}")),
        _ => Some(near),
    }
}

/// The first of the best candidates.
fn best<'c>(scored: impl Iterator<Item = (&'c String, f64)>) -> Option<String> {
    let (nearest, likeness) =
        scored.reduce(|best, next| if next.1.total_cmp(&best.1).is_gt() { next } else { best })?;
    (likeness >= LIKENESS_MIN).then(|| nearest.clone())
}

/// The similarity of two names, from 0 to 1; 0 if it cannot be enough for a suggestion.
fn likeness(one: &str, other: &str) -> f64 {
    let (one_chars, other_chars) = (one.chars().count(), other.chars().count());
    // Each character that one has more costs an edit. The comparison takes the product of the lengths, and most names differ by more.
    let most = 1.0 - one_chars.abs_diff(other_chars) as f64 / one_chars.max(other_chars).max(1) as f64;
    if most < LIKENESS_MIN - BONUS_MAX { 0.0 } else { strsim::normalized_damerau_levenshtein(one, other) }
}

/// Collects every path with its support; paths of list entries contain `[]`.
fn collect_paths(groups: Groups, prefix: &str, paths: &mut Vec<(String, bool)>) {
    for key in keys::names(groups) {
        let path = if prefix.is_empty() { key.name.to_owned() } else { format!("{prefix}.{}", key.name) };
        match key.kind {
            ValueKind::Table(inner) => collect_paths(inner, &path, paths),
            ValueKind::Tables(inner) => collect_paths(inner, &format!("{path}[]"), paths),
            _ => {}
        }
        paths.push((path, matches!(key.support, Support::Yes | Support::Own)));
    }
}

/// Turns `channel.namespaces[3].name` into `channel.namespaces[].name`.
pub(super) fn without_indices(path: &str) -> String {
    let mut inside = false;
    path.chars()
        .filter(|c| {
            let keep = !inside || *c == ']';
            inside = *c == '[' || (inside && *c != ']');
            keep
        })
        .collect()
}

fn short(name: &str) -> String {
    if name.len() <= NAME_BYTES_MAX { name.to_owned() } else { shortened(name) }
}
