//! Patterns for channel names: `*` and `**` match any sequence of characters, `?` one character, `[a-z]` and `[!a-z]`
//! one character of a class, `{one,two}` alternatives; `\` escapes the next character.
//!
//! A pattern is compiled to a deterministic automaton, whose states are computed when a name first reaches them. A pattern
//! may have exponentially many. So the memory for states is bounded, and matching ends with an error if names keep
//! needing states that were evicted.

use std::fmt::Write as _;

use regex_automata::{
    Anchored, Input,
    hybrid::dfa::{Cache, DFA},
    nfa::thompson,
};

const PATTERN_BYTES_MAX: usize = 255;

/// Maximum nesting depth of alternatives.
const DEPTH_MAX: usize = 8;

/// Of the pattern, before any state is computed. 255 bytes compile to less: a negated class, of which 63 fit in, takes some 1 KiB.
const PROGRAM_BYTES_MAX: usize = 1 << 20;
/// Of the states that are computed.
const STATES_BYTES_MAX: usize = 2 << 20;
/// How often the states may be evicted before it is looked at how many bytes of names each of them was good for.
const EVICTIONS_MIN: usize = 8;
/// Computing a state takes as long as reading some hundred bytes.
const BYTES_PER_STATE_MIN: usize = 10;

/// A compiled pattern.
#[derive(Clone, Debug)]
pub struct Glob {
    pattern: Box<str>,
    // It and the states are some hundred bytes, which each command and each future of a request would have.
    automaton: Box<DFA>,
}

/// Matches names one after the other.
#[derive(Debug)]
pub struct Matcher<'g> {
    automaton: &'g DFA,
    states: Box<Cache>,
}

/// The names need too many states of the pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted;

impl Glob {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// Why the pattern is invalid.
    pub fn compile(pattern: &str) -> Result<Self, &'static str> {
        const TOO_LARGE: &str = "the pattern is too large";
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err("the pattern is too long");
        }
        let mut translator = Translator { chars: pattern.chars().peekable(), regex: String::new() };
        translator.sequence(0)?;
        let regex = format!("(?s){}\\z", translator.regex);
        let program = thompson::Config::new()
            .nfa_size_limit(Some(PROGRAM_BYTES_MAX))
            .which_captures(thompson::WhichCaptures::None);
        let states = DFA::config()
            .cache_capacity(STATES_BYTES_MAX)
            .minimum_cache_clear_count(Some(EVICTIONS_MIN))
            .minimum_bytes_per_state(Some(BYTES_PER_STATE_MIN));
        let automaton = DFA::builder().configure(states).thompson(program).build(&regex).map_err(|_| TOO_LARGE)?;
        Ok(Self { pattern: pattern.into(), automaton: Box::new(automaton) })
    }

    /// The text that it was compiled from.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// To match the names of one request.
    pub fn matcher(&self) -> Matcher<'_> {
        Matcher { automaton: &self.automaton, states: Box::new(self.automaton.create_cache()) }
    }
}

impl Matcher<'_> {
    /// Whether the whole `name` matches.
    ///
    /// # Errors
    /// [`Exhausted`] if this and the names before it evicted states too often.
    pub fn matches(&mut self, name: &str) -> Result<bool, Exhausted> {
        let name = Input::new(name).anchored(Anchored::Yes);
        let found = self.automaton.try_search_fwd(&mut self.states, &name);
        found.map(|found| found.is_some()).map_err(|_| Exhausted)
    }
}

/// Writes a pattern as a regular expression.
struct Translator<'p> {
    chars: std::iter::Peekable<std::str::Chars<'p>>,
    regex: String,
}

