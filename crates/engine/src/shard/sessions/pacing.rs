//! Paces that clients and the server API state: of a subscription to a channel of the latest lane or to a room, and of a
//! session. Here they change, and paced subscribers of channels have their turns.

use dunlin_protocol::{ErrorCode, NumberMember, Payload, Reply, RpcResult, text_member};

use crate::{
    SessionKey,
    api::{ApiAnswer, ApiResult},
    counters::NamespaceCounters,
    frame::FrameRef,
    hub::{HubEntry, ListKey, LocalChannelId},
    names::NamespaceIndex,
    options::Lane,
    outbox::Outbox,
    pace::{BYTES_PER_SECOND, BytePace, PaceChange, UPDATES_PER_SECOND, UpdatePace},
    paced_subscribers::PacedSubscribers,
    refused::{Refused, RefusedCommand},
};

use super::{Context, commands::CommandOutcome, open_sessions::OpenSessions};

/// Methods of RPC that the shard itself answers. Their names begin with [`crate::backend::NODE_METHODS`].
const SUBSCRIPTION_PACE: &str = "dunlin.subscription_pace";
const SESSION_PACE: &str = "dunlin.session_pace";

const RELIABLE_LANE: &str =
    "only channels with delivery: latest and rooms have a pace: the reliable lane leaves no publication out";
const NOT_SUBSCRIBED: &str = "the session has no subscription to this channel";

/// Frames after which the turns of a channel go on in the next turn of the event loop. Ten thousand subscribers with the
/// same pace would otherwise delay all other sessions of the shard. Those that come later have their next turns later, so the
/// load spreads over the interval.
const FRAMES_AT_ONCE_MAX: u64 = 4_096;

/// A session whose paces change, or a channel whose paced subscribers have their turns.
pub(in crate::shard) struct Pacing<'s> {
    pub(super) context: &'s mut Context,
    pub(super) sessions: &'s mut OpenSessions,
}

