using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Threading.Tasks;

namespace Dunlin.Rooms
{
    public enum ConnectionState
    {
        Disconnected,
        /// <summary>On the way, also after a lost connection.</summary>
        Connecting,
        Connected,
    }

    public sealed class RoomClientOptions
    {
        public RoomEncoding Encoding = RoomEncoding.Protobuf;
        /// <summary>
        /// Gets a JSON Web Token before each connection, where the server requires one, and again when it expires. An exception is reported and
        /// tried again.
        /// </summary>
        public Func<Task<string>> GetToken;
#if UNITY_WEBGL && !UNITY_EDITOR
        public Func<IRoomSocket> NewSocket = () => new WebGLRoomSocket();
#else
        public Func<IRoomSocket> NewSocket = () => new ClientRoomSocket();
#endif
        /// <summary>The name of the client in the server's metrics and logs.</summary>
        public string Name = "csharp";
        /// <summary>Bounds of the random, growing delay before another connection.</summary>
        public double ReconnectMinMs = 500;
        public double ReconnectMaxMs = 20000;
        /// <summary>
        /// How long the server may take for a reply. Later, a call fails with <see cref="RoomErrorKind.TimedOut"/>, and a subscription without a reply
        /// leads to another connection.
        /// </summary>
        public double ReplyTimeoutMs = 10000;
        /// <summary>The local clock in milliseconds; it must not go back.</summary>
        public Func<double> NowMs;
    }

    /// <summary>
    /// A connection to a Dunlin server. Everything happens in <see cref="Poll"/>, on the thread that calls it: call it once per frame. No
    /// other method of this class, of its rooms or of its subscriptions may be called from other threads.
    /// </summary>
    public sealed class RoomClient : IDisposable
    {
        private const double ConnectTimeoutMs = 15000;
        private const double PingMarginMs = 10000;
        /// <summary>A server that sends faster than frames are read does not stop the game.</summary>
        private const int MessagesPerPollMax = 1024;

        private readonly Uri url;
        private readonly RoomClientOptions options;
        private readonly Dictionary<string, Room> rooms = new Dictionary<string, Room>();
        private readonly Dictionary<string, Subscription> subscriptions = new Dictionary<string, Subscription>();
        private readonly Dictionary<string, ChannelLink> links = new Dictionary<string, ChannelLink>();
        /// <summary>The values of <see cref="links"/>. A change makes another array, so listeners may change it while it is walked through.</summary>
        private ChannelLink[] allLinks = new ChannelLink[0];
        private readonly Replies replies = new Replies();
        private readonly TokenRequest token = new TokenRequest();
        private readonly Random random = new Random();
        private IRoomSocket socket;
        private string givenToken;
        private double? reconnectAtMs;
        private double? refreshAtMs;
        private double deadlineMs;
        private double silenceMs;
        private double connectedAtMs;
        private int attempts;
        private int losses;
        private int refreshAttempts;
        private bool pongs;
        private bool isDisposed;

        public RoomClient(Uri url, RoomClientOptions options = null)
        {
            this.url = url;
            this.options = options ?? new RoomClientOptions();
            if (this.options.NowMs == null)
            {
                Stopwatch watch = Stopwatch.StartNew();
                this.options.NowMs = () => watch.Elapsed.TotalMilliseconds;
            }
            Protocol = Protocol.Of(this.options.Encoding);
        }

        public event Action Connected;
        /// <summary>The connection ended: code, reason, and whether the client connects again by itself.</summary>
        public event Action<int, string, bool> Disconnected;
        /// <summary>Something failed that the client copes with.</summary>
        public event Action<Exception> Failed;

        public ConnectionState State { get; private set; }
        public RoomEncoding Encoding { get { return options.Encoding; } }
        internal Protocol Protocol { get; }
        internal double NowMs { get { return options.NowMs(); } }

        /// <summary>The room of this channel. Call <see cref="Rooms.Room.Join"/> to enter it.</summary>
        public Room Room(string channel, RoomOptions roomOptions = null)
        {
            RefuseIfDisposed();
            Room room;
            if (rooms.TryGetValue(channel, out room)) return room;
            room = new Room(this, channel, roomOptions ?? new RoomOptions());
            Add(channel, room.Link);
            rooms.Add(channel, room);
            return room;
        }

