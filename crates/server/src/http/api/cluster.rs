//! Commands that concern the sessions and rooms of all nodes of a cluster. This node executes the command on its own
//! part, asks the other live nodes ([`crate::peers`]), and merges the results.

mod merge;
mod reports;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use dunlin_cluster::core::peers::SurveyFault;
use dunlin_engine::api::{ApiAnswer, ApiRequest};
use dunlin_protocol::ClientInfo;

use super::{ApiError, Executor, JsonResult, SessionsWanted, glob::Glob, result::to_outcome, room_list::RoomQuery};
use crate::peers::{
    self, ChannelRoomsQuestion, ChannelsQuestion, DisconnectOrder, Done, InfoQuestion, PeerAnswers, PresenceQuestion,
    PresenceUsers, PresenceUsersQuestion, Question, RefreshOrder, RoomsQuestion, SubscribeOrder, UnsubscribeOrder,
};

use merge::Merging;

impl Executor {
    pub(super) async fn presence(&self, channel: Box<str>) -> JsonResult {
        let own = self.clients(&channel).await?.into_iter().collect();
        merge::presence(self.everywhere(&PresenceQuestion { channel }, own).await?)
    }

    pub(super) async fn presence_stats(&self, channel: Box<str>) -> JsonResult {
        if self.node().cluster().is_none() {
            return self.own_presence_stats(channel).await;
        }
        let own = PresenceUsers::of(&self.clients(&channel).await?);
        merge::presence_stats(self.everywhere(&PresenceUsersQuestion { channel }, own).await?)
    }

    pub(super) async fn channels(&self, pattern: Option<Glob>) -> JsonResult {
        let question = ChannelsQuestion { pattern: pattern.as_ref().map(Glob::pattern).unwrap_or_default().into() };
        let own = self.own_channels(pattern).await?;
        merge::channels(self.everywhere(&question, own).await?)
    }

    pub(super) async fn info(&self) -> JsonResult {
        let own = self.own_info().await?;
        merge::info(self.everywhere(&InfoQuestion {}, own).await?)
    }

    pub(super) async fn rooms(&self) -> JsonResult {
        let own = self.own_rooms()?;
        merge::rooms(self.everywhere(&RoomsQuestion {}, own).await?)
    }

    pub(super) async fn room_list(&self, query: &RoomQuery) -> JsonResult {
        let own = self.own_room_list(query).await?;
        if self.node().cluster().is_none() {
            return to_outcome(&own);
        }
        merge::room_list(self.everywhere(&query.to_question(), own).await?, query.rooms_max)
    }

    pub(super) async fn room_info(&self, channel: Box<str>) -> JsonResult {
        let own = self.own_channel_rooms(&channel)?;
        if self.node().cluster().is_none() {
            return to_outcome(own.rooms.first().ok_or_else(|| self.why_no_room(&channel))?);
        }
        let question = ChannelRoomsQuestion { channel };
        let merged = merge::room_info(self.everywhere(&question, own).await?);
        // This node knows whether the namespace has rooms.
        merged.map_err(|error| if error == ApiError::NOT_FOUND { self.why_no_room(&question.channel) } else { error })
    }

    pub(super) async fn sessions(&self, wanted: &SessionsWanted) -> JsonResult {
        let own = self.own_sessions(wanted).await?;
        let merging = self.everywhere(&wanted.to_question(), own).await?;
        merge::sessions(merging, &wanted.query)
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
            // The commands of the API about sessions are these four.
            _ => Err(ApiError::INTERNAL),
        }
    }

    async fn done_everywhere<Q: Question<Answer = Done>>(&self, request: ApiRequest, order: Q) -> JsonResult {
        self.done_by_all(request).await?;
        merge::done(&self.everywhere(&order, Done {}).await?)
    }

    /// The part of this node and the answers of all others; of this node alone without a cluster.
    async fn everywhere<Q: Question>(&self, question: &Q, own: Q::Answer) -> Result<Merging<Q::Answer>, ApiError> {
        let Some(cluster) = self.node().cluster() else { return Ok(Merging::new(own, PeerAnswers::ALONE)) };
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

    /// The sessions in a channel's presence on this node.
    async fn clients(&self, channel: &str) -> Result<Vec<Arc<ClientInfo>>, ApiError> {
        match self.ask(channel, ApiRequest::Presence { channel: channel.into() }).await? {
            ApiAnswer::Presence(clients) => Ok(clients),
            _ => Err(ApiError::INTERNAL),
        }
    }
}
