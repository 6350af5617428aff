using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Text;

namespace Dunlin.Rooms.Tests
{
    /// <summary>Schemas, the values of fields, and damaged snapshots with fields.</summary>
    internal static class Fields
    {
        private const string Grid = "\"grid\":{\"columns\":2,\"rows\":2,\"cell_units\":100,\"near_cells\":9,\"far_interval_ticks\":1,\"ticks_per_second\":60}";

        private const string Walker = "{\"kind\":1,\"name\":\"Walker\",\"fields\":["
            + "{\"name\":\"heading\",\"type\":\"integer\",\"bytes\":1,\"min\":0,\"max\":255,\"motion\":\"angle\"},"
            + "{\"name\":\"turn\",\"type\":\"integer\",\"bytes\":2,\"min\":-180,\"max\":179,\"motion\":\"angle\"},"
            + "{\"name\":\"speed\",\"type\":\"integer\",\"bytes\":2,\"min\":-300,\"max\":300,\"per_unit\":10,\"motion\":\"linear\"},"
            + "{\"name\":\"score\",\"type\":\"integer\",\"bytes\":1,\"min\":0,\"max\":99},"
            + "{\"name\":\"light\",\"type\":\"choice\",\"names\":[\"Red\",\"Green\"]},"
            + "{\"name\":\"is_on\",\"type\":\"flag\"},"
            + "{\"name\":\"target\",\"type\":\"object\"},"
            + "{\"name\":\"path\",\"type\":\"list\",\"bytes\":1,\"min\":-5,\"max\":5,\"count_min\":0,\"count_max\":3},"
            + "{\"name\":\"name\",\"type\":\"text\",\"count_max\":6}]}";

        internal static void Run(string folder)
        {
            var tests = new Dictionary<string, Action>
            {
                { "a schema is possible, or refused", Schemas },
                { "a schema is refused as by the server", () => SchemaVectors(folder) },
                { "a schema has so many bytes, and no more", SchemaBytes },
                { "a schema is UTF-8", SchemaText },
                { "values are read by name and by handle", Values },
                { "a handle is of its kind and its schema", Handles },
                { "a state has one form", Forms },
                { "values in JSON are of their types", JsonValues },
                { "changes build on what is in the cell", BitsOfChanges },
                { "changes end at the limit of bytes", LongChanges },
                { "fields move as their motion says", Motions },
                { "damaged snapshots are refused with a RoomException", () => Damage(Vectors.Read(folder, "typed.json")) },
                { "damaged snapshots in JSON are refused with a RoomException", () => DamageJson(Vectors.Read(folder, "typed.json")) },
            };
            foreach (KeyValuePair<string, Action> test in tests)
            {
                try
                {
                    test.Value();
                }
                catch (CheckException error)
                {
                    throw new CheckException(test.Key + ": " + error.Message);
                }
            }
            Console.WriteLine("fields: " + tests.Count + " passed, 0 failed");
        }

        private static string Integer(int bytes, long min, long max, string more = "")
        {
            return "{\"name\":\"n\",\"type\":\"integer\",\"bytes\":" + bytes + ",\"min\":" + min + ",\"max\":" + max + more + "}";
        }

        private static string OfKind(int number, params string[] fields)
        {
            return "{\"kind\":" + number + ",\"name\":\"K\",\"fields\":[" + string.Join(",", fields) + "]}";
        }

        private static string[] Flags(int count)
        {
            return Enumerable.Range(0, count).Select(number => "{\"name\":\"" + number + "\",\"type\":\"flag\"}").ToArray();
        }

        private static string Document(params string[] kinds)
        {
            return "{\"kinds\":[" + string.Join(",", kinds) + "]}";
        }

        private static string Sequence(string type, string more)
        {
            return "{\"name\":\"s\",\"type\":\"" + type + "\"," + more + "}";
        }

        private static string Choice(int count)
        {
            return "{\"name\":\"c\",\"type\":\"choice\",\"names\":[" + string.Join(",", Enumerable.Repeat("\"n\"", count)) + "]}";
        }

        private const string OfBytes = "\"bytes\":1,\"min\":0,\"max\":9,";

        private static readonly string[] PossibleSchemas =
        {
            Document(), Document(OfKind(65535, Flags(62))), "{\"kinds\":[],\"later\":[{}]}",
            Document(Enumerable.Range(0, 256).Select(number => OfKind(number, Flags(1))).ToArray()),
        };