        /// <summary>The subscription to this channel, which is no room. Call <see cref="Rooms.Subscription.Subscribe"/> to begin it.</summary>
        public Subscription Subscription(string channel, SubscriptionOptions subscriptionOptions = null)
        {
            RefuseIfDisposed();
            Subscription subscription;
            if (subscriptions.TryGetValue(channel, out subscription)) return subscription;
            subscription = new Subscription(this, channel, subscriptionOptions ?? new SubscriptionOptions());
            Add(channel, subscription.Link);
            subscriptions.Add(channel, subscription);
            return subscription;
        }

        /// <summary>Leaves a room, and forgets it.</summary>
        public void Remove(Room room)
        {
            Room known;
            if (!rooms.TryGetValue(room.Channel, out known) || known != room) return;
            rooms.Remove(room.Channel);
            Remove(room.Channel, room.Link, "left");
        }

        /// <summary>Ends a subscription, and forgets it.</summary>
        public void Remove(Subscription subscription)
        {
            Subscription known;
            if (!subscriptions.TryGetValue(subscription.Channel, out known) || known != subscription) return;
            subscriptions.Remove(subscription.Channel);
            Remove(subscription.Channel, subscription.Link, "unsubscribed");
        }

        /// <summary>Connects, and connects again after a loss, until <see cref="Disconnect"/>.</summary>
        public void Connect()
        {
            RefuseIfDisposed();
            if (State != ConnectionState.Disconnected) return;
            attempts = 0;
            Begin();
        }

        /// <summary>Closes the connection. Players keep their seats for a while, as after a lost connection.</summary>
        public void Disconnect()
        {
            if (State != ConnectionState.Disconnected) Lose(0, "disconnected", false);
        }

        /// <summary>Leaves all rooms, ends all subscriptions and closes the connection. Calls without a reply fail.</summary>
        public void Dispose()
        {
            if (isDisposed) return;
            isDisposed = true;
            foreach (ChannelLink link in allLinks) link.Remove("disposed");
            Disconnect();
            links.Clear();
            allLinks = new ChannelLink[0];
            rooms.Clear();
            subscriptions.Clear();
        }

        /// <summary>
        /// Calls a method of the server, such as <c>dunlin.match</c>, or of its backend. <paramref name="data"/> is a JSON document. The result is null
        /// if it is empty, or no JSON. The task is completed in <see cref="Poll"/>.
        /// </summary>
        /// <exception cref="RoomException">
        /// in the task: <see cref="RoomErrorKind.Refused"/> with the server's code, <see cref="RoomErrorKind.TimedOut"/>, or
        /// <see cref="RoomErrorKind.NotConnected"/>; at once if <paramref name="data"/> is malformed.
        /// </exception>
        public Task<JsonValue> Call(string method, string data = null)
        {
            RefuseIfDisposed();
            if (data != null) JsonValue.Parse(data);
            var done = new TaskCompletionSource<JsonValue>();
            if (State != ConnectionState.Connected)
            {
                done.SetException(new RoomException(RoomErrorKind.NotConnected, method + ": there is no connection"));
                return done.Task;
            }
            Ask(id => Protocol.Rpc(id, method, data), reply =>
            {
                if (reply == null) done.SetException(new RoomException(RoomErrorKind.NotConnected, method + ": the connection was lost before the reply"));
                else if (reply.Error == Replies.Timeout) done.SetException(new RoomException(RoomErrorKind.TimedOut, method + ": no reply in time"));
                else if (reply.Error != null) done.SetException(RoomException.Refused(method, reply.Error));
                else done.SetResult(reply.Rpc == null ? null : reply.Rpc.Data);
            });
            return done.Task;
        }

