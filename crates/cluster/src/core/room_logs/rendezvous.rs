//! Rendezvous hashing: which node opens a room that no node holds.

use crate::names::fnv1a;

/// Whether this node is the one: of all live nodes, the one with the highest hash of both names. So the rooms of a node that
/// has died are spread over the others, and each node knows without a question which are its own.
pub(super) fn is_chosen<'a>(own: &str, others: impl Iterator<Item = &'a str>, channel: &str) -> bool {
    let weight = |node: &str| {
        // Without the mix, the low bits of names that differ in their last letter decide.
        let hash = fnv1a(channel.bytes().chain([0]).chain(node.bytes()));
        (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    };
    let own_weight = weight(own);
    others.filter(|other| *other != own).all(|other| (weight(other), other) < (own_weight, own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_room_has_one_node_and_each_node_its_share() {
        let nodes = ["node-1", "node-2", "node-3"];
        let mut shares = [0; 3];
        for number in 0..3_000 {
            let channel = format!("arena:{number}");
            let chosen: Vec<usize> =
                (0..3).filter(|node| is_chosen(nodes[*node], nodes.into_iter(), &channel)).collect();
            let [node] = chosen[..] else { panic!("{channel} has the nodes {chosen:?}") };
            shares[node] += 1;
            // When another node dies, a room that was not its own stays where it is.
            let gone = nodes[(node + 1) % 3];
            assert!(is_chosen(nodes[node], nodes.into_iter().filter(|other| *other != gone), &channel));
        }
        assert!(shares.iter().all(|share| (850..1_150).contains(share)), "{shares:?}");
    }
}