        private static readonly string[] PossibleFields =
        {
            Integer(1, 0, 255), Integer(1, -128, 127), Integer(2, 0, 65535), Integer(2, -32768, 32767), Integer(4, 0, 4294967295),
            Integer(4, -2147483648, 2147483647), Integer(1, 7, 7), Integer(1, 0, 255, ",\"delta_bits\":7"), Integer(1, 0, 5, ",\"optional\":true"),
            Integer(1, 0, 5, ",\"per_unit\":4294967295"), Integer(1, 0, 5, ",\"motion\":\"linear\",\"unknown\":1"), Choice(1), Choice(256),
            Sequence("text", "\"count_max\":1024"), Sequence("text", "\"count_max\":1,\"optional\":true"),
            Sequence("list", OfBytes + "\"count_min\":1024,\"count_max\":1024"),
        };

        private static readonly string[] WrongSchemas =
        {
            "[]", "null", "7", "{}", "{\"kinds\":{}}", "{\"kinds\":[7]}", "{\"kinds\":[],\"kinds\":[]}",
            Document(Enumerable.Range(0, 257).Select(number => OfKind(number, Flags(1))).ToArray()),
            Document(OfKind(1, Flags(1)), OfKind(1, Flags(1))), Document(OfKind(65536, Flags(1))), Document(OfKind(-1, Flags(1))),
            Document(OfKind(1)), Document(OfKind(1, Flags(63))), Document(OfKind(1, Flags(1)[0], Flags(1)[0])),
            Document("{\"kind\":1,\"fields\":[" + Flags(1)[0] + "]}"), Document("{\"name\":\"K\",\"fields\":[" + Flags(1)[0] + "]}"),
            Document("{\"kind\":1,\"name\":\"K\"}"), Document(OfKind(1, Integer(1, 0, 5, ",\"optional\":true"), Integer(1, 1, 5).Replace("\"n\"", "\"m\""))),
        };

        private static readonly string[] WrongFields =
        {
            "7", "{\"type\":\"flag\"}", "{\"name\":7,\"type\":\"flag\"}", "{\"name\":\"n\"}", "{\"name\":\"n\",\"type\":\"number\"}",
            "{\"name\":\"n\",\"name\":\"n\",\"type\":\"flag\"}", Integer(1, 0, 256), Integer(1, -129, 0), Integer(1, -1, 128), Integer(2, 0, 65536),
            Integer(4, 0, 4294967296), Integer(4, -2147483649, 0), Integer(4, -1, 2147483648), Integer(4, long.MinValue, long.MaxValue),
            Integer(0, 0, 0), Integer(3, 0, 1), Integer(8, 0, 1), Integer(1, 2, 1),
            "{\"name\":\"n\",\"type\":\"integer\",\"bytes\":1}", "{\"name\":\"n\",\"type\":\"integer\",\"min\":0,\"max\":1}",
            Integer(1, 0, 1).Replace("\"max\":1", "\"max\":1.5"), Integer(1, 0, 1).Replace("\"max\":1", "\"max\":1e1"),
            Integer(1, 0, 1).Replace("\"max\":1", "\"max\":9223372036854775808"), Integer(1, 0, 1).Replace("\"max\":1", "\"max\":\"1\""),
            Integer(1, 0, 255, ",\"delta_bits\":8"), Integer(1, 0, 255, ",\"delta_bits\":256"), Integer(1, 7, 7, ",\"delta_bits\":1"),
            "{\"name\":\"n\",\"type\":\"flag\",\"delta_bits\":1}", Integer(1, 0, 255, ",\"per_unit\":0"), Integer(1, 0, 255, ",\"per_unit\":4294967296"),
            Integer(1, 0, 255, ",\"motion\":\"Step\""), Integer(1, 0, 255, ",\"motion\":1"), Integer(1, 1, 5, ",\"optional\":true"),
            Integer(1, -5, -1, ",\"optional\":true"), Integer(1, 0, 5, ",\"optional\":1"), Choice(0), Choice(257), "{\"name\":\"c\",\"type\":\"choice\"}",
            "{\"name\":\"c\",\"type\":\"choice\",\"names\":[1]}", "{\"name\":\"c\",\"type\":\"choice\",\"names\":\"n\"}",
            Sequence("text", "\"count_max\":0"), Sequence("text", "\"count_max\":1025"), "{\"name\":\"s\",\"type\":\"text\"}",
            Sequence("list", OfBytes + "\"count_max\":2"), Sequence("list", OfBytes + "\"count_min\":0,\"count_max\":1025"),
            Sequence("list", OfBytes + "\"count_min\":3,\"count_max\":2"), Sequence("list", OfBytes + "\"count_min\":0,\"count_max\":0"),
            Sequence("list", "\"count_min\":0,\"count_max\":2"), Sequence("list", "\"bytes\":1,\"min\":2,\"max\":1,\"count_min\":0,\"count_max\":2"),
            Sequence("list", OfBytes + "\"count_min\":1,\"count_max\":2,\"optional\":true"),
        };

