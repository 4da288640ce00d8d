import { expect, test } from "vitest";
import type { Schemas } from "../api/client.ts";
import { axis, binsIn, cells, quantile, selection, snapped, ticksOf } from "./heatmap.ts";

const minute = 60_000;
const start = Date.parse("2026-01-01T10:00:00Z");
const span = { from: start, to: start + 60 * minute, bin: minute };

const windowAt = (at: number, counts: number[]): Schemas["Window"] => ({
  from: new Date(at).toISOString(),
  to: new Date(at + minute).toISOString(),
  count: counts.reduce((a, b) => a + b, 0),
  failed: 0,
  mean_ns: 1,
  cov: 1,
  edges: [],
  latency: counts.map((count, i) => ({ low_ns: 1 << i, high_ns: 2 << i, count })),
});

test("bins have equal widths, and the axis is linear", () => {
  expect(binsIn(span)).toBe(60);
  const { position, time } = axis(span);
  expect(position(start + 15 * minute)).toBe(0.25);
  expect(time(0.25)).toBe(start + 15 * minute);
  expect(position(start - minute)).toBe(0);
});

test("cells lie in the bin of their time, and bins without requests have none", () => {
  const all = cells([windowAt(start, [1, 3]), windowAt(start + 7 * minute, [2]), windowAt(start - minute, [5])], span);
  expect(all.map((c) => [c.column, c.count, c.share])).toEqual([
    [0, 1, 0.25],
    [0, 3, 0.75],
    [7, 2, 1],
  ]);
});

test("ticks are round times", () => {
  expect(ticksOf(start + 1, start + 60 * minute, 6)).toEqual([10, 20, 30, 40, 50, 60].map((m) => start + m * minute));
});

test("quantiles are interpolated", () => {
  expect(quantile([{ low_ns: 0, high_ns: 10, count: 10 }], 0.5)).toBe(5);
  expect(quantile([], 0.5)).toBeNull();
});

test("a drag selects a box, or times if it is nearly horizontal", () => {
  expect(
    selection([
      [0.5, 0.2],
      [0.1, 0.9],
    ]),
  ).toEqual({ x: [0.1, 0.5], y: [0.2, 0.9] });
  expect(
    selection([
      [0.1, 0.5],
      [0.5, 0.55],
    ]),
  ).toEqual({ x: [0.1, 0.5], y: [0, 1] });
  expect(
    selection([
      [0.1, 0.5],
      [0.11, 0.9],
    ]),
  ).toBeUndefined();
});

test("selected times end at the edges of bins", () => {
  expect(snapped(span, start + 4.1 * minute, start + 6.9 * minute)).toEqual([start + 4 * minute, start + 7 * minute]);
  expect(snapped(span, start + 4.9 * minute, start + 7.1 * minute)).toEqual([start + 5 * minute, start + 7 * minute]);
  expect(snapped(span, start + 4.5 * minute, start + 4.6 * minute)).toEqual([start + 4 * minute, start + 5 * minute]);
});

test("ticks are round times, and few", () => {
  expect(ticksOf(30_000, 10 * minute, 5)).toEqual([2, 4, 6, 8, 10].map((m) => m * minute));
  expect(ticksOf(0, 3600 * minute, 7).length).toBeLessThanOrEqual(8);
  expect(ticksOf(61_000, 62_000, 4)).toEqual([61_000]);
});

test("quantile interpolates within a bin", () => {
  const bins = [
    [100, 200],
    [200, 300],
  ].map(([low_ns, high_ns]) => ({ low_ns: low_ns!, high_ns: high_ns!, count: 50 }));
  expect([quantile(bins, 0.5), quantile(bins, 0.75), quantile(bins, 1), quantile([], 0.5)]).toEqual([
    200,
    250,
    300,
    null,
  ]);
});
