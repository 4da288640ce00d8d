import { expect, test } from "vitest";
import type { Schemas } from "../api/client.ts";
import {
  courseOf,
  change,
  figuresOf,
  isNotable,
  quietHeadline,
  servicePath,
  sortedBy,
  summary,
  telling,
} from "./services.ts";

test("a summary lists states by urgency and omits those of no service", () => {
  expect(summary({ well: 6, incident: 1, slower: 2, idle: 3 })).toBe("1 suspected, 2 slower, 6 well, 3 not judged");
  expect(summary({})).toBe("");
});

test("all is well only if no service needs attention and enough is judged", () => {
  const silent = { state: "silent" } as const;
  const all = { unknown: false, unequal: false, uncovered: false };
  expect(quietHeadline([], 0, all)).toBe("All is well");
  expect(quietHeadline([], 0, { ...all, unequal: true })).toBe("Nothing got worse");
  expect(quietHeadline([], 0, { ...all, unequal: true, uncovered: true })).toBe("No incident in what is judged");
  expect(quietHeadline([], 0, { ...all, unknown: true })).toBe("No open incident");
  expect(quietHeadline([], 1, { unknown: true, unequal: true, uncovered: true })).toBe(
    "No open incident but muted ones",
  );
  expect(quietHeadline([], 2, all)).toBe("No incident but muted ones");
  expect(quietHeadline([silent], 0, all)).toBe("No open incident; 1 service needs attention");
  expect(
    quietHeadline([silent, silent, { state: "slower" }], 0, { unknown: true, unequal: true, uncovered: true }),
  ).toBe("No open incident; 3 services need attention");
  expect(quietHeadline([silent], 1, all)).toBe("No open incident but muted ones; 1 service needs attention");
});

test("changes are relative, and notable from a quarter and a millisecond", () => {
  expect(change(30, 10)).toBe(3);
  expect(change(30, null)).toBe(null);
  expect(change(30, 0)).toBe(null);
  expect(isNotable(13e6, 10e6)).toBe(true);
  expect(isNotable(12e6, 10e6)).toBe(false);
  expect(isNotable(0.9e6, 0.1e6)).toBe(false);
  expect(isNotable(null, 10e6)).toBe(false);
});

test("the P99 tells more than the P50 if only that is longer than usual", () => {
  const load = (p50: number, p99: number) =>
    ({ calls: 100, rate: 1, failed: 0, p50_ns: p50, p99_ns: p99, own_ns: null }) as Parameters<
      typeof telling
    >[0]["now"];
  expect(telling({ now: load(11e6, 377e6), usual: load(10e6, 16e6) })).toBe("p99_ns");
  expect(telling({ now: load(30e6, 377e6), usual: load(10e6, 16e6) })).toBe("p50_ns");
  expect(telling({ now: load(10e6, 16e6), usual: load(10e6, 16e6) })).toBe("p50_ns");
  expect(telling({ now: load(10e6, 16e6), usual: null })).toBe("p50_ns");
});

test("a course is of what is worse than usual, or of the rate", () => {
  const trend = { rate: [1, 2], failed: [0, 0.1], own_ns: [], p50_ns: [null, 5, 6], p99_ns: [7, 8] };
  expect(courseOf({ trend, worse: [] })).toEqual({ name: "calls/s", values: [1, 2] });
  expect(courseOf({ trend, worse: ["failed", "p50_ns"] })).toEqual({ name: "P50", values: [5, 6] });
  expect(courseOf({ trend, worse: ["failed"] }).name).toBe("errors");
  expect(courseOf({ trend: null, worse: [] }).values).toEqual([]);
});

test("a service whose name cannot be in a path has its ID there", () => {
  expect(servicePath("cart service", "0123456789abcdef")).toBe("/services/cart%20service");
  expect(servicePath("team/cart", "0123456789abcdef")).toBe("/services/0123456789abcdef");
  expect(servicePath("50%", "0123456789abcdef")).toBe("/services/0123456789abcdef");
});

test("unknown values come last in both directions", () => {
  const rows = [
    { name: "b", at: 2 },
    { name: "c", at: null },
    { name: "a", at: 2 },
    { name: "d", at: 5 },
  ];
  const names = (falling: boolean) =>
    sortedBy(
      rows,
      (r) => r.at,
      falling,
      (r) => r.name,
    )
      .map((r) => r.name)
      .join("");
  expect(names(true)).toBe("dabc");
  expect(names(false)).toBe("abdc");
});

test("figures that do not fit are left out, but not the duration of a slower service", () => {
  const load = (failed: number, p99_ns: number) =>
    ({ rate: 0.518, failed, p50_ns: 33e6, p99_ns }) as Schemas["ServiceLoad"];
  const slower = { now: load(0, 394e6), usual: load(0, 45e6), worse: ["p99_ns" as const] };
  expect(figuresOf(slower, 40)).toBe("0.518/s · P99 394 ms");
  expect(figuresOf(slower, 19)).toBe("P99 394 ms");
  const failing = { now: load(0.05, 45e6), usual: load(0, 45e6), worse: ["failed" as const] };
  expect(figuresOf(failing, 40)).toBe("0.518/s · 5 % fail · 33 ms");
  expect(figuresOf(failing, 19)).toBe("0.518/s · 5 % fail");
});
