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
    /// snapshot, nor do other cells under a bandwidth limit, so objects in them are shown later by a second delay.
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
        /// <summary>The number of recent updates of a zone that determine the second delay of the objects in it.</summary>
        private const int ZoneUpdatesMax = 30;
        /// <summary>An object that enters or leaves a zone is shown at most this much slower or faster.</summary>
        private const double ZoneSlewMax = 0.25;
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
            /// <summary>The zone of its cell when it changed last.</summary>
            internal uint Zone;
            /// <summary>How much later than the shown time the object is shown.</summary>
            internal double LagMs;
            /// <summary>The last shown time.</summary>
            internal double? ShownMs;
        }

        private readonly Dictionary<uint, Track> tracks = new Dictionary<uint, Track>();
        private long sampleBytes;
        private readonly List<double> needsMs = new List<double>();
        /// <summary>By zone: what its last updates needed besides the delay, and the second delay. The nearest zone never waits.</summary>
        private readonly List<double>[] zoneNeedsMs = new List<double>[Grid.Zones];
        private readonly double[] zoneDelaysMs = new double[Grid.Zones];
        /// <summary>By zone, whether the current snapshot updates it.</summary>
        private readonly bool[] updated = new bool[Grid.Zones];
        /// <summary>Kept, so that a snapshot allocates none.</summary>
        private readonly double[] sorted = new double[ArrivalsMax];
        private readonly InterpolationOptions options;
        private Grid grid;
        private Schema schema;
        /// <summary>The tick of the last snapshot with a far cell.</summary>
        private uint farTick;
        /// <summary>The tick of the last one that did not have to bring far cells; 0 for none.</summary>
        private uint farLateTick;
        /// <summary>The view of the last snapshot.</summary>
        private uint lastView;
        private double? lastMs;
        private double? shownMs;
        private double shownAtMs;

        public Interpolation(InterpolationOptions options = null)
        {
            this.options = options ?? new InterpolationOptions();
            DelayMs = this.options.DelayMinMs;
            for (uint zone = 0; zone < Grid.Zones; zone += 1) zoneNeedsMs[zone] = new List<double>();
        }

        /// <summary>The target delay of the shown time relative to the server's.</summary>
        public double DelayMs { get; private set; }

        /// <summary>How much later than others an object in a far cell is shown.</summary>
        public double FarDelayMs { get { return zoneDelaysMs[Grid.FarZone]; } }

        /// <summary>How many objects are followed.</summary>
        public int Count { get { return tracks.Count; } }

        public void Clear()
        {
            tracks.Clear();
            sampleBytes = 0;
            needsMs.Clear();
            foreach (List<double> zone in zoneNeedsMs) zone.Clear();
            Array.Clear(zoneDelaysMs, 0, zoneDelaysMs.Length);
            farTick = farLateTick = 0;
            lastMs = shownMs = null;
            DelayMs = options.DelayMinMs;
        }

        /// <summary>The server's clock is another one: samples of before have no time on it.</summary>
        public void ForgetSamples()
        {
            foreach (Track track in tracks.Values)
            {
                Forget(track, track.Samples.Count);
                track.LagMs = zoneDelaysMs[track.Zone];
                track.ShownMs = null;
            }
            lastMs = shownMs = null;
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
            Array.Clear(updated, 0, updated.Length);
            // A cell in full may only have come into view.
            foreach (CellUpdate cell in snapshot.Cells) if (!cell.Full) updated[grid.ZoneOf(snapshot.View, cell.Cell)] = true;
            if (lastMs != null) MeasureZones(snapshot, atMs);
            foreach (SeenObject one in changes.Removed) Remove(one.Id);
            foreach (SeenObject one in changes.Added)
            {
                uint zone = ZoneOf(snapshot.View, one.Cell);
                var track = new Track { Zone = zone, LagMs = zoneDelaysMs[zone] };
                Remove(one.Id);
                tracks[one.Id] = track;
                Add(track, SampleOf(one, atMs));
            }
            foreach (ChangedObject changed in changes.Changed)
            {
                bool hasMoved = changed.Before.X != changed.After.X || changed.Before.Y != changed.After.Y;
                if (hasMoved || HasFields(changed.After)) Follow(changed, snapshot, atMs);
            }
            if (changes.IsFull || updated[Grid.FarZone]) farTick = snapshot.Tick;
            lastMs = atMs;
            lastView = snapshot.View;
        }

        private void Follow(ChangedObject changed, Snapshot snapshot, double atMs)
        {
            Track track;
            if (!tracks.TryGetValue(changed.After.Id, out track)) tracks[changed.After.Id] = track = new Track();
            track.Zone = ZoneOf(snapshot.View, changed.After.Cell);
            List<Sample> samples = track.Samples;
            uint zoneBefore = ZoneOf(lastView, changed.Before.Cell);
            double stoodUntilMs = StoodUntil(snapshot, zoneBefore, atMs);
            // The object did not change until the base of this snapshot, or the last update of its zone.
            if (samples.Count == 0 || samples[samples.Count - 1].AtMs < stoodUntilMs)
            {
                Add(track, SampleOf(changed.Before, stoodUntilMs));
            }
            uint waited;
            if (snapshot.TryWait(zoneBefore, out waited) && waited > 0) Resume(track);
            Add(track, SampleOf(changed.After, atMs));
            if (samples.Count > SamplesMax) Forget(track, samples.Count - SamplesMax);
        }

        /// <summary>An object whose cell waited for longer than the delay was shown where it was then. It goes on from there.</summary>
        private void Resume(Track track)
        {
            if (track.Samples.Count == 0 || track.ShownMs == null) return;
            double stoodMs = Math.Max(0, track.ShownMs.Value - track.LagMs - track.Samples[track.Samples.Count - 1].AtMs);
            track.LagMs = Math.Max(track.LagMs, Math.Min(options.DelayMaxMs, track.LagMs + stoodMs));
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
            double wantedMs = zoneDelaysMs[track.Zone] - track.LagMs;
            track.LagMs += Math.Max(-ZoneSlewMax * passedMs, Math.Min(ZoneSlewMax * passedMs, wantedMs));
            track.ShownMs = Math.Max(atMs, track.ShownMs ?? atMs);
            return track.LagMs;
        }

        /// <summary>Objects that only this player receives are in no cell, and do not wait.</summary>
        private uint ZoneOf(uint view, uint? cell)
        {
            return cell == null ? 0 : grid.ZoneOf(view, cell.Value);
        }

        /// <summary>The last tick up to this one at which far cells are due.</summary>
        private uint MultipleOf(uint tick)
        {
            return tick / grid.FarIntervalTicks * grid.FarIntervalTicks;
        }

        /// <summary>Until when an object in this zone, as seen from the last view, had not changed.</summary>
        private double StoodUntil(Snapshot snapshot, uint zone, double atMs)
        {
            if (snapshot.Base == 0) return atMs;
            // After a longer time far cells were sent, but nothing had changed in them.
            double ticksPerSecond = grid.TicksPerSecond * (snapshot.RatePermille / 1000.0);
            bool isPostponed = farLateTick > 0 && snapshot.Tick - farLateTick < FarLateS * ticksPerSecond
                && snapshot.Base - farTick < FarWaitTicks;
            uint knownFarTick = isPostponed ? farTick : MultipleOf(snapshot.Base);
            uint waited;
            bool isSaid = snapshot.TryWait(zone, out waited);
            double knownTick = isSaid ? (double)snapshot.Base - waited : zone == Grid.FarZone ? knownFarTick : snapshot.Base;
            if (knownTick == snapshot.Base && lastMs != null) return Math.Min(lastMs.Value, atMs);
            return atMs - (snapshot.Tick - knownTick) / ticksPerSecond * 1000;
        }

        /// <summary>Measures how much longer it is from one update of a zone to the next than between snapshots.</summary>
        private void MeasureZones(Snapshot snapshot, double atMs)
        {
            // A server that does not say that far cells have waited.
            bool isLate = updated[Grid.FarZone] && snapshot.Waited == 0 && MultipleOf(snapshot.Tick) <= snapshot.Base;
            if (isLate) farLateTick = snapshot.Tick;
            for (uint zone = 0; zone < Grid.Zones; zone += 1)
            {
                List<double> neededMs = zoneNeedsMs[zone];
                if (!updated[zone]) continue;
                neededMs.Add(Math.Max(0, lastMs.Value - StoodUntil(snapshot, zone, atMs)));
                if (neededMs.Count > ZoneUpdatesMax) neededMs.RemoveAt(0);
                zoneDelaysMs[zone] = Math.Min(options.DelayMaxMs, Covering(neededMs));
            }
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
