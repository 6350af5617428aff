using System;
using System.Collections.Generic;

namespace Dunlin.Rooms
{
    /// <summary>The game's rules, as the server has them. States are values: a rule returns a new one.</summary>
    public interface IRules<TState, TInput>
    {
        /// <summary>The state with an input applied, before the tick that follows.</summary>
        TState Apply(TState state, TInput input);

        /// <summary>The state after <paramref name="tick"/>.</summary>
        TState Step(TState state, uint tick);
    }

    /// <summary>
    /// The player's own object, shown where it will be when the server has applied the inputs that were sent. When the server
    /// acknowledges an input, the client learns how many ticks later the input took effect there, and moves its own tick by that
    /// number. So each input has the same duration on both sides, and nothing jumps when the latency changes.
    /// </summary>
    public sealed class Prediction<TState, TInput>
    {
        /// <summary>The number of ticks that are predicted after the last snapshot. Then the player stops: the connection is silent.</summary>
        public const int AheadTicksMax = 60;
        private const int PendingMax = 1024;

        private sealed class Pending
        {
            internal uint Number;
            internal TInput Input;
            /// <summary>The tick that it is applied before.</summary>
            internal long Tick;
        }

        private readonly IRules<TState, TInput> rules;
        private readonly List<Pending> pending = new List<Pending>();
        private long tick;
        private long authoritativeTick;

        public Prediction(IRules<TState, TInput> rules)
        {
            this.rules = rules;
        }

        /// <summary>Whether a snapshot has arrived: only then there are states.</summary>
        public bool IsSet { get; private set; }
        /// <summary>The state at the last tick that was predicted.</summary>
        public TState Now { get; private set; }
        /// <summary>The state one tick earlier, to draw what lies between.</summary>
        public TState Before { get; private set; }
        /// <summary>How many ticks it is ahead of the last snapshot.</summary>
        public int AheadTicks { get { return (int)(tick - authoritativeTick); } }

        public void Clear()
        {
            pending.Clear();
            tick = authoritativeTick = 0;
            IsSet = false;
            Now = Before = default(TState);
        }

        /// <summary>The player has sent an input: it is applied before the next tick.</summary>
        public void Input(uint number, TInput input)
        {
            pending.Add(new Pending { Number = number, Input = input, Tick = tick + 1 });
            if (pending.Count > PendingMax) pending.RemoveAt(0);
        }

        /// <summary>Advances by this number of the server's ticks.</summary>
        public void Advance(int ticks)
        {
            for (int count = 0; count < ticks && AheadTicks < AheadTicksMax; count += 1) StepOnce();
        }

        /// <summary>Processes a snapshot: after <paramref name="of"/>, with the inputs up to <paramref name="ack"/>, the state was this.</summary>
        public void Reconcile(TState state, uint of, uint ack)
        {
            long ahead = IsSet ? Math.Max(0, tick - of) : 0;
            Pending acknowledged = pending.FindLast(one => one.Number <= ack);
            pending.RemoveAll(one => one.Number <= ack);
            if (acknowledged != null) ahead += Delay(of - acknowledged.Tick);
            // The next one is not applied yet: at the soonest it is before the tick after this one.
            if (pending.Count > 0 && pending[0].Tick <= of) ahead += Delay(of + 1 - pending[0].Tick);
            if (ahead >= AheadTicksMax)
            {
                // No input is that late: the room has dropped it.
                pending.Clear();
                ahead = 0;
            }
            authoritativeTick = tick = of;
            IsSet = true;
            Before = Now = state;
            Advance((int)Math.Max(0, ahead));
        }

        /// <summary>Inputs in flight take effect this many ticks later than predicted.</summary>
        private long Delay(long ticks)
        {
            foreach (Pending one in pending) one.Tick += ticks;
            return ticks;
        }

        private void StepOnce()
        {
            if (!IsSet) return;
            tick += 1;
            TState now = Now;
            foreach (Pending one in pending) if (one.Tick == tick) now = rules.Apply(now, one.Input);
            Before = Now;
            Now = rules.Step(now, (uint)tick);
        }
    }

    /// <summary>Smooths corrections: the shown position moves to the corrected one gradually.</summary>
    public sealed class Smoothing
    {
        private readonly double halfLifeMs;
        private readonly double jumpUnits;
        private Place offset;

        /// <summary>Half of a correction is gone after <paramref name="halfLifeMs"/>; one of more than <paramref name="jumpUnits"/> is shown at once.</summary>
        public Smoothing(double halfLifeMs = 60, double jumpUnits = 256)
        {
            this.halfLifeMs = halfLifeMs;
            this.jumpUnits = jumpUnits;
        }

        /// <summary>The prediction moved by itself from one place to another.</summary>
        public void Correct(Place from, Place to)
        {
            offset = new Place(offset.X + from.X - to.X, offset.Y + from.Y - to.Y);
            if (offset.DistanceTo(default(Place)) > jumpUnits) offset = default(Place);
        }

        /// <summary>The position to show for <paramref name="place"/>, <paramref name="passedMs"/> after the last call.</summary>
        public Place Show(Place place, double passedMs)
        {
            double left = Math.Pow(0.5, passedMs / halfLifeMs);
            offset = new Place(offset.X * left, offset.Y * left);
            return new Place(place.X + offset.X, place.Y + offset.Y);
        }
    }
}
