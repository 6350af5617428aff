//! The answers of a room to messages of the backend.

use std::sync::Arc;

use super::{RoomHost, RoutedMessage, runner::MessageAnswer};
use crate::room::FromRoom;

impl RoomHost {
    pub(super) fn send_answers(&self, answered: Vec<MessageAnswer>, outgoing: &mut Vec<RoutedMessage>) {
        outgoing.extend(answered.into_iter().map(|(id, answer)| {
            let channel = Arc::clone(&self.channel);
            (self.key.owner, FromRoom::Answered { room: self.key, channel, id, answer })
        }));
    }
}
