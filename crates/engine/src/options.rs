//! The operator's settings. The server's configuration parses and checks them; the engine trusts them.

use dunlin_protocol::{Disconnect, FilterLimits};

use crate::{
    backend::ProxyIndex,
    log::{LogLimits, PublicationLog},
    record::RecordOptions,
    session::Share,
};

mod history;
mod room_limits;
mod succession;

pub use room_limits::RoomLimits;
pub use succession::{HeldNamespace, NAMESPACES_MAX};

/// Everything that the shards of one node share.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server's version in the connect reply.
    pub version: &'static str,
    /// The node's id, unguessable, in the connect reply of clients that send commands in separate requests.
    pub node_id: Box<str>,
    /// Sessions.
    pub client: ClientOptions,
    /// Channels, whatever their namespace.
    pub channel: ChannelOptions,
    /// Options of channels without a namespace; `name` is empty.
    pub without_namespace: NamespaceOptions,
    /// The namespaces, by distinct non-empty names.
    pub namespaces: Vec<NamespaceOptions>,
    /// Which backends are asked about sessions and calls.
    pub backend: BackendOptions,
    /// Room threads of the node; 0 only where no namespace has rooms.
    pub room_threads: u16,
    /// What is recorded for the log.
    pub records: RecordOptions,
    /// Rooms of the node that are open. A room costs a world and a tick, however few are in it.
    pub rooms_max: usize,
    /// How fast rooms are opened.
    pub room_openings: RoomOpenings,
    /// What may wait for the logs of namespaces that have one.
    pub log: LogLimits,
    /// Bytes, about, of a publication that is broadcast to other nodes, in the coding of the cluster. A longer one is
    /// answered with error 107.
    pub broadcast_bytes_max: usize,
}

/// How fast rooms are opened. A rate of 0 is no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoomOpenings {
    /// Rooms that the node opens in a second.
    pub per_second: u32,
    /// Of these, rooms that are opened for joins of one session.
    pub session_per_second: u32,
    /// Of these, rooms that are opened for joins from one address.
    pub source_per_second: u32,
    /// Rooms of the node whose world is not made yet.
    pub unmade_max: usize,
}

impl Default for RoomOpenings {
    fn default() -> Self {
        Self { per_second: 500, session_per_second: 5, source_per_second: 20, unmade_max: 256 }
    }
}

/// Which backends are asked, whatever the channel (`client.proxy.*`, `rpc.*`).
#[derive(Clone, Debug, Default)]
pub struct BackendOptions {
    /// About sessions without a token.
    pub connect: Option<ProxyIndex>,
    /// About sessions that expire. With it, clients do not refresh their sessions themselves.
    pub refresh: Option<ProxyIndex>,
    /// About calls of methods without a namespace.
    pub rpc_without_namespace: Option<ProxyIndex>,
    /// About calls, by the namespace of the method; one without a proxy is known and not available.
    pub rpc_namespaces: Vec<(Box<str>, Option<ProxyIndex>)>,
    /// What separates the namespace from the rest of a method's name.
    pub rpc_namespace_boundary: char,
    /// A method that the server itself answers with an empty result, if any.
    pub rpc_ping_method: Option<Box<str>>,
    /// The node itself answers methods that begin with [`crate::backend::NODE_METHODS`], as [`ProxyIndex::NODE`].
    pub has_node_methods: bool,
}

/// A channel that each user is subscribed to by the server (`client.subscribe_to_user_personal_channel`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PersonalChannel {
    /// The namespace of the channels; empty for none. The channel of user `42` is `namespace:#42`.
    pub namespace: String,
    /// A user's older sessions are closed when a newer one comes.
    pub single_connection: bool,
}

/// What publications of a channel have to be (`publication_data_format`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataFormat {
    /// Anything but nothing.
    #[default]
    Any,
    /// A JSON value.
    Json,
    /// A JSON object.
    JsonObject,
    /// Anything, nothing included.
    Binary,
}

/// What leaves compressed, where a client agreed on it (`websocket.compression_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressionOptions {
    /// From 1, quick, to 9, small.
    pub level: u8,
    /// Bytes from which a message is worth it.
    pub message_bytes_min: usize,
}

/// How unidirectional `WebSocket`s end (`uni_websocket.disable_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UniWebSocketOptions {
    /// They end without a close frame.
    pub no_close_frame: bool,
    /// No push says why.
    pub no_disconnect_push: bool,
}

