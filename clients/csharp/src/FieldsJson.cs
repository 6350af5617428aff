using System;
using System.Collections.Generic;
using System.Text;

namespace Dunlin.Rooms
{
    /// <summary>The values of an object's fields in a JSON session.</summary>
    internal static class FieldsJson
    {
        private static readonly UTF8Encoding StrictUtf8 = new UTF8Encoding(false, true);

        /// <summary>Writes all fields of the kind that <paramref name="writer"/> has begun with.</summary>
        internal static void Write(JsonValue values, Kind kind, StateWriter writer)
        {
            foreach (Field field in kind.All)
            {
                JsonValue value = values[field.Name];
                if (value == null) throw Wrong(field, "is missing");
                switch (field.Type)
                {
                    case FieldType.Flag:
                        if (value.Kind != JsonKind.Bool) throw Wrong(field, "is neither true nor false");
                        writer.Number(value.IsTrue ? 1 : 0);
                        break;
                    case FieldType.Choice: writer.Number(IndexOf(value, field)); break;
                    case FieldType.Text: WriteText(value, field, writer); break;
                    case FieldType.List: WriteList(value, field, writer); break;
                    default: writer.Number(Integer(value, field)); break;
                }
            }
        }

        private static int IndexOf(JsonValue value, Field field)
        {
            for (int index = 0; index < field.Names.Count; index += 1)
            {
                if (value.Kind == JsonKind.Text && field.Names[index] == value.Text) return index;
            }
            throw Wrong(field, "is none of its names");
        }

        private static void WriteText(JsonValue value, Field field, StateWriter writer)
        {
            byte[] text;
            try
            {
                text = value.Kind == JsonKind.Text ? StrictUtf8.GetBytes(value.Text) : null;
            }
            catch (EncoderFallbackException)
            {
                text = null; // half of a surrogate pair
            }
            if (text == null || text.Length > field.CountMax) throw Wrong(field, "is no text, or too long");
            writer.Sequence(text.Length);
            foreach (byte one in text) writer.Element(one);
        }

        private static void WriteList(JsonValue value, Field field, StateWriter writer)
        {
            IReadOnlyList<JsonValue> items = value.Items;
            bool isList = value.Kind == JsonKind.Array && items.Count >= field.CountMin && items.Count <= field.CountMax;
            if (!isList) throw Wrong(field, "is no list, or has a wrong length");
            writer.Sequence(items.Count);
            foreach (JsonValue item in items) writer.Element(Integer(item, field));
        }

        private static long Integer(JsonValue value, Field field)
        {
            long number;
            if (!value.TryInteger(out number) || !field.Range.Contains(number)) throw Wrong(field, "is not in its range");
            return number;
        }

        private static RoomException Wrong(Field field, string what)
        {
            return RoomException.Malformed("the field " + field.Name + " " + what);
        }
    }
}
