import { expect, test } from "vitest";
import type { Schemas } from "../api/client.ts";
import { budgetLeft, goal, objectiveState } from "./objectives.ts";

const failures: Schemas["Objective"] = {
  name: "Checkout",
  entry: "shop POST /checkout",
  kind: "errors",
  budget: 0.07,
  requests: 1000,
  missed: 4,
  from: "2026-01-02T03:00:00Z",
  remaining: -3,
  windows: [],
  burning: "2026-01-02T03:40:00Z",
  waived: false,
  incident: null,
};
const objective: Schemas["Objective"] = {
  ...failures,
  kind: "latency",
  below_ns: 300e6,
  percentile: 99.9,
  budget: 0.001,
};

test("goals have the digits of the configuration", () => {
  expect(goal(objective)).toBe("99.9 % below 300 ms");
  expect(goal(failures)).toBe("at most 7 % fail");
});

test("an objective is met, missed, burns, or has no requests", () => {
  expect(objectiveState(objective)).toBe("burns");
  expect(objectiveState({ ...objective, waived: true })).toBe("burns, accepted");
  expect(objectiveState({ ...objective, burning: null })).toBe("missed");
  expect(objectiveState({ ...objective, burning: null, remaining: 0.5 })).toBe("met");
  expect(objectiveState({ ...objective, burning: null, requests: 0 })).toBe("no requests yet");
});

test("a budget is left or overspent", () => {
  expect(budgetLeft(objective)).toBe("spent 4.0 times");
  expect(budgetLeft({ ...objective, remaining: 0.25 })).toBe("25 % left");
  expect(budgetLeft({ ...objective, requests: 0 })).toBe("–");
});