/// Options of sessions (`client.*`).
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Time between pings; 0 switches them off.
    pub ping_interval_ms: u64,
    /// Time for a pong to come; below the ping interval.
    pub pong_timeout_ms: u64,
    /// Grace after the connection's expiry for a refresh.
    pub expired_close_delay_ms: u64,
    /// Grace after a subscription's expiry for a refresh.
    pub expired_sub_close_delay_ms: u64,
    /// Time to authenticate in.
    pub stale_close_delay_ms: u64,
    /// Time for a closing session to take its last frames and hang up.
    pub close_timeout_ms: u64,
    /// Subscriptions of one session.
    pub channel_limit: usize,
    /// Bytes waiting in both lanes of one session.
    pub queue_bytes_max: usize,
    /// Frames waiting in both lanes of one session.
    pub queue_frames_max: usize,
    /// Publications in one history reply.
    pub history_publications_max: usize,
    /// Bytes, about, of the publications in one history reply; a page ends before it gets longer, but never empty.
    pub history_bytes_max: usize,
    /// Bytes, about, of one presence reply; who asks for more is answered with error 106.
    pub presence_bytes_max: usize,
    /// Publications in one recovery.
    pub recovery_publications_max: usize,
    /// Commands in one transport frame.
    pub commands_per_frame_max: usize,
    /// Commands of one session in a second, and as many at once; 0 for any number. `connect`, `unsubscribe` and `send` do
    /// not count. One more is answered with error 111.
    pub commands_per_second: u32,
    /// Objects and lists in one another in a JSON command.
    pub json_depth_max: u32,
    /// Fields of one object in a JSON command, and subscriptions that a `connect` lists.
    pub object_keys_max: u32,
    /// Whether the connect reply contains the server's time.
    pub connect_include_server_time: bool,
    /// A session without a token is the anonymous user's.
    pub allow_anonymous_connect_without_token: bool,
    /// A token with an empty user id is refused.
    pub disallow_anonymous_connection_tokens: bool,
    /// No permission is checked. For development.
    pub insecure: bool,
    /// Each user's own channel, if there are such.
    pub personal_channel: Option<PersonalChannel>,
    /// Sessions of one user on the node, of named ones; 0 for any number. One more is closed with 3504.
    pub user_sessions_max: usize,
    /// Nodes share how many sessions each user has, and `user_sessions_max` is about all of them.
    pub shares_user_sessions: bool,
    /// `connect` commands of the node in a second, each shard its share; 0 for any number. One more is answered with error
    /// 111, after which clients come back later.
    pub connects_per_second: u32,
    /// Recoveries of the node in a second, each shard its share; 0 for any number. One more is answered with error 111, and
    /// the client keeps its position.
    pub recoveries_per_second: u32,
    /// Which disconnect an error of `connect` becomes where only the server speaks, by its code. Those not listed become
    /// the usual ones: 109 and 110 3005, 111 3013, 103 3507, others 3004.
    pub connect_code_to_unidirectional_disconnect: Vec<(u32, Disconnect)>,
    /// How unidirectional `WebSocket`s end.
    pub uni_websocket: UniWebSocketOptions,
    /// What leaves compressed.
    pub compression: CompressionOptions,
}

/// Options of all channels (`channel.*`).
#[derive(Clone, Debug)]
pub struct ChannelOptions {
    /// Bytes of a channel's name.
    pub name_bytes_max: usize,
    /// Channels of the node that are remembered, by subscribers or by their stream.
    pub channels_max: usize,
    /// Bytes of the newest publications of keys, over all channels of the node. Beyond them a channel evicts its oldest.
    pub cache_bytes_max: usize,
    /// Channels that may count for one session: those with publications that only it has used. 0 for any number.
    pub session_channels_max: usize,
    /// The same for one user.
    pub user_channels_max: usize,
    /// The same for one address.
    pub source_channels_max: usize,
    /// Bytes of the publications that the node keeps, each shard its share; 0 for any number.
    pub history_bytes_max: usize,
    /// What separates the namespace from the rest of the name.
    pub namespace_boundary: char,
    /// Prefix of channels that need a subscription token.
    pub private_prefix: String,
    /// What begins the list of users in the name of a user-limited channel.
    pub user_boundary: char,
    /// What separates the users in that list.
    pub user_separator: char,
    /// Results of publications with an idempotency key that one channel remembers.
    pub idempotent_results_max: usize,
    /// How large one subscription's tags filter may be.
    pub tags_filter: FilterLimits,
    /// Different tags filters in one channel, of the sessions of one shard: each costs an evaluation a publication.
    pub tags_filters_max: usize,
}