        private static void Schemas()
        {
            Func<IEnumerable<string>, IEnumerable<string>> documents = fields => fields.Select(field => Document(OfKind(1, field)));
            foreach (string document in PossibleSchemas.Concat(documents(PossibleFields)))
            {
                Check.Equal(Refusal(() => Schema.FromDocument(Encoding.UTF8.GetBytes(document))), "", document);
            }
            foreach (string document in WrongSchemas.Concat(documents(WrongFields)))
            {
                Check.Equal(Refusal(() => Schema.FromDocument(Encoding.UTF8.GetBytes(document))), "Malformed", document);
                string json = "{\"tick\":1," + Grid + ",\"schema\":" + document + "}";
                if (document != "null") Check.Equal(Refusal(() => Snapshot.FromJson(JsonValue.Parse(json))), "Malformed", json);
            }
        }

        private static void SchemaBytes()
        {
            // Of a kind whose name fills the document.
            string empty = Document(OfKind(1, Flags(1)));
            foreach (int bytes in new[] { 65536, 65537 })
            {
                string document = empty.Replace("\"K\"", "\"" + new string('k', bytes - empty.Length + 1) + "\"");
                string outcome = bytes == 65536 ? "" : "Malformed";
                Check.Equal(Refusal(() => Schema.FromDocument(Encoding.UTF8.GetBytes(document))), outcome, bytes + " bytes");
                Check.Equal(Refusal(() => Snapshot.FromJson(JsonValue.Parse("{\"tick\":1," + Grid + ",\"schema\":" + document + "}"))), outcome, bytes + " bytes in JSON");
            }
        }

        private static void SchemaVectors(string folder)
        {
            // Of the text, because a JsonValue is not written.
            string[] lines = File.ReadAllLines(Path.Combine(folder, "schemas.json")).Where(one => one.Contains("\"document\"")).ToArray();
            Check.True(lines.Length == Vectors.Read(folder, "schemas.json")["vectors"].Items.Count, "a vector is not a line");
            foreach (string line in lines)
            {
                const string Begin = ",\"document\":";
                JsonValue vector = JsonValue.Parse(line.Trim().TrimEnd(','));
                int from = line.IndexOf(Begin, StringComparison.Ordinal) + Begin.Length;
                string document = line.Substring(from, line.LastIndexOf(",\"error\"", StringComparison.Ordinal) - from);
                string error = vector["error"] == null || vector["error"].Kind != JsonKind.Text ? "" : "Malformed";
                Check.Equal(Refusal(() => Schema.FromDocument(Encoding.UTF8.GetBytes(document))), error, vector["name"].Text);
            }
        }

        private static void SchemaText()
        {
            byte[] document = Encoding.UTF8.GetBytes(Document(OfKind(1, "{\"name\":\"ä\",\"type\":\"flag\"}")));
            Check.True(Schema.FromDocument(document).Kinds[0].Field("ä") != null, "a name of two bytes");
            document[Array.IndexOf(document, (byte)0xc3)] = 0xff;
            Check.Equal(Refusal(() => Schema.FromDocument(document)), "Malformed", "a byte that is no UTF-8");
            Check.Equal(Refusal(() => Schema.FromDocument(new byte[0])), "Malformed", "nothing");
        }

        /// <summary>Heading, turn, speed, score, light, is_on, target, the length of path, path, name.</summary>
        private static byte[] WalkerState(int heading, int turn, int speed, int score)
        {
            return new byte[] { (byte)heading, (byte)turn, (byte)(turn >> 8), (byte)speed, (byte)(speed >> 8), (byte)score, 1, 1, 7, 0, 0, 0, 2, 0xfb, 5, 0xc3, 0xa4 };
        }

