using System;
using System.Text;
using System.Threading.Tasks;

namespace Dunlin.Rooms
{
    public enum RoomState
    {
        Left,
        /// <summary>On the way, also after a lost connection.</summary>
        Joining,
        Joined,
    }

    public sealed class RoomOptions
    {
        /// <summary>Data for the game, a JSON document, sent with each join.</summary>
        public string Data;
        /// <summary>The <see cref="Room.SeatToken"/> of an earlier run, to come back to its player.</summary>
        public string SeatToken;
        /// <summary>Gets a subscription token for the channel before each join, where the namespace requires one.</summary>
        public Func<string, Task<string>> GetToken;
        /// <summary>Send inputs with <c>publish</c>: a refused input is then reported. Otherwise with <c>send</c>, which has no reply.</summary>
        public bool Publishes;
        public InterpolationOptions Interpolation;
        public int ObjectsMax = Replica.ObjectsMaxDefault;
        public long StateBytesMax = Replica.StateBytesMaxDefault;
    }

    /// <summary>A room from one player's view.</summary>
    public sealed class Room
    {
        /// <summary>The number of consecutive invalid snapshots after which the client stops joining again.</summary>
        private const int BadSnapshotsMax = 3;
        private const uint ResubscribeFrom = 2500;
        private const uint TokenExpired = 109;
        private const double RoundTripWeight = 0.2;

        private readonly RoomClient client;
        private readonly RoomOptions options;
        private Task<string> token;
        private double? retryAtMs;
        private int attempts;
        private int badSnapshots;
        private int joins;
        private string epoch;
        private ulong offset;

        internal Room(RoomClient client, string channel, RoomOptions options)
        {
            this.client = client;
            this.options = options;
            Channel = channel;
            SeatToken = options.SeatToken;
            Replica = new Replica(options.ObjectsMax, options.StateBytesMax);
            Interpolation = new Interpolation(options.Interpolation);
        }

        /// <summary>What a snapshot changed. The first one after a join is full.</summary>
        public event Action<Changes> Updated;
        /// <summary>A reliable event of the room: the tick in which it happened, and the game's document.</summary>
        public event Action<uint, JsonValue> EventReceived;
        /// <summary>The player has joined; a snapshot follows. False after a rejoin if events may have been missed.</summary>
        public event Action<bool> Joined;
        /// <summary>The player has left: code, reason, and whether the client joins again by itself.</summary>
        public event Action<int, string, bool> Left;
        /// <summary>Invalid data was ignored, or an input was refused.</summary>
        public event Action<Exception> Failed;

        public string Channel { get; }
        public RoomState State { get; private set; }
        /// <summary>Brings the next join back to the same player; null if the room gave none. Each join gives a new one. It is a secret.</summary>
        public string SeatToken { get; private set; }
        public Replica Replica { get; }
        public Clock Clock { get; } = new Clock();
        public Interpolation Interpolation { get; }
        public Inputs Inputs { get; } = new Inputs();
        /// <summary>Whether the last join came back to the player of the join before.</summary>
        public bool IsSeatResumed { get; private set; }
        /// <summary>From sending an input until a snapshot acknowledged it, smoothed; null before the first.</summary>
        public double? RoundTripMs { get; private set; }

        /// <summary>The server's current tick as a fraction: the tick of a snapshot without any latency.</summary>
        public double TickNow
        {
            get
            {
                if (Replica.Grid == null) return 0;
                double passedMs = Clock.ServerTimeMs(client.NowMs) - Replica.TimeUs / 1000.0;
                return Replica.Tick + passedMs * Replica.Grid.TicksPerSecond / 1000;
            }
        }

        /// <summary>Joins, and joins again whenever the connection comes back, until <see cref="Leave"/>.</summary>
        public void Join()
        {
            if (State != RoomState.Left) return;
            State = RoomState.Joining;
            attempts = badSnapshots = 0;
            if (client.State == ConnectionState.Connected) Begin();
        }

        public void Leave()
        {
            if (State == RoomState.Left) return;
            SendUnsubscribe();
            epoch = null;
            offset = 0;
            End(0, "left", false);
        }

