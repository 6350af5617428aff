//! Tests of the real binary over real sockets, and checks of the tree itself.
