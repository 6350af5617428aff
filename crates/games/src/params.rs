//! Parses the parameters of a simulation in the configuration.

use std::ops::RangeInclusive;

use dunlin_rooms::{Grid, GridShape};
use serde_json::{Map, Value};

use crate::BadParams;

/// Parameters by name. Absent parameters have defaults; unknown parameters are an error.
///
/// ```
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
/// use dunlin_game::{BadParams, Params};
/// use serde_json::{Value, json};
///
/// #[derive(Debug, PartialEq)]
/// struct Settings {
///     stars: u32,
///     has_teams: bool,
/// }
///
/// fn settings(params: &Value) -> Result<Settings, BadParams> {
///     let mut params = Params::new(params)?;
///     let settings = Settings { stars: params.number("stars", 1, 1..=50)?, has_teams: params.flag("teams")? };
///     params.finish()?;
///     Ok(settings)
/// }
///
/// assert_eq!(settings(&Value::Null), Ok(Settings { stars: 1, has_teams: false }));
/// assert_eq!(settings(&json!({"stars": 3, "teams": true})), Ok(Settings { stars: 3, has_teams: true }));
/// let refused = |params| settings(&params).expect_err("refused").to_string();
/// assert_eq!(refused(json!({"stars": 51})), "`stars` is 51; it may be a whole number from 1 to 50");
/// assert_eq!(refused(json!({"star": 3})), "unknown parameter `star`; known parameters are stars, teams");
/// ```
#[derive(Debug)]
pub struct Params<'a> {
    given: Option<&'a Map<String, Value>>,
    known: Vec<&'static str>,
}

impl<'a> Params<'a> {
    /// Parameters from a JSON object, or from `null`.
    ///
    /// # Errors
    /// [`BadParams`]
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Params;
    /// use serde_json::json;
    ///
    /// assert!(Params::new(&json!({"stars": 3})).is_ok());
    /// assert!(Params::new(&json!([3])).is_err());
    /// ```
    pub fn new(params: &'a Value) -> Result<Self, BadParams> {
        let given = match params {
            Value::Null => None,
            Value::Object(given) => Some(given),
            other => return Err(BadParams(format!("the parameters are {other}; they may be a table"))),
        };
        Ok(Self { given, known: Vec::new() })
    }

    /// An integer.
    ///
    /// # Errors
    /// [`BadParams`]
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Params;
    /// use serde_json::json;
    ///
    /// let given = json!({"stars": 3});
    /// let mut params = Params::new(&given).expect("an object");
    /// assert_eq!(params.number("stars", 1, 1..=50), Ok(3));
    /// assert_eq!(params.number("bots", 20, 0..=100), Ok(20));
    /// ```
    pub fn number(&mut self, name: &'static str, default: u32, allowed: RangeInclusive<u32>) -> Result<u32, BadParams> {
        let Some(value) = self.get(name) else { return Ok(default) };
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        number.filter(|number| allowed.contains(number)).ok_or_else(|| {
            let (least, most) = (allowed.start(), allowed.end());
            BadParams(format!("`{name}` is {value}; it may be a whole number from {least} to {most}"))
        })
    }

    /// A boolean; `false` by default.
    ///
    /// # Errors
    /// [`BadParams`]
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Params;
    /// use serde_json::json;
    ///
    /// let given = json!({"teams": true});
    /// let mut params = Params::new(&given).expect("an object");
    /// assert_eq!((params.flag("teams"), params.flag("night")), (Ok(true), Ok(false)));
    /// ```
    pub fn flag(&mut self, name: &'static str) -> Result<bool, BadParams> {
        let Some(value) = self.get(name) else { return Ok(false) };
        value.as_bool().ok_or_else(|| BadParams(format!("`{name}` is {value}; it may be true or false")))
    }

    /// A string of at most `chars_max` characters; none by default.
    ///
    /// # Errors
    /// [`BadParams`]
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Params;
    /// use serde_json::json;
    ///
    /// let given = json!({"map": "ice"});
    /// let mut params = Params::new(&given).expect("an object");
    /// assert_eq!(params.text("map", 20), Ok(Some("ice")));
    /// assert!(params.text("map", 2).is_err());
    /// ```
    pub fn text(&mut self, name: &'static str, chars_max: usize) -> Result<Option<&'a str>, BadParams> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.as_str() {
            Some(text) if text.chars().count() <= chars_max => Ok(Some(text)),
            _ => Err(BadParams(format!("`{name}` is {value}; it may be a text of at most {chars_max} characters"))),
        }
    }

