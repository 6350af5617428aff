using System.Collections.Generic;
using System.Text;

namespace Dunlin.Rooms
{
    /// <summary>Reads a schema, and refuses one that is not possible.</summary>
    internal static class SchemaJson
    {
        private const ulong CountMax = ushort.MaxValue;
        private static readonly IntegerRange OfFlag = new IntegerRange(1, 0, 1);
        private static readonly IntegerRange OfObject = new IntegerRange(4, 0, uint.MaxValue);
        private static readonly IntegerRange OfByte = new IntegerRange(1, 0, byte.MaxValue);
        private static readonly string[] NoNames = new string[0];

        internal static Schema Read(JsonValue value)
        {
            RequireObject(value);
            string document = value.ToString();
            int bytes = Encoding.UTF8.GetByteCount(document);
            if (bytes > Schema.DocumentBytesMax) throw Schema.Wrong("it has " + bytes + " bytes");
            IReadOnlyList<JsonValue> items = Items(value, "kinds");
            if (items.Count > Schema.KindsMax) throw Schema.Wrong("it has " + items.Count + " kinds");
            var kinds = new Kind[items.Count];
            for (int at = 0; at < kinds.Length; at += 1) kinds[at] = ReadKind(items[at]);
            return new Schema(kinds, document);
        }

        private static Kind ReadKind(JsonValue value)
        {
            RequireObject(value);
            ulong number = Required(Whole(value, "kind", Snapshot.KindMax), "kind");
            IReadOnlyList<JsonValue> items = Items(value, "fields");
            if (items.Count == 0 || items.Count > Schema.FieldsMax) throw Schema.Wrong("kind " + number + " has " + items.Count + " fields");
            var fields = new Field[items.Count];
            for (int at = 0; at < fields.Length; at += 1) fields[at] = ReadField(items[at]);
            return new Kind((uint)number, Text(value, "name"), fields);
        }

        private static Field ReadField(JsonValue value)
        {
            RequireObject(value);
            var field = new Field
            {
                Name = Text(value, "name"),
                Type = TypeOf(Text(value, "type")),
                Names = ReadNames(value),
                DeltaBits = (int)(Whole(value, "delta_bits", byte.MaxValue) ?? 0),
                PerUnit = (uint)(Whole(value, "per_unit", uint.MaxValue) ?? 1),
                Motion = value["motion"] == null ? Motion.Step : MotionOf(Text(value, "motion")),
                IsOptional = Flag(value, "optional"),
            };
            ReadRange(value, field);
            ReadCounts(value, field);
            int bits = field.Type == FieldType.Integer ? field.Range.Bits : 1;
            // An integer with one value has no bits, and no differences.
            if (field.DeltaBits >= (bits == 0 ? 1 : bits)) throw Schema.Wrong("differences of " + field.Name + " have " + field.DeltaBits + " bits");
            if (field.PerUnit == 0) throw Schema.Wrong(field.Name + " has 0 steps per unit");
            return field;
        }

        private static void ReadRange(JsonValue value, Field field)
        {
            ulong bytes = Whole(value, "bytes", byte.MaxValue) ?? 0;
            long? min = Integer(value, "min");
            long? max = Integer(value, "max");
            switch (field.Type)
            {
                case FieldType.Flag: field.Range = OfFlag; break;
                case FieldType.Object: field.Range = OfObject; break;
                case FieldType.Text: field.Range = OfByte; break;
                case FieldType.Choice:
                    if (field.Names.Count == 0 || field.Names.Count > Schema.NamesMax) throw Schema.Wrong(field.Name + " has " + field.Names.Count + " names");
                    field.Range = new IntegerRange(1, 0, field.Names.Count - 1);
                    break;
                default:
                    if (min == null || max == null) throw Schema.Wrong(field.Name + " has no range");
                    field.Range = new IntegerRange((int)bytes, min.Value, max.Value);
                    if (!field.Range.IsPossible) throw Schema.Wrong("the range of " + field.Name);
                    break;
            }
        }

        private static void ReadCounts(JsonValue value, Field field)
        {
            ulong? least = Whole(value, "count_min", CountMax);
            ulong? most = Whole(value, "count_max", CountMax);
            if (!field.IsSequence) return;
            field.CountMin = field.Type == FieldType.List ? (int)Required(least, "count_min") : 0;
            field.CountMax = (int)Required(most, "count_max");
            bool isPossible = field.CountMax > 0 && field.CountMax <= Schema.LengthMax && field.CountMin <= field.CountMax;
            if (!isPossible) throw Schema.Wrong(field.Name + " has " + field.CountMin + " to " + field.CountMax + " elements");
        }

        private static IReadOnlyList<string> ReadNames(JsonValue value)
        {
            if (value["names"] == null) return NoNames;
            IReadOnlyList<JsonValue> items = Items(value, "names");
            var names = new string[items.Count];
            for (int at = 0; at < names.Length; at += 1)
            {
                if (items[at].Kind != JsonKind.Text) throw Schema.Wrong("a name is no text");
                names[at] = items[at].Text;
            }
            return names;
        }

        private static FieldType TypeOf(string name)
        {
            switch (name)
            {
                case "integer": return FieldType.Integer;
                case "flag": return FieldType.Flag;
                case "choice": return FieldType.Choice;
                case "object": return FieldType.Object;
                case "text": return FieldType.Text;
                case "list": return FieldType.List;
                default: throw Schema.Wrong("the type " + name + " is unknown");
            }
        }

        private static Motion MotionOf(string name)
        {
            switch (name)
            {
                case "step": return Motion.Step;
                case "linear": return Motion.Linear;
                case "angle": return Motion.Angle;
                default: throw Schema.Wrong("the motion " + name + " is unknown");
            }
        }

        private static void RequireObject(JsonValue value)
        {
            if (value.Kind != JsonKind.Object || value.HasNameTwice) throw Schema.Wrong("a part is no object, or has a name twice");
        }

        private static IReadOnlyList<JsonValue> Items(JsonValue value, string name)
        {
            JsonValue list = value[name];
            if (list == null || list.Kind != JsonKind.Array) throw Schema.Wrong(name + " is no array");
            return list.Items;
        }

        private static string Text(JsonValue value, string name)
        {
            JsonValue text = value[name];
            if (text == null || text.Kind != JsonKind.Text) throw Schema.Wrong(name + " is no text");
            return text.Text;
        }

        private static bool Flag(JsonValue value, string name)
        {
            JsonValue flag = value[name];
            if (flag != null && flag.Kind != JsonKind.Bool) throw Schema.Wrong(name + " is neither true nor false");
            return flag != null && flag.IsTrue;
        }

        private static ulong? Whole(JsonValue value, string name, ulong most)
        {
            ulong number;
            if (value[name] == null) return null;
            if (!value[name].TryWhole(most, out number)) throw Schema.Wrong(name + " is no whole number up to " + most);
            return number;
        }

        private static long? Integer(JsonValue value, string name)
        {
            long number;
            if (value[name] == null) return null;
            if (!value[name].TryInteger(out number)) throw Schema.Wrong(name + " is no integer");
            return number;
        }

        private static ulong Required(ulong? number, string name)
        {
            if (number == null) throw Schema.Wrong(name + " is missing");
            return number.Value;
        }
    }
}
