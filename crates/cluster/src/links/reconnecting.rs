//! One of the three connections: keeps reopening it, and performs effects while it is open.

use std::{
    collections::{BTreeSet, HashMap},
    pin::pin,
    time::Duration,
};

use async_nats::{
    Client, Message, ServerAddr, Subscriber,
    client::{PublishErrorKind, SubscribeErrorKind},
};
use bytes::Bytes;
use dunlin_queues::{CountedReceiver, CountedSender};
use futures_util::StreamExt;
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{
    ConnectionName, LinkOptions, LinkReport,
    connecting::{ClientNotice, connect, described},
    reads::{DirectRead, ReadQuery},
    replies::header_map,
    subscription::{self, Overflow},
    unanswered_requests::{Answered, Awaited, AwaitedRequests, Unanswered},
    unwritten::Unwritten,
};
use crate::{
    link::{LinkEffect, LinkEvent, LinkName, MessageHeaders, PublishFault, ReadAnswer, ReadFault, RequestNumber},
    names::has_wildcard,
    streams::{creation, purge},
};

/// Pause after the first round in which no server was reachable; doubles up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// If a client accepts no command for this long, its connection is stuck.
const STUCK_TIMEOUT: Duration = Duration::from_secs(1);

/// Performs the effects of one link until their sender is dropped.
pub async fn run(
    link: LinkName,
    options: LinkOptions,
    mut effects: CountedReceiver<LinkEffect>,
    events: CountedSender<LinkEvent>,
) {
    let mut wanted = Wanted::default();
    let mut servers = Servers::new(link.into(), &options);
    let mut session_count = 0_u64;
    loop {
        let (client, notices) = {
            let mut connecting = pin!(servers.connect(link.into(), &options));
            // Effects are answered while the connection is being opened.
            loop {
                tokio::select! {
                    connected = &mut connecting => break connected,
                    effect = effects.recv() => match effect {
                        Some(effect) => wanted.refuse(effect, &events),
                        None => return,
                    },
                }
            }
        };
        session_count += 1;
        let inbox = format!("{}.{}{session_count}", options.inbox, link.label());
        let timeout = if link == LinkName::Read { options.read_timeout } else { options.ack_timeout };
        let opened = Session::open(Opened { link, client, notices, inbox, timeout }, &wanted, events.clone()).await;
        let Some(mut session) = opened else { continue };
        (options.report)(LinkReport::Connected { link: link.into(), server: servers.current() });
        let ended = session.run(&mut effects, &mut wanted, &options).await;
        session.close();
        match ended {
            SessionEnd::Lost => {
                (options.report)(LinkReport::Lost { link: link.into(), server: servers.current() });
                servers.move_on();
            }
            SessionEnd::Stopped => return,
        }
    }
}

/// The servers, in the order of attempts.
pub(crate) struct Servers {
    list: Vec<ServerAddr>,
    next: usize,
    /// Earliest time of the next attempt, so that connections that are lost at once are not reopened in a tight loop.
    not_before: Instant,
}

impl Servers {
    /// Nodes and links start at different servers.
    pub(crate) fn new(link: ConnectionName, options: &LinkOptions) -> Self {
        let hash = |sum: usize, byte: u8| sum.wrapping_mul(31).wrapping_add(usize::from(byte));
        let start = options.name.bytes().fold(link.index(), hash);
        Self { next: start % options.servers.len().max(1), list: options.servers.clone(), not_before: Instant::now() }
    }

    pub(crate) fn current(&self) -> String {
        self.list.get(self.next).map(|server| format!("{}:{}", server.host(), server.port())).unwrap_or_default()
    }

    pub(crate) fn move_on(&mut self) {
        self.next = (self.next + 1) % self.list.len().max(1);
    }

