//! Permissions in a channel that depend on neither a token nor a backend, and why one is not given.

use dunlin_protocol::ErrorCode;

use crate::{names::NamespaceIndex, options::NamespaceOptions, refused::Refused, session::Session};

use super::Context;

/// The three flags of a permission in a namespace.
#[derive(Clone, Copy)]
pub(super) struct Permission {
    for_client: bool,
    for_subscriber: bool,
    for_anonymous: bool,
    reasons: &'static Reasons,
}

/// Why a permission is not given; each names the option.
struct Reasons {
    for_anonymous: &'static str,
    for_nobody: &'static str,
    for_subscriber: &'static str,
}

macro_rules! reasons {
    ($what:literal) => {
        &Reasons {
            for_anonymous: concat!(
                "allow_",
                $what,
                "_for_anonymous is off in the namespace of the channel, and the client has no user"
            ),
            for_nobody: concat!(
                "allow_",
                $what,
                "_for_client and allow_",
                $what,
                "_for_subscriber are off in the namespace of the channel"
            ),
            for_subscriber: concat!(
                "allow_",
                $what,
                "_for_client is off in the namespace of the channel, and the client is not subscribed"
            ),
        }
    };
}

const CLOSED_BY_NAME: &str = "the client is not subscribed, and the name of the channel excludes it: by channel.private_prefix, or by the users that it lists";
const NO_TOKEN: &str =
    "the name of the channel begins with channel.private_prefix, and the client gave no subscription token";
const ANONYMOUS_NOT_LISTED: &str =
    "the name of the channel lists its users (allow_user_limited_channels), and the client has no user";
const NOT_LISTED: &str = "the name of the channel lists its users (allow_user_limited_channels), and not this one";
const SUBSCRIBE_OFF: &str =
    "allow_subscribe_for_client is off in the namespace of the channel, and the client gave no subscription token";
const SUBSCRIBE_ANONYMOUS_OFF: &str =
    "allow_subscribe_for_anonymous is off in the namespace of the channel, and the client has no user";
const OTHER_TYPE: &str = "a type of subscription other than 0, which is the only one";

impl Permission {
    /// To publish.
    pub(super) const fn publish(options: &NamespaceOptions) -> Self {
        Self {
            for_client: options.allow_publish_for_client,
            for_subscriber: options.allow_publish_for_subscriber,
            for_anonymous: options.allow_publish_for_anonymous,
            reasons: reasons!("publish"),
        }
    }

    /// To read presence.
    pub(super) const fn presence(options: &NamespaceOptions) -> Self {
        Self {
            for_client: options.allow_presence_for_client,
            for_subscriber: options.allow_presence_for_subscriber,
            for_anonymous: options.allow_presence_for_anonymous,
            reasons: reasons!("presence"),
        }
    }

    /// To read history.
    pub(super) const fn history(options: &NamespaceOptions) -> Self {
        Self {
            for_client: options.allow_history_for_client,
            for_subscriber: options.allow_history_for_subscriber,
            for_anonymous: options.allow_history_for_anonymous,
            reasons: reasons!("history"),
        }
    }

    /// Whether the permission applies to the session's kind of user.
    fn counts_for(self, session: &Session) -> bool {
        self.for_anonymous || !session.is_anonymous()
    }

    /// Whether the session has the permission in a channel. The flag for clients does not apply if the channel's name
    /// excludes the session: then only a subscription counts.
    pub(super) fn is_given(
        self,
        context: &Context,
        session: &Session,
        (channel, namespace): (&str, NamespaceIndex),
        subscribes: impl FnOnce() -> bool,
    ) -> bool {
        let for_client = || self.for_client && !is_closed_by_name(context, session, channel, namespace);
        let is_permitted = || for_client() || (self.for_client || self.for_subscriber) && subscribes();
        self.counts_for(session) && is_permitted() || context.options.client.insecure
    }

    /// The refusal of a session for which [`Self::is_given`] is false.
    #[cold]
    pub(super) fn refused(self, session: &Session) -> Refused {
        let why = match self {
            _ if !self.counts_for(session) => self.reasons.for_anonymous,
            Self { for_client: true, .. } => CLOSED_BY_NAME,
            Self { for_subscriber: true, .. } => self.reasons.for_subscriber,
            _ => self.reasons.for_nobody,
        };
        Refused::new(ErrorCode::PermissionDenied, why)
    }

    /// Whether the session has the permission as a subscriber.
    pub(super) fn is_given_to_subscriber(self, context: &Context, session: &Session) -> bool {
        let is_permitted = self.for_client || self.for_subscriber;
        self.counts_for(session) && is_permitted || context.options.client.insecure
    }
}

/// Whether the name of `channel` excludes the session: it requires a subscription token, or lists other users.
fn is_closed_by_name(context: &Context, session: &Session, channel: &str, namespace: NamespaceIndex) -> bool {
    let user = session.info.as_ref().map_or("", |info| &*info.user);
    let mut listed_users = listed_users(context, channel, namespace);
    let lists_others = listed_users.as_mut().is_some_and(|users| user.is_empty() || users.all(|listed| listed != user));
    context.names.is_private(channel) || lists_others
}

/// Whether the name of `channel` lists users, in a namespace with user-limited channels.
pub(super) fn is_user_limited(context: &Context, channel: &str, namespace: NamespaceIndex) -> bool {
    listed_users(context, channel, namespace).is_some()
}

/// The users listed in the name of `channel`, in a namespace with user-limited channels.
fn listed_users<'a>(
    context: &Context,
    channel: &'a str,
    namespace: NamespaceIndex,
) -> Option<impl Iterator<Item = &'a str> + use<'a>> {
    context.names.listed_users(channel).filter(|_| context.namespace(namespace).allow_user_limited_channels)
}

/// Whether `user`, empty for the anonymous one, may subscribe to `channel` by its name or its namespace's flags.
/// Private channels, tokens and backends are not considered.
pub(super) fn is_open_to(context: &Context, user: &str, channel: &str, namespace: NamespaceIndex) -> bool {
    let options = context.namespace(namespace);
    if let Some(mut users) = listed_users(context, channel, namespace) {
        return !user.is_empty() && users.any(|listed| listed == user);
    }
    options.allow_subscribe_for_client && (options.allow_subscribe_for_anonymous || !user.is_empty())
}

/// The refusal of a subscription without a token to a channel that is not open to `user`, see [`is_open_to`].
#[cold]
pub(super) fn not_open_to(context: &Context, user: &str, channel: &str, namespace: NamespaceIndex) -> Refused {
    let why = match (is_user_limited(context, channel, namespace), user.is_empty()) {
        (true, true) => ANONYMOUS_NOT_LISTED,
        (true, false) => NOT_LISTED,
        (false, _) if !context.namespace(namespace).allow_subscribe_for_client => SUBSCRIBE_OFF,
        (false, _) => SUBSCRIBE_ANONYMOUS_OFF,
    };
    Refused::new(ErrorCode::PermissionDenied, why)
}

/// The refusal of a private channel without a token.
pub(super) const fn needs_token() -> Refused {
    Refused::new(ErrorCode::PermissionDenied, NO_TOKEN)
}

/// The refusal of what clients send for other types of subscriptions.
pub(super) const fn of_other_type() -> Refused {
    Refused::new(ErrorCode::PermissionDenied, OTHER_TYPE)
}
