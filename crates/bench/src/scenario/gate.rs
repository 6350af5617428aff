//! Gates: conditions for the figures of a run, such as `p99<50ms,lost=0`.

use serde::{Deserialize, Serialize};

use super::document::suggestion;
use super::figures::{FIGURES, Figure, OF_RUN, Values, figure};

/// A condition for one figure.
#[derive(Debug, Clone)]
pub struct Gate {
    /// As it was written.
    text: String,
    /// The phase whose figure it is; none: each phase that counts, and the whole run.
    pub phase: Option<String>,
    name: &'static str,
    relation: Relation,
    bound: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    Below,
    AtMost,
    Equal,
    AtLeast,
    Above,
}

/// In an order in which no one is the beginning of a later one.
const RELATIONS: [(&str, Relation); 5] = [
    ("<=", Relation::AtMost),
    (">=", Relation::AtLeast),
    ("<", Relation::Below),
    (">", Relation::Above),
    ("=", Relation::Equal),
];

/// A gate that did not hold.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Broken {
    pub gate: String,
    /// The value that broke it; none: it was not measured.
    pub found: Option<f64>,
    /// The phase in which it broke; none: over the whole run.
    pub phase: Option<String>,
    /// The same as a sentence.
    pub message: String,
}

impl From<Gate> for String {
    fn from(gate: Gate) -> String {
        gate.text
    }
}

impl Gate {
    /// Reads one gate or several with commas between them. An empty one is a mistake, such as an unset variable of a script:
    /// it must not pass.
    pub fn parse_all(text: &str) -> Result<Vec<Gate>, String> {
        text.split(',').map(str::trim).map(Gate::parse).collect()
    }

    fn parse(text: &str) -> Result<Gate, String> {
        let wrong = |remedy: &str| format!("gate {text:?}: {remedy}");
        let at = text.find(['<', '>', '=']).ok_or_else(|| wrong("write FIGURE<VALUE, as in p99<50ms or lost=0"))?;
        let (name, rest) = text.split_at(at);
        let (sign, relation) =
            RELATIONS.into_iter().find(|(sign, _)| rest.starts_with(sign)).expect("one of the signs was found");
        let (phase, name) = match name.trim().rsplit_once('.') {
            Some((phase, name)) => (Some(phase.to_owned()), name),
            None => (None, name.trim()),
        };
        let found = figure(name).ok_or_else(|| {
            let known: Vec<&str> = FIGURES.iter().map(|figure| figure.name).collect();
            wrong(&format!("there is no figure {name}; {}", suggestion(name, &known)))
        })?;
        if phase.is_some() && OF_RUN.contains(&found.name) {
            return Err(wrong(&format!("{name} is a figure of the whole run; leave out the phase")));
        }
        let bound = found.unit.parse(&rest[sign.len()..]).map_err(|remedy| wrong(&remedy))?;
        Ok(Gate { text: text.to_owned(), phase, name: found.name, relation, bound })
    }

    /// Whether a gate that is not read yet is about one phase.
    pub fn text_names_phase(text: &str) -> bool {
        text.find(['<', '>', '=']).is_some_and(|at| text[..at].contains('.'))
    }

    /// The figure that it is about.
    pub fn figure(&self) -> &'static Figure {
        figure(self.name).expect("the name was checked when it was read")
    }

    /// Checks the figures of a phase, or of the whole run. A figure that was not measured breaks the gate.
    pub fn check(&self, values: &Values, phase: Option<&str>) -> Option<Broken> {
        let found = values.get(self.name).copied();
        let holds = found.is_some_and(|found| match self.relation {
            Relation::Below => found < self.bound,
            Relation::AtMost => found <= self.bound,
            Relation::Equal => (found - self.bound).abs() < 1e-9,
            Relation::AtLeast => found >= self.bound,
            Relation::Above => found > self.bound,
        });
        if holds {
            return None;
        }
        let unit = self.figure().unit;
        let found_text = found.map_or("was not measured".to_owned(), |found| format!("was {}", unit.show(found)));
        let place = phase.map_or(String::new(), |phase| format!(" in phase {phase}"));
        Some(Broken {
            gate: self.text.clone(),
            found,
            phase: phase.map(ToOwned::to_owned),
            message: format!("{} is broken{place}: {} {found_text}", self.text, self.name),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(gate: &str, values: &[(&'static str, f64)]) -> Vec<String> {
        let values: Values = values.iter().copied().collect();
        let gates = Gate::parse_all(gate).unwrap();
        gates.iter().filter_map(|gate| gate.check(&values, None)).map(|broken| broken.message).collect()
    }

    #[test]
    fn a_gate_holds_at_its_bound_as_its_sign_says() {
        let values = [("p99", 50_000.0), ("lost", 0.0)];
        assert_eq!(broken("p99<=50ms,lost=0,p99>=50ms", &values), [] as [&str; 0]);
        assert_eq!(
            broken("p99<50ms, p99>50ms", &values),
            ["p99<50ms is broken: p99 was 50.00 ms", "p99>50ms is broken: p99 was 50.00 ms"]
        );
        assert_eq!(broken("lost=0", &[("lost", 1.0)]), ["lost=0 is broken: lost was 1"]);
        assert_eq!(broken("memory<1MiB", &values), ["memory<1MiB is broken: memory was not measured"]);
    }

    #[test]
    fn a_gate_may_name_its_phase() {
        let gates = Gate::parse_all("spike.p99<168ms").unwrap();
        assert_eq!(gates[0].phase.as_deref(), Some("spike"));
        let broken = gates[0].check(&[("p99", 2e5)].into_iter().collect(), Some("spike")).unwrap();
        assert_eq!(broken.message, "spike.p99<168ms is broken in phase spike: p99 was 200.00 ms");
    }

    #[test]
    fn mistakes_are_reported_with_what_is_right() {
        for (text, expected) in [
            ("", "write FIGURE<VALUE"),
            (" ", "write FIGURE<VALUE"),
            ("lost=0,", "write FIGURE<VALUE"),
            ("p99", "write FIGURE<VALUE"),
            ("=0", "there is no figure ;"),
            ("lost=", "give a number"),
            ("p98<50ms", "there is no figure p98; did you mean p99?"),
            ("p99<50", "give a time"),
            ("lost=0ms", "give a number"),
            ("bytes_per_connection<2", "give bytes"),
            ("hold.memory_growth<1MiB", "memory_growth is a figure of the whole run; leave out the phase"),
        ] {
            let error = Gate::parse_all(text).unwrap_err();
            let named = text.split(',').next_back().unwrap_or_default().trim();
            assert!(error.contains(expected) && error.contains(named), "{error}");
        }
    }
}
