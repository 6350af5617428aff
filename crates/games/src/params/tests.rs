use serde_json::json;

use super::*;

const SHAPE: GridShape =
    GridShape { columns: 8, rows: 4, cell_units: 512, near_cells: 1, far_cells: 1, far_interval_ticks: 6 };

fn complaint<T>(result: Result<T, BadParams>) -> String {
    result.err().expect("refused").0
}

#[test]
fn missing_parameters_have_their_default() {
    for params in [Value::Null, json!({})] {
        let mut params = Params::new(&params).expect("a table");
        assert_eq!(params.number("n", 7, 1..=9), Ok(7));
        assert_eq!(params.flag("f"), Ok(false));
        assert_eq!(params.channel("c"), Ok(None));
        assert_eq!(params.map(SHAPE), Ok(SHAPE));
        assert_eq!(params.finish(), Ok(()));
    }
}

#[test]
fn given_parameters_are_read() {
    let given = json!({"n": 9, "f": true, "c": "leaders:hunt", "columns": 2, "far_interval_ticks": 15});
    let mut params = Params::new(&given).expect("a table");
    assert_eq!(params.number("n", 7, 1..=9), Ok(9));
    assert_eq!(params.flag("f"), Ok(true));
    assert_eq!(params.channel("c"), Ok(Some("leaders:hunt".into())));
    assert_eq!(params.map(SHAPE), Ok(GridShape { columns: 2, far_interval_ticks: 15, ..SHAPE }));
    assert_eq!(params.finish(), Ok(()));
}

#[test]
fn errors_name_the_parameter_and_its_range() {
    assert_eq!(complaint(Params::new(&json!([]))), "the parameters are []; they may be a table");
    for value in [json!(10), json!(0), json!(-1), json!(1.5), json!("3"), json!(null), json!(1_u64 << 40)] {
        let given = json!({"n": value});
        let complaint = complaint(Params::new(&given).expect("a table").number("n", 7, 1..=9));
        assert_eq!(complaint, format!("`n` is {value}; it may be a whole number from 1 to 9"));
    }
    let given = json!({"f": 1, "c": "", "far_interval_ticks": 16, "misspelt": 1});
    let mut params = Params::new(&given).expect("a table");
    assert_eq!(complaint(params.flag("f")), "`f` is 1; it may be true or false");
    assert_eq!(complaint(params.channel("c")), "`c` is \"\"; it may be a channel's name, of 1 to 255 bytes");
    let map = complaint(params.map(SHAPE));
    assert_eq!(map, "`far_interval_ticks` is 16; it may be a whole number from 1 to 15");
    assert!(
        complaint(params.finish()).starts_with("unknown parameter `misspelt`; known parameters are f, c, columns, ")
    );
}

#[test]
fn a_channel_has_at_most_255_bytes() {
    for (bytes, fits) in [(255, true), (256, false)] {
        let given = json!({"c": "x".repeat(bytes)});
        assert_eq!(Params::new(&given).expect("a table").channel("c").is_ok(), fits);
    }
}

#[test]
fn a_map_of_one_cell_has_no_far_cells() {
    let map = |given: Value| Params::new(&given).expect("a table").map(SHAPE);
    let one = GridShape { columns: 1, rows: 1, cell_units: 4_096, near_cells: 0, far_cells: 0, far_interval_ticks: 1 };
    assert_eq!(map(json!({"everyone_sees_everything": true})), Ok(one));
    assert_eq!(map(json!({"everyone_sees_everything": true, "columns": 128})).map(|map| map.cell_units), Ok(65_536));
    let complaint = complaint(map(json!({"everyone_sees_everything": true, "columns": 129})));
    assert!(complaint.ends_with("this one has 66048"), "{complaint}");
}
