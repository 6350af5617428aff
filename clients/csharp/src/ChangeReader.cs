namespace Dunlin.Rooms
{
    /// <summary>
    /// Reads the changes of a cell's objects (<see cref="CellUpdate.Changes"/>): <see cref="Begin"/>, then for each object <see cref="NextId"/> and
    /// <see cref="Next"/>, then <see cref="End"/>. It is kept, so that a change allocates only the new state.
    /// </summary>
    internal sealed class ChangeReader
    {
        /// <summary>Bits of a step in each direction, by class. The class after them has the whole position.</summary>
        private static readonly int[] StepBits = { 3, 5, 7 };
        private const int ClassBits = 2;

        private readonly StateWriter writer;
        private BitReader bits;
        private Schema schema;
        private int positionBits;
        private uint left;
        private uint id;
        /// <summary>Of the object before; null for the first.</summary>
        private Kind lastKind;
        /// <summary>What has changed of it: a bit for the position, then one for each field.</summary>
        private ulong changed;

        internal ChangeReader(StateWriter writer)
        {
            this.writer = writer;
        }

        internal void Begin(byte[] changes, Schema known, uint cellUnits)
        {
            bits = new BitReader(changes);
            schema = known;
            positionBits = BitReader.BitsOf(cellUnits - 1L);
            id = 0;
            lastKind = null;
            left = bits.Count();
        }

        /// <summary>The id of the next object; 0 after the last.</summary>
        internal uint NextId()
        {
            if (left == 0) return 0;
            left -= 1;
            ulong next = (ulong)id + bits.Count() + 1;
            if (next > uint.MaxValue) throw RoomException.Malformed("an id is over 32 bits");
            return id = (uint)next;
        }

        /// <summary>The object after its changes, relative to its cell, whose corner is at <paramref name="left"/> and <paramref name="top"/>.</summary>
        internal RoomObject Next(SeenObject before, uint left, uint top)
        {
            Kind kind = schema.Kind(before.Kind);
            if (kind == null) throw RoomException.Malformed("object " + before.Id + " has changes, and its kind has no fields");
            bool isAsBefore = bits.Flag();
            if (isAsBefore && kind != lastKind) throw RoomException.Malformed("object " + before.Id + " has the fields of another kind");
            if (!isAsBefore) changed = Set(kind.All.Length + 1);
            if (changed == 0) throw RoomException.Malformed("object " + before.Id + " has no changes");
            lastKind = kind;
            var after = new RoomObject { Id = before.Id, Kind = before.Kind, X = before.X - left, Y = before.Y - top };
            if ((changed & 1) == 1) Move(ref after);
            after.State = StateAfter(kind, before.State);
            return after;
        }

        internal void End()
        {
            if (!bits.IsFinished) throw RoomException.Malformed("something follows the changes");
        }

        private ulong Set(int count)
        {
            ulong set = bits.Take(count < 32 ? count : 32);
            return count <= 32 ? set : set | (ulong)bits.Take(count - 32) << 32;
        }

        private void Move(ref RoomObject one)
        {
            uint place = bits.Take(ClassBits);
            if (place == StepBits.Length)
            {
                one.X = bits.Take(positionBits);
                one.Y = bits.Take(positionBits);
                return;
            }
            long x = one.X + bits.Signed(StepBits[place]);
            long y = one.Y + bits.Signed(StepBits[place]);
            if (x < 0 || y < 0) throw RoomException.Malformed("object " + one.Id + " moves out of its cell");
            one.X = (uint)x;
            one.Y = (uint)y;
        }

        private byte[] StateAfter(Kind kind, byte[] before)
        {
            var reader = new StateReader(kind, before);
            writer.Begin(kind);
            for (int at = 0; at < kind.All.Length; at += 1)
            {
                RawValue was;
                if (!reader.TryNext(out was)) throw RoomException.Malformed("an object with changes has a state without fields");
                if ((changed >> (at + 1) & 1) == 0) writer.Copy(before, was);
                else if (kind.All[at].IsSequence) ReadElements(kind.All[at]);
                else writer.Number(ReadNumber(kind.All[at], was.Number));
            }
            if (!reader.IsFinished) throw RoomException.Malformed("an object with changes has a state without fields");
            return writer.Finish(before);
        }

        private long ReadNumber(Field field, long was)
        {
            if (field.Type == FieldType.Object) return bits.Count();
            IntegerRange range = field.Range;
            if (field.DeltaBits == 0 || !bits.Flag()) return Inside(field, range.Min + bits.Take(range.Bits));
            long number = was + bits.Signed(field.DeltaBits);
            // A difference is shorter than a turn.
            if (field.Motion == Motion.Angle && number < range.Min) number += range.Count;
            if (field.Motion == Motion.Angle && number > range.Max) number -= range.Count;
            return Inside(field, number);
        }

        private void ReadElements(Field field)
        {
            IntegerRange range = field.Range;
            int count = field.CountMin + (int)bits.Take(BitReader.BitsOf(field.CountMax - field.CountMin));
            if (count > field.CountMax) throw RoomException.Malformed(field.Name + " is too long");
            int width = range.Bits;
            writer.Sequence(count);
            for (int left = count; left > 0; left -= 1) writer.Element(Inside(field, range.Min + bits.Take(width)));
            if (field.Type == FieldType.Text && !writer.EndsWithText(count)) throw RoomException.Malformed(field.Name + " is not UTF-8");
        }

        private static long Inside(Field field, long number)
        {
            if (!field.Range.Contains(number)) throw RoomException.Malformed(field.Name + " is not in its range");
            return number;
        }
    }
}
