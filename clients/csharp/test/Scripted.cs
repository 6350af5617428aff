using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Text;
using System.Threading.Tasks;

namespace Dunlin.Rooms.Tests
{
    /// <summary>A client against a scripted server, on a scripted clock.</summary>
    internal sealed partial class Scripted
    {
        private const string FirstSnapshot = "{\"tick\":7,\"time_us\":1000000,\"view\":0,\"cells\":[],"
            + "\"grid\":{\"columns\":2,\"rows\":2,\"cell_units\":100,\"far_interval_ticks\":1,\"ticks_per_second\":60}}";

        private readonly List<ScriptedSocket> sockets = new List<ScriptedSocket>();
        private readonly List<string> seen = new List<string>();
        private readonly RoomClient client;
        private readonly Room room;
        private double nowMs = 1000;

        private Scripted(RoomClientOptions options, RoomOptions roomOptions)
        {
            options.Encoding = RoomEncoding.Json;
            options.NowMs = () => nowMs;
            options.NewSocket = () =>
            {
                sockets.Add(new ScriptedSocket());
                return Socket;
            };
            client = new RoomClient(new Uri("ws://localhost/"), options);
            room = client.Room("r:1", roomOptions);
            room.Joined += isWhole => seen.Add("joined " + isWhole);
            room.Left += (code, reason, rejoins) => seen.Add("left " + code + " " + rejoins);
            room.EventReceived += (tick, document) => seen.Add("event " + tick + " " + document.Text);
            room.Failed += error => seen.Add("failed");
            client.Failed += error => seen.Add("failed " + error.Message);
            client.Disconnected += (code, reason, reconnects) => seen.Add("disconnected " + code + " " + reconnects);
            room.Join();
            client.Connect();
        }

        private ScriptedSocket Socket { get { return sockets[sockets.Count - 1]; } }

        internal static void Run()
        {
            var tests = new Dictionary<string, Action>
            {
                { "a seat token is returned, and missed events are asked for", SeatAndRecovery },
                { "a seat token of an earlier run is returned", SeatOfEarlierRun },
                { "fields are asked for in each join", TypedJoin },
                { "bad snapshots lead to another join, and then to none", BadSnapshots },
                { "a token that cannot be had is asked for again", Tokens },
                { "close codes and errors decide whether the client comes back", Endings },
                { "pings are answered, and silence ends a connection", Silence },
                { "a closed room is left, a failed one joined again", RoomEndings },
                { "a replica holds as much as it may, and no more", Limits },
                { "random bytes are refused with a RoomException", RandomBytes },
                { "the tick that a player sees", SeenTick },
                { "a room that has moved has another clock", MovedRoom },
                { "a number of any size is a double", LargeNumbers },
                { "calls are answered, refused, lost, and late", Calls },
                { "a subscription to a plain channel", PlainChannel },
                { "a subscription without a reply leads to another connection", NoReply },
                { "the token of a connection is replaced when it expires", RefreshOfConnection },
                { "the token of a subscription is replaced when it expires", RefreshOfSubscription },
                { "a client that is disposed leaves its rooms", Disposal },
                { "a document with line breaks is one line", LineBreaks },
                { "a room that is joined when the client connects is joined once", JoinOnConnected },
                { "a room that was removed cannot be joined", Removal },
                { "a disconnect by the answer to a late call is final", DisconnectOnTimeout },
                { "a disconnect by a listener to a loss is final", DisconnectWhileLost },
                { "a socket that cannot be made is made again", NoSocket },
                { "clients come back at different times", Delays },
                { "a server that sends without end does not stop the game", EndlessMessages },
                { "a room that has ended is joined without a recovery", JoinAfterTheEnd },
                { "the end of an earlier stay does not end the next one", EndOfAnEarlierStay },
                { "delays between connections grow until there is a snapshot", GrowingDelays },
                { "delays between joins grow until there is a snapshot", GrowingRejoins },
                { "objects are followed as long as there is room for their samples", SampleLimit },
            };
            foreach (KeyValuePair<string, Action> test in tests)
            {
                try
                {
                    test.Value();
                }
                catch (CheckException error)
                {
                    throw new CheckException(test.Key + ": " + error.Message);
                }
            }
            Console.WriteLine("scripted: " + tests.Count + " passed, 0 failed");
        }