        /// <summary>Takes in what has arrived, sends what is due, and raises events.</summary>
        public void Poll()
        {
            double nowMs = NowMs;
            if (reconnectAtMs != null && nowMs >= reconnectAtMs) Begin();
            if (refreshAtMs != null && nowMs >= refreshAtMs) BeginRefresh();
            token.Poll();
            IRoomSocket current = socket;
            SocketMessage message;
            for (int count = 0; count < MessagesPerPollMax && current != null && current == socket; count += 1)
            {
                if (!current.TryReceive(out message)) break;
                Take(message);
            }
            if (socket != null && nowMs > deadlineMs) Lose(0, "no message from the server", true);
            if (replies.Expire(nowMs)) Lose(0, "no reply to a connection or a subscription", true);
            foreach (ChannelLink link in allLinks) link.Poll(nowMs);
        }

        /// <summary>Drops the connection and connects again, so that each room gets a full snapshot and players keep their seats.</summary>
        internal void ConnectAgain(string reason)
        {
            Lose(0, reason, true);
        }

        /// <summary>Sends a command. The answer is null if the connection is lost before the reply.</summary>
        internal void Ask(Func<uint, byte[]> command, Action<ServerMessage> answer)
        {
            Write(command(replies.Expect(answer, NowMs + options.ReplyTimeoutMs, false)));
        }

        /// <summary>Sends a command. Without a reply, the connection is dropped.</summary>
        internal void AskOrLose(Func<uint, byte[]> command, Action<ServerMessage> answer)
        {
            Write(command(replies.Expect(answer, NowMs + options.ReplyTimeoutMs, true)));
        }

        internal void Write(byte[] frame)
        {
            if (socket != null) socket.Send(frame, Protocol.IsText);
        }

        /// <summary>A random, growing delay, so that clients do not come back all at once.</summary>
        internal double DelayMs(int attempt)
        {
            double most = Math.Min(options.ReconnectMaxMs, options.ReconnectMinMs * Math.Pow(2, Math.Min(attempt, 30)));
            return Math.Min(options.ReconnectMaxMs, options.ReconnectMinMs + random.NextDouble() * most);
        }

        /// <summary>A room has got a snapshot, or a channel its subscription. Before that, the next connection might end in the same way, so delays grow.</summary>
        internal void BeginDelaysAgain()
        {
            attempts = 0;
        }

        private void Begin()
        {
            State = ConnectionState.Connecting;
            reconnectAtMs = null;
            if (options.GetToken == null)
            {
                Open();
                return;
            }
            token.Begin(options.GetToken, given => { givenToken = given; Open(); }, error =>
            {
                Report(error);
                Lose(0, "no token: " + error.Message, true);
            });
        }

        private void Open()
        {
            deadlineMs = NowMs + ConnectTimeoutMs;
            try
            {
                socket = options.NewSocket();
                socket.Open(url, Protocol.Subprotocol);
            }
            catch (Exception error)
            {
                Report(error);
                Lose(0, "no socket: " + error.Message, true);
            }
        }

        private void Take(SocketMessage message)
        {
            switch (message.Kind)
            {
                case SocketMessageKind.Opened: AskOrLose(id => Protocol.Connect(id, givenToken, options.Name), TakeConnected); break;
                case SocketMessageKind.Closed: Lose(message.Code, message.Reason, true); break;
                default: TakeFrame(message.Data); break;
            }
        }

        private void TakeFrame(byte[] frame)
        {
            if (State == ConnectionState.Connected) deadlineMs = NowMs + silenceMs;
            IRoomSocket current = socket;
            int at = 0;
            while (current == socket)
            {
                ServerMessage message;
                try
                {
                    message = Protocol.Read(frame, ref at);
                }
                catch (RoomException error)
                {
                    Report(error);
                    if (current == socket) Lose(0, error.Message, true);
                    return;
                }
                if (message == null) return;
                Take(message);
            }
        }

        private void Take(ServerMessage message)
        {
            ChannelLink link;
            if (message.IsPing)
            {
                if (pongs) Write(Protocol.Pong());
            }
            else if (message.Id != 0) replies.Take(message);
            else if (message.Disconnect != null) Lose((int)message.Disconnect.Code, message.Disconnect.Reason, true);
            else if (links.TryGetValue(message.Channel, out link)) link.Take(message);
        }

