using System.Collections.Generic;
using System.Text;

namespace Dunlin.Rooms
{
    /// <summary>The client protocol in Protobuf: the field numbers are in docs/rooms-protocol.md.</summary>
    internal static class ProtocolProtobuf
    {
        internal static List<ServerMessage> Read(byte[] frame)
        {
            var messages = new List<ServerMessage>();
            var reader = new ProtobufReader(frame, 0, frame.Length);
            while (!reader.IsDone) messages.Add(ReadMessage(reader.Inner()));
            return messages;
        }

        internal static byte[] Connect(uint id, string token, string name)
        {
            return Command(id, 4, new ProtobufWriter().Text(1, token).Text(4, name));
        }

        internal static byte[] Subscribe(uint id, string channel, string token, string data, string epoch, ulong offset)
        {
            byte[] bytes = string.IsNullOrEmpty(data) ? null : Encoding.UTF8.GetBytes(data);
            var request = new ProtobufWriter().Text(1, channel).Text(2, token);
            if (epoch != null) request.UInt64(3, 1).Text(6, epoch).UInt64(7, offset);
            return Command(id, 5, request.Bytes(8, bytes));
        }

        internal static byte[] Unsubscribe(uint id, string channel)
        {
            return Command(id, 6, new ProtobufWriter().Text(1, channel));
        }

        internal static byte[] Publish(uint id, string channel, byte[] data)
        {
            return Command(id, 7, new ProtobufWriter().Text(1, channel).Bytes(2, data));
        }

        internal static byte[] Send(byte[] data)
        {
            return Command(0, 12, new ProtobufWriter().Bytes(1, data));
        }

        internal static byte[] Pong()
        {
            return new byte[] { 0 };
        }

        private static byte[] Command(uint id, uint field, ProtobufWriter request)
        {
            byte[] command = new ProtobufWriter().UInt64(1, id).Message(field, request.Finish()).Finish();
            return new ProtobufWriter().Framed(command).Finish();
        }

        private static ServerMessage ReadMessage(ProtobufReader reader)
        {
            var message = new ServerMessage { IsPing = reader.IsDone };
            while (!reader.IsDone)
            {
                uint tag = reader.Tag();
                switch (tag)
                {
                    case 1 << 3 | WireType.Varint: message.Id = reader.UInt32(); break;
                    case 2 << 3 | WireType.Length: message.Error = ReadEnding(reader.Inner(), 1); break;
                    case 4 << 3 | WireType.Length: ReadPush(reader.Inner(), message); break;
                    case 5 << 3 | WireType.Length: message.Connect = ReadConnect(reader.Inner()); break;
                    case 6 << 3 | WireType.Length: message.Subscribe = ReadSubscribe(reader.Inner()); break;
                    default: reader.Skip(tag); break;
                }
            }
            return message;
        }

        private static void ReadPush(ProtobufReader reader, ServerMessage message)
        {
            while (!reader.IsDone)
            {
                uint tag = reader.Tag();
                switch (tag)
                {
                    case 2 << 3 | WireType.Length: message.Channel = reader.Text(); break;
                    case 4 << 3 | WireType.Length: message.Publication = ReadPublication(reader.Inner()); break;
                    case 7 << 3 | WireType.Length: message.Unsubscribe = ReadEnding(reader.Inner(), 2); break;
                    case 11 << 3 | WireType.Length: message.Disconnect = ReadEnding(reader.Inner(), 1); break;
                    default: reader.Skip(tag); break;
                }
            }
        }

        private static Publication ReadPublication(ProtobufReader reader)
        {
            var publication = new Publication();
            while (!reader.IsDone)
            {
                uint tag = reader.Tag();
                if (tag == (4 << 3 | WireType.Length)) publication.Bytes = reader.Bytes();
                else if (tag == (6 << 3 | WireType.Varint)) publication.Offset = reader.UInt64();
                else reader.Skip(tag);
            }
            return publication;
        }

        /// <summary>A code at field <paramref name="first"/>, its reason, and whether it is temporary.</summary>
        private static Ending ReadEnding(ProtobufReader reader, uint first)
        {
            var ending = new Ending();
            while (!reader.IsDone)
            {
                uint tag = reader.Tag();
                if (tag == (first << 3 | WireType.Varint)) ending.Code = reader.UInt32();
                else if (tag == (first + 1 << 3 | WireType.Length)) ending.Reason = reader.Text();
                else if (tag == (first + 2 << 3 | WireType.Varint)) ending.IsTemporary = reader.Bool();
                else reader.Skip(tag);
            }
            return ending;
        }

        private static ConnectReply ReadConnect(ProtobufReader reader)
        {
            var reply = new ConnectReply();
            while (!reader.IsDone)
            {
                uint tag = reader.Tag();
                if (tag == (7 << 3 | WireType.Varint)) reply.PingSeconds = reader.UInt32();
                else if (tag == (8 << 3 | WireType.Varint)) reply.Pong = reader.Bool();
                else reader.Skip(tag);
            }
            return reply;
        }

        private static SubscribeReply ReadSubscribe(ProtobufReader reader)
        {
            var reply = new SubscribeReply();
            while (!reader.IsDone)
            {
                uint tag = reader.Tag();
                switch (tag)
                {
                    case 6 << 3 | WireType.Length: reply.Epoch = reader.Text(); break;
                    case 7 << 3 | WireType.Length: reply.Publications.Add(ReadPublication(reader.Inner())); break;
                    case 8 << 3 | WireType.Varint: reply.Recovered = reader.Bool(); break;
                    case 9 << 3 | WireType.Varint: reply.Offset = reader.UInt64(); break;
                    case 11 << 3 | WireType.Length: reply.Data = ReadDocument(reader.Bytes()); break;
                    default: reader.Skip(tag); break;
                }
            }
            return reply;
        }

        /// <summary>The backend chooses the data of a reply: it need not be JSON.</summary>
        private static JsonValue ReadDocument(byte[] data)
        {
            try
            {
                return JsonValue.Parse(Encoding.UTF8.GetString(data));
            }
            catch (RoomException)
            {
                return null;
            }
        }
    }
}
