using System;
using System.Collections.Generic;

namespace Dunlin.Rooms
{
    /// <summary>An object that the player sees. It is immutable: a change creates a new one.</summary>
    public sealed class SeenObject
    {
        internal SeenObject(RoomObject from, uint left, uint top, uint? cell)
        {
            Id = from.Id;
            Kind = from.Kind;
            X = left + from.X;
            Y = top + from.Y;
            State = from.State;
            Cell = cell;
        }

        public uint Id { get; }
        public uint Kind { get; }
        /// <summary>Units from the map's corner.</summary>
        public uint X { get; }
        public uint Y { get; }
        /// <summary>In the game's own format. Do not change it.</summary>
        public byte[] State { get; }
        /// <summary>Null for objects that only this player receives.</summary>
        public uint? Cell { get; }

        internal bool IsSameAs(SeenObject other)
        {
            if (Kind != other.Kind || X != other.X || Y != other.Y || Cell != other.Cell) return false;
            if (State.Length != other.State.Length) return false;
            for (int at = 0; at < State.Length; at += 1) if (State[at] != other.State[at]) return false;
            return true;
        }
    }

    /// <summary>An object before and after a snapshot.</summary>
    public struct ChangedObject
    {
        public SeenObject Before;
        public SeenObject After;
    }

    /// <summary>What one snapshot changed. An object that only went to another cell is changed, not removed and added.</summary>
    public sealed class Changes
    {
        public Snapshot Snapshot { get; internal set; }
        /// <summary>Whether the snapshot was full; the lists are the difference to the state before.</summary>
        public bool IsFull { get; internal set; }
        public List<SeenObject> Added { get; } = new List<SeenObject>();
        public List<ChangedObject> Changed { get; } = new List<ChangedObject>();
        public List<SeenObject> Removed { get; } = new List<SeenObject>();
        /// <summary>What the states are made of after it.</summary>
        internal Schema Schema { get; set; }
    }

    /// <summary>A client's copy of the visible objects, updated by snapshots.</summary>
    public sealed class Replica
    {
        public const int ObjectsMaxDefault = 1000000;
        public const long StateBytesMaxDefault = 256L << 20;
        private const int KeptOutcomesMax = 4096;

        private readonly Dictionary<uint, SeenObject> seen = new Dictionary<uint, SeenObject>();
        private readonly Dictionary<uint, HashSet<uint>> cells = new Dictionary<uint, HashSet<uint>>();
        /// <summary>The new states of the objects in the last snapshot; null for removed objects. Kept, so that each snapshot does not allocate one.</summary>
        private Dictionary<uint, SeenObject> outcome = new Dictionary<uint, SeenObject>();
        private readonly StateWriter writer = new StateWriter();
        private readonly ChangeReader changeReader;
        private readonly int objectsMax;
        private readonly long stateBytesMax;
        /// <summary>Objects that only this player receives; some may have moved to a cell since.</summary>
        private List<uint> own = new List<uint>();
        private long stateBytes;
        /// <summary>Of the states that the changes of the snapshot have led to so far. A few bits may be a long state.</summary>
        private long changedBytes;
        /// <summary>The last schema, also after <see cref="Clear"/>: handles of its fields stay valid if the next join brings the same one.</summary>
        private Schema lastSchema;

        public Replica(int objectsMax = ObjectsMaxDefault, long stateBytesMax = StateBytesMaxDefault)
        {
            this.objectsMax = objectsMax;
            this.stateBytesMax = stateBytesMax;
            changeReader = new ChangeReader(writer);
        }

        /// <summary>The tick that it shows; 0 before the first snapshot.</summary>
        public uint Tick { get; private set; }
        /// <summary>The Unix time of that tick at the server, in microseconds.</summary>
        public ulong TimeUs { get; private set; }
        /// <summary>The rate of the room's clock at that tick, in thousandths: 1,000 is real time. An overloaded room runs slower.</summary>
        public uint RatePermille { get; private set; } = Snapshot.FullRatePermille;
        /// <summary>
        /// The waits of the zones of the view: by how many ticks before the base of the last snapshot the cells of each were sent last, in 4 bits each, the
        /// nearest zone in the lowest. 0 if no cells have waited for a bandwidth limit.
        /// </summary>
        public uint Waited { get; private set; }

