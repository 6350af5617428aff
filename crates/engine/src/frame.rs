//! Encoded frames.

use dunlin_protocol::Publication;
use std::sync::Arc;

/// A publication, join or leave on its way from the owner to the listening shards, encoded once for each encoding in use.
#[derive(Debug)]
pub struct Delivery {
    channel: Arc<str>,
    publication: Option<Arc<Publication>>,
}
