import { expect, test } from "vitest";
import type { Schemas } from "../api/client.ts";
import { markdown } from "./markdown.ts";

const interval = (value: number, low: number | null = null, high: number | null = null) => ({ value, low, high });

// detail returns the fields of a problem that markdown uses.
const detail = (rest: Partial<Record<keyof Schemas["ProblemDetail"], unknown>> = {}) =>
  ({
    problem: {
      diagnosis: "p99 of `api` GET /a_b is 4×",
      p50_ns: 2e6,
      p99_ns: 8e6,
      rate: 12,
      since: "2026-01-01T00:00:00Z",
      state: "located",
      share_of: "slowdown",
    },
    edges: [],
    explanations: [],
    contrasts: [],
    what_if: [],
    common: [],
    decisions: [],
    next: "Look at <db>.",
    ...rest,
  }) as unknown as Schemas["ProblemDetail"];

test("markdown lists the diagnosis, numbers, edges, explanations, decisions and the URL", () => {
  const edges = [{ place: { label: "db SELECT" }, score: 0.9 }];
  const explanations = [{ text: "host=a", effect: interval(0.5) }];
  const decisions = [{ at: "2026-01-01T00:01:00Z", text: "2 tracepoints on: db#1" }];
  expect(markdown(detail({ edges, explanations, decisions }), "https://sibyl/problems/1").split("\n")).toEqual([
    "**p99 of \\`api\\` GET /a\\_b is 4×**",
    "",
    "P50 2 ms, P99 8 ms, 12/s, since 2026-01-01T00:00:00Z, located. Look at \\<db\\>.",
    "",
    "- db SELECT: 90 % of the slowdown",
    "- correlated: host=a (50 %)",
    "- 2026-01-01T00:01:00Z 2 tracepoints on: db\\#1",
    "",
    "https://sibyl/problems/1",
    "",
  ]);
});

test("markdown lists slower hosts, the recoveries that matter, and places that rise and fall together", () => {
  const text = markdown(
    detail({
      contrasts: [{ text: "host.name = pay-b: 410 ms" }],
      what_if: [
        { text: "with *bank* at 38 ms", mean_fraction: 0.27, p99_fraction: 0.85 },
        { text: "with shop at 1 ms", mean_fraction: 0.01, p99_fraction: 0.02 },
      ],
      common: [{ text: "a and b\nrise" }],
    }),
    "",
  );
  expect(text.split("\n").filter((line) => line.startsWith("- "))).toEqual([
    "- slower than others: host.name = pay-b: 410 ms",
    "- what if: with \\*bank\\* at 38 ms",
    "- a and b rise",
  ]);
});

test("markdown limits each list and prints unknown numbers as dashes", () => {
  const many = Array.from({ length: 9 }, () => ({
    place: { label: "edge" },
    score: 0.1,
    text: "x",
    effect: interval(0.1),
    at: "now",
  }));
  const text = markdown(
    detail({
      edges: many,
      explanations: many,
      decisions: many,
      problem: {
        diagnosis: "slow",
        share_of: "slowdown",
        p50_ns: null,
        p99_ns: null,
        rate: null,
        since: null,
        state: "none",
      },
    }),
    "",
  );
  expect(text).toContain("P50 –, P99 –, –, since when is unknown, queued.");
  expect([
    text.match(/^- edge: 10 % of the slowdown$/gm)?.length,
    text.match(/^- correlated/gm)?.length,
    text.match(/^- now/gm)?.length,
  ]).toEqual([5, 3, 3]);
});
