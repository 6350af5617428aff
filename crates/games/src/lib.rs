//! The simulations that ship with Dunlin, and the registry of simulations by name.
//!
//! | name | |
//! |---|---|
//! | `treasure_hunt` | [`TreasureHunt`]: a hunt on a map larger than any view; `docs/rooms.md` |
//! | `tag` | [`TagGame`]: runners tag each other with projectiles; `docs/tag.md` |
//! | `crowd` | [`Crowd`]: the world of the benchmark |

#![forbid(unsafe_code)]

mod crowd;
#[cfg(test)]
mod dice;
mod looks;
mod params;
mod saved;
mod saving;
pub mod script;
#[cfg(test)]
mod snapshot_sizes;
mod tag;
mod treasure_hunt;
mod walk;

use std::{collections::BTreeMap, fmt};

use dunlin_rooms::Simulation;

pub use crowd::{Crowd, CrowdMember, NearCrowdMember};
pub use params::Params;
pub use saved::Saved;
pub use saving::Saving;
pub use tag::TagGame;
pub use treasure_hunt::TreasureHunt;

/// Creates a simulation from the parameters in the configuration, or from `null` if there are none.
///
/// ```
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
/// use dunlin_game::{Make, Registry};
/// use serde_json::{Value, json};
///
/// /// The same game under another name, with ten bots.
/// const TRAINING: Make = |_| {
///     let tag = Registry::built_in().make("tag", &json!({"bots": 10}));
///     tag.expect("tag ships with Dunlin")
/// };
/// assert!(TRAINING(&Value::Null).is_ok());
/// ```
pub type Make = fn(&serde_json::Value) -> Result<Box<dyn Simulation>, BadParams>;

/// The error for invalid parameters: the parameter, its value, and the allowed values.
///
/// ```
/// use dunlin_games::TagGame;
///
/// let bad = TagGame::new(&serde_json::json!({"bots": -1})).err().expect("a negative number of bots");
/// assert!(bad.to_string().starts_with("`bots` is -1"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadParams(pub String);

/// Simulations by name.
///
/// ```
/// use dunlin_games::{Registry, TagGame};
///
/// let registry = Registry::default().with("duel", |params| Ok(Box::new(TagGame::new(params)?)));
/// let params = serde_json::json!({"bots": 0});
/// assert!(registry.make("duel", &params).is_some_and(|made| made.is_ok()));
/// assert!(registry.make("chess", &params).is_none());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Registry(BTreeMap<&'static str, Make>);

impl Registry {
    /// The simulations that ship with Dunlin.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Registry;
    ///
    /// assert_eq!(Registry::built_in().names().collect::<Vec<_>>(), ["crowd", "tag", "treasure_hunt"]);
    /// ```
    pub fn built_in() -> Self {
        Self::default()
            .with("treasure_hunt", |params| Ok(Box::new(TreasureHunt::new(params)?)))
            .with("tag", |params| Ok(Box::new(TagGame::new(params)?)))
            .with("crowd", |params| Ok(Box::new(Crowd::new(params)?)))
    }

    /// Adds a simulation.
    ///
    /// # Panics
    /// If a simulation with this name exists, because configurations with this name would run another game.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::{BadParams, Registry, Simulation};
    /// use serde_json::{Value, json};
    ///
    /// /// Tag with ten bots, whatever the configuration says.
    /// fn training(_: &Value) -> Result<Box<dyn Simulation>, BadParams> {
    ///     Registry::built_in().make("tag", &json!({"bots": 10})).expect("tag ships with Dunlin")
    /// }
    ///
    /// let registry = Registry::built_in().with("training", training);
    /// assert!(registry.names().any(|name| name == "training"));
    /// ```
    #[must_use]
    pub fn with(mut self, name: &'static str, make: Make) -> Self {
        let earlier = self.0.insert(name, make);
        assert!(earlier.is_none(), "a simulation named {name:?} is registered already: give this one another name");
        self
    }

    /// Creates the simulation with this name; `None` if the name is unknown.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Registry;
    /// use serde_json::json;
    ///
    /// let registry = Registry::built_in();
    /// let refused = registry.make("tag", &json!({"bots": -1})).expect("its name").err().expect("bad parameters");
    /// assert_eq!(refused.to_string(), "`bots` is -1; it may be a whole number from 0 to 500");
    /// assert!(registry.make("chess", &json!({})).is_none());
    /// ```
    pub fn make(&self, name: &str, params: &serde_json::Value) -> Option<Result<Box<dyn Simulation>, BadParams>> {
        self.0.get(name).map(|make| make(params))
    }

    /// The names in alphabetical order.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Registry;
    ///
    /// assert_eq!(Registry::default().names().count(), 0);
    /// ```
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }
}

impl fmt::Display for BadParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadParams {}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn simulations_are_found_by_name() {
        let registry = Registry::built_in();
        assert_eq!(registry.names().collect::<Vec<_>>(), ["crowd", "tag", "treasure_hunt"]);
        for name in ["crowd", "tag", "treasure_hunt"] {
            assert!(registry.make(name, &Value::Null).is_some_and(|made| made.is_ok()), "{name}");
            let bad = registry.make(name, &json!({"columns": 0})).and_then(Result::err);
            assert_eq!(bad.expect("refused").to_string(), "`columns` is 0; it may be a whole number from 1 to 1024");
        }
        assert!(registry.make("chess", &Value::Null).is_none());
    }

    #[test]
    fn simulations_can_be_registered() {
        let registry = Registry::built_in().with("mine", |params| Ok(Box::new(Crowd::new(params)?)));
        assert!(registry.make("mine", &Value::Null).is_some());
    }

    #[test]
    #[should_panic(expected = "a simulation named \"tag\" is registered already")]
    fn duplicate_simulation_names_are_refused() {
        let _ = Registry::built_in().with("tag", |params| Ok(Box::new(Crowd::new(params)?)));
    }
}
