//! The bodies of the fuzz targets. Unit tests include the same files and run them over the committed seeds.

#[path = "../bodies/backend_answer.rs"]
pub mod backend_answer;
#[path = "../bodies/config.rs"]
pub mod config;
#[path = "../bodies/engine/session.rs"]
pub mod engine;
#[path = "../bodies/http_api.rs"]
pub mod http_api;
#[path = "../bodies/http_emulation.rs"]
pub mod http_emulation;
#[path = "../bodies/http_head.rs"]
pub mod http_head;
#[path = "../bodies/protocol.rs"]
pub mod protocol;
#[path = "../bodies/relay.rs"]
pub mod relay;
#[path = "../bodies/rooms.rs"]
pub mod rooms;
#[path = "../bodies/storage.rs"]
pub mod storage;
#[path = "../bodies/token.rs"]
pub mod token;
#[path = "../bodies/websocket.rs"]
pub mod websocket;
