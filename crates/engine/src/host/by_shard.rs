//! A value for each shard that may have players of a room: the shards of this node, and those of other nodes while they
//! have some.

use crate::{ShardIndex, event::NodeSlot};

/// A value for each shard. Every shard of this node has one; a shard of another node has one from its first use until
/// [`ByShard::retain_remote`] removes it.
#[derive(Clone, Debug, Default)]
pub(super) struct ByShard<T> {
    /// By shard index.
    local: Vec<T>,
    /// In ascending order. A room has players on few other nodes, so a search in a list is the fastest.
    remote: Vec<(ShardIndex, T)>,
}

impl<T: Default + Clone> ByShard<T> {
    pub(super) fn new(local_count: u16) -> Self {
        Self { local: vec![T::default(); usize::from(local_count)], remote: Vec::new() }
    }

    pub(super) fn get(&self, shard: ShardIndex) -> Option<&T> {
        if shard.node() == NodeSlot::OWN {
            return self.local.get(usize::from(shard.0));
        }
        self.remote.binary_search_by_key(&shard, |(known, _)| *known).ok().map(|place| &self.remote[place].1)
    }

    /// The value of a shard, which is the default if it has none yet.
    pub(super) fn get_or_insert(&mut self, shard: ShardIndex) -> &mut T {
        if shard.node() == NodeSlot::OWN {
            return &mut self.local[usize::from(shard.0)];
        }
        let place = self.remote.binary_search_by_key(&shard, |(known, _)| *known).unwrap_or_else(|place| {
            self.remote.insert(place, (shard, T::default()));
            place
        });
        &mut self.remote[place].1
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (ShardIndex, &mut T)> {
        let local = (0..).zip(&mut self.local).map(|(index, value)| (ShardIndex(index), value));
        local.chain(self.remote.iter_mut().map(|(shard, value)| (*shard, value)))
    }

    /// The shards of other nodes, in ascending order.
    pub(super) fn remote(&self) -> impl Iterator<Item = (ShardIndex, &T)> {
        self.remote.iter().map(|(shard, value)| (*shard, value))
    }

    /// Removes the values of shards of other nodes that are not used.
    pub(super) fn retain_remote(&mut self, mut is_used: impl FnMut(&T) -> bool) {
        self.remote.retain(|(_, value)| is_used(value));
    }

    pub(super) fn map<U>(&self, to: impl Fn(&T) -> U) -> ByShard<U> {
        let remote = self.remote.iter().map(|(shard, value)| (*shard, to(value)));
        ByShard { local: self.local.iter().map(&to).collect(), remote: remote.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_of_other_nodes_have_a_value_while_it_is_used() {
        let mut values = ByShard::<u32>::new(2);
        for shard in [0, 1, 0x0200, 0x0101] {
            *values.get_or_insert(ShardIndex(shard)) = u32::from(shard) + 1;
        }
        let all: Vec<_> = values.iter_mut().map(|(shard, value)| (shard.0, *value)).collect();
        assert_eq!(all, [(0, 1), (1, 2), (0x0101, 0x0102), (0x0200, 0x0201)]);
        values.retain_remote(|value| *value == 0x0201);
        let remote: Vec<_> = values.remote().map(|(shard, _)| shard.0).collect();
        assert_eq!(remote, [0x0200]);
        assert_eq!(values.get(ShardIndex(0x0101)), None);
        assert_eq!(values.map(|value| value + 1).get(ShardIndex(0x0200)), Some(&0x0202));
    }
}