        /// <summary>Whether the last snapshot is the first one after the room has moved to another node of its cluster.</summary>
        public bool HasMoved { get; private set; }
        /// <summary>The number of ticks in a second of real time at that rate; 0 before the first snapshot.</summary>
        public double TicksPerSecond { get { return Grid == null ? 0 : Grid.TicksPerSecond * (RatePermille / 1000.0); } }
        /// <summary>The number of the last input that the room had applied.</summary>
        public uint Ack { get; private set; }
        /// <summary>The id of the player's own object; 0 for none.</summary>
        public uint Avatar { get; private set; }
        /// <summary>The cell that the player looks from.</summary>
        public uint View { get; private set; }
        /// <summary>The map; null before the first snapshot.</summary>
        public Grid Grid { get; private set; }
        /// <summary>What the states are made of; null if the room has not told.</summary>
        public Schema Schema { get; private set; }
        public int Count { get { return seen.Count; } }
        public Dictionary<uint, SeenObject>.ValueCollection Objects { get { return seen.Values; } }

        /// <summary>The object of this id; null if it is not seen.</summary>
        public SeenObject Object(uint id)
        {
            SeenObject found;
            return seen.TryGetValue(id, out found) ? found : null;
        }

        /// <summary>The fields of an object's state by name; null if its kind has none, or if its state does not have the form of its kind.</summary>
        public IReadOnlyDictionary<string, FieldValue> Fields(SeenObject one)
        {
            Kind kind = Schema == null ? null : Schema.Kind(one.Kind);
            if (kind == null) return null;
            var values = new Dictionary<string, FieldValue>(kind.All.Length);
            var reader = new StateReader(kind, one.State);
            foreach (Field field in kind.All)
            {
                RawValue raw;
                if (!reader.TryNext(out raw)) return null;
                values.Add(field.Name, FieldValue.Of(field, one.State, raw));
            }
            return reader.IsFinished ? values : null;
        }

        /// <summary>
        /// Reads a field as it is in the state, without allocations: an integer, the id of an object, 1 or 0 for a flag, or the index of a choice.
        /// Returns false for other fields, and if the object has no such field.
        /// </summary>
        public bool TryGetInteger(SeenObject one, Field field, out long value)
        {
            RawValue raw;
            bool isFound = TryFind(one, field, out raw) && !field.IsSequence;
            value = isFound ? raw.Number : 0;
            return isFound;
        }

        /// <summary>As <see cref="TryGetInteger"/>, divided by <see cref="Field.PerUnit"/>.</summary>
        public bool TryGetNumber(SeenObject one, Field field, out double value)
        {
            long number;
            bool isFound = TryGetInteger(one, field, out number);
            value = isFound ? number / (double)field.PerUnit : 0;
            return isFound;
        }

        /// <summary>
        /// Reads the name of a choice, without allocations, or a text. Returns false for other fields, and if the object has no such field.
        /// </summary>
        public bool TryGetText(SeenObject one, Field field, out string value)
        {
            RawValue raw;
            value = null;
            if (!TryFind(one, field, out raw)) return false;
            if (field.Type == FieldType.Choice) value = field.Names[(int)raw.Number];
            if (field.Type == FieldType.Text) value = FieldValue.TextOf(one.State, raw);
            return value != null;
        }

        /// <summary>
        /// Replaces the contents of <paramref name="values"/> by the elements of a list. Returns false for other fields, and if the object has no such field.
        /// </summary>
        public bool TryGetList(SeenObject one, Field field, List<long> values)
        {
            RawValue raw;
            values.Clear();
            if (!TryFind(one, field, out raw) || field.Type != FieldType.List) return false;
            for (int at = 0; at < raw.Count; at += 1) values.Add(FieldValue.ElementOf(field, one.State, raw, at));
            return true;
        }

        private bool TryFind(SeenObject one, Field field, out RawValue raw)
        {
            raw = default(RawValue);
            // A handle of another schema, or of another kind, does not fit.
            return field != null && Schema != null && Schema.Kind(one.Kind) == field.Kind && field.TryFind(one.State, out raw);
        }

        /// <summary>
        /// The tick that the world showed at this server time, which <see cref="Interpolation.Advance"/> returns; 0 before the first
        /// snapshot. A game that rewinds its world to what the player saw sends it with the input.
        /// </summary>
        public uint TickAt(double serverTimeMs)
        {
            if (Grid == null) return 0;
            double later = Math.Floor((serverTimeMs - TimeUs / 1000.0) * TicksPerSecond / 1000 + 0.5);
            return (uint)Math.Min(Math.Max(Tick + later, 1), uint.MaxValue);
        }

        public void Clear()
        {
            seen.Clear();
            cells.Clear();
            own.Clear();
            outcome = new Dictionary<uint, SeenObject>();
            stateBytes = 0;
            Tick = Ack = Avatar = View = 0;
            TimeUs = 0;
            RatePermille = Snapshot.FullRatePermille;
            Waited = 0;
            HasMoved = false;
            Grid = null;
            Schema = null;
        }

