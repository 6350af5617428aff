using System.Collections.Generic;
using System.Text;

namespace Dunlin.Rooms
{
    /// <summary>The client protocol in JSON.</summary>
    internal static class ProtocolJson
    {
        internal static List<ServerMessage> Read(byte[] frame)
        {
            var messages = new List<ServerMessage>();
            foreach (string line in Encoding.UTF8.GetString(frame).Split('\n'))
            {
                if (line.Trim().Length > 0) messages.Add(ReadMessage(JsonValue.Parse(line)));
            }
            return messages;
        }

        internal static byte[] Connect(uint id, string token, string name)
        {
            return Command(id, "connect", Members(Text("token", token), Text("name", name)));
        }

        internal static byte[] Subscribe(uint id, string channel, string token, string data, string epoch, ulong offset)
        {
            string recover = epoch == null ? "" : "\"recover\":true,\"epoch\":" + JsonValue.Quote(epoch) + ",\"offset\":" + offset;
            string parameters = string.IsNullOrEmpty(data) ? "" : "\"data\":" + data;
            return Command(id, "subscribe", Members(Text("channel", channel), Text("token", token), parameters, recover));
        }

        internal static byte[] Unsubscribe(uint id, string channel)
        {
            return Command(id, "unsubscribe", Members(Text("channel", channel)));
        }

        internal static byte[] Publish(uint id, string channel, string data)
        {
            return Command(id, "publish", Members(Text("channel", channel), "\"data\":" + data));
        }

        internal static byte[] Send(string data)
        {
            return Encoding.UTF8.GetBytes("{\"send\":{\"data\":" + data + "}}");
        }

        internal static byte[] Pong()
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

        private static ServerMessage ReadMessage(JsonValue value)
        {
            if (value.Kind != JsonKind.Object) throw RoomException.Malformed("a message is no object");
            JsonValue connect = value["connect"];
            JsonValue subscribe = value["subscribe"];
            JsonValue push = value["push"];
            var message = new ServerMessage
            {
                IsPing = value.Members.Count == 0,
                Id = (uint)Whole(value["id"], uint.MaxValue),
                Error = ReadEnding(value["error"], "message"),
                Connect = connect == null ? null : new ConnectReply { PingSeconds = (uint)Whole(connect["ping"], uint.MaxValue), Pong = IsTrue(connect["pong"]) },
                Subscribe = subscribe == null ? null : ReadSubscribe(subscribe),
            };
            if (push == null) return message;
            message.Channel = TextOf(push["channel"]);
            message.Publication = push["pub"] == null ? null : ReadPublication(push["pub"]);
            message.Unsubscribe = ReadEnding(push["unsubscribe"], "reason");
            message.Disconnect = ReadEnding(push["disconnect"], "reason");
            return message;
        }

        private static SubscribeReply ReadSubscribe(JsonValue value)
        {
            var reply = new SubscribeReply
            {
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
