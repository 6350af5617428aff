//! The methods of the server API. [`methods!`] declares each: its name, and the type of its command. That type has the
//! parameters, and says what the method does ([`Command`]).

use serde::Deserialize;

use super::{
    ApiError, Executor, JsonResult, RequestLimits,
    block_and_revoke::{BlockUserCommand, InvalidateUserTokensCommand, RevokeTokenCommand, UnblockUserCommand},
    body::{Body, Malformed},
    channels::ChannelsCommand,
    command::{Command, Parsed, parse_as, unsupported},
    history::{HistoryCommand, HistoryRemoveCommand},
    info::InfoCommand,
    paces::{SessionPaceCommand, SubscriptionPaceCommand},
    paths::PathsWanted,
    presence::{PresenceCommand, PresenceStatsCommand},
    publish::{BroadcastCommand, PublishCommand},
    room_list::{RoomInfoCommand, RoomQuery},
    rooms::{
        RoomCloseCommand, RoomKickCommand, RoomLockCommand, RoomOpenCommand, RoomSendCommand, RoomUpdateCommand,
        RoomsCommand,
    },
    rpc::RpcCommand,
    session_orders::{DisconnectCommand, RefreshCommand, SubscribeCommand, UnsubscribeCommand},
    sessions::{ExplainCommand, ListCommand},
    tickets::{MatchCancelCommand, MatchCommand, MatchStatusCommand},
    wire::{NoParams, OnlyObject},
};