        /// <summary>Sends an input, in the game's own format, and returns its number.</summary>
        /// <exception cref="RoomException">when the room is not joined.</exception>
        public uint Send(byte[] data)
        {
            if (State != RoomState.Joined) throw new RoomException(RoomErrorKind.NotJoined, "an input for " + Channel + ", which is not joined");
            uint number = Inputs.Add(data, client.NowMs).Number;
            bool isJson = client.Encoding == RoomEncoding.Json;
            if (!options.Publishes)
            {
                client.Write(isJson
                    ? ProtocolJson.Send(Inputs.ToJson(number, data, Channel))
                    : ProtocolProtobuf.Send(Inputs.ToProtobuf(number, data, Channel)));
                return number;
            }
            uint id = client.NextId(reply =>
            {
                if (reply.Error != null) Report(new InvalidOperationException("input " + number + ": " + reply.Error.Reason + " (" + reply.Error.Code + ")"));
            });
            client.Write(isJson
                ? ProtocolJson.Publish(id, Channel, Inputs.ToJson(number, data))
                : ProtocolProtobuf.Publish(id, Channel, Inputs.ToProtobuf(number, data)));
            return number;
        }

        internal void Poll(double nowMs)
        {
            if (retryAtMs != null && nowMs >= retryAtMs && client.State == ConnectionState.Connected) Begin();
            if (token != null && token.IsCompleted) TakeToken();
        }

        internal void OnConnected()
        {
            attempts = 0;
            if (State == RoomState.Joining) Begin();
        }

        internal void OnLost(int code, string reason, bool reconnects)
        {
            if (State != RoomState.Left) End(code, reason, reconnects);
        }

        internal void Take(ServerMessage push)
        {
            if (push.Unsubscribe != null && State != RoomState.Left)
            {
                bool rejoins = push.Unsubscribe.Code >= ResubscribeFrom;
                End((int)push.Unsubscribe.Code, push.Unsubscribe.Reason, rejoins);
                if (rejoins) Retry();
            }
            else if (push.Publication != null && State == RoomState.Joined) Take(push.Publication);
        }

        private void Begin()
        {
            retryAtMs = null;
            if (options.GetToken == null) Subscribe(null);
            else token = RoomClient.Started(() => options.GetToken(Channel));
        }

        private void TakeToken()
        {
            Task<string> done = token;
            token = null;
            if (done.Status == TaskStatus.RanToCompletion)
            {
                Subscribe(done.Result);
                return;
            }
            Report(done.Exception == null ? new OperationCanceledException() : done.Exception.InnerException);
            Retry();
        }

        private void Subscribe(string given)
        {
            joins += 1;
            int join = joins;
            uint id = client.NextId(reply =>
            {
                if (join == joins && State == RoomState.Joining) TakeJoined(reply);
            });
            string data = JoinData();
            client.Write(client.Encoding == RoomEncoding.Json
                ? ProtocolJson.Subscribe(id, Channel, given, data, epoch, offset)
                : ProtocolProtobuf.Subscribe(id, Channel, given, data, epoch, offset));
        }

        private void TakeJoined(ServerMessage reply)
        {
            Ending error = reply.Error ?? (reply.Subscribe == null ? new Ending { Reason = "a reply without a result" } : null);
            if (error != null)
            {
                bool rejoins = error.IsTemporary || error.Code < 100 || error.Code == TokenExpired && options.GetToken != null;
                if (rejoins) Retry();
                else End((int)error.Code, error.Reason, false);
                return;
            }
            State = RoomState.Joined;
            attempts = 0;
            bool isWhole = epoch == null || reply.Subscribe.Recovered;
            JsonValue seat = reply.Subscribe.Data == null ? null : reply.Subscribe.Data["seat_token"];
            if (seat != null && seat.Kind == JsonKind.Text) SeatToken = seat.Text;
            JsonValue resumed = reply.Subscribe.Data == null ? null : reply.Subscribe.Data["seat_resumed"];
            IsSeatResumed = resumed != null && resumed.IsTrue;
            epoch = reply.Subscribe.Epoch;
            if (Joined != null) Joined(isWhole);
            int join = joins;
            foreach (Publication publication in reply.Subscribe.Publications)
            {
                if (join == joins && State == RoomState.Joined) Take(publication);
            }
            // Events for others have offsets as well: the last one that was recovered may be before this.
            if (join == joins) offset = reply.Subscribe.Offset;
        }

