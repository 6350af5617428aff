using System;
using System.Collections.Generic;

namespace Dunlin.Rooms
{
    /// <summary>The commands of a connection that wait for their replies.</summary>
    internal sealed class Replies
    {
        /// <summary>The error of a command without a reply in time. The SDKs give it the code 1.</summary>
        internal static readonly Ending Timeout = new Ending { Code = 1, Reason = "timeout", IsTemporary = true };

        private struct Waiting
        {
            internal Action<ServerMessage> Answer;
            internal double DeadlineMs;
            internal bool IsVital;
        }

        private readonly Dictionary<uint, Waiting> waiting = new Dictionary<uint, Waiting>();
        private uint lastId;

        /// <summary>The id for a command. <paramref name="isVital"/>: without a reply, the connection is of no use.</summary>
        internal uint Expect(Action<ServerMessage> answer, double deadlineMs, bool isVital)
        {
            lastId += 1;
            waiting.Add(lastId, new Waiting { Answer = answer, DeadlineMs = deadlineMs, IsVital = isVital });
            return lastId;
        }

        internal void Take(ServerMessage reply)
        {
            Waiting found;
            if (!waiting.TryGetValue(reply.Id, out found)) return;
            waiting.Remove(reply.Id);
            found.Answer(reply);
        }

        /// <summary>Returns whether a vital command has waited too long. Otherwise answers others that have with <see cref="Timeout"/>.</summary>
        internal bool Expire(double nowMs)
        {
            List<uint> late = null;
            foreach (KeyValuePair<uint, Waiting> one in waiting)
            {
                if (nowMs <= one.Value.DeadlineMs) continue;
                if (one.Value.IsVital) return true;
                // Nearly always nothing is late, and then nothing is allocated.
                if (late == null) late = new List<uint>();
                late.Add(one.Key);
            }
            if (late != null) foreach (uint id in late) Take(new ServerMessage { Id = id, Error = Timeout });
            return false;
        }

        /// <summary>The connection is lost: what waits is answered with null. Ids begin again with 1.</summary>
        internal void Lose()
        {
            var lost = new List<Waiting>(waiting.Values);
            waiting.Clear();
            lastId = 0;
            foreach (Waiting one in lost) one.Answer(null);
        }
    }
}
