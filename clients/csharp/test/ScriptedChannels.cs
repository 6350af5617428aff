using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading.Tasks;

namespace Dunlin.Rooms.Tests
{
    /// <summary>Calls, plain channels and tokens against a scripted server.</summary>
    internal sealed partial class Scripted
    {
        private const string Open = "{\"id\":2,\"subscribe\":{}}";

        private static void SeenTick()
        {
            var replica = new Replica();
            Check.True(replica.TickAt(1790000000000) == 0, "before the first snapshot");
            replica.Apply(Snapshot.FromJson(JsonValue.Parse(FirstSnapshot.Replace("\"tick\":7", "\"tick\":600"))));
            var ticks = new Dictionary<double, uint> { { 0, 600 }, { 8, 600 }, { 9, 599 }, { 100, 594 }, { -17, 601 }, { 60000, 1 }, { -1e12, uint.MaxValue } };
            foreach (KeyValuePair<double, uint> one in ticks)
            {
                Check.True(replica.TickAt(1000 - one.Key) == one.Value, one.Key + " ms ago: " + replica.TickAt(1000 - one.Key));
            }
        }

        private static void MovedRoom()
        {
            var it = new Scripted(new RoomClientOptions(), new RoomOptions());
            it.room.Moved += () => it.seen.Add("moved");
            it.Accept();
            it.Say(Open);
            it.Publish(FirstSnapshot);
            double offsetMs = it.room.Clock.OffsetMs;
            Check.True(!it.room.Replica.HasMoved && !it.seen.Contains("moved"), "a room that stays");
            it.Pass(500);
            it.Publish(FirstSnapshot.Replace("\"tick\":7", "\"tick\":8,\"moved\":true"));
            Check.True(it.room.Replica.HasMoved && it.seen.Last() == "moved", "a room that has moved");
            Check.True(Math.Abs(it.room.Clock.OffsetMs - (offsetMs - 500)) < 1e-6, "the clock: " + it.room.Clock.OffsetMs + " ms, and before " + offsetMs);
            it.Publish(FirstSnapshot.Replace("\"tick\":7", "\"tick\":9"));
            Check.True(!it.room.Replica.HasMoved && it.room.State == RoomState.Joined, "it has moved once");
            // By tick, time, base, and place of an object. The clock of the last two is behind.
            foreach (int[] step in new[] { new[] { 10, 1300, 0, 10 }, new[] { 11, 1400, 10, 20 }, new[] { 12, 1500, 11, 30 }, new[] { 3, 500, 0, 40 }, new[] { 4, 600, 3, 50 } })
            {
                it.Pass(100);
                string head = "{\"tick\":" + step[0] + ",\"time_us\":" + step[1] + "000,\"base\":" + step[2] + ",\"view\":0" + (step[0] == 3 ? ",\"moved\":true" : "");
                string cell = ",\"cells\":[{\"cell\":0" + (step[2] == 0 ? ",\"full\":true" : "") + ",\"upserts\":[{\"id\":1,\"kind\":1,\"x\":" + step[3] + ",\"y\":5}]}]";
                it.Publish(head + cell + (step[2] == 0 ? FirstSnapshot.Substring(FirstSnapshot.IndexOf(",\"grid\"")) : "}"));
            }
            Place place;
            Check.True(it.room.Interpolation.TryPlace(1, 550, out place) && place.X == 45, "half of the way, on the new clock: " + place.X);
            try
            {
                Snapshot.FromJson(JsonValue.Parse(FirstSnapshot.Replace("\"tick\":7", "\"tick\":8,\"moved\":1")));
                throw new CheckException("moved is a number");
            }
            catch (RoomException)
            {
            }
        }

