using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Linq;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

namespace Dunlin.Rooms.Tests
{
    /// <summary>Players of the treasure hunt on a real server.</summary>
    internal static class Play
    {
        /// <summary>
        /// By this tick of its room, the server has sent two pings and ended connections that did not answer the first
        /// (tests/clients/server.json).
        /// </summary>
        private const uint AnsweredTick = 1750;

        internal static void Run(Uri url, Func<ITestSocket> newSocket)
        {
            var plays = new List<Action>();
            foreach (RoomEncoding encoding in new[] { RoomEncoding.Json, RoomEncoding.Protobuf })
            {
                Func<RoomClientOptions> options = () => new RoomClientOptions { Encoding = encoding, NewSocket = () => newSocket() };
                plays.Add(() => Hunt(url, options));
                plays.Add(() => Match.Run(url, options));
            }
            Task.WaitAll(plays.Select(play => Task.Factory.StartNew(play, TaskCreationOptions.LongRunning)).ToArray());
        }

        private static void Hunt(Uri url, Func<RoomClientOptions> options)
        {
            string channel = "arena:" + Guid.NewGuid();
            var ada = new Player(url, options(), channel, new RoomOptions { Data = "{\"name\": \"Ada\"}", Typed = true });
            var bob = new Player(url, options(), channel, new RoomOptions { Publishes = true });
            var pictures = new SamePictures(ada.Room, bob.Room);
            var all = new[] { ada, bob };
            Until(all, "both see themselves", () => ada.Avatar != null && bob.Avatar != null);
            Welcome(ada, all);
            Walk(ada, bob, all);
            Refusal(url, options(), channel);
            Until(all, "pings were answered", () => all.All(player => player.Room.Replica.Tick > AnsweredTick));
            Check.True(ada.Lefts.Count == 0 && bob.Lefts.Count == 0, "nobody lost the connection");
            Back(ada, bob, all, "1006 True", () => ada.Socket.Cut());
            Back(ada, bob, all, "0 True", () => ada.Socket.CorruptsNext = true);
            Check.True(ada.Failures.Count == 1 && ada.Failures[0].Contains("malformed"), "the corruption: " + string.Join("; ", ada.Failures));
            SeenTick(ada);
            Closing(ada, bob, all);
            pictures.Check();
            Console.WriteLine("play, " + ada.Client.Encoding + ": passed, round trip " + ada.RoundTripMs.ToString("0") + " ms");
        }

        private static void SeenTick(Player ada)
        {
            double shownMs = ada.Room.Interpolation.Advance(ada.Room.Clock.ServerTimeMs(ada.NowMs));
            double agoMs = ada.Room.Replica.TimeUs / 1000.0 - shownMs;
            double expected = ada.Room.Replica.Tick - agoMs * ada.Room.Replica.Grid.TicksPerSecond / 1000;
            Check.True(Math.Abs(ada.Room.Replica.TickAt(shownMs) - expected) <= 0.5, "the tick that Ada sees");
        }

        /// <summary>
        /// A client that is disposed has left its room: without that, the player would stay for <c>seat_grace</c>, which is longer than the test waits. One that
        /// only disconnects keeps its seat. Nothing of a connection goes on afterwards.
        /// </summary>
        private static void Closing(Player ada, Player bob, Player[] all)
        {
            bob.Client.Disconnect();
            Check.True(bob.Client.State == ConnectionState.Disconnected && bob.Room.State == RoomState.Left, "disconnected");
            Until(all, "Bob's connection has ended", () => bob.Socket.Ended.IsCompleted);
            uint tick = ada.Room.Replica.Tick;
            Until(all, "a second", () => ada.Room.Replica.Tick > tick + 60);
            Check.True(ada.Room.Replica.Object(bob.LastAvatar) != null, "Bob's player waits for him");
            bob.Room.Join();
            bob.Client.Connect();
            Until(all, "Bob is back", () => bob.Avatar != null);
            Check.True(bob.Room.IsSeatResumed && bob.Room.Replica.Avatar == bob.LastAvatar, "the same player is back");
            bob.Client.Dispose();
            Until(all, "Bob is gone", () => ada.Room.Replica.Object(bob.LastAvatar) == null && bob.Socket.Ended.IsCompleted);
            ada.Client.Dispose();
            Until(all, "Ada's connection has ended", () => ada.Socket.Ended.IsCompleted);
        }

        private static void Welcome(Player ada, Player[] all)
        {
            Until(all, "a welcome", () => ada.Events.Any(one => one["welcome"] != null));
            JsonValue welcome = ada.Events.First(one => one["welcome"] != null)["welcome"];
            Check.Equal(welcome["name"].Text + " " + welcome["player"].Text, "Ada " + ada.Room.Replica.Avatar, "the welcome");
        }

