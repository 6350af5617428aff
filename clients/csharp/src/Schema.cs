using System;
using System.Collections.Generic;

namespace Dunlin.Rooms
{
    /// <summary>What a field contains.</summary>
    public enum FieldType
    {
        Integer,
        /// <summary>True or false.</summary>
        Flag,
        /// <summary>One of some names.</summary>
        Choice,
        /// <summary>The id of an object, or 0.</summary>
        Object,
        Text,
        /// <summary>Integers.</summary>
        List,
    }

    /// <summary>How a field is shown between two snapshots.</summary>
    public enum Motion
    {
        /// <summary>It jumps.</summary>
        Step,
        /// <summary>It moves evenly.</summary>
        Linear,
        /// <summary>As <see cref="Linear"/>, the shorter way round: its range is one turn.</summary>
        Angle,
    }

    /// <summary>The integers that a field, or an element of it, may have, and their form in a state.</summary>
    public struct IntegerRange
    {
        internal IntegerRange(int bytes, long min, long max)
        {
            Bytes = bytes;
            Min = min;
            Max = max;
            Bits = BitReader.BitsOf(max - min);
        }

        /// <summary>Bytes in a state: 1, 2 or 4. They are little-endian, and have a sign if <see cref="Min"/> is negative.</summary>
        public int Bytes { get; }
        public long Min { get; }
        public long Max { get; }

        /// <summary>Whether its bytes can contain its bounds, and it is not empty.</summary>
        internal bool IsPossible
        {
            get
            {
                if (Bytes != 1 && Bytes != 2 && Bytes != 4) return false;
                long count = 1L << (8 * Bytes);
                bool isSigned = Min < 0;
                return Min >= (isSigned ? -count / 2 : 0) && Max < (isSigned ? count / 2 : count) && Min <= Max;
            }
        }

        /// <summary>Bits of a value in changes.</summary>
        internal int Bits { get; }

        /// <summary>The number of values.</summary>
        internal long Count { get { return Max - Min + 1; } }

        internal bool Contains(long number)
        {
            return number >= Min && number <= Max;
        }

        internal long Read(byte[] bytes, int at)
        {
            if (Bytes == 1) return Min < 0 ? (sbyte)bytes[at] : (long)bytes[at];
            int low = bytes[at] | bytes[at + 1] << 8;
            if (Bytes == 2) return Min < 0 ? (short)low : low;
            int whole = low | bytes[at + 2] << 16 | bytes[at + 3] << 24;
            return Min < 0 ? whole : (long)(uint)whole;
        }
    }

    /// <summary>A field of the states of a kind. It is the handle with which <see cref="Replica"/> and <see cref="Interpolation"/> read it.</summary>
    public sealed class Field
    {
        public Kind Kind { get; internal set; }
        /// <summary>Its place in <see cref="Rooms.Kind.Fields"/>.</summary>
        public int Index { get; internal set; }
        public string Name { get; internal set; }
        public FieldType Type { get; internal set; }
        /// <summary>Of the number that it is; of each element of a list; of each byte of a text.</summary>
        public IntegerRange Range { get; internal set; }
        /// <summary>The least number of elements of a list; 0 for a text.</summary>
        public int CountMin { get; internal set; }
        /// <summary>The largest number of elements of a list, or of bytes of a text.</summary>
        public int CountMax { get; internal set; }
        /// <summary>Of a choice; otherwise empty.</summary>
        public IReadOnlyList<string> Names { get; internal set; }
        /// <summary>Bits of a difference in changes; 0: there are none.</summary>
        public int DeltaBits { get; internal set; }
        /// <summary>An integer is shown divided by this.</summary>
        public uint PerUnit { get; internal set; }
        public Motion Motion { get; internal set; }
        /// <summary>Whether this field and all after it are left out of a state if they are 0 or empty.</summary>
        public bool IsOptional { get; internal set; }

        internal bool IsSequence { get { return Type == FieldType.Text || Type == FieldType.List; } }

        /// <summary>Bytes of the length that a sequence begins with. The last field has none, because it takes the rest of the state.</summary>
        internal int LengthBytes
        {
            get
            {
                if (CountMin == CountMax || Index == Kind.All.Length - 1) return 0;
                return CountMax <= Schema.ShortLengthMax ? 1 : 2;
            }
        }