impl Translator<'_> {
    /// Parses up to the end of the pattern, or up to the `,` or `}` that ends this alternative.
    fn sequence(&mut self, depth: usize) -> Result<(), &'static str> {
        while let Some(&c) = self.chars.peek() {
            if depth > 0 && matches!(c, ',' | '}') {
                return Ok(());
            }
            self.chars.next();
            match c {
                '*' => {
                    while self.chars.next_if_eq(&'*').is_some() {}
                    self.regex.push_str(".*");
                }
                '?' => self.regex.push('.'),
                '[' => self.class()?,
                '{' => self.alternatives(depth + 1)?,
                '\\' => {
                    let c = self.chars.next().ok_or("the pattern ends with a backslash")?;
                    self.literal(c);
                }
                other => self.literal(other),
            }
        }
        if depth > 0 { Err("the pattern has a { without }") } else { Ok(()) }
    }

    /// By its number, since any sign may mean something in a regular expression.
    fn literal(&mut self, c: char) {
        write!(self.regex, "\\x{{{:x}}}", u32::from(c)).expect("a text takes everything");
    }

    fn class(&mut self) -> Result<(), &'static str> {
        const OPEN: &str = "the pattern has a [ without ]";
        let is_negated = self.chars.next_if(|c| matches!(c, '!' | '^')).is_some();
        self.regex.push_str(if is_negated { "[^" } else { "[" });
        let mut is_empty = true;
        loop {
            let from = match self.chars.next().ok_or(OPEN)? {
                ']' if is_empty => return Err("the pattern has an empty class"),
                ']' => break,
                '\\' => self.chars.next().ok_or(OPEN)?,
                other => other,
            };
            is_empty = false;
            self.literal(from);
            if self.chars.next_if_eq(&'-').is_some() {
                let to = match self.chars.next().ok_or(OPEN)? {
                    ']' => return Err("the pattern has a range without an end"),
                    '\\' => self.chars.next().ok_or(OPEN)?,
                    other => other,
                };
                if from > to {
                    return Err("the pattern has a range that ends before it begins");
                }
                self.regex.push('-');
                self.literal(to);
            }
        }
        self.regex.push(']');
        Ok(())
    }

    fn alternatives(&mut self, depth: usize) -> Result<(), &'static str> {
        if depth > DEPTH_MAX {
            return Err("the pattern nests alternatives too deeply");
        }
        self.regex.push_str("(?:");
        loop {
            self.sequence(depth)?;
            if self.chars.next() != Some(',') {
                break;
            }
            self.regex.push('|');
        }
        self.regex.push(')');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_only_fitting_names() {
        let cases = [
            ("chat", &["chat"][..], &["chat:", "cha", ""][..]),
            ("chat:*", &["chat:", "chat:1", "chat:a:b"], &["chat", "xchat:1"]),
            ("*", &["", "a", "ж:1"], &[]),
            ("**", &["", "a"], &[]),
            ("*:*", &[":", "a:b", "a:b:c"], &["a"]),
            ("a?c", &["abc", "aжc"], &["ac", "abbc"]),
            ("u[0-9x]", &["u0", "u9", "ux"], &["u", "ua", "u00"]),
            ("u[!0-9]", &["ua"], &["u0", "u"]),
            ("{a,b*,}z", &["az", "bz", "bxyz", "z"], &["cz", "abz"]),
            ("{a{1,2},b}", &["a1", "a2", "b"], &["a", "a12", "1"]),
            ("{}", &[""], &["a"]),
            ("a,b}", &["a,b}"], &["a"]),
            ("\\*\\{", &["*{"], &["a{"]),
            ("[\\]a]", &["]", "a"], &["b"]),
        ];
        for (pattern, fits, fits_not) in cases {
            let glob = Glob::compile(pattern).expect(pattern);
            let mut matcher = glob.matcher();
            for (names, expected) in [(fits, true), (fits_not, false)] {
                for name in names {
                    assert_eq!(matcher.matches(name), Ok(expected), "{pattern} over {name}");
                }
            }
        }
    }

    #[test]
    fn invalid_patterns_are_refused() {
        for pattern in ["[", "[]", "[a", "[a-", "[a-]", "[z-a]", "{", "{a,b", "\\", "[\\", "[a-\\"] {
            assert!(Glob::compile(pattern).is_err(), "{pattern}");
        }
        assert!(Glob::compile(&"a".repeat(PATTERN_BYTES_MAX)).is_ok());
        assert!(Glob::compile(&"a".repeat(PATTERN_BYTES_MAX + 1)).is_err());
        let nested = |depth| "{".repeat(depth) + &"}".repeat(depth);
        assert!(Glob::compile(&nested(DEPTH_MAX)).is_ok());
        assert!(Glob::compile(&nested(DEPTH_MAX + 1)).is_err());
    }

    #[test]
    fn the_largest_patterns_compile_and_match_any_name() {
        let name = "a".repeat(255);
        for pattern in
            ["*a".repeat(127), "{a,a*}".repeat(42), "*".repeat(255), "{,a}".repeat(63), "[!b]".repeat(63) + "*"]
        {
            let glob = Glob::compile(&pattern).expect("a pattern");
            let mut matcher = glob.matcher();
            for _ in 0..1_000 {
                assert!(matcher.matches(&name).is_ok(), "{pattern}");
            }
        }
    }

    #[test]
    fn a_pattern_that_needs_a_new_state_for_each_byte_is_given_up() {
        // Whether there is an `a` 200 characters before the end: a state for each set of such places.
        let glob = Glob::compile(&format!("*a{}", "?".repeat(200))).expect("a pattern");
        let mut matcher = glob.matcher();
        let mut random = 1_u64;
        let mut name = || -> String {
            let letter = |_| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                if random >> 63 == 0 { 'a' } else { 'b' }
            };
            (0..255).map(letter).collect()
        };
        let mut names_read = 0;
        let ended = (0..100_000).any(|_| {
            let name = name();
            let found = matcher.matches(&name);
            names_read += 1;
            assert!(found.is_err() || found == Ok(name.as_bytes()[54] == b'a'), "{name}");
            found.is_err()
        });
        assert!(ended, "{names_read} names took a new state for each byte");
        // The states of these names were computed: some 50,000.
        assert!(names_read < 1_000, "{names_read}");
        assert_eq!(matcher.matches("b"), Ok(false), "what needs no new state is answered");
    }
}
