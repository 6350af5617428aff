using System;
using System.Collections.Generic;
using System.Linq;

namespace Dunlin.Rooms.Tests
{
    /// <summary>The vectors of schema/vectors/room/movement.json.</summary>
    internal static class Movement
    {
        internal static int Run(JsonValue file)
        {
            foreach (JsonValue vector in file["vectors"].Items)
            {
                string name = vector["name"].Text;
                Func<JsonValue, double[]> step = Player(vector["kind"].Text);
                IReadOnlyList<JsonValue> steps = vector["steps"].Items;
                Check.True(steps.Count > 10 && steps.Count == vector["gives"].Items.Count, name + ": its steps");
                for (int at = 0; at < steps.Count; at += 1)
                {
                    double[] gives = step(steps[at]);
                    double[] expected = Numbers(vector["gives"].Items[at]);
                    string what = name + ", step " + at + ": " + string.Join(" ", gives) + ", expected " + string.Join(" ", expected);
                    Check.True(gives.Length == expected.Length, what);
                    for (int index = 0; index < gives.Length; index += 1) Check.True(Math.Abs(gives[index] - expected[index]) < 1e-6, what);
                }
            }
            return file["vectors"].Items.Count;
        }

        private static Func<JsonValue, double[]> Player(string kind)
        {
            switch (kind)
            {
                case "clock": return Clock();
                case "prediction": return Prediction();
                case "interpolation": return Interpolation();
                case "smoothing": return Smoothing();
                default: throw new CheckException("movement.json has a vector of the kind " + kind);
            }
        }

        private static Func<JsonValue, double[]> Clock()
        {
            var clock = new Clock();
            return step =>
            {
                double[] observed = Numbers(step["observe"]);
                return new[] { clock.Observe((ulong)observed[0], observed[1]), clock.OffsetMs };
            };
        }

        private static Func<JsonValue, double[]> Prediction()
        {
            var prediction = new Prediction<HuntWalk, sbyte>(new HuntRules(60));
            return step =>
            {
                if (step["input"] != null)
                {
                    double[] input = Numbers(step["input"]);
                    prediction.Input((uint)input[0], (sbyte)input[1]);
                }
                else if (step["reconcile"] != null)
                {
                    double[] given = Numbers(step["reconcile"]);
                    prediction.Reconcile(new HuntWalk { X = (long)given[0], Velocity = (sbyte)given[1] }, (uint)given[2], (uint)given[3]);
                }
                else prediction.Advance((int)step["advance"].Number);
                if (!prediction.IsSet) return new double[0];
                HuntWalk now = prediction.Now;
                HuntWalk before = prediction.Before;
                return new double[] { now.X, now.Velocity, before.X, before.Velocity, prediction.AheadTicks };
            };
        }

        private static Func<JsonValue, double[]> Interpolation()
        {
            var replica = new Replica();
            var interpolation = new Interpolation();
            return step =>
            {
                if (step["snapshot"] != null)
                {
                    Changes changes = replica.Apply(Snapshot.FromJson(step["snapshot"]));
                    interpolation.Observe(changes, replica.Grid, step["arrived_ms"].Number);
                    return new[] { interpolation.DelayMs, interpolation.Count };
                }
                if (step["advance"] != null) return new[] { interpolation.Advance(step["advance"].Number) };
                if (step["tick_at"] != null) return new double[] { replica.TickAt(step["tick_at"].Number) };
                double[] asked = Numbers(step["place"]);
                Place place;
                return interpolation.TryPlace((uint)asked[0], asked[1], out place) ? new[] { place.X, place.Y } : new double[0];
            };
        }

        private static Func<JsonValue, double[]> Smoothing()
        {
            var smoothing = new Smoothing(50, 100);
            return step =>
            {
                if (step["correct"] != null)
                {
                    double[] places = Numbers(step["correct"]);
                    smoothing.Correct(new Place(places[0], places[1]), new Place(places[2], places[3]));
                    return new double[0];
                }
                double[] shown = Numbers(step["show"]);
                Place place = smoothing.Show(new Place(shown[0], shown[1]), shown[2]);
                return new[] { place.X, place.Y };
            };
        }

        private static double[] Numbers(JsonValue list)
        {
            return list.Items.Select(item => item.Number).ToArray();
        }
    }
}
