using System;
using System.Collections.Generic;
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
        /// <summary>
        /// Asks for the fields of states: <see cref="Replica.Fields"/> then has their values, and in Protobuf the room sends only those that have changed.
        /// <see cref="Data"/> must be a JSON object, if there is any.
        /// </summary>
        public bool Typed;
        public InterpolationOptions Interpolation;
        public int ObjectsMax = Replica.ObjectsMaxDefault;
        public long StateBytesMax = Replica.StateBytesMaxDefault;
    }

    /// <summary>A room from one player's view.</summary>
    public sealed class Room : ILinked
    {
        /// <summary>
        /// The number of consecutive invalid snapshots after which the client stops joining again. Good ones count from some time after the join:
        /// the first one is often good.
        /// </summary>
        private const int BadSnapshotsMax = 3;
        private const double GoodAfterMs = 5000;
        private const double RoundTripWeight = 0.2;

        private readonly RoomClient client;
        private readonly RoomOptions options;
        private readonly ChannelLink link;
        private readonly JsonValue data;
        private int badSnapshots;
        private double joinedAtMs;

        internal Room(RoomClient client, string channel, RoomOptions options)
        {
            this.client = client;
            this.options = options;
            Channel = channel;
            SeatToken = options.SeatToken;
            // Malformed data is refused here: the server would end the connection.
            if (options.Data != null) data = JsonValue.Parse(options.Data);
            Replica = new Replica(options.ObjectsMax, options.StateBytesMax);
            Interpolation = new Interpolation(options.Interpolation);
            link = new ChannelLink(client, channel, options.GetToken, this);
        }

        /// <summary>What a snapshot changed. The first one after a join is full.</summary>
        public event Action<Changes> Updated;
        /// <summary>
        /// The room has moved to another node of its cluster while the player stayed in it: <see cref="Updated"/> follows. Events shortly before may be
        /// missing.
        /// </summary>
        public event Action Moved;
        /// <summary>A reliable event of the room: the tick in which it happened, and the game's document.</summary>
        public event Action<uint, JsonValue> EventReceived;
        /// <summary>The player has joined; a snapshot follows. False after a rejoin if events may have been missed.</summary>
        public event Action<bool> Joined;
        /// <summary>The player has left: code, reason, and whether the client joins again by itself.</summary>
        public event Action<int, string, bool> Left;
        /// <summary>Invalid data was ignored, a token could not be had, or an input was refused.</summary>
        public event Action<Exception> Failed;

        public string Channel { get; }
        internal ChannelLink Link { get { return link; } }
        public RoomState State
        {
            get { return link.State == LinkState.Open ? RoomState.Joined : link.State == LinkState.Opening ? RoomState.Joining : RoomState.Left; }
        }

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
                return Replica.Tick + passedMs * Replica.TicksPerSecond / 1000;
            }
        }

        /// <summary>Joins, and joins again whenever the connection comes back, until <see cref="Leave"/>.</summary>
        public void Join()
        {
            if (State != RoomState.Left) return;
            badSnapshots = 0;
            link.Open();
        }

        /// <summary>Leaves. The player is gone at once; only a lost connection keeps its seat.</summary>
        public void Leave()
        {
            link.Close("left");
        }

        /// <summary>Sends an input, in the game's own format, and returns its number.</summary>
        /// <exception cref="RoomException">when the room is not joined.</exception>
        public uint Send(byte[] data)
        {
            if (State != RoomState.Joined) throw new RoomException(RoomErrorKind.NotJoined, "an input for " + Channel + ", which is not joined");
            uint number = Inputs.Add(data, client.NowMs).Number;
            if (!options.Publishes)
            {
                client.Write(client.Protocol.SendInput(Channel, number, data));
                return number;
            }
            client.Ask(id => client.Protocol.PublishInput(id, Channel, number, data), reply =>
            {
                if (reply != null && reply.Error != null) Report(RoomException.Refused("input " + number, reply.Error));
            });
            return number;
        }

        string ILinked.Data { get { return JoinData(); } }

        void ILinked.OnOpen(SubscribeReply reply, bool isWhole)
        {
            joinedAtMs = client.NowMs;
            JsonValue seat = reply.Data == null ? null : reply.Data["seat_token"];
            if (seat != null && seat.Kind == JsonKind.Text) SeatToken = seat.Text;
            JsonValue resumed = reply.Data == null ? null : reply.Data["seat_resumed"];
            IsSeatResumed = resumed != null && resumed.IsTrue;
            if (Joined != null) Joined(isWhole);
        }

        void ILinked.OnPublication(Publication publication)
        {
            Take(publication);
        }

        void ILinked.OnClosed(int code, string reason, bool opensAgain)
        {
            RoundTripMs = null;
            Replica.Clear();
            Clock.Clear();
            Interpolation.Clear();
            Inputs.Clear();
            if (Left != null) Left(code, reason, opensAgain);
        }

        void ILinked.OnFailure(Exception error)
        {
            Report(error);
        }

        /// <summary>
        /// The game's data, with the token that brings the player back to its seat, and the form of snapshots. The newest token counts, so one in
        /// the data gives way to it.
        /// </summary>
        private string JoinData()
        {
            // Data that is no object has no place for them.
            bool hasPlace = data == null || data.Kind == JsonKind.Null || data.Kind == JsonKind.Object;
            if (hasPlace && (SeatToken != null || options.Typed)) return WithMembers();
            return data == null ? null : data.ToString();
        }

        private string WithMembers()
        {
            var members = new Dictionary<string, string>();
            if (SeatToken != null) members.Add("seat_token", JsonValue.Quote(SeatToken));
            if (options.Typed) members.Add("snapshots", "\"typed\"");
            if (data != null && data.Kind == JsonKind.Object)
            {
                foreach (KeyValuePair<string, JsonValue> member in data.Members)
                {
                    if (!members.ContainsKey(member.Key)) members.Add(member.Key, member.Value.ToString());
                }
            }
            var text = new StringBuilder();
            foreach (KeyValuePair<string, string> member in members)
            {
                text.Append(text.Length == 0 ? '{' : ',').Append(JsonValue.Quote(member.Key)).Append(':').Append(member.Value);
            }
            return text.Append('}').ToString();
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
            if (changes != null && Replica.HasMoved && Moved != null) Moved();
            // A listener may have left the room.
            if (changes != null && Updated != null && State == RoomState.Joined) Updated(changes);
            if (document != null && EventReceived != null) EventReceived(tick, document);
        }

        private Changes TakeSnapshot(Publication publication)
        {
            double nowMs = client.NowMs;
            bool isJson = client.Encoding == RoomEncoding.Json;
            if (isJson && publication.Json == null) throw RoomException.Malformed("a publication without data");
            Snapshot snapshot = isJson ? Snapshot.FromJson(publication.Json) : Snapshot.FromProtobuf(publication.Protobuf);
            Changes changes = Replica.Apply(snapshot);
            if (nowMs - joinedAtMs >= GoodAfterMs) badSnapshots = 0;
            link.BeginDelaysAgain();
            // The room's new node has a clock of its own. One that is behind would show objects too late for seconds.
            if (snapshot.HasMoved)
            {
                Clock.Clear();
                Interpolation.ForgetSamples();
            }
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
            JsonValue document = publication.Document();
            JsonValue tick = document["tick"];
            ulong number = 0;
            bool isEvent = tick != null && tick.TryWhole(uint.MaxValue, out number) && document.Members.ContainsKey("event");
            if (!isEvent) throw RoomException.Malformed("an event lacks its tick");
            tickOfEvent = (uint)number;
            return document.Members["event"];
        }

        /// <summary>
        /// After an invalid snapshot, later ones cannot be applied. Only another join brings a full snapshot. To unsubscribe would give up the
        /// seat, so the client connects again, as after a lost connection.
        /// </summary>
        private void Rejoin(RoomException cause)
        {
            if (State != RoomState.Joined) return;
            badSnapshots += 1;
            if (badSnapshots < BadSnapshotsMax) client.ConnectAgain(cause.Message);
            else link.Close(cause.Message);
        }

        private void Report(Exception error)
        {
            if (Failed != null) Failed(error);
        }
    }
}
