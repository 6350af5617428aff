using System.Collections.Generic;

namespace Dunlin.Rooms
{
    /// <summary>An object of a snapshot. <c>X</c> and <c>Y</c> are relative to the cell's corner; in the part for one player, to the map's.</summary>
    public struct RoomObject
    {
        public uint Id;
        public uint Kind;
        public uint X;
        public uint Y;
        /// <summary>In the game's own format.</summary>
        public byte[] State;
        /// <summary>In a JSON session with fields: their values, instead of the state; otherwise null.</summary>
        public JsonValue Fields;
    }

    /// <summary>What changed in a cell.</summary>
    public sealed class CellUpdate
    {
        public uint Cell;
        /// <summary>Everything in the cell is in <see cref="Upserts"/>.</summary>
        public bool Full;
        public readonly List<uint> Departed = new List<uint>();
        public readonly List<RoomObject> Upserts = new List<RoomObject>();
        /// <summary>In a Protobuf session with fields: the changes of objects that the client has in the cell, in bits; null for none.</summary>
        public byte[] Changes;
    }

    /// <summary>What a player sees after a tick, as a room sends it: <c>schema/room.proto</c>.</summary>
    public sealed class Snapshot
    {
        internal const uint KindMax = 0xffff;
        /// <summary>The rate of a room that runs in real time.</summary>
        internal const uint FullRatePermille = 1000;
        internal static readonly byte[] NoState = new byte[0];

        /// <summary>The number of the last input that the room had applied.</summary>
        public uint Ack;
        /// <summary>The id of the player's own object; 0 for none.</summary>
        public uint Avatar;
        /// <summary>Objects that only this player receives; null if they did not change.</summary>
        public List<RoomObject> Own;
        public uint Tick;
        /// <summary>The tick that this builds on; 0: everything that is seen is in it.</summary>
        public uint Base;
        /// <summary>Unix time in microseconds, on the server's clock.</summary>
        public ulong TimeUs;
        /// <summary>The rate of the room's clock at this tick, in thousandths: 1,000 is real time. An overloaded room runs slower.</summary>
        public uint RatePermille = FullRatePermille;
        /// <summary>The waits of the zones of the view as one number; 0 if no cells have waited for a bandwidth limit.</summary>
        public uint Waited;
        /// <summary>Whether the room has moved to another node since the last snapshot. This one is full.</summary>
        public bool HasMoved;
        /// <summary>Null if it is the map of the base.</summary>
        public Grid Grid;
        /// <summary>What the states are made of, in the first snapshot of a client that asked for fields; otherwise null.</summary>
        public Schema Schema;
        public uint View;
        public readonly List<CellUpdate> Cells = new List<CellUpdate>();

        /// <summary>Reads the <c>data</c> of a publication in a Protobuf session.</summary>
        /// <exception cref="RoomException">and no other, whatever the bytes are.</exception>
        public static Snapshot FromProtobuf(byte[] bytes)
        {
            return FromProtobuf(new ProtobufReader(bytes, 0, bytes.Length));
        }

        internal static Snapshot FromProtobuf(ProtobufReader reader)
        {
            return Checked(SnapshotProtobuf.Read(reader));
        }

        /// <summary>Reads the <c>data</c> of a publication in a JSON session.</summary>
        /// <exception cref="RoomException">and no other, whatever the value is.</exception>
        public static Snapshot FromJson(JsonValue value)
        {
            return Checked(SnapshotJson.Read(value));
        }

        /// <summary>
        /// By how many ticks before the base the client's cells of a zone were sent last. Returns false if the snapshot does not say.
        /// </summary>
        internal bool TryWait(uint zone, out uint ticks)
        {
            ticks = Waited >> (int)(4 * zone) & 15;
            return Waited != 0;
        }

        private static Snapshot Checked(Snapshot snapshot)
        {
            if (snapshot.Tick == 0) throw RoomException.Malformed("it has no tick");
            if (snapshot.Base > snapshot.Tick) throw RoomException.Malformed("it builds on a later tick");
            if (snapshot.RatePermille < 1 || snapshot.RatePermille > FullRatePermille)
            {
                throw RoomException.Malformed("a rate of " + snapshot.RatePermille + " thousandths");
            }
            if (snapshot.Base == 0 && snapshot.Grid == null) throw RoomException.Malformed("a full snapshot lacks the map");
            if (snapshot.Own != null) foreach (RoomObject one in snapshot.Own) Check(one);
            foreach (CellUpdate cell in snapshot.Cells)
            {
                if (cell.Departed.Contains(0)) throw RoomException.Malformed("an object without an id departed");
                foreach (RoomObject one in cell.Upserts) Check(one);
            }
            return snapshot;
        }

        private static void Check(RoomObject one)
        {
            if (one.Id == 0) throw RoomException.Malformed("an object has no id");
            if (one.Kind > KindMax) throw RoomException.Malformed("object " + one.Id + " is of kind " + one.Kind);
        }
    }
}