/// Which lane publications of a namespace take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lane {
    /// First in, first out; nothing missing. A session that falls too far behind is closed and recovers.
    #[default]
    Reliable,
    /// The newest per key; an older one that still waits is replaced.
    Latest,
}

/// What a recovery brings back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecoveryMode {
    /// Everything missed.
    #[default]
    Stream,
    /// The newest publication alone.
    Cache,
}

/// What a publication does for which a history has no room (`history_overflow`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HistoryOverflow {
    /// The oldest publications go: the channel's own, and where the node has no room, those of the largest histories.
    #[default]
    Evict,
    /// It is answered with error 111, and the history stays.
    Refuse,
}

/// Options of the channels of one namespace. All permissions are off by default.
#[derive(Clone, Debug, Default)]
pub struct NamespaceOptions {
    /// The namespace's name.
    pub name: String,
    /// It was removed from the configuration while the node ran: its channels are unknown, its number stays taken.
    pub is_retired: bool,
    /// Keep presence.
    pub presence: bool,
    /// Produce joins and leaves.
    pub join_leave: bool,
    /// Send joins and leaves to subscribers that did not ask.
    pub force_push_join_leave: bool,
    /// Publications kept; 0 for no stream.
    pub history_size: usize,
    /// How long they are kept after the last one; 0 for no stream.
    pub history_ttl_ms: u64,
    /// Bytes of the publications that one channel keeps; 0 for any number.
    pub history_bytes_max: usize,
    /// What a publication does for which there is no room.
    pub history_overflow: HistoryOverflow,
    /// How long epoch and top offset outlive the last use.
    pub history_meta_ttl_ms: u64,
    /// Subscriptions are positioned without asking.
    pub force_positioning: bool,
    /// Clients may ask for positioning.
    pub allow_positioning: bool,
    /// Subscriptions are recoverable without asking.
    pub force_recovery: bool,
    /// Clients may ask for recovery.
    pub allow_recovery: bool,
    /// What a recovery brings back.
    pub recovery_mode: RecoveryMode,
    /// Anonymous sessions may subscribe where clients may.
    pub allow_subscribe_for_anonymous: bool,
    /// Sessions may subscribe without a token.
    pub allow_subscribe_for_client: bool,
    /// Channels whose names list users are open to those, and to nobody else without a token.
    pub allow_user_limited_channels: bool,
    /// Anonymous sessions may publish where others may.
    pub allow_publish_for_anonymous: bool,
    /// Subscribers may publish.
    pub allow_publish_for_subscriber: bool,
    /// Sessions may publish.
    pub allow_publish_for_client: bool,
    /// Anonymous sessions may read presence where others may.
    pub allow_presence_for_anonymous: bool,
    /// Subscribers may read presence.
    pub allow_presence_for_subscriber: bool,
    /// Sessions may read presence.
    pub allow_presence_for_client: bool,
    /// Anonymous sessions may read history where others may.
    pub allow_history_for_anonymous: bool,
    /// Subscribers may read history.
    pub allow_history_for_subscriber: bool,
    /// Sessions may read history.
    pub allow_history_for_client: bool,
    /// The lane of publications.
    pub delivery: Lane,
    /// The tag whose value keys the latest lane; without it, or without the tag, the channel itself does. Publications of
    /// several keys reach a session that was behind out of the order of their offsets, so that no offset says what it
    /// has: with a key, subscriptions are neither positioned nor recoverable, whatever the options above say.
    pub conflation_key: Option<String>,
    /// Keys whose newest publication is sent to each session that subscribes without recovering; 0 for none.
    pub cache_keys_max: usize,
    /// How long a key's newest publication is kept for that.
    pub cache_keys_ttl_ms: u64,
    /// A publication with this tag is delivered, and removes its key from the cache.
    pub removal_tag: Option<Box<str>>,
    /// Clients may ask for a recovery of the newest publication without having a position: the server recovers unasked.
    pub auto_cache_recover: bool,
    /// Clients may ask for differences between publications (fossil delta).
    pub allow_delta: bool,
    /// Every publication may be sent as a difference.
    pub delta_publish: bool,
    /// Clients may have publications filtered by their tags.
    pub allow_tags_filter: bool,
    /// Clients may have the channel's name replaced by a number.
    pub allow_channel_compaction: bool,
    /// What names of channels look like behind the namespace and its boundary; with it, names may leave ASCII.
    pub channel_regex: Option<regex::Regex>,
    /// What publications have to be.
    pub publication_data_format: DataFormat,
    /// Who is asked about subscriptions.
    pub subscribe_proxy: Option<ProxyIndex>,
    /// Who is asked about publications. Not about players' inputs: those go to the room.
    pub publish_proxy: Option<ProxyIndex>,
    /// Who is asked about subscriptions that expire.
    pub sub_refresh_proxy: Option<ProxyIndex>,
    /// Who orders publications that get an offset, and when they are seen. Channels with rooms have no log.
    pub log: PublicationLog,
    /// Whether the log syncs each commit to the disk.
    pub is_log_synced: bool,
    /// Whether nodes of a cluster share the channels: what has no offset is broadcast. Channels with rooms are not shared.
    pub is_clustered: bool,
    /// Whether each channel has a room behind it, and its limits. What sessions publish are inputs then.
    pub room: Option<RoomLimits>,
}