        /// <summary>Applies a snapshot completely.</summary>
        /// <exception cref="RoomException">The replica is unchanged then.</exception>
        public Changes Apply(Snapshot snapshot)
        {
            bool isFull = snapshot.Base == 0;
            if (!isFull && snapshot.Base != Tick)
            {
                throw new RoomException(RoomErrorKind.WrongBase, "tick " + snapshot.Tick + " has base " + snapshot.Base + ", but the replica is at tick " + Tick);
            }
            Grid grid = isFull && !snapshot.Grid.Equals(Grid) ? snapshot.Grid : Grid;
            if (snapshot.View >= grid.CellCount) throw new RoomException(RoomErrorKind.WrongCell, "the view " + snapshot.View + " is not on the map");
            CheckCells(snapshot, grid);
            Schema schema = SchemaOf(snapshot);
            FindOutcome(snapshot, grid, schema);
            CheckSize();
            if (isFull || snapshot.Own != null)
            {
                own = new List<uint>();
                if (snapshot.Own != null) foreach (RoomObject one in snapshot.Own) own.Add(one.Id);
            }
            Grid = grid;
            Schema = schema;
            lastSchema = schema ?? lastSchema;
            Tick = snapshot.Tick;
            TimeUs = snapshot.TimeUs;
            RatePermille = snapshot.RatePermille;
            Waited = snapshot.Waited;
            HasMoved = snapshot.HasMoved;
            Ack = snapshot.Ack;
            Avatar = snapshot.Avatar;
            View = snapshot.View;
            return TakeIn(snapshot, isFull);
        }

        /// <summary>Cells are visible and ascend. A cell may occur twice: in full first, then with what changed.</summary>
        private static void CheckCells(Snapshot snapshot, Grid grid)
        {
            foreach (CellUpdate one in snapshot.Cells)
            {
                if (one.Cell >= grid.CellCount || grid.BandOf(snapshot.View, one.Cell) == Band.None)
                {
                    throw new RoomException(RoomErrorKind.WrongCell, "cell " + one.Cell + " is outside the view of cell " + snapshot.View);
                }
            }
            for (int at = 1; at < snapshot.Cells.Count; at += 1)
            {
                CellUpdate one = snapshot.Cells[at - 1];
                CellUpdate next = snapshot.Cells[at];
                bool follows = one.Cell < next.Cell || one.Cell == next.Cell && one.Full && !next.Full;
                if (!follows) throw RoomException.Malformed("cell " + next.Cell + " comes after cell " + one.Cell);
            }
        }

        private Schema SchemaOf(Snapshot snapshot)
        {
            if (snapshot.Schema == null) return Schema;
            return snapshot.Schema.IsSameAs(lastSchema) ? lastSchema : snapshot.Schema;
        }

        private void FindOutcome(Snapshot snapshot, Grid grid, Schema schema)
        {
            bool isFull = snapshot.Base == 0;
            changedBytes = 0;
            // The time that Clear takes follows the largest number that it has held.
            if (outcome.Count > KeptOutcomesMax) outcome = new Dictionary<uint, SeenObject>();
            else outcome.Clear();
            if (isFull) foreach (uint id in seen.Keys) outcome[id] = null;
            if (snapshot.Own != null) ReplaceOwn(snapshot.Own, grid, schema);
            if (!isFull && snapshot.View != View)
            {
                foreach (KeyValuePair<uint, HashSet<uint>> cell in cells)
                {
                    if (grid.BandOf(snapshot.View, cell.Key) == Band.None) Forget(cell.Value);
                }
            }
            foreach (CellUpdate cell in snapshot.Cells)
            {
                HashSet<uint> ids;
                if (cell.Full && cells.TryGetValue(cell.Cell, out ids)) Forget(ids);
                foreach (uint id in cell.Departed)
                {
                    SeenObject known = Object(id);
                    if (known != null && known.Cell == cell.Cell && !outcome.ContainsKey(id)) outcome[id] = null;
                }
            }
            foreach (CellUpdate cell in snapshot.Cells)
            {
                Upsert(cell, grid, schema);
                if (cell.Changes != null) Change(cell, grid, isFull);
            }
        }

        private void ReplaceOwn(List<RoomObject> objects, Grid grid, Schema schema)
        {
            foreach (uint id in own)
            {
                SeenObject known = Object(id);
                if (known != null && known.Cell == null) outcome[id] = null;
            }
            foreach (RoomObject one in objects)
            {
                if (one.X >= grid.WidthUnits || one.Y >= grid.HeightUnits) throw RoomException.Malformed("object " + one.Id + " lies outside the map");
                outcome[one.Id] = new SeenObject(WithState(one, schema), 0, 0, null);
            }
        }