    /// Tries the servers in turn until one accepts the connection. The first failure of each is reported.
    pub(crate) async fn connect(
        &mut self,
        link: ConnectionName,
        options: &LinkOptions,
    ) -> (Client, mpsc::Receiver<ClientNotice>) {
        let mut pause = PAUSE_MIN;
        sleep_until(self.not_before).await;
        self.not_before = Instant::now() + PAUSE_MIN;
        for attempt in 1_usize.. {
            if let Some(server) = self.list.get(self.next) {
                match connect(link, server, options).await {
                    Ok(connected) => return connected,
                    Err(error) if attempt <= self.list.len() => {
                        let server = self.current();
                        (options.report)(LinkReport::ConnectFailed { link, server, error: described(&error) });
                    }
                    Err(_) => {}
                }
            }
            self.move_on();
            if attempt.is_multiple_of(self.list.len().max(1)) {
                sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
        std::future::pending().await
    }
}

/// The subjects to subscribe to whenever the connection is open.
#[derive(Debug, Default)]
struct Wanted {
    subjects: BTreeSet<Box<str>>,
}

impl Wanted {
    /// Handles an effect while the connection is down.
    fn refuse(&mut self, effect: LinkEffect, events: &CountedSender<LinkEvent>) {
        let event = match effect {
            LinkEffect::Subscribe { subject } => {
                self.subjects.insert(subject);
                return;
            }
            LinkEffect::Unsubscribe { subject } => {
                self.subjects.remove(&subject);
                return;
            }
            LinkEffect::Reconnect { .. } | LinkEffect::Purge { .. } => return,
            LinkEffect::Publish { request, .. } => match request {
                Some(request) => Awaited::Ack.failed(request, Unanswered::Disconnected),
                None => return,
            },
            LinkEffect::Describe { request, .. } | LinkEffect::Create { request, .. } => {
                Awaited::Info.failed(request, Unanswered::Disconnected)
            }
            LinkEffect::LastOf { request, .. }
            | LinkEffect::Range { request, .. }
            | LinkEffect::Sequences { request, .. }
            | LinkEffect::FirstSince { request, .. } => {
                let outcome = Err(ReadFault::Disconnected);
                LinkEvent::Answered { request, outcome }
            }
        };
        report(events, event);
    }
}

/// Queues an event that answers a request or follows from few of them: their number bounds it. Without a receiver, the node
/// is stopping.
fn report(events: &CountedSender<LinkEvent>, event: LinkEvent) {
    let bytes = event.bytes();
    events.send_admitted(event, bytes);
}

enum SessionEnd {
    Lost,
    Stopped,
}

/// The connection is no longer usable.
pub(super) struct Lost;

struct Opened {
    link: LinkName,
    client: Client,
    notices: mpsc::Receiver<ClientNotice>,
    inbox: String,
    timeout: Duration,
}

/// Forwards the messages of a subscription. It ends when it is dropped, together with its session.
struct ForwardTask(JoinHandle<()>);

impl Drop for ForwardTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A link while its connection is open.
struct Session {
    link: LinkName,
    client: Client,
    notices: mpsc::Receiver<ClientNotice>,
    inbox: String,
    answers: Subscriber,
    awaited: AwaitedRequests,
    live: HashMap<Box<str>, ForwardTask>,
    events: CountedSender<LinkEvent>,
    overflow: Overflow,
    unwritten: Unwritten,
}

impl Session {
    async fn open(opened: Opened, wanted: &Wanted, events: CountedSender<LinkEvent>) -> Option<Self> {
        let Opened { link, client, notices, inbox, timeout: answer_timeout } = opened;
        let answers = timeout(STUCK_TIMEOUT, client.subscribe(format!("{inbox}.*"))).await.ok()?.ok()?;
        let awaited = AwaitedRequests::new(answer_timeout);
        let (overflow, unwritten) = (Overflow::default(), Unwritten::default());
        let live = HashMap::new();
        let mut session = Self { link, client, notices, inbox, answers, awaited, live, events, overflow, unwritten };
        for subject in &wanted.subjects {
            session.subscribe(subject.clone()).await.ok()?;
        }
        let max_payload = session.client.max_payload();
        session.report(LinkEvent::Connected { link, max_payload });
        Some(session)
    }

    async fn run(
        &mut self,
        effects: &mut CountedReceiver<LinkEffect>,
        wanted: &mut Wanted,
        options: &LinkOptions,
    ) -> SessionEnd {
        loop {
            let deadline = self.awaited.deadline();
            let expiry = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            let outcome = tokio::select! {
                notice = self.notices.recv() => self.noticed(notice, options),
                message = self.answers.next() => match message {
                    Some(message) => self.answered(message).await,
                    None => Err(Lost),
                },
                effect = effects.recv() => {
                    let Some(effect) = effect else {
                        let _ = timeout(STUCK_TIMEOUT, self.client.flush()).await;
                        return SessionEnd::Stopped;
                    };
                    self.perform(effect, wanted).await
                }
                () = expiry => {
                    while let Some(event) = self.awaited.expired(Instant::now()) {
                        self.report(event);
                    }
                    Ok(())
                }
            };
            if outcome.is_err() {
                return SessionEnd::Lost;
            }
        }
    }

    fn noticed(&mut self, notice: Option<ClientNotice>, options: &LinkOptions) -> Result<(), Lost> {
        match notice {
            None | Some(ClientNotice::Lost) => return Err(Lost),
            Some(ClientNotice::SlowConsumer) => self.report(LinkEvent::SlowConsumer),
            Some(ClientNotice::Error(text)) => {
                (options.report)(LinkReport::ServerError { link: self.link.into(), text });
            }
        }
        Ok(())
    }

    async fn answered(&mut self, message: Message) -> Result<(), Lost> {
        let number = message.subject.rsplit('.').next().and_then(|token| token.parse().ok());
        let Some(number) = number else { return Ok(()) };
        match self.awaited.take(RequestNumber(number), message) {
            Answered::Nothing => Ok(()),
            Answered::Event(event) => {
                self.report(*event);
                Ok(())
            }
            Answered::Continue(request) => self.request_part(request).await,
        }
    }

    async fn perform(&mut self, effect: LinkEffect, wanted: &mut Wanted) -> Result<(), Lost> {
        match effect {
            LinkEffect::Subscribe { subject } => {
                wanted.subjects.insert(subject.clone());
                self.subscribe(subject).await
            }
            LinkEffect::Unsubscribe { subject } => {
                wanted.subjects.remove(&subject);
                self.live.remove(&subject);
                Ok(())
            }
            LinkEffect::Reconnect { .. } => Err(Lost),
            LinkEffect::Publish { request, subject, headers, payload, .. } => {
                self.publish(request, subject, &headers, payload).await
            }
            LinkEffect::LastOf { request, stream, subjects, floor } => {
                self.read(request, DirectRead::new(stream, ReadQuery::LastOf { subjects, floor })).await
            }
            LinkEffect::Range { request, stream, subject, from, messages_max } => {
                self.read(request, DirectRead::new(stream, ReadQuery::Range { subject, from, messages_max })).await
            }
            LinkEffect::Sequences { request, stream, sequences } => {
                self.read(request, DirectRead::new(stream, ReadQuery::Sequences { sequences, answered: 0 })).await
            }
            LinkEffect::FirstSince { request, stream, time_ms } => {
                self.read(request, DirectRead::new(stream, ReadQuery::FirstSince { time_ms })).await
            }
            LinkEffect::Create { request, terms, epoch } => {
                self.awaited.insert(request, Awaited::Info);
                let (subject, body) = creation(&terms, &epoch);
                self.send(request, subject, body).await
            }
            LinkEffect::Purge { stream, subject, below } => {
                let (api, body) = purge(&stream, &subject, below);
                // Nobody waits for the answer, which no request has the number of.
                self.send(RequestNumber(0), api, body).await
            }
            LinkEffect::Describe { request, stream } => {
                self.awaited.insert(request, Awaited::Info);
                self.send(request, format!("$JS.API.STREAM.INFO.{stream}"), Bytes::new()).await
            }
        }
    }

    async fn subscribe(&mut self, subject: Box<str>) -> Result<(), Lost> {
        if self.live.contains_key(&subject) {
            return Ok(());
        }
        let subscribing = timeout(STUCK_TIMEOUT, self.client.subscribe(String::from(subject.clone())));
        let subscriber = match subscribing.await {
            Ok(Ok(subscriber)) => subscriber,
            // No message could ever be published there.
            Ok(Err(error)) if error.kind() == SubscribeErrorKind::InvalidSubject => return Ok(()),
            Ok(Err(_)) | Err(_) => return Err(Lost),
        };
        let is_by_wildcard = has_wildcard(&subject);
        let forwarding = subscription::forward(subscriber, self.events.clone(), self.overflow.clone(), is_by_wildcard);
        let task = ForwardTask(tokio::spawn(forwarding));
        self.live.insert(subject, task);
        Ok(())
    }

    async fn publish(
        &mut self,
        request: Option<RequestNumber>,
        subject: Box<str>,
        headers: &MessageHeaders,
        payload: Bytes,
    ) -> Result<(), Lost> {
        let bytes = subject.len() + headers.bytes() + payload.len();
        if self.make_room(bytes).await.is_err() {
            self.await_answer(request);
            return Err(Lost);
        }
        let (subject, headers) = (String::from(subject), header_map(headers));
        let sending = async {
            match request {
                Some(request) => {
                    let reply = self.reply_to(request);
                    self.client.publish_with_reply_and_headers(subject, reply, headers, payload).await
                }
                None => self.client.publish_with_headers(subject, headers, payload).await,
            }
        };
        let refused = match timeout(STUCK_TIMEOUT, sending).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) if error.kind() != PublishErrorKind::Send => Some(error.to_string()),
            Ok(Err(_)) | Err(_) => {
                self.await_answer(request);
                return Err(Lost);
            }
        };
        match (refused, request) {
            (None, _) => self.await_answer(request),
            (Some(why), Some(request)) => {
                let outcome = Err(PublishFault::Refused { code: 400, error_code: 0, description: why.into() });
                self.report(LinkEvent::Acknowledged { request, outcome });
            }
            (Some(_), None) => {}
        }
        Ok(())
    }

