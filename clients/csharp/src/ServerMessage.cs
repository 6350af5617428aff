using System.Collections.Generic;

namespace Dunlin.Rooms
{
    /// <summary>A code and its reason.</summary>
    internal sealed class Ending
    {
        internal uint Code;
        internal string Reason = "";
        internal bool IsTemporary;

        private const uint TokenExpiredCode = 109;
        private const uint ExpiredCode = 110;

        /// <summary>Whether what was refused may be tried again as it is.</summary>
        internal bool MayBeRetried { get { return IsTemporary || Code < 100; } }

        /// <summary>Whether it may be tried again with another token.</summary>
        internal bool IsOfExpiredToken { get { return Code == TokenExpiredCode || Code == ExpiredCode; } }
    }

    internal sealed class Publication
    {
        internal ulong Offset;
        /// <summary>In a Protobuf session, the data in its frame.</summary>
        internal ProtobufReader Protobuf;
        /// <summary>In a JSON session.</summary>
        internal JsonValue Json;

        /// <summary>The data, which is JSON in both encodings if it is not a snapshot.</summary>
        /// <exception cref="RoomException">if it is no JSON document.</exception>
        internal JsonValue Document()
        {
            return Json ?? JsonValue.Parse(Protobuf.Rest());
        }
    }

    internal sealed class ConnectReply
    {
        internal uint PingSeconds;
        internal bool Pong;
        /// <summary>In how many seconds the connection expires without another token; null if it does not.</summary>
        internal uint? TtlSeconds;
    }

    internal sealed class SubscribeReply
    {
        /// <summary>In how many seconds the subscription expires without another token; null if it does not.</summary>
        internal uint? TtlSeconds;
        internal bool IsRecoverable;
        internal string Epoch = "";
        internal ulong Offset;
        internal bool Recovered;
        internal readonly List<Publication> Publications = new List<Publication>();
        /// <summary>A JSON document; null if there is none, or if the data is no JSON.</summary>
        internal JsonValue Data;
    }

    internal sealed class RpcReply
    {
        /// <summary>A JSON document; null if there is none, or if the data is no JSON.</summary>
        internal JsonValue Data;
    }

    /// <summary>The reply to <c>refresh</c> and to <c>sub_refresh</c>.</summary>
    internal sealed class RefreshReply
    {
        internal uint? TtlSeconds;
    }

    /// <summary>A reply or a push of the client protocol, with the fields that rooms use. One without any is a ping.</summary>
    internal sealed class ServerMessage
    {
        internal bool IsPing;
        internal uint Id;
        internal Ending Error;
        internal ConnectReply Connect;
        internal SubscribeReply Subscribe;
        internal RpcReply Rpc;
        internal RefreshReply Refresh;
        internal string Channel = "";
        internal Publication Publication;
        internal Ending Unsubscribe;
        internal Ending Disconnect;
    }
}
