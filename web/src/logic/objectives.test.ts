import { expect, test } from "vitest";
import type { Schemas } from "../api/client.ts";
import { budgetLeft, goal, objectiveState, previewSummary } from "./objectives.ts";

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

test("a preview tells what would have happened, over which time, and what is missing", () => {
  const burned = { from: "2026-01-02T03:00:00Z", until: null, window_ns: 36e11, rate: 20, incident: null };
  const preview: Schemas["ObjectivePreview"] = {
    from: "2026-01-02T00:00:00Z",
    to: "2026-01-02T04:00:00Z",
    requests: 10,
    missed: 5,
    lacks_ns: 0,
    burned: [burned, { ...burned, incident: "00" }],
  };
  expect(previewSummary(preview)).toBe("In the past 4 h it would have opened 1 incident and joined 1 that was open.");
  expect(previewSummary({ ...preview, burned: [], lacks_ns: 7.2e12 })).toBe(
    "In the past 4 h it would have opened no incident. All its windows can be judged in 2 h.",
  );
  expect(previewSummary({ ...preview, from: null })).toMatch(/^No requests of this entry are kept/);
});
