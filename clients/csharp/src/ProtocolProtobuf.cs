using System.Text;

namespace Dunlin.Rooms
{
    /// <summary>The client protocol in Protobuf: the field numbers are in docs/rooms-protocol.md.</summary>
    internal sealed class ProtocolProtobuf : Protocol
    {
        internal override string Subprotocol { get { return "centrifuge-protobuf"; } }

        internal override bool IsText { get { return false; } }

        internal override ServerMessage Read(byte[] frame, ref int at)
        {
            var reader = new ProtobufReader(frame, at, frame.Length);
            if (reader.IsDone) return null;
            ProtobufReader message = reader.Inner();
            at = reader.At;
            return ReadMessage(message);
        }

        internal override byte[] Connect(uint id, string token, string name)
        {
            return Command(id, 4, new ProtobufWriter().Text(1, token).Text(4, name));
        }

        internal override byte[] Refresh(uint id, string token)
        {
            return Command(id, 14, new ProtobufWriter().Text(1, token));
        }

        internal override byte[] Subscribe(uint id, string channel, string token, string data, string epoch, ulong offset)
        {
            var request = new ProtobufWriter().Text(1, channel).Text(2, token);
            if (epoch != null) request.UInt64(3, 1).Text(6, epoch).UInt64(7, offset);
            return Command(id, 5, request.Text(8, data));
        }

        internal override byte[] SubRefresh(uint id, string channel, string token)
        {
            return Command(id, 15, new ProtobufWriter().Text(1, channel).Text(2, token));
        }

        internal override byte[] Unsubscribe(uint id, string channel)
        {
            return Command(id, 6, new ProtobufWriter().Text(1, channel));
        }

        internal override byte[] Rpc(uint id, string method, string data)
        {
            return Command(id, 13, new ProtobufWriter().Text(1, data).Text(2, method));
        }

        internal override byte[] PublishInput(uint id, string channel, uint number, byte[] data)
        {
            return Command(id, 7, new ProtobufWriter().Text(1, channel).Bytes(2, Inputs.ToProtobuf(number, data)));
        }

        internal override byte[] SendInput(string channel, uint number, byte[] data)
        {
            return Command(0, 12, new ProtobufWriter().Bytes(1, Inputs.ToProtobuf(number, data, channel)));
        }

        internal override byte[] Pong()
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
                    case 13 << 3 | WireType.Length: message.Rpc = ReadRpc(reader.Inner()); break;
                    case 14 << 3 | WireType.Length: message.Refresh = ReadRefresh(reader.Inner(), 3); break;
                    case 15 << 3 | WireType.Length: message.Refresh = ReadRefresh(reader.Inner(), 1); break;
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
                if (tag == (4 << 3 | WireType.Length)) publication.Protobuf = reader.Inner();
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
            bool expires = false;
            uint ttl = 0;
            while (!reader.IsDone)
            {
                uint tag = reader.Tag();
                switch (tag)
                {
                    case 3 << 3 | WireType.Varint: expires = reader.Bool(); break;
                    case 4 << 3 | WireType.Varint: ttl = reader.UInt32(); break;
                    case 7 << 3 | WireType.Varint: reply.PingSeconds = reader.UInt32(); break;
                    case 8 << 3 | WireType.Varint: reply.Pong = reader.Bool(); break;
                    default: reader.Skip(tag); break;
                }
            }
            reply.TtlSeconds = expires ? ttl : (uint?)null;
            return reply;
        }

        private static RpcReply ReadRpc(ProtobufReader reader)
        {
            var reply = new RpcReply();
            while (!reader.IsDone)
            {
                uint tag = reader.Tag();
                if (tag == (1 << 3 | WireType.Length)) reply.Data = ReadDocument(reader.Bytes());
                else reader.Skip(tag);
            }
            return reply;
        }

        /// <summary>Whether it expires at field <paramref name="first"/>, and in how many seconds.</summary>
        private static RefreshReply ReadRefresh(ProtobufReader reader, uint first)
        {
            bool expires = false;
            uint ttl = 0;
            while (!reader.IsDone)
            {
                uint tag = reader.Tag();
                if (tag == (first << 3 | WireType.Varint)) expires = reader.Bool();
                else if (tag == (first + 1 << 3 | WireType.Varint)) ttl = reader.UInt32();
                else reader.Skip(tag);
            }
            return new RefreshReply { TtlSeconds = expires ? ttl : (uint?)null };
        }

        private static SubscribeReply ReadSubscribe(ProtobufReader reader)
        {
            var reply = new SubscribeReply();
            bool expires = false;
            uint ttl = 0;
            while (!reader.IsDone)
            {
                uint tag = reader.Tag();
                switch (tag)
                {
                    case 1 << 3 | WireType.Varint: expires = reader.Bool(); break;
                    case 2 << 3 | WireType.Varint: ttl = reader.UInt32(); break;
                    case 3 << 3 | WireType.Varint: reply.IsRecoverable = reader.Bool(); break;
                    case 6 << 3 | WireType.Length: reply.Epoch = reader.Text(); break;
                    case 7 << 3 | WireType.Length: reply.Publications.Add(ReadPublication(reader.Inner())); break;
                    case 8 << 3 | WireType.Varint: reply.Recovered = reader.Bool(); break;
                    case 9 << 3 | WireType.Varint: reply.Offset = reader.UInt64(); break;
                    case 11 << 3 | WireType.Length: reply.Data = ReadDocument(reader.Bytes()); break;
                    default: reader.Skip(tag); break;
                }
            }
            reply.TtlSeconds = expires ? ttl : (uint?)null;
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