impl Pacing<'_> {
    /// Carries out a client's call, if its method is about paces.
    pub(super) fn call(&mut self, key: SessionKey, method: &str, data: &[u8]) -> Option<CommandOutcome> {
        let changed = match method {
            SUBSCRIPTION_PACE => self.change_subscription(key, data),
            SESSION_PACE => BytePace::from_member(NumberMember::of(data, BYTES_PER_SECOND))
                .map_err(|error| RefusedCommand::explained(ErrorCode::BadRequest, error))
                .map(|pace| self.set_session_pace(key, pace)),
            _ => return None,
        };
        let data = Payload::from_json(bytes::Bytes::from_static(b"{}"));
        Some(changed.map(|()| Some(Reply::Rpc(RpcResult { data: Some(data) }))))
    }

    fn change_subscription(&mut self, key: SessionKey, data: &[u8]) -> Result<(), RefusedCommand> {
        let pace = UpdatePace::from_member(NumberMember::of(data, UPDATES_PER_SECOND))
            .map_err(|error| RefusedCommand::explained(ErrorCode::BadRequest, error))?;
        let Some(channel) = text_member(data, "channel") else {
            return Err(RefusedCommand::explained(ErrorCode::BadRequest, "channel is missing"));
        };
        let namespace = self.context.resolve(&channel)?;
        check_lane(self.context, namespace)?;
        if self.set_subscription_pace(key, &channel, pace) {
            Ok(())
        } else {
            Err(RefusedCommand::explained(ErrorCode::BadRequest, NOT_SUBSCRIBED))
        }
    }

    /// Carries out a command of the server API for these sessions. Those without the subscription stay as they are.
    pub(super) fn change_all(&mut self, keys: &[SessionKey], change: &PaceChange) -> ApiResult {
        if let PaceChange::Subscription { channel, .. } = change {
            let namespace = self.context.resolve(channel)?;
            if !has_pace(self.context, namespace) {
                return Err(Refused::new(ErrorCode::NotAvailable, RELIABLE_LANE));
            }
        }
        let mut sessions = 0;
        for key in keys {
            let is_changed = match change {
                PaceChange::Subscription { channel, pace } => self.set_subscription_pace(*key, channel, *pace),
                PaceChange::Session(pace) => {
                    self.set_session_pace(*key, *pace);
                    true
                }
            };
            sessions += u32::from(is_changed);
        }
        Ok(ApiAnswer::Done { sessions })
    }

    fn set_session_pace(&mut self, key: SessionKey, pace: Option<BytePace>) {
        let now_us = self.context.now.mono_us;
        let Some(outbox) = self.sessions.table.outbox_of(key) else { return };
        outbox.set_byte_pace(pace, now_us);
        let held_until_us = outbox.held_until_us();
        outbox.list(key.index, &mut self.context.effects);
        if held_until_us.is_some() {
            // A higher pace ends a hold sooner.
            self.sessions.set_hold(self.context, key, held_until_us);
        }
    }

    /// Changes the pace of a subscription; returns whether the session has it.
    fn set_subscription_pace(&mut self, key: SessionKey, channel: &str, pace: Option<UpdatePace>) -> bool {
        let Some(id) = self.sessions.hub.find(channel) else { return false };
        let session = self.sessions.table.get_mut(key);
        let Some(subscription) = session.and_then(|session| session.subscription_mut(id)) else { return false };
        let before = subscription.pace();
        let index = subscription.place;
        if before == pace {
            return true;
        }
        if let Some(seat) = subscription.seat() {
            subscription.set_pace(pace);
            self.sessions.seats.set_pace(seat, pace);
        } else if let Some(index) = index {
            self.move_subscriber((key, id), index, pace);
        } else {
            subscription.set_pace(pace);
        }
        if index.is_some() {
            let namespace = self.sessions.hub.channel(id).namespace;
            let counters = self.context.count(namespace);
            counters.paced_subscriptions += u64::from(pace.is_some());
            counters.paced_subscriptions -= u64::from(before.is_some());
        }
        true
    }

    /// Moves a subscriber to the list for its new pace.
    fn move_subscriber(&mut self, (key, id): (SessionKey, LocalChannelId), index: u32, pace: Option<UpdatePace>) {
        let session = self.sessions.table.at_mut(key.index);
        let subscription = session.subscription_mut(id).expect("it was looked at");
        let before = subscription.pace();
        subscription.set_pace(pace);
        let subscription = session.subscription(id).expect("it was looked at");
        let [list_before, list] = [before, pace].map(|pace| session.list_key(subscription, pace));
        if let (Some(_), Some(pace)) = (before, pace) {
            self.sessions.hub.channel_mut(id).paced_mut(list).set_pace(index, pace);
        } else {
            if before.is_some() {
                self.queue_last_turn(key, id, (list_before, index));
            }
            let entry = self.sessions.remove_from_list(self.context, id, (list_before, index));
            let index = self.sessions.hub.add(id, list, entry, pace);
            let session = self.sessions.table.at_mut(key.index);
            session.subscription_mut(id).expect("it was looked at").place = Some(index);
        }
        self.sessions.hub.schedule_turns(id, &mut self.context.timers, self.context.now.mono_us);
        if self.sessions.table.outbox(key.index).is_too_far_behind(&self.context.options.client) {
            self.sessions.close_slow(self.context, key);
        }
    }

    /// Queues what waits for the turns of a session that is about to end. What no longer fits into its queue is left out.
    pub(super) fn queue_last_turns(&mut self, key: SessionKey) {
        let session = self.sessions.table.at(key.index);
        let with_pace = session.subscriptions.iter().filter(|one| one.pace().is_some() && one.seat().is_none());
        let lists = with_pace.map(|one| (one.channel, session.list_key(one, one.pace()), one.place));
        let lists: Vec<_> = lists.filter_map(|(id, list, place)| Some((id, (list, place?)))).collect();
        for (id, place) in lists {
            if self.sessions.table.outbox(key.index).is_too_far_behind(&self.context.options.client) {
                return;
            }
            self.queue_last_turn(key, id, place);
        }
    }

    /// Queues what waits for the turn of a subscriber, which leaves its list.
    fn queue_last_turn(&mut self, key: SessionKey, id: LocalChannelId, (list, place): (ListKey, u32)) {
        let OpenSessions { hub, table, .. } = &mut *self.sessions;
        let Context { counters, effects, .. } = &mut *self.context;
        let channel = hub.channel_mut(id);
        let namespace = &mut counters.namespaces[usize::from(channel.namespace.0)];
        let paced = channel.paced_mut(list);
        let (taken_through, outbox) = (paced.taken_through(place), table.outbox(key.index));
        queue_turn(outbox, id, paced, taken_through, namespace);
        outbox.list(key.index, effects);
    }

    /// Takes the turns of a channel's paced subscribers that are scheduled at `due_us`; returns whether there are any.
    pub(in crate::shard) fn take_turns(&mut self, due_us: u64, channel: &str) -> bool {
        let Some((id, number)) = self.sessions.hub.take_due_turns(channel, due_us) else { return false };
        let now_us = self.context.now.mono_us;
        let mut slow = Vec::new();
        let is_over = self.queue_turns((id, number), &mut slow);
        // The event loop first writes what was queued.
        let from_us = if is_over { now_us } else { now_us + 1 };
        self.sessions.hub.schedule_turns(id, &mut self.context.timers, from_us);
        for key in slow {
            self.sessions.close_slow(self.context, key);
        }
        true
    }

    /// Queues what is due for the subscribers of a paced list; returns whether no turn is left. The cost is that of the
    /// queued frames.
    fn queue_turns(&mut self, (id, number): (LocalChannelId, usize), slow: &mut Vec<SessionKey>) -> bool {
        let OpenSessions { hub, table, .. } = &mut *self.sessions;
        let Context { options, counters, effects, now, .. } = &mut *self.context;
        let channel = hub.channel_mut(id);
        let namespace = &mut counters.namespaces[usize::from(channel.namespace.0)];
        let (entries, paced) = channel.paced_list_mut(number);
        let mut frames_left = FRAMES_AT_ONCE_MAX;
        while frames_left > 0
            && let Some((place, taken_through)) = paced.begin_turn(now.mono_us)
        {
            let HubEntry { session, .. } = entries[place as usize];
            let outbox = table.outbox(session);
            let queued = queue_turn(outbox, id, paced, taken_through, namespace);
            frames_left = frames_left.saturating_sub(queued);
            outbox.list(session, effects);
            if outbox.is_too_far_behind(&options.client) {
                slow.push(SessionKey { index: session, generation: outbox.generation });
            }
        }
        paced.drop_taken();
        frames_left > 0
    }
}

