//! A connection for frames that nodes send each other about rooms. NATS forwards them and keeps none.
//!
//! It is a connection of its own: a tick that is late by a few milliseconds is felt by players, and the other
//! connections carry histories. Frames are lost while it is down and when a queue is full. The receiver notices by their
//! numbers, which this module does not read.

mod shares;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_nats::{Client, Message, Subscriber, client::PublishErrorKind};
use bytes::Bytes;
use dunlin_queues::{
    CountedReceiver, CountedSender,
    declared::{NODE_FRAMES_IN, NODE_FRAMES_OUT},
};
use futures_util::StreamExt;
use tokio::{sync::mpsc, time::timeout};

use self::shares::{Share, Shares};
use crate::{
    links::{ClientNotice, ConnectionName, LinkOptions, LinkReport, Servers},
    names::encode_token,
    thread::ClusterOptions,
};

/// If the client accepts no frame for this long, the connection is stuck. Ticks would be late by as much.
const STUCK_TIMEOUT: Duration = Duration::from_secs(1);
/// Timeout for the last frames of a node that stops.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);
/// A node's share of the outgoing queue is one of this many. What waits for one node leaves space for the others, and a
/// share takes two batches of the relay.
const NODES_IN_QUEUE: usize = 4;

/// How to connect, and the subjects of nodes.
#[derive(Clone, Debug)]
pub struct NodeFramesOptions {
    links: LinkOptions,
    subject_prefix: Box<str>,
    node: Box<str>,
}

impl NodeFramesOptions {
    /// The options of a node of this cluster.
    pub fn new(options: &ClusterOptions) -> Self {
        Self {
            links: options.links.clone(),
            subject_prefix: format!("{}.g.", options.prefix).into(),
            node: options.node.clone(),
        }
    }

    /// The id of this run of the node.
    pub fn node(&self) -> &str {
        &self.node
    }

    fn subject_of(&self, node: &str) -> String {
        format!("{}{}", self.subject_prefix, encode_token(node))
    }
}

/// What arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameEvent {
    /// The connection was opened.
    Connected {
        /// Maximum bytes of a frame.
        payload_bytes_max: usize,
    },
    /// A frame of another node.
    Frame(Bytes),
    /// The connection was lost, and with it frames of both directions.
    Lost,
}

/// The frames of a node.
#[derive(Debug)]
pub struct NodeFrames {
    out: CountedSender<OutgoingFrame>,
    shares: Shares,
    events: CountedReceiver<FrameEvent>,
    /// Frames of other nodes that did not fit.
    dropped: Arc<AtomicU64>,
    ended: mpsc::Receiver<()>,
}

/// A frame that waits.
#[derive(Debug)]
struct OutgoingFrame {
    node: Arc<str>,
    frame: Vec<u8>,
    /// Given back when the frame no longer waits.
    _share: Share,
}

impl NodeFrames {
    /// Opens the connection, and opens it again whenever it is lost. Must be called in a Tokio runtime.
    pub fn start(options: NodeFramesOptions) -> Self {
        let (out, of_task) = NODE_FRAMES_OUT.counted_channel();
        let (to_node, events) = NODE_FRAMES_IN.counted_channel();
        let (alive, ended) = dunlin_queues::end_channel();
        let dropped = Arc::<AtomicU64>::default();
        let arrivals = Arrivals { events: to_node, dropped: Arc::clone(&dropped) };
        tokio::spawn(run(options, of_task, arrivals, alive));
        Self { out, shares: Shares::new(NODE_FRAMES_OUT.bytes_max() / NODES_IN_QUEUE), events, dropped, ended }
    }

    /// Queues a frame for a node. Returns whether there was space in the queue, and in the node's share of it. A frame is
    /// dropped while there is no connection.
    pub fn send(&mut self, node: Arc<str>, frame: Vec<u8>) -> bool {
        let bytes = frame.len();
        // A short frame takes as much of a share as of the number of frames in the queue.
        let of_share = bytes.max(NODE_FRAMES_OUT.bytes_max() / NODE_FRAMES_OUT.messages.max);
        let Some(share) = self.shares.take(&node, of_share) else { return false };
        self.out.try_send(OutgoingFrame { node, frame, _share: share }, bytes).is_ok()
    }

