//! Patterns for channel names: `*` and `**` match any sequence of characters, `?` one character, `[a-z]` and `[!a-z]`
//! one character of a class, `{one,two}` alternatives; `\` escapes the next character.
//!
//! A pattern is compiled to a nondeterministic automaton, which is simulated with all its states at once. So matching
//! costs at most the length of the name times the length of the program, for any pattern. A [`Budget`] limits the sum
//! over all names.

const PATTERN_BYTES_MAX: usize = 255;

/// Maximum nesting depth of alternatives.
const DEPTH_MAX: usize = 8;

/// A compiled pattern.
#[derive(Clone, Debug)]
pub struct Glob {
    pattern: Box<str>,
    program: Vec<Step>,
}

/// The remaining number of steps.
#[derive(Debug)]
pub struct Budget(u64);

/// The budget is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// Matches this character.
    One(char),
    /// Matches any character.
    Any,
    /// Matches a character that is, or is not, in one of the ranges.
    Class { within: bool, ranges: Vec<(char, char)> },
    /// Continues at both instructions.
    Fork(usize, usize),
    /// Continues at this instruction.
    Jump(usize),
}

impl Budget {
    /// A budget of this number of steps.
    pub const fn new(steps: u64) -> Self {
        Self(steps)
    }

    fn spend(&mut self, steps: usize) -> Result<(), Exhausted> {
        self.0 = self.0.checked_sub(steps as u64).ok_or(Exhausted)?;
        Ok(())
    }
}

impl Glob {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// Why the pattern is invalid.
    pub fn compile(pattern: &str) -> Result<Self, &'static str> {
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err("the pattern is too long");
        }
        let mut compiler = Compiler { chars: pattern.chars().peekable(), program: Vec::new() };
        compiler.sequence(0)?;
        Ok(Self { pattern: pattern.into(), program: compiler.program })
    }

    /// The text that it was compiled from.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Whether the whole `name` matches.
    ///
    /// # Errors
    /// [`Exhausted`] if the budget was used up before the result was known.
    pub fn matches(&self, name: &str, budget: &mut Budget) -> Result<bool, Exhausted> {
        let mut threads = Threads::new(self.program.len());
        let mut next = Threads::new(self.program.len());
        self.follow(0, &mut threads);
        for c in name.chars() {
            budget.spend(1 + threads.steps)?;
            for &at in &threads.list {
                if self.program.get(at).is_some_and(|step| step.takes(c)) {
                    self.follow(at + 1, &mut next);
                }
            }
            std::mem::swap(&mut threads, &mut next);
            next.clear();
            if threads.list.is_empty() {
                return Ok(false);
            }
        }
        budget.spend(1 + threads.steps)?;
        // The index after the last instruction is the accepting state.
        Ok(threads.list.contains(&self.program.len()))
    }

    /// Adds the states that are reachable from `at` without consuming a character.
    fn follow(&self, at: usize, threads: &mut Threads) {
        let mut open = vec![at];
        while let Some(at) = open.pop() {
            if !threads.visit(at) {
                continue;
            }
            match self.program.get(at) {
                Some(Step::Jump(to)) => open.push(*to),
                Some(Step::Fork(one, other)) => open.extend([*one, *other]),
                _ => threads.list.push(at),
            }
        }
    }
}

impl Step {
    fn takes(&self, c: char) -> bool {
        match self {
            Self::One(own) => *own == c,
            Self::Any => true,
            Self::Class { within, ranges } => ranges.iter().any(|(from, to)| (*from..=*to).contains(&c)) == *within,
            Self::Fork(..) | Self::Jump(_) => false,
        }
    }
}

/// A set of states.
struct Threads {
    list: Vec<usize>,
    visited: Vec<bool>,
    steps: usize,
}

impl Threads {
    fn new(program_len: usize) -> Self {
        Self { list: Vec::new(), visited: vec![false; program_len + 1], steps: 0 }
    }

    fn visit(&mut self, at: usize) -> bool {
        self.steps += 1;
        self.visited.get_mut(at).is_some_and(|visited| !std::mem::replace(visited, true))
    }

