using System;
using System.Threading.Tasks;

namespace Dunlin.Rooms
{
    internal enum LinkState
    {
        Closed,
        /// <summary>On the way, also after a lost connection.</summary>
        Opening,
        Open,
    }

    /// <summary>What a <see cref="ChannelLink"/> is for: a room, or a plain subscription.</summary>
    internal interface ILinked
    {
        /// <summary>A JSON document for the next subscription; null for none.</summary>
        string Data { get; }
        /// <summary>False after another subscription if publications may have been missed.</summary>
        void OnOpen(SubscribeReply reply, bool isWhole);
        void OnPublication(Publication publication);
        void OnClosed(int code, string reason, bool opensAgain);
        void OnFailure(Exception error);
    }

    /// <summary>A client's subscription to a channel: its tokens, its position, and when to try again.</summary>
    internal sealed class ChannelLink
    {
        private const uint ResubscribeFrom = 2500;

        private readonly RoomClient client;
        private readonly string channel;
        private readonly Func<string, Task<string>> getToken;
        private readonly ILinked linked;
        private readonly TokenRequest token = new TokenRequest();
        private double? retryAtMs;
        private double? refreshAtMs;
        private int attempts;
        private int refreshAttempts;
        private int turn;
        private bool wasOpen;
        private bool isRemoved;
        private string epoch;
        private ulong offset;

        internal ChannelLink(RoomClient client, string channel, Func<string, Task<string>> getToken, ILinked linked)
        {
            this.client = client;
            this.channel = channel;
            this.getToken = getToken;
            this.linked = linked;
        }

        internal LinkState State { get; private set; }

        internal void Open()
        {
            if (isRemoved) throw new InvalidOperationException(channel + " was removed from its client");
            if (State != LinkState.Closed) return;
            State = LinkState.Opening;
            attempts = 0;
            if (client.State == ConnectionState.Connected) Begin();
        }

        /// <summary>Unsubscribes. The position is forgotten.</summary>
        internal void Close(string reason)
        {
            if (State == LinkState.Closed) return;
            if (client.State == ConnectionState.Connected) client.Ask(id => client.Protocol.Unsubscribe(id, channel), reply => { });
            ForgetPosition();
            End(0, reason, false);
        }

        /// <summary>Unsubscribes for good: its client no longer passes publications on to it.</summary>
        internal void Remove(string reason)
        {
            isRemoved = true;
            Close(reason);
        }

        private void ForgetPosition()
        {
            wasOpen = false;
            epoch = null;
            offset = 0;
        }

        /// <summary>The subscription works: delays begin again. Before that, the next one might end in the same way, so they grow.</summary>
        internal void BeginDelaysAgain()
        {
            attempts = 0;
            client.BeginDelaysAgain();
        }

        internal void Poll(double nowMs)
        {
            bool isConnected = client.State == ConnectionState.Connected;
            if (retryAtMs != null && nowMs >= retryAtMs && isConnected) Begin();
            if (refreshAtMs != null && nowMs >= refreshAtMs && isConnected) BeginRefresh();
            token.Poll();
        }

        internal void OnConnected()
        {
            if (State == LinkState.Opening) Begin();
        }

        internal void OnLost(int code, string reason, bool reconnects)
        {
            if (State != LinkState.Closed) End(code, reason, reconnects);
        }

        internal void Take(ServerMessage push)
        {
            if (State != LinkState.Open) return;
            // Before the reply to a subscription, a push is about an earlier one of the channel: the server sends nothing about a subscription before its reply.
            if (push.Unsubscribe != null)
            {
                bool opensAgain = push.Unsubscribe.Code >= ResubscribeFrom;
                if (!opensAgain) ForgetPosition();
                int ended = End((int)push.Unsubscribe.Code, push.Unsubscribe.Reason, opensAgain);
                if (opensAgain && ended == turn) Retry();
            }
            else if (push.Publication != null) Take(push.Publication);
        }

