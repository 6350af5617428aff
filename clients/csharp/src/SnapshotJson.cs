using System;
using System.Collections.Generic;

namespace Dunlin.Rooms
{
    /// <summary>Snapshots in JSON.</summary>
    internal static class SnapshotJson
    {
        /// <summary>The largest whole number that all JSON parsers keep exactly.</summary>
        private const ulong WholeMax = (1UL << 53) - 1;

        internal static Snapshot Read(JsonValue value)
        {
            RequireObject(value, "the snapshot");
            var snapshot = new Snapshot
            {
                Ack = UInt32(value, "ack"),
                Avatar = UInt32(value, "avatar"),
                Own = value["own"] == null ? null : ReadObjects(Required(value["own"], "own"), "objects"),
                Tick = UInt32(value, "tick"),
                Base = UInt32(value, "base"),
                TimeUs = Whole(value["time_us"], "time_us", WholeMax),
                RatePermille = value["rate"] == null ? Snapshot.FullRatePermille : UInt32(value, "rate"),
                Waited = UInt32(value, "waited"),
                HasMoved = Flag(value, "moved"),
                Grid = value["grid"] == null ? null : ReadGrid(value["grid"]),
                Schema = value["schema"] == null ? null : SchemaJson.Read(value["schema"]),
                View = UInt32(value, "view"),
            };
            foreach (JsonValue cell in List(value, "cells")) snapshot.Cells.Add(ReadCell(cell));
            return snapshot;
        }

        private static Grid ReadGrid(JsonValue value)
        {
            RequireObject(value, "the map");
            return new Grid(
                UInt32(value, "columns"), UInt32(value, "rows"), UInt32(value, "cell_units"), UInt32(value, "near_cells"),
                UInt32(value, "far_cells"), UInt32(value, "far_interval_ticks"), UInt32(value, "ticks_per_second"));
        }

        private static CellUpdate ReadCell(JsonValue value)
        {
            RequireObject(value, "a cell");
            var cell = new CellUpdate { Cell = UInt32(value, "cell"), Full = Flag(value, "full") };
            foreach (JsonValue id in List(value, "departed")) cell.Departed.Add((uint)Whole(id, "departed", uint.MaxValue));
            cell.Upserts.AddRange(ReadObjects(value, "upserts"));
            return cell;
        }

        private static List<RoomObject> ReadObjects(JsonValue value, string name)
        {
            var objects = new List<RoomObject>();
            foreach (JsonValue one in List(value, name))
            {
                RequireObject(one, "an object");
                JsonValue fields = one["fields"];
                if (fields != null) RequireObject(fields, "fields");
                if (fields != null && one["state"] != null) throw RoomException.Malformed("an object has fields and a state");
                objects.Add(new RoomObject
                {
                    Id = UInt32(one, "id"),
                    Kind = UInt32(one, "kind"),
                    X = UInt32(one, "x"),
                    Y = UInt32(one, "y"),
                    State = Bytes(one["state"]),
                    Fields = fields,
                });
            }
            return objects;
        }

        private static bool Flag(JsonValue value, string name)
        {
            JsonValue flag = value[name];
            if (flag != null && flag.Kind != JsonKind.Bool) throw RoomException.Malformed(name + " is neither true nor false");
            return flag != null && flag.IsTrue;
        }

        private static byte[] Bytes(JsonValue value)
        {
            if (value == null) return Snapshot.NoState;
            if (value.Kind != JsonKind.Text) throw RoomException.Malformed("state is no text");
            try
            {
                byte[] bytes = Convert.FromBase64String(value.Text);
                // The library accepts white space, and bits that belong to no byte.
                if (Convert.ToBase64String(bytes) == value.Text) return bytes;
            }
            catch (FormatException)
            {
            }
            throw RoomException.Malformed("state is no base64");
        }

        private static IReadOnlyList<JsonValue> List(JsonValue value, string name)
        {
            JsonValue list = value[name];
            if (list == null) return new JsonValue[0];
            if (list.Kind != JsonKind.Array) throw RoomException.Malformed(name + " is no array");
            return list.Items;
        }

        private static uint UInt32(JsonValue value, string name)
        {
            return (uint)Whole(value[name], name, uint.MaxValue);
        }

        private static ulong Whole(JsonValue value, string name, ulong most)
        {
            ulong number = 0;
            if (value != null && !value.TryWhole(most, out number)) throw RoomException.Malformed(name + " is no whole number up to " + most);
            return number;
        }

        private static JsonValue Required(JsonValue value, string what)
        {
            RequireObject(value, what);
            return value;
        }

        private static void RequireObject(JsonValue value, string what)
        {
            if (value.Kind != JsonKind.Object || value.HasNameTwice) throw RoomException.Malformed(what + " is no object, or has a name twice");
        }
    }
}
