using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Text;

namespace Dunlin.Rooms.Tests
{
    /// <summary>The vectors that all languages share: schema/vectors/room.</summary>
    internal static class Vectors
    {
        private static readonly RoomEncoding[] Encodings = { RoomEncoding.Json, RoomEncoding.Protobuf };

        internal static void Run(string folder)
        {
            int count = 0;
            foreach (string name in new[] { "snapshots.json", "snapshots-lenient.json", "typed.json" })
            {
                foreach (JsonValue vector in Read(folder, name)["vectors"].Items) count += Snapshots(vector);
            }
            foreach (string name in new[] { "snapshots-malformed.json", "typed-malformed.json" }) count += Malformed(Read(folder, name));
            foreach (JsonValue vector in Read(folder, "inputs.json")["vectors"].Items) count += Input(vector);
            count += Movement.Run(Read(folder, "movement.json"));
            Console.WriteLine("vectors: " + count + " passed, 0 failed");
        }

        internal static JsonValue Read(string folder, string name)
        {
            return JsonValue.Parse(File.ReadAllText(Path.Combine(folder, name)));
        }

        private static int Snapshots(JsonValue vector)
        {
            int count = 0;
            foreach (RoomEncoding encoding in Encodings)
            {
                var replica = new Replica();
                foreach (JsonValue step in vector["steps"].Items)
                {
                    Func<Snapshot> form = Form(step, encoding);
                    if (form == null) continue;
                    replica.Apply(form());
                    Check.Equal(Shown(replica), Written(step["replica"]), vector["name"].Text + ", " + encoding);
                    count += 1;
                }
            }
            return count;
        }

        private static int Malformed(JsonValue file)
        {
            int count = 0;
            foreach (RoomEncoding encoding in Encodings)
            {
                foreach (JsonValue vector in file["vectors"].Items)
                {
                    Func<Snapshot> form = Form(vector, encoding);
                    if (form == null) continue;
                    string name = vector["name"].Text + ", " + encoding;
                    var replica = new Replica();
                    replica.Apply(Form(file["first"], encoding)());
                    string refusal = "nothing";
                    try
                    {
                        replica.Apply(form());
                    }
                    catch (RoomException error)
                    {
                        refusal = error.Kind.ToString();
                    }
                    Check.Equal(refusal, vector["error"].Text, name);
                    Check.Equal(Shown(replica), Written(file["replica"]), name);
                    count += 1;
                }
            }
            return count;
        }

        private static int Input(JsonValue vector)
        {
            JsonValue meaning = vector["meaning"];
            ulong number = 0;
            Check.True(meaning["number"] == null || meaning["number"].TryWhole(uint.MaxValue, out number), "a number");
            byte[] data = Unhex(TextOf(meaning["data"]));
            string room = TextOf(meaning["room"]);
            Check.Equal(Hex(Inputs.ToProtobuf((uint)number, data, room)), vector["protobuf"].Text, vector["name"].Text);
            string json = Inputs.ToJson((uint)number, data, room);
            Check.Equal(Compact(JsonValue.Parse(json)), Compact(JsonValue.Parse(vector["json"].Text)), vector["name"].Text);
            return 2;
        }

        private static string TextOf(JsonValue value)
        {
            return value == null ? "" : value.Text;
        }

        /// <summary>A function that reads a vector in an encoding; null if it does not apply to that encoding.</summary>
        internal static Func<Snapshot> Form(JsonValue vector, RoomEncoding encoding)
        {
            if (encoding == RoomEncoding.Protobuf)
            {
                if (vector["protobuf"] == null) return null;
                byte[] bytes = Unhex(vector["protobuf"].Text);
                return () => Snapshot.FromProtobuf(bytes);
            }
            if (vector["json_hex"] != null)
            {
                string text = Encoding.UTF8.GetString(Unhex(vector["json_hex"].Text));
                return () => Snapshot.FromJson(JsonValue.Parse(text));
            }
            if (vector["json"] == null) return null;
            string json = vector["json"].Text;
            return () => Snapshot.FromJson(JsonValue.Parse(json));
        }

