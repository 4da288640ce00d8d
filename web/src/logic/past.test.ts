import { expect, test } from "vitest";
import { type PastWindow, dayBefore, meanBefore, pastPoints, period, quantized, shiftOf, withGaps } from "./past.ts";

const start = Date.parse("2026-11-24T12:00:00Z");
const day = 24 * 3_600_000;

// windowAt returns window i from start on.
const windowAt = (i: number, ns: number, count = 1): PastWindow => ({
  from: new Date(start + i * period).toISOString(),
  to: new Date(start + (i + 1) * period).toISOString(),
  count,
  failed: 0,
  mean_ns: ns,
  cov: null,
  p50_ns: ns,
  p99_ns: 2 * ns,
});

test("points move to the span of the chart and fill it", () => {
  const windows = [0, 1, 2, 3].map((i) => windowAt(i, 100 * (i + 1)));
  const from = start + day + period;
  const points = pastPoints(windows, day, from, from + 2 * period);
  expect(points.map((p) => p.at)).toEqual([from, from + period / 2, from + 1.5 * period, from + 2 * period]);
  expect(points.map((p) => p.p50)).toEqual([150, 200, 300, 350]);
  expect(points.map((p) => p.p99)).toEqual([300, 400, 600, 700]);
});

test("points are interpolated where others are", () => {
  const windows = [0, 1].map((i) => windowAt(i, 100 * (i + 1)));
  const at = start + period;
  expect(pastPoints(windows, 0, start, start + 2 * period, [at]).map((p) => [p.at, p.p50])).toEqual([
    [start + period / 2, 100],
    [at, 150],
    [start + 1.5 * period, 200],
  ]);
});

test("a gap is not bridged at the edge, and nothing is drawn without windows", () => {
  expect(pastPoints([windowAt(0, 1), windowAt(20, 1)], 0, start + 10 * period, start + 11 * period)).toEqual([]);
  expect(pastPoints([], day, start, start + day)).toEqual([]);
});

test("lines end at a long gap", () => {
  const windows = [windowAt(0, 1), windowAt(1, 2), windowAt(20, 3)];
  expect(withGaps(windows).map((w) => w.p50_ns)).toEqual([1, 2, null, 3]);
  expect(pastPoints(windows, 0, start, start + 21 * period).map((p) => p.p50)).toEqual([1, 2, null, 3]);
});

test("the mean before counts requests", () => {
  const windows = [windowAt(0, 100, 3), windowAt(1, 500, 1), windowAt(5, 900, 1)];
  expect(meanBefore(windows, day, start + day, start + day + 2 * period)).toBe(200);
  expect(meanBefore(windows, 0, start + day, start + 2 * day)).toBeNull();
});

test("the day is named in the time zone of the chart", () => {
  expect(dayBefore("yesterday", Date.parse("2026-11-25T10:00:00Z"), "utc")).toBe("yesterday, Tue 24 Nov");
  expect(dayBefore("last_week", Date.parse("2026-11-25T10:00:00Z"), "utc")).toBe("last week, Wed 18 Nov");
  expect(dayBefore("none", start, "utc")).toBe("");
  expect(shiftOf("last_week")).toBe(7 * shiftOf("yesterday"));
});

test("a moving span reads the same windows for a while", () => {
  expect(quantized(start + 5000, start + period)).toEqual(quantized(start + 1, start + period - 5000));
  const [from, to] = quantized(start + 5000, start + 10_000);
  expect([from % period, to % period]).toEqual([0, 0]);
  expect(from).toBeLessThanOrEqual(start + 5000 - period);
  expect(to).toBeGreaterThanOrEqual(start + 10_000 + period);
});
