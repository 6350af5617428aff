namespace Dunlin.Rooms
{
    /// <summary>Checks of texts without an exception and without memory: <c>UTF8Encoding</c> needs both.</summary>
    internal static class Utf8
    {
        internal static bool IsValid(byte[] bytes, int from, int count)
        {
            int end = from + count;
            while (from < end)
            {
                byte first = bytes[from];
                int more = first < 0x80 ? 0 : first >= 0xc2 && first < 0xe0 ? 1 : first >= 0xe0 && first < 0xf0 ? 2 : first >= 0xf0 && first < 0xf5 ? 3 : -1;
                if (more < 0 || more >= end - from) return false;
                for (int place = 1; place <= more; place += 1) if ((bytes[from + place] & 0xc0) != 0x80) return false;
                // Longer than it need be, half of a surrogate pair, or above the last code point.
                byte second = more > 0 ? bytes[from + 1] : (byte)0;
                bool isWrong = first == 0xe0 && second < 0xa0 || first == 0xed && second >= 0xa0 || first == 0xf0 && second < 0x90 || first == 0xf4 && second >= 0x90;
                if (isWrong) return false;
                from += more + 1;
            }
            return true;
        }
    }
}