        private static void Calls()
        {
            var it = new Scripted(new RoomClientOptions { ReplyTimeoutMs = 3000 }, new RoomOptions());
            Check.Equal(Outcome(it.client.Call("m")), "NotConnected 0 False", "a call without a connection");
            it.Accept();
            it.Say(Open);
            it.Socket.Sent.Clear();
            Task<JsonValue> full = it.client.Call("dunlin.match", "{\"namespace\":\"tag\"}");
            Task<JsonValue> empty = it.client.Call("m");
            Task<JsonValue> refused = it.client.Call("m", "7");
            Task<JsonValue> busy = it.client.Call("m");
            it.Expect(
                "{\"id\":3,\"rpc\":{\"method\":\"dunlin.match\",\"data\":{\"namespace\":\"tag\"}}}\n{\"id\":4,\"rpc\":{\"method\":\"m\"}}\n"
                + "{\"id\":5,\"rpc\":{\"method\":\"m\",\"data\":7}}\n{\"id\":6,\"rpc\":{\"method\":\"m\"}}",
                "joined True", "the calls");
            it.Say("{\"id\":4,\"rpc\":{}}");
            it.Say("{\"id\":3,\"rpc\":{\"data\":{\"ticket\":\"t\"}}}");
            it.Say("{\"id\":5,\"error\":{\"code\":409,\"message\":\"conflict\"}}");
            it.Say("{\"id\":6,\"error\":{\"code\":111,\"message\":\"busy\",\"temporary\":true}}");
            Check.Equal(full.Result["ticket"].Text, "t", "the reply to the first call");
            Check.True(empty.Result == null, "a reply without data");
            Check.Equal(Outcome(refused) + ", " + Outcome(busy), "Refused 409 False, Refused 111 True", "the errors");
            Task<JsonValue> late = it.client.Call("m");
            it.Pass(3000);
            Check.True(!late.IsCompleted, "a reply may come at the last moment");
            it.Pass(1);
            Check.Equal(Outcome(late), "TimedOut 0 False", "a late reply");
            it.Say("{\"id\":7,\"rpc\":{}}");
            Task<JsonValue> lost = it.client.Call("m");
            it.Close(1006);
            Check.Equal(Outcome(lost), "NotConnected 0 False", "a lost connection");
            try
            {
                it.client.Call("m", "{");
                throw new CheckException("a call with malformed data was sent");
            }
            catch (RoomException error)
            {
                Check.True(error.Kind == RoomErrorKind.Malformed, error.Message);
            }
        }

        private static string Outcome(Task<JsonValue> call)
        {
            if (!call.IsFaulted) return call.Status.ToString();
            var error = (RoomException)call.Exception.InnerException;
            return error.Kind + " " + error.Code + " " + error.IsTemporary;
        }

        /// <summary>Adds a subscription that reports what happens to it.</summary>
        private Subscription Listen(string channel, SubscriptionOptions options = null)
        {
            Subscription made = client.Subscription(channel, options);
            made.Subscribed += isWhole => seen.Add("subscribed " + isWhole);
            made.Received += (document, at) => seen.Add("received " + document["room"].Text + " " + at);
            made.Unsubscribed += (code, reason, again) => seen.Add("unsubscribed " + code + " " + again);
            made.Failed += error => seen.Add("failed");
            made.Subscribe();
            return made;
        }

