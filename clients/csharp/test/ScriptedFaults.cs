using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading.Tasks;

namespace Dunlin.Rooms.Tests
{
    /// <summary>Faults, and listeners that change the client while it works.</summary>
    internal sealed partial class Scripted
    {
        private static void LineBreaks()
        {
            var it = new Scripted(new RoomClientOptions(), new RoomOptions { Data = "{\n\"a\": \"b\\nc\"}" });
            it.Accept();
            it.Say(Open);
            it.client.Call("m", "[1,\n2]");
            it.Expect(
                Connecting + "{\"id\":2,\"subscribe\":{\"channel\":\"r:1\",\"data\":{\"a\":\"b\\u000ac\"}}}\n{\"id\":3,\"rpc\":{\"method\":\"m\",\"data\":[1, 2]}}",
                "joined True", "the documents");
            Refuses<RoomException>(() => it.client.Room("r:2", new RoomOptions { Data = "{" }), "malformed data");
            Refuses<RoomException>(() => it.client.Subscription("s", new SubscriptionOptions { Data = "{" }), "malformed data");
        }

        private static void JoinOnConnected()
        {
            var it = new Scripted(new RoomClientOptions(), new RoomOptions());
            Subscription late = it.client.Subscription("late");
            it.client.Connected += late.Subscribe;
            it.Accept();
            it.Expect(Connecting + "{\"id\":2,\"subscribe\":{\"channel\":\"r:1\"}}\n{\"id\":3,\"subscribe\":{\"channel\":\"late\"}}", "", "each is asked for once");
        }

        private static void Removal()
        {
            var it = new Scripted(new RoomClientOptions(), new RoomOptions());
            it.client.Remove(it.room);
            Refuses<InvalidOperationException>(it.room.Join, "a room that was removed");
            Room other = it.client.Room("r:1");
            it.client.Remove(it.room);
            Check.True(it.client.Room("r:1") == other, "another room of the channel stays");
            Refuses<InvalidOperationException>(() => it.client.Subscription("r:1"), "a room as a subscription");
        }

        private static void DisconnectOnTimeout()
        {
            var it = new Scripted(new RoomClientOptions { ReplyTimeoutMs = 3000 }, new RoomOptions());
            it.Accept();
            it.Say(Open);
            it.Listen("lobby");
            Task done = it.client.Call("m").ContinueWith(call => it.client.Disconnect(), TaskContinuationOptions.ExecuteSynchronously);
            it.Pass(3001);
            it.Pass(30000);
            Check.True(done.IsCompleted && it.client.State == ConnectionState.Disconnected && it.sockets.Count == 1, "no connection after the disconnect");
        }

        private static void DisconnectWhileLost()
        {
            var it = new Scripted(new RoomClientOptions(), new RoomOptions());
            it.room.Left += (code, reason, rejoins) => it.client.Disconnect();
            it.Accept();
            it.Say(Open);
            it.seen.Clear();
            it.Close(1006);
            Check.Equal(it.seen.Last(), "disconnected 0 False", "what is reported last is true");
        }

        private static void NoSocket()
        {
            int made = 0;
            double nowMs = 0;
            var failures = new List<string>();
            var options = new RoomClientOptions { NowMs = () => nowMs, Encoding = RoomEncoding.Json };
            options.NewSocket = () =>
            {
                made += 1;
                if (made == 1) throw new PlatformNotSupportedException("no sockets");
                return new ScriptedSocket();
            };
            var client = new RoomClient(new Uri("ws://localhost/"), options);
            client.Failed += error => failures.Add(error.Message);
            client.Connect();
            Check.True(failures.Count == 1 && client.State == ConnectionState.Connecting, "the failure is reported");
            nowMs += 1000;
            client.Poll();
            Check.True(made == 2, "another socket");
        }

        /// <summary>How long the client waits until it opens another socket, or sends something.</summary>
        private double WaitUntil(Func<bool> isDone)
        {
            double startMs = nowMs;
            while (!isDone() && nowMs - startMs < 30000) Pass(50);
            return nowMs - startMs;
        }

        /// <summary>Until a snapshot has arrived, each connection may end as the last one did, for instance by a message that is too large.</summary>
        private static void GrowingDelays()
        {
            var it = new Scripted(new RoomClientOptions(), new RoomOptions());
            double longestMs = 0;
            for (int attempt = 0; attempt < 11; attempt += 1)
            {
                it.Accept();
                it.Say(Open);
                if (attempt == 10) it.Publish(FirstSnapshot);
                it.Close(1009);
                int sockets = it.sockets.Count;
                double waitedMs = it.WaitUntil(() => it.sockets.Count > sockets);
                if (attempt < 10) longestMs = Math.Max(longestMs, waitedMs);
                else Check.True(waitedMs <= 1050, "after a snapshot, delays begin again: " + waitedMs);
            }
            Check.True(longestMs > 1100, "delays grow: " + longestMs);
            it.Listen("lobby");
            for (int attempt = 0; attempt < 6; attempt += 1)
            {
                it.Accept();
                it.Say("{\"id\":3,\"subscribe\":{}}");
                it.Close(1009);
                int sockets = it.sockets.Count;
                double waitedMs = it.WaitUntil(() => it.sockets.Count > sockets);
                Check.True(waitedMs <= 1050, "a channel needs no snapshot: " + waitedMs);
            }
        }

