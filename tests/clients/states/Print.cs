using System;
using System.Collections.Generic;
using System.Globalization;
using System.IO;
using System.Linq;
using System.Text;
using StateTest;

/// <summary>Prints what is read from each line of the standard input, as write_sources.rs does.</summary>
internal static class Print
{
    private static void Main()
    {
        using (var output = new StreamWriter(Console.OpenStandardOutput()))
        {
            string line;
            while ((line = Console.In.ReadLine()) != null) output.Write(line + " " + Shown(line.Split(' ')) + "\n");
        }
    }

    private static string Shown(string[] words)
    {
        byte[] state = Bytes(words[1]);
        switch (words[0])
        {
            case "between": return Between(state, Bytes(words[2]), double.Parse(words[3], CultureInfo.InvariantCulture));
            case "1":
                Walker walker;
                return Walker.TryRead(state, out walker) ? Of(walker) : "-";
            case "2":
                Bag bag;
                return Bag.TryRead(state, out bag)
                    ? "label=" + Hex(bag.Label) + " pair=" + List(bag.Pair) + " amount=" + bag.Amount + " items=" + List(bag.Items)
                    : "-";
            default:
                Log log;
                return Log.TryRead(state, out log)
                    ? "numbers=" + List(log.Numbers) + " long=" + List(log.Long) + " class=" + log.Class
                    : "-";
        }
    }

    private static string Of(Walker one)
    {
        return "heading=" + Number(one.Heading, "0.0") + " score=" + Number(one.Score, "0.0") + " is_on=" + (one.IsOn ? 1 : 0)
            + " light=" + one.Light + " target=" + one.Target + " wide=" + one.Wide + " deep=" + one.Deep + " name=" + Hex(one.Name);
    }

    private static string Between(byte[] from, byte[] to, double share)
    {
        Walker first, second;
        if (!Walker.TryRead(from, out first) || !Walker.TryRead(to, out second)) return "-";
        Walker one = Walker.Between(first, second, share);
        return "heading=" + Number(one.Heading, "0.00") + " score=" + Number(one.Score, "0.00") + " light=" + one.Light;
    }

    private static string Number(double number, string format)
    {
        return number.ToString(format, CultureInfo.InvariantCulture);
    }

    private static string List(IEnumerable<long> numbers)
    {
        return string.Join(",", numbers);
    }

    private static string Hex(string text)
    {
        return string.Concat(Encoding.UTF8.GetBytes(text).Select(one => one.ToString("x2")));
    }

    private static byte[] Bytes(string word)
    {
        if (word == "empty") return new byte[0];
        return Enumerable.Range(0, word.Length / 2).Select(place => Convert.ToByte(word.Substring(2 * place, 2), 16)).ToArray();
    }
}
