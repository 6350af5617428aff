using System;
using System.Collections.Generic;
using System.Linq;

namespace Dunlin.Rooms.Tests
{
    /// <summary>
    /// Whether two players, of whom one asked for fields, have the same states: in some ticks of which both have a snapshot, the objects in the cells that are near
    /// to both. Those in far cells may be of different ticks.
    /// </summary>
    internal sealed class SamePictures
    {
        /// <summary>Of the ticks that only one of them has, so many are kept.</summary>
        private const int KeptMax = 1000;
        /// <summary>A client that computes for long answers no pings on a slow machine.</summary>
        private const uint IntervalTicks = 10;
        private const int ComparedMin = 20;

        private sealed class Picture
        {
            internal uint View;
            internal Grid Grid;
            internal SeenObject[] Objects;
        }

        private readonly Dictionary<uint, Picture>[] pictures = { new Dictionary<uint, Picture>(), new Dictionary<uint, Picture>() };
        private int compared;
        private long objects;
        private int kinds;
        private bool isTyped;

        internal SamePictures(Room typed, Room plain)
        {
            typed.Updated += changes =>
            {
                isTyped = isTyped || changes.Snapshot.Cells.Any(cell => cell.Changes != null || cell.Upserts.Any(one => one.Fields != null));
                Take(typed.Replica, 0);
            };
            plain.Updated += changes => Take(plain.Replica, 1);
        }

        /// <summary>After the play: enough was compared.</summary>
        internal void Check()
        {
            Tests.Check.True(isTyped, "snapshots had fields");
            Tests.Check.True(compared >= ComparedMin && objects > 5 * compared && kinds >= 3,
                compared + " ticks with " + objects + " objects of " + kinds + " kinds were compared");
        }

        private void Take(Replica replica, int player)
        {
            if (replica.Tick % IntervalTicks != 0) return;
            var picture = new Picture { View = replica.View, Grid = replica.Grid, Objects = replica.Objects.ToArray() };
            Picture other;
            if (pictures[1 - player].TryGetValue(replica.Tick, out other))
            {
                pictures[1 - player].Remove(replica.Tick);
                Compare(replica.Tick, picture, other);
                return;
            }
            if (pictures[player].Count >= KeptMax) pictures[player].Clear();
            pictures[player][replica.Tick] = picture;
        }

        private void Compare(uint tick, Picture one, Picture other)
        {
            SeenObject[] seen = Common(one, other).ToArray();
            Tests.Check.Equal(Shown(seen), Shown(Common(other, one)), "what both see in tick " + tick);
            compared += 1;
            objects += seen.Length;
            kinds = Math.Max(kinds, seen.Select(near => near.Kind).Distinct().Count());
        }

        private static IEnumerable<SeenObject> Common(Picture one, Picture other)
        {
            Func<Picture, uint, bool> isNear = (picture, cell) => picture.Grid.BandOf(picture.View, cell) == Band.Near;
            return one.Objects.Where(near => near.Cell != null && isNear(one, near.Cell.Value) && isNear(other, near.Cell.Value)).OrderBy(near => near.Id);
        }

        private static string Shown(IEnumerable<SeenObject> seen)
        {
            return string.Join("\n", seen.Select(one => one.Id + " " + one.Kind + " " + one.X + " " + one.Y + " " + one.Cell + " " + Vectors.Hex(one.State)));
        }
    }
}
