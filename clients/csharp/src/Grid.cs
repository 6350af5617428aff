using System;

namespace Dunlin.Rooms
{
    /// <summary>How often a cell is updated.</summary>
    public enum Band
    {
        /// <summary>At every tick.</summary>
        Near,
        /// <summary>After each multiple of <see cref="Grid.FarIntervalTicks"/>.</summary>
        Far,
        /// <summary>Never: the player does not see it.</summary>
        None,
    }

    /// <summary>A map of columns × rows square cells, numbered row by row.</summary>
    public sealed class Grid : IEquatable<Grid>
    {
        public const uint CellsPerSideMax = 1024;
        public const uint CellUnitsMax = 65536;
        public const uint ReachMax = 65535;
        public const uint FarIntervalTicksMax = 15;
        /// <summary>The number of zones of a view, and the zone of the far cells. Near cells have the zones 0 to 2, the nearest first.</summary>
        public const uint Zones = 4;
        public const uint FarZone = Zones - 1;

        public Grid(uint columns, uint rows, uint cellUnits, uint nearCells, uint farCells, uint farIntervalTicks, uint ticksPerSecond)
        {
            Require(columns, 1, CellsPerSideMax, "columns");
            Require(rows, 1, CellsPerSideMax, "rows");
            Require(cellUnits, 1, CellUnitsMax, "cell_units");
            Require(nearCells, 0, ReachMax, "near_cells");
            Require(farCells, 0, ReachMax, "far_cells");
            Require(farIntervalTicks, 1, FarIntervalTicksMax, "far_interval_ticks");
            Require(ticksPerSecond, 1, uint.MaxValue, "ticks_per_second");
            Columns = columns;
            Rows = rows;
            CellUnits = cellUnits;
            NearCells = nearCells;
            FarCells = farCells;
            FarIntervalTicks = farIntervalTicks;
            TicksPerSecond = ticksPerSecond;
        }

        public uint Columns { get; }
        public uint Rows { get; }
        /// <summary>The side of a cell.</summary>
        public uint CellUnits { get; }
        public uint NearCells { get; }
        public uint FarCells { get; }
        public uint FarIntervalTicks { get; }
        public uint TicksPerSecond { get; }

        public uint CellCount { get { return Columns * Rows; } }
        public uint WidthUnits { get { return Columns * CellUnits; } }
        public uint HeightUnits { get { return Rows * CellUnits; } }

        public uint Column(uint cell)
        {
            return cell % Columns;
        }

        public uint Row(uint cell)
        {
            return cell / Columns;
        }

        /// <summary>How often <paramref name="cell"/> is updated for a player that looks from <paramref name="view"/>.</summary>
        public Band BandOf(uint view, uint cell)
        {
            long distance = Distance(view, cell);
            if (distance <= NearCells) return Band.Near;
            return distance <= NearCells + FarCells ? Band.Far : Band.None;
        }

        /// <summary>The zone of a visible cell: cells that wait together if the server limits the player's bandwidth.</summary>
        public uint ZoneOf(uint view, uint cell)
        {
            long distance = Distance(view, cell);
            if (distance <= Math.Min(NearCells, 1)) return 0;
            if (distance <= (NearCells + 1) / 2) return 1;
            return distance <= NearCells ? 2 : FarZone;
        }

        private long Distance(uint view, uint cell)
        {
            long columns = Math.Abs((long)Column(view) - Column(cell));
            long rows = Math.Abs((long)Row(view) - Row(cell));
            return Math.Max(columns, rows);
        }

        public bool Equals(Grid other)
        {
            return other != null && Columns == other.Columns && Rows == other.Rows && CellUnits == other.CellUnits
                && NearCells == other.NearCells && FarCells == other.FarCells
                && FarIntervalTicks == other.FarIntervalTicks && TicksPerSecond == other.TicksPerSecond;
        }

        public override bool Equals(object other)
        {
            return Equals(other as Grid);
        }

        public override int GetHashCode()
        {
            return unchecked((int)(Columns * 31 + Rows * 17 + CellUnits));
        }

        private static void Require(uint value, uint least, uint most, string name)
        {
            if (value < least || value > most) throw RoomException.Malformed("the map has " + name + " " + value);
        }
    }
}