        private void Say(string message)
        {
            Socket.Received.Add(new SocketMessage { Kind = SocketMessageKind.Data, Data = Encoding.UTF8.GetBytes(message) });
            client.Poll();
        }

        private void Publish(string data, int offset = 0)
        {
            string member = offset == 0 ? "" : ",\"offset\":" + offset;
            Say("{\"push\":{\"channel\":\"r:1\",\"pub\":{\"data\":" + data + member + "}}}");
        }

        private void Pass(double ms)
        {
            nowMs += ms;
            client.Poll();
        }

        /// <summary>The socket opens, and the server accepts the client.</summary>
        private void Accept(int ping = 25)
        {
            client.Poll();
            Socket.Received.Add(new SocketMessage { Kind = SocketMessageKind.Opened });
            client.Poll();
            Say("{\"id\":1,\"connect\":{\"client\":\"c\",\"ping\":" + ping + ",\"pong\":true}}");
        }

        private void Close(int code)
        {
            Socket.Received.Add(new SocketMessage { Kind = SocketMessageKind.Closed, Code = code, Reason = "" });
            client.Poll();
        }

        /// <summary>What the client sent, and what it reported, since the last call.</summary>
        private void Expect(string sent, string reported, string what)
        {
            Check.Equal(string.Join("\n", Socket.Sent), sent, what + ": sent");
            Check.Equal(string.Join(", ", seen), reported, what + ": reported");
            Socket.Sent.Clear();
            seen.Clear();
        }

        private const string Connecting = "{\"id\":1,\"connect\":{\"name\":\"csharp\"}}\n";

        private static void SeatAndRecovery()
        {
            var it = new Scripted(new RoomClientOptions(), new RoomOptions { Data = " {\"name\":\"A\"}" });
            it.Accept();
            it.Expect(Connecting + "{\"id\":2,\"subscribe\":{\"channel\":\"r:1\",\"data\":{\"name\":\"A\"}}}", "", "the join");
            it.Say("{\"id\":2,\"subscribe\":{\"recoverable\":true,\"epoch\":\"e\",\"offset\":4,\"data\":{\"seat_token\":\"ab\",\"seat_resumed\":false}}}");
            Check.True(!it.room.IsSeatResumed, "a new player");
            it.Publish(FirstSnapshot);
            it.Publish("{\"tick\":8,\"event\":\"x\"}", 5);
            it.Expect("", "joined True, event 8 x", "the stay");
            Check.True(it.room.Send(new byte[] { 0, 1, 2 }) == 1 && it.room.Replica.Tick == 7, "an input");
            it.Expect("{\"send\":{\"data\":{\"number\":1,\"data\":\"AAEC\",\"room\":\"r:1\"}}}", "", "an input");
            it.Close(1006);
            it.Expect("", "left 1006 True, disconnected 1006 True", "the loss");
            it.Pass(1000);
            it.Accept();
            it.Expect(
                Connecting + "{\"id\":2,\"subscribe\":{\"channel\":\"r:1\",\"data\":{\"seat_token\":\"ab\",\"name\":\"A\"},\"recover\":true,\"epoch\":\"e\",\"offset\":5}}",
                "", "the return");
            it.Say("{\"id\":2,\"subscribe\":{\"recoverable\":true,\"epoch\":\"e\",\"offset\":5,\"recovered\":true,\"data\":{\"seat_token\":\"cd\",\"seat_resumed\":true},\"publications\":["
                + "{\"data\":{\"tick\":9,\"event\":\"y\"},\"offset\":7},{\"data\":{\"tick\":9,\"event\":\"z\"},\"offset\":8}]}}");
            it.Expect("", "joined True, event 9 y, event 9 z", "the recovery");
            Check.True(it.room.IsSeatResumed && it.room.SeatToken == "cd", "the same player");
            it.Close(1006);
            it.Pass(1500);
            it.Accept();
            Check.True(it.Socket.Sent.Last().EndsWith("\"offset\":8}}"), "nothing is asked for twice: " + it.Socket.Sent.Last());
            it.Say("{\"id\":2,\"subscribe\":{\"epoch\":\"f\",\"offset\":2}}");
            Check.Equal(it.seen.Last(), "joined False", "another epoch: events may be missed");
        }

