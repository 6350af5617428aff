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

const ALL: [Language; 4] = [Language::C, Language::CSharp, Language::Python, Language::TypeScript];

#[test]
fn names_have_the_style_of_the_language() {
    let source =
        |language| write_source(&Schema::new().with::<HTTPRunner>(), language, "last_man").expect("usable names");
    let expected = [
        (Language::C, "last_man_httprunner_read", "LAST_MAN_HTTPRUNNER_MODE_STANDING_STILL 0", "uint8_t class_;"),
        (Language::CSharp, "namespace LastMan", "public HttprunnerMode Mode;", "public byte Class;"),
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
            assert_eq!(write_source(&Schema::new(), language, name).err(), expected);
        }
    }
    let same = document("Runner", ["is_on", "isOn"]);
    assert_eq!(write_source(&same, Language::CSharp, "game"), Err(NameError::Twice("IsOn".to_owned())));
    let source = write_source(&same, Language::TypeScript, "game").expect("two names");
    assert!(source.contains("const is_on_ =") && source.contains("const isOn_ ="), "{source}");
}