        private static Snapshot At(uint tick, uint x, byte[] state)
        {
            string schema = tick > 1 ? "" : "," + Grid + ",\"schema\":" + Document(Walker);
            return Snapshot.FromJson(JsonValue.Parse("{\"tick\":" + tick + ",\"base\":" + (tick - 1) + ",\"time_us\":" + tick * 100000 + schema
                + ",\"cells\":[{\"cell\":0,\"upserts\":[{\"id\":1,\"kind\":1,\"x\":" + x + ",\"state\":\"" + Convert.ToBase64String(state) + "\"}]}]}"));
        }

        private static void Values()
        {
            var replica = new Replica();
            replica.Apply(At(1, 0, WalkerState(200, -180, -25, 99)));
            SeenObject one = replica.Object(1);
            Check.Equal(string.Join(" ", replica.Fields(one).Values), "200 -180 -2.5 99 \"Green\" true 7 [-5,5] \"ä\"", "all values");
            Kind kind = replica.Schema.Kind(1);
            long integer;
            double number;
            string text;
            var list = new List<long> { 1, 2, 3 };
            Check.True(kind.Field("unknown") == null && replica.Schema.Kind(2) == null, "what is not there");
            Check.True(replica.TryGetInteger(one, kind.Field("speed"), out integer) && integer == -25, "speed " + integer);
            Check.True(replica.TryGetNumber(one, kind.Field("speed"), out number) && number == -2.5, "speed " + number);
            Check.True(replica.TryGetInteger(one, kind.Field("is_on"), out integer) && integer == 1, "is_on " + integer);
            Check.True(replica.TryGetInteger(one, kind.Field("target"), out integer) && integer == 7, "target " + integer);
            Check.True(replica.TryGetText(one, kind.Field("light"), out text) && text == "Green", "light " + text);
            Check.True(replica.TryGetText(one, kind.Field("name"), out text) && text == "ä", "name " + text);
            Check.True(replica.TryGetList(one, kind.Field("path"), list) && list.SequenceEqual(new long[] { -5, 5 }), "path " + string.Join(" ", list));
            foreach (Field field in kind.Fields)
            {
                bool isNumber = field.Type != FieldType.Text && field.Type != FieldType.List;
                Check.True(replica.TryGetInteger(one, field, out integer) == isNumber, "the number of " + field.Name);
                Check.True(replica.TryGetText(one, field, out text) == (field.Type == FieldType.Text || field.Type == FieldType.Choice), "the text of " + field.Name);
                Check.True(replica.TryGetList(one, field, list) == (field.Type == FieldType.List), "the list of " + field.Name);
            }
        }

        private static void Handles()
        {
            var replica = new Replica();
            replica.Apply(At(1, 0, WalkerState(200, 0, 0, 0)));
            Field heading = replica.Schema.Kind(1).Field("heading");
            long value;
            replica.Clear();
            Check.True(replica.Schema == null, "the schema is of a join");
            replica.Apply(At(1, 0, WalkerState(201, 0, 0, 0)));
            Check.True(replica.TryGetInteger(replica.Object(1), heading, out value) && value == 201, "the handle is valid after another join");
            replica.Clear();
            replica.Apply(Snapshot.FromJson(JsonValue.Parse("{\"tick\":1," + Grid + ",\"schema\":" + Document(Walker.Replace("heading", "other"))
                + ",\"cells\":[{\"upserts\":[{\"id\":1,\"kind\":1,\"state\":\"" + Convert.ToBase64String(WalkerState(202, 0, 0, 0)) + "\"}]}]}")));
            Check.True(!replica.TryGetInteger(replica.Object(1), heading, out value), "another schema has other handles");
            Check.True(!replica.TryGetInteger(replica.Object(1), null, out value), "a field that the schema does not have");
            Check.True(replica.TryGetInteger(replica.Object(1), replica.Schema.Kind(1).Field("other"), out value) && value == 202, "its own handle");
        }

        private static void Forms()
        {
            string bag = OfKind(1, Integer(1, 0, 9), "{\"name\":\"o\",\"type\":\"integer\",\"bytes\":1,\"min\":0,\"max\":9,\"optional\":true}",
                Sequence("list", "\"bytes\":2,\"min\":0,\"max\":300,\"count_min\":0,\"count_max\":2"));
            var forms = new Dictionary<string, string>
            {
                { "03", "3 0 []" }, { "0304", "3 4 []" }, { "03002c01", "3 0 [300]" }, { "030101000200", "3 1 [1,2]" }, { "030000000000", "3 0 [0,0]" },
                // 0 written out; values, lengths and ends that are not possible.
                { "0300", "" }, { "0a", "" }, { "030a", "" }, { "03002d01", "" }, { "0301010002000300", "" }, { "030101", "" }, { "", "" },
            };
            TestForms(bag, forms);
            string pair = OfKind(1, Sequence("list", "\"bytes\":1,\"min\":0,\"max\":9,\"count_min\":2,\"count_max\":3"), Integer(1, 0, 9));
            TestForms(pair, new Dictionary<string, string> { { "02010203", "[1,2] 3" }, { "0301020304", "[1,2,3] 4" }, { "010103", "" }, { "040102030405", "" }, { "02010a03", "" } });
        }

