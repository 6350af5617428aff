//! Checks which errors a command may get, and which commands must fail. This is a second implementation of the
//! namespace rules.

use dunlin_engine::{Options, backend::ProxyIndex, options::NamespaceOptions};

use crate::{
    client::{OperatorAction, Pending},
    plan::BACKEND_ERROR,
    token::{Flaw, Tokens},
    wire::{ClientCommand, Filter, SubscribeCommand},
};

/// What the check of a reply needs to know.
pub struct ReplyContext<'a> {
    pub options: &'a Options,
    pub tokens: &'a Tokens,
    pub user: &'a str,
    /// The current time in Unix seconds.
    pub now_s: u64,
    /// Actions of operators that created subscriptions.
    pub subscribed: &'a [OperatorAction],
    pub client: &'a str,
}

/// A channel by its name.
enum Kind<'a> {
    TooLong,
    Unknown,
    Known { rules: &'a NamespaceOptions, is_private: bool },
}

impl<'a> ReplyContext<'a> {
    fn kind(&self, channel: &str) -> Kind<'a> {
        if channel.len() > self.options.channel.name_bytes_max {
            return Kind::TooLong;
        }
        let is_private = channel.starts_with('$');
        let Some((namespace, _)) = channel.trim_start_matches('$').split_once(':') else {
            return Kind::Known { rules: &self.options.without_namespace, is_private };
        };
        match self.options.namespaces.iter().find(|rules| rules.name == namespace) {
            Some(rules) => Kind::Known { rules, is_private },
            None => Kind::Unknown,
        }
    }

    fn flaw(&self, token: &str) -> Flaw {
        self.tokens.find(token).map_or(Flaw::Forged, |token| {
            if token.flaw == Flaw::None && token.user != self.user { Flaw::Foreign } else { token.flaw }
        })
    }

    /// The channels to which the server subscribes a connection with this token.
    pub fn subs(&self, token: &str) -> &[String] {
        self.tokens.find(token).map_or(&[], |token| &token.subs)
    }

    /// Whether an operator may have subscribed the client to `channel`, or to any channel if `channel` is empty.
    pub fn was_subscribed(&self, channel: &str) -> bool {
        let of_channel = |action: &&OperatorAction| channel.is_empty() || action.channel == channel;
        self.subscribed.iter().filter(of_channel).any(|action| action.is_about(self.user, self.client))
    }

    fn may_have_expired(&self, token: &str) -> bool {
        let token = self.tokens.find(token);
        token.is_some_and(|token| token.flaw == Flaw::Expired || token.expires_at_s.is_some_and(|at| at <= self.now_s))
    }

    /// Whether the verification of the token was ever reported as temporarily unavailable.
    fn was_unavailable(&self, token: &str) -> bool {
        self.tokens.find(token).is_some_and(|token| token.was_unavailable)
    }

    /// Whether the namespace of the channel uses a backend for this kind of request.
    fn uses_backend(&self, channel: &str, proxy: fn(&NamespaceOptions) -> Option<ProxyIndex>) -> bool {
        matches!(self.kind(channel), Kind::Known { rules, .. } if proxy(rules).is_some())
    }

    /// Whether a subscriber of the channel may use this filter.
    fn may_filter(&self, channel: &str, filter: &Filter) -> bool {
        let Kind::Known { rules, .. } = self.kind(channel) else { return false };
        rules.allow_tags_filter && filter.is_valid(&self.options.channel.tags_filter)
    }

    fn channels_are_few(&self) -> bool {
        self.options.channel.channels_max < 1_000
    }
}

/// Whether a backend, or a failed request to it, may lead to this error.
fn is_backend_error(code: u32) -> bool {
    matches!(code, 100 | 111) || code == u32::from(BACKEND_ERROR)
}

