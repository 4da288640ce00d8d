// Layouts of icicles, waterfalls, trees and heat maps.
import { expect, test } from "vitest";
import type { Schemas } from "../api/client.ts";
import { mergeBins } from "./bins.ts";
import { quantile, ticksOf } from "./heatmap.ts";
import { boxes } from "./icicle.ts";
import { initiallyFolded, visible } from "./tree.ts";
import { rows, visibleRows } from "./waterfall.ts";

const place = (...context: string[]) => ({
  edge: context.join(),
  label: context.at(-1)!,
  context,
  service: "",
  operation: "",
  kind: "",
});

test("the width of a box includes its children", () => {
  const found = boxes([place("a"), place("a", "b"), place("a", "c"), place("a", "b")], (i) => [10, 20, 60, 10][i]!);
  expect(found.map((b) => [b.label, b.depth, +b.x.toFixed(3), +b.width.toFixed(3), b.edges])).toEqual([
    ["a", 0, 0, 1, [0]],
    ["c", 1, 0, 0.6, [2]],
    ["b", 1, 0.6, 0.3, [1, 3]],
  ]);
});

test("negative and zero weights have no width", () => {
  expect(boxes([place("a"), place("b")], (i) => [-5, 5][i]!).map((b) => b.width)).toEqual([1, 0]);
  expect(boxes([place("a")], () => 0)[0]!.width).toBe(0);
});

const span = (
  id: string,
  parent: string,
  start_ns: number,
  duration_ns: number,
  rest: Partial<Schemas["Span"]> = {},
): Schemas["Span"] => ({
  id,
  parent,
  start_ns,
  duration_ns,
  service: "s",
  name: id,
  kind: "internal",
  error: false,
  attributes: [],
  tracepoint: "",
  exclusive_ns: 0,
  percentile: null,
  usual_ns: null,
  among: 0,
  ...rest,
});

const traceOf = (spans: Schemas["Span"][], sections: Schemas["Section"][] = []): Schemas["Trace"] => ({
  id: "0",
  start: "",
  duration_ns: 100,
  flags: [],
  spans,
  dropped_spans: 0,
  links: [],
  comparison: null,
  ranked_since: null,
  roots: [{ span: spans[0]?.id ?? "", duration_ns: 100, sections, refined: [] }],
});

test("rows are in pre-order, and ancestors of the critical path are on it", () => {
  const trace = traceOf(
    [
      span("root", "", 0, 100),
      span("call", "root", 10, 50, { kind: "client" }),
      span("served", "call", 15, 40, { kind: "server" }),
      span("late", "root", 70, 20),
      span("lost", "nowhere", 5, 5),
    ],
    [
      { span: "root", start_ns: 0, end_ns: 1 },
      { span: "served", start_ns: 15, end_ns: 55 },
    ],
  );
  const all = rows(trace, false);
  expect(all.map((r) => [r.span.id, r.depth, r.end, r.onPath])).toEqual([
    ["root", 0, 4, true],
    ["call", 1, 3, true],
    ["served", 2, 3, true],
    ["late", 1, 4, false],
    ["lost", 0, 5, false],
  ]);
  expect(all[1]!.wire).toEqual([
    { from: 10, to: 15 },
    { from: 55, to: 60 },
  ]);
  expect(visibleRows(all, new Set(["call"]), false, { from: 0, to: 100 }).map((i) => all[i]!.span.id)).toEqual([
    "root",
    "call",
    "late",
    "lost",
  ]);
  expect(visibleRows(all, new Set(), true, { from: 0, to: 100 }).map((i) => all[i]!.span.id)).toEqual([
    "root",
    "call",
    "served",
  ]);
});

test("rows breaks cycles of parents, ignores duplicate IDs, and handles deep traces", () => {
  const round = rows(
    traceOf([span("below", "a", 0, 1), span("a", "b", 0, 1), span("b", "a", 0, 1), span("own", "own", 0, 1)]),
    false,
  );
  expect(round.map((r) => [r.id, r.depth])).toEqual([
    ["a", 0],
    ["below", 1],
    ["b", 1],
    ["own", 0],
  ]);
  const chain = Array.from({ length: 30 }, (_, i) => span(String(i), i ? String(i - 1) : "", i, 1));
  expect(rows(traceOf([...chain, ...chain]), false).length).toBe(30); // duplicates must not multiply with depth
  const deep = rows(
    traceOf(Array.from({ length: 50_000 }, (_, i) => span(String(i), i ? String(i - 1) : "", i, 1))),
    false,
  );
  expect([deep.length, deep.at(-1)!.depth, deep[0]!.end]).toEqual([50_000, 49_999, 50_000]);
});

const node = (index: number, parent: number, end: number, depth: number, operation: string) =>
  ({ index, parent, end, depth, operation, context: `of ${operation}` }) as Schemas["TreeNode"];
const tree = [
  node(0, -1, 5, 0, "a"),
  node(1, 0, 4, 1, "b"),
  node(2, 1, 4, 2, "c"),
  node(3, 2, 4, 3, "d"),
  node(4, 0, 5, 1, "e"),
];

test("visible omits collapsed nodes; a filter keeps the ancestors of matches", () => {
  expect(visible(tree, new Set(["of b"]))).toEqual([0, 1, 4]);
  expect(visible(tree, new Set(["of a"]), (n) => n.operation === "c")).toEqual([0, 1, 2]);
  expect([...initiallyFolded(tree, [], 1)]).toEqual(["of b", "of c"]);
  expect([...initiallyFolded(tree, [2], 1)]).toEqual(["of c"]);
});

const window = (from: number, to: number, ...latency: [number, number, number][]) =>
  ({
    from: new Date(from).toISOString(),
    to: new Date(to).toISOString(),
    latency: latency.map(([low_ns, high_ns, count]) => ({ low_ns, high_ns, count })),
  }) as Schemas["Window"];

test("ticks are round times, and few", () => {
  const minute = 60_000;
  expect(ticksOf(30_000, 10 * minute, 5)).toEqual([2, 4, 6, 8, 10].map((m) => m * minute));
  expect(ticksOf(0, 3600 * minute, 7).length).toBeLessThanOrEqual(8);
  expect(ticksOf(61_000, 62_000, 4)).toEqual([61_000]);
});

test("quantile interpolates within a bin", () => {
  const bins = window(0, 1, [100, 200, 50], [200, 300, 50]).latency;
  expect([quantile(bins, 0.5), quantile(bins, 0.75), quantile(bins, 1), quantile([], 0.5)]).toEqual([
    200,
    250,
    300,
    null,
  ]);
});

test("mergeBins keeps all requests", () => {
  const bins = Array.from({ length: 300 }, (_, i) => ({
    low_ns: 1e6 * 1.02 ** i,
    high_ns: 1e6 * 1.02 ** (i + 1),
    count: i,
  }));
  const bars = mergeBins(bins);
  expect(bars.length).toBeLessThanOrEqual(41);
  expect(bars.reduce((n, b) => n + b.count, 0)).toBe((299 * 300) / 2);
  expect(mergeBins([])).toEqual([]);
});