        private static void TestForms(string kind, Dictionary<string, string> forms)
        {
            foreach (KeyValuePair<string, string> form in forms)
            {
                var replica = new Replica();
                replica.Apply(Snapshot.FromJson(JsonValue.Parse("{\"tick\":1," + Grid + ",\"schema\":" + Document(kind)
                    + ",\"cells\":[{\"upserts\":[{\"id\":1,\"kind\":1,\"state\":\"" + Convert.ToBase64String(Vectors.Unhex(form.Key)) + "\"}]}]}")));
                IReadOnlyDictionary<string, FieldValue> values = replica.Fields(replica.Object(1));
                long value;
                Check.Equal(values == null ? "" : string.Join(" ", values.Values), form.Value, "the state " + form.Key);
                Check.True(replica.TryGetInteger(replica.Object(1), replica.Schema.Kind(1).Field("n"), out value) == (values != null), "a handle for the state " + form.Key);
            }
        }

        /// <summary>An object that turns in degrees and in steps, and one with an object and a flag.</summary>
        private static readonly string Turners = Document(
            OfKind(1, Integer(1, 0, 255, ",\"delta_bits\":4,\"motion\":\"angle\""), Integer(2, -180, 179, ",\"delta_bits\":5,\"motion\":\"angle\"").Replace("\"n\"", "\"m\"")),
            OfKind(2, "{\"name\":\"target\",\"type\":\"object\"}", Flags(1)[0]));

        /// <summary>What the changes of cell 0 make of its objects, or how they are refused.</summary>
        private static string Changed(BitWriter bits)
        {
            Func<uint, int, string, string> one = (id, kind, state) =>
                "{\"id\":" + id + ",\"kind\":" + kind + ",\"x\":9,\"state\":\"" + Convert.ToBase64String(Vectors.Unhex(state)) + "\"}";
            var replica = new Replica();
            replica.Apply(Snapshot.FromJson(JsonValue.Parse("{\"tick\":1," + Grid + ",\"schema\":" + Turners + ",\"cells\":[{\"upserts\":["
                + one(1, 1, "ff4cff") + "," + one(2, 2, "0000000000") + "," + one(4, 1, "00000000") + "," + one(uint.MaxValue, 2, "0000000001")
                + "]},{\"cell\":1,\"upserts\":[" + one(3, 1, "000000") + "]}]}")));
            string shown = Vectors.Shown(replica);
            var snapshot = new Snapshot { Tick = 2, Base = 1 };
            snapshot.Cells.Add(new CellUpdate { Changes = bits.Finish() });
            Changes changes = null;
            string refusal = Refusal(() => changes = replica.Apply(snapshot));
            if (refusal == "") return string.Join(", ", changes.Changed.Select(changed => changed.After.Id + " " + changed.After.X + " " + Vectors.Hex(changed.After.State)));
            Check.Equal(Vectors.Shown(replica), shown, "the replica after a refusal");
            return refusal;
        }

