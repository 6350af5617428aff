using System;
using System.Collections.Concurrent;
using System.Reflection;

namespace Dunlin.Rooms.Tests
{
    /// <summary>
    /// What a frame of a game allocates. It runs on .NET Core: Mono's libraries, which this is compiled with, do not have the method that counts.
    /// </summary>
    internal static class Allocations
    {
        private const int Frames = 600;
        private const int ObjectsMoved = 10;
        private const string Channel = "arena:1";

        /// <summary>
        /// Of a snapshot that moves 10 objects: 1,120 bytes are the new objects and their states (80 and 32 bytes each). The
        /// rest are the snapshot and the lists of changes, which the game receives and may keep.
        /// </summary>
        private const long SnapshotBytesMax = 3000;

        internal static void Run()
        {
            MethodInfo method = typeof(GC).GetMethod("GetAllocatedBytesForCurrentThread");
            Check.True(method != null, "`allocations` runs on .NET Core");
            var allocated = (Func<long>)Delegate.CreateDelegate(typeof(Func<long>), method);
            var socket = new QueuedSocket();
            var client = new RoomClient(new Uri("ws://localhost/"), new RoomClientOptions { NewSocket = () => socket });
            Room room = client.Room(Channel);
            client.Subscription("lobby").Subscribe();
            room.Join();
            client.Connect();
            socket.Messages.Enqueue(new SocketMessage { Kind = SocketMessageKind.Opened });
            client.Poll();
            socket.Say(Reply(1, 5, new ProtobufWriter()));
            client.Poll();
            socket.Say(Reply(2, 6, new ProtobufWriter()));
            // The lobby's reply and that to a call are still awaited.
            client.Call("m");
            socket.Say(Snapshot(1));
            client.Poll();
            Check.True(room.State == RoomState.Joined && room.Replica.Count == ObjectsMoved, "a room with objects");
            long idle = Measure(allocated, client, count => { });
            uint tick = 1;
            var frames = new byte[2 * Frames][];
            for (int count = 0; count < frames.Length; count += 1) frames[count] = Snapshot((uint)count + 2);
            long moving = Measure(allocated, client, count => socket.Say(frames[tick++ - 1]));
            Check.True(room.Replica.Tick == tick && room.Interpolation.Count == ObjectsMoved, "the snapshots were applied");
            Console.WriteLine("allocations: " + idle + " bytes in an idle frame, " + moving + " in one with a snapshot that moves " + ObjectsMoved + " objects");
            Check.True(idle == 0, idle + " bytes in an idle frame");
            Check.True(moving <= SnapshotBytesMax, moving + " bytes in a frame with a snapshot, which may have " + SnapshotBytesMax);
        }

        /// <summary>Bytes per frame, after as many frames that compile the code and fill the lists.</summary>
        private static long Measure(Func<long> allocated, RoomClient client, Action<int> prepare)
        {
            long bytes = 0;
            for (int count = 0; count < 2 * Frames; count += 1)
            {
                prepare(count);
                long before = allocated();
                client.Poll();
                if (count >= Frames) bytes += allocated() - before;
            }
            return bytes / Frames;
        }

        private static byte[] Reply(uint id, uint field, ProtobufWriter result)
        {
            return Framed(new ProtobufWriter().UInt64(1, id).Message(field, result.Finish()));
        }

        private static byte[] Framed(ProtobufWriter message)
        {
            return new ProtobufWriter().Framed(message.Finish()).Finish();
        }

        /// <summary>All objects move by a unit with each tick.</summary>
        private static byte[] Snapshot(uint tick)
        {
            var cell = new ProtobufWriter().UInt64(1, 1).UInt64(2, tick == 1 ? 1u : 0u);
            for (uint id = 1; id <= ObjectsMoved; id += 1)
            {
                cell.Message(4, new ProtobufWriter().UInt64(1, id).UInt64(2, 1).UInt64(3, tick % 256).UInt64(4, id).Bytes(5, new byte[] { 1, 2, 3 }).Finish());
            }
            var grid = new ProtobufWriter().UInt64(1, 4).UInt64(2, 4).UInt64(3, 256).UInt64(4, 4).UInt64(6, 1).UInt64(7, 60);
            var snapshot = new ProtobufWriter().UInt64(4, tick).UInt64(5, tick - 1);
            if (tick == 1) snapshot.Message(7, grid.Finish());
            snapshot.Message(9, cell.Finish());
            var publication = new ProtobufWriter().Bytes(4, snapshot.Finish());
            return Framed(new ProtobufWriter().Message(4, new ProtobufWriter().Text(2, Channel).Message(4, publication.Finish()).Finish()));
        }

        private sealed class QueuedSocket : IRoomSocket
        {
            internal readonly ConcurrentQueue<SocketMessage> Messages = new ConcurrentQueue<SocketMessage>();

            internal void Say(byte[] frame)
            {
                Messages.Enqueue(new SocketMessage { Kind = SocketMessageKind.Data, Data = frame });
            }

            public void Open(Uri url, string subprotocol)
            {
            }

            public void Send(byte[] data, bool isText)
            {
            }

            public bool TryReceive(out SocketMessage message)
            {
                return Messages.TryDequeue(out message);
            }

            public void Close()
            {
            }
        }
    }
}
