// The headline of a comparison.
import { expect, test } from "vitest";
import type { Schemas } from "../api/client.ts";
import { sides } from "./comparison.ts";

test("the headline tells both sides apart, with times in the zone of the reader", () => {
  const now = Date.parse("2026-11-26T20:00:00Z");
  const side = (label: string, mean_ns: number, requests: number) => ({ label, mean_ns, requests });
  const c = {
    a: side("the requests from 2026-11-26T18:56:00Z to 2026-11-26T19:00:00Z", 134e6, 57),
    b: side("the requests from 2026-11-26T18:40:00Z to 2026-11-26T18:56:00Z", 27.2e6, 1188),
  } as Schemas["Comparison"];
  expect(sides(c, "utc", now)).toBe(
    "134 ms on average for the requests from 18:56:00 UTC to 19:00:00 UTC (57), 27.2 ms for the requests from 18:40:00 UTC to 18:56:00 UTC (1,188)",
  );
});