        private static void BitsOfChanges()
        {
            Func<BitWriter> first = () => new BitWriter().Count(1).Count(0).Put(0, 1);
            Check.Equal(Changed(first().Put(6, 3).Put(1, 1).Put(1, 4).Put(1, 1).Put(-1, 5)), "1 9 00b300", "both angles pass the ends of their ranges");
            Check.Equal(Changed(first().Put(6, 3).Put(1, 1).Put(-8, 4).Put(1, 1).Put(15, 5)), "1 9 f75bff", "both angles stay in their ranges");
            Check.Equal(Changed(first().Put(1, 3).Put(0, 2).Put(3, 3).Put(0, 3)), "1 12 ff4cff", "a step");
            Check.Equal(Changed(first().Put(1, 3).Put(0, 2).Put(0, 3).Put(-1, 3)), "Malformed", "a step above the cell");
            Check.Equal(Changed(first().Put(1, 3).Put(3, 2).Put(99, 7).Put(99, 7)), "1 99 ff4cff", "the last place of the cell");
            Check.Equal(Changed(first().Put(1, 3).Put(3, 2).Put(100, 7).Put(0, 7)), "Malformed", "beyond the cell");
            Check.Equal(Changed(new BitWriter().Count(1).Count(1).Put(0, 1).Put(2, 3).Count(uint.MaxValue)), "2 9 ffffffff00", "the largest id in a field");
            Check.Equal(Changed(new BitWriter().Count(1).Count(1).Put(0, 1).Put(2, 3).Count(1L << 32)), "Malformed", "a number above it");
            Check.Equal(Changed(new BitWriter().Count(1).Count(uint.MaxValue - 1).Put(0, 1).Put(4, 3).Put(0, 1)), uint.MaxValue + " 9 0000000000", "the largest id");
            Check.Equal(Changed(new BitWriter().Count(2).Count(uint.MaxValue - 1).Put(0, 1).Put(4, 3).Put(0, 1).Count(0)), "Malformed", "an id after the largest");
            Check.Equal(Changed(new BitWriter().Count(2).Count(0).Put(0, 1).Put(4, 3).Put(1, 1).Put(0, 5).Count(0).Put(1, 1).Put(1, 1)), "Malformed", "the set of another kind");
            Check.Equal(Changed(new BitWriter().Count(1).Count(2).Put(0, 1).Put(1, 3).Put(3, 2).Put(5, 7).Put(5, 7)), "Malformed", "an object of cell 1");
            Check.Equal(Changed(new BitWriter().Count(1).Count(3).Put(0, 1).Put(2, 3).Put(0, 1).Put(5, 8)), "Malformed", "an object whose state is too long");
            Check.Equal(Changed(new BitWriter().Count(0)), "", "no objects");
        }

        /// <summary>Of a list of one number, a change has only the length: 11 bits for 4 KiB.</summary>
        private static void LongChanges()
        {
            string schema = Document(OfKind(1, Sequence("list", "\"bytes\":4,\"min\":5,\"max\":5,\"count_min\":0,\"count_max\":1024")));
            Func<uint, long, string> outcome = (count, limit) =>
            {
                var replica = new Replica(10, limit);
                replica.Apply(Snapshot.FromJson(JsonValue.Parse("{\"tick\":1," + Grid + ",\"schema\":" + schema
                    + ",\"cells\":[{\"upserts\":[{\"id\":1,\"kind\":1},{\"id\":2,\"kind\":1},{\"id\":3,\"kind\":1}]}]}")));
                BitWriter bits = new BitWriter().Count(count).Count(0).Put(0, 1).Put(2, 2).Put(1024, 11).Count(0).Put(1, 1).Put(1024, 11);
                var snapshot = new Snapshot { Tick = 2, Base = 1 };
                snapshot.Cells.Add(new CellUpdate { Changes = bits.Finish() });
                return Refusal(() => replica.Apply(snapshot));
            };
            Check.Equal(outcome(2, 8192), "", "at the limit");
            // The third object is missing, and is not looked for.
            Check.Equal(outcome(3, 8191), "TooLarge", "above it");
            Check.Equal(outcome(3, 8192), "Malformed", "an object is missing");
        }

        private static void JsonValues()
        {
            const string Right = "\"heading\":1,\"turn\":-180,\"speed\":0,\"score\":0,\"light\":\"Red\",\"is_on\":false,\"target\":0,\"path\":[],\"name\":\"\"";
            var wrong = new Dictionary<string, string>
            {
                { "\"turn\":-180", "\"turn\":-181" }, { "\"target\":0", "\"target\":4294967296" }, { "\"path\":[]", "\"path\":[1,1,1,1]" }, { "\"name\":\"\"", "\"name\":\"\\ud83d\"" },
                { "\"score\":0", "\"score\":0,\"score\":0" }, { "\"light\":\"Red\"", "\"light\":0" }, { "\"speed\":0", "\"speed\":null" }, { "\"heading\":1", "\"heading\":1e0" },
            };
            wrong.Add("\"is_on\":false", "\"is_on\":0");
            Func<string, string> outcome = fields => Refusal(() =>
            {
                var replica = new Replica();
                replica.Apply(At(1, 0, new byte[0]));
                string shown = Vectors.Shown(replica);
                try
                {
                    replica.Apply(Snapshot.FromJson(JsonValue.Parse("{\"tick\":2,\"base\":1,\"cells\":[{\"upserts\":[{\"id\":1,\"kind\":1," + fields + "}]}]}")));
                }
                catch (RoomException)
                {
                    Check.Equal(Vectors.Shown(replica), shown, "the replica after " + fields);
                    throw;
                }
            });
            Check.Equal(outcome("\"fields\":{" + Right + "}"), "", "right values");
            Check.Equal(outcome("\"state\":\"\",\"fields\":{" + Right + "}"), "Malformed", "an empty state as well");
            Check.Equal(outcome("\"fields\":[]"), "Malformed", "a list of fields");
            foreach (KeyValuePair<string, string> one in wrong)
            {
                Check.True(Right.Contains(one.Key), one.Key);
                Check.Equal(outcome("\"fields\":{" + Right.Replace(one.Key, one.Value) + "}"), "Malformed", one.Value);
            }
        }

