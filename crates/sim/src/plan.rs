//! The plan of a run, which the seed determines: the node, its limits, its channels and its clients.

use std::{num::NonZeroU32, sync::Arc};

use dunlin_engine::{
    Options, Wire,
    backend::ProxyIndex,
    options::{ChannelOptions, ClientOptions, Lane, NamespaceOptions, RecoveryMode, RoomLimits},
};
use dunlin_protocol::{Encoding, FilterLimits};
use dunlin_rooms::{GridShape, RoomOptions};

use crate::{chance::Chance, rooms::GameOptions};

/// The longest time that a shard wakes after its deadline.
pub const LATE_WAKE_US: u64 = 30_000;

/// The tag with the conflation key in the namespace `tick`.
pub const KEY_TAG: &str = "sym";

/// A tag with one of [`KINDS`].
pub const KIND_TAG: &str = "kind";

/// The values of [`KIND_TAG`].
pub const KINDS: [&str; 4] = ["a", "b", "ab", "ba"];

/// A tag with one of [`NUMBERS`].
pub const NUMBER_TAG: &str = "n";

/// The values of [`NUMBER_TAG`], and the operands of filters on it.
pub const NUMBERS: [&str; 6] = ["0", "1", "1.0", "-2.5", "12", "many"];

/// A channel that requires a token for everything.
pub const RESTRICTED: &str = "alone";

/// Longer than most runs take.
const SELDOM_PINGS_MS: u64 = 60_000;

/// The error code that the backend returns.
pub const BACKEND_ERROR: u16 = 777;

/// Maximum bytes of an input's data.
pub const INPUT_BYTES_MAX: usize = 48;

/// The parameters of a run.
pub struct Plan {
    pub shards: u16,
    pub options: Arc<Options>,
    /// Channels that clients and operators use.
    pub channels: Vec<String>,
    /// Channels that are rarely used, so that their streams expire sometimes.
    pub rarely_used: Vec<String>,
    pub rooms: Option<RoomPlan>,
    pub clients: Vec<Profile>,
    /// Number of steps before the end.
    pub steps: u32,
    /// Whether the node is drained at the end. Otherwise, the clients leave.
    pub drains: bool,
    /// Whether some published payloads are not JSON.
    pub opaque_payloads: bool,
    /// Whether there are sometimes long pauses without any action.
    pub has_long_pauses: bool,
}

/// The parameters of the rooms of a run.
pub struct RoomPlan {
    pub channels: Vec<String>,
    /// Number of room threads.
    pub threads: u16,
    /// Time between ticks.
    pub tick_us: u64,
    /// Ticks without a player after which a room is closed.
    pub empty_ticks_max: u32,
    /// Ticks for which players stay after they lose their connection. With 0, they leave at once.
    pub seat_grace_ticks: u32,
    /// Whether the node asks other nodes for a room before it opens it. The simulator answers for them.
    pub asks_nodes: bool,
    /// Whether other nodes have rooms, which move.
    pub moves: bool,
    /// Whether slow clients of such a node read nothing until the node settles, and it does not close them for a missing pong.
    pub seldom_pings: bool,
    /// The limits that shards enforce.
    pub limits: RoomLimits,
    /// The options of the rooms.
    pub options: RoomOptions,
    pub game_options: GameOptions,
}

/// The kinds of proxy requests. Each kind has its own backend.
#[derive(Clone, Copy, Debug)]
pub enum PlannedProxy {
    /// A session connects without a token.
    Connect,
    /// A session expires.
    Refresh,
    /// A client subscribes without a token.
    Subscribe,
    /// A client publishes.
    Publish,
    /// A subscription expires.
    SubRefresh,
    /// A client sends an RPC.
    Rpc,
}

impl PlannedProxy {
    /// The backend for this kind.
    pub const fn proxy(self) -> ProxyIndex {
        ProxyIndex(self as u16)
    }
}

