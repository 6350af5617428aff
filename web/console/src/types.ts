/** What the node answers. Fields that the page does not use are left out. */

export interface SignIn {
  role: "operator" | "reader" | null;
  ends_at_s?: number | null;
  version?: string;
}

export interface Missing {
  node: string;
  why: string;
}

export interface Histogram {
  bounds_us: number[];
  buckets: number[];
}

export interface ShardState {
  shard: number;
  busy_percent: number;
  sessions: number;
  channels: number;
  queued_bytes: number;
  queue_age_ms: number;
  ring_depth: number;
  ring_overflow: number;
}

export interface StorageState {
  counts: Record<string, number>;
  commit_us: number;
  commit_us_max: number;
  refused_low_space: number;
  refused_full: number;
  history_bytes: number;
  free_bytes: number | null;
  fault: string | null;
  backups_made: number;
  backups_failed: number;
  last_backup_s: number | null;
}

export interface ClusterState {
  ready: boolean;
  unusable_streams: { stream: string; why: string }[];
  live: { uid: string; name: string; version: string; started_ms: number }[];
  connections_opened: Record<string, number>;
  [counter: string]: unknown;
}

export interface NodeState {
  uid: string;
  name: string;
  version: string;
  reactor: string;
  time_ms: number;
  uptime_s: number;
  cpu_percent: number;
  memory_bytes: number;
  sessions: {
    open: number;
    users: number;
    channels: number;
    subscriptions: number;
    opened: number;
    behind: number[];
    slow_bytes: number;
    slow_frames: number;
    queued_bytes: number;
    queue_age_ms: number | null;
    closes: Record<string, number>;
  };
  traffic: {
    publications: number;
    deliveries: number;
    replaced: number;
    written_bytes: number;
    read_bytes: number;
    refused: number;
  };
  publish_to_socket: Histogram;
  round_trip: Histogram;
  shards: ShardState[];
  silent_shards: number[];
  rooms: {
    open: number;
    players: number;
    threads: { thread: number; rooms: number; players: number; load_percent: number; overruns: number }[];
  };
  storage: StorageState | null;
  cluster: ClusterState | null;
}

export interface Status {
  nodes: NodeState[];
  missing: Missing[];
}

export interface Verdict {
  code: string;
  text: string;
}

export interface ClientSession {
  client: string;
  user: string;
  address?: string;
  node: { uid: string; name: string };
  transport: string;
  encoding: string;
  num_subs: number;
  verdict: Verdict;
  commands_wait_for?: string;
  limits?: { key: string; value?: number; used?: number; effect: string }[];
  queue: {
    bytes: number;
    frames: number;
    age_ms: number;
    replaced: number;
    reliable: { frames: number; bytes: number };
    latest: { frames: number; bytes: number };
    room_bytes: number;
    rooms_due: number;
    channels?: QueueOfChannel[];
    channels_cut?: boolean;
    unexamined_frames?: number;
  };
  socket: {
    full: boolean;
    tls_bytes?: number;
    kernel_bytes?: number;
    not_sent_bytes?: number;
    rtt_ms?: number;
    rtt_var_ms?: number;
    sent_segments?: number;
    retransmitted_segments?: number;
    receive_window_bytes?: number;
    last_send_ms?: number;
    delivery_bytes_per_second?: number;
  };
  ping: { pong_age_ms?: number; round_trip_ms?: number; unanswered_ms?: number };
  shard: { index: number; busy_percent: number; longest_turn_ms: number };
}

export interface QueueOfChannel {
  channel?: string;
  lane: string;
  frames: number;
  bytes: number;
  replaced: number;
  oldest_ms: number;
  newest_ms: number;
}

export interface Sessions {
  sessions: ClientSession[];
  more?: string;
  missing?: Missing[];
}

export interface ChannelPage {
  channels: { channel: string; num_clients: number }[];
  total: number;
  /** The total counts a channel once for each node. */
  total_counts_twice?: boolean;
  /** In the order of names, the cursor of the next page. */
  more?: string;
  /** In the order of subscribers, how many a channel may have that is not listed. */
  missing_up_to?: number;
  missing: Missing[];
}

export interface Room {
  channel: string;
  node: { uid: string; name: string };
  num_players: number;
  num_players_away: number;
  num_spectators: number;
  max_players: number;
  locked: boolean;
  unlisted: boolean;
  metadata?: unknown;
  params?: unknown;
  tick: number;
}

export interface RoomInfo extends Room {
  ticks_per_second: number;
  thread: number;
  num_objects: number;
  tick_p50_us: number;
  tick_p99_us: number;
  late: number;
  skipped: number;
  overruns: number;
  rate: number;
  world_bytes: number;
  memory_bytes: number;
}

export interface Setting {
  key: string;
  value: unknown;
  hidden: boolean;
}

export interface Configuration {
  file: string | null;
  settings: Setting[];
  warnings: string[];
}

export interface LogPart {
  /** A start of a node. */
  run: string;
  lines: string[];
  next: number;
  missed: number;
}

export interface Recording {
  /** The node that has it. */
  node: { uid: string; name: string };
  /** The name of the file. */
  file: string;
  began_ms: number;
  written_ms: number;
  bytes: number;
  channel?: string;
  simulation?: string;
  /** Why it cannot be opened. */
  fault?: string;
}

export interface Recordings {
  recordings: Recording[];
  left_out: number;
  cut: number;
  directories: number;
  unreadable: string[];
  missing: Missing[];
}

/** How far the node is that is asked for a replay. */
export type ReplayProgress = { tick: number } | { fetched: number; bytes: number };

export type ReplayIndex = import("../../../crates/server/src/cli/replay/page/player.js").Index;
export type ReplayFrame = import("../../../crates/server/src/cli/replay/page/player.js").Frame;
