// Completes the method of an example to a `Simulation` with `game!`. Included in the documentation.

#[derive(Default)]
pub struct ExampleGame {
    pub round: u32,
    pub star: Option<dunlin_rooms::ObjectId>,
    pub runners: std::collections::BTreeMap<dunlin_rooms::PlayerId, dunlin_rooms::ObjectId>,
}

macro_rules! missing {
    (grid) => {
        fn grid(&self) -> GridShape {
            GridShape { columns: 8, rows: 8, cell_units: 256, near_cells: 2, far_cells: 0, far_interval_ticks: 1 }
        }
    };
    (start) => {
        fn start(&mut self, _: &mut World) {}
    };
    (join) => {
        fn join(&mut self, _: &mut World, _: PlayerId, _: &Visitor<'_>, _: &[u8]) -> Result<(), Refusal> {
            Ok(())
        }
    };
    (leave) => {
        fn leave(&mut self, _: &mut World, _: PlayerId) {}
    };
    (input) => {
        fn input(&mut self, _: &mut World, _: PlayerId, _: &[u8]) -> Result<(), InputError> {
            Ok(())
        }
    };
    (tick) => {
        fn tick(&mut self, _: &mut World) {}
    };
    (save) => {
        fn save(&self, _: &mut Vec<u8>) {}
    };
    (restore) => {
        fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
            Ok(())
        }
    };
}

/// The methods of the example, between the names of the required ones that it lacks and the end.
macro_rules! game {
    ([$($lacking:ident)*] $($given:tt)*) => {
        impl Simulation for example::ExampleGame {
            $(missing! { $lacking })*
            $($given)*
        }
    };
}
