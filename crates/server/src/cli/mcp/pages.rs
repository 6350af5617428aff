//! The pages of the documentation, which are in the binary: a model reads those of the version that it works with.

use std::{borrow::Cow, collections::BTreeSet};

use serde_json::{Value, json};

macro_rules! pages {
    ($($name:literal)*) => {
        /// The pages of `docs/`, by name.
        const PAGES: &[(&str, &str)] = &[$((
            concat!($name, ".md"),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/", $name, ".md")),
        ),)*];
    };
}

pages![
    "backend-hooks" "benchmarks" "choosing" "cli" "clustering" "codes" "compatibility" "configuration" "console"
    "dependencies" "deploying" "features" "from-colyseus" "from-game-backend" "from-pusher" "from-socketio" "glossary"
    "http-api" "insight" "load-testing" "matchmaking" "mcp" "measurements" "metrics" "migrating-from-centrifugo"
    "operating" "own-game" "playground" "releasing" "rooms" "rooms-protocol" "security" "tag" "testing" "tokens"
    "transports"
];

/// The beginning of the address of each page as a resource.
const URI_BASE: &str = "dunlin://docs/";

/// What a search shows of a section.
const EXCERPT_BYTES_MAX: usize = 1_200;

/// What it shows of a line, such as a long row of a table.
const EXCERPT_LINE_BYTES_MAX: usize = 600;

/// Marks what is left out of an excerpt.
const LEFT_OUT: &str = "…";

/// Words that are compared. More do not find more.
const WORDS_MAX: usize = 16;

/// A part of a page, from a heading to the next one.
struct Section {
    page: &'static str,
    heading: &'static str,
    text: &'static str,
}

/// A section that was found.
pub(super) struct Found {
    pub(super) page: &'static str,
    pub(super) heading: &'static str,
    pub(super) excerpt: String,
}

/// The pages as resources.
pub(super) fn list() -> Vec<Value> {
    let resource = |(name, text): &(&str, &'static str)| {
        json!({
            "uri": format!("{URI_BASE}{name}"), "name": name, "title": title(text), "mimeType": "text/markdown",
            "size": text.len(),
        })
    };
    PAGES.iter().map(resource).collect()
}

/// The page at the address of a resource.
pub(super) fn read(uri: &str) -> Option<&'static str> {
    page(uri.strip_prefix(URI_BASE)?)
}

/// The text of a page.
pub(super) fn page(name: &str) -> Option<&'static str> {
    PAGES.iter().find_map(|(page, text)| (*page == name).then_some(*text))
}

