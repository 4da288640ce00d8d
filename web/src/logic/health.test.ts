import { expect, test } from "vitest";
import { describeCounts, isFilling, describe } from "./health.ts";

test("known keys are described; unknown ones keep their names", () => {
  for (const [of, keys] of [
    ["refused", ["busy", "disk_full", "too_many_groups", "learning_full"]],
    ["closed", ["complete", "idle", "age", "size", "evicted"]],
    [
      "queues",
      ["arrivals", "in_flight_bytes", "shards", "observed", "questions", "changes", "exemplars", "outbox", "export"],
    ],
  ] as const) {
    for (const key of keys) expect(describe(of, key).means, key).toMatch(/\.$/);
  }
  expect(describe("queues", "new_one")).toEqual({ name: "new one", means: "", remedy: "" });
});

test("a queue is filling from half of its capacity on; one without a limit never is", () => {
  expect([isFilling(49, 100), isFilling(50, 100), isFilling(1e9, 0)]).toEqual([false, true, false]);
});

test("counters come in the order of their importance, unknown ones last", () => {
  expect(describeCounts("closed", { new_one: 1, evicted: 2, complete: 3 }).map(([m, n]) => [m.name, n])).toEqual([
    ["Complete traces", 3],
    ["Evicted (memory)", 2],
    ["new one", 1],
  ]);
});