        private void TakeConnected(ServerMessage reply)
        {
            if (reply == null) return;
            if (reply.Error != null || reply.Connect == null)
            {
                Ending error = reply.Error ?? new Ending { Reason = "a reply without a result" };
                Lose((int)error.Code, error.Reason, error.MayBeRetried || error.IsOfExpiredToken);
                return;
            }
            State = ConnectionState.Connected;
            connectedAtMs = NowMs;
            refreshAttempts = 0;
            pongs = reply.Connect.Pong;
            silenceMs = reply.Connect.PingSeconds == 0 ? double.PositiveInfinity : reply.Connect.PingSeconds * 1000.0 + PingMarginMs;
            deadlineMs = NowMs + silenceMs;
            PlanRefresh(reply.Connect.TtlSeconds);
            // First those that wait: what a listener opens begins at once, and only once.
            bool hasWaiting = false;
            foreach (ChannelLink link in allLinks)
            {
                hasWaiting |= link.State == LinkState.Opening;
                link.OnConnected();
            }
            if (!hasWaiting) BeginDelaysAgain();
            if (State == ConnectionState.Connected && Connected != null) Connected();
        }

        private void PlanRefresh(uint? ttlSeconds)
        {
            refreshAtMs = ttlSeconds == null || options.GetToken == null ? (double?)null : NowMs + ttlSeconds.Value * 1000.0;
        }

        private void BeginRefresh()
        {
            refreshAtMs = null;
            token.Begin(options.GetToken, SendRefresh, error =>
            {
                Report(error);
                RetryRefresh();
            });
        }

        private void SendRefresh(string given)
        {
            // The server ends a connection that refreshes without a token, for good.
            if (string.IsNullOrEmpty(given)) Lose(0, "no token", true);
            else Ask(id => Protocol.Refresh(id, given), TakeRefreshed);
        }

        private void TakeRefreshed(ServerMessage reply)
        {
            // The next connection begins with another token.
            if (reply == null) return;
            if (reply.Error == null && reply.Refresh != null)
            {
                refreshAttempts = 0;
                PlanRefresh(reply.Refresh.TtlSeconds);
                return;
            }
            Ending error = reply.Error ?? new Ending { Reason = "a reply without a result" };
            Report(RoomException.Refused("a new token", error));
            if (error.MayBeRetried) RetryRefresh();
            else Lose((int)error.Code, error.Reason, error.IsOfExpiredToken);
        }

        private void RetryRefresh()
        {
            refreshAtMs = NowMs + DelayMs(refreshAttempts);
            refreshAttempts += 1;
        }

        private void Lose(int code, string reason, bool reconnects)
        {
            if (code >= 3500 && code < 4000 || code >= 4500 && code < 5000) reconnects = false;
            if (socket != null) socket.Close();
            socket = null;
            token.Forget();
            refreshAtMs = null;
            if (State == ConnectionState.Connected && NowMs - connectedAtMs >= options.ReconnectMaxMs) BeginDelaysAgain();
            State = reconnects ? ConnectionState.Connecting : ConnectionState.Disconnected;
            reconnectAtMs = reconnects ? NowMs + DelayMs(attempts) : (double?)null;
            attempts += 1;
            losses += 1;
            int loss = losses;
            foreach (ChannelLink link in allLinks) link.OnLost(code, reason, reconnects);
            replies.Lose();
            // A listener may have disconnected meanwhile: that was reported already.
            if (loss == losses && Disconnected != null) Disconnected(code, reason, reconnects);
        }

        private void Add(string channel, ChannelLink link)
        {
            if (links.ContainsKey(channel)) throw new InvalidOperationException(channel + " is used as a room and as a subscription");
            links.Add(channel, link);
            allLinks = new List<ChannelLink>(links.Values).ToArray();
        }

        private void Remove(string channel, ChannelLink link, string reason)
        {
            links.Remove(channel);
            allLinks = new List<ChannelLink>(links.Values).ToArray();
            link.Remove(reason);
        }

        private void RefuseIfDisposed()
        {
            if (isDisposed) throw new ObjectDisposedException(nameof(RoomClient));
        }

        private void Report(Exception error)
        {
            if (Failed != null) Failed(error);
        }
    }
}
