using System;
using System.Collections.Generic;
using System.Text;

namespace Dunlin.Rooms
{
    /// <summary>The client protocol in JSON.</summary>
    internal sealed class ProtocolJson : Protocol
    {
        internal override string Subprotocol { get { return "centrifuge-json"; } }

        internal override bool IsText { get { return true; } }

        internal override ServerMessage Read(byte[] frame, ref int at)
        {
            while (at < frame.Length)
            {
                int end = Array.IndexOf(frame, (byte)'\n', at);
                if (end < 0) end = frame.Length;
                string line = Encoding.UTF8.GetString(frame, at, end - at);
                at = end + 1;
                if (line.Trim().Length > 0) return ReadMessage(JsonValue.Parse(line));
            }
            return null;
        }

        internal override byte[] Connect(uint id, string token, string name)
        {
            return Command(id, "connect", Members(Text("token", token), Text("name", name)));
        }

        internal override byte[] Refresh(uint id, string token)
        {
            return Command(id, "refresh", Members(Text("token", token)));
        }

        internal override byte[] Subscribe(uint id, string channel, string token, string data, string epoch, ulong offset)
        {
            string recover = epoch == null ? "" : "\"recover\":true,\"epoch\":" + JsonValue.Quote(epoch) + ",\"offset\":" + offset;
            return Command(id, "subscribe", Members(Text("channel", channel), Text("token", token), Data(data), recover));
        }

        internal override byte[] SubRefresh(uint id, string channel, string token)
        {
            return Command(id, "sub_refresh", Members(Text("channel", channel), Text("token", token)));
        }

        internal override byte[] Unsubscribe(uint id, string channel)
        {
            return Command(id, "unsubscribe", Members(Text("channel", channel)));
        }

        internal override byte[] Rpc(uint id, string method, string data)
        {
            return Command(id, "rpc", Members(Text("method", method), Data(data)));
        }

        internal override byte[] PublishInput(uint id, string channel, uint number, byte[] data)
        {
            return Command(id, "publish", Members(Text("channel", channel), Data(Inputs.ToJson(number, data))));
        }

        internal override byte[] SendInput(string channel, uint number, byte[] data)
        {
            return Encoding.UTF8.GetBytes("{\"send\":{" + Data(Inputs.ToJson(number, data, channel)) + "}}");
        }

        internal override byte[] Pong()
        {
            return Encoding.UTF8.GetBytes("{}");
        }

        private static byte[] Command(uint id, string name, string members)
        {
            return Encoding.UTF8.GetBytes("{\"id\":" + id + ",\"" + name + "\":{" + members + "}}");
        }

        private static string Members(params string[] members)
        {
            var present = new List<string>(members);
            present.RemoveAll(member => member.Length == 0);
            return string.Join(",", present);
        }

        private static string Text(string name, string value)
        {
            return string.IsNullOrEmpty(value) ? "" : "\"" + name + "\":" + JsonValue.Quote(value);
        }

        /// <summary>The member <c>data</c>, whose value is a JSON document. A line break would end the command; in a document it is white space.</summary>
        private static string Data(string document)
        {
            return string.IsNullOrEmpty(document) ? "" : "\"data\":" + document.Replace('\n', ' ');
        }

        private static ServerMessage ReadMessage(JsonValue value)
        {
            if (value.Kind != JsonKind.Object) throw RoomException.Malformed("a message is no object");
            JsonValue subscribe = value["subscribe"];
            JsonValue push = value["push"];
            JsonValue rpc = value["rpc"];
            var message = new ServerMessage
            {
                IsPing = value.Members.Count == 0,
                Id = (uint)Whole(value["id"], uint.MaxValue),
                Error = ReadEnding(value["error"], "message"),
                Connect = ReadConnect(value["connect"]),
                Subscribe = subscribe == null ? null : ReadSubscribe(subscribe),
                Rpc = rpc == null ? null : new RpcReply { Data = rpc["data"] },
                Refresh = ReadRefresh(value["refresh"] ?? value["sub_refresh"]),
            };
            if (push == null) return message;
            message.Channel = TextOf(push["channel"]);
            message.Publication = push["pub"] == null ? null : ReadPublication(push["pub"]);
            message.Unsubscribe = ReadEnding(push["unsubscribe"], "reason");
            message.Disconnect = ReadEnding(push["disconnect"], "reason");
            return message;
        }

        private static ConnectReply ReadConnect(JsonValue value)
        {
            if (value == null) return null;
            return new ConnectReply { PingSeconds = (uint)Whole(value["ping"], uint.MaxValue), Pong = IsTrue(value["pong"]), TtlSeconds = ReadTtl(value) };
        }

        private static RefreshReply ReadRefresh(JsonValue value)
        {
            return value == null ? null : new RefreshReply { TtlSeconds = ReadTtl(value) };
        }

        private static uint? ReadTtl(JsonValue value)
        {
            return IsTrue(value["expires"]) ? (uint)Whole(value["ttl"], uint.MaxValue) : (uint?)null;
        }

        private static SubscribeReply ReadSubscribe(JsonValue value)
        {
            var reply = new SubscribeReply
            {
                TtlSeconds = ReadTtl(value),
                IsRecoverable = IsTrue(value["recoverable"]),
                Epoch = TextOf(value["epoch"]),
                Offset = Whole(value["offset"], ulong.MaxValue),
                Recovered = IsTrue(value["recovered"]),
                Data = value["data"],
            };
            JsonValue publications = value["publications"];
            if (publications != null) foreach (JsonValue one in publications.Items) reply.Publications.Add(ReadPublication(one));
            return reply;
        }

        private static Publication ReadPublication(JsonValue value)
        {
            return new Publication { Offset = Whole(value["offset"], ulong.MaxValue), Json = value["data"] };
        }

        private static Ending ReadEnding(JsonValue value, string reason)
        {
            if (value == null) return null;
            return new Ending { Code = (uint)Whole(value["code"], uint.MaxValue), Reason = TextOf(value[reason]), IsTemporary = IsTrue(value["temporary"]) };
        }

        private static bool IsTrue(JsonValue value)
        {
            return value != null && value.IsTrue;
        }

        private static string TextOf(JsonValue value)
        {
            return value != null && value.Kind == JsonKind.Text ? value.Text : "";
        }

        private static ulong Whole(JsonValue value, ulong most)
        {
            ulong number = 0;
            if (value != null && !value.TryWhole(most, out number)) throw RoomException.Malformed("a field is no whole number");
            return number;
        }
    }
}
