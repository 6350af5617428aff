//! The methods of the server API.

macro_rules! methods {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $number:expr;)*) => {
        /// A method.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Method { $($(#[$doc])* $variant,)* }

        impl Method {
            /// Every method.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// The last part of its path.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Its number in the one-path form of the API; `None` for methods that came after that form.
            const fn number(self) -> Option<u32> {
                match self { $(Self::$variant => $number,)* }
            }
        }
    };
}

methods! {
    /// Publishes into a channel.
    Publish = "publish", Some(0);
    /// Publishes the same into several channels.
    Broadcast = "broadcast", Some(1);
    /// Several commands in one request.
    Batch = "batch", None;
    /// Who is in a channel.
    Presence = "presence", Some(4);
    /// How many are in a channel.
    PresenceStats = "presence_stats", Some(5);
    /// A channel's publications.
    History = "history", Some(6);
    /// Forgets a channel's publications.
    HistoryRemove = "history_remove", Some(7);
    /// Channels that have subscribers.
    Channels = "channels", Some(8);
    /// Closes sessions of a user.
    Disconnect = "disconnect", Some(3);
    /// Ends subscriptions of a user.
    Unsubscribe = "unsubscribe", Some(2);
    /// What the node is and has.
    Info = "info", Some(9);
    /// Opens a channel's room. Dunlin's own, as are the next two.
    RoomOpen = "room_open", None;
    /// Closes a channel's room.
    RoomClose = "room_close", None;
    /// The rooms of the node.
    Rooms = "rooms", None;
    /// A method that an extension would bring; there are none.
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
    /// The method at the end of a path.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name() == name)
    }

    /// Why it is answered with error 108, if it is.
    pub const fn unsupported(self) -> Option<&'static str> {
        match self {
            Self::MapPublish
            | Self::MapRemove
            | Self::MapReadState
            | Self::MapReadStream
            | Self::MapStats
            | Self::MapClear => Some("Dunlin knows no map subscriptions yet"),
            Self::SharedPollPublish => Some("Dunlin knows no shared poll subscriptions yet"),
            _ => None,
        }
    }

    /// The method of the one-path form: by name in either case.
    pub fn by_legacy_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.number().is_some() && method.name().eq_ignore_ascii_case(name))
    }

    /// The method of the one-path form by its number.
    pub fn by_legacy_number(number: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.number().is_some_and(|own| i64::from(own) == number))
    }
}
