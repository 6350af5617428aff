using System;
using System.Collections.Generic;

namespace Dunlin.Rooms.Tests
{
    /// <summary>Writes the changes of a cell.</summary>
    internal sealed class BitWriter
    {
        private static readonly int[] CountBits = { 0, 4, 8, 16, 32 };
        private readonly List<bool> bits = new List<bool>();

        internal BitWriter Put(long number, int count)
        {
            for (int bit = 0; bit < count; bit += 1) bits.Add((number >> bit & 1) == 1);
            return this;
        }

        internal BitWriter Count(long number)
        {
            int place = 0;
            for (; place < 4 && number >= 1L << CountBits[place]; place += 1)
            {
                number -= 1L << CountBits[place];
                bits.Add(true);
            }
            return (place < 4 ? Put(0, 1) : this).Put(number, CountBits[place]);
        }

        internal byte[] Finish()
        {
            var bytes = new byte[(bits.Count + 7) / 8];
            for (int bit = 0; bit < bits.Count; bit += 1) if (bits[bit]) bytes[bit / 8] |= (byte)(1 << bit % 8);
            return bytes;
        }
    }
}