    /// The number of frames of other nodes that did not fit since the last call.
    pub fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }

    /// The next event. Cancel-safe. `None` if the runtime ends.
    pub async fn next(&mut self) -> Option<FrameEvent> {
        self.events.recv().await
    }

    /// An event that has arrived.
    pub fn try_next(&mut self) -> Option<FrameEvent> {
        self.events.try_recv()
    }

    /// Sends what is queued, and closes the connection.
    pub async fn close(self) {
        let Self { out, events: _events, mut ended, .. } = self;
        drop(out);
        let _ = timeout(STOP_TIMEOUT, ended.recv()).await;
    }
}

/// Where events go.
struct Arrivals {
    events: CountedSender<FrameEvent>,
    dropped: Arc<AtomicU64>,
}

impl Arrivals {
    fn take(&self, frame: Bytes) {
        let bytes = frame.len();
        // The next frame has a number that is too high, so the loss is noticed.
        if self.events.try_send(FrameEvent::Frame(frame), bytes).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// An event that is not lost with a full queue: the receiver must not take what follows for complete.
    fn tell(&self, event: FrameEvent) {
        self.events.send_admitted(event, size_of::<FrameEvent>());
    }
}

async fn run(
    options: NodeFramesOptions,
    mut out: CountedReceiver<OutgoingFrame>,
    arrivals: Arrivals,
    _alive: mpsc::Sender<()>,
) {
    let mut servers = Servers::new(ConnectionName::Rooms, &options.links);
    loop {
        let opened = {
            let mut opening = std::pin::pin!(open(&mut servers, &options));
            loop {
                tokio::select! {
                    opened = &mut opening => break opened,
                    // Without a connection, frames are lost, as the sender expects.
                    frame = out.recv() => if frame.is_none() { return },
                }
            }
        };
        let Some((client, notices, subscriber)) = opened else { continue };
        (options.links.report)(LinkReport::Connected { link: ConnectionName::Rooms, server: servers.current() });
        arrivals.tell(FrameEvent::Connected { payload_bytes_max: client.max_payload() });
        let ended = forward(&options, (&client, notices, subscriber), &mut out, &arrivals).await;
        arrivals.tell(FrameEvent::Lost);
        if ended == Ended::Stopped {
            let _ = timeout(STOP_TIMEOUT, client.flush()).await;
            return;
        }
        (options.links.report)(LinkReport::Lost { link: ConnectionName::Rooms, server: servers.current() });
        servers.move_on();
    }
}

type Opened = (Client, mpsc::Receiver<ClientNotice>, Subscriber);

async fn open(servers: &mut Servers, options: &NodeFramesOptions) -> Option<Opened> {
    let (client, notices) = servers.connect(ConnectionName::Rooms, &options.links).await;
    let subscriber = client.subscribe(options.subject_of(&options.node)).await.ok()?;
    Some((client, notices, subscriber))
}

#[derive(PartialEq, Eq)]
enum Ended {
    Lost,
    Stopped,
}

/// Forwards frames until the connection is lost, or no more are sent.
async fn forward(
    options: &NodeFramesOptions,
    (client, mut notices, mut subscriber): (&Client, mpsc::Receiver<ClientNotice>, Subscriber),
    out: &mut CountedReceiver<OutgoingFrame>,
    arrivals: &Arrivals,
) -> Ended {
    loop {
        tokio::select! {
            frame = out.recv() => {
                let Some(OutgoingFrame { node, frame, .. }) = frame else { return Ended::Stopped };
                let publishing = client.publish(options.subject_of(&node), frame.into());
                match timeout(STUCK_TIMEOUT, publishing).await {
                    Ok(Ok(())) => {}
                    // It was made for a server that takes longer messages. Another connection would not help.
                    Ok(Err(error)) if error.kind() == PublishErrorKind::MaxPayloadExceeded => {
                        arrivals.tell(FrameEvent::Connected { payload_bytes_max: client.max_payload() });
                    }
                    Ok(Err(_)) | Err(_) => return Ended::Lost,
                }
            }
            message = subscriber.next() => {
                let Some(Message { payload, .. }) = message else { return Ended::Lost };
                arrivals.take(payload);
            }
            notice = notices.recv() => match notice {
                Some(ClientNotice::Error(text)) => {
                    (options.links.report)(LinkReport::ServerError { link: ConnectionName::Rooms, text });
                }
                Some(ClientNotice::Lost | ClientNotice::SlowConsumer) | None => return Ended::Lost,
            },
        }
    }
}
