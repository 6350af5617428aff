using System;

namespace Dunlin.Rooms
{
    /// <summary>The value of a field in a state: a number, or where the elements of a sequence are. Its default is 0, or empty.</summary>
    internal struct RawValue
    {
        internal long Number;
        internal int From;
        internal int Count;
    }

    /// <summary>Reads the fields of a state, one after another.</summary>
    internal struct StateReader
    {
        private readonly Kind kind;
        private readonly byte[] state;
        private int index;
        private int at;
        private bool isCut;
        private bool hasOptional;
        private bool hasOptionalValue;

        internal StateReader(Kind kind, byte[] state)
        {
            this.kind = kind;
            this.state = state;
            index = at = 0;
            isCut = hasOptional = hasOptionalValue = false;
        }

        /// <summary>
        /// After the last field: whether the state has the form of its kind. Nothing follows, and optional fields are there only if one of them is not 0
        /// or empty.
        /// </summary>
        internal bool IsFinished
        {
            get { return index == kind.All.Length && at == state.Length && (!hasOptional || hasOptionalValue); }
        }

        /// <summary>The value of the next field. Returns false if the state does not have the form of its kind.</summary>
        internal bool TryNext(out RawValue raw)
        {
            raw = default(RawValue);
            Field field = kind.All[index];
            index += 1;
            isCut |= field.IsOptional && !hasOptional && at == state.Length;
            if (isCut) return true;
            hasOptional |= field.IsOptional;
            if (!(field.IsSequence ? TryElements(field, out raw) : TryNumber(field.Range, out raw.Number))) return false;
            hasOptionalValue |= hasOptional && (raw.Number != 0 || raw.Count > 0);
            return true;
        }

        private bool TryNumber(IntegerRange range, out long number)
        {
            number = 0;
            if (range.Bytes > state.Length - at) return false;
            number = range.Read(state, at);
            at += range.Bytes;
            return range.Contains(number);
        }

        private bool TryElements(Field field, out RawValue raw)
        {
            raw = default(RawValue);
            IntegerRange range = field.Range;
            if (!TryCount(field, out raw.Count)) return false;
            if (raw.Count < field.CountMin || raw.Count > field.CountMax || raw.Count * range.Bytes > state.Length - at) return false;
            raw.From = at;
            at += raw.Count * range.Bytes;
            if (field.Type == FieldType.Text) return Utf8.IsValid(state, raw.From, raw.Count);
            // Elements of the whole range, such as bytes, need no look.
            if (range.Count == 1L << (8 * range.Bytes)) return true;
            for (int from = raw.From; from < at; from += range.Bytes) if (!range.Contains(range.Read(state, from))) return false;
            return true;
        }

        private bool TryCount(Field field, out int count)
        {
            int left = state.Length - at;
            count = field.CountMax;
            if (field.CountMin == field.CountMax) return true;
            int lengthBytes = field.LengthBytes;
            if (lengthBytes == 0)
            {
                // Bytes that are no whole element are left over, so the state is not finished.
                count = left / field.Range.Bytes;
                return true;
            }
            if (lengthBytes > left) return false;
            count = lengthBytes == 1 ? state[at] : state[at] | state[at + 1] << 8;
            at += lengthBytes;
            return true;
        }
    }

    /// <summary>Writes the fields of a state, one after another. It is kept, so that only the finished state is allocated.</summary>
    internal sealed class StateWriter
    {
        private byte[] bytes = new byte[64];
        private int length;
        private Kind kind;
        private int index;
        /// <summary>Where the optional fields begin; null before the first.</summary>
        private int? optionalStart;
        private bool hasOptionalValue;

        internal void Begin(Kind next)
        {
            kind = next;
            length = index = 0;
            optionalStart = null;
            hasOptionalValue = false;
        }

        /// <summary>The next field, which is a number in its range.</summary>
        internal void Number(long number)
        {
            Field field = Next(number != 0);
            Append(number, field.Range.Bytes);
        }

        /// <summary>Begins the next field, which is a sequence; <see cref="Element"/> follows for each of them.</summary>
        internal void Sequence(int count)
        {
            Field field = Next(count > 0);
            Append(count, field.LengthBytes);
        }

        internal void Element(long number)
        {
            Append(number, kind.All[index - 1].Range.Bytes);
        }

        /// <summary>Whether the last bytes are a text.</summary>
        internal bool EndsWithText(int count)
        {
            return Utf8.IsValid(bytes, length - count, count);
        }

        /// <summary>The next field, as it is in another state of the kind.</summary>
        internal void Copy(byte[] from, RawValue raw)
        {
            Field field = kind.All[index];
            if (!field.IsSequence)
            {
                Number(raw.Number);
                return;
            }
            Sequence(raw.Count);
            int count = raw.Count * field.Range.Bytes;
            Reserve(count);
            Buffer.BlockCopy(from, raw.From, bytes, length, count);
            length += count;
        }

        /// <summary>The state, which is <paramref name="before"/> itself if nothing has changed.</summary>
        internal byte[] Finish(byte[] before)
        {
            if (optionalStart != null && !hasOptionalValue) length = optionalStart.Value;
            if (IsSame(before)) return before;
            var state = new byte[length];
            Buffer.BlockCopy(bytes, 0, state, 0, length);
            return state;
        }

        private bool IsSame(byte[] before)
        {
            if (before.Length != length) return false;
            for (int at = 0; at < length; at += 1) if (before[at] != bytes[at]) return false;
            return true;
        }

        private Field Next(bool hasValue)
        {
            Field field = kind.All[index];
            index += 1;
            if (field.IsOptional && optionalStart == null) optionalStart = length;
            hasOptionalValue |= optionalStart != null && hasValue;
            return field;
        }

        private void Append(long number, int count)
        {
            Reserve(count);
            for (; count > 0; count -= 1)
            {
                bytes[length++] = unchecked((byte)number);
                number >>= 8;
            }
        }

        private void Reserve(int more)
        {
            if (length + more > bytes.Length) Array.Resize(ref bytes, Math.Max(bytes.Length * 2, length + more));
        }
    }
}
