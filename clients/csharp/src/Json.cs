using System;
using System.Collections.Generic;
using System.Globalization;
using System.Text;

namespace Dunlin.Rooms
{
    public enum JsonKind
    {
        Null,
        Bool,
        Number,
        Text,
        Array,
        Object,
    }

    /// <summary>A JSON document: the engines' own parsers differ, and netstandard2.1 has none.</summary>
    public sealed class JsonValue
    {
        private static readonly JsonValue[] NoItems = new JsonValue[0];
        private readonly Dictionary<string, JsonValue> members;
        private readonly List<JsonValue> items;

        private JsonValue(JsonKind kind, bool flag, string text, List<JsonValue> items, Dictionary<string, JsonValue> members)
        {
            Kind = kind;
            IsTrue = flag;
            Text = text;
            this.items = items;
            this.members = members;
        }

        public JsonKind Kind { get; }
        public bool IsTrue { get; }
        /// <summary>The text of a string, or a number as it is written.</summary>
        public string Text { get; }
        /// <summary>Whether an object has a name twice; the last one counts.</summary>
        public bool HasNameTwice { get; private set; }

        public IReadOnlyList<JsonValue> Items { get { return items ?? (IReadOnlyList<JsonValue>)NoItems; } }

        /// <summary>The members of an object; null if this is none.</summary>
        public IReadOnlyDictionary<string, JsonValue> Members { get { return members; } }

        /// <summary>The member of this name; null if there is none, or if it is <c>null</c>.</summary>
        public JsonValue this[string name]
        {
            get
            {
                JsonValue found;
                bool isThere = members != null && members.TryGetValue(name, out found) && found.Kind != JsonKind.Null;
                return isThere ? members[name] : null;
            }
        }

        /// <summary>The nearest double, which is infinite for a number beyond its range; NaN if this is no number.</summary>
        public double Number
        {
            get
            {
                if (Kind != JsonKind.Number) return double.NaN;
                double value;
                if (double.TryParse(Text, NumberStyles.Float, CultureInfo.InvariantCulture, out value)) return value;
                // Mono, and so Unity, takes no number that is too large.
                return Text[0] == '-' ? double.NegativeInfinity : double.PositiveInfinity;
            }
        }

        /// <summary>Whether this is a whole number from 0 to <paramref name="most"/>.</summary>
        public bool TryWhole(ulong most, out ulong value)
        {
            value = 0;
            return Kind == JsonKind.Number && ulong.TryParse(Text, NumberStyles.None, CultureInfo.InvariantCulture, out value) && value <= most;
        }

        /// <summary>Whether this is an integer of 64 bits, written without a fraction and an exponent.</summary>
        public bool TryInteger(out long value)
        {
            value = 0;
            return Kind == JsonKind.Number && long.TryParse(Text, NumberStyles.AllowLeadingSign, CultureInfo.InvariantCulture, out value);
        }

        /// <exception cref="RoomException">if the text is no JSON document.</exception>
        public static JsonValue Parse(string text)
        {
            return new Parser(text).Document();
        }

        /// <summary>A text as a JSON string, with its quotes.</summary>
        public static string Quote(string text)
        {
            var quoted = new StringBuilder("\"");
            foreach (char one in text)
            {
                if (one == '"' || one == '\\') quoted.Append('\\').Append(one);
                else if (one < ' ' || char.IsSurrogate(one)) quoted.Append("\\u").Append(((int)one).ToString("x4"));
                else quoted.Append(one);
            }
            return quoted.Append('"').ToString();
        }

        /// <summary>The document without white space. Of members with the same name, the last one is left.</summary>
        public override string ToString()
        {
            var text = new StringBuilder();
            Write(text);
            return text.ToString();
        }

        private void Write(StringBuilder text)
        {
            switch (Kind)
            {
                case JsonKind.Null: text.Append("null"); break;
                case JsonKind.Bool: text.Append(IsTrue ? "true" : "false"); break;
                case JsonKind.Number: text.Append(Text); break;
                case JsonKind.Text: text.Append(Quote(Text)); break;
                case JsonKind.Array:
                    text.Append('[');
                    for (int at = 0; at < items.Count; at += 1)
                    {
                        if (at > 0) text.Append(',');
                        items[at].Write(text);
                    }
                    text.Append(']');
                    break;
                default:
                    char before = '{';
                    foreach (KeyValuePair<string, JsonValue> member in members)
                    {
                        text.Append(before).Append(Quote(member.Key)).Append(':');
                        member.Value.Write(text);
                        before = ',';
                    }
                    text.Append(before == '{' ? "{}" : "}");
                    break;
            }
        }

        private struct Parser
        {
            private const int DepthMax = 64;
            private readonly string text;
            private int at;
            private int depth;

            internal Parser(string text)
            {
                this.text = text;
                at = depth = 0;
            }

