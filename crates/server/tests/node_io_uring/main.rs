//! The tests of `node`, each of them once more, with shards that wait on `io_uring`.

#[path = "../node/answers.rs"]
mod answers;
#[path = "../node/backends.rs"]
mod backends;
#[path = "../node/client.rs"]
mod client;
#[path = "../node/crowds.rs"]
mod crowds;
#[path = "../node/door.rs"]
mod door;
#[path = "../node/hand_over.rs"]
mod hand_over;
#[path = "../node/limits.rs"]
mod limits;
#[path = "../node/rig.rs"]
mod rig;
#[path = "../node/sessions.rs"]
mod sessions;
#[path = "../node/shards.rs"]
mod shards;
#[path = "../node/tls.rs"]
mod tls;
#[path = "../node/transports.rs"]
mod transports;

/// What the shards wait on.
const REACTOR: dunlin::node::ReactorWish = dunlin::node::ReactorWish::IoUring;
