//! Opens a connection to one server.
//!
//! `async-nats` would reopen a lost connection by itself, and then send everything that was queued in the meantime,
//! however old it is. Therefore a client is dropped with its connection: it may authenticate only once.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_nats::{Auth, AuthError, Client, ConnectError, ConnectErrorKind, ConnectOptions, Event, ServerAddr};
use dunlin_queues::declared::{NATS_COMMANDS, NATS_NOTICES, NATS_SUBSCRIPTION};
use tokio::sync::mpsc;

use super::{ConnectionName, LinkOptions};

/// A connection is lost after three intervals without any data.
const PING_INTERVAL: Duration = Duration::from_millis(1_500);
/// Maximum length of a server's text in the log.
const ERROR_BYTES_MAX: usize = 512;

/// How a node authenticates to the servers.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum LinkCredentials {
    /// Only the credentials in the server's address, if any.
    #[default]
    None,
    /// User name and password.
    Password {
        /// The user name.
        user: Box<str>,
        /// The password.
        password: Box<str>,
    },
    /// A token.
    Token(Box<str>),
}

impl std::fmt::Debug for LinkCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Password { .. } => "Password",
            Self::Token(_) => "Token",
        })
    }
}

/// An event of a client about its connection.
#[derive(Debug)]
pub enum ClientNotice {
    Lost,
    SlowConsumer,
    Error(String),
}

/// Opens a connection for a link.
pub async fn connect(
    link: ConnectionName,
    server: &ServerAddr,
    options: &LinkOptions,
) -> Result<(Client, mpsc::Receiver<ClientNotice>), ConnectError> {
    let (notices, receiver) = NATS_NOTICES.tokio_channel();
    let auth = auth_of(server, &options.credentials);
    let has_connected = Arc::new(AtomicBool::new(false));
    let mut connecting = ConnectOptions::with_auth_callback(move |_nonce| {
        let is_first = !has_connected.swap(true, Ordering::Relaxed);
        let answer = if is_first { Ok(auth.clone()) } else { Err(AuthError::new("the connection was given up")) };
        async move { answer }
    })
    .name(format!("{} {}", options.name, link.label()))
    .connection_timeout(options.dial_timeout)
    .ping_interval(PING_INTERVAL)
    .client_capacity(NATS_COMMANDS.messages.max)
    .subscription_capacity(NATS_SUBSCRIPTION.messages.max)
    .ignore_discovered_servers()
    .max_reconnects(1)
    .event_callback(move |event| {
        let notices = notices.clone();
        async move {
            if let Some(notice) = notice_of(&event) {
                // If the receiver is gone, the session has ended.
                let _ = notices.send(notice).await;
            }
        }
    });
    if let Some(tls) = &options.tls {
        connecting = connecting.require_tls(true).tls_client_config(tls.clone());
    }
    let client = connecting.connect(without_credentials(server)).await?;
    Ok((client, receiver))
}

/// The address without user name and password, because the client logs the addresses that it is given.
fn without_credentials(server: &ServerAddr) -> ServerAddr {
    let mut url = server.clone().into_inner();
    // Both fail only for URLs without a host, which are refused.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    ServerAddr::from_url(url).unwrap_or_else(|_| unreachable!("the scheme is as before"))
}

/// The reason, as text of the system or the server.
pub fn described(error: &ConnectError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{}: {source}", error.kind()),
        None => error.kind().to_string(),
    }
}

/// Whether the server was reached and refuses the credentials, or one side refuses the other's certificate.
pub fn is_refused(error: &ConnectError) -> bool {
    let kind = error.kind();
    // rustls writes "invalid peer certificate", and "CertificateRequired" if the server requires one.
    let names_certificate = |source: &dyn std::error::Error| source.to_string().to_lowercase().contains("certificate");
    let is_tls = std::error::Error::source(error).is_some_and(names_certificate);
    matches!(kind, ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication) || is_tls
}

fn notice_of(event: &Event) -> Option<ClientNotice> {
    match event {
        Event::Disconnected | Event::Closed => Some(ClientNotice::Lost),
        Event::SlowConsumer(_) => Some(ClientNotice::SlowConsumer),
        Event::ServerError(error) => Some(ClientNotice::Error(shortened(error.to_string()))),
        Event::Connected | Event::LameDuckMode | Event::Draining | Event::ClientError(_) => None,
    }
}

fn shortened(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(ERROR_BYTES_MAX));
    text
}

fn auth_of(server: &ServerAddr, credentials: &LinkCredentials) -> Auth {
    let mut auth = Auth::new();
    match credentials {
        LinkCredentials::Password { user, password } => {
            auth.username = Some(user.to_string());
            auth.password = Some(password.to_string());
        }
        LinkCredentials::Token(token) => auth.token = Some(token.to_string()),
        LinkCredentials::None => match (server.username(), server.password()) {
            (Some(user), Some(password)) => {
                auth.username = Some(percent_decoded(user));
                auth.password = Some(percent_decoded(password));
            }
            (Some(token), None) => auth.token = Some(percent_decoded(token)),
            (None, _) => {}
        },
    }
    auth
}

/// Decodes a part of an address. Invalid escapes are kept.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let escaped = (first == b'%').then(|| after.get(..2)).flatten();
        let value = escaped.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(value.unwrap_or(first));
        rest = if value.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

/// Parses addresses as in Centrifugo's configuration: one, or several separated by commas.
///
/// # Errors
/// If one of them is not the address of a NATS server.
pub fn parsed_servers(text: &str) -> io::Result<Vec<ServerAddr>> {
    let servers: Vec<ServerAddr> =
        text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::parse).collect::<io::Result<_>>()?;
    if servers.is_empty() || servers.iter().any(|server| server.host().is_empty()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no address of a NATS server"));
    }
    if let Some(server) = servers.iter().find(|server| server.is_websocket()) {
        let scheme = server.scheme();
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{scheme}:// is not supported: use nats:// or tls://"),
        ));
    }
    Ok(servers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_has_the_credentials_unless_others_are_given() {
        let servers = parsed_servers("nats://ann:p%40ss@a:4222, nats://s3cr3t@b,c").expect("these are addresses");
        let auth = auth_of(&servers[0], &LinkCredentials::None);
        assert_eq!((auth.username.as_deref(), auth.password.as_deref()), (Some("ann"), Some("p@ss")));
        assert_eq!(auth_of(&servers[1], &LinkCredentials::None).token.as_deref(), Some("s3cr3t"));
        assert_eq!(auth_of(&servers[2], &LinkCredentials::None).token, None);
        assert_eq!(auth_of(&servers[1], &LinkCredentials::Token("t".into())).token.as_deref(), Some("t"));
    }

    #[test]
    fn the_client_is_given_no_credentials_that_it_could_log() {
        for server in parsed_servers("nats://ann:p%40ss@a:4222,tls://s3cr3t@b,c").expect("these are addresses") {
            let given = without_credentials(&server);
            assert_eq!((given.host(), given.port(), given.scheme()), (server.host(), server.port(), server.scheme()));
            assert_eq!((given.username(), given.password()), (None, None));
        }
    }

    #[test]
    fn invalid_server_urls_are_refused() {
        for text in ["", " , ", "http://a:1", "ws://a:1", "nats://"] {
            assert!(parsed_servers(text).is_err(), "{text}");
        }
    }
}
