//! The operator's settings. The server's configuration parses and checks them; the engine trusts them.

use std::sync::Arc;

use dunlin_protocol::{Disconnect, FilterLimits};

use crate::{
    SessionTagKey,
    access_rules::{AccessLimits, AccessRule},
    backend::ProxyIndex,
    lifecycle::LifecycleKinds,
    log::{LogLimits, PublicationLog},
    record::RecordOptions,
    session::Share,
};

mod history;
mod room_limits;
mod succession;
mod switches;

pub use room_limits::RoomLimits;
pub use succession::{HeldNamespace, NAMESPACES_MAX};
pub use switches::{KeyOrigin, Switch};

use switches::switches;

/// The settings shared by all shards of a node.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server's version in the connect reply.
    pub version: &'static str,
    /// The node's unguessable id, in the connect reply of clients that send commands in separate requests.
    pub node_id: Box<str>,
    /// Proves to other nodes that this node issued a session's secret id; `None` without a cluster.
    pub session_tag_key: Option<SessionTagKey>,
    /// Options of sessions.
    pub client: ClientOptions,
    /// Options of all channels.
    pub channel: ChannelOptions,
    /// Options of channels without a namespace; `name` is empty.
    pub without_namespace: NamespaceOptions,
    /// The namespaces, by distinct non-empty names.
    pub namespaces: Vec<NamespaceOptions>,
    /// The backends for sessions and calls.
    pub backend: BackendOptions,
    /// The number of room threads; 0 only if no namespace has rooms.
    pub room_threads: u16,
    /// Which records are written to the log.
    pub records: RecordOptions,
    /// Which events the application's backend receives. Those about channels need
    /// [`NamespaceOptions::channel_events`] as well.
    pub lifecycle: LifecycleKinds,
    /// Maximum number of open rooms per node. Every room costs a world and a tick, even without players.
    pub rooms_max: usize,
    /// Rate limits on opening rooms.
    pub room_openings: RoomOpenings,
    /// Limits on what waits for the logs of namespaces.
    pub log: LogLimits,
    /// Maximum size of a publication that is broadcast to other nodes, in the cluster encoding; estimated from above. A
    /// larger one is answered with error 107.
    pub broadcast_bytes_max: usize,
    /// What is followed on its way through the node.
    pub following: FollowOptions,
    /// The limits on rules about who may not connect.
    pub access: AccessLimits,
    /// The rules that are known at the start.
    pub access_rules: Option<Arc<[AccessRule]>>,
}

/// What is followed on its way through the node, for histograms and traces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FollowOptions {
    /// One of so many publications of each shard is followed through its stages; 0 for none.
    pub publication_interval: u32,
    /// Whether recoveries are reported, with [`crate::Effects::recoveries`].
    pub recoveries: bool,
}

/// Rate limits on opening rooms. A rate of 0 is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoomOpenings {
    /// Maximum number of rooms that the node opens per second.
    pub per_second: u32,
    /// Maximum number of rooms that the joins of one session open per second.
    pub session_per_second: u32,
    /// Maximum number of rooms that the joins from one address open per second.
    pub source_per_second: u32,
    /// Maximum number of the node's rooms whose world is not created yet.
    pub opening_max: usize,
}

impl Default for RoomOpenings {
    fn default() -> Self {
        Self { per_second: 500, session_per_second: 5, source_per_second: 20, opening_max: 256 }
    }
}

/// The backends for requests that do not depend on a channel (`client.proxy.*`, `rpc.*`).
#[derive(Clone, Debug, Default)]
pub struct BackendOptions {
    /// Authenticates sessions without a token.
    pub connect: Option<ProxyIndex>,
    /// Refreshes sessions that expire. With it, clients do not refresh their sessions themselves.
    pub refresh: Option<ProxyIndex>,
    /// Answers calls of methods outside all namespaces.
    pub rpc_without_namespace: Option<ProxyIndex>,
    /// Answers calls, by the namespace of the method; a known namespace without a proxy is not available.
    pub rpc_namespaces: Vec<(Box<str>, Option<ProxyIndex>)>,
    /// The separator between the namespace and the rest of a method's name.
    pub rpc_namespace_boundary: char,
    /// A method that the server itself answers with an empty result.
    pub rpc_ping_method: Option<Box<str>>,
    /// Whether the node itself answers methods that begin with [`crate::backend::NODE_METHODS`], as
    /// [`ProxyIndex::NODE`].
    pub has_node_methods: bool,
}

/// A channel to which the server subscribes each user (`client.subscribe_to_user_personal_channel`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PersonalChannel {
    /// The namespace of the channels; empty for none. The channel of user `42` is `namespace:#42`.
    pub namespace: String,
    /// Close a user's older sessions when a newer one connects.
    pub single_connection: bool,
}