            internal JsonValue Document()
            {
                JsonValue value = Value();
                SkipSpace();
                if (at < text.Length) throw Wrong("something follows the document");
                return value;
            }

            private JsonValue Value()
            {
                SkipSpace();
                switch (Peek())
                {
                    case '{': return Object();
                    case '[': return Array();
                    case '"': return new JsonValue(JsonKind.Text, false, Text(), null, null);
                    case 't': return Word("true", JsonKind.Bool, true);
                    case 'f': return Word("false", JsonKind.Bool, false);
                    case 'n': return Word("null", JsonKind.Null, false);
                    default: return Number();
                }
            }

            private JsonValue Object()
            {
                var members = new Dictionary<string, JsonValue>();
                bool hasNameTwice = false;
                Enter();
                for (bool isFirst = true; !Ends('}', isFirst); isFirst = false)
                {
                    SkipSpace();
                    string name = Text();
                    SkipSpace();
                    if (Peek() != ':') throw Wrong("a name has no value");
                    at += 1;
                    hasNameTwice |= members.ContainsKey(name);
                    members[name] = Value();
                }
                return new JsonValue(JsonKind.Object, false, null, null, members) { HasNameTwice = hasNameTwice };
            }

            private JsonValue Array()
            {
                var items = new List<JsonValue>();
                Enter();
                for (bool isFirst = true; !Ends(']', isFirst); isFirst = false) items.Add(Value());
                return new JsonValue(JsonKind.Array, false, null, items, null);
            }

            private void Enter()
            {
                at += 1;
                depth += 1;
                if (depth > DepthMax) throw Wrong("it is nested too deeply");
            }

            /// <summary>Whether the list ends here; otherwise passes the comma.</summary>
            private bool Ends(char end, bool isFirst)
            {
                SkipSpace();
                if (Peek() == end)
                {
                    at += 1;
                    depth -= 1;
                    return true;
                }
                if (isFirst) return false;
                if (Peek() != ',') throw Wrong("a comma is missing");
                at += 1;
                return false;
            }

            private string Text()
            {
                if (Peek() != '"') throw Wrong("a string is missing");
                int from = at += 1;
                while (Peek() != '"' && Peek() != '\\') at += Plain();
                if (Peek() == '"') return text.Substring(from, at++ - from);
                var unescaped = new StringBuilder(text, from, at - from, 64);
                while (Peek() != '"')
                {
                    if (Peek() == '\\') unescaped.Append(Escape());
                    else at += Plain(unescaped);
                }
                at += 1;
                return unescaped.ToString();
            }

            private int Plain(StringBuilder unescaped = null)
            {
                if (text[at] < ' ') throw Wrong("a string has a control character");
                if (unescaped != null) unescaped.Append(text[at]);
                return 1;
            }

            private char Escape()
            {
                at += 1;
                char kind = Peek();
                at += 1;
                int index = "\"\\/bfnrt".IndexOf(kind);
                if (index >= 0) return "\"\\/\b\f\n\r\t"[index];
                ushort unit = 0;
                bool isUnit = kind == 'u' && at + 4 <= text.Length
                    && ushort.TryParse(text.Substring(at, 4), NumberStyles.AllowHexSpecifier, CultureInfo.InvariantCulture, out unit);
                if (!isUnit) throw Wrong("an escape is unknown");
                at += 4;
                return (char)unit;
            }

            private JsonValue Number()
            {
                int from = at;
                if (Peek() == '-') at += 1;
                bool hasZero = Peek() == '0';
                int digits = Digits();
                if (digits == 0 || hasZero && digits > 1) throw Wrong("a value is missing");
                if (at < text.Length && text[at] == '.')
                {
                    at += 1;
                    if (Digits() == 0) throw Wrong("a number is cut");
                }
                if (at < text.Length && (text[at] == 'e' || text[at] == 'E'))
                {
                    at += 1;
                    if (Peek() == '+' || Peek() == '-') at += 1;
                    if (Digits() == 0) throw Wrong("a number is cut");
                }
                return new JsonValue(JsonKind.Number, false, text.Substring(from, at - from), null, null);
            }

            private int Digits()
            {
                int from = at;
                while (at < text.Length && text[at] >= '0' && text[at] <= '9') at += 1;
                return at - from;
            }

            private JsonValue Word(string word, JsonKind kind, bool flag)
            {
                if (string.CompareOrdinal(text, at, word, 0, word.Length) != 0) throw Wrong("a word is unknown");
                at += word.Length;
                return new JsonValue(kind, flag, null, null, null);
            }

            private void SkipSpace()
            {
                while (at < text.Length && (text[at] == ' ' || text[at] == '\n' || text[at] == '\r' || text[at] == '\t')) at += 1;
            }

            private char Peek()
            {
                if (at >= text.Length) throw Wrong("it ends too early");
                return text[at];
            }

            private RoomException Wrong(string what)
            {
                return RoomException.Malformed("JSON: " + what + " (at " + at + ")");
            }
        }
    }
}