        /// <summary>Ada walks; her prediction, the server, and Bob's replica agree.</summary>
        private static void Walk(Player ada, Player bob, Player[] all)
        {
            Grid grid = ada.Room.Replica.Grid;
            var prediction = new Prediction<HuntWalk, sbyte>(new HuntRules(grid.TicksPerSecond));
            ada.Room.Updated += changes => prediction.Reconcile(HuntWalk.Of(ada.Avatar), changes.Snapshot.Tick, changes.Snapshot.Ack);
            sbyte velocity = (sbyte)(ada.Avatar.X < grid.WidthUnits / 2 ? 100 : -100);
            long start = ada.Avatar.X;
            Until(all, "a state to predict from", () => prediction.IsSet);
            prediction.Input(ada.Send(velocity, 0), velocity);
            prediction.Advance(5);
            Check.True(prediction.AheadTicks >= 5 && prediction.Now.Velocity == velocity, "the input is predicted at once");
            Until(all, "Ada walks", () =>
                ada.Room.Replica.Ack == 1 && Math.Abs(ada.Avatar.X - start) > 150 && bob.Room.Replica.Object(ada.Room.Replica.Avatar) != null);
            Place shown;
            double shownMs = bob.Room.Interpolation.Advance(bob.Room.Clock.ServerTimeMs(bob.NowMs));
            Check.True(bob.Room.Interpolation.TryPlace(ada.Room.Replica.Avatar, shownMs, out shown), "Bob's client shows Ada");
            Check.True(Math.Abs(shown.X - start) <= Math.Abs(ada.Avatar.X - start) + 64, "between known positions: " + shown.X);
            prediction.Input(ada.Send(0, 0), 0);
            Until(all, "the stop is applied", () => ada.Room.Replica.Ack == 2);
            Check.True(prediction.Now.X == ada.Avatar.X && prediction.Now.Velocity == 0, "predicted " + prediction.Now.X + ", is " + ada.Avatar.X);
            FieldsOf(ada, bob);
            Until(all, "Bob sees Ada where she is", () =>
            {
                SeenObject seen = bob.Room.Replica.Object(ada.Room.Replica.Avatar);
                return seen != null && seen.X == ada.Avatar.X && seen.Y == ada.Avatar.Y;
            });
            bob.Send(0, 0);
            Until(all, "an input through publish", () => bob.Room.Replica.Ack == 1 && bob.Room.Inputs.Pending.Count == 0);
            Check.True(ada.Failures.Count == 0 && bob.Failures.Count == 0, string.Join("; ", ada.Failures.Concat(bob.Failures)));
        }

        /// <summary>Ada asked for fields, and Bob did not.</summary>
        private static void FieldsOf(Player ada, Player bob)
        {
            IReadOnlyDictionary<string, FieldValue> fields = ada.Room.Replica.Fields(ada.Avatar);
            byte[] state = ada.Avatar.State;
            Check.True(fields != null && bob.Room.Replica.Schema == null && bob.Room.Replica.Fields(ada.Avatar) == null, "only Ada has fields");
            Check.Equal(string.Join(" ", fields.OrderBy(pair => pair.Key).Select(pair => pair.Key + " " + pair.Value)),
                "activity " + state[3] + " colour " + state[0] + " vx " + (sbyte)state[1] + " vy " + (sbyte)state[2], "Ada's fields");
            long vx;
            double shown;
            Field field = ada.Room.Replica.Schema.Kind(ada.Avatar.Kind).Field("vx");
            Check.True(ada.Room.Replica.TryGetInteger(ada.Avatar, field, out vx) && vx == (sbyte)state[1], "Ada's velocity by its handle");
            double nowMs = ada.Room.Clock.ServerTimeMs(ada.NowMs) + 1000;
            Check.True(ada.Room.Interpolation.TryField(ada.Avatar.Id, field, nowMs, out shown) && shown == vx, "Ada's velocity as it is shown");
        }

        private static void Refusal(Uri url, RoomClientOptions options, string channel)
        {
            var carl = new Player(url, options, channel, new RoomOptions { Data = "{\"name\": 7}" });
            Until(new[] { carl }, "the refusal", () => carl.Lefts.Count > 0);
            Check.Equal(carl.Lefts[0], "400 False", "the game refuses the join");
            carl.Client.Disconnect();
        }

