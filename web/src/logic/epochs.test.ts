// Epochs that do not end.
import { expect, test } from "vitest";
import { stalledFor } from "./epochs.ts";

test("figures are stalled if several epochs are due, and the page would have noticed one", () => {
  const now = Date.parse("2026-11-26T20:00:00Z");
  const ended = (seconds: number, length = 10) => ({
    count: 1,
    ended: new Date(now - seconds * 1000).toISOString(),
    length_ns: length * 1e9,
    overdue_ns: 0,
    warning: "",
    remedy: "",
  });
  expect(stalledFor(ended(120), now, 300_000)).toBe(120_000);
  expect(stalledFor(ended(25), now, 300_000)).toBe(0); // it may be late
  expect(stalledFor(ended(25, 3), now, 300_000)).toBe(0); // short epochs get as much time
  expect(stalledFor(ended(120, 60), now, 300_000)).toBe(0); // epochs are long
  expect(stalledFor(ended(7200), now, 5_000)).toBe(0); // it has just started
  expect(stalledFor({ ...ended(0), count: 0, ended: null }, now, 300_000)).toBe(0);
});
