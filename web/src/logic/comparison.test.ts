// The headline of a comparison and the samples of a selection.
import { expect, test } from "vitest";
import type { Schemas } from "../api/client.ts";
import { samplesIn, sides, withoutOnlyGroups } from "./comparison.ts";

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

test("samples of a selection lie within its bounds, and one of two kinds is listed once", () => {
  const sample = (trace: string, stratum: string, start: string, duration_ns: number) =>
    ({ trace, stratum, start: `2026-11-26T20:00:${start}Z`, duration_ns }) as Schemas["Exemplar"];
  const exemplars = [
    sample("a", "slow", "10", 600),
    sample("b", "slow", "20", 500),
    sample("c", "typical", "15", 100),
    sample("a", "failed", "10", 600),
  ];
  const traces = (from: string, to: string, longer: number, shorter: number) =>
    samplesIn(exemplars, { from, to, longer, shorter }).map((e) => e.trace);
  expect(traces("", "", 0, Infinity)).toEqual(["a", "b", "c"]);
  expect(traces("2026-11-26T20:00:10Z", "2026-11-26T20:00:20Z", 0, Infinity)).toEqual(["a", "c"]);
  expect(traces("", "", 500, 600)).toEqual(["b"]);
});

test("a request type with one group is listed once", () => {
  const item = (id: string, level: string, request_type: string, count: number) =>
    ({ id, level, request_type, count }) as Schemas["Group"];
  const items = [
    item("t", "request_type", "t", 9),
    item("only", "group", "t", 9),
    item("u", "request_type", "u", 8),
    item("u1", "group", "u", 5),
    item("u2", "group", "u", 3),
    item("found", "group", "other", 8),
  ];
  const listed = (chosen: string) => withoutOnlyGroups(items, chosen).map((g) => g.id);
  expect(listed("")).toEqual(["t", "u", "u1", "u2", "found"]);
  expect(listed("t")).toEqual(["t", "u", "u1", "u2", "found"]);
  expect(listed("only")).toEqual(["only", "u", "u1", "u2", "found"]);
});