        private void Begin()
        {
            retryAtMs = null;
            if (getToken == null) Subscribe(null);
            else token.Begin(() => getToken(channel), Subscribe, error => { linked.OnFailure(error); Retry(); });
        }

        private void Subscribe(string given)
        {
            turn += 1;
            int asked = turn;
            string data = linked.Data;
            client.AskOrLose(id => client.Protocol.Subscribe(id, channel, given, data, epoch, offset), reply =>
            {
                if (asked == turn && State == LinkState.Opening) TakeOpen(reply);
            });
        }

        private void TakeOpen(ServerMessage reply)
        {
            Ending error = reply.Error ?? (reply.Subscribe == null ? new Ending { Reason = "a reply without a result" } : null);
            if (error != null)
            {
                if (error.MayBeRetried || error.IsOfExpiredToken && getToken != null) Retry();
                else
                {
                    ForgetPosition();
                    End((int)error.Code, error.Reason, false);
                }
                return;
            }
            State = LinkState.Open;
            bool isWhole = !wasOpen || reply.Subscribe.Recovered;
            wasOpen = true;
            refreshAttempts = 0;
            PlanRefresh(reply.Subscribe.TtlSeconds);
            epoch = reply.Subscribe.IsRecoverable ? reply.Subscribe.Epoch : null;
            // After a recovery this is the position that was asked for, and each publication moves it.
            offset = reply.Subscribe.Offset;
            int opened = turn;
            linked.OnOpen(reply.Subscribe, isWhole);
            foreach (Publication publication in reply.Subscribe.Publications)
            {
                if (opened == turn && State == LinkState.Open) Take(publication);
            }
        }

        private void Take(Publication publication)
        {
            if (publication.Offset > 0) offset = publication.Offset;
            linked.OnPublication(publication);
        }

        private void PlanRefresh(uint? ttlSeconds)
        {
            refreshAtMs = ttlSeconds == null || getToken == null ? (double?)null : client.NowMs + ttlSeconds.Value * 1000.0;
        }

        private void BeginRefresh()
        {
            refreshAtMs = null;
            token.Begin(() => getToken(channel), SendRefresh, error => { linked.OnFailure(error); RetryRefresh(); });
        }

        private void SendRefresh(string given)
        {
            int asked = turn;
            // The server ends a connection that refreshes without a token. Without a refresh, it ends the subscription alone.
            if (string.IsNullOrEmpty(given)) return;
            client.Ask(id => client.Protocol.SubRefresh(id, channel, given), reply =>
            {
                if (reply == null || asked != turn || State != LinkState.Open) return;
                if (reply.Error == null && reply.Refresh != null)
                {
                    refreshAttempts = 0;
                    PlanRefresh(reply.Refresh.TtlSeconds);
                    return;
                }
                Ending error = reply.Error ?? new Ending { Reason = "a reply without a result" };
                linked.OnFailure(RoomException.Refused("a new token for " + channel, error));
                // The server ends the subscription when its time is over, and says whether to subscribe again.
                if (error.MayBeRetried || error.IsOfExpiredToken) RetryRefresh();
            });
        }

        private void Retry()
        {
            retryAtMs = client.NowMs + client.DelayMs(attempts);
            attempts += 1;
        }

        private void RetryRefresh()
        {
            refreshAtMs = client.NowMs + client.DelayMs(refreshAttempts);
            refreshAttempts += 1;
        }

        /// <summary>Returns the number of this turn, which is another one if a listener has opened the link again.</summary>
        private int End(int code, string reason, bool opensAgain)
        {
            State = opensAgain ? LinkState.Opening : LinkState.Closed;
            turn += 1;
            int ended = turn;
            token.Forget();
            retryAtMs = refreshAtMs = null;
            linked.OnClosed(code, reason, opensAgain);
            return ended;
        }
    }
}
