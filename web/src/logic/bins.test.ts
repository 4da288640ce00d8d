// Bins of histograms.
import { expect, test } from "vitest";
import { mergeBins } from "./bins.ts";

test("mergeBins keeps all requests", () => {
  const bins = Array.from({ length: 300 }, (_, i) => ({
    low_ns: 1e6 * 1.02 ** i,
    high_ns: 1e6 * 1.02 ** (i + 1),
    count: i,
  }));
  const bars = mergeBins(bins);
  expect(bars.length).toBeLessThanOrEqual(41);
  expect(bars.reduce((n, b) => n + b.count, 0)).toBe((299 * 300) / 2);
  expect(mergeBins([])).toEqual([]);
});