/// The accepted data of publications (`publication_data_format`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataFormat {
    /// Any non-empty data.
    #[default]
    Any,
    /// A JSON value.
    Json,
    /// A JSON object.
    JsonObject,
    /// Any data, including empty data.
    Binary,
}

/// Compression of messages, for clients that negotiated it (`websocket.compression_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressionOptions {
    /// The compression level, from 1 (fastest) to 9 (smallest).
    pub level: u8,
    /// Minimum size of a message that is compressed.
    pub message_bytes_min: usize,
}

/// How unidirectional `WebSocket`s are closed (`uni_websocket.disable_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UniWebSocketOptions {
    /// Close them without a close frame.
    pub no_close_frame: bool,
    /// Send no disconnect push before the close.
    pub no_disconnect_push: bool,
}

/// Options of sessions (`client.*`).
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Time between pings; 0 disables them.
    pub ping_interval_ms: u64,
    /// Timeout for a pong; below the ping interval.
    pub pong_timeout_ms: u64,
    /// Grace after the connection's expiry for a refresh.
    pub expired_close_delay_ms: u64,
    /// Grace after a subscription's expiry for a refresh.
    pub expired_sub_close_delay_ms: u64,
    /// Timeout for authentication.
    pub stale_close_delay_ms: u64,
    /// Time for a closing session to receive its last frames and hang up.
    pub close_timeout_ms: u64,
    /// Maximum number of subscriptions per session.
    pub channel_limit: usize,
    /// Maximum bytes queued in both lanes of one session.
    pub queue_bytes_max: usize,
    /// Maximum number of frames queued in both lanes of one session.
    pub queue_frames_max: usize,
    /// Maximum number of publications per history reply.
    pub history_publications_max: usize,
    /// Approximate maximum bytes of the publications in one history reply. A page ends before it exceeds them, but has
    /// at least one publication.
    pub history_bytes_max: usize,
    /// Approximate maximum bytes of one presence reply. A larger one becomes error 106.
    pub presence_bytes_max: usize,
    /// Maximum number of publications per recovery.
    pub recovery_publications_max: usize,
    /// Maximum number of commands per transport frame.
    pub commands_per_frame_max: usize,
    /// Rate limit on the commands of one session, per second, with a burst of the same number; 0 for no limit.
    /// `connect`, `unsubscribe` and `send` do not count. One more is answered with error 111.
    pub commands_per_second: u32,
    /// Maximum nesting depth of a JSON command.
    pub json_depth_max: u32,
    /// Maximum number of fields of one object in a JSON command, and of subscriptions that a `connect` lists.
    pub object_keys_max: u32,
    /// Whether the connect reply contains the server's time.
    pub connect_include_server_time: bool,
    /// Accept a session without a token as the anonymous user.
    pub allow_anonymous_connect_without_token: bool,
    /// Refuse tokens with an empty user id.
    pub disallow_anonymous_connection_tokens: bool,
    /// Check no permissions. For development.
    pub insecure: bool,
    /// Each user's personal channel, if enabled.
    pub personal_channel: Option<PersonalChannel>,
    /// Maximum number of sessions per named user on the node; 0 for no limit. One more is closed with 3504.
    pub user_sessions_max: usize,
    /// Share the number of sessions of each user between nodes, so that `user_sessions_max` applies to all of them
    /// together.
    pub shares_user_sessions: bool,
    /// Rate limit on the node's `connect` commands per second, divided between shards; 0 for no limit. One more is
    /// answered with error 111, and the client retries later.
    pub connects_per_second: u32,
    /// Rate limit on the node's recoveries per second, divided between shards; 0 for no limit. One more is answered
    /// with error 111, and the client keeps its position.
    pub recoveries_per_second: u32,
    /// The disconnect that replaces an error of `connect` on unidirectional transports, by the error's code. The
    /// default is 3005 for 109 and 110, 3013 for 111, 3507 for 103, and 3004 for all others.
    pub connect_code_to_unidirectional_disconnect: Vec<(u32, Disconnect)>,
    /// How unidirectional `WebSocket`s are closed.
    pub uni_websocket: UniWebSocketOptions,
    /// Compression of messages.
    pub compression: CompressionOptions,
}