        /// <summary>Ticks of 100 ms. An angle takes the shorter way round, over the end of its range.</summary>
        private static void Motions()
        {
            var replica = new Replica();
            var interpolation = new Interpolation();
            Action<Snapshot> apply = snapshot => interpolation.Observe(replica.Apply(snapshot), replica.Grid, snapshot.TimeUs / 1000.0);
            apply(At(1, 0, WalkerState(250, 170, 10, 3)));
            Func<string, double, string> shown = (name, atMs) =>
            {
                double value;
                return interpolation.TryField(1, replica.Schema.Kind(1).Field(name), atMs, out value) ? value.ToString("0.###") : "nothing";
            };
            Check.Equal(shown("heading", 150) + " " + shown("speed", 150), "250 1", "only one state is known");
            apply(At(2, 0, WalkerState(14, -170, -30, 4)));
            Check.Equal(shown("heading", 50) + " " + shown("name", 150) + " " + shown("path", 150), "250 nothing nothing", "before the first, and what is no number");
            Check.Equal(shown("heading", 125) + " " + shown("turn", 125) + " " + shown("speed", 125) + " " + shown("score", 125), "255 175 0 3", "a quarter");
            Check.Equal(shown("heading", 150) + " " + shown("turn", 150) + " " + shown("speed", 150) + " " + shown("light", 150), "4 -180 -1 1", "a half");
            Check.Equal(shown("heading", 130) + " " + shown("turn", 175) + " " + shown("is_on", 150) + " " + shown("target", 150), "0 -175 1 7", "others");
            // Where an angle lies between its last step and its first, it stays below the end of its range.
            Check.Equal(shown("heading", 127.5), "255.5", "between the last step and the first");
            Check.Equal(shown("score", 199) + " " + shown("light", 199) + " " + shown("score", 200), "3 1 4", "a step comes with the delay, when the place does");
            Check.Equal(shown("heading", 200) + " " + shown("turn", 200) + " " + shown("speed", 200) + " " + shown("score", 200), "14 -170 -3 4", "the end");
            // Backwards over the end, a stop, and a move alone: the fields stay as they are.
            apply(At(3, 0, WalkerState(250, 179, -30, 4)));
            Check.Equal(shown("heading", 270) + " " + shown("heading", 280) + " " + shown("turn", 250), "0 254 -175.5", "backwards");
            apply(At(4, 50, WalkerState(250, 179, -30, 4)));
            Place place;
            Check.True(interpolation.TryPlace(1, 350, out place) && place.X == 25, "a move");
            Check.Equal(shown("heading", 350) + " " + shown("speed", 350), "250 -3", "fields during a move");
            double other;
            Field field = Schema.FromDocument(Encoding.UTF8.GetBytes(Document(Walker.Replace("heading", "other")))).Kinds[0].Fields[0];
            Check.True(!interpolation.TryField(1, field, 350, out other) && !interpolation.TryField(1, null, 350, out other), "a field of another schema");
            apply(At(5, 50, WalkerState(122, -1, -30, 4)));
            Check.Equal(shown("heading", 425) + " " + shown("turn", 425), "26 -136", "half a turn goes up, as in what dunlin schema writes");
            // A teleport is no way, and a state without fields has no value.
            apply(At(6, 99, new byte[] { 1 }));
            Check.Equal(shown("heading", 550) + " " + shown("heading", 600), "122 nothing", "a state without fields");
            Check.Equal(Teleported(), "10 20", "a teleport");
        }