/// Queues the newest publications after `taken_through` for a subscriber of a paced list; returns their number.
fn queue_turn(
    outbox: &mut Outbox,
    id: LocalChannelId,
    paced: &PacedSubscribers,
    taken_through: u64,
    namespace: &mut NamespaceCounters,
) -> u64 {
    let mut queued = 0;
    for (key_hash, frame) in paced.newest_after(taken_through) {
        let replaced = outbox.push_latest(key_hash, id, FrameRef::clone(frame));
        namespace.skipped += u64::from(replaced);
        queued += 1;
    }
    namespace.deliveries += queued;
    namespace.pace_skipped += paced.published_after(taken_through) - queued;
    queued
}

/// The pace that the data of a subscription to a channel of `namespace` states.
pub(super) fn pace_in(
    context: &Context,
    namespace: NamespaceIndex,
    data: &[u8],
) -> Result<Option<UpdatePace>, RefusedCommand> {
    let member = NumberMember::of(data, UPDATES_PER_SECOND);
    if member == NumberMember::Absent {
        return Ok(None);
    }
    check_lane(context, namespace)?;
    UpdatePace::from_member(member).map_err(|error| RefusedCommand::explained(ErrorCode::BadRequest, error))
}

fn check_lane(context: &Context, namespace: NamespaceIndex) -> Result<(), RefusedCommand> {
    if has_pace(context, namespace) {
        Ok(())
    } else {
        Err(RefusedCommand::explained(ErrorCode::NotAvailable, RELIABLE_LANE))
    }
}

/// Whether subscriptions to channels of the namespace may state a pace.
fn has_pace(context: &Context, namespace: NamespaceIndex) -> bool {
    let options = context.namespace(namespace);
    options.room.is_some() || options.delivery == Lane::Latest
}