macro_rules! methods {
    (
        $($(#[$doc:meta])* $variant:ident = $name:literal, $number:expr => $command:ty;)*
        [unsupported] $($off:ident = $off_name:literal, $off_number:expr => $why:expr;)*
    ) => {
        /// A method.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Method {
            $($(#[$doc])* $variant,)*
            $(/// Not supported yet.
            $off,)*
            /// Executes several commands.
            Batch,
        }

        impl Method {
            /// All methods.
            pub const ALL: [Self; [$($name,)* $($off_name,)* "batch"].len()] =
                [$(Self::$variant,)* $(Self::$off,)* Self::Batch];

            /// The last segment of the path.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                    $(Self::$off => $off_name,)*
                    Self::Batch => "batch",
                }
            }

            /// The number in the single-path form of the API; `None` for newer methods.
            const fn number(self) -> Option<u32> {
                match self {
                    $(Self::$variant => $number,)*
                    $(Self::$off => $off_number,)*
                    Self::Batch => None,
                }
            }

            /// Why the method gets error 108, if it does.
            pub const fn unsupported(self) -> Option<&'static str> {
                match self {
                    $(Self::$off => Some($why),)*
                    _ => None,
                }
            }
        }

        /// A parsed request of the server API.
        #[derive(Clone, Debug)]
        pub enum ApiCommand {
            $($(#[$doc])* $variant($command),)*
        }

        impl ApiCommand {
            /// Parses the body of a request for `method`, which is not [`Method::Batch`].
            ///
            /// # Errors
            /// [`Malformed`]
            pub fn parse(method: Method, body: &[u8], limits: &RequestLimits) -> Result<Parsed, Malformed> {
                let body = Body { method, bytes: body };
                match method {
                    $(Method::$variant => {
                        parse_as(body, |params| <$command as Command>::check(params, limits).map(Self::$variant))
                    })*
                    $(Method::$off)|* => parse_as(body, |_: NoParams| Err(unsupported(method))),
                    Method::Batch => Ok(Err(ApiError::NOT_FOUND)),
                }
            }

            /// Executes the command, on all nodes of the cluster if it concerns them.
            pub(super) async fn carry_out(self, executor: &Executor) -> JsonResult {
                match self {
                    $(Self::$variant(command) => command.carry_out(executor).await,)*
                }
            }
        }

        /// One command of a batch: the field that is present determines it. Each has the name of its method.
        #[derive(Debug, Default, Deserialize)]
        #[serde(default)]
        #[allow(non_snake_case, reason = "a macro cannot make names of fields from those of variants")]
        pub struct BatchCommand {
            $(#[serde(rename = $name)]
            $variant: Option<OnlyObject<<$command as Command>::Params>>,)*
            $(#[serde(rename = $off_name)]
            $off: Option<OnlyObject<NoParams>>,)*
        }

        impl BatchCommand {
            /// The method of the first field that is present, and its command.
            pub(super) fn check(self, limits: &RequestLimits) -> Option<(Option<Method>, Parsed)> {
                $(if let Some(OnlyObject(params)) = self.$variant {
                    let checked = <$command as Command>::check(params, limits);
                    return Some((Some(Method::$variant), checked.map(ApiCommand::$variant)));
                })*
                $(if self.$off.is_some() {
                    return Some((Some(Method::$off), Err(unsupported(Method::$off))));
                })*
                None
            }
        }

        /// Shows the parameters of each method to a test.
        #[cfg(test)]
        pub(super) fn show_params(visitor: &mut impl ParamsVisitor) {
            $(visitor.visit::<<$command as Command>::Params>(stringify!($variant));)*
        }
    };
}

const MAPS: &str = "Dunlin has no map subscriptions yet";
const SHARED_POLL: &str = "Dunlin has no shared poll subscriptions yet";

// A batch executes the first of these that one of its commands has. The order of Centrifugo's methods is Centrifugo's.
methods! {
    /// Publishes into a channel.
    Publish = "publish", Some(0) => PublishCommand;
    /// Publishes the same data into several channels.
    Broadcast = "broadcast", Some(1) => BroadcastCommand;
    /// Subscribes sessions of a user.
    Subscribe = "subscribe", Some(11) => SubscribeCommand;
    /// Ends subscriptions of a user.
    Unsubscribe = "unsubscribe", Some(2) => UnsubscribeCommand;
    /// Closes sessions of a user.
    Disconnect = "disconnect", Some(3) => DisconnectCommand;
    /// Returns a channel's publications.
    History = "history", Some(6) => HistoryCommand;
    /// Removes a channel's publications.
    HistoryRemove = "history_remove", Some(7) => HistoryRemoveCommand;
    /// Lists the clients in a channel.
    Presence = "presence", Some(4) => PresenceCommand;
    /// Counts the clients in a channel.
    PresenceStats = "presence_stats", Some(5) => PresenceStatsCommand;
    /// Describes the node.
    Info = "info", Some(9) => InfoCommand;
    /// Opens a channel's room.
    RoomOpen = "room_open", None => RoomOpenCommand;
    /// Closes a channel's room.
    RoomClose = "room_close", None => RoomCloseCommand;
    /// Lists the rooms of the node.
    Rooms = "rooms", None => RoomsCommand;
    /// Lists rooms in pages, with filters.
    RoomList = "room_list", None => Box<RoomQuery>;
    /// Describes one room.
    RoomInfo = "room_info", None => RoomInfoCommand;
    /// Returns where the players of a room went.
    RoomPaths = "room_paths", None => Box<PathsWanted>;
    /// Lists sessions in pages, those that have been behind for longest first.
    Sessions = "sessions", None => Box<ListCommand>;
    /// Says why clients are behind.
    Explain = "explain", None => Box<ExplainCommand>;
    /// Sends a message to the game in a channel's room.
    RoomSend = "room_send", None => RoomSendCommand;
    /// Changes how a channel's room is listed, and who may join it.
    RoomUpdate = "room_update", None => RoomUpdateCommand;
    /// Locks or unlocks a channel's room.
    RoomLock = "room_lock", None => RoomLockCommand;
    /// Removes players from a channel's room.
    RoomKick = "room_kick", None => RoomKickCommand;
    /// Places users in a room.
    Match = "match", None => MatchCommand;
    /// Cancels a ticket.
    MatchCancel = "match_cancel", None => MatchCancelCommand;
    /// Returns the state of a ticket.
    MatchStatus = "match_status", None => MatchStatusCommand;
    /// Sets how many updates per second subscriptions of a user are sent.
    SubscriptionPace = "subscription_pace", None => SubscriptionPaceCommand;
    /// Sets how many bytes per second sessions of a user are sent.
    SessionPace = "session_pace", None => SessionPaceCommand;
    /// Blocks a user until a time.
    BlockUser = "block_user", None => BlockUserCommand;
    /// Ends the block of a user.
    UnblockUser = "unblock_user", None => UnblockUserCommand;
    /// Revokes a token.
    RevokeToken = "revoke_token", None => RevokeTokenCommand;
    /// Revokes the tokens of a user that were issued before a time.
    InvalidateUserTokens = "invalidate_user_tokens", None => InvalidateUserTokensCommand;
    /// Calls a method of an extension.
    Rpc = "rpc", Some(10) => RpcCommand;
    /// Sets the expiry of sessions of a user.
    Refresh = "refresh", Some(12) => RefreshCommand;
    /// Lists channels with subscribers.
    Channels = "channels", Some(8) => ChannelsCommand;

    [unsupported]
    MapPublish = "map_publish", Some(33) => MAPS;
    MapRemove = "map_remove", Some(34) => MAPS;
    MapReadState = "map_read_state", Some(35) => MAPS;
    MapReadStream = "map_read_stream", Some(36) => MAPS;
    MapStats = "map_stats", Some(37) => MAPS;
    MapClear = "map_clear", Some(38) => MAPS;
    SharedPollPublish = "shared_poll_publish", Some(39) => SHARED_POLL;
}

/// What a test does with the parameters of a method.
#[cfg(test)]
pub(super) trait ParamsVisitor {
    fn visit<P: serde::de::DeserializeOwned>(&mut self, variant: &str);
}

impl Method {
    /// The method with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name() == name)
    }

    /// The method of the single-path form with this name, in any case.
    pub fn by_legacy_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.number().is_some() && method.name().eq_ignore_ascii_case(name))
    }

    /// The method of the single-path form with this number.
    pub fn by_legacy_number(number: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.number().is_some_and(|own| i64::from(own) == number))
    }
}