        /// <summary>The game's data, with the token that brings the player back to its seat.</summary>
        private string JoinData()
        {
            if (SeatToken == null) return options.Data;
            string member = "\"seat_token\":" + JsonValue.Quote(SeatToken);
            if (options.Data == null) return "{" + member + "}";
            JsonValue data = JsonValue.Parse(options.Data);
            // Data that is no object has no place for a token.
            if (data.Kind != JsonKind.Object) return options.Data;
            string comma = data.Members.Count == 0 ? "" : ",";
            return "{" + member + comma + options.Data.Substring(options.Data.IndexOf('{') + 1);
        }

        private void Take(Publication publication)
        {
            Changes changes = null;
            JsonValue document = null;
            uint tick = 0;
            try
            {
                if (publication.Offset == 0) changes = TakeSnapshot(publication);
                else document = TakeEvent(publication, out tick);
            }
            catch (RoomException error)
            {
                Report(error);
                if (publication.Offset == 0) Rejoin(error);
                return;
            }
            if (changes != null && Updated != null) Updated(changes);
            if (document != null && EventReceived != null) EventReceived(tick, document);
        }

        private Changes TakeSnapshot(Publication publication)
        {
            double nowMs = client.NowMs;
            bool isJson = client.Encoding == RoomEncoding.Json;
            if (isJson && publication.Json == null) throw RoomException.Malformed("a publication without data");
            Snapshot snapshot = isJson ? Snapshot.FromJson(publication.Json) : Snapshot.FromProtobuf(publication.Bytes);
            Changes changes = Replica.Apply(snapshot);
            badSnapshots = 0;
            Clock.Observe(snapshot.TimeUs, nowMs);
            PendingInput? acknowledged = Inputs.Acknowledge(snapshot.Ack);
            if (acknowledged != null)
            {
                double tookMs = nowMs - acknowledged.Value.SentMs;
                RoundTripMs = RoundTripMs == null ? tookMs : RoundTripMs + (tookMs - RoundTripMs) * RoundTripWeight;
            }
            Interpolation.Observe(changes, Replica.Grid, Clock.ServerTimeMs(nowMs));
            return changes;
        }

        private JsonValue TakeEvent(Publication publication, out uint tickOfEvent)
        {
            offset = publication.Offset;
            JsonValue document = publication.Json ?? JsonValue.Parse(Encoding.UTF8.GetString(publication.Bytes));
            JsonValue tick = document["tick"];
            ulong number = 0;
            bool isEvent = tick != null && tick.TryWhole(uint.MaxValue, out number) && document.Members.ContainsKey("event");
            if (!isEvent) throw RoomException.Malformed("an event lacks its tick");
            tickOfEvent = (uint)number;
            return document.Members["event"];
        }

        /// <summary>After an invalid snapshot, later ones cannot be applied. Only a new join brings a full snapshot.</summary>
        private void Rejoin(RoomException cause)
        {
            badSnapshots += 1;
            bool rejoins = badSnapshots < BadSnapshotsMax;
            SendUnsubscribe();
            End(0, cause.Message, rejoins);
            if (rejoins && State == RoomState.Joining) Begin();
        }

        private void SendUnsubscribe()
        {
            if (client.State != ConnectionState.Connected) return;
            uint id = client.NextId(reply => { });
            client.Write(client.Encoding == RoomEncoding.Json ? ProtocolJson.Unsubscribe(id, Channel) : ProtocolProtobuf.Unsubscribe(id, Channel));
        }

        private void Retry()
        {
            retryAtMs = client.NowMs + client.DelayMs(attempts);
            attempts += 1;
        }

        private void End(int code, string reason, bool rejoins)
        {
            State = rejoins ? RoomState.Joining : RoomState.Left;
            joins += 1;
            token = null;
            retryAtMs = null;
            RoundTripMs = null;
            Replica.Clear();
            Clock.Clear();
            Interpolation.Clear();
            Inputs.Clear();
            if (Left != null) Left(code, reason, rejoins);
        }

        private void Report(Exception error)
        {
            if (Failed != null) Failed(error);
        }
    }
}
