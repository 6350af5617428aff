using System;
using System.Collections.Generic;

namespace Dunlin.Rooms
{
    /// <summary>A position in units, between those that the server knows.</summary>
    public struct Place
    {
        public Place(double x, double y)
        {
            X = x;
            Y = y;
        }

        public double X { get; }
        public double Y { get; }

        internal double DistanceTo(Place other)
        {
            double dx = other.X - X;
            double dy = other.Y - Y;
            return Math.Sqrt(dx * dx + dy * dy);
        }
    }

    public sealed class InterpolationOptions
    {
        public double DelayMinMs = 10;
        public double DelayMaxMs = 500;
        /// <summary>A longer step is a teleport: the object is shown at one end or at the other. Null: a cell's side.</summary>
        public double? TeleportUnits;
    }

    /// <summary>
    /// Smooth movement of objects that others control. They are shown with a delay, just long enough that the snapshot after the
    /// shown time has usually arrived. So each shown position lies between two known ones.
    /// </summary>
    public sealed class Interpolation
    {
        /// <summary>The number of recent arrivals that determine the delay.</summary>
        private const int ArrivalsMax = 120;
        /// <summary>The share of arrivals that the delay covers.</summary>
        private const double Covered = 0.97;
        private const double MarginMs = 2;
        private const int SamplesMax = 64;
        /// <summary>The shown time runs at most this much faster or slower than the clock.</summary>
        private const double SlewMax = 0.1;
        /// <summary>At a larger difference it jumps instead.</summary>
        private const double JumpMs = 500;

        private struct Sample
        {
            internal double AtMs;
            internal Place Place;
        }

        private readonly Dictionary<uint, List<Sample>> tracks = new Dictionary<uint, List<Sample>>();
        private readonly List<double> needsMs = new List<double>();
        private readonly InterpolationOptions options;
        private Grid grid;
        private double? lastMs;
        private double? shownMs;
        private double shownAtMs;

        public Interpolation(InterpolationOptions options = null)
        {
            this.options = options ?? new InterpolationOptions();
            DelayMs = this.options.DelayMinMs;
        }

        /// <summary>The target delay of the shown time relative to the server's.</summary>
        public double DelayMs { get; private set; }

        /// <summary>How many objects are followed.</summary>
        public int Count { get { return tracks.Count; } }

        public void Clear()
        {
            tracks.Clear();
            needsMs.Clear();
            lastMs = shownMs = null;
            DelayMs = options.DelayMinMs;
        }

        /// <summary>Takes in what a snapshot changed that arrived at server time <paramref name="arrivedMs"/>.</summary>
        public void Observe(Changes changes, Grid map, double arrivedMs)
        {
            double atMs = changes.Snapshot.TimeUs / 1000.0;
            grid = map;
            // Until now the newest known time was that of the last snapshot: this delay would have been long enough.
            if (lastMs != null && !changes.IsFull) Measure(arrivedMs - lastMs.Value);
            foreach (SeenObject one in changes.Removed) tracks.Remove(one.Id);
            foreach (SeenObject one in changes.Added)
            {
                tracks[one.Id] = new List<Sample> { new Sample { AtMs = atMs, Place = new Place(one.X, one.Y) } };
            }
            foreach (ChangedObject changed in changes.Changed)
            {
                bool hasMoved = changed.Before.X != changed.After.X || changed.Before.Y != changed.After.Y;
                if (hasMoved) Follow(changed, changes.Snapshot, atMs);
            }
            lastMs = atMs;
        }

        private void Follow(ChangedObject changed, Snapshot snapshot, double atMs)
        {
            List<Sample> track;
            if (!tracks.TryGetValue(changed.After.Id, out track)) tracks[changed.After.Id] = track = new List<Sample>();
            double stoodUntilMs = StoodUntil(snapshot, changed.After.Cell, atMs);
            // The object did not move until the base of this snapshot.
            if (track.Count == 0 || track[track.Count - 1].AtMs < stoodUntilMs)
            {
                track.Add(new Sample { AtMs = stoodUntilMs, Place = new Place(changed.Before.X, changed.Before.Y) });
            }
            track.Add(new Sample { AtMs = atMs, Place = new Place(changed.After.X, changed.After.Y) });
            if (track.Count > SamplesMax) track.RemoveRange(0, track.Count - SamplesMax);
        }

        /// <summary>The server time to show at clock time <paramref name="serverMs"/>. It never decreases.</summary>
        public double Advance(double serverMs)
        {
            double wantedMs = serverMs - DelayMs;
            if (shownMs == null || Math.Abs(wantedMs - shownMs.Value) > JumpMs)
            {
                shownMs = wantedMs;
            }
            else
            {
                double passedMs = Math.Max(0, serverMs - shownAtMs);
                double aheadMs = wantedMs - (shownMs.Value + passedMs);
                double slewMs = Math.Max(-SlewMax * passedMs, Math.Min(SlewMax * passedMs, aheadMs));
                shownMs = shownMs.Value + passedMs + slewMs;
            }
            shownAtMs = serverMs;
            return shownMs.Value;
        }

        /// <summary>Where an object was at server time <paramref name="atMs"/>. Returns false if it is not followed.</summary>
        public bool TryPlace(uint id, double atMs, out Place place)
        {
            place = default(Place);
            List<Sample> track;
            if (!tracks.TryGetValue(id, out track) || track.Count == 0) return false;
            // Of the positions before the shown time, only the last is needed.
            int past = 0;
            while (past + 1 < track.Count && track[past + 1].AtMs <= atMs) past += 1;
            if (past > 0) track.RemoveRange(0, past);
            Sample from = track[0];
            place = from.Place;
            if (track.Count == 1 || atMs <= from.AtMs) return true;
            Sample to = track[1];
            double teleportUnits = options.TeleportUnits ?? grid.CellUnits;
            if (from.Place.DistanceTo(to.Place) > teleportUnits) return true;
            double share = (atMs - from.AtMs) / (to.AtMs - from.AtMs);
            double x = from.Place.X + (to.Place.X - from.Place.X) * share;
            double y = from.Place.Y + (to.Place.Y - from.Place.Y) * share;
            place = new Place(x, y);
            return true;
        }

        private double StoodUntil(Snapshot snapshot, uint? cell, double atMs)
        {
            if (snapshot.Base == 0) return atMs;
            bool isFar = cell != null && grid.BandOf(snapshot.View, cell.Value) == Band.Far;
            uint knownTick = isFar ? snapshot.Base / grid.FarIntervalTicks * grid.FarIntervalTicks : snapshot.Base;
            if (knownTick == snapshot.Base && lastMs != null) return Math.Min(lastMs.Value, atMs);
            return atMs - (snapshot.Tick - knownTick) / (double)grid.TicksPerSecond * 1000;
        }

        private void Measure(double neededMs)
        {
            needsMs.Add(neededMs);
            if (needsMs.Count > ArrivalsMax) needsMs.RemoveAt(0);
            double[] sorted = needsMs.ToArray();
            Array.Sort(sorted);
            double covered = sorted[Math.Min(sorted.Length - 1, (int)Math.Floor(sorted.Length * Covered))];
            DelayMs = Math.Min(options.DelayMaxMs, Math.Max(options.DelayMinMs, covered + MarginMs));
        }
    }
}
