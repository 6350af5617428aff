//! Games receive the addresses of clients only where the namespace allows it.

use dunlin_engine::room::ToRoom;
use dunlin_protocol::Encoding;
use serde_json::json;

use crate::hall::{Hall, options};

/// The address in the join of `name`.
fn address_in_join(hall: &mut Hall, name: &str) -> Option<String> {
    hall.open(name, Encoding::Json, 0);
    hall.join(name, "arena:a", &json!({}));
    let joins = hall.node.to_rooms.iter().filter_map(|(_, message)| match message {
        ToRoom::Join { request, .. } => request.join.as_ref(),
        _ => None,
    });
    let addresses: Vec<_> = joins.map(|join| join.address.map(|address| address.to_string())).collect();
    let [address] = &addresses[..] else { panic!("{addresses:?}") };
    address.clone()
}

#[test]
fn a_join_has_the_address_only_where_allowed() {
    for shows_address in [false, true] {
        let mut options = options();
        options.namespaces[0].room.as_mut().expect("rooms").shows_address = shows_address;
        let found = address_in_join(&mut Hall::new(2, options.clone()), "ada@7");
        assert_eq!(found, shows_address.then(|| "0.0.0.7".to_owned()));
        // The caller may not know the address of a client.
        assert_eq!(address_in_join(&mut Hall::new(2, options), "bob"), None);
    }
}