        /// <summary>Removes objects, except those that the snapshot has already updated.</summary>
        private void Forget(HashSet<uint> ids)
        {
            foreach (uint id in ids) if (!outcome.ContainsKey(id)) outcome[id] = null;
        }

        private void Upsert(CellUpdate cell, Grid grid, Schema schema)
        {
            foreach (RoomObject one in cell.Upserts) Place(WithState(one, schema), cell.Cell, grid);
        }

        /// <summary>The changes build on the objects as they were before the snapshot, so on those that are seen, and not on <see cref="outcome"/>.</summary>
        private void Change(CellUpdate cell, Grid grid, bool isFull)
        {
            if (isFull || cell.Full || Schema == null) throw RoomException.Malformed("cell " + cell.Cell + " has changes of nothing");
            uint left = grid.Column(cell.Cell) * grid.CellUnits;
            uint top = grid.Row(cell.Cell) * grid.CellUnits;
            changeReader.Begin(cell.Changes, Schema, grid.CellUnits);
            for (uint id = changeReader.NextId(); id != 0; id = changeReader.NextId())
            {
                SeenObject before = Object(id);
                if (before == null || before.Cell != cell.Cell) throw RoomException.Malformed("object " + id + " has changes, and is not in cell " + cell.Cell);
                RoomObject after = changeReader.Next(before, left, top);
                changedBytes += after.State.Length;
                if (changedBytes > stateBytesMax) throw new RoomException(RoomErrorKind.TooLarge, "the changes lead to more than " + stateBytesMax + " bytes");
                Place(after, cell.Cell, grid);
            }
            changeReader.End();
        }

        private void Place(RoomObject one, uint cell, Grid grid)
        {
            if (one.X >= grid.CellUnits || one.Y >= grid.CellUnits) throw RoomException.Malformed("object " + one.Id + " lies outside its cell");
            outcome[one.Id] = new SeenObject(one, grid.Column(cell) * grid.CellUnits, grid.Row(cell) * grid.CellUnits, cell);
        }

        /// <summary>An object of a JSON session, with its state instead of its fields.</summary>
        private RoomObject WithState(RoomObject one, Schema schema)
        {
            if (one.Fields == null) return one;
            Kind kind = schema == null ? null : schema.Kind(one.Kind);
            if (kind == null) throw RoomException.Malformed("object " + one.Id + " has fields, and its kind has none");
            writer.Begin(kind);
            FieldsJson.Write(one.Fields, kind, writer);
            one.State = writer.Finish(Snapshot.NoState);
            one.Fields = null;
            return one;
        }

        private void CheckSize()
        {
            long objects = seen.Count;
            long bytes = stateBytes;
            foreach (KeyValuePair<uint, SeenObject> pair in outcome)
            {
                SeenObject before = Object(pair.Key);
                objects += (pair.Value == null ? 0 : 1) - (before == null ? 0 : 1);
                bytes += (pair.Value == null ? 0 : pair.Value.State.Length) - (before == null ? 0 : before.State.Length);
            }
            if (objects > objectsMax) throw new RoomException(RoomErrorKind.TooLarge, "the snapshot would make it " + objects + " objects");
            if (bytes > stateBytesMax) throw new RoomException(RoomErrorKind.TooLarge, "the snapshot would make it " + bytes + " bytes");
        }

        private Changes TakeIn(Snapshot snapshot, bool isFull)
        {
            var changes = new Changes { Snapshot = snapshot, IsFull = isFull, Schema = Schema };
            foreach (KeyValuePair<uint, SeenObject> pair in outcome)
            {
                SeenObject before = Object(pair.Key);
                SeenObject after = pair.Value;
                if (before == null && after != null) changes.Added.Add(after);
                else if (before != null && after == null) changes.Removed.Add(before);
                else if (before != null && !before.IsSameAs(after)) changes.Changed.Add(new ChangedObject { Before = before, After = after });
                Put(pair.Key, before, after);
            }
            return changes;
        }

        private void Put(uint id, SeenObject before, SeenObject after)
        {
            if (before != null)
            {
                stateBytes -= before.State.Length;
                seen.Remove(id);
                if (before.Cell != null && (after == null || after.Cell != before.Cell)) Leave(before.Cell.Value, id);
            }
            if (after == null) return;
            stateBytes += after.State.Length;
            seen[id] = after;
            if (after.Cell == null) return;
            HashSet<uint> ids;
            if (!cells.TryGetValue(after.Cell.Value, out ids)) cells[after.Cell.Value] = ids = new HashSet<uint>();
            ids.Add(id);
        }

        private void Leave(uint cell, uint id)
        {
            HashSet<uint> ids = cells[cell];
            ids.Remove(id);
            if (ids.Count == 0) cells.Remove(cell);
        }
    }
}