/// Options of all channels (`channel.*`).
#[derive(Clone, Debug)]
pub struct ChannelOptions {
    /// Maximum bytes of a channel's name.
    pub name_bytes_max: usize,
    /// Maximum number of channels in the node's memory, with subscribers or with a stream.
    pub channels_max: usize,
    /// Maximum bytes of the newest publications of keys, over all channels of the node. Beyond them, a channel evicts
    /// its oldest.
    pub cache_bytes_max: usize,
    /// Maximum number of channels that count against one session: those with publications that only it has used. 0 for
    /// no limit.
    pub session_channels_max: usize,
    /// Maximum number of channels that count against one user. 0 for no limit.
    pub user_channels_max: usize,
    /// Maximum number of channels that count against one address. 0 for no limit.
    pub source_channels_max: usize,
    /// Maximum bytes of the node's histories, divided between shards; 0 for no limit.
    pub history_bytes_max: usize,
    /// Maximum bytes of the node's histories on disk; 0 for no limit.
    pub history_disk_bytes_max: u64,
    /// The separator between the namespace and the rest of the name.
    pub namespace_boundary: char,
    /// Prefix of channels that need a subscription token.
    pub private_prefix: String,
    /// The character before the list of users in the name of a user-limited channel.
    pub user_boundary: char,
    /// The separator between the users in that list.
    pub user_separator: char,
    /// Maximum number of stored results per channel, for publications with an idempotency key.
    pub idempotent_results_max: usize,
    /// Size limits of one subscription's tags filter.
    pub tags_filter: FilterLimits,
    /// Maximum number of distinct tags filters per channel and shard: each is evaluated once per publication.
    pub tags_filters_max: usize,
}

/// The lane of a namespace's publications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lane {
    /// A FIFO without gaps. A session that falls too far behind is closed and recovers.
    #[default]
    Reliable,
    /// Only the newest publication per key: it replaces an older one that is still queued.
    Latest,
}

/// What a recovery returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecoveryMode {
    /// Every missed publication.
    #[default]
    Stream,
    /// Only the newest publication.
    Cache,
}

/// What happens to a publication that exceeds the limits of a history (`history_overflow`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HistoryOverflow {
    /// Evict the oldest publications of the channel or, at the node's limit, those of the largest histories.
    #[default]
    Evict,
    /// Answer it with error 111, and keep the history.
    Refuse,
}