/// How fast a client reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadSpeed {
    /// At once.
    Prompt,
    /// With delays.
    Usual,
    /// A few bytes at a time, with long pauses.
    Slow,
}

/// The properties of a client.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The transport and encoding.
    pub wire: Wire,
    /// The encoding of its messages.
    pub encoding: Encoding,
    /// Its user, or empty for a client without a token.
    pub user: String,
    pub read_speed: ReadSpeed,
    pub answers_pings: bool,
    /// Percentage of actions that violate the protocol.
    pub violations_percent: u32,
    /// The size of its kernel buffer.
    pub kernel_bytes: usize,
}

impl Plan {
    /// Draws a plan.
    pub fn new(seed: u64, chance: &mut Chance) -> Self {
        let shards = chance.between(1, 4) as u16;
        let all = [
            "plain:a", "plain:b", "rec:a", "rec:b", "rec:c", "cache:a", "now:a", "now:b", "tick:a", "tick:b", "here:a",
            "here:b", "lock:a", "$lock:b",
        ];
        let mut channels: Vec<String> = all.iter().map(|&name| name.to_owned()).collect();
        for _ in 0..chance.between(4, 10) {
            channels.remove(chance.below(channels.len()));
        }
        let rarely_used = channels.iter().filter(|_| chance.percent(30)).cloned().collect();
        let clients = (0..chance.between(3, 12)).map(|_| Profile::new(chance)).collect();
        let mut options = options(chance, shards);
        // With few channels, the node might have to reject the channel of a room.
        let may_have_rooms = options.channel.channels_max > 1_000;
        let rooms = (may_have_rooms && chance.percent(35))
            .then(|| RoomPlan::new(chance).with_seats(seed).with_nodes(seed).with_limit(seed))
            .map(|plan| plan.with_near_kinds(seed).with_moves(seed));
        if chance.percent(30) {
            configure_backends(chance, &mut options);
        }
        if let Some(rooms) = &rooms {
            options.room_threads = rooms.threads;
            options.namespaces.push(rooms.namespace(chance));
            rooms.ask_nodes(&mut options);
        }
        Self {
            shards,
            options: Arc::new(options),
            channels,
            rarely_used,
            rooms,
            clients,
            steps: chance.between(300, 1_200) as u32,
            drains: chance.percent(25),
            opaque_payloads: chance.percent(10),
            has_long_pauses: chance.percent(10),
        }
    }

    /// All channels, those of rooms included.
    pub fn all_channels(&self) -> impl Iterator<Item = String> {
        self.channels.iter().chain(self.rooms.iter().flat_map(|rooms| &rooms.channels)).cloned()
    }

    /// The channels to which the server subscribes a session. Mostly there are none.
    pub fn server_side(&self, chance: &mut Chance) -> Vec<String> {
        let most = self.options.client.channel_limit.min(4);
        let mut channels = self.channels.clone();
        let count = if chance.percent(60) { 0 } else { chance.below(most + 1).min(channels.len()) };
        (0..count).map(|_| channels.remove(chance.below(channels.len()))).collect()
    }

    /// Picks a channel to use. Rarely used channels are seldom picked.
    pub fn channel(&self, chance: &mut Chance) -> &String {
        loop {
            let channel = chance.pick(&self.channels);
            if !self.rarely_used.contains(channel) || chance.percent(5) {
                return channel;
            }
        }
    }
}

