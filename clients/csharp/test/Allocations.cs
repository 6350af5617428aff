using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.Reflection;
using System.Text;

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

        /// <summary>Of a change with fields: the new object has 48 bytes, its state of 4 bytes has 32, and its bits have fewer than 8.</summary>
        private const long ChangeBytesMax = 48 + 32 + 8;

        private static readonly byte[] Schema = Encoding.ASCII.GetBytes("{\"kinds\":[{\"kind\":1,\"name\":\"Runner\",\"fields\":["
            + "{\"name\":\"heading\",\"type\":\"integer\",\"bytes\":1,\"min\":0,\"max\":255,\"motion\":\"angle\"},"
            + "{\"name\":\"light\",\"type\":\"choice\",\"names\":[\"Red\",\"Green\"]},"
            + "{\"name\":\"path\",\"type\":\"list\",\"bytes\":1,\"min\":0,\"max\":255,\"count_min\":2,\"count_max\":2}]}]}");

        internal static void Run()
        {
            MethodInfo method = typeof(GC).GetMethod("GetAllocatedBytesForCurrentThread");
            Check.True(method != null, "`allocations` runs on .NET Core");
            var allocated = (Func<long>)Delegate.CreateDelegate(typeof(Func<long>), method);
            QueuedSocket socket;
            RoomClient client = Client(ObjectsMoved, false, out socket);
            long idle = Measure(allocated, client, count => { });
            long moving = Moving(allocated, ObjectsMoved, false);
            // The lists of changes of 17 and of 32 objects have the same capacity.
            long change = (Moving(allocated, 32, true) - Moving(allocated, 17, true)) / 15;
            long read = Reading(allocated, 1000);
            Console.WriteLine("allocations: " + idle + " bytes in an idle frame, " + moving + " in one with a snapshot that moves " + ObjectsMoved
                + " objects, " + change + " per object that changes with fields, " + read + " to read the fields of 1,000");
            Check.True(idle == 0, idle + " bytes in an idle frame");
            Check.True(moving <= SnapshotBytesMax, moving + " bytes in a frame with a snapshot, which may have " + SnapshotBytesMax);
            Check.True(change <= ChangeBytesMax, change + " bytes for a change, which may have " + ChangeBytesMax);
            Check.True(read == 0, read + " bytes to read fields");
        }

        /// <summary>A client in a room with objects. The lobby's reply and that to a call are still awaited.</summary>
        private static RoomClient Client(int objects, bool isTyped, out QueuedSocket socket)
        {
            var made = new QueuedSocket();
            socket = made;
            var client = new RoomClient(new Uri("ws://localhost/"), new RoomClientOptions { NewSocket = () => made });
            Room room = client.Room(Channel, new RoomOptions { Typed = isTyped });
            client.Subscription("lobby").Subscribe();
            room.Join();
            client.Connect();
            socket.Messages.Enqueue(new SocketMessage { Kind = SocketMessageKind.Opened });
            client.Poll();
            socket.Say(Reply(1, 5, new ProtobufWriter()));
            client.Poll();
            socket.Say(Reply(2, 6, new ProtobufWriter()));
            client.Call("m");
            socket.Say(Snapshot(1, objects, isTyped));
            client.Poll();
            Check.True(room.State == RoomState.Joined && room.Replica.Count == objects, "a room with objects");
            return client;
        }

        /// <summary>Bytes of a frame with a snapshot in which all objects change.</summary>
        private static long Moving(Func<long> allocated, int objects, bool isTyped)
        {
            QueuedSocket socket;
            RoomClient client = Client(objects, isTyped, out socket);
            Room room = client.Room(Channel);
            uint tick = 1;
            var frames = new byte[2 * Frames][];
            for (int count = 0; count < frames.Length; count += 1) frames[count] = Snapshot((uint)count + 2, objects, isTyped);
            long bytes = Measure(allocated, client, count => socket.Say(frames[tick++ - 1]));
            SeenObject last = room.Replica.Object((uint)objects);
            Check.True(room.Replica.Tick == tick && room.Interpolation.Count == objects && last.X == 256 + tick % 256 && last.State[0] == (byte)tick, "the snapshots were applied");
            return bytes;
        }

        /// <summary>Bytes to read the fields of objects as they are, and as they are shown.</summary>
        private static long Reading(Func<long> allocated, int objects)
        {
            QueuedSocket socket;
            RoomClient client = Client(objects, true, out socket);
            socket.Say(Snapshot(2, objects, true));
            client.Poll();
            Room room = client.Room(Channel);
            Kind kind = room.Replica.Schema.Kind(1);
            Field heading = kind.Field("heading");
            Field light = kind.Field("light");
            Field path = kind.Field("path");
            var elements = new List<long>();
            long bytes = 0;
            // The first round compiles the code, and fills the list.
            for (int round = 0; round < 2; round += 1)
            {
                long before = allocated();
                foreach (SeenObject one in room.Replica.Objects)
                {
                    long integer;
                    double shown;
                    string name;
                    bool isRead = room.Replica.TryGetInteger(one, heading, out integer) && integer == 2 && room.Replica.TryGetText(one, light, out name)
                        && room.Replica.TryGetList(one, path, elements) && elements.Count == 2 && room.Interpolation.TryField(one.Id, heading, 1.5, out shown) && shown == 1.5;
                    if (!isRead) throw new CheckException("the fields of object " + one.Id);
                }
                bytes = allocated() - before;
            }
            return bytes;
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

        /// <summary>All objects move by a unit with each tick. With fields, they also turn by a step.</summary>
        private static byte[] Snapshot(uint tick, int objects, bool isTyped)
        {
            var cell = new ProtobufWriter().UInt64(1, 1).UInt64(2, tick == 1 ? 1u : 0u);
            if (isTyped && tick > 1) cell.Bytes(5, Turns(tick, objects));
            for (uint id = 1; id <= objects && (!isTyped || tick == 1); id += 1)
            {
                byte[] state = isTyped ? new byte[] { (byte)tick, 1, 3, 4 } : new byte[] { (byte)tick, 2, 3 };
                cell.Message(4, new ProtobufWriter().UInt64(1, id).UInt64(2, 1).UInt64(3, tick % 256).UInt64(4, id % 256).Bytes(5, state).Finish());
            }
            var grid = new ProtobufWriter().UInt64(1, 4).UInt64(2, 4).UInt64(3, 256).UInt64(4, 4).UInt64(6, 1).UInt64(7, 60);
            var snapshot = new ProtobufWriter().UInt64(4, tick).UInt64(5, tick - 1);
            if (tick == 1) snapshot.Message(7, grid.Finish());
            if (isTyped && tick == 1) snapshot.Bytes(10, Schema);
            snapshot.Message(9, cell.Finish());
            var publication = new ProtobufWriter().Bytes(4, Timed(tick, snapshot.Finish()));
            return Framed(new ProtobufWriter().Message(4, new ProtobufWriter().Text(2, Channel).Message(4, publication.Finish()).Finish()));
        }

        /// <summary>A snapshot with its <c>time_us</c>: ticks of a millisecond.</summary>
        private static byte[] Timed(uint tick, byte[] snapshot)
        {
            var timed = new byte[snapshot.Length + 9];
            timed[0] = 6 << 3 | 1;
            BitConverter.GetBytes(tick * 1000UL).CopyTo(timed, 1);
            snapshot.CopyTo(timed, 9);
            return timed;
        }

        /// <summary>The changes of all objects: their positions and headings, as whole values.</summary>
        private static byte[] Turns(uint tick, int objects)
        {
            BitWriter bits = new BitWriter().Count(objects);
            for (uint id = 1; id <= objects; id += 1)
            {
                bits.Count(0); // the next id
                if (id == 1) bits.Put(0, 1).Put(3, 4); // a set of its own: the position and the first of three fields
                else bits.Put(1, 1); // the set of the object before
                bits.Put(3, 2).Put(tick % 256, 8).Put(id % 256, 8).Put(tick % 256, 8);
            }
            return bits.Finish();
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
