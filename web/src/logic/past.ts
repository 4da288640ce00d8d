// Windows of the past behind a chart: the same span of yesterday or of last week.
import type { Schemas } from "../api/client.ts";
import type { Zone } from "./format.ts";

export type PastWindow = Schemas["PastWindow"];
export const befores = ["none", "yesterday", "last_week"] as const;
export type Before = (typeof befores)[number];

const day = 24 * 3_600_000;
// period is the length of the shortest windows that are kept, in ms.
export const period = 320_000;

// shiftOf returns the time between a chart and the span that is drawn behind it, in ms.
export const shiftOf = (before: Before) => ({ none: 0, yesterday: day, last_week: 7 * day })[before];

// PastPoint has the percentiles of a window, in ns, at its middle, in ms.
export type PastPoint = { at: number; p50: number | null; p99: number | null };

const longest = 4; // gap between windows, in their lengths, that lines bridge

// withGaps returns the windows with an empty one in each gap that lines must not bridge.
export function withGaps(windows: PastWindow[]): PastWindow[] {
  const length = shortest(windows);
  return windows.flatMap((w, i) => {
    const before = windows[i - 1];
    if (!before || Date.parse(w.from) - Date.parse(before.to) < longest * length) return [w];
    const gap = {
      from: before.to,
      to: w.from,
      count: 0,
      failed: 0,
      mean_ns: null,
      cov: null,
      p50_ns: null,
      p99_ns: null,
    };
    return [gap, w];
  });
}

// pastPoints returns points of windows, moved forward by shift ms, within [from, to]. Others are interpolated at both
// ends, so that their lines fill the chart, and at the times of also, ascending, so that values can be compared.
export function pastPoints(
  windows: PastWindow[],
  shift: number,
  from: number,
  to: number,
  also: number[] = [],
): PastPoint[] {
  const all = withGaps(windows).map((w) => ({
    at: (Date.parse(w.from) + Date.parse(w.to)) / 2 + shift,
    p50: w.p50_ns,
    p99: w.p99_ns,
  }));
  const inside = all.filter((p) => p.at >= from && p.at <= to);
  const known = new Set(inside.map((p) => p.at));
  const interpolated = (at: number): PastPoint[] => {
    if (known.has(at)) return [];
    known.add(at);
    const before = all.findLast((p) => p.at < at);
    const after = all.find((p) => p.at > at);
    if (!before || !after) return [];
    const part = (at - before.at) / (after.at - before.at);
    const between = (a: number | null, b: number | null) => (a === null || b === null ? null : a + (b - a) * part);
    const point = { at, p50: between(before.p50, after.p50), p99: between(before.p99, after.p99) };
    return point.p50 === null ? [] : [point]; // in a gap
  };
  const more = [from, ...also.filter((at) => at > from && at < to), to].flatMap(interpolated);
  const points = [...inside, ...more].sort((a, b) => a.at - b.at);
  return points.some((p) => p.p50 !== null) ? points : []; // nothing but a gap
}

const shortest = (windows: PastWindow[]) => Math.min(...windows.map((w) => Date.parse(w.to) - Date.parse(w.from)));

// meanBefore returns the mean, in ns, of the requests of windows that overlap [from, to), in ms, shift ms before; null
// without any.
export function meanBefore(windows: PastWindow[], shift: number, from: number, to: number): number | null {
  let [sum, n] = [0, 0];
  for (const w of windows) {
    if (w.mean_ns === null || Date.parse(w.to) + shift <= from || Date.parse(w.from) + shift >= to) continue;
    sum += w.mean_ns * w.count;
    n += w.count;
  }
  return n > 0 ? sum / n : null;
}

const dayOf = (timeZone: string | undefined) =>
  new Intl.DateTimeFormat("en-GB", { timeZone, weekday: "short", day: "numeric", month: "short" });
const days: Record<Zone, Intl.DateTimeFormat> = { utc: dayOf("UTC"), local: dayOf(undefined) };

// dayBefore names the day that is drawn behind a chart that ends at a time: "yesterday, Tue, 24 Nov".
export function dayBefore(before: Before, end: number, zone: Zone): string {
  const name = { none: "", yesterday: "yesterday", last_week: "last week" }[before];
  return name && `${name}, ${days[zone].format(end - shiftOf(before)).replace(",", "")}`;
}

// quantized widens a span in ms to whole periods, so that charts of a moving span read the same windows for a while. It
// adds a period at both ends, for lines that begin and end at the edge.
export const quantized = (from: number, to: number): [number, number] => [
  (Math.floor(from / period) - 1) * period,
  (Math.ceil(to / period) + 1) * period,
];