/// Checks that the error `code` is a valid reply to the command.
///
/// # Errors
/// If the command must not get this error.
pub fn check_error(context: &ReplyContext<'_>, request: &Pending, code: u32) -> Result<(), String> {
    let about_name = |channel: &str| match context.kind(channel) {
        Kind::TooLong => code == 107,
        Kind::Unknown => code == 102,
        Kind::Known { .. } => false,
    };
    let is_valid = match &request.command {
        command if code == 100 && context.was_unavailable(command.token()) => true,
        ClientCommand::Connect { token, .. } if token.is_empty() && context.options.backend.connect.is_some() => {
            is_backend_error(code) || code == 106 && context.channels_are_few()
        }
        ClientCommand::Connect { token, .. } => {
            matches!(code, 109 | 110) && context.may_have_expired(token)
                || code == 106 && context.channels_are_few() && !context.subs(token).is_empty()
        }
        ClientCommand::Refresh { token } => code == 110 && context.may_have_expired(token),
        ClientCommand::Ping => code == 108,
        ClientCommand::Rpc { .. } => match context.options.backend.rpc_without_namespace {
            Some(_) => is_backend_error(code),
            None => code == 108,
        },
        ClientCommand::Subscribe(subscribe) => may_reject_subscription(context, request, subscribe, code),
        ClientCommand::SubRefresh { token, .. } => match code {
            103 => true,
            109 | 110 => context.may_have_expired(token),
            _ => false,
        },
        ClientCommand::Publish { channel, .. } => {
            about_name(channel)
                || match (context.kind(channel), code) {
                    (Kind::Known { rules, is_private }, 103) => is_private || !rules.allow_publish_for_client,
                    (_, 106) => context.channels_are_few(),
                    (_, code) if is_backend_error(code) => context.uses_backend(channel, |rules| rules.publish_proxy),
                    _ => false,
                }
        }
        ClientCommand::Presence { channel } | ClientCommand::PresenceStats { channel } => {
            about_name(channel)
                || match (context.kind(channel), code) {
                    (Kind::Known { rules, .. }, 108) => !rules.presence,
                    (Kind::Known { rules, is_private }, 103) => {
                        rules.presence && (is_private || !rules.allow_presence_for_client)
                    }
                    _ => false,
                }
        }
        ClientCommand::History { channel, since, reverse, .. } => {
            let from_zero = *reverse && since.as_ref().is_some_and(|since| since.offset == 0);
            about_name(channel)
                || match (context.kind(channel), code) {
                    (Kind::Known { rules, .. }, 108) => rules.history_size == 0,
                    (Kind::Known { rules, is_private }, 103) => is_private || !rules.allow_history_for_client,
                    (Kind::Known { .. }, 106) => context.channels_are_few(),
                    (Kind::Known { .. }, 107) => from_zero,
                    (Kind::Known { .. }, 112) => since.as_ref().is_some_and(|since| !since.epoch.is_empty()),
                    _ => false,
                }
        }
        ClientCommand::Unsubscribe { .. } | ClientCommand::Send { .. } | ClientCommand::Pong => false,
    };
    if is_valid { Ok(()) } else { Err(format!("error {code} is not a valid reply to {:?}", request.command)) }
}

/// Whether a subscribe command may get the error `code`.
fn may_reject_subscription(
    context: &ReplyContext<'_>,
    request: &Pending,
    subscribe: &SubscribeCommand,
    code: u32,
) -> bool {
    let SubscribeCommand { channel, token, recover, reject_unrecoverable, filter, .. } = subscribe;
    let may_have_no_room = || request.at_limit || context.channels_are_few() || context.was_subscribed("");
    match code {
        102 => matches!(context.kind(channel), Kind::Unknown),
        103 => !may_subscribe(context, channel, token),
        105 => request.had || context.was_subscribed(channel),
        106 => may_have_no_room() || filter.is_some() && context.options.channel.tags_filters_max < 1_000,
        107 => {
            let is_too_long = matches!(context.kind(channel), Kind::TooLong);
            is_too_long || filter.as_ref().is_some_and(|filter| !context.may_filter(channel, filter))
        }
        109 | 110 => context.may_have_expired(token),
        112 => recover.is_some() && *reject_unrecoverable,
        code => {
            token.is_empty() && is_backend_error(code) && context.uses_backend(channel, |rules| rules.subscribe_proxy)
        }
    }
}

/// Checks that the command may succeed.
///
/// # Errors
/// If the command must fail.
pub fn check_success(context: &ReplyContext<'_>, request: &Pending) -> Result<(), String> {
    // Only subscribers may use a private channel, except for publications that a backend allows.
    let known = |channel: &str, allows: fn(&NamespaceOptions) -> bool| match context.kind(channel) {
        Kind::Known { rules, is_private } => {
            let is_open = !is_private || request.had || context.was_subscribed(channel);
            allows(rules)
                && (is_open
                    || matches!(request.command, ClientCommand::Publish { .. }) && rules.publish_proxy.is_some())
        }
        Kind::TooLong | Kind::Unknown => false,
    };
    let may = match &request.command {
        ClientCommand::Connect { token, .. } => {
            token.is_empty() || !matches!(context.flaw(token), Flaw::Forged | Flaw::Expired)
        }
        ClientCommand::Subscribe(subscribe) => {
            let SubscribeCommand { channel, token, filter, .. } = &**subscribe;
            let may_filter = filter.as_ref().is_none_or(|filter| context.may_filter(channel, filter));
            may_filter && may_subscribe(context, channel, token)
        }
        ClientCommand::Refresh { token } | ClientCommand::SubRefresh { token, .. } => context.flaw(token) == Flaw::None,
        ClientCommand::Publish { channel, .. } => {
            known(channel, |rules| rules.allow_publish_for_client || rules.allow_publish_for_subscriber)
        }
        ClientCommand::Presence { channel } | ClientCommand::PresenceStats { channel } => {
            known(channel, |rules| rules.allow_presence_for_client || rules.allow_presence_for_subscriber)
        }
        ClientCommand::History { channel, .. } => {
            known(channel, |rules| rules.allow_history_for_client || rules.allow_history_for_subscriber)
        }
        ClientCommand::Unsubscribe { .. } => true,
        ClientCommand::Rpc { .. } => context.options.backend.rpc_without_namespace.is_some(),
        ClientCommand::Ping | ClientCommand::Send { .. } | ClientCommand::Pong => false,
    };
    if may { Ok(()) } else { Err(format!("success is not a valid reply to {:?}", request.command)) }
}

/// Whether the client may subscribe to the channel with `token`, or without a token if `token` is empty.
fn may_subscribe(context: &ReplyContext<'_>, channel: &str, token: &str) -> bool {
    let Kind::Known { rules, is_private } = context.kind(channel) else { return false };
    if token.is_empty() { rules.allow_subscribe_for_client && !is_private } else { context.flaw(token) == Flaw::None }
}
