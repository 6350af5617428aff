namespace Dunlin.Rooms
{
    /// <summary>Numbers of some bits each: the lowest bit of a number comes first, in the lowest free bit of a byte.</summary>
    internal struct BitReader
    {
        /// <summary>Bits of the classes of a count. A count begins with as many ones as there are classes before its own.</summary>
        private static readonly int[] CountBits = { 0, 4, 8, 16, 32 };

        private readonly byte[] bytes;
        /// <summary>The index of the next bit.</summary>
        private long at;

        internal BitReader(byte[] bytes)
        {
            this.bytes = bytes;
            at = 0;
        }

        /// <summary>Bits of the numbers up to <paramref name="most"/>.</summary>
        internal static int BitsOf(long most)
        {
            int bits = 0;
            for (; most > 0; most >>= 1) bits += 1;
            return bits;
        }

        /// <summary>The next bits, at most 32.</summary>
        internal uint Take(int bits)
        {
            if (at + bits > bytes.Length * 8L) throw RoomException.Malformed("the changes end early");
            ulong number = 0;
            int taken = 0;
            while (taken < bits)
            {
                int used = (int)(at & 7);
                number |= (ulong)(bytes[(int)(at >> 3)] >> used) << taken;
                taken += 8 - used;
                at += 8 - used;
            }
            // Of the last byte, only some bits belong to the number.
            at -= taken - bits;
            return (uint)(number & (1UL << bits) - 1);
        }

        internal bool Flag()
        {
            return Take(1) == 1;
        }

        /// <summary>A number in two's complement.</summary>
        internal long Signed(int bits)
        {
            long half = 1L << (bits - 1);
            return (Take(bits) ^ half) - half;
        }

        /// <summary>A number that is small most of the time.</summary>
        internal uint Count()
        {
            int place = 0;
            ulong first = 0;
            while (place < CountBits.Length - 1 && Flag())
            {
                first += 1UL << CountBits[place];
                place += 1;
            }
            ulong number = first + Take(CountBits[place]);
            if (number > uint.MaxValue) throw RoomException.Malformed("a count is over 32 bits");
            return (uint)number;
        }

        /// <summary>Whether only the zeros that fill the last byte are left.</summary>
        internal bool IsFinished
        {
            get
            {
                long left = bytes.Length * 8L - at;
                return left == 0 || left < 8 && bytes[bytes.Length - 1] >> (int)(8 - left) == 0;
            }
        }
    }
}
