//! The internal port: a listener of the control thread for what clients have no business with.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
};

use crate::node::HandOver;

/// Time before the next try when no connection could be accepted, such as for want of file descriptors.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Connections that are accepted and wait for their task.
const ACCEPTED_MAX: usize = 16;

/// Listens, and hands over what comes until told to stop.
///
/// # Errors
/// The address cannot be listened on.
pub async fn listen(address: SocketAddr, stop: watch::Receiver<bool>) -> io::Result<mpsc::Receiver<HandOver>> {
    let listener = TcpListener::bind(address).await?;
    let (accepted, handed_over) = mpsc::channel(ACCEPTED_MAX);
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
