using System;
using System.Collections.Generic;
using System.Linq;
using System.Text;

namespace Dunlin.Rooms.Tests
{
    /// <summary>Recorded snapshots, and what the Rust replica showed after each: schema/vectors/room/README.md has the format.</summary>
    internal static class Recording
    {
        private const string Magic = "dunlin-snapshots-1\n";
        private const int HeadBytes = 10;

        internal static void Run(byte[] file)
        {
            Check.True(file.Length > Magic.Length && Encoding.ASCII.GetString(file, 0, Magic.Length) == Magic, "no recording of snapshots");
            var replicas = new Dictionary<uint, Replica>();
            int snapshots = 0;
            int refused = 0;
            for (int at = Magic.Length; at < file.Length;)
            {
                uint client = BitConverter.ToUInt32(file, at);
                byte kind = file[at + 4];
                bool isApplied = file[at + 5] == 1;
                int length = BitConverter.ToInt32(file, at + 6);
                var data = new byte[length];
                Buffer.BlockCopy(file, at + HeadBytes, data, 0, length);
                at += HeadBytes + length;
                uint checksum = BitConverter.ToUInt32(file, at);
                at += 4;
                if (kind == 0)
                {
                    replicas[client] = new Replica();
                    continue;
                }
                snapshots += 1;
                Replica replica = replicas[client];
                bool applied = Apply(replica, kind, data);
                if (!applied) refused += 1;
                Check.True(applied == isApplied, "snapshot " + snapshots + ": applied " + applied);
                string picture = Picture(replica);
                Check.True(Crc32(picture) == checksum, "snapshot " + snapshots + " of client " + client + " shows something else:\n" + picture);
            }
            Check.True(snapshots > 0 && refused > 0, snapshots + " snapshots, " + refused + " refused");
            Console.WriteLine("recording: " + snapshots + " snapshots are shown as in Rust, of which " + refused + " were refused");
        }

        private static bool Apply(Replica replica, byte kind, byte[] data)
        {
            try
            {
                replica.Apply(kind == 1 ? Snapshot.FromJson(JsonValue.Parse(Encoding.UTF8.GetString(data))) : Snapshot.FromProtobuf(data));
                return true;
            }
            catch (RoomException error)
            {
                Check.True(error.Kind == RoomErrorKind.WrongBase, error.Message);
                return false;
            }
        }

        private static string Picture(Replica replica)
        {
            var text = new StringBuilder();
            text.Append(replica.Tick).Append(' ').Append(replica.TimeUs).Append(' ').Append(replica.Ack).Append(' ');
            text.Append(replica.Avatar).Append(' ').Append(replica.View).Append('\n');
            foreach (SeenObject one in replica.Objects.OrderBy(one => one.Id))
            {
                text.Append(one.Id).Append(' ').Append(one.Kind).Append(' ').Append(one.X).Append(' ').Append(one.Y).Append(' ');
                text.Append(one.Cell == null ? "-" : one.Cell.ToString()).Append(' ').Append(Vectors.Hex(one.State)).Append('\n');
            }
            return text.ToString();
        }

        private static uint Crc32(string text)
        {
            uint crc = uint.MaxValue;
            foreach (char one in text) crc = crc >> 8 ^ Table[(byte)(crc ^ one)];
            return ~crc;
        }

        private static readonly uint[] Table = Enumerable.Range(0, 256).Select(index =>
        {
            uint crc = (uint)index;
            for (int bit = 0; bit < 8; bit += 1) crc = (crc & 1) == 1 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
            return crc;
        }).ToArray();
    }
}
