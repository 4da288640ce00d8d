import { expect, test } from "vitest";
import { describeCounts, isFilling, describe } from "./health.ts";

test("describe returns the meaning of known keys and the name of others", () => {
  for (const [of, keys] of [
    ["refused", ["busy", "disk_full", "too_many_groups", "learning_full"]],
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
