// Zoom: the visible range of a request, in ns after its start.
import type { Interval } from "./waterfall.ts";

const minRange = 1e-4; // narrowest range, as a fraction of the whole

// parseZoom parses the result of formatZoom; the whole if the text is invalid or out of range.
export function parseZoom(text: string, whole: number): Interval {
  const [, from, to] = (/^(\d+)-(\d+)$/.exec(text) ?? []).map(Number);
  return from! < to! && to! <= whole ? { from: from!, to: to! } : { from: 0, to: whole };
}

// formatZoom formats a range for the URL; "" for the whole.
export const formatZoom = ({ from, to }: Interval, whole: number) =>
  from <= 0 && to >= whole ? "" : `${Math.round(from)}-${Math.round(to)}`;

// rangeBetween returns the range between two times in either order, within the whole and not narrower than minRange.
export function rangeBetween(a: number, b: number, whole: number): Interval {
  const from = Math.max(0, Math.min(a, b));
  const to = Math.min(whole, Math.max(a, b));
  const missing = Math.max(0, Math.ceil(whole * minRange) - (to - from));
  return { from: Math.max(0, Math.min(from, to) - missing), to: Math.min(whole, Math.max(from, to) + missing) };
}

// shiftRange moves a range, up to the ends of the whole.
export function shiftRange({ from, to }: Interval, by: number, whole: number): Interval {
  const offset = Math.max(-from, Math.min(whole - to, by));
  return { from: from + offset, to: to + offset };
}

// scaleRange scales a range around its middle.
export function scaleRange({ from, to }: Interval, factor: number, whole: number): Interval {
  const half = ((to - from) / 2) * factor;
  return rangeBetween((from + to) / 2 - half, (from + to) / 2 + half, whole);
}

// Placed is the position of an interval in the chart, as fractions of its width.
export type Placed = { x: number; width: number };

// place returns the position of an interval in a range; undefined if it is out of range.
export function place(s: Interval, range: Interval): Placed | undefined {
  const length = range.to - range.from || 1;
  const from = Math.max(s.from, range.from);
  const to = Math.min(s.to, range.to);
  return to < from ? undefined : { x: (from - range.from) / length, width: (to - from) / length };
}
