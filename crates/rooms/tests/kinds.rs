//! Kinds with fields, for several tests.

use dunlin_rooms::{ObjectId, choice, state};

choice! {
    /// A light.
    #[derive(Clone)]
    pub enum Light { Red, Amber, Green }
}

state! {
    /// A kind with a field of each type that is not a list.
    pub struct Walker: 1 {
        pub heading: u8 [angle(), delta_bits(4)],
        pub score: i16 [range(-300, 299), delta_bits(5), per_unit(10), linear()],
        pub is_on: bool,
        pub light: Light,
        pub target: Option<ObjectId>,
        pub wide: u32,
        pub name: String [max(6)],
    }
}

state! {
    /// A kind with lists, and with fields that may be left out.
    pub struct Bag: 2 {
        pub label: String [max(300)],
        pub pair: [i8; 2],
        pub amount: u16 [optional()],
        pub items: Vec<u16> [range(5, 700), max(4), optional()],
    }
}