        /// <summary>A replica in the form of <see cref="Written"/>: the fields of an object stand in the order of their names.</summary>
        internal static string Shown(Replica replica)
        {
            Grid grid = replica.Grid;
            var lines = new List<string>
            {
                replica.Tick + " " + replica.TimeUs + " " + replica.Ack + " " + replica.Avatar + " " + replica.View + " " + replica.RatePermille
                    + " " + string.Join(",", Enumerable.Range(0, 4).Select(zone => replica.Waited >> 4 * zone & 15)),
                grid.Columns + " " + grid.Rows + " " + grid.CellUnits + " " + grid.NearCells + " " + grid.FarCells + " "
                    + grid.FarIntervalTicks + " " + grid.TicksPerSecond,
            };
            lines.AddRange(replica.Objects.OrderBy(one => one.Id).Select(one =>
                one.Id + " " + one.Kind + " " + one.X + " " + one.Y + " " + Hex(one.State) + " " + (one.Cell == null ? "null" : one.Cell.ToString())
                    + (replica.Schema == null ? "" : " " + ShownFields(replica, one))));
            return string.Join("\n", lines);
        }

        /// <summary>In the vectors, fixed-point numbers are integers, as in JSON.</summary>
        private static string ShownFields(Replica replica, SeenObject one)
        {
            IReadOnlyDictionary<string, FieldValue> values = replica.Fields(one);
            if (values == null) return "null";
            return string.Join(" ", values.OrderBy(pair => pair.Key, StringComparer.Ordinal).Select(pair =>
            {
                long integer = 0;
                Field field = replica.Schema.Kind(one.Kind).Field(pair.Key);
                bool isInteger = field.Type == FieldType.Integer && replica.TryGetInteger(one, field, out integer);
                return pair.Key + "=" + (isInteger ? integer.ToString() : pair.Value.ToString());
            }));
        }

        private static string Written(JsonValue replica)
        {
            Func<JsonValue, string[], string> fields = (value, names) =>
                string.Join(" ", names.Select(name => value.Members[name].Kind == JsonKind.Null ? "null" : value.Members[name].Text));
            var lines = new List<string>
            {
                fields(replica, new[] { "tick", "time_us", "ack", "avatar", "view" }) + " " + (replica["rate"] == null ? "1000" : replica["rate"].Text)
                    + " " + (replica["waited"] == null ? "0,0,0,0" : string.Join(",", replica["waited"].Items.Select(ticks => ticks.Text))),
                fields(replica["grid"], new[] { "columns", "rows", "cell_units", "near_cells", "far_cells", "far_interval_ticks", "ticks_per_second" }),
            };
            lines.AddRange(replica["objects"].Items.Select(one =>
                fields(one, new[] { "id", "kind", "x", "y", "state", "cell" }) + (one.Members.ContainsKey("fields") ? " " + WrittenFields(one["fields"]) : "")));
            return string.Join("\n", lines);
        }

        private static string WrittenFields(JsonValue fields)
        {
            if (fields == null) return "null";
            return string.Join(" ", fields.Members.OrderBy(member => member.Key, StringComparer.Ordinal).Select(member => member.Key + "=" + member.Value));
        }

        private static string Compact(JsonValue value)
        {
            return string.Join(",", value.Members.OrderBy(member => member.Key, StringComparer.Ordinal).Select(member => member.Key + "=" + member.Value.Text));
        }

        internal static string Hex(byte[] bytes)
        {
            var digits = new StringBuilder(bytes.Length * 2);
            foreach (byte one in bytes) digits.Append("0123456789abcdef"[one >> 4]).Append("0123456789abcdef"[one & 15]);
            return digits.ToString();
        }

        internal static byte[] Unhex(string digits)
        {
            var bytes = new byte[digits.Length / 2];
            for (int at = 0; at < bytes.Length; at += 1) bytes[at] = Convert.ToByte(digits.Substring(at * 2, 2), 16);
            return bytes;
        }
    }
}