impl RoomPlan {
    fn new(chance: &mut Chance) -> Self {
        let tick_us = *chance.pick(&[20_000, 50_000, 50_000, 100_000]);
        let objects_max = chance.between(8, 30) as usize;
        let options = RoomOptions {
            ticks_per_second: (1_000_000 / tick_us) as u32,
            objects_max,
            state_bytes_max: 40,
            players_max: if chance.percent(10) { 2 } else { 100 },
            ..RoomOptions::default()
        };
        let shape = GridShape {
            columns: chance.between(4, 6) as u16,
            rows: chance.between(4, 6) as u16,
            cell_units: *chance.pick(&[7, 64, 1_000]),
            near_cells: *chance.pick(&[0, 1, 1, 1, 10]),
            far_cells: *chance.pick(&[0, 1, 1, 2]),
            far_interval_ticks: *chance.pick(&[1, 3, 3, 7]),
        };
        Self {
            channels: ["arena:a", "arena:b"][..chance.between(1, 2) as usize].iter().map(|&name| name.into()).collect(),
            threads: chance.between(1, 2) as u16,
            tick_us,
            empty_ticks_max: *chance.pick(&[1, 4, 40]),
            seat_grace_ticks: 0,
            asks_nodes: false,
            moves: false,
            seldom_pings: false,
            limits: RoomLimits {
                inputs_per_second: *chance.pick(&[3, 20, 1_000]),
                input_bytes_max: INPUT_BYTES_MAX,
                inbox_inputs_max: *chance.pick(&[2, 1_000, 1_000]),
                ..RoomLimits::default()
            },
            game_options: GameOptions {
                shape,
                objects_max,
                state_bytes_max: options.state_bytes_max,
                seats_max: *chance.pick(&[3, 100, 100]),
                changes_max: *chance.pick(&[1, 3, 6]),
                events_percent: *chance.pick(&[2, 10, 40]),
                has_weights: false,
                near_units: None,
            },
            options,
        }
    }

    /// Adds seats with a grace period in most plans. The grace period is at least one tick, and often shorter than the
    /// delay of a message.
    fn with_seats(mut self, seed: u64) -> Self {
        let mut chance = Chance::new(seed ^ 0x7365_6174);
        if chance.percent(70) {
            self.seat_grace_ticks = *chance.pick(&[1, 2, 10, 40]);
            self.limits.gives_seat_tokens = true;
        }
        self
    }

    /// Puts the node into a cluster in some plans.
    fn with_nodes(self, seed: u64) -> Self {
        let mut chance = Chance::new(seed ^ 0x6e6f_6465);
        let asks_nodes = chance.percent(40);
        Self { asks_nodes, seldom_pings: asks_nodes && chance.percent(80), ..self }
    }

    /// Limits the bandwidth of players in some plans: the zones of their views wait. Some far cells are due so rarely that they are
    /// nearly as old as the history.
    fn with_limit(mut self, seed: u64) -> Self {
        let mut chance = Chance::new(seed ^ 0x6c69_6d69);
        if chance.percent(30) {
            self.limits.frame_bytes_per_second = NonZeroU32::new(*chance.pick(&[1_500, 3_000, 6_000]));
            let shape = &mut self.game_options.shape;
            shape.near_cells = *chance.pick(&[1, 2, 3, 4]);
            shape.far_interval_ticks = *chance.pick(&[1, 3, 13, 15]);
            self.game_options.has_weights = chance.percent(50);
        }
        self
    }

    /// Makes some kinds visible only near in some plans.
    fn with_near_kinds(mut self, seed: u64) -> Self {
        let mut chance = Chance::new(seed ^ 0x6e65_6b69);
        if chance.percent(40) {
            let cell_units = self.game_options.shape.cell_units;
            self.game_options.near_units = NonZeroU32::new(*chance.pick(&[1, cell_units, cell_units + 1]));
        }
        self
    }

    /// In some clusters, other nodes have rooms, which move from one node to another. Most seats wait for their players until then.
    fn with_moves(mut self, seed: u64) -> Self {
        let mut chance = Chance::new(seed ^ 0x6d6f_7665);
        if self.asks_nodes && self.limits.gives_seat_tokens && chance.percent(60) {
            (self.moves, self.limits.moves) = (true, true);
            self.seat_grace_ticks = *chance.pick(&[1, 2, 40]);
            self.limits.inbox_inputs_max = *chance.pick(&[2, 6, 1_000]);
        }
        self
    }

