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

        /// <summary>Answers what has waited too long with <see cref="Timeout"/>. Returns whether a vital command is among it.</summary>
        internal bool Expire(double nowMs)
        {
            var late = new List<uint>();
            foreach (KeyValuePair<uint, Waiting> one in waiting) if (nowMs > one.Value.DeadlineMs) late.Add(one.Key);
            bool isVital = false;
            foreach (uint id in late)
            {
                Waiting found;
                if (!waiting.TryGetValue(id, out found)) continue;
                isVital |= found.IsVital;
                if (!found.IsVital) Take(new ServerMessage { Id = id, Error = Timeout });
            }
            return isVital;
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