        private static void SeatOfEarlierRun()
        {
            foreach (string data in new[] { null, "{}", "null", "{\"a\":1}", "{\"a\":1,\"seat_token\":\"old\"}", "{\"seat\\u005ftoken\":\"old\",\n \"a\":1}", "[1]" })
            {
                var it = new Scripted(new RoomClientOptions(), new RoomOptions { Data = data, SeatToken = "x" });
                it.Accept();
                string sent = data == null || data == "{}" || data == "null" ? "{\"seat_token\":\"x\"}" : data == "[1]" ? data : "{\"seat_token\":\"x\",\"a\":1}";
                it.Expect(Connecting + "{\"id\":2,\"subscribe\":{\"channel\":\"r:1\",\"data\":" + sent + "}}", "", "the join");
                Check.True(it.room.SeatToken == "x", "the token is kept until the room gives another");
            }
        }

        private static void TypedJoin()
        {
            var joins = new Dictionary<string, string>
            {
                { "", "{\"snapshots\":\"typed\"}" }, { "null", "{\"snapshots\":\"typed\"}" }, { "{\"a\":1}", "{\"snapshots\":\"typed\",\"a\":1}" },
                { "{\"snapshots\":\"other\"}", "{\"snapshots\":\"typed\"}" }, { "[1]", "[1]" },
            };
            foreach (KeyValuePair<string, string> join in joins)
            {
                var it = new Scripted(new RoomClientOptions(), new RoomOptions { Data = join.Key == "" ? null : join.Key, Typed = true });
                it.Accept();
                Check.True(it.Socket.Sent.Last().Contains("\"data\":" + join.Value + "}"), it.Socket.Sent.Last());
            }
            var back = new Scripted(new RoomClientOptions(), new RoomOptions { Data = "{\"a\":1}", SeatToken = "x", Typed = true });
            back.Accept();
            Check.True(back.Socket.Sent.Last().Contains("\"data\":{\"seat_token\":\"x\",\"snapshots\":\"typed\",\"a\":1}}"), back.Socket.Sent.Last());
        }

        /// <summary>To unsubscribe would give up the seat, so the client connects again, up to the last time.</summary>
        private static void BadSnapshots()
        {
            var it = new Scripted(new RoomClientOptions(), new RoomOptions());
            it.Accept();
            it.Expect(Connecting + "{\"id\":2,\"subscribe\":{\"channel\":\"r:1\"}}", "", "the join");
            for (int round = 1; round <= 3; round += 1)
            {
                it.Say("{\"id\":2,\"subscribe\":{\"recoverable\":true,\"epoch\":\"e\",\"offset\":4,\"recovered\":true,\"data\":{\"seat_token\":\"s" + round + "\"}}}");
                ScriptedSocket bad = it.Socket;
                // A good one after the join does not show that the room is well.
                it.Publish(FirstSnapshot);
                it.Publish("{\"tick\":0}");
                Check.True(it.room.Replica.Count == 0 && it.room.State == (round < 3 ? RoomState.Joining : RoomState.Left), "after bad snapshot " + round);
                if (round == 3) break;
                it.Expect("", "joined True, failed, left 0 True, disconnected 0 True", "bad snapshot " + round);
                Check.True(bad.IsClosed, "the connection is dropped");
                it.Pass(1500);
                it.Accept();
                it.Expect(
                    Connecting + "{\"id\":2,\"subscribe\":{\"channel\":\"r:1\",\"data\":{\"seat_token\":\"s" + round + "\"},\"recover\":true,\"epoch\":\"e\",\"offset\":4}}",
                    "", "the seat is asked for");
            }
            it.Expect("{\"id\":3,\"unsubscribe\":{\"channel\":\"r:1\"}}", "joined True, failed, left 0 False", "the last bad snapshot");
            it.Pass(1);
            it.Expect("", "", "no further join");
        }

