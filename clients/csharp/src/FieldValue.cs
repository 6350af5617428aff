using System;
using System.Collections.Generic;
using System.Globalization;
using System.Text;

namespace Dunlin.Rooms
{
    /// <summary>The value of a field. <see cref="Type"/> says which of its properties have it.</summary>
    public struct FieldValue
    {
        private static readonly long[] NoItems = new long[0];
        private readonly long[] items;

        private FieldValue(FieldType type, double number, string text, long[] items)
        {
            Type = type;
            Number = number;
            Text = text;
            this.items = items;
        }

        public FieldType Type { get; }
        /// <summary>An integer, divided by <see cref="Field.PerUnit"/>, or the id of an object; of a flag 1 or 0; of a choice its index.</summary>
        public double Number { get; }
        /// <summary>Of a flag.</summary>
        public bool IsTrue { get { return Type == FieldType.Flag && Number == 1; } }
        /// <summary>A text, or the name of a choice; otherwise null.</summary>
        public string Text { get; }
        /// <summary>The elements of a list; otherwise empty.</summary>
        public IReadOnlyList<long> Items { get { return items ?? NoItems; } }

        /// <summary>The value as JSON.</summary>
        public override string ToString()
        {
            if (Text != null) return JsonValue.Quote(Text);
            if (Type == FieldType.Flag) return IsTrue ? "true" : "false";
            if (Type == FieldType.List) return "[" + string.Join(",", Array.ConvertAll(items, one => one.ToString(CultureInfo.InvariantCulture))) + "]";
            return Number.ToString("R", CultureInfo.InvariantCulture);
        }

        internal static FieldValue Of(Field field, byte[] state, RawValue raw)
        {
            switch (field.Type)
            {
                case FieldType.Text: return new FieldValue(field.Type, 0, TextOf(state, raw), null);
                case FieldType.Choice: return new FieldValue(field.Type, raw.Number, field.Names[(int)raw.Number], null);
                case FieldType.List:
                    var items = new long[raw.Count];
                    for (int at = 0; at < items.Length; at += 1) items[at] = ElementOf(field, state, raw, at);
                    return new FieldValue(field.Type, 0, null, items);
                default: return new FieldValue(field.Type, raw.Number / (double)field.PerUnit, null, null);
            }
        }

        internal static long ElementOf(Field field, byte[] state, RawValue raw, int index)
        {
            return field.Range.Read(state, raw.From + index * field.Range.Bytes);
        }

        internal static string TextOf(byte[] state, RawValue raw)
        {
            return Encoding.UTF8.GetString(state, raw.From, raw.Count);
        }
    }
}