        private static void PlainChannel()
        {
            var it = new Scripted(new RoomClientOptions(), new RoomOptions());
            it.Accept();
            it.Say(Open);
            it.Expect(Connecting + "{\"id\":2,\"subscribe\":{\"channel\":\"r:1\"}}", "joined True", "the room");
            Subscription lobby = it.Listen("lobby");
            Check.True(lobby == it.client.Subscription("lobby") && lobby.State == SubscriptionState.Subscribing, "the same subscription");
            it.Say("{\"id\":3,\"subscribe\":{\"publications\":[{\"data\":{\"room\":\"a\"}}]}}");
            it.Say("{\"push\":{\"channel\":\"lobby\",\"pub\":{\"data\":{\"room\":\"b\"}}}}");
            it.Say("{\"push\":{\"channel\":\"other\",\"pub\":{\"data\":{\"room\":\"c\"}}}}");
            it.Expect("{\"id\":3,\"subscribe\":{\"channel\":\"lobby\"}}", "subscribed True, received a 0, received b 0", "a lobby");
            it.Say("{\"push\":{\"channel\":\"lobby\",\"unsubscribe\":{\"code\":2502,\"reason\":\"r\"}}}");
            it.Pass(1000);
            it.Say("{\"id\":4,\"subscribe\":{}}");
            it.Expect("{\"id\":4,\"subscribe\":{\"channel\":\"lobby\"}}", "unsubscribed 2502 True, subscribed False", "no position to recover from");
            Subscription stream = it.Listen("stream");
            it.Say("{\"id\":5,\"subscribe\":{\"recoverable\":true,\"epoch\":\"e\",\"offset\":3}}");
            it.Say("{\"push\":{\"channel\":\"stream\",\"pub\":{\"data\":{\"room\":\"a\"},\"offset\":4}}}");
            it.Expect("{\"id\":5,\"subscribe\":{\"channel\":\"stream\"}}", "subscribed True, received a 4", "a stream");
            it.Say("{\"push\":{\"channel\":\"lobby\",\"unsubscribe\":{\"code\":2499,\"reason\":\"r\"}}}");
            it.Expect("", "unsubscribed 2499 False", "an end for good");
            it.Close(1006);
            it.Pass(1000);
            it.Accept();
            it.Socket.Sent.RemoveAll(sent => !sent.Contains("stream"));
            it.seen.RemoveAll(one => one.Contains("r:1") || one.StartsWith("left"));
            it.Say("{\"id\":3,\"subscribe\":{\"recoverable\":true,\"recovered\":true,\"epoch\":\"e\",\"offset\":4,\"publications\":[{\"data\":{\"room\":\"b\"},\"offset\":5}]}}");
            it.Expect("{\"id\":3,\"subscribe\":{\"channel\":\"stream\",\"recover\":true,\"epoch\":\"e\",\"offset\":4}}",
                "unsubscribed 1006 True, disconnected 1006 True, subscribed True, received b 5", "a recovery");
            it.client.Remove(stream);
            it.Say("{\"push\":{\"channel\":\"stream\",\"pub\":{\"data\":{\"room\":\"c\"},\"offset\":6}}}");
            it.Expect("{\"id\":4,\"unsubscribe\":{\"channel\":\"stream\"}}", "unsubscribed 0 False", "the end");
        }

        private static void NoReply()
        {
            var it = new Scripted(new RoomClientOptions { ReplyTimeoutMs = 3000 }, new RoomOptions());
            it.Accept();
            it.Pass(3000);
            it.Expect(Connecting + "{\"id\":2,\"subscribe\":{\"channel\":\"r:1\"}}", "", "up to the limit");
            it.Pass(1);
            it.Expect("", "left 0 True, disconnected 0 True", "beyond the limit");
            it.Pass(1000);
            Check.True(it.sockets.Count == 2, "another connection");
        }

        /// <summary>A function for tokens that gives t1, t2 and so on, and fails on the third.</summary>
        private static Func<Task<string>> TokensWithAGap()
        {
            int asked = 0;
            return () => ++asked == 3 ? Task.FromException<string>(new InvalidOperationException("no")) : Task.FromResult("t" + asked);
        }

