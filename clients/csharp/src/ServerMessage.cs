using System.Collections.Generic;

namespace Dunlin.Rooms
{
    /// <summary>A code and its reason.</summary>
    internal sealed class Ending
    {
        internal uint Code;
        internal string Reason = "";
        internal bool IsTemporary;
    }

    internal sealed class Publication
    {
        internal ulong Offset;
        /// <summary>In a Protobuf session.</summary>
        internal byte[] Bytes = Snapshot.NoState;
        /// <summary>In a JSON session.</summary>
        internal JsonValue Json;
    }

    internal sealed class ConnectReply
    {
        internal uint PingSeconds;
        internal bool Pong;
    }

    internal sealed class SubscribeReply
    {
        internal string Epoch = "";
        internal ulong Offset;
        internal bool Recovered;
        internal readonly List<Publication> Publications = new List<Publication>();
        /// <summary>A JSON document; null if there is none, or if the data is no JSON.</summary>
        internal JsonValue Data;
    }

    /// <summary>A reply or a push of the client protocol, with the fields that rooms use. One without any is a ping.</summary>
    internal sealed class ServerMessage
    {
        internal bool IsPing;
        internal uint Id;
        internal Ending Error;
        internal ConnectReply Connect;
        internal SubscribeReply Subscribe;
        internal string Channel = "";
        internal Publication Publication;
        internal Ending Unsubscribe;
        internal Ending Disconnect;
    }
}