    fn ask_nodes(&self, options: &mut Options) {
        if self.asks_nodes {
            options.log.peer_queries_max = 8;
            if self.seldom_pings {
                options.client.ping_interval_ms = SELDOM_PINGS_MS;
            }
            // Other nodes would be asked for presence as well.
            options.namespaces.iter_mut().for_each(|namespace| namespace.presence = false);
        }
    }

    /// The namespace of the rooms' channels.
    fn namespace(&self, chance: &mut Chance) -> NamespaceOptions {
        NamespaceOptions {
            name: "arena".to_owned(),
            allow_subscribe_for_client: true,
            allow_subscribe_for_anonymous: true,
            allow_publish_for_subscriber: true,
            allow_publish_for_anonymous: true,
            allow_history_for_client: true,
            allow_history_for_anonymous: true,
            force_recovery: true,
            history_size: chance.between(2, 40) as usize,
            history_ttl_ms: *chance.pick(&[800, 4_000]),
            history_meta_ttl_ms: *chance.pick(&[1_000, 6_000]),
            room: Some(self.limits.clone()),
            ..NamespaceOptions::default()
        }
    }
}

impl Profile {
    fn new(chance: &mut Chance) -> Self {
        let read_speed = *chance.pick(&[ReadSpeed::Prompt, ReadSpeed::Usual, ReadSpeed::Usual, ReadSpeed::Slow]);
        let kernel_bytes = match read_speed {
            ReadSpeed::Prompt => 64 * 1024,
            ReadSpeed::Usual => chance.between(1_000, 16_000),
            ReadSpeed::Slow => chance.between(200, 2_000),
        };
        let encoding = *chance.pick(&Encoding::ALL);
        Self {
            wire: wire(chance, encoding),
            encoding,
            user: (*chance.pick(&["", "ann", "ben", "cat"])).to_owned(),
            read_speed,
            answers_pings: chance.percent(85),
            violations_percent: *chance.pick(&[0, 0, 0, 2, 10]),
            kernel_bytes: kernel_bytes as usize,
        }
    }
}

/// Picks a transport with this encoding: mostly plain `WebSocket`, otherwise any.
fn wire(chance: &mut Chance, encoding: Encoding) -> Wire {
    let has_encoding = |wire: &Wire| wire.encoding() == encoding;
    let others: Vec<Wire> = Wire::ALL.into_iter().filter(has_encoding).collect();
    if chance.percent(60) { encoding.into() } else { *chance.pick(&others) }
}

fn options(chance: &mut Chance, shards: u16) -> Options {
    let client = ClientOptions {
        ping_interval_ms: 2_000,
        pong_timeout_ms: 700,
        expired_close_delay_ms: 300,
        expired_sub_close_delay_ms: 300,
        stale_close_delay_ms: 1_000,
        close_timeout_ms: 500,
        channel_limit: *chance.pick(&[2, 4, 128]),
        queue_bytes_max: *chance.pick(&[4_000, 12_000, 48_000]),
        queue_frames_max: *chance.pick(&[20, 60, 500]),
        history_publications_max: *chance.pick(&[3, 300]),
        recovery_publications_max: *chance.pick(&[4, 300]),
        commands_per_frame_max: *chance.pick(&[5, 16]),
        allow_anonymous_connect_without_token: true,
        ..ClientOptions::default()
    };
    let channels_max = if chance.percent(10) { usize::from(shards) * 3 } else { 1_000_000 };
    Options {
        client,
        channel: ChannelOptions {
            channels_max,
            name_bytes_max: 40,
            tags_filter: FilterLimits { bytes_max: 4_096, nodes_max: 5, depth_max: 3 },
            idempotent_results_max: *chance.pick(&[2, 1_000]),
            tags_filters_max: *chance.pick(&[2, 1_000, 1_000, 1_000]),
            ..ChannelOptions::default()
        },
        without_namespace: NamespaceOptions::default(),
        namespaces: namespaces(chance).into_iter().map(|namespace| with_optional_features(chance, namespace)).collect(),
        ..Options::default()
    }
}