switches! {
    /// Options of the channels of one namespace. All permissions are off by default.
    #[derive(Clone, Debug, Default)]
    pub struct NamespaceOptions {
        switches {
            presence: Centrifugo = "Keep the list of subscribers, which clients and the API can read.";
            join_leave: Centrifugo = "Send join and leave messages to subscribers that request them.";
            force_push_join_leave: Centrifugo = "Send join and leave messages to all subscribers.";
            force_positioning: Centrifugo = "Track the position of every subscriber, to detect missed publications. Needs history.";
            allow_positioning: Centrifugo = "Track the position of subscribers that request it. Needs history.";
            force_recovery: Centrifugo = "Every subscriber recovers missed publications after a reconnect. Needs history.";
            allow_recovery: Centrifugo = "Subscribers that request it recover missed publications after a reconnect. Needs history.";
            allow_subscribe_for_client: Centrifugo = "Authenticated clients may subscribe without a subscription token.";
            allow_subscribe_for_anonymous: Centrifugo = "Anonymous clients may subscribe where `allow_subscribe_for_client` allows it.";
            allow_publish_for_client: Centrifugo = "Authenticated clients may publish.";
            allow_publish_for_subscriber: Centrifugo = "Authenticated subscribers may publish.";
            allow_publish_for_anonymous: Centrifugo = "Anonymous clients may publish where the other options allow it.";
            allow_presence_for_client: Centrifugo = "Authenticated clients may read presence.";
            allow_presence_for_subscriber: Centrifugo = "Authenticated subscribers may read presence.";
            allow_presence_for_anonymous: Centrifugo = "Anonymous clients may read presence where the other options allow it.";
            allow_history_for_client: Centrifugo = "Authenticated clients may read history.";
            allow_history_for_subscriber: Centrifugo = "Authenticated subscribers may read history.";
            allow_history_for_anonymous: Centrifugo = "Anonymous clients may read history where the other options allow it.";
            allow_user_limited_channels: Centrifugo = "The users 4 and 7 may subscribe to a channel such as `dialog#4,7`. Other users need a subscription token.";
            allow_channel_compaction: Centrifugo = "Replace the channel name in pushes by a number for clients that support it. The official SDKs do.";
            allow_tags_filter: Centrifugo = "Subscribers may filter publications by tags.";
            auto_cache_recover: Centrifugo = "Send the newest publication to every new subscriber. Needs `force_recovery` and `force_recovery_mode: cache`.";
            hide_publisher_info: Dunlin = "Leave out who published: publications of clients reach subscribers, history and other nodes without the client id, the user id and the `info` of the publisher. The backend of `publish_proxy_enabled` receives them. Applies to new publications: what is in a history or a log already, or comes from a node without this option, keeps its publisher. Remove the history to be sure.";
            channel_events: Dunlin = "Tell the backend of `webhooks.endpoint` when clients subscribe and unsubscribe, when a channel gets its first and loses its last subscriber, and when a room opens and ends.";
            delta_publish: Centrifugo = "Send every publication as a delta to subscribers that support it, not only those published with `delta`.";
        }
        others {
            /// The namespace's name.
            pub name: String,
            /// The namespace was removed from the configuration while the node ran: its channels are unknown, and its
            /// number stays in use.
            pub is_retired: bool,
            /// Maximum number of publications in a history; 0 for no stream.
            pub history_size: usize,
            /// How long the publications are kept after the last one; 0 for no stream.
            pub history_ttl_ms: u64,
            /// Maximum bytes of one channel's history; 0 for no limit.
            pub history_bytes_max: usize,
            /// Maximum bytes of one channel's history on disk; 0 for no limit.
            pub history_disk_bytes_max: u64,
            /// Maximum bytes of the histories of the namespace on disk; 0 for no limit.
            pub history_disk_total_bytes_max: u64,
            /// What happens to a publication that exceeds the limits of a history.
            pub history_overflow: HistoryOverflow,
            /// How long the epoch and the top offset are kept after the last use.
            pub history_meta_ttl_ms: u64,
            /// What a recovery returns.
            pub recovery_mode: RecoveryMode,
            /// The lane of publications.
            pub delivery: Lane,
            /// The tag whose value is the conflation key. The channel itself is the key if this is `None` or a
            /// publication lacks the tag. With several keys, publications reach a slow session out of the order of
            /// their offsets, so no offset describes what the session has received. Therefore a namespace with a key
            /// has neither positioning nor recovery, whatever the options above say.
            pub conflation_key: Option<String>,
            /// Maximum number of keys whose newest publication is sent to each session that subscribes without
            /// recovery; 0 for none.
            pub cache_keys_max: usize,
            /// How long a key's newest publication is kept for new subscribers.
            pub cache_keys_ttl_ms: u64,
            /// A publication with this tag is delivered, and removes its key from the cache.
            pub removal_tag: Option<Box<str>>,
            /// Clients may request patches (fossil deltas).
            pub allow_delta: bool,
            /// The pattern of channel names after the namespace and its boundary. With it, names are not limited to
            /// ASCII.
            pub channel_regex: Option<regex::Regex>,
            /// The accepted data of publications.
            pub publication_data_format: DataFormat,
            /// The backend that authorizes subscriptions.
            pub subscribe_proxy: Option<ProxyIndex>,
            /// The backend that authorizes publications. Players' inputs go to the room without it.
            pub publish_proxy: Option<ProxyIndex>,
            /// The backend that refreshes subscriptions that expire.
            pub sub_refresh_proxy: Option<ProxyIndex>,
            /// Who orders publications with an offset, and when they become visible. Channels with rooms have no log.
            pub log: PublicationLog,
            /// Whether the log syncs each commit to disk.
            pub is_log_synced: bool,
            /// Whether the nodes of a cluster share the channels: publications without an offset are broadcast.
            /// Channels with rooms are not shared.
            pub is_clustered: bool,
            /// The limits of the channels' rooms; `None` without rooms. In a room, publications of sessions are inputs.
            pub room: Option<RoomLimits>,
        }
    }
}

impl Default for CompressionOptions {
    fn default() -> Self {
        Self { level: 1, message_bytes_min: 0 }
    }
}

impl ClientOptions {
    /// Maximum bytes of one recovery, or of the whole answer to `connect`: the share of the queue limit that is free
    /// when a command with a large reply runs.
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
            history_disk_bytes_max: 0,
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
            session_tag_key: None,
            client: ClientOptions::default(),
            channel: ChannelOptions::default(),
            without_namespace: NamespaceOptions::default(),
            namespaces: Vec::new(),
            backend: BackendOptions { rpc_namespace_boundary: ':', ..BackendOptions::default() },
            room_threads: 0,
            records: RecordOptions::default(),
            lifecycle: LifecycleKinds::default(),
            rooms_max: 10_000,
            room_openings: RoomOpenings::default(),
            log: LogLimits::default(),
            broadcast_bytes_max: usize::MAX,
            following: FollowOptions::default(),
            access: AccessLimits::default(),
            access_rules: None,
        }
    }
}

impl Options {
    /// Whether a namespace has a log other than memory.
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