    fn clear(&mut self) {
        self.list.clear();
        self.visited.fill(false);
        self.steps = 0;
    }
}

struct Compiler<'p> {
    chars: std::iter::Peekable<std::str::Chars<'p>>,
    program: Vec<Step>,
}

impl Compiler<'_> {
    /// Parses up to the end of the pattern, or up to the `,` or `}` that ends this alternative.
    fn sequence(&mut self, depth: usize) -> Result<(), &'static str> {
        while let Some(&c) = self.chars.peek() {
            if depth > 0 && matches!(c, ',' | '}') {
                return Ok(());
            }
            self.chars.next();
            match c {
                '*' => self.any_run(),
                '?' => self.program.push(Step::Any),
                '[' => self.class()?,
                '{' => self.alternatives(depth + 1)?,
                '\\' => {
                    let c = self.chars.next().ok_or("the pattern ends with a backslash")?;
                    self.program.push(Step::One(c));
                }
                other => self.program.push(Step::One(other)),
            }
        }
        if depth > 0 { Err("the pattern has a { without }") } else { Ok(()) }
    }

    /// A loop: fork to the end, or match any character and repeat.
    fn any_run(&mut self) {
        while self.chars.next_if_eq(&'*').is_some() {}
        let at = self.program.len();
        self.program.extend([Step::Fork(at + 1, at + 3), Step::Any, Step::Jump(at)]);
    }

    fn class(&mut self) -> Result<(), &'static str> {
        const OPEN: &str = "the pattern has a [ without ]";
        let within = self.chars.next_if(|c| matches!(c, '!' | '^')).is_none();
        let mut ranges = Vec::new();
        loop {
            let from = match self.chars.next().ok_or(OPEN)? {
                ']' if ranges.is_empty() => return Err("the pattern has an empty class"),
                ']' => break,
                '\\' => self.chars.next().ok_or(OPEN)?,
                other => other,
            };
            let to = if self.chars.next_if_eq(&'-').is_none() {
                from
            } else {
                match self.chars.next().ok_or(OPEN)? {
                    ']' => return Err("the pattern has a range without an end"),
                    '\\' => self.chars.next().ok_or(OPEN)?,
                    other => other,
                }
            };
            if from > to {
                return Err("the pattern has a range that ends before it begins");
            }
            ranges.push((from, to));
        }
        self.program.push(Step::Class { within, ranges });
        Ok(())
    }

    fn alternatives(&mut self, depth: usize) -> Result<(), &'static str> {
        if depth > DEPTH_MAX {
            return Err("the pattern nests alternatives too deeply");
        }
        let mut ends = Vec::new();
        loop {
            let fork = self.program.len();
            self.program.push(Step::Jump(fork + 1));
            self.sequence(depth)?;
            let end = self.program.len();
            match self.chars.next() {
                Some(',') => {
                    self.program.push(Step::Jump(0));
                    ends.push(end);
                    self.set(fork, Step::Fork(fork + 1, end + 1));
                }
                _ => break,
            }
        }
        let behind = self.program.len();
        for end in ends {
            self.set(end, Step::Jump(behind));
        }
        Ok(())
    }

    fn set(&mut self, at: usize, step: Step) {
        if let Some(place) = self.program.get_mut(at) {
            *place = step;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLENTY: u64 = 1_000_000;

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
            for (names, expected) in [(fits, true), (fits_not, false)] {
                for name in names {
                    assert_eq!(glob.matches(name, &mut Budget::new(PLENTY)), Ok(expected), "{pattern} over {name}");
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
    fn matching_takes_time_proportional_to_pattern_and_names() {
        let name = "a".repeat(255);
        for pattern in ["*a".repeat(127), "{a,a*}".repeat(42), "*".repeat(255), "{,a}".repeat(63)] {
            let glob = Glob::compile(&pattern).expect("a pattern");
            let bound = (glob.program.len() as u64 * 3 + 4) * (name.len() as u64 + 1);
            assert!(glob.matches(&name, &mut Budget::new(bound)).is_ok(), "{pattern}");
            assert_eq!(glob.matches(&name, &mut Budget::new(3)), Err(Exhausted), "{pattern}");
        }
    }
}