        private static void Tokens()
        {
            int asked = 0;
            var options = new RoomClientOptions
            {
                GetToken = () => ++asked == 1 ? Task.FromException<string>(new InvalidOperationException("no")) : Task.FromResult("t" + asked),
            };
            var it = new Scripted(options, new RoomOptions { GetToken = channel => Task.FromResult(channel + "!") });
            it.client.Poll();
            Check.True(it.sockets.Count == 0, "no connection without a token");
            Check.Equal(string.Join(", ", it.seen), "failed no, left 0 True, disconnected 0 True", "the first try");
            it.seen.Clear();
            it.Pass(1000);
            it.Accept();
            it.client.Poll();
            it.Expect("{\"id\":1,\"connect\":{\"token\":\"t2\",\"name\":\"csharp\"}}\n{\"id\":2,\"subscribe\":{\"channel\":\"r:1\",\"token\":\"r:1!\"}}", "", "the second try");
            it.Close(3005);
            it.Pass(1500);
            it.client.Poll();
            it.Socket.Received.Add(new SocketMessage { Kind = SocketMessageKind.Opened });
            it.client.Poll();
            it.Say("{\"id\":1,\"error\":{\"code\":109,\"message\":\"token expired\"}}");
            Check.Equal(it.seen.Last(), "disconnected 109 True", "an expired token is replaced");
        }

        private static void Endings()
        {
            foreach (string ending in new[] { "1006 True", "3000 True", "3499 True", "3500 False", "3999 False", "4000 True", "4500 False", "4999 False", "5000 True" })
            {
                var it = new Scripted(new RoomClientOptions(), new RoomOptions());
                it.Accept();
                it.seen.Clear();
                it.Close(int.Parse(ending.Split(' ')[0]));
                Check.Equal(string.Join(", ", it.seen), "left " + ending + ", disconnected " + ending, "a close code");
                int sockets = it.sockets.Count;
                it.Pass(30000);
                it.Pass(1);
                Check.True(it.sockets.Count == sockets + (ending.EndsWith("True") ? 1 : 0), "another connection after " + ending);
            }
            foreach (string refusal in new[] { "100 true", "409 false" })
            {
                string[] parts = refusal.Split(' ');
                var it = new Scripted(new RoomClientOptions(), new RoomOptions());
                it.Accept();
                it.Say("{\"id\":2,\"error\":{\"code\":" + parts[0] + ",\"message\":\"m\",\"temporary\":" + parts[1] + "}}");
                Check.True(it.room.State == (parts[1] == "true" ? RoomState.Joining : RoomState.Left), "after the refusal " + refusal);
            }
        }

        private static void Silence()
        {
            var it = new Scripted(new RoomClientOptions(), new RoomOptions());
            it.Accept(5);
            it.Say("{\"id\":2,\"subscribe\":{}}");
            it.Socket.Sent.Clear();
            it.seen.Clear();
            it.Pass(15000);
            it.Say("{}");
            it.Expect("{}", "", "a ping at the last moment");
            it.Pass(15000);
            it.Expect("", "", "silence up to the limit");
            it.Pass(1);
            it.Expect("", "left 0 True, disconnected 0 True", "silence beyond the limit");
        }

        private static void RoomEndings()
        {
            foreach (string ending in new[] { "2010 False", "2510 True" })
            {
                var it = new Scripted(new RoomClientOptions(), new RoomOptions());
                it.Accept();
                it.Say("{\"id\":2,\"subscribe\":{}}");
                it.seen.Clear();
                it.Socket.Sent.Clear();
                it.Say("{\"push\":{\"channel\":\"r:1\",\"unsubscribe\":{\"code\":" + ending.Split(' ')[0] + ",\"reason\":\"r\"}}}");
                it.Pass(1000);
                Check.Equal(string.Join(", ", it.seen), "left " + ending, "the end of a room");
                Check.True(it.Socket.Sent.Count == (ending.EndsWith("True") ? 1 : 0), "another join after " + ending);
                try
                {
                    it.room.Send(new byte[0]);
                    throw new CheckException("an input outside of a room was sent");
                }
                catch (RoomException error)
                {
                    Check.True(error.Kind == RoomErrorKind.NotJoined, error.Message);
                }
            }
        }

