//! The methods of the server API.

macro_rules! methods {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $number:expr;)*) => {
        /// A method.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Method { $($(#[$doc])* $variant,)* }

        impl Method {
            /// All methods.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// The last segment of the path.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The number in the single-path form of the API; `None` for newer methods.
            const fn number(self) -> Option<u32> {
                match self { $(Self::$variant => $number,)* }
            }
        }
    };
}

methods! {
    /// Publishes into a channel.
    Publish = "publish", Some(0);
    /// Publishes the same data into several channels.
    Broadcast = "broadcast", Some(1);
    /// Executes several commands.
    Batch = "batch", None;
    /// Lists the clients in a channel.
    Presence = "presence", Some(4);
    /// Counts the clients in a channel.
    PresenceStats = "presence_stats", Some(5);
    /// Returns a channel's publications.
    History = "history", Some(6);
    /// Removes a channel's publications.
    HistoryRemove = "history_remove", Some(7);
    /// Lists channels with subscribers.
    Channels = "channels", Some(8);
    /// Closes sessions of a user.
    Disconnect = "disconnect", Some(3);
    /// Ends subscriptions of a user.
    Unsubscribe = "unsubscribe", Some(2);
    /// Describes the node.
    Info = "info", Some(9);
    /// Opens a channel's room. Only Dunlin has the methods of rooms.
    RoomOpen = "room_open", None;
    /// Closes a channel's room.
    RoomClose = "room_close", None;
    /// Sends a message to the game in a channel's room.
    RoomSend = "room_send", None;
    /// Changes how a channel's room is listed, and who may join it.
    RoomUpdate = "room_update", None;
    /// Locks or unlocks a channel's room.
    RoomLock = "room_lock", None;
    /// Removes players from a channel's room.
    RoomKick = "room_kick", None;
    /// Lists the rooms of the node.
    Rooms = "rooms", None;
    /// Lists rooms in pages, with filters.
    RoomList = "room_list", None;
    /// Describes one room.
    RoomInfo = "room_info", None;
    /// Returns where the players of a room went.
    RoomPaths = "room_paths", None;
    /// Lists sessions in pages, those that have been behind for longest first. Only Dunlin has this method and the next.
    Sessions = "sessions", None;
    /// Says why clients are behind.
    Explain = "explain", None;
    /// Places users in a room. Only Dunlin has this method and the next two.
    Match = "match", None;
    /// Cancels a ticket.
    MatchCancel = "match_cancel", None;
    /// Returns the state of a ticket.
    MatchStatus = "match_status", None;
    /// Calls a method of an extension; there are none.
    Rpc = "rpc", Some(10);
    /// Subscribes sessions of a user.
    Subscribe = "subscribe", Some(11);
    /// Sets the expiry of sessions of a user.
    Refresh = "refresh", Some(12);
    /// Map channels; not yet supported.
    MapPublish = "map_publish", Some(33);
    /// Map channels; not yet supported.
    MapRemove = "map_remove", Some(34);
    /// Map channels; not yet supported.
    MapReadState = "map_read_state", Some(35);
    /// Map channels; not yet supported.
    MapReadStream = "map_read_stream", Some(36);
    /// Map channels; not yet supported.
    MapStats = "map_stats", Some(37);
    /// Map channels; not yet supported.
    MapClear = "map_clear", Some(38);
    /// Shared polling; not yet supported.
    SharedPollPublish = "shared_poll_publish", Some(39);
}

impl Method {
    /// The method with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name() == name)
    }

    /// Why the method gets error 108, if it does.
    pub const fn unsupported(self) -> Option<&'static str> {
        match self {
            Self::MapPublish
            | Self::MapRemove
            | Self::MapReadState
            | Self::MapReadStream
            | Self::MapStats
            | Self::MapClear => Some("Dunlin has no map subscriptions yet"),
            Self::SharedPollPublish => Some("Dunlin has no shared poll subscriptions yet"),
            _ => None,
        }
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
