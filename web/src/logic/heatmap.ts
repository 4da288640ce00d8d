// Heat maps: the distribution of durations in uniform bins of time.
import type { Schemas } from "../api/client.ts";

type Window = Schemas["Window"];
type Bin = Schemas["Bin"];

// Span is the time that a chart shows, divided into bins of equal length, in ms.
export type Span = { from: number; to: number; bin: number };

// Axis maps times to positions, 0–1, and back.
export type Axis = { position: (ms: number) => number; time: (position: number) => number };

export function axis({ from, to }: Span): Axis {
  const length = Math.max(1, to - from);
  const clamp = (x: number) => Math.max(0, Math.min(1, x));
  return { position: (ms) => clamp((ms - from) / length), time: (position) => from + clamp(position) * length };
}

// binsIn returns the number of bins.
export const binsIn = ({ from, to, bin }: Span) => Math.max(1, Math.round((to - from) / bin));

// ticksOf returns at most n round times within [from, to], in ms: whole minutes, hours or days.
export function ticksOf(from: number, to: number, n: number): number[] {
  const minute = 60_000;
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440].map((m) => m * minute);
  const step = steps.find((s) => (to - from) / s <= n) ?? Math.ceil((to - from) / n / steps.at(-1)!) * steps.at(-1)!;
  const ticks: number[] = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) ticks.push(at);
  return ticks.length > 0 ? ticks : [from];
}

// Cell is a bin of durations in a bin of time. column is the index of the latter; share is the fraction of its requests.
export type Cell = { column: number; low: number; high: number; count: number; share: number };

// columnOf returns the index of the bin of time that contains a time; it may lie outside of the span.
export const columnOf = ({ from, bin }: Span, ms: number) => Math.floor((ms - from) / bin);

export const cells = (windows: Window[], span: Span): Cell[] =>
  windows.flatMap((w) => {
    const total = w.latency.reduce((sum, b) => sum + b.count, 0) || 1;
    const column = columnOf(span, Date.parse(w.from));
    if (column < 0 || column >= binsIn(span)) return [];
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

// snapped widens a selection of times to whole bins: requests are known to the bin.
export function snapped(span: Span, from: number, to: number): [number, number] {
  const { bin } = span;
  const first = Math.max(0, columnOf(span, from + bin / 4));
  const last = Math.min(binsIn(span), Math.max(first + 1, Math.ceil((to - span.from) / bin - 0.25)));
  return [span.from + first * bin, span.from + last * bin];
}