    fn await_answer(&mut self, request: Option<RequestNumber>) {
        if let Some(request) = request {
            self.awaited.insert(request, Awaited::Ack);
        }
    }

    async fn read(&mut self, request: RequestNumber, reading: DirectRead) -> Result<(), Lost> {
        if reading.is_empty() {
            self.report(LinkEvent::Answered { request, outcome: Ok(ReadAnswer::default()) });
            return Ok(());
        }
        self.awaited.insert(request, Awaited::Read(reading));
        self.request_part(request).await
    }

    async fn request_part(&mut self, request: RequestNumber) -> Result<(), Lost> {
        let Some(reading) = self.awaited.reading(request) else { return Ok(()) };
        let (subject, bodies) = (reading.subject(), reading.bodies());
        for body in bodies {
            self.send(request, subject.clone(), body).await?;
        }
        Ok(())
    }

    async fn send(&mut self, request: RequestNumber, subject: String, body: Bytes) -> Result<(), Lost> {
        self.make_room(subject.len() + body.len()).await?;
        within(self.client.publish_with_reply(subject, self.reply_to(request), body)).await
    }

    async fn make_room(&mut self, bytes: usize) -> Result<(), Lost> {
        let client = self.client.clone();
        self.unwritten.make_room(bytes, async move || client.flush().await.is_ok()).await
    }

    fn reply_to(&self, request: RequestNumber) -> String {
        format!("{}.{}", self.inbox, request.0)
    }

    fn report(&self, event: LinkEvent) {
        report(&self.events, event);
    }

    fn close(mut self) {
        self.live.clear();
        for event in self.awaited.disconnected() {
            self.report(event);
        }
        self.report(LinkEvent::Disconnected { link: self.link });
    }
}

/// Waits until the client accepts a command.
pub(super) async fn within<T, E>(sending: impl Future<Output = Result<T, E>>) -> Result<T, Lost> {
    timeout(STUCK_TIMEOUT, sending).await.map_err(|_| Lost)?.map_err(|_| Lost)
}