        private static string Teleported()
        {
            var replica = new Replica();
            var interpolation = new Interpolation(new InterpolationOptions { TeleportUnits = 10 });
            foreach (Snapshot snapshot in new[] { At(1, 0, WalkerState(10, 0, 0, 0)), At(2, 11, WalkerState(20, 0, 0, 0)) })
            {
                interpolation.Observe(replica.Apply(snapshot), replica.Grid, snapshot.TimeUs / 1000.0);
            }
            double before;
            double after;
            Field heading = replica.Schema.Kind(1).Field("heading");
            return interpolation.TryField(1, heading, 190, out before) && interpolation.TryField(1, heading, 200, out after) ? before + " " + after : "nothing";
        }

        /// <summary>Each prefix of a snapshot, and the snapshot with each of its bits changed, after those before it.</summary>
        private static void Damage(JsonValue file)
        {
            var outcomes = new int[2];
            var seen = new HashSet<string>();
            foreach (JsonValue vector in file["vectors"].Items)
            {
                var before = new List<Func<Snapshot>>();
                foreach (JsonValue step in vector["steps"].Items)
                {
                    byte[] bytes = Vectors.Unhex(step["protobuf"].Text);
                    // All vectors begin with the same snapshot.
                    bool isKnown = before.Count == 0 && !seen.Add(step["protobuf"].Text);
                    IEnumerable<byte[]> cut = Enumerable.Range(0, bytes.Length).Select(length => bytes.Take(length).ToArray());
                    IEnumerable<byte[]> flipped = Enumerable.Range(0, bytes.Length * 8).Select(bit => Flipped(bytes, bit));
                    if (!isKnown) TakeAll(before, cut.Concat(flipped), Snapshot.FromProtobuf, outcomes);
                    before.Add(() => Snapshot.FromProtobuf(bytes));
                }
            }
            Check.True(outcomes[0] > 1000 && outcomes[1] > 5000, outcomes[0] + " were taken, " + outcomes[1] + " refused");
        }

        private static void DamageJson(JsonValue file)
        {
            var outcomes = new int[2];
            var random = new Random(2);
            foreach (JsonValue vector in file["vectors"].Items)
            {
                var before = new List<Func<Snapshot>>();
                foreach (JsonValue step in vector["steps"].Items)
                {
                    byte[] bytes = Encoding.UTF8.GetBytes(step["json"].Text);
                    IEnumerable<byte[]> damaged = Enumerable.Range(0, 200).Select(count => Replaced(bytes, random));
                    TakeAll(before, damaged, one => Snapshot.FromJson(JsonValue.Parse(Encoding.UTF8.GetString(one))), outcomes);
                    before.Add(Vectors.Form(step, RoomEncoding.Json));
                }
            }
            Check.True(outcomes[0] > 200 && outcomes[1] > 1000, outcomes[0] + " were taken, " + outcomes[1] + " refused");
        }

        private static byte[] Flipped(byte[] bytes, int bit)
        {
            var flipped = (byte[])bytes.Clone();
            flipped[bit / 8] ^= (byte)(1 << bit % 8);
            return flipped;
        }

        /// <summary>Most of a document is names, so characters of values come in their place.</summary>
        private static byte[] Replaced(byte[] bytes, Random random)
        {
            var replaced = (byte[])bytes.Clone();
            for (int count = random.Next(1, 4); count > 0; count -= 1) replaced[random.Next(bytes.Length)] = (byte)"0129-.e\"[]{},:ntf\\"[random.Next(18)];
            return replaced;
        }

        /// <summary>A replica takes a damaged snapshot, or refuses it and stays as it was. All that it then has can be read.</summary>
        private static void TakeAll(List<Func<Snapshot>> before, IEnumerable<byte[]> damaged, Func<byte[], Snapshot> read, int[] outcomes)
        {
            Replica replica = null;
            string shown = null;
            foreach (byte[] bytes in damaged)
            {
                if (replica == null)
                {
                    replica = new Replica();
                    foreach (Func<Snapshot> one in before) replica.Apply(one());
                    shown = replica.Tick == 0 ? "" : Vectors.Shown(replica);
                }
                string refusal = Refusal(() => replica.Apply(read(bytes)));
                outcomes[refusal == "" ? 0 : 1] += 1;
                string now = replica.Tick == 0 ? "" : Vectors.Shown(replica);
                if (refusal != "") Check.Equal(now, shown, "the replica after a refusal");
                else replica = null;
            }
        }

        private static string Refusal(Action action)
        {
            try
            {
                action();
                return "";
            }
            catch (RoomException error)
            {
                return error.Kind.ToString();
            }
        }
    }
}