impl Default for CompressionOptions {
    fn default() -> Self {
        Self { level: 1, message_bytes_min: 0 }
    }
}

impl ClientOptions {
    /// Bytes of one recovery, or of all that `connect` is answered with: what is left of the bound when a command is carried
    /// out whose reply may be large.
    pub(crate) const fn recovery_bytes_max(&self) -> usize {
        self.queue_bytes_max - Share::Quarter.of(self.queue_bytes_max)
    }
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            ping_interval_ms: 25_000,
            pong_timeout_ms: 8_000,
            expired_close_delay_ms: 25_000,
            expired_sub_close_delay_ms: 25_000,
            stale_close_delay_ms: 10_000,
            close_timeout_ms: 5_000,
            channel_limit: 128,
            queue_bytes_max: 1 << 20,
            queue_frames_max: 16_384,
            history_publications_max: 300,
            history_bytes_max: 512 << 10,
            presence_bytes_max: 512 << 10,
            recovery_publications_max: 300,
            commands_per_frame_max: 1_024,
            commands_per_second: 0,
            json_depth_max: 32,
            object_keys_max: 1_000,
            connect_include_server_time: false,
            allow_anonymous_connect_without_token: false,
            disallow_anonymous_connection_tokens: false,
            insecure: false,
            personal_channel: None,
            user_sessions_max: 0,
            shares_user_sessions: false,
            connects_per_second: 0,
            recoveries_per_second: 0,
            connect_code_to_unidirectional_disconnect: Vec::new(),
            uni_websocket: UniWebSocketOptions::default(),
            compression: CompressionOptions::default(),
        }
    }
}

impl Default for ChannelOptions {
    fn default() -> Self {
        Self {
            name_bytes_max: 255,
            channels_max: 1_000_000,
            cache_bytes_max: 256 << 20,
            history_bytes_max: 1 << 30,
            session_channels_max: 1_000,
            user_channels_max: 10_000,
            source_channels_max: 100_000,
            namespace_boundary: ':',
            private_prefix: "$".to_owned(),
            user_boundary: '#',
            user_separator: ',',
            idempotent_results_max: 1_000,
            tags_filter: FilterLimits { bytes_max: 4_096, nodes_max: 64, depth_max: 8 },
            tags_filters_max: 1_000,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            node_id: Box::default(),
            client: ClientOptions::default(),
            channel: ChannelOptions::default(),
            without_namespace: NamespaceOptions::default(),
            namespaces: Vec::new(),
            backend: BackendOptions { rpc_namespace_boundary: ':', ..BackendOptions::default() },
            room_threads: 0,
            records: RecordOptions::default(),
            rooms_max: 10_000,
            room_openings: RoomOpenings::default(),
            log: LogLimits::default(),
            broadcast_bytes_max: usize::MAX,
        }
    }
}

impl Options {
    /// Whether a namespace has another log than memory.
    pub(crate) fn has_logs(&self) -> bool {
        let mut namespaces = self.namespaces.iter().chain([&self.without_namespace]);
        namespaces.any(|namespace| namespace.log != PublicationLog::Memory)
    }

    /// Whether nodes share the channels of a namespace.
    pub(crate) fn has_shared(&self) -> bool {
        let mut namespaces = self.namespaces.iter().chain([&self.without_namespace]);
        namespaces.any(|namespace| namespace.is_clustered)
    }
}
