//! Nodes and connections that fail.

use dunlin_cluster::link::{LinkEvent, LinkName};

use super::{ClusteredWorld, LinkQueues};

impl ClusteredWorld<'_> {
    pub(super) fn cut_link(&mut self) {
        self.count("connection cut");
        let place = self.chance.below(self.links.len());
        let until_us = self.now_us + self.chance.between(0, 800_000);
        let link = *self.chance.pick(&LinkName::ALL);
        self.links[place].cut(self.now_us, link, until_us);
        if self.chance.percent(30) {
            self.links[place].reply(self.now_us, LinkName::Live, LinkEvent::SlowConsumer);
        }
    }

    /// A node is gone at once, and another one takes its place.
    pub(super) fn crash(&mut self) {
        if !self.chance.percent(40) {
            return;
        }
        self.count("crash");
        let place = self.chance.below(self.nodes.len());
        self.trace.line(self.now_us, || format!("node {place} crashes"));
        for client in &mut self.clients {
            if client.session.is_some_and(|(at, _)| at == place) {
                client.leave();
            }
        }
        self.asked.retain(|_, (node, _)| *node != place);
        self.nodes[place] = self.new_node();
        self.links[place] = LinkQueues::default();
    }
}
