using System;
using System.Collections.Generic;

namespace Dunlin.Rooms
{
    /// <summary>How messages are written.</summary>
    public enum RoomEncoding
    {
        Json,
        Protobuf,
    }

    /// <summary>An input that the room has not applied yet, as far as is known here.</summary>
    public struct PendingInput
    {
        public uint Number;
        public byte[] Data;
        /// <summary>On the local clock.</summary>
        public double SentMs;
    }

    /// <summary>The inputs since one join: their numbers, and which of them the room has not applied yet.</summary>
    public sealed class Inputs
    {
        /// <summary>The number of unacknowledged inputs that are remembered; the oldest are dropped first.</summary>
        public const int PendingMax = 1024;

        private readonly List<PendingInput> pending = new List<PendingInput>();
        private uint last;

        public IReadOnlyList<PendingInput> Pending { get { return pending; } }

        /// <summary>Assigns a number to an input.</summary>
        public PendingInput Add(byte[] data, double nowMs)
        {
            last = checked(last + 1);
            var input = new PendingInput { Number = last, Data = data, SentMs = nowMs };
            pending.Add(input);
            if (pending.Count > PendingMax) pending.RemoveAt(0);
            return input;
        }

        /// <summary>The room has applied all up to <paramref name="ack"/>, or dropped them. Returns the last of those that were waiting for it.</summary>
        public PendingInput? Acknowledge(uint ack)
        {
            PendingInput? acknowledged = null;
            int count = 0;
            while (count < pending.Count && pending[count].Number <= ack) count += 1;
            if (count > 0) acknowledged = pending[count - 1];
            pending.RemoveRange(0, count);
            return acknowledged;
        }

        /// <summary>Starts again with number 1 after a join.</summary>
        public void Clear()
        {
            last = 0;
            pending.Clear();
        }

        /// <summary>The data of an input in Protobuf. <paramref name="room"/> is for <c>send</c> only.</summary>
        public static byte[] ToProtobuf(uint number, byte[] data, string room = "")
        {
            return new ProtobufWriter().UInt64(1, number).Bytes(2, data).Text(3, room).Finish();
        }

        /// <summary>The data of an input in JSON. <paramref name="room"/> is for <c>send</c> only.</summary>
        public static string ToJson(uint number, byte[] data, string room = "")
        {
            string text = "{\"number\":" + number;
            if (data.Length > 0) text += ",\"data\":\"" + Convert.ToBase64String(data) + "\"";
            if (room.Length > 0) text += ",\"room\":" + JsonValue.Quote(room);
            return text + "}";
        }
    }
}
