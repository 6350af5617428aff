//! What this node reports of itself to other nodes, and as its own part of a merged result.

use super::super::{ApiError, Executor, SessionsWanted, room_list::RoomQuery};
use crate::{
    http::api::glob::Glob,
    peers::{
        ChannelRooms, Channels, ChannelsQuestion, Info, LocalReports, PeerError, RoomList, RoomListQuestion, Rooms,
        Sessions, SessionsQuestion,
    },
};

impl LocalReports for Executor {
    async fn channels(&self, ChannelsQuestion { pattern }: ChannelsQuestion) -> Result<Channels, PeerError> {
        let pattern = (!pattern.is_empty()).then(|| Glob::compile(&pattern));
        let pattern = pattern.transpose().map_err(ApiError::bad_request)?;
        Ok(self.own_channels(pattern).await?)
    }

    async fn info(&self) -> Result<Info, PeerError> {
        Ok(self.own_info().await?)
    }

    fn rooms(&self) -> Result<Rooms, PeerError> {
        Ok(self.own_rooms()?)
    }

    async fn room_list(&self, question: RoomListQuestion) -> Result<RoomList, PeerError> {
        Ok(self.own_room_list(&RoomQuery::of_question(question)?).await?)
    }

    async fn sessions(&self, question: SessionsQuestion) -> Result<Sessions, PeerError> {
        Ok(self.own_sessions(&SessionsWanted::of_question(question)?).await?)
    }

    fn channel_rooms(&self, channel: &str) -> Result<ChannelRooms, PeerError> {
        Ok(self.own_channel_rooms(channel)?)
    }
}

impl From<ApiError> for PeerError {
    fn from(error: ApiError) -> Self {
        Self { code: error.code(), message: error.message().to_owned().into() }
    }
}
