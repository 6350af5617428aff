//! What the command refuses, and that names are written in the style of each language. `tests/clients/run` compiles the
//! files and compares what they read.

use dunlin_rooms::{ObjectId, Schema, choice, state};

use crate::{Language, NameError, names, write_source};

choice! {
    enum Mode { StandingStill, Running }
}

state! {
    struct HTTPRunner: 3 {
        mode: Mode,
        owner_id: Option<ObjectId>,
        class: u8,
    }
}

const ALL: [Language; 5] = [Language::C, Language::CSharp, Language::GdScript, Language::Python, Language::TypeScript];

#[test]
fn names_have_the_style_of_the_language() {
    let source =
        |language| write_source(&Schema::new().with::<HTTPRunner>(), language, "last-man").expect("usable names");
    let expected = [
        (Language::C, "last_man_httprunner_read", "LAST_MAN_HTTPRUNNER_MODE_STANDING_STILL 0", "uint8_t class_;"),
        (Language::CSharp, "namespace LastMan", "public HttprunnerMode Mode;", "public byte Class;"),
        (Language::GdScript, "class HttprunnerState:", "[\"StandingStill\", \"Running\"]", "var class_: int"),
        (Language::Python, "class Httprunner:", "mode: Literal[\"StandingStill\", \"Running\"]", "class_: int"),
        (Language::TypeScript, "HTTPRUNNER_KIND = 3", "\"StandingStill\" | \"Running\"", "readonly class: number"),
    ];
    for (language, one, two, three) in expected {
        let source = source(language);
        for part in [one, two, three] {
            assert!(source.contains(part), "{language:?} lacks {part}:\n{source}");
        }
    }
}

#[test]
fn words_of_a_name() {
    for (name, pascal, camel, snake) in [
        ("PlayerState", "PlayerState", "playerState", "player_state"),
        ("player_state", "PlayerState", "playerState", "player_state"),
        ("is_on2", "IsOn2", "isOn2", "is_on2"),
        ("X", "X", "x", "x"),
    ] {
        assert_eq!([names::pascal(name), names::camel(name), names::snake(name)], [pascal, camel, snake]);
    }
}

#[test]
fn names_that_a_language_cannot_have_are_refused() {
    let document = |kind: &str, fields: [&str; 2]| {
        let fields = fields.map(|name| format!(r#"{{"name":"{name}","type":"flag"}}"#)).join(",");
        let document = format!(r#"{{"kinds":[{{"kind":1,"name":"{kind}","fields":[{fields}]}}]}}"#);
        Schema::from_document(document.as_bytes()).expect("a schema")
    };
    for language in ALL {
        let refused = |kind, fields| write_source(&document(kind, fields), language, "game").err();
        assert_eq!(refused("Runner", ["one", "two"]), None);
        for name in ["", "2nd", "a-b", "a;b", "héros", "_a"] {
            let expected = Some(NameError::NotAnIdentifier(name.to_owned()));
            assert_eq!(refused(name, ["one", "two"]), expected);
            assert_eq!(refused("Runner", ["one", name]), expected);
            let of_game = write_source(&Schema::new(), language, name).err();
            assert_eq!(of_game, expected.filter(|_| name != "a-b"), "{name:?}");
        }
    }
    let same = document("Runner", ["is_on", "isOn"]);
    assert_eq!(write_source(&same, Language::CSharp, "game"), Err(NameError::Twice("IsOn".to_owned())));
    assert_eq!(write_source(&same, Language::GdScript, "game"), Err(NameError::Twice("is_on".to_owned())));
    let source = write_source(&same, Language::TypeScript, "game").expect("two names");
    assert!(source.contains("const is_on_ =") && source.contains("const isOn_ ="), "{source}");
}

fn schema(kinds: &[(&str, &str)]) -> Schema {
    let kind = |(number, (name, field)): (usize, &(&str, &str))| {
        format!(r#"{{"kind":{},"name":"{name}","fields":[{field}]}}"#, number + 1)
    };
    let kinds: Vec<String> = kinds.iter().enumerate().map(kind).collect();
    Schema::from_document(format!(r#"{{"kinds":[{}]}}"#, kinds.join(",")).as_bytes()).expect("a schema")
}

#[test]
fn names_that_are_one_in_a_language_are_refused() {
    let mode = |names| format!(r#"{{"name":"mode","type":"choice","names":[{names}]}}"#);
    let (alike, other) = (mode(r#""DarkGreen","dark_green""#), mode(r#""On","Off""#));
    let text = r#"{"name":"title","type":"text","count_max":9},{"name":"title_bytes","type":"flag"}"#;
    let list = r#"{"name":"at","type":"list","bytes":1,"min":0,"max":9,"count_min":0,"count_max":9},{"name":"at_count","type":"flag"}"#;
    let flag = r#"{"name":"on","type":"flag"}"#;
    for (schema, refused) in [
        (schema(&[("Lamp", alike.as_str())]), vec![(Language::C, "dark_green"), (Language::CSharp, "DarkGreen")]),
        (schema(&[("Lamp", other.as_str()), ("LampMode", flag)]), vec![(Language::CSharp, "LampMode")]),
        (schema(&[("Lamp", flag), ("LampRead", flag)]), vec![(Language::C, "lamp_read")]),
        (schema(&[("Lamp", flag), ("LampBetween", flag)]), vec![(Language::C, "lamp_between")]),
        (
            schema(&[("a_b", flag), ("Ab", flag)]),
            vec![(Language::Python, "read_ab"), (Language::TypeScript, "abBetween")],
        ),
        (schema(&[("Lamp", flag), ("LampState", flag)]), vec![(Language::GdScript, "LampState")]),
        (schema(&[("Lamp", text)]), vec![(Language::C, "title_bytes")]),
        (schema(&[("Lamp", list)]), vec![(Language::C, "at_count")]),
    ] {
        for language in ALL {
            let name =
                refused.iter().find(|(of, _)| *of == language).map(|(_, name)| NameError::Twice((*name).to_owned()));
            assert_eq!(write_source(&schema, language, "game").err(), name, "{language:?}");
        }
    }
}

#[test]
fn kinds_may_have_the_names_of_what_the_file_needs() {
    let schema =
        schema(&[("Reader", r#"{"name":"reader","type":"flag"}"#), ("List", r#"{"name":"on","type":"flag"}"#)]);
    for (language, parts) in [
        (Language::C, ["} game_reader_;", "} game_list;"]),
        (Language::CSharp, ["struct Reader_\n", "public bool Reader__;"]),
        (Language::GdScript, ["class ReaderState:", "class ListState:"]),
        (Language::Python, ["class Reader:", "class List_:"]),
        (Language::TypeScript, ["interface Reader_ {", "interface List {"]),
    ] {
        let source = write_source(&schema, language, "game").expect("usable names");
        for part in parts {
            assert!(source.contains(part), "{language:?} lacks {part}:\n{source}");
        }
    }
}
