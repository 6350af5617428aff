// Included by the examples in the documentation: the names of the crate `dunlin_game`, and a game.

pub mod dunlin_game {
    pub use dunlin_games::*;
    pub use dunlin_rooms::*;

    pub mod testing {
        pub use dunlin_games::script::*;
        pub use dunlin_rooms::{RoomOptions, TickOutcome};
    }
}

pub fn game() -> Box<dyn dunlin_rooms::Simulation> {
    Box::new(dunlin_games::TagGame::new(&serde_json::Value::Null).expect("the defaults are good"))
}
