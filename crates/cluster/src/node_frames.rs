//! A connection for frames that nodes send each other about rooms. NATS forwards them and keeps none.
//!
//! It is a connection of its own: a tick that is late by a few milliseconds is felt by players, and the other
//! connections carry histories. Frames are lost while it is down and when a queue is full. The receiver notices by their
//! numbers, which this module does not read.

use std::{sync::Arc, time::Duration};

use async_nats::{Client, Message, Subscriber};
use bytes::Bytes;
use dunlin_queues::{
    CountedReceiver, CountedSender,
    declared::{NODE_FRAMES_IN, NODE_FRAMES_OUT},
};
use futures_util::StreamExt;
use tokio::{sync::mpsc, time::timeout};

use crate::{
    links::{ClientNotice, ConnectionName, LinkOptions, LinkReport, Servers},
    names::encode_token,
    thread::ClusterOptions,
};

/// If the client accepts no frame for this long, the connection is stuck. Ticks would be late by as much.
const STUCK_TIMEOUT: Duration = Duration::from_secs(1);
/// Timeout for the last frames of a node that stops.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);

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
    /// A frame of another node.
    Frame(Bytes),
    /// The connection was lost, and with it frames of both directions.
    Lost,
}

/// The frames of a node.
#[derive(Debug)]
pub struct NodeFrames {
    out: CountedSender<(Arc<str>, Vec<u8>)>,
    events: CountedReceiver<FrameEvent>,
    ended: mpsc::Receiver<()>,
}

impl NodeFrames {
    /// Opens the connection, and opens it again whenever it is lost. Must be called in a Tokio runtime.
    pub fn start(options: NodeFramesOptions) -> Self {
        let (out, of_task) = NODE_FRAMES_OUT.counted_channel();
        let (to_node, events) = NODE_FRAMES_IN.counted_channel();
        let (alive, ended) = dunlin_queues::end_channel();
        tokio::spawn(run(options, of_task, to_node, alive));
        Self { out, events, ended }
    }

    /// Queues a frame for a node. Returns whether there was space. A frame is dropped while there is no connection.
    pub fn send(&self, node: Arc<str>, frame: Vec<u8>) -> bool {
        let bytes = frame.len();
        self.out.try_send((node, frame), bytes).is_ok()
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
        let Self { out, events: _events, mut ended } = self;
        drop(out);
        let _ = timeout(STOP_TIMEOUT, ended.recv()).await;
    }
}

async fn run(
    options: NodeFramesOptions,
    mut out: CountedReceiver<(Arc<str>, Vec<u8>)>,
    events: CountedSender<FrameEvent>,
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
        let ended = forward(&options, (&client, notices, subscriber), &mut out, &events).await;
        // An event that is not lost with a full queue: the receiver must not take what follows for complete.
        events.send_admitted(FrameEvent::Lost, size_of::<FrameEvent>());
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
    out: &mut CountedReceiver<(Arc<str>, Vec<u8>)>,
    events: &CountedSender<FrameEvent>,
) -> Ended {
    loop {
        tokio::select! {
            frame = out.recv() => {
                let Some((node, frame)) = frame else { return Ended::Stopped };
                let publishing = client.publish(options.subject_of(&node), frame.into());
                if !matches!(timeout(STUCK_TIMEOUT, publishing).await, Ok(Ok(()))) {
                    return Ended::Lost;
                }
            }
            message = subscriber.next() => {
                let Some(Message { payload, .. }) = message else { return Ended::Lost };
                let bytes = payload.len();
                // The next frame has a number that is too high, so the loss is noticed.
                let _ = events.try_send(FrameEvent::Frame(payload), bytes);
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
