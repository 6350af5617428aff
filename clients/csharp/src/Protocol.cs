namespace Dunlin.Rooms
{
    /// <summary>The client protocol in one of its encodings, with the commands that this library sends.</summary>
    internal abstract class Protocol
    {
        internal static Protocol Of(RoomEncoding encoding)
        {
            return encoding == RoomEncoding.Json ? (Protocol)new ProtocolJson() : new ProtocolProtobuf();
        }

        internal abstract string Subprotocol { get; }

        /// <summary>Whether frames are text.</summary>
        internal abstract bool IsText { get; }

        /// <summary>The next message of a frame, from <paramref name="at"/> on; null at its end.</summary>
        /// <exception cref="RoomException">if it is malformed.</exception>
        internal abstract ServerMessage Read(byte[] frame, ref int at);

        internal abstract byte[] Connect(uint id, string token, string name);

        /// <summary>A new token for the connection.</summary>
        internal abstract byte[] Refresh(uint id, string token);

        internal abstract byte[] Subscribe(uint id, string channel, string token, string data, string epoch, ulong offset);

        /// <summary>A new token for a subscription.</summary>
        internal abstract byte[] SubRefresh(uint id, string channel, string token);

        internal abstract byte[] Unsubscribe(uint id, string channel);

        internal abstract byte[] Rpc(uint id, string method, string data);

        /// <summary>An input that is answered.</summary>
        internal abstract byte[] PublishInput(uint id, string channel, uint number, byte[] data);

        /// <summary>An input that is not.</summary>
        internal abstract byte[] SendInput(string channel, uint number, byte[] data);

        internal abstract byte[] Pong();
    }
}