        private static void RefreshOfConnection()
        {
            var it = new Scripted(new RoomClientOptions { GetToken = TokensWithAGap() }, new RoomOptions());
            it.client.Poll();
            it.Socket.Received.Add(new SocketMessage { Kind = SocketMessageKind.Opened });
            it.client.Poll();
            it.Say("{\"id\":1,\"connect\":{\"expires\":true,\"ttl\":2}}");
            it.Say(Open);
            it.Socket.Sent.Clear();
            it.seen.Clear();
            it.Pass(1999);
            it.Expect("", "", "before the token expires");
            it.Pass(1);
            it.Expect("{\"id\":3,\"refresh\":{\"token\":\"t2\"}}", "", "when it expires");
            it.Say("{\"id\":3,\"refresh\":{\"expires\":true,\"ttl\":2}}");
            it.Pass(2000);
            it.Expect("", "failed no", "no token can be had");
            it.Pass(1000);
            it.Expect("{\"id\":4,\"refresh\":{\"token\":\"t4\"}}", "", "later");
            it.Say("{\"id\":4,\"error\":{\"code\":100,\"message\":\"m\",\"temporary\":true}}");
            it.Pass(1500);
            Check.Equal(string.Join("\n", it.Socket.Sent), "{\"id\":5,\"refresh\":{\"token\":\"t5\"}}", "after a temporary error");
            it.Say("{\"id\":5,\"refresh\":{}}");
            it.Socket.Sent.Clear();
            it.seen.Clear();
            it.Pass(1e6);
            it.Expect("", "", "a token that does not expire");
            foreach (string refusal in new[] { "110 True", "103 False" })
            {
                it = new Scripted(new RoomClientOptions { GetToken = () => Task.FromResult("t") }, new RoomOptions());
                it.client.Poll();
                it.Socket.Received.Add(new SocketMessage { Kind = SocketMessageKind.Opened });
                it.client.Poll();
                it.Say("{\"id\":1,\"connect\":{\"expires\":true,\"ttl\":0}}");
                it.Pass(1);
                it.Say("{\"id\":3,\"error\":{\"code\":" + refusal.Split(' ')[0] + ",\"message\":\"m\"}}");
                Check.Equal(it.seen.Last(), "disconnected " + refusal, "a token that is refused");
            }
        }

        private static void RefreshOfSubscription()
        {
            Func<Task<string>> tokens = TokensWithAGap();
            var it = new Scripted(new RoomClientOptions(), new RoomOptions { GetToken = channel => tokens() });
            it.Accept();
            it.client.Poll();
            it.Say("{\"id\":2,\"subscribe\":{\"expires\":true,\"ttl\":2}}");
            it.Socket.Sent.Clear();
            it.seen.Clear();
            it.Pass(1999);
            it.Expect("", "", "before the token expires");
            it.Pass(1);
            it.Expect("{\"id\":3,\"sub_refresh\":{\"channel\":\"r:1\",\"token\":\"t2\"}}", "", "when it expires");
            it.Say("{\"id\":3,\"sub_refresh\":{\"expires\":true,\"ttl\":1}}");
            it.Pass(1000);
            it.Expect("", "failed", "no token can be had");
            it.Pass(1000);
            it.Expect("{\"id\":4,\"sub_refresh\":{\"channel\":\"r:1\",\"token\":\"t4\"}}", "", "later");
            it.Say("{\"id\":4,\"error\":{\"code\":103,\"message\":\"m\"}}");
            it.Say("{\"push\":{\"channel\":\"r:1\",\"unsubscribe\":{\"code\":2501,\"reason\":\"r\"}}}");
            it.Expect("", "failed, left 2501 True", "a refused token, and the end of the subscription");
            it.Pass(1500);
            it.Expect("{\"id\":5,\"subscribe\":{\"channel\":\"r:1\",\"token\":\"t5\"}}", "", "another subscription");
        }

        private static void Disposal()
        {
            var it = new Scripted(new RoomClientOptions(), new RoomOptions());
            it.Accept();
            it.Say(Open);
            it.Listen("lobby");
            Task<JsonValue> call = it.client.Call("m");
            it.Socket.Sent.Clear();
            it.seen.Clear();
            ScriptedSocket last = it.Socket;
            it.client.Dispose();
            it.client.Dispose();
            it.Expect("{\"id\":5,\"unsubscribe\":{\"channel\":\"r:1\"}}\n{\"id\":6,\"unsubscribe\":{\"channel\":\"lobby\"}}",
                "left 0 False, unsubscribed 0 False, disconnected 0 False", "what a client says at its end");
            Check.Equal(Outcome(call), "NotConnected 0 False", "a call without a reply");
            it.Pass(1e6);
            Check.True(last.IsClosed && it.sockets.Count == 1, "no further connection");
            Action[] uses = { it.client.Connect, () => it.client.Room("r:2"), () => it.client.Subscription("s"), () => it.client.Call("m") };
            foreach (Action use in uses)
            {
                try
                {
                    use();
                    throw new CheckException("a client that is disposed was used");
                }
                catch (ObjectDisposedException)
                {
                }
            }
        }
    }
}
