//! Sockets: the reactor, the listener, the connections, and the HTTP head that each begins with.

/// The one buffer that a shard reads all its sockets with.
pub const READ_BUFFER_BYTES: usize = 65_536;