        private static void Limits()
        {
            Func<int, int, Snapshot> snapshot = (count, bytes) => Snapshot.FromJson(JsonValue.Parse(FirstSnapshot.Replace("\"cells\":[]", "\"cells\":[{\"cell\":0,\"upserts\":["
                + string.Join(",", Enumerable.Range(1, count).Select(id => "{\"id\":" + id + ",\"state\":\"" + Convert.ToBase64String(new byte[bytes]) + "\"}")) + "]}]")));
            foreach (Snapshot tooLarge in new[] { snapshot(4, 1), snapshot(2, 6) })
            {
                var replica = new Replica(3, 10);
                replica.Apply(snapshot(3, 3));
                replica.Apply(snapshot(2, 5));
                string refusal = "";
                try
                {
                    replica.Apply(tooLarge);
                }
                catch (RoomException error)
                {
                    refusal = error.Kind.ToString();
                }
                Check.Equal(refusal + " " + replica.Count, "TooLarge 2", "one past the limit");
            }
        }

        private static void LargeNumbers()
        {
            var numbers = new Dictionary<string, double>
            {
                { "1e308", 1e308 },
                { "1e309", double.PositiveInfinity },
                { "-1e309", double.NegativeInfinity },
                { "1e-400", 0 },
            };
            foreach (KeyValuePair<string, double> one in numbers)
            {
                double read = JsonValue.Parse(one.Key).Number;
                Check.True(read == one.Value, one.Key + " is read as " + read);
            }
        }

        private static void RandomBytes()
        {
            var random = new Random(1);
            byte[] json = Encoding.UTF8.GetBytes(FirstSnapshot);
            byte[] protobuf = { 0x0d, 0, 0, 0, 0, 0x20, 7, 0x3a, 12, 8, 4, 0x10, 3, 0x18, 0x64, 0x20, 1, 0x30, 1, 0x38, 0x3c, 0x4a, 6, 8, 0, 0x22, 2, 8, 1 };
            int taken = 0;
            for (int count = 0; count < 40000; count += 1)
            {
                byte[] bytes = (byte[])(count % 2 == 0 ? json : protobuf).Clone();
                for (int changes = random.Next(4); changes > 0; changes -= 1) bytes[random.Next(bytes.Length)] = (byte)random.Next(256);
                Array.Resize(ref bytes, bytes.Length - random.Next(10) / 9 * random.Next(bytes.Length));
                try
                {
                    new Replica().Apply(count % 2 == 0 ? Snapshot.FromJson(JsonValue.Parse(Encoding.UTF8.GetString(bytes))) : Snapshot.FromProtobuf(bytes));
                    taken += 1;
                }
                catch (RoomException)
                {
                }
                if (count % 2 == 1) Frames(bytes);
            }
            Check.True(taken > 1000 && taken < 39000, taken + " of 40,000 were taken");
        }

        private static void Frames(byte[] bytes)
        {
            try
            {
                int at = 0;
                while (new ProtocolProtobuf().Read(bytes, ref at) != null) continue;
            }
            catch (RoomException)
            {
            }
        }
    }

    /// <summary>A socket whose messages a test writes.</summary>
    internal sealed class ScriptedSocket : IRoomSocket
    {
        /// <summary>Another ping arrives whenever one is read; the number of those that may be read.</summary>
        internal int PingsLeft;

        internal readonly List<SocketMessage> Received = new List<SocketMessage>();
        internal readonly List<string> Sent = new List<string>();

        public void Open(Uri url, string subprotocol)
        {
            Check.Equal(subprotocol, "centrifuge-json", "the subprotocol");
        }

        public void Send(byte[] data, bool isText)
        {
            Sent.Add(Encoding.UTF8.GetString(data));
        }

        public bool TryReceive(out SocketMessage message)
        {
            bool isThere = Received.Count > 0;
            if (!isThere && PingsLeft > 0)
            {
                PingsLeft -= 1;
                message = new SocketMessage { Kind = SocketMessageKind.Data, Data = Encoding.UTF8.GetBytes("{}") };
                return true;
            }
            message = isThere ? Received[0] : default(SocketMessage);
            if (isThere) Received.RemoveAt(0);
            return isThere;
        }

        internal bool IsClosed { get; private set; }

        public void Close()
        {
            IsClosed = true;
            Received.Clear();
        }
    }
}
