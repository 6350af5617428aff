using System.Collections.Generic;

namespace Dunlin.Rooms
{
    /// <summary>Snapshots in Protobuf.</summary>
    internal static class SnapshotProtobuf
    {
        internal static Snapshot Read(ProtobufReader reader)
        {
            var snapshot = new Snapshot();
            while (!reader.IsDone)
            {
                uint tag = reader.Tag();
                switch (tag)
                {
                    case 1 << 3 | WireType.Fixed32: snapshot.Ack = reader.Fixed32(); break;
                    case 2 << 3 | WireType.Fixed32: snapshot.Avatar = reader.Fixed32(); break;
                    case 3 << 3 | WireType.Length: snapshot.Own = ReadOwn(reader.Inner()); break;
                    case 4 << 3 | WireType.Varint: snapshot.Tick = reader.UInt32(); break;
                    case 5 << 3 | WireType.Varint: snapshot.Base = reader.UInt32(); break;
                    case 6 << 3 | WireType.Fixed64: snapshot.TimeUs = reader.Fixed64(); break;
                    case 7 << 3 | WireType.Length: snapshot.Grid = ReadGrid(reader.Inner()); break;
                    case 8 << 3 | WireType.Varint: snapshot.View = reader.UInt32(); break;
                    case 9 << 3 | WireType.Length: snapshot.Cells.Add(ReadCell(reader.Inner())); break;
                    case 10 << 3 | WireType.Length: snapshot.Schema = Schema.FromDocument(reader.Inner()); break;
                    case 11 << 3 | WireType.Varint: snapshot.RatePermille = reader.UInt32(); break;
                    case 12 << 3 | WireType.Varint: snapshot.Waited = reader.UInt32(); break;
                    case 13 << 3 | WireType.Varint: snapshot.HasMoved = reader.Bool(); break;
                    default: reader.SkipUnknown(tag, 13); break;
                }
            }
            return snapshot;
        }

        private static List<RoomObject> ReadOwn(ProtobufReader reader)
        {
            var objects = new List<RoomObject>();
            while (!reader.IsDone)
            {
                uint tag = reader.Tag();
                if (tag == (1 << 3 | WireType.Length)) objects.Add(ReadObject(reader.Inner()));
                else reader.SkipUnknown(tag, 1);
            }
            return objects;
        }

        private static Grid ReadGrid(ProtobufReader reader)
        {
            var numbers = new uint[8];
            while (!reader.IsDone)
            {
                uint tag = reader.Tag();
                if (tag >> 3 <= 7 && (tag & 7) == WireType.Varint) numbers[tag >> 3] = reader.UInt32();
                else reader.SkipUnknown(tag, 7);
            }
            return new Grid(numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], numbers[6], numbers[7]);
        }

        private static CellUpdate ReadCell(ProtobufReader reader)
        {
            var cell = new CellUpdate();
            while (!reader.IsDone)
            {
                uint tag = reader.Tag();
                switch (tag)
                {
                    case 1 << 3 | WireType.Varint: cell.Cell = reader.UInt32(); break;
                    case 2 << 3 | WireType.Varint: cell.Full = reader.Bool(); break;
                    case 3 << 3 | WireType.Length:
                        ProtobufReader packed = reader.Inner();
                        while (!packed.IsDone) cell.Departed.Add(packed.UInt32());
                        break;
                    case 3 << 3 | WireType.Varint: cell.Departed.Add(reader.UInt32()); break;
                    case 4 << 3 | WireType.Length: cell.Upserts.Add(ReadObject(reader.Inner())); break;
                    case 5 << 3 | WireType.Length: cell.Changes = reader.Bytes(); break;
                    default: reader.SkipUnknown(tag, 5); break;
                }
            }
            if (cell.Changes != null && cell.Changes.Length == 0) cell.Changes = null;
            return cell;
        }

        private static RoomObject ReadObject(ProtobufReader reader)
        {
            var made = new RoomObject { State = Snapshot.NoState };
            while (!reader.IsDone)
            {
                uint tag = reader.Tag();
                switch (tag)
                {
                    case 1 << 3 | WireType.Varint: made.Id = reader.UInt32(); break;
                    case 2 << 3 | WireType.Varint: made.Kind = reader.UInt32(); break;
                    case 3 << 3 | WireType.Varint: made.X = reader.UInt32(); break;
                    case 4 << 3 | WireType.Varint: made.Y = reader.UInt32(); break;
                    case 5 << 3 | WireType.Length: made.State = reader.Bytes(); break;
                    default: reader.SkipUnknown(tag, 5); break;
                }
            }
            return made;
        }
    }
}
