using System;
using System.Text;

namespace Dunlin.Rooms
{
    /// <summary>Wire types of Protobuf.</summary>
    internal static class WireType
    {
        internal const uint Varint = 0;
        internal const uint Fixed64 = 1;
        internal const uint Length = 2;
        internal const uint Fixed32 = 5;
    }

    /// <summary>Reads the fields of a Protobuf message. It never reads past its end.</summary>
    internal struct ProtobufReader
    {
        private const int VarintBytesMax = 10;
        private readonly byte[] bytes;
        private readonly int end;
        private int at;

        internal ProtobufReader(byte[] bytes, int from, int end)
        {
            this.bytes = bytes;
            this.end = end;
            at = from;
        }

        internal bool IsDone { get { return at >= end; } }

        internal int At { get { return at; } }

        /// <summary>The number of bytes that are left.</summary>
        internal int Left { get { return end - at; } }

        /// <summary>The next field's number and wire type: <c>field &lt;&lt; 3 | type</c>.</summary>
        internal uint Tag()
        {
            uint tag = UInt32();
            if (tag >> 3 == 0) throw RoomException.Malformed("a field has the number 0");
            return tag;
        }

        internal ulong UInt64()
        {
            ulong value = 0;
            for (int count = 0; count < VarintBytesMax; count += 1)
            {
                byte one = bytes[Take(1)];
                if (count == VarintBytesMax - 1 && one > 1) throw RoomException.Malformed("a number is over 64 bits");
                value |= (ulong)(one & 0x7f) << (7 * count);
                if (one < 0x80) return value;
            }
            throw RoomException.Malformed("a varint does not end");
        }

        internal uint UInt32()
        {
            ulong value = UInt64();
            if (value > uint.MaxValue) throw RoomException.Malformed("a number is over 32 bits");
            return (uint)value;
        }

        internal bool Bool()
        {
            return UInt64() != 0;
        }

        internal uint Fixed32()
        {
            int from = Take(4);
            return bytes[from] | (uint)bytes[from + 1] << 8 | (uint)bytes[from + 2] << 16 | (uint)bytes[from + 3] << 24;
        }

        internal ulong Fixed64()
        {
            ulong low = Fixed32();
            return low | (ulong)Fixed32() << 32;
        }

        internal byte[] Bytes()
        {
            int length = LengthOf();
            var copy = new byte[length];
            Buffer.BlockCopy(bytes, Take(length), copy, 0, length);
            return copy;
        }

        /// <summary>Everything that is left, as a text.</summary>
        internal string Rest()
        {
            return Utf8Text(end - at);
        }

        internal string Text()
        {
            return Utf8Text(LengthOf());
        }

        private string Utf8Text(int length)
        {
            // A publication without data has no bytes at all.
            if (length == 0) return "";
            try
            {
                return Utf8.GetString(bytes, Take(length), length);
            }
            catch (ArgumentException)
            {
                throw RoomException.Malformed("a text is not UTF-8");
            }
        }

        /// <summary>A reader of the message, or of the packed numbers, that comes next.</summary>
        internal ProtobufReader Inner()
        {
            int length = LengthOf();
            int from = Take(length);
            return new ProtobufReader(bytes, from, from + length);
        }

        /// <summary>Skips the value of an unknown field; a known one has the wrong type.</summary>
        internal void SkipUnknown(uint tag, uint known)
        {
            if (tag >> 3 <= known) throw RoomException.Malformed("field " + (tag >> 3) + " has the wrong type");
            Skip(tag);
        }

        internal void Skip(uint tag)
        {
            switch (tag & 7)
            {
                case WireType.Varint: UInt64(); break;
                case WireType.Fixed64: Take(8); break;
                case WireType.Length: Take(LengthOf()); break;
                case WireType.Fixed32: Take(4); break;
                default: throw RoomException.Malformed("a field has an unknown wire type");
            }
        }

        private int LengthOf()
        {
            uint length = UInt32();
            if (length > end - at) throw RoomException.Malformed("it ends within a value");
            return (int)length;
        }

        private int Take(int length)
        {
            if (length > end - at) throw RoomException.Malformed("it ends within a value");
            int from = at;
            at += length;
            return from;
        }

        private static readonly UTF8Encoding Utf8 = new UTF8Encoding(false, true);
    }

    /// <summary>Writes fields; those with their default value are left out, as proto3 does.</summary>
    internal sealed class ProtobufWriter
    {
        private byte[] bytes = new byte[64];
        private int length;

        internal byte[] Finish()
        {
            var copy = new byte[length];
            Buffer.BlockCopy(bytes, 0, copy, 0, length);
            return copy;
        }

        internal ProtobufWriter UInt64(uint field, ulong value)
        {
            if (value == 0) return this;
            Varint(field << 3 | WireType.Varint);
            Varint(value);
            return this;
        }

        internal ProtobufWriter Bytes(uint field, byte[] value)
        {
            return value == null || value.Length == 0 ? this : Message(field, value);
        }

        internal ProtobufWriter Text(uint field, string value)
        {
            return string.IsNullOrEmpty(value) ? this : Message(field, Encoding.UTF8.GetBytes(value));
        }

        /// <summary>Also writes an empty message, because its presence has a meaning.</summary>
        internal ProtobufWriter Message(uint field, byte[] value)
        {
            Varint(field << 3 | WireType.Length);
            return Framed(value);
        }

        /// <summary>A length and the bytes, as messages follow each other in a frame.</summary>
        internal ProtobufWriter Framed(byte[] value)
        {
            Varint((ulong)value.Length);
            Reserve(value.Length);
            Buffer.BlockCopy(value, 0, bytes, length, value.Length);
            length += value.Length;
            return this;
        }

        private void Varint(ulong value)
        {
            Reserve(10);
            while (value > 0x7f)
            {
                bytes[length++] = (byte)(value | 0x80);
                value >>= 7;
            }
            bytes[length++] = (byte)value;
        }

        private void Reserve(int more)
        {
            if (length + more <= bytes.Length) return;
            Array.Resize(ref bytes, Math.Max(bytes.Length * 2, length + more));
        }
    }
}