/// The names of all pages.
pub(super) fn names() -> String {
    PAGES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// The address of a page as a resource.
pub(super) fn uri(page: &str) -> String {
    format!("{URI_BASE}{page}")
}

/// The section of a page with this heading, whose case and backquotes do not count, and the deeper sections below it.
pub(super) fn section(text: &'static str, heading: &str) -> Option<&'static str> {
    let headings = headings(text);
    let plain = |heading: &str| heading.trim_start_matches('#').replace('`', "").trim().to_lowercase();
    let wanted = plain(heading.trim());
    let at = headings.iter().position(|(_, _, name)| plain(name) == wanted)?;
    let (start, level, _) = *headings.get(at)?;
    let end = headings.iter().skip(at + 1).find(|(_, other, _)| *other <= level).map_or(text.len(), |(end, ..)| *end);
    text.get(start..end)
}

/// The headings of a page, which can be read one by one.
pub(super) fn sections_of(text: &'static str) -> Vec<&'static str> {
    headings(text).into_iter().map(|(_, _, name)| name).collect()
}

/// The sections that have the most of the words, the best first.
pub(super) fn search(query: &str, limit: usize) -> Vec<Found> {
    let wanted: BTreeSet<_> = words(query).take(WORDS_MAX).collect();
    let sections = sections();
    // A word that few sections have says more about what is looked for.
    let weights: Vec<_> = wanted
        .iter()
        .map(|word| {
            let having = sections.iter().filter(|section| count(section.text, word) > 0).count();
            (word, (1.0 + sections.len() as f64 / (1.0 + having as f64)).ln())
        })
        .collect();
    let mut ranked: Vec<_> = sections
        .iter()
        .map(|section| {
            let score = |(word, weight): &(&String, f64)| {
                let often = count(section.text, word) as f64;
                let in_heading = if count(section.heading, word) > 0 { 2.0 } else { 0.0 };
                let in_name = if count(section.page, word) > 0 { 1.0 } else { 0.0 };
                // The tenth occurrence says little beside the first.
                weight * (often / (1.0 + often) + in_heading * often.min(1.0) + in_name * often.min(1.0))
            };
            (weights.iter().map(score).sum::<f64>(), section)
        })
        .filter(|(score, _)| *score > 0.0)
        .collect();
    ranked.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let found = |(_, section): (f64, &Section)| Found {
        page: section.page,
        heading: section.heading,
        excerpt: excerpt(section.text, &wanted),
    };
    ranked.into_iter().take(limit).map(found).collect()
}

fn title(text: &'static str) -> &'static str {
    text.lines().next().unwrap_or_default().trim_start_matches('#').trim()
}

fn sections() -> Vec<Section> {
    let mut sections = Vec::new();
    for &(page, text) in PAGES {
        let headings = headings(text);
        let ends = headings.iter().skip(1).map(|(start, ..)| *start).chain([text.len()]);
        for (&(start, _, heading), end) in headings.iter().zip(ends) {
            let text = text.get(start..end).unwrap_or_default();
            sections.push(Section { page, heading, text });
        }
    }
    sections
}

/// Where each heading begins, its level and its text. Lines of code are none.
fn headings(text: &'static str) -> Vec<(usize, usize, &'static str)> {
    let (mut at, mut is_code, mut found) = (0, false, Vec::new());
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        let level = line.bytes().take_while(|byte| *byte == b'#').count();
        if !is_code && level > 0 && line.as_bytes().get(level) == Some(&b' ') {
            found.push((at, level, line.get(level..).unwrap_or_default().trim()));
        }
        at += line.len();
    }
    found
}

/// The words of a text in lower case. Keys are words as a whole and by their parts: `client.queue_max_size`.
fn words(text: &str) -> impl Iterator<Item = String> {
    let is_separator = |c: char| !(c.is_alphanumeric() || c == '_' || c == '.');
    text.split(is_separator).map(|word| word.trim_matches('.').to_lowercase()).filter(|word| word.chars().count() > 1)
}

/// How often a text has a word, in any case, and also as the beginning of a longer one: `publish` finds `publishes`.
fn count(text: &str, word: &str) -> usize {
    let (text, word) = (text.as_bytes(), word.as_bytes());
    let begins = |at: usize| at == 0 || !text.get(at - 1).is_some_and(u8::is_ascii_alphanumeric);
    let same = |at: &usize| text.get(*at..*at + word.len()).is_some_and(|part| part.eq_ignore_ascii_case(word));
    (0..text.len().saturating_sub(word.len().saturating_sub(1))).filter(|at| same(at) && begins(*at)).count()
}

/// The heading, and the paragraphs and rows of tables that have the most of the words, in their order.
fn excerpt(text: &str, wanted: &BTreeSet<String>) -> String {
    let lines: Vec<_> = text.lines().map(shortened_line).collect();
    let mut ranked: Vec<_> = (0..lines.len())
        .map(|at| {
            let line = lines.get(at).map_or("", |line| &**line);
            (wanted.iter().filter(|word| count(line, word) > 0).count(), at)
        })
        .collect();
    ranked.sort_by(|(one, at), (other, at_other)| other.cmp(one).then(at.cmp(at_other)));
    let (mut chosen, mut bytes) = (BTreeSet::new(), 0);
    for (_, at) in ranked {
        // With the lines around it, where sentences begin and end.
        for near in at.saturating_sub(1)..=(at + 1).min(lines.len().saturating_sub(1)) {
            let length = lines.get(near).map_or(0, |line| line.len() + LEFT_OUT.len() + 2);
            if bytes + length <= EXCERPT_BYTES_MAX && chosen.insert(near) {
                bytes += length;
            }
        }
    }
    let mut excerpt = String::new();
    let mut before = None;
    for at in chosen {
        if before.is_some_and(|before| before + 1 < at) {
            excerpt.push_str(LEFT_OUT);
            excerpt.push('\n');
        }
        excerpt.push_str(lines.get(at).map_or("", |line| &**line));
        excerpt.push('\n');
        before = Some(at);
    }
    excerpt.trim().to_owned()
}

fn shortened_line(line: &str) -> Cow<'_, str> {
    if line.len() <= EXCERPT_LINE_BYTES_MAX {
        return line.into();
    }
    let end = line.floor_char_boundary(EXCERPT_LINE_BYTES_MAX - LEFT_OUT.len());
    format!("{}{LEFT_OUT}", line.get(..end).unwrap_or_default()).into()
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn each_page_of_the_documentation_is_in_the_binary() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let files = fs::read_dir(folder).expect("it is there").map(|entry| entry.expect("an entry").file_name());
        let files: BTreeSet<_> = files
            .filter_map(|name| name.into_string().ok())
            .filter(|name| name.strip_suffix(".md").is_some())
            .collect();
        assert_eq!(PAGES.iter().map(|(name, _)| (*name).to_owned()).collect::<BTreeSet<_>>(), files);
        assert!(PAGES.iter().all(|(_, text)| text.starts_with("# ") && !title(text).is_empty()));
        // A section is read by its heading.
        for &(name, text) in PAGES {
            let headings = sections_of(text);
            let different: BTreeSet<_> = headings.iter().map(|one| one.replace('`', "").to_lowercase()).collect();
            assert_eq!(different.len(), headings.len(), "{name} has a heading twice: {headings:?}");
        }
    }

    #[test]
    fn a_search_finds_the_section_that_answers() {
        for (query, page) in [
            ("why is a client behind verdict", "insight.md"),
            ("client.queue_max_size", "configuration.md"),
            ("how do I migrate from Centrifugo", "migrating-from-centrifugo.md"),
            ("mcp set-up", "mcp.md"),
            ("block_user", "http-api.md"),
        ] {
            let found = search(query, 5);
            let pages: Vec<_> = found.iter().map(|found| (found.page, found.heading)).collect();
            assert!(pages.iter().any(|(found, _)| *found == page), "{query}: {pages:?}");
            assert!(found.iter().all(|found| !found.excerpt.is_empty() && found.excerpt.len() <= EXCERPT_BYTES_MAX));
        }
        assert!(search("client.queue_max_size", 1)[0].excerpt.contains("queue_max_size"));
        for nothing in ["", "?!", "xyzzyplugh", "\u{0}"] {
            assert!(search(nothing, 5).is_empty(), "{nothing}");
        }
        assert_eq!(search("the", 3).len(), 3);
    }

    #[test]
    fn an_excerpt_has_the_lines_with_the_words_and_is_short() {
        let wanted = BTreeSet::from(["needle".to_owned()]);
        let long = format!("| needle | {} |", "é".repeat(2_000));
        let text = format!("## Heading\n\n{}{long}\nlast\n", "hay\n".repeat(1_000));
        let found = excerpt(&text, &wanted);
        assert!(found.len() <= EXCERPT_BYTES_MAX && found.contains("| needle | é"), "{found}");
    }

    #[test]
    fn a_section_has_those_below_it() {
        let text = "# A\n\none\n\n## B\n\ntwo\n\n```sh\n## no heading\n```\n\n### C\n\nthree\n\n## D\n\nfour\n";
        assert_eq!(sections_of(text), ["A", "B", "C", "D"]);
        let section = |heading| section(text, heading).unwrap_or_default();
        assert!(section("b").ends_with("three\n\n") && section("## B").starts_with("## B"), "{}", section("b"));
        assert_eq!(super::section("# `a`\n", "A"), Some("# `a`\n"));
        assert_eq!((section("C"), section("D"), section("E")), ("### C\n\nthree\n\n", "## D\n\nfour\n", ""));
        assert_eq!(section("A"), text);
    }
}
