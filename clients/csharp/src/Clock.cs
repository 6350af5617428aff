using System;

namespace Dunlin.Rooms
{
    /// <summary>
    /// An estimate of the server's clock, from the snapshot with the shortest latency. It is behind by that latency, which is
    /// intended: no snapshot arrives earlier.
    /// </summary>
    public sealed class Clock
    {
        /// <summary>How long the shortest latency is remembered: at most twice this time, because clocks drift.</summary>
        private const double WindowMs = 5000;
        /// <summary>A larger difference is not latency: a clock was set, or the machine slept.</summary>
        private const double JumpMs = 10000;

        private double windowStartMs;
        private double leastMs = double.PositiveInfinity;
        private double leastBeforeMs = double.PositiveInfinity;

        /// <summary>Whether a snapshot has arrived.</summary>
        public bool IsSet { get { return !double.IsInfinity(Math.Min(leastMs, leastBeforeMs)); } }

        /// <summary>What to add to the local clock to get the server's.</summary>
        public double OffsetMs { get { return IsSet ? -Math.Min(leastMs, leastBeforeMs) : 0; } }

        /// <summary>A snapshot of server time <paramref name="timeUs"/> arrived. Returns its delay relative to the shortest latency.</summary>
        public double Observe(ulong timeUs, double nowMs)
        {
            double wayMs = nowMs - timeUs / 1000.0;
            if (IsSet && Math.Abs(wayMs + OffsetMs) > JumpMs) Clear();
            if (nowMs - windowStartMs >= WindowMs || nowMs < windowStartMs)
            {
                leastBeforeMs = nowMs - windowStartMs < 2 * WindowMs ? leastMs : double.PositiveInfinity;
                leastMs = double.PositiveInfinity;
                windowStartMs = nowMs;
            }
            leastMs = Math.Min(leastMs, wayMs);
            return wayMs + OffsetMs;
        }

        /// <summary>The server's time in milliseconds since 1970.</summary>
        public double ServerTimeMs(double nowMs)
        {
            return nowMs + OffsetMs;
        }

        public void Clear()
        {
            leastMs = leastBeforeMs = double.PositiveInfinity;
        }
    }
}
