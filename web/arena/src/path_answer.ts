/** The server's answers about paths. */

/** Unix time in milliseconds, x, y. */
export type PathPoint = readonly [number, number, number];

export interface PathsAnswer {
  /** The points of each player. */
  readonly paths: readonly (readonly PathPoint[])[];
  /** The cursor of the next page. */
  readonly more?: string;
}

/** Parses an answer; null if the format is wrong. */
export function readAnswer(json: unknown): PathsAnswer | null {
  const { paths, more } = (json ?? {}) as { paths?: unknown; more?: unknown };
  if (!Array.isArray(paths)) return null;
  const points = paths.map((path: { points?: unknown }) => (Array.isArray(path?.points) ? path.points.filter(isPoint) : []));
  return typeof more === "string" ? { paths: points, more } : { paths: points };
}

/** The points of the last `pastMs` before the newest one. */
export function keepRecent(points: readonly PathPoint[], pastMs: number): PathPoint[] {
  const newest = points.at(-1)?.[0] ?? 0;
  return points.filter(([timeMs]) => newest - timeMs <= pastMs);
}

const isPoint = (value: unknown): value is PathPoint =>
  Array.isArray(value) && value.length === 3 && value.every((number) => Number.isFinite(number));
