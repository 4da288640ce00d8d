// Heat maps: the distribution of durations in each window.
import type { Schemas } from "../api/client.ts";

type Window = Schemas["Window"];
type Bin = Schemas["Bin"];

// Axis maps times to positions, 0–1, and back. All windows have equal width, although older ones last longer.
export type Axis = { position: (ms: number) => number; time: (position: number) => number };

export function axis(windows: Window[]): Axis {
  const bounds = windows.map((w) => [Date.parse(w.from), Date.parse(w.to)] as const);
  const n = bounds.length || 1;
  return {
    position(ms) {
      for (const [i, [from, to]] of bounds.entries()) {
        if (ms < from) return i / n;
        if (ms < to) return (i + (ms - from) / (to - from)) / n;
      }
      return 1;
    },
    time(position) {
      const at = Math.max(0, Math.min(n - 1e-9, position * n));
      const [from, to] = bounds[Math.floor(at)] ?? [0, 0];
      return from + (at % 1) * (to - from);
    },
  };
}

// Cell is a bin of a window. column is the index of the window; share is the fraction of the window's requests in the
// bin.
export type Cell = { column: number; low: number; high: number; count: number; share: number };

export const cells = (windows: Window[]): Cell[] =>
  windows.flatMap((w, column) => {
    const total = w.latency.reduce((sum, b) => sum + b.count, 0) || 1;
    return w.latency.map((b) => ({ column, low: b.low_ns, high: b.high_ns, count: b.count, share: b.count / total }));
  });

// quantile estimates a quantile in ns from bins, ascending; null without bins.
export function quantile(bins: Bin[], q: number): number | null {
  let left = q * bins.reduce((sum, b) => sum + b.count, 0);
  for (const bin of bins) {
    if (left <= bin.count) return bin.low_ns + (bin.high_ns - bin.low_ns) * (left / (bin.count || 1));
    left -= bin.count;
  }
  return bins.at(-1)?.high_ns ?? null;
}

// Point is a position in the chart, 0–1 from the left and from the top.
export type Point = [number, number];
export type Drag = [Point, Point];

// selection returns the area that a drag selects; all durations if it is nearly horizontal, undefined if it is too
// short.
export function selection([from, to]: Drag): { x: [number, number]; y: [number, number] } | undefined {
  const between = (i: 0 | 1): [number, number] => [Math.min(from[i], to[i]), Math.max(from[i], to[i])];
  const [x, y] = [between(0), between(1)];
  if (x[1] - x[0] <= 0.02) return undefined;
  return { x, y: y[1] - y[0] > 0.12 ? y : [0, 1] };
}
