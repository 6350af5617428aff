//! Code in the documentation is identical to compiled code.

use crate::read;

#[test]
fn the_game_in_the_guide_is_the_example() {
    let guide = read("docs/rooms.md");
    let example = read("crates/game/examples/own_game.rs");
    let shown = guide.split("```rust\n").nth(1).and_then(|rest| rest.split("```\n").next());
    assert_eq!(shown, Some(example.as_str()), "docs/rooms.md shows another game than crates/game/examples/own_game.rs");
}
