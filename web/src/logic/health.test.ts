import { expect, test } from "vitest";
import { describeCounts, isFilling, describe, silentFor } from "./health.ts";

test("describe returns the meaning of known keys and the name of others", () => {
  for (const [of, keys] of [
    [
      "refused",
      [
        "busy",
        "memory",
        "disk_full",
        "too_many_groups",
        "learning_full",
        "too_many_contexts",
        "too_many_names",
        "too_many_tracepoints",
      ],
    ],
    ["closed", ["complete", "idle", "age", "size", "evicted"]],
    [
      "queues",
      [
        "arrivals",
        "in_flight_bytes",
        "shards",
        "observed_bytes",
        "questions",
        "changes",
        "exemplars",
        "outbox",
        "export",
      ],
    ],
  ] as const) {
    for (const key of keys) expect(describe(of, key).means, key).toMatch(/\.$/);
  }
  expect(describe("queues", "new_one")).toEqual({ name: "new one", means: "", remedy: "" });
});

test("isFilling starts at half of the capacity, and never without one", () => {
  expect([isFilling(49, 100), isFilling(50, 100), isFilling(1e9, 0)]).toEqual([false, true, false]);
});

test("describeCounts lists known counters in a fixed order, unknown ones last", () => {
  expect(describeCounts("closed", { new_one: 1, evicted: 2, complete: 3 }).map(([m, n]) => [m.name, n])).toEqual([
    ["Complete traces", 3],
    ["Evicted (memory)", 2],
    ["new one", 1],
  ]);
});

test("silentFor returns the time without spans if it is long and known", () => {
  const now = Date.parse("2026-01-01T12:00:00Z");
  expect(silentFor("2026-01-01T11:59:48Z", now)).toBe("");
  expect(silentFor("2026-01-01T11:40:00Z", now)).toBe("20 min");
  expect(silentFor(now - 90_000, now)).toBe("2 min");
  expect(silentFor(null, now)).toBe("");
  expect(silentFor(undefined, now)).toBe("");
});
