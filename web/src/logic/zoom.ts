// The part of a request that is looked at: a stretch of it, in ns after its start.
import type { Interval } from "./waterfall.ts";

// least is the smallest part of a whole that can be looked at.
const least = 1e-4;

// parse reads what write wrote; the whole if that is none, or not within it.
export function parseZoom(text: string, whole: number): Interval {
  const [, from, to] = (/^(\d+)-(\d+)$/.exec(text) ?? []).map(Number);
  return from! < to! && to! <= whole ? { from: from!, to: to! } : { from: 0, to: whole };
}

// write writes a part for the URL; "" for the whole.
export const formatZoom = ({ from, to }: Interval, whole: number) =>
  from <= 0 && to >= whole ? "" : `${Math.round(from)}-${Math.round(to)}`;

// between returns the part between two times, in either order, kept within the whole and wide enough to be seen.
export function between(a: number, b: number, whole: number): Interval {
  const from = Math.max(0, Math.min(a, b));
  const to = Math.min(whole, Math.max(a, b));
  const lacks = Math.max(0, Math.ceil(whole * least) - (to - from));
  return { from: Math.max(0, Math.min(from, to) - lacks), to: Math.min(whole, Math.max(from, to) + lacks) };
}

// moved returns a part of the same length elsewhere, stopping at the ends of the whole.
export function moved({ from, to }: Interval, by: number, whole: number): Interval {
  const kept = Math.max(-from, Math.min(whole - to, by));
  return { from: from + kept, to: to + kept };
}

// scaled returns a part that is longer or shorter around its middle.
export function scaled({ from, to }: Interval, factor: number, whole: number): Interval {
  const half = ((to - from) / 2) * factor;
  return between((from + to) / 2 - half, (from + to) / 2 + half, whole);
}

// Placed is where a stretch is drawn: fractions of the width.
export type Placed = { x: number; width: number };

// place returns where what of a stretch is in a part is drawn; undefined if nothing is.
export function place(s: Interval, part: Interval): Placed | undefined {
  const length = part.to - part.from || 1;
  const from = Math.max(s.from, part.from);
  const to = Math.min(s.to, part.to);
  return to < from ? undefined : { x: (from - part.from) / length, width: (to - from) / length };
}
