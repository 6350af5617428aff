using System;
using System.Threading.Tasks;

namespace Dunlin.Rooms
{
    public enum SubscriptionState
    {
        Unsubscribed,
        /// <summary>On the way, also after a lost connection.</summary>
        Subscribing,
        Subscribed,
    }

    public sealed class SubscriptionOptions
    {
        /// <summary>A JSON document, sent with each subscription.</summary>
        public string Data;
        /// <summary>Gets a subscription token for the channel, where the namespace requires one, and again when it expires.</summary>
        public Func<string, Task<string>> GetToken;
    }

    /// <summary>A subscription to a channel that is no room, such as a lobby or a user's own channel. Its data is JSON.</summary>
    public sealed class Subscription : ILinked
    {
        private readonly SubscriptionOptions options;
        private readonly ChannelLink link;

        internal Subscription(RoomClient client, string channel, SubscriptionOptions options)
        {
            this.options = options;
            if (options.Data != null) JsonValue.Parse(options.Data);
            Channel = channel;
            link = new ChannelLink(client, channel, options.GetToken, this);
        }

        /// <summary>
        /// The channel is subscribed to. The argument is false after another subscription if publications may have been missed. A lobby then sends its
        /// state anew.
        /// </summary>
        public event Action<bool> Subscribed;
        /// <summary>A publication: its document, and its offset; 0 if the channel has none.</summary>
        public event Action<JsonValue, ulong> Received;
        /// <summary>The subscription ended: code, reason, and whether the client subscribes again by itself.</summary>
        public event Action<int, string, bool> Unsubscribed;
        /// <summary>Invalid data was ignored, or a token could not be had.</summary>
        public event Action<Exception> Failed;

        public string Channel { get; }

        public SubscriptionState State
        {
            get
            {
                if (link.State == LinkState.Open) return SubscriptionState.Subscribed;
                return link.State == LinkState.Opening ? SubscriptionState.Subscribing : SubscriptionState.Unsubscribed;
            }
        }

        internal ChannelLink Link { get { return link; } }

        /// <summary>Subscribes, and subscribes again whenever the connection comes back, until <see cref="Unsubscribe"/>.</summary>
        public void Subscribe()
        {
            link.Open();
        }

        public void Unsubscribe()
        {
            link.Close("unsubscribed");
        }

        string ILinked.Data { get { return options.Data; } }

        void ILinked.OnOpen(SubscribeReply reply, bool isWhole)
        {
            link.BeginDelaysAgain();
            if (Subscribed != null) Subscribed(isWhole);
        }

        void ILinked.OnPublication(Publication publication)
        {
            JsonValue document;
            try
            {
                document = publication.Document();
            }
            catch (RoomException error)
            {
                if (Failed != null) Failed(error);
                return;
            }
            if (Received != null) Received(document, publication.Offset);
        }

        void ILinked.OnClosed(int code, string reason, bool opensAgain)
        {
            if (Unsubscribed != null) Unsubscribed(code, reason, opensAgain);
        }

        void ILinked.OnFailure(Exception error)
        {
            if (Failed != null) Failed(error);
        }
    }
}
