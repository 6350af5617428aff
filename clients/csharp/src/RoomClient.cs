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
        /// <summary>Gets a JSON Web Token before each connection, where the server requires one. An exception is reported and tried again.</summary>
        public Func<Task<string>> GetToken;
        public Func<IRoomSocket> NewSocket = () => new ClientRoomSocket();
        /// <summary>The name of the client in the server's metrics and logs.</summary>
        public string Name = "csharp";
        /// <summary>Bounds of the random, growing delay before another connection.</summary>
        public double ReconnectMinMs = 500;
        public double ReconnectMaxMs = 20000;
        /// <summary>The local clock in milliseconds; it must not go back.</summary>
        public Func<double> NowMs;
    }

    /// <summary>
    /// A connection to a Dunlin server. Everything happens in <see cref="Poll"/>, on the thread that calls it: call it once per frame. No
    /// other method of this class or of its rooms may be called from other threads.
    /// </summary>
    public sealed class RoomClient
    {
        private const double ConnectTimeoutMs = 15000;
        private const double PingMarginMs = 10000;
        private const uint TokenExpired = 109;

        private readonly Uri url;
        private readonly RoomClientOptions options;
        private readonly Dictionary<string, Room> rooms = new Dictionary<string, Room>();
        private readonly Dictionary<uint, Action<ServerMessage>> waiting = new Dictionary<uint, Action<ServerMessage>>();
        private readonly Random random = new Random();
        private IRoomSocket socket;
        private Task<string> token;
        private string givenToken;
        private double? reconnectAtMs;
        private double deadlineMs;
        private double silenceMs;
        private int attempts;
        private uint lastId;
        private bool pongs;

        public RoomClient(Uri url, RoomClientOptions options = null)
        {
            this.url = url;
            this.options = options ?? new RoomClientOptions();
            if (this.options.NowMs == null)
            {
                Stopwatch watch = Stopwatch.StartNew();
                this.options.NowMs = () => watch.Elapsed.TotalMilliseconds;
            }
        }

        public event Action Connected;
        /// <summary>The connection ended: code, reason, and whether the client connects again by itself.</summary>
        public event Action<int, string, bool> Disconnected;
        /// <summary>Something failed that the client copes with.</summary>
        public event Action<Exception> Failed;

        public ConnectionState State { get; private set; }
        public RoomEncoding Encoding { get { return options.Encoding; } }
        internal double NowMs { get { return options.NowMs(); } }

        /// <summary>The room of this channel. Call <see cref="Room.Join"/> to enter it.</summary>
        public Room Room(string channel, RoomOptions roomOptions = null)
        {
            Room room;
            if (!rooms.TryGetValue(channel, out room)) rooms[channel] = room = new Room(this, channel, roomOptions ?? new RoomOptions());
            return room;
        }

        /// <summary>Leaves a room, and forgets it.</summary>
        public void Remove(Room room)
        {
            room.Leave();
            rooms.Remove(room.Channel);
        }

        public void Connect()
        {
            if (State != ConnectionState.Disconnected) return;
            attempts = 0;
            Begin();
        }

        public void Disconnect()
        {
            if (State != ConnectionState.Disconnected) Lose(0, "disconnected", false);
        }

        /// <summary>Takes in what has arrived, sends what is due, and raises events.</summary>
        public void Poll()
        {
            double nowMs = NowMs;
            if (reconnectAtMs != null && nowMs >= reconnectAtMs) Begin();
            if (token != null && token.IsCompleted) TakeToken();
            IRoomSocket current = socket;
            SocketMessage message;
            while (current != null && current == socket && current.TryReceive(out message)) Take(message);
            if (socket != null && nowMs > deadlineMs) Lose(0, "no message from the server", true);
            foreach (Room room in new List<Room>(rooms.Values)) room.Poll(nowMs);
        }

        private void Begin()
        {
            State = ConnectionState.Connecting;
            reconnectAtMs = null;
            if (options.GetToken == null) Open();
            else token = Started(options.GetToken);
        }

        /// <summary>A function of the game may also fail before it gives its task.</summary>
        internal static Task<string> Started(Func<Task<string>> getToken)
        {
            try
            {
                return getToken();
            }
            catch (Exception error)
            {
                return Task.FromException<string>(error);
            }
        }

        private void TakeToken()
        {
            Task<string> done = token;
            token = null;
            if (done.Status == TaskStatus.RanToCompletion)
            {
                givenToken = done.Result;
                Open();
                return;
            }
            Exception error = done.Exception == null ? new OperationCanceledException() : done.Exception.InnerException;
            Report(error);
            Lose(0, "no token: " + error.Message, true);
        }

        private void Open()
        {
            socket = options.NewSocket();
            deadlineMs = NowMs + ConnectTimeoutMs;
            socket.Open(url, Encoding == RoomEncoding.Json ? "centrifuge-json" : "centrifuge-protobuf");
        }

        private void Take(SocketMessage message)
        {
            switch (message.Kind)
            {
                case SocketMessageKind.Opened: SendConnect(); break;
                case SocketMessageKind.Closed: Lose(message.Code, message.Reason, true); break;
                default: TakeFrame(message.Data); break;
            }
        }

        private void TakeFrame(byte[] frame)
        {
            if (State == ConnectionState.Connected) deadlineMs = NowMs + silenceMs;
            List<ServerMessage> messages;
            try
            {
                messages = Encoding == RoomEncoding.Json ? ProtocolJson.Read(frame) : ProtocolProtobuf.Read(frame);
            }
            catch (RoomException error)
            {
                Report(error);
                Lose(0, error.Message, true);
                return;
            }
            IRoomSocket current = socket;
            foreach (ServerMessage message in messages) if (current == socket) Take(message);
        }

        private void Take(ServerMessage message)
        {
            Action<ServerMessage> answer;
            Room room;
            if (message.IsPing)
            {
                if (pongs) Write(Encoding == RoomEncoding.Json ? ProtocolJson.Pong() : ProtocolProtobuf.Pong());
            }
            else if (message.Id != 0)
            {
                if (!waiting.TryGetValue(message.Id, out answer)) return;
                waiting.Remove(message.Id);
                answer(message);
            }
            else if (message.Disconnect != null) Lose((int)message.Disconnect.Code, message.Disconnect.Reason, true);
            else if (rooms.TryGetValue(message.Channel, out room)) room.Take(message);
        }

        private void SendConnect()
        {
            uint id = NextId(TakeConnected);
            Write(Encoding == RoomEncoding.Json
                ? ProtocolJson.Connect(id, givenToken, options.Name)
                : ProtocolProtobuf.Connect(id, givenToken, options.Name));
        }

        private void TakeConnected(ServerMessage reply)
        {
            if (reply.Error != null || reply.Connect == null)
            {
                Ending error = reply.Error ?? new Ending { Reason = "a reply without a result" };
                Lose((int)error.Code, error.Reason, error.IsTemporary || error.Code < 100 || error.Code == TokenExpired);
                return;
            }
            State = ConnectionState.Connected;
            attempts = 0;
            pongs = reply.Connect.Pong;
            silenceMs = reply.Connect.PingSeconds == 0 ? double.PositiveInfinity : reply.Connect.PingSeconds * 1000.0 + PingMarginMs;
            deadlineMs = NowMs + silenceMs;
            if (Connected != null) Connected();
            foreach (Room room in new List<Room>(rooms.Values)) room.OnConnected();
        }

        private void Lose(int code, string reason, bool reconnects)
        {
            if (code >= 3500 && code < 4000 || code >= 4500 && code < 5000) reconnects = false;
            if (socket != null) socket.Close();
            socket = null;
            token = null;
            lastId = 0;
            waiting.Clear();
            State = reconnects ? ConnectionState.Connecting : ConnectionState.Disconnected;
            reconnectAtMs = reconnects ? NowMs + DelayMs(attempts) : (double?)null;
            attempts += 1;
            foreach (Room room in new List<Room>(rooms.Values)) room.OnLost(code, reason, reconnects);
            if (Disconnected != null) Disconnected(code, reason, reconnects);
        }

        /// <summary>A random, growing delay, so that clients do not come back all at once.</summary>
        internal double DelayMs(int attempt)
        {
            double most = Math.Min(options.ReconnectMaxMs, options.ReconnectMinMs * Math.Pow(2, Math.Min(attempt, 30)));
            return options.ReconnectMinMs + random.NextDouble() * Math.Max(0, most - options.ReconnectMinMs);
        }

        internal uint NextId(Action<ServerMessage> answer)
        {
            lastId += 1;
            waiting[lastId] = answer;
            return lastId;
        }

        internal void Write(byte[] frame)
        {
            if (socket != null) socket.Send(frame, Encoding == RoomEncoding.Json);
        }

        internal void Report(Exception error)
        {
            if (Failed != null) Failed(error);
        }
    }
}
