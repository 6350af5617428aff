//! Who may do what in a channel. Everything that does not depend on a token or a backend is decided here.

use crate::{SessionKey, names::NamespaceIndex, options::NamespaceOptions, session::Session};

use super::Shard;

/// The three flags that let a session do something in a namespace.
#[derive(Clone, Copy)]
pub(super) struct Permission {
    for_client: bool,
    for_subscriber: bool,
    for_anonymous: bool,
}

impl Permission {
    /// To publish.
    pub(super) const fn publish(options: &NamespaceOptions) -> Self {
        Self {
            for_client: options.allow_publish_for_client,
            for_subscriber: options.allow_publish_for_subscriber,
            for_anonymous: options.allow_publish_for_anonymous,
        }
    }

    /// To read presence.
    pub(super) const fn presence(options: &NamespaceOptions) -> Self {
        Self {
            for_client: options.allow_presence_for_client,
            for_subscriber: options.allow_presence_for_subscriber,
            for_anonymous: options.allow_presence_for_anonymous,
        }
    }

    /// To read history.
    pub(super) const fn history(options: &NamespaceOptions) -> Self {
        Self {
            for_client: options.allow_history_for_client,
            for_subscriber: options.allow_history_for_subscriber,
            for_anonymous: options.allow_history_for_anonymous,
        }
    }
}

impl Shard {
    /// Whether the session has the permission in `channel`.
    pub(super) fn permits(&self, key: SessionKey, channel: &str, permission: Permission) -> bool {
        let Some(session) = self.sessions.get(key) else { return false };
        // A subscription that its owner has not answered yet counts: what the owner is asked next comes behind it.
        let subscription = || self.hub.find(channel).and_then(|id| session.subscription(id));
        let subscribes = || subscription().is_some_and(|subscription| !subscription.is_ending());
        self.permits_if(session, permission, subscribes)
    }

    /// Whether the session has the permission once it is a subscriber.
    pub(super) fn permits_subscriber(&self, session: &Session, permission: Permission) -> bool {
        self.permits_if(session, permission, || true)
    }

    fn permits_if(&self, session: &Session, permission: Permission, subscribes: impl FnOnce() -> bool) -> bool {
        let counts = permission.for_anonymous || !session.is_anonymous();
        counts && (permission.for_client || permission.for_subscriber && subscribes()) || self.options.client.insecure
    }

    /// Whether the name of `channel` lists users, and that counts in its namespace.
    pub(super) fn is_user_limited(&self, channel: &str, namespace: NamespaceIndex) -> bool {
        self.namespace(namespace).allow_user_limited_channels && self.names.listed_users(channel).is_some()
    }

    /// Whether `user`, empty for the anonymous one, may subscribe to `channel` by its name or its namespace's flags. Of
    /// private channels, tokens and backends it says nothing.
    pub(super) fn is_open_to(&self, user: &str, channel: &str, namespace: NamespaceIndex) -> bool {
        let options = self.namespace(namespace);
        let listed_users = self.names.listed_users(channel).filter(|_| options.allow_user_limited_channels);
        if let Some(mut users) = listed_users {
            return !user.is_empty() && users.any(|listed| listed == user);
        }
        options.allow_subscribe_for_client && (options.allow_subscribe_for_anonymous || !user.is_empty())
    }
}
