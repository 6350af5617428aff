/** The sparkline of a card: one slot per publication, with recovered publications in the signal colour. */

import { palette, type Surface } from "./canvas";
import { HISTORY_SIZE } from "./contract";
import type { Point } from "./series";

const PADDING = 3;

export function drawSpark(surface: Surface, points: readonly Point[], rising: boolean): void {
  const { context, width, height } = surface;
  context.clearRect(0, 0, width, height);
  const last = points[points.length - 1];
  if (last === undefined || width === 0) return;

  const prices = points.map((point) => point.price);
  const low = Math.min(...prices);
  const span = Math.max(Math.max(...prices) - low, last.price * 0.0005);
  const step = (width - PADDING * 2) / (HISTORY_SIZE - 1);
  const x = (point: Point) => width - PADDING - Math.max(0, last.number - point.number) * step;
  const y = (point: Point) =>
    height - PADDING - ((point.price - low) / span) * (height - PADDING * 2);

  const colours = palette();
  const colour = rising ? colours.up : colours.down;
  fillBelow(surface, points, x, y, colour);
  strokeRuns(context, points, x, y, (recovered) => (recovered ? colours.flare : colour));

  context.fillStyle = last.recovered ? colours.flare : colour;
  context.beginPath();
  context.arc(x(last), y(last), 2.5, 0, Math.PI * 2);
  context.fill();
}

type Scale = (point: Point) => number;

function fillBelow(
  { context, height }: Surface,
  points: readonly Point[],
  x: Scale,
  y: Scale,
  colour: string,
): void {
  const first = points[0];
  const last = points[points.length - 1];
  if (first === undefined || last === undefined) return;
  context.beginPath();
  context.moveTo(x(first), height);
  for (const point of points) context.lineTo(x(point), y(point));
  context.lineTo(x(last), height);
  context.closePath();
  context.globalAlpha = 0.1;
  context.fillStyle = colour;
  context.fill();
  context.globalAlpha = 1;
}

function strokeRuns(
  context: CanvasRenderingContext2D,
  points: readonly Point[],
  x: Scale,
  y: Scale,
  colour: (recovered: boolean) => string,
): void {
  context.lineWidth = 1.5;
  context.lineJoin = "round";
  context.lineCap = "round";
  let previous: Point | null = null;
  let run: boolean | null = null;
  for (const point of points) {
    if (point.recovered !== run) {
      if (run !== null) context.stroke();
      context.beginPath();
      context.strokeStyle = colour(point.recovered);
      if (previous !== null) context.moveTo(x(previous), y(previous));
      run = point.recovered;
    }
    // A missing publication stays visible as a gap in the line.
    const isBroken = previous === null || point.number !== previous.number + 1;
    if (isBroken) context.moveTo(x(point), y(point));
    else context.lineTo(x(point), y(point));
    previous = point;
  }
  context.stroke();
}
