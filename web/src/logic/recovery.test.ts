import { expect, test } from "vitest";
import type { Schemas } from "../api/client.ts";
import { matters } from "./recovery.ts";

test.each([
  [0.05, 0, true],
  [0, 0.05, true],
  [null, 0.2, true],
  [0.049, 0.049, false],
  [null, null, false],
  [-0.2, -0.2, false],
])("a recovery of %s of the mean and %s of the p99 matters: %s", (mean_fraction, p99_fraction, want) => {
  expect(matters({ mean_fraction, p99_fraction } as Schemas["Recovery"])).toBe(want);
});
