import { expect, test } from "vitest";
import type { Schemas } from "../api/client.ts";
import { type Gate, gateValue, gatesRequest } from "./gates.ts";

const gates: Schemas["Gates"] = {
  growth: 0.1,
  time_ns: 1e6,
  lost_ns: 1e6,
  failing: 0.05,
  score: 0.02,
  configured: ["score"],
  edited: ["failing"],
};

test("gates are set in percent and milliseconds; those of the configuration and defaults are left out", () => {
  const values = { growth: "10", time_ns: "2.5", lost_ns: "1", failing: "5", score: "2" } satisfies Record<
    Gate,
    string
  >;
  expect(gateValue(gates, "growth")).toBe(10);
  expect(gateValue(gates, "time_ns")).toBe(1);
  expect(gatesRequest(gates, values)).toEqual({ time_ns: 2.5e6, failing: 0.05 });
});
