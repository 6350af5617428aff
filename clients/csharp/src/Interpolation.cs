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
    /// shown time has usually arrived. So each shown position lies between two known ones. Far cells do not come with each
    /// snapshot, so objects in them are shown later by a second delay.
    /// </summary>
    public sealed class Interpolation
    {
        /// <summary>The number of recent arrivals that determine the delay.</summary>
        private const int ArrivalsMax = 120;
        /// <summary>The share of arrivals that the delay covers.</summary>
        private const double Covered = 0.97;
        private const double MarginMs = 2;
        private const int SamplesMax = 64;
        /// <summary>
        /// All samples of all objects with their states. Enough for 64 samples of 10,000 objects with states of 40 bytes; beyond it, objects have fewer samples,
        /// or are shown where they are.
        /// </summary>
        internal const long SampleBytesMax = 64 << 20;
        private const int BytesOfSample = 64;
        /// <summary>The shown time runs at most this much faster or slower than the clock.</summary>
        private const double SlewMax = 0.1;
        /// <summary>At a larger difference it jumps instead.</summary>
        private const double JumpMs = 500;
        /// <summary>The number of recent updates of far cells that determine the delay of the objects in them.</summary>
        private const int FarUpdatesMax = 30;
        /// <summary>An object that enters or leaves the far cells is shown at most this much slower or faster.</summary>
        private const double FarSlewMax = 0.25;
        /// <summary>A server that limits bandwidth sends far cells at the latest when they are this old.</summary>
        private const uint FarWaitTicks = 13;
        /// <summary>A server that has sent far cells late is expected to do so again for this long.</summary>
        private const uint FarLateS = 2;

        private struct Sample
        {
            internal double AtMs;
            internal Place Place;
            /// <summary>The object, for its fields; null if its kind has none.</summary>
            internal SeenObject Seen;

            internal int Bytes { get { return BytesOfSample + (Seen == null ? 0 : Seen.State.Length); } }
        }

        private sealed class Track
        {
            internal readonly List<Sample> Samples = new List<Sample>();
            internal bool IsFar;
            /// <summary>How much later than the shown time the object is shown.</summary>
            internal double LagMs;
            /// <summary>The last shown time.</summary>
            internal double? ShownMs;
        }

        private readonly Dictionary<uint, Track> tracks = new Dictionary<uint, Track>();
        private long sampleBytes;
        private readonly List<double> needsMs = new List<double>();
        private readonly List<double> farNeedsMs = new List<double>();
        /// <summary>Kept, so that a snapshot allocates none.</summary>
        private readonly double[] sorted = new double[ArrivalsMax];
        private readonly InterpolationOptions options;
        private Grid grid;
        private Schema schema;
        /// <summary>The tick of the last snapshot with a far cell.</summary>
        private uint farTick;
        /// <summary>The tick of the last one that did not have to bring far cells; 0 for none.</summary>
        private uint farLateTick;
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

        /// <summary>How much later than others an object in a far cell is shown.</summary>
        public double FarDelayMs { get; private set; }

        /// <summary>How many objects are followed.</summary>
        public int Count { get { return tracks.Count; } }

        public void Clear()
        {
            tracks.Clear();
            sampleBytes = 0;
            needsMs.Clear();
            farNeedsMs.Clear();
            FarDelayMs = farTick = farLateTick = 0;
            lastMs = shownMs = null;
            DelayMs = options.DelayMinMs;
        }

        /// <summary>Takes in what a snapshot changed that arrived at server time <paramref name="arrivedMs"/>.</summary>
        public void Observe(Changes changes, Grid map, double arrivedMs)
        {
            double atMs = changes.Snapshot.TimeUs / 1000.0;
            grid = map;
            schema = changes.Schema;
            // Until now the newest known time was that of the last snapshot: this delay would have been long enough.
            if (lastMs != null && !changes.IsFull) Measure(arrivedMs - lastMs.Value, SlowedMs(changes.Snapshot));
            Snapshot snapshot = changes.Snapshot;
            bool hasFarUpdate = false;
            foreach (CellUpdate cell in snapshot.Cells) hasFarUpdate |= !cell.Full && IsFarFrom(snapshot, cell.Cell);
            if (hasFarUpdate && lastMs != null) MeasureFar(snapshot, atMs);
            foreach (SeenObject one in changes.Removed) Remove(one.Id);
            foreach (SeenObject one in changes.Added)
            {
                bool isFar = IsFarFrom(snapshot, one.Cell);
                var track = new Track { IsFar = isFar, LagMs = isFar ? FarDelayMs : 0 };
                Remove(one.Id);
                tracks[one.Id] = track;
                Add(track, SampleOf(one, atMs));
            }
            foreach (ChangedObject changed in changes.Changed)
            {
                bool hasMoved = changed.Before.X != changed.After.X || changed.Before.Y != changed.After.Y;
                if (hasMoved || HasFields(changed.After)) Follow(changed, snapshot, atMs);
            }
            if (changes.IsFull || hasFarUpdate) farTick = snapshot.Tick;
            lastMs = atMs;
        }

        private void Follow(ChangedObject changed, Snapshot snapshot, double atMs)
        {
            Track track;
            if (!tracks.TryGetValue(changed.After.Id, out track)) tracks[changed.After.Id] = track = new Track();
            track.IsFar = IsFarFrom(snapshot, changed.After.Cell);
            List<Sample> samples = track.Samples;
            double stoodUntilMs = StoodUntil(snapshot, IsFarFrom(snapshot, changed.Before.Cell), atMs);
            // The object did not change until the base of this snapshot, or the last update of far cells.
            if (samples.Count == 0 || samples[samples.Count - 1].AtMs < stoodUntilMs)
            {
                Add(track, SampleOf(changed.Before, stoodUntilMs));
            }
            Add(track, SampleOf(changed.After, atMs));
            if (samples.Count > SamplesMax) Forget(track, samples.Count - SamplesMax);
        }

        /// <summary>Adds a sample, if need be in place of the oldest ones. If even that is too much, the object is not followed until it changes again.</summary>
        private void Add(Track track, Sample sample)
        {
            int old = 0;
            long freed = 0;
            while (old < track.Samples.Count && sampleBytes - freed + sample.Bytes > SampleBytesMax)
            {
                freed += track.Samples[old].Bytes;
                old += 1;
            }
            Forget(track, old);
            if (sampleBytes + sample.Bytes > SampleBytesMax) return;
            track.Samples.Add(sample);
            sampleBytes += sample.Bytes;
        }

        private void Forget(Track track, int count)
        {
            for (int at = 0; at < count; at += 1) sampleBytes -= track.Samples[at].Bytes;
            if (count > 0) track.Samples.RemoveRange(0, count);
        }

        private void Remove(uint id)
        {
            Track track;
            if (!tracks.TryGetValue(id, out track)) return;
            Forget(track, track.Samples.Count);
            tracks.Remove(id);
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
            Sample from;
            Sample to;
            double share;
            place = default(Place);
            if (!TrySamples(id, atMs, out from, out to, out share)) return false;
            double x = from.Place.X + (to.Place.X - from.Place.X) * share;
            double y = from.Place.Y + (to.Place.Y - from.Place.Y) * share;
            place = new Place(x, y);
            return true;
        }

        /// <summary>
        /// The number of a field at server time <paramref name="atMs"/>, between two known ones as its <see cref="Field.Motion"/> says, and divided by
        /// <see cref="Field.PerUnit"/>. An angle stays inside its range, so that its last step and its first are neighbours. Of a flag the number is 1 or 0, of
        /// a choice its index, and of a reference an id. Returns false if the object is not followed, or has no such number.
        /// </summary>
        public bool TryField(uint id, Field field, double atMs, out double value)
        {
            Sample from;
            Sample to;
            double share;
            long start;
            long end;
            value = 0;
            if (!TrySamples(id, atMs, out from, out to, out share) || !TryNumber(from, field, out start)) return false;
            value = start;
            bool moves = field.Motion != Motion.Step && field.Type == FieldType.Integer && share > 0;
            if (moves && TryNumber(to, field, out end)) value = Between(field, start, end, share);
            value /= field.PerUnit;
            return true;
        }

        private static double Between(Field field, long start, long end, double share)
        {
            if (field.Motion != Motion.Angle) return start + (end - start) * share;
            long turn = field.Range.Count;
            long way = end - start;
            // Half a turn goes up, in either direction.
            if (2 * way > turn) way -= turn;
            else if (2 * way <= -turn) way += turn;
            double value = start + way * share;
            if (value < field.Range.Min) return value + turn;
            return value >= field.Range.Min + turn ? value - turn : value;
        }

        private bool TryNumber(Sample sample, Field field, out long number)
        {
            number = 0;
            RawValue raw;
            bool isOfKind = sample.Seen != null && schema != null && field != null && schema.Kind(sample.Seen.Kind) == field.Kind;
            if (!isOfKind || field.IsSequence || !field.TryFind(sample.Seen.State, out raw)) return false;
            number = raw.Number;
            return true;
        }

        private bool HasFields(SeenObject one)
        {
            return schema != null && schema.Kind(one.Kind) != null;
        }

        private Sample SampleOf(SeenObject one, double atMs)
        {
            return new Sample { AtMs = atMs, Place = new Place(one.X, one.Y), Seen = HasFields(one) ? one : null };
        }

        /// <summary>What is known before and after a time, and how far the time is from the one to the other; 0 if the object is shown as it was before.</summary>
        private bool TrySamples(uint id, double atMs, out Sample from, out Sample to, out double share)
        {
            from = to = default(Sample);
            share = 0;
            Track followed;
            if (!tracks.TryGetValue(id, out followed) || followed.Samples.Count == 0) return false;
            List<Sample> track = followed.Samples;
            atMs -= Lag(followed, atMs);
            // Of what was known before the shown time, only the last is needed.
            int past = 0;
            while (past + 1 < track.Count && track[past + 1].AtMs <= atMs) past += 1;
            Forget(followed, past);
            from = to = track[0];
            if (track.Count == 1 || atMs <= from.AtMs) return true;
            double teleportUnits = options.TeleportUnits ?? grid.CellUnits;
            if (from.Place.DistanceTo(track[1].Place) > teleportUnits) return true;
            to = track[1];
            share = (atMs - from.AtMs) / (to.AtMs - from.AtMs);
            return true;
        }

        /// <summary>The delay of an object changes slowly, so that it does not jump.</summary>
        private double Lag(Track track, double atMs)
        {
            double passedMs = track.ShownMs == null ? 0 : Math.Max(0, atMs - track.ShownMs.Value);
            double wantedMs = (track.IsFar ? FarDelayMs : 0) - track.LagMs;
            track.LagMs += Math.Max(-FarSlewMax * passedMs, Math.Min(FarSlewMax * passedMs, wantedMs));
            track.ShownMs = Math.Max(atMs, track.ShownMs ?? atMs);
            return track.LagMs;
        }

        private bool IsFarFrom(Snapshot snapshot, uint? cell)
        {
            return cell != null && grid.BandOf(snapshot.View, cell.Value) == Band.Far;
        }

        /// <summary>The last tick up to this one at which far cells are due.</summary>
        private uint MultipleOf(uint tick)
        {
            return tick / grid.FarIntervalTicks * grid.FarIntervalTicks;
        }

        private double StoodUntil(Snapshot snapshot, bool isFar, double atMs)
        {
            if (snapshot.Base == 0) return atMs;
            // After a longer time far cells were sent, but nothing had changed in them.
            double ticksPerSecond = grid.TicksPerSecond * (snapshot.RatePermille / 1000.0);
            bool isPostponed = farLateTick > 0 && snapshot.Tick - farLateTick < FarLateS * ticksPerSecond
                && snapshot.Base - farTick < FarWaitTicks;
            uint knownFarTick = isPostponed ? farTick : MultipleOf(snapshot.Base);
            uint knownTick = isFar ? knownFarTick : snapshot.Base;
            if (knownTick == snapshot.Base && lastMs != null) return Math.Min(lastMs.Value, atMs);
            return atMs - (snapshot.Tick - knownTick) / ticksPerSecond * 1000;
        }

        /// <summary>Measures how much longer it is from one update of far cells to the next than between snapshots.</summary>
        private void MeasureFar(Snapshot snapshot, double atMs)
        {
            if (MultipleOf(snapshot.Tick) <= snapshot.Base) farLateTick = snapshot.Tick;
            farNeedsMs.Add(Math.Max(0, lastMs.Value - StoodUntil(snapshot, true, atMs)));
            if (farNeedsMs.Count > FarUpdatesMax) farNeedsMs.RemoveAt(0);
            FarDelayMs = Math.Min(options.DelayMaxMs, Covering(farNeedsMs));
        }

        /// <summary>By how much the interval of ticks is longer than at full rate.</summary>
        private double SlowedMs(Snapshot snapshot)
        {
            return (Snapshot.FullRatePermille / (double)snapshot.RatePermille - 1) * (1000.0 / grid.TicksPerSecond);
        }

        /// <summary>What a delay needs besides the interval of a slowed room is kept, so that the delay follows the rate at once.</summary>
        private void Measure(double neededMs, double slowedMs)
        {
            needsMs.Add(neededMs - slowedMs);
            if (needsMs.Count > ArrivalsMax) needsMs.RemoveAt(0);
            DelayMs = Math.Min(options.DelayMaxMs, Math.Max(options.DelayMinMs, Covering(needsMs) + slowedMs + MarginMs));
        }

        /// <summary>The delay that covers nearly all of these.</summary>
        private double Covering(List<double> neededMs)
        {
            neededMs.CopyTo(sorted);
            Array.Sort(sorted, 0, neededMs.Count);
            return sorted[Math.Min(neededMs.Count - 1, (int)Math.Floor(neededMs.Count * Covered))];
        }
    }
}
