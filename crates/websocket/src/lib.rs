//! RFC 6455 for servers: bytes to messages and back, without sockets.
