//! Commands that concern the sessions and rooms of all nodes of a cluster. This node executes the command on its own
//! part, asks the other live nodes ([`crate::peers`]), and merges the results.

mod merge;
#[cfg(test)]
mod tests;

use dunlin_cluster::core::peers::SurveyFault;
use dunlin_engine::api::ApiRequest;

use super::{
    ApiError, ChannelsWanted, JsonResult, SessionsWanted, glob::Glob, own_node::OwnNode, result::to_outcome,
    room_list::RoomQuery, sessions,
};
use crate::peers::{
    self, ChannelRoomsQuestion, ChannelsQuestion, CloseRoomOrder, DisconnectOrder, Done, InfoQuestion, PaceOrder,
    PeerAnswers, PresenceQuestion, PresenceUsers, PresenceUsersQuestion, Question, RefreshOrder, RoomsQuestion,
    StatusQuestion, SubscribeOrder, UnsubscribeOrder,
};

use merge::Merging;

/// All nodes of the cluster; this one alone without a cluster.
pub(super) struct AllNodes<'a> {
    own: &'a OwnNode,
}

impl<'a> AllNodes<'a> {
    pub(super) const fn new(own: &'a OwnNode) -> Self {
        Self { own }
    }

    pub(super) async fn presence(&self, channel: Box<str>) -> JsonResult {
        let own = self.own.clients(&channel).await?.into_iter().collect();
        merge::presence(self.everywhere(&PresenceQuestion { channel }, own).await?)
    }

    pub(super) async fn presence_stats(&self, channel: Box<str>) -> JsonResult {
        if self.own.node().cluster().is_none() {
            return self.own.presence_stats(channel).await;
        }
        let own = PresenceUsers::of(&self.own.clients(&channel).await?);
        merge::presence_stats(self.everywhere(&PresenceUsersQuestion { channel }, own).await?)
    }

    pub(super) async fn channels(&self, pattern: Option<Glob>) -> JsonResult {
        let question = ChannelsQuestion { pattern: pattern.as_ref().map(Glob::pattern).unwrap_or_default().into() };
        let own = self.own.find_channels(pattern).await?;
        merge::channels(self.everywhere(&question, own).await?)
    }

    pub(super) async fn channel_page(&self, wanted: ChannelsWanted) -> JsonResult {
        let question = wanted.to_question()?;
        let own = self.own.page_of_channels(&question).await?;
        let parts = self.everywhere(&question, own).await?;
        if !wanted.largest {
            return merge::channels_by_name(parts);
        }
        // A node's page does not have the subscribers of a channel that is large on another one.
        let candidates = parts.candidates();
        let question = candidates.to_question();
        let own = self.own.count_channels(&question).await?;
        merge::largest_channels(parts, &candidates, self.everywhere(&question, own).await?)
    }

    pub(super) async fn status(&self) -> JsonResult {
        let own = self.own.state().await?;
        merge::status(self.everywhere(&StatusQuestion {}, own).await?)
    }

    pub(super) async fn info(&self) -> JsonResult {
        let own = self.own.describe().await?;
        merge::info(self.everywhere(&InfoQuestion {}, own).await?)
    }

    pub(super) async fn rooms(&self) -> JsonResult {
        let own = self.own.all_rooms()?;
        merge::rooms(self.everywhere(&RoomsQuestion {}, own).await?)
    }

    pub(super) async fn room_list(&self, query: &RoomQuery) -> JsonResult {
        let own = self.own.room_page(query).await?;
        if self.own.node().cluster().is_none() {
            return to_outcome(&own);
        }
        merge::room_list(self.everywhere(&query.to_question(), own).await?, query.rooms_max)
    }

    pub(super) async fn room_info(&self, channel: Box<str>) -> JsonResult {
        let own = self.own.room_of(&channel)?;
        if self.own.node().cluster().is_none() {
            return to_outcome(own.rooms.first().ok_or_else(|| self.own.why_no_room(&channel))?);
        }
        let question = ChannelRoomsQuestion { channel };
        let merged = merge::room_info(self.everywhere(&question, own).await?);
        // This node knows whether the namespace has rooms.
        merged
            .map_err(|error| if error == ApiError::NOT_FOUND { self.own.why_no_room(&question.channel) } else { error })
    }

    /// Closes a room on the node that has it.
    pub(super) async fn close_room(&self, channel: Box<str>) -> JsonResult {
        let own = peers::close_room_here(self.own.node(), &channel).await?;
        // This node asks nobody for its own room, so that a node that is silent does not matter.
        if own.num_players.is_some() || self.own.node().cluster().is_none() {
            return merge::room_closed(&Merging::new(own, PeerAnswers::ALONE));
        }
        merge::room_closed(&self.everywhere(&CloseRoomOrder { channel }, own).await?)
    }

    pub(super) async fn sessions(&self, wanted: &SessionsWanted) -> JsonResult {
        let own = sessions::of_own_node(self.own, wanted).await?;
        let merging = self.everywhere(&wanted.to_question(), own).await?;
        merge::sessions(merging, &wanted.query)
    }

    /// Tells all other nodes something that this node has done. Fails unless all of them have done it as well.
    pub(super) async fn tell<Q: Question<Answer = Done>>(&self, order: &Q) -> JsonResult {
        merge::done(&self.everywhere(order, Done {}).await?)
    }

    /// Executes a command about sessions.
    pub(super) async fn order(&self, request: ApiRequest) -> JsonResult {
        match &request {
            ApiRequest::Disconnect { user, only, whitelist, disconnect } => {
                let order = DisconnectOrder::new(user, only, whitelist, disconnect);
                self.done_everywhere(request, order).await
            }
            ApiRequest::Unsubscribe { channel, user, only, code: _ } => {
                let order = UnsubscribeOrder::new(channel, user, only);
                self.done_everywhere(request, order).await
            }
            ApiRequest::Subscribe { user, only, subscription } => {
                let order = SubscribeOrder::new(user, only, subscription);
                self.done_everywhere(request, order).await
            }
            ApiRequest::Refresh { user, only, expired, expires_at_ms, info } => {
                let order = RefreshOrder::new(user, only, *expired, *expires_at_ms, info.as_ref());
                self.done_everywhere(request, order).await
            }
            ApiRequest::SetPace { user, only, change } => {
                let order = PaceOrder::new(user, only, change);
                self.done_everywhere(request, order).await
            }
            // The commands of the API about sessions are these.
            _ => Err(ApiError::INTERNAL),
        }
    }

    async fn done_everywhere<Q: Question<Answer = Done>>(&self, request: ApiRequest, order: Q) -> JsonResult {
        self.own.done_by_all(request).await?;
        self.tell(&order).await
    }

    /// The part of this node and the answers of all others; of this node alone without a cluster.
    async fn everywhere<Q: Question>(&self, question: &Q, own: Q::Answer) -> Result<Merging<Q::Answer>, ApiError> {
        let Some(cluster) = self.own.node().cluster() else { return Ok(Merging::new(own, PeerAnswers::ALONE)) };
        let found = peers::ask_all(cluster, question).await.map_err(|fault| match fault {
            SurveyFault::Busy => {
                ApiError::internal("too many requests wait for other nodes: see broker.nats.peers.surveys_limit")
            }
            SurveyFault::TooLarge => {
                ApiError::bad_request("the request is too large for NATS: raise max_payload of its servers")
            }
        })?;
        Ok(Merging::new(own, found))
    }
}