    /// The name of a channel; none by default.
    ///
    /// # Errors
    /// [`BadParams`]
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Params;
    /// use serde_json::json;
    ///
    /// let given = json!({"leaderboard": "leaders:eu"});
    /// let mut params = Params::new(&given).expect("an object");
    /// assert_eq!(params.channel("leaderboard"), Ok(Some("leaders:eu".into())));
    /// ```
    pub fn channel(&mut self, name: &'static str) -> Result<Option<Box<str>>, BadParams> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.as_str() {
            Some(channel) if (1..=CHANNEL_BYTES_MAX).contains(&channel.len()) => Ok(Some(channel.into())),
            _ => Err(BadParams(format!("`{name}` is {value}; it may be a channel's name, of 1 to 255 bytes"))),
        }
    }

    /// The map: `columns`, `rows`, `cell_units`, `near_cells`, `far_cells`, `far_interval_ticks`, and
    /// `everyone_sees_everything`, which replaces the cells by a single one.
    ///
    /// # Errors
    /// [`BadParams`]
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Params;
    /// use serde_json::json;
    /// use dunlin_game::GridShape;
    ///
    /// let default =
    ///     GridShape { columns: 16, rows: 16, cell_units: 256, near_cells: 2, far_cells: 0, far_interval_ticks: 1 };
    /// let given = json!({"columns": 8});
    /// let mut params = Params::new(&given).expect("an object");
    /// assert_eq!(params.map(default), Ok(GridShape { columns: 8, ..default }));
    /// ```
    pub fn map(&mut self, default: GridShape) -> Result<GridShape, BadParams> {
        let cells = |number: u32| number as u16;
        let shape = GridShape {
            columns: cells(self.number("columns", default.columns.into(), 1..=1_024)?),
            rows: cells(self.number("rows", default.rows.into(), 1..=1_024)?),
            cell_units: self.number("cell_units", default.cell_units, 1..=65_536)?,
            near_cells: cells(self.number("near_cells", default.near_cells.into(), 0..=1_024)?),
            far_cells: cells(self.number("far_cells", default.far_cells.into(), 0..=1_024)?),
            far_interval_ticks: cells(self.number("far_interval_ticks", default.far_interval_ticks.into(), 1..=15)?),
        };
        let shape = if self.flag("everyone_sees_everything")? { one_cell(shape)? } else { shape };
        Grid::new(shape).map_err(|error| BadParams(error.to_string()))?;
        Ok(shape)
    }

    /// Must be called after all known parameters were read. Rejects unknown ones.
    ///
    /// # Errors
    /// [`BadParams`]
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.rs")); } use example::*;
    /// use dunlin_game::Params;
    /// use serde_json::json;
    ///
    /// let given = json!({"colour": 3});
    /// let params = Params::new(&given).expect("an object");
    /// assert!(params.finish().is_err());
    /// ```
    pub fn finish(self) -> Result<(), BadParams> {
        let unknown = self.given.and_then(|given| given.keys().find(|name| !self.known.contains(&name.as_str())));
        match unknown {
            None => Ok(()),
            Some(name) => {
                Err(BadParams(format!("unknown parameter `{name}`; known parameters are {}", self.known.join(", "))))
            }
        }
    }

    fn get(&mut self, name: &'static str) -> Option<&'a Value> {
        self.known.push(name);
        self.given?.get(name)
    }
}

/// The default limit of a channel name.
const CHANNEL_BYTES_MAX: usize = 255;

fn one_cell(shape: GridShape) -> Result<GridShape, BadParams> {
    let side = u32::from(shape.columns.max(shape.rows)) * shape.cell_units;
    if side > 65_536 {
        return Err(BadParams(format!(
            "with `everyone_sees_everything` the map is one cell of at most 65,536 units; this one has {side}"
        )));
    }
    Ok(GridShape { columns: 1, rows: 1, cell_units: side, near_cells: 0, far_cells: 0, far_interval_ticks: 1 })
}

#[cfg(test)]
mod tests;