        /// <summary>The same for joins: a room that fails before its first snapshot is asked less and less often.</summary>
        private static void GrowingRejoins()
        {
            var it = new Scripted(new RoomClientOptions(), new RoomOptions());
            double longestMs = 0;
            it.Accept(0);
            for (int attempt = 0; attempt < 10; attempt += 1)
            {
                it.Say("{\"id\":" + (2 + attempt) + ",\"subscribe\":{}}");
                it.Socket.Sent.Clear();
                it.Say("{\"push\":{\"channel\":\"r:1\",\"unsubscribe\":{\"code\":2502,\"reason\":\"r\"}}}");
                longestMs = Math.Max(longestMs, it.WaitUntil(() => it.Socket.Sent.Count > 0));
            }
            Check.True(longestMs > 1100, "delays grow: " + longestMs);
        }

        /// <summary>Objects are followed as long as there is room for their samples.</summary>
        private static void SampleLimit()
        {
            var replica = new Replica();
            var interpolation = new Interpolation();
            const string schema = ",\"schema\":{\"kinds\":[{\"kind\":0,\"name\":\"Bag\",\"fields\":[{\"name\":\"on\",\"type\":\"flag\"}]}]}";
            var state = new byte[1 << 20];
            string text = Convert.ToBase64String(state);
            for (uint tick = 1; tick <= 3; tick += 1)
            {
                IEnumerable<int> ids = tick == 3 ? new[] { 70 } : Enumerable.Range(1, 70);
                string objects = string.Join(",", ids.Select(id => "{\"id\":" + id + ",\"x\":" + tick + ",\"state\":\"" + text + "\"}"));
                string ticks = "\"tick\":" + tick + (tick == 1 ? schema : ",\"base\":" + (tick - 1));
                string snapshot = FirstSnapshot.Replace("\"tick\":7", ticks).Replace("\"cells\":[]", "\"cells\":[],\"own\":{\"objects\":[" + objects + "]}");
                interpolation.Observe(replica.Apply(Snapshot.FromJson(JsonValue.Parse(snapshot))), replica.Grid, 1000 * tick);
                int followed = Enumerable.Range(1, 70).Count(id => interpolation.TryPlace((uint)id, 1e9, out Place place));
                Check.True(followed == (tick == 3 ? 1 : 63), "tick " + tick + ": " + followed + " objects are followed");
            }
        }

        /// <summary>After a restart of the server, all of its clients come back.</summary>
        private static void Delays()
        {
            var it = new Scripted(new RoomClientOptions(), new RoomOptions());
            for (int attempt = 0; attempt < 8; attempt += 1)
            {
                double[] delays = Enumerable.Range(0, 200).Select(count => it.client.DelayMs(attempt)).ToArray();
                Check.True(delays.Min() >= 500 && delays.Max() <= 20000, "the bounds: " + delays.Min() + " to " + delays.Max());
                Check.True(delays.Max() - delays.Min() > 250 << attempt || attempt > 5, "attempt " + attempt + ": " + delays.Min() + " to " + delays.Max());
            }
        }

        private static void EndlessMessages()
        {
            var it = new Scripted(new RoomClientOptions(), new RoomOptions());
            it.Accept();
            it.Socket.PingsLeft = 100000;
            it.client.Poll();
            Check.True(it.Socket.PingsLeft > 90000, "a call of Poll ends: " + it.Socket.PingsLeft);
        }

        private static void JoinAfterTheEnd()
        {
            var it = new Scripted(new RoomClientOptions(), new RoomOptions());
            it.Accept();
            it.Say("{\"id\":2,\"subscribe\":{\"recoverable\":true,\"epoch\":\"e\",\"offset\":4}}");
            it.Say("{\"push\":{\"channel\":\"r:1\",\"unsubscribe\":{\"code\":2010,\"reason\":\"r\"}}}");
            it.Socket.Sent.Clear();
            it.seen.Clear();
            it.room.Join();
            it.Say("{\"id\":3,\"subscribe\":{\"recoverable\":true,\"epoch\":\"e\",\"offset\":9}}");
            it.Expect("{\"id\":3,\"subscribe\":{\"channel\":\"r:1\"}}", "joined True", "a new player has missed nothing");
        }

        /// <summary>The push was sent before the server took the unsubscription.</summary>
        private static void EndOfAnEarlierStay()
        {
            foreach (int code in new[] { 2010, 2502 })
            {
                var it = new Scripted(new RoomClientOptions(), new RoomOptions());
                string end = "{\"push\":{\"channel\":\"r:1\",\"unsubscribe\":{\"code\":" + code + ",\"reason\":\"r\"}}}";
                it.Accept();
                it.Say(Open);
                it.room.Leave();
                it.room.Join();
                it.Socket.Sent.Clear();
                it.seen.Clear();
                it.Say(end);
                it.Pass(2000);
                it.Say("{\"id\":4,\"subscribe\":{}}");
                it.Expect("", "joined True", "the new stay begins");
                it.Say(end);
                it.Expect("", "left " + code + " " + (code >= 2500), "after the reply, the end is that of the new one");
            }
        }

        private static void Refuses<T>(Action use, string what) where T : Exception
        {
            try
            {
                use();
            }
            catch (T)
            {
                return;
            }
            throw new CheckException(what + " was accepted");
        }
    }
}