        /// <summary>The connection is lost, or a snapshot is bad: the client comes back by itself, with a new replica, and without a missed event.</summary>
        private static void Back(Player ada, Player bob, Player[] all, string left, Action fault)
        {
            uint avatar = ada.Room.Replica.Avatar;
            ada.Lefts.Clear();
            ada.Joins.Clear();
            fault();
            Until(all, "the fault is noticed", () => ada.Lefts.Count > 0);
            Check.Equal(ada.Lefts[0], left, "the client joins again");
            Check.True(ada.Room.State == RoomState.Joining && ada.Room.Replica.Count == 0, "the replica is empty");
            Until(all, "Ada is back", () => ada.Avatar != null);
            Check.True(ada.Room.Replica.Avatar == avatar && ada.Room.IsSeatResumed, "the same player is back");
            Check.Equal(string.Join(" ", ada.Joins), "True", "no event was missed");
            Check.True(ada.Send(0, 0) == 1, "inputs are numbered from 1 again");
            Until(all, "the input is applied", () => ada.Room.Replica.Ack == 1);
            Until(all, "Bob sees her", () => bob.Room.Replica.Object(ada.Room.Replica.Avatar) != null);
        }

        private static void Until(Player[] players, string what, Func<bool> condition)
        {
            Until(players.Select(player => player.Client), what, condition);
        }

        internal static void Until(IEnumerable<RoomClient> clients, string what, Func<bool> condition)
        {
            Stopwatch watch = Stopwatch.StartNew();
            while (true)
            {
                foreach (RoomClient client in clients) client.Poll();
                if (condition()) return;
                Check.True(watch.Elapsed.TotalSeconds < 180, "not within 180 s: " + what);
                Thread.Sleep(1); // a frame of a game
            }
        }
    }

    internal sealed class Player
    {
        private readonly Stopwatch watch = Stopwatch.StartNew();

        internal Player(Uri url, RoomClientOptions options, string channel, RoomOptions roomOptions)
        {
            Func<IRoomSocket> newSocket = options.NewSocket;
            options.ReconnectMinMs = 20;
            options.ReconnectMaxMs = 200;
            options.NowMs = () => NowMs;
            options.NewSocket = () => Socket = new CorruptingSocket((ITestSocket)newSocket());
            Client = new RoomClient(url, options);
            Room = Client.Room(channel, roomOptions);
            Room.Updated += changes =>
            {
                LastAvatar = Room.Replica.Avatar;
                RoundTripMs = Room.RoundTripMs ?? RoundTripMs;
            };
            Room.EventReceived += (tick, document) => Events.Add(document);
            Room.Joined += Joins.Add;
            Room.Left += (code, reason, rejoins) => Lefts.Add(code + " " + rejoins);
            Room.Failed += error => Failures.Add(error.Message);
            Client.Failed += error => Failures.Add(error.Message);
            Room.Join();
            Client.Connect();
        }

        internal RoomClient Client { get; }
        internal Room Room { get; }
        internal CorruptingSocket Socket { get; private set; }
        internal uint LastAvatar { get; private set; }
        internal double RoundTripMs { get; private set; }
        internal double NowMs { get { return watch.Elapsed.TotalMilliseconds; } }
        internal List<JsonValue> Events { get; } = new List<JsonValue>();
        internal List<bool> Joins { get; } = new List<bool>();
        internal List<string> Lefts { get; } = new List<string>();
        internal List<string> Failures { get; } = new List<string>();
        internal SeenObject Avatar { get { return Room.Replica.Object(Room.Replica.Avatar); } }

        internal uint Send(sbyte dx, sbyte dy)
        {
            return Room.Send(new[] { (byte)0, unchecked((byte)dx), unchecked((byte)dy) });
        }
    }

    /// <summary>Where a player of the hunt is, in one dimension, and how fast.</summary>
    internal struct HuntWalk
    {
        internal long X;
        internal sbyte Velocity;

        internal static HuntWalk Of(SeenObject avatar)
        {
            return new HuntWalk { X = avatar.X, Velocity = unchecked((sbyte)avatar.State[1]) };
        }
    }

    /// <summary>The movement of docs/rooms.md, away from the edges of the map.</summary>
    internal sealed class HuntRules : IRules<HuntWalk, sbyte>
    {
        private readonly uint ticksPerSecond;

        internal HuntRules(uint ticksPerSecond)
        {
            this.ticksPerSecond = ticksPerSecond;
        }

        public HuntWalk Apply(HuntWalk state, sbyte velocity)
        {
            return new HuntWalk { X = state.X, Velocity = velocity };
        }

        public HuntWalk Step(HuntWalk state, uint tick)
        {
            long x = state.X + Way(state.Velocity, tick) - Way(state.Velocity, tick - 1);
            return new HuntWalk { X = x, Velocity = state.Velocity };
        }

        private long Way(sbyte velocity, uint tick)
        {
            return (long)Math.Floor(velocity * 640m * tick / (127 * ticksPerSecond));
        }
    }
}
