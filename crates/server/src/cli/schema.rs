//! `dunlin schema`: the fields of a game's objects, as a document or as types for a client.

use clap::{Args, ValueEnum};
use dunlin_codegen::{Language, write_source};
use dunlin_games::Registry;
use serde_json::Value;

use super::{Failure, output};

/// Print the fields that a game declares for its objects: as types of a client's language with functions that read them, or as
/// the document that clients receive.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  dunlin schema treasure_hunt --lang ts > treasure_hunt.ts")]
pub(super) struct SchemaArgs {
    /// The simulation, as in `room.simulation`
    simulation: String,
    /// The language of the types; json: the document
    #[arg(long, value_enum, default_value_t = Form::Json)]
    lang: Form,
    /// The parameters, as in `room.params`, if the fields depend on them
    #[arg(long, value_name = "JSON")]
    params: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Form {
    Json,
    /// TypeScript
    Ts,
    /// C# 7.2, for Unity and .NET
    Csharp,
    /// For Godot 4
    Gdscript,
    /// Python 3.9
    Python,
    /// C99: one header, also for C++
    C,
}

pub(super) fn run(args: &SchemaArgs, registry: &Registry) -> Result<(), Failure> {
    output::text(written(args, registry).map_err(Failure::Usage)?)
}

fn written(args: &SchemaArgs, registry: &Registry) -> Result<String, String> {
    let name = &args.simulation;
    let params = match &args.params {
        None => Value::Null,
        Some(json) => serde_json::from_str(json).map_err(|error| format!("--params is not JSON: {error}"))?,
    };
    let game = registry.make(name, &params).ok_or_else(|| {
        let names: Vec<&str> = registry.names().collect();
        format!("there is no simulation {name:?}: name one of {}", names.join(", "))
    })?;
    let schema = game.map_err(|bad| format!("the parameters of {name}: {bad}"))?.schema();
    if schema.is_empty() {
        return Err(format!("{name} declares no fields: see `state!` in docs/rooms.md"));
    }
    let language = match args.lang {
        Form::Json => return Ok(format!("{}\n", schema.document())),
        Form::Ts => Language::TypeScript,
        Form::Csharp => Language::CSharp,
        Form::Gdscript => Language::GdScript,
        Form::Python => Language::Python,
        Form::C => Language::C,
    };
    write_source(&schema, language, name).map_err(|error| format!("{name}: {error}"))
}

#[cfg(test)]
mod tests {
    use dunlin_rooms::Schema;

    use super::*;

    fn with(simulation: &str, lang: Form, params: Option<&str>) -> Result<String, String> {
        let registry = Registry::built_in();
        written(&SchemaArgs { simulation: simulation.to_owned(), lang, params: params.map(str::to_owned) }, &registry)
    }

    #[test]
    fn each_game_that_ships_with_dunlin_has_types_in_each_language() {
        for name in ["tag", "treasure_hunt"] {
            let document = with(name, Form::Json, None).expect("a document");
            assert!(Schema::from_document(document.trim_end().as_bytes()).is_ok_and(|schema| !schema.is_empty()));
            for lang in [Form::Ts, Form::Csharp, Form::Gdscript, Form::Python, Form::C] {
                let source = with(name, lang, Some("{}")).expect("a source");
                assert!(source.contains("Do not edit."), "{source}");
            }
        }
    }

    #[test]
    fn the_files_of_the_demo_are_fresh() {
        for (game, file) in [("treasure_hunt", "web/arena/src/treasure_hunt.ts"), ("tag", "web/tag/src/states.ts")] {
            let path = format!("{}/../../{file}", env!("CARGO_MANIFEST_DIR"));
            let written = std::fs::read_to_string(path).expect("the file");
            assert!(with(game, Form::Ts, None).as_ref() == Ok(&written), "{file} is stale: run `make generate`");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (simulation, params, expected) in [
            ("chess", None, "there is no simulation \"chess\": name one of crowd, tag, treasure_hunt"),
            ("tag", Some("{"), "--params is not JSON: EOF while parsing an object at line 1 column 1"),
            (
                "tag",
                Some(r#"{"bots":-1}"#),
                "the parameters of tag: `bots` is -1; it may be a whole number from 0 to 500",
            ),
        ] {
            assert_eq!(with(simulation, Form::Ts, params), Err(expected.to_owned()));
        }
    }
}