/// Configures backends for RPCs, for some namespaces, and, in some plans, for sessions.
fn configure_backends(chance: &mut Chance, options: &mut Options) {
    options.backend.rpc_without_namespace = Some(PlannedProxy::Rpc.proxy());
    options.backend.connect = chance.percent(60).then(|| PlannedProxy::Connect.proxy());
    options.backend.refresh = chance.percent(50).then(|| PlannedProxy::Refresh.proxy());
    for namespace in &mut options.namespaces {
        let is_one_of = |names: &[&str]| names.contains(&&*namespace.name);
        let (subscribes, publishes) = (is_one_of(&["plain", "now"]), is_one_of(&["plain", "rec", "cache"]));
        let refreshes = is_one_of(&["plain", "lock"]) && chance.percent(60);
        namespace.subscribe_proxy = subscribes.then(|| PlannedProxy::Subscribe.proxy());
        namespace.publish_proxy = publishes.then(|| PlannedProxy::Publish.proxy());
        namespace.sub_refresh_proxy = refreshes.then(|| PlannedProxy::SubRefresh.proxy());
    }
}

/// Adds optional features to a namespace: filters, deltas and channel compaction.
fn with_optional_features(chance: &mut Chance, namespace: NamespaceOptions) -> NamespaceOptions {
    NamespaceOptions {
        allow_tags_filter: chance.percent(60),
        allow_delta: chance.percent(60),
        delta_publish: chance.percent(40),
        allow_channel_compaction: chance.percent(60),
        ..namespace
    }
}

fn namespaces(chance: &mut Chance) -> Vec<NamespaceOptions> {
    let open = NamespaceOptions {
        allow_subscribe_for_client: true,
        allow_subscribe_for_anonymous: true,
        allow_publish_for_anonymous: true,
        allow_presence_for_anonymous: true,
        allow_history_for_anonymous: true,
        ..NamespaceOptions::default()
    };
    let kept = NamespaceOptions {
        history_size: chance.between(2, 12) as usize,
        history_ttl_ms: *chance.pick(&[800, 2_500]),
        history_meta_ttl_ms: *chance.pick(&[1_000, 6_000]),
        ..open.clone()
    };
    let named = |name: &str, of: &NamespaceOptions| NamespaceOptions { name: name.to_owned(), ..of.clone() };
    vec![
        NamespaceOptions { allow_publish_for_client: true, ..named("plain", &open) },
        NamespaceOptions {
            force_recovery: true,
            allow_publish_for_client: true,
            allow_history_for_client: true,
            ..named("rec", &kept)
        },
        NamespaceOptions {
            force_recovery: true,
            allow_publish_for_client: true,
            recovery_mode: RecoveryMode::Cache,
            history_size: chance.between(1, 3) as usize,
            ..named("cache", &kept)
        },
        NamespaceOptions {
            force_recovery: true,
            delivery: Lane::Latest,
            recovery_mode: RecoveryMode::Cache,
            history_size: 2,
            ..named("now", &kept)
        },
        NamespaceOptions {
            delivery: Lane::Latest,
            conflation_key: Some(KEY_TAG.to_owned()),
            cache_keys_max: *chance.pick(&[0, 3, 100, 100]),
            cache_keys_ttl_ms: *chance.pick(&[2_000, 100_000]),
            ..named("tick", &open)
        },
        NamespaceOptions {
            presence: true,
            join_leave: true,
            force_push_join_leave: true,
            allow_presence_for_client: true,
            allow_publish_for_subscriber: true,
            ..named("here", &open)
        },
        NamespaceOptions {
            allow_subscribe_for_client: false,
            presence: true,
            join_leave: true,
            allow_recovery: true,
            allow_positioning: true,
            allow_presence_for_client: true,
            allow_history_for_client: true,
            allow_publish_for_subscriber: true,
            ..named("lock", &kept)
        },
    ]
}
