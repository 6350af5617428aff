//! The internal port: a listener of the control thread for endpoints that are not for clients.

use std::{io, net::SocketAddr, time::Duration};

use dunlin_queues::declared::ACCEPTED;
use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
};

use crate::node::HandOver;

/// Pause after a failed accept, for example because of a lack of file descriptors.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Listens, and passes on connections until `stop` changes.
///
/// # Errors
/// The listener could not be created.
pub async fn listen(address: SocketAddr, stop: watch::Receiver<bool>) -> io::Result<mpsc::Receiver<HandOver>> {
    let listener = TcpListener::bind(address).await?;
    let (accepted, handed_over) = ACCEPTED.tokio_channel();
    tokio::spawn(accept_all(listener, accepted, stop));
    Ok(handed_over)
}

async fn accept_all(listener: TcpListener, accepted: mpsc::Sender<HandOver>, mut stop: watch::Receiver<bool>) {
    loop {
        let connection = tokio::select! {
            connection = listener.accept() => connection,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        let Ok((stream, peer)) = connection else {
            tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let Ok(stream) = stream.into_std() else { continue };
        if accepted.send(HandOver { stream, peer, head: Vec::new(), tls: None }).await.is_err() {
            return;
        }
    }
}