        /// <summary>Finds the value in a state of its kind. Returns false if the state does not have the form of the kind.</summary>
        internal bool TryFind(byte[] state, out RawValue found)
        {
            var reader = new StateReader(Kind, state);
            found = default(RawValue);
            for (int at = 0; at < Kind.All.Length; at += 1)
            {
                RawValue raw;
                if (!reader.TryNext(out raw)) return false;
                if (at == Index) found = raw;
            }
            return reader.IsFinished;
        }
    }

    /// <summary>The fields of a kind of objects.</summary>
    public sealed class Kind
    {
        private readonly Dictionary<string, Field> byName = new Dictionary<string, Field>();

        internal Kind(uint number, string name, Field[] fields)
        {
            Number = number;
            Name = name;
            All = fields;
            bool isOptional = false;
            for (int at = 0; at < fields.Length; at += 1)
            {
                Field field = fields[at];
                field.Kind = this;
                field.Index = at;
                isOptional |= field.IsOptional;
                if (byName.ContainsKey(field.Name)) throw Schema.Wrong("kind " + number + " has two fields " + field.Name);
                if (isOptional && !MayBeNothing(field)) throw Schema.Wrong(field.Name + " cannot be left out, because it cannot be 0 or empty");
                byName.Add(field.Name, field);
            }
        }

        /// <summary>The <see cref="SeenObject.Kind"/> of its objects.</summary>
        public uint Number { get; }
        public string Name { get; }
        /// <summary>In the order of a state's bytes.</summary>
        public IReadOnlyList<Field> Fields { get { return All; } }
        internal Field[] All { get; }

        /// <summary>The field of this name; null if there is none.</summary>
        public Field Field(string name)
        {
            Field found;
            return byName.TryGetValue(name, out found) ? found : null;
        }

        private static bool MayBeNothing(Field field)
        {
            return field.IsSequence ? field.CountMin == 0 : field.Range.Contains(0);
        }
    }

    /// <summary>What the states of a room's objects are made of. Objects of other kinds have states that only the game understands.</summary>
    public sealed class Schema
    {
        public const int DocumentBytesMax = 64 << 10;
        public const int KindsMax = 256;
        public const int FieldsMax = 62;
        /// <summary>Of the elements of a list, and of the bytes of a text.</summary>
        public const int LengthMax = 1024;
        public const int NamesMax = 256;
        /// <summary>A longer length has two bytes in a state.</summary>
        internal const int ShortLengthMax = 255;

        private readonly Dictionary<uint, Kind> byNumber = new Dictionary<uint, Kind>();
        private readonly Kind[] kinds;
        private readonly string document;

        internal Schema(Kind[] kinds, string document)
        {
            this.kinds = kinds;
            this.document = document;
            Array.Sort(kinds, (one, other) => one.Number.CompareTo(other.Number));
            foreach (Kind kind in kinds)
            {
                if (byNumber.ContainsKey(kind.Number)) throw Wrong("kind " + kind.Number + " occurs twice");
                byNumber.Add(kind.Number, kind);
            }
        }

        /// <summary>In ascending order of their numbers.</summary>
        public IReadOnlyList<Kind> Kinds { get { return kinds; } }

        /// <summary>The kind of this number; null if it has no fields.</summary>
        public Kind Kind(uint number)
        {
            Kind found;
            return byNumber.TryGetValue(number, out found) ? found : null;
        }

        /// <summary>Reads a schema as a room sends it: a JSON document in UTF-8.</summary>
        /// <exception cref="RoomException">and no other, whatever the bytes are.</exception>
        public static Schema FromDocument(byte[] document)
        {
            return FromDocument(new ProtobufReader(document, 0, document.Length));
        }

        internal static Schema FromDocument(ProtobufReader document)
        {
            if (document.Left > DocumentBytesMax) throw Wrong("it has " + document.Left + " bytes");
            return SchemaJson.Read(JsonValue.Parse(document.Rest()));
        }

        internal bool IsSameAs(Schema other)
        {
            return other != null && document == other.document;
        }

        internal static RoomException Wrong(string what)
        {
            return RoomException.Malformed("the schema: " + what);
        }
    }
}
