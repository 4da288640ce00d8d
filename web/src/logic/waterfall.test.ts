// Rows of a waterfall, and search in them.
import { expect, test } from "vitest";
import type { Schemas } from "../api/client.ts";
import {
  type Row,
  extent,
  matchPositions,
  matchingRows,
  nextMatch,
  rowLabel,
  rows,
  totals,
  visibleRows,
} from "./waterfall.ts";

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

const traceOf = (spans: Schemas["Span"][], ...sections: [string, number, number][]): Schemas["Trace"] => ({
  id: "0",
  start: "",
  duration_ns: spans[0]?.duration_ns ?? 0,
  flags: [],
  spans,
  dropped_spans: 0,
  links: [],
  comparison: null,
  ranked_since: null,
  roots: [
    {
      span: spans[0]?.id ?? "",
      duration_ns: spans[0]?.duration_ns ?? 0,
      refined: [],
      sections: sections.map(([s, start_ns, end_ns]) => ({ span: s, start_ns, end_ns })),
    },
  ],
});

const call = [
  span("root", "", 0, 1000),
  span("a", "root", 100, 200),
  span("aside", "root", 320, 100),
  span("b", "root", 600, 300, { kind: "client" }),
  span("served", "b", 700, 199, { kind: "server" }),
];
const path: [string, number, number][] = [
  ["root", 0, 100],
  ["a", 100, 300],
  ["root", 300, 600],
  ["b", 600, 700],
  ["served", 700, 899],
  ["b", 899, 900],
  ["root", 900, 1000],
];

test("rows are in pre-order, and ancestors of the critical path are on it", () => {
  const trace = traceOf(
    [
      span("root", "", 0, 100),
      span("call", "root", 10, 50, { kind: "client" }),
      span("served", "call", 15, 40, { kind: "server" }),
      span("late", "root", 70, 20),
      span("lost", "nowhere", 5, 5),
    ],
    ["root", 0, 1],
    ["served", 15, 55],
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

test("long intervals of self time in which no child ran are gaps", () => {
  const all = rows(traceOf(call, ...path), false);
  expect(all.map((r) => [r.gap ? rowLabel(r) : r.id, r.depth, extent(r).from, extent(r).to])).toEqual([
    ["root", 0, 0, 1000],
    ["gap 100 ns: nothing instrumented ran here", 1, 0, 100],
    ["a", 1, 100, 300], // no children: all its time is self time
    ["gap 20 ns: nothing instrumented ran here", 1, 300, 320],
    ["aside", 1, 320, 420], // off the path, but running
    ["gap 180 ns: nothing instrumented ran here", 1, 420, 600],
    ["b", 1, 600, 900],
    ["wait 100 ns: on the wire, or in the callee's queue", 2, 600, 700],
    ["served", 2, 700, 899], // the wait after it is too short for a gap
    ["gap 100 ns: nothing instrumented ran here", 1, 900, 1000],
  ]);
  expect(all.map((r) => r.end)).toEqual([10, 2, 3, 4, 5, 6, 9, 8, 9, 10]);
  expect(new Set(all.map((r) => r.id)).size).toBe(10);
  expect(all.filter((r) => r.gap).every((r) => r.onPath)).toBe(true);
});

test("overlapping children leave no gap between them", () => {
  const all = rows(
    traceOf(
      [span("root", "", 0, 1000), span("long", "root", 0, 800), span("short", "root", 100, 100)],
      ["root", 0, 1000],
    ),
    false,
  );
  expect(all.filter((r) => r.gap).map((r) => [r.gap!.from, r.gap!.to])).toEqual([[800, 1000]]);
});

test("visibleRows returns the rows that overlap the range", () => {
  const all = rows(traceOf(call, ...path), false);
  const during = (from: number, to: number) => visibleRows(all, new Set(), false, { from, to }).map((i) => all[i]!.id);
  expect(during(330, 400)).toEqual(["root", "aside"]);
  expect(during(910, 950)).toEqual(["root", "root~900"]);
});

test("search ignores case, is limited to visible rows, and wraps around", () => {
  const all = rows(traceOf(call), false);
  const found = matchingRows(all, "S A");
  expect([...found].map((i) => all[i]!.span.name)).toEqual(["a", "aside"]);
  expect(matchPositions([0, ...found], found)).toEqual([1, 2]); // positions among the visible rows
  expect(matchPositions([...found].slice(1), found)).toEqual([0]);
  expect([matchingRows(all, "").size, matchingRows(all, "nothing").size]).toEqual([0, 0]);
  expect([
    nextMatch([2, 5, 9], -1, 1),
    nextMatch([2, 5, 9], 5, 1),
    nextMatch([2, 5, 9], 9, 1),
    nextMatch([2, 5, 9], 6, -1),
    nextMatch([2, 5, 9], 2, -1),
    nextMatch([2, 5], -1, -1),
    nextMatch([], 3, 1),
  ]).toEqual([2, 9, 2, 5, 9, 5, undefined]);
});

test("totals add the spans of an operation, and lead to the longest", () => {
  const row = (id: string, name: string, ...critical: [number, number][]) =>
    ({ id, span: { ...span(id, "", 0, 1), name }, critical: critical.map(([from, to]) => ({ from, to })) }) as Row;
  const all = [
    row("a", "call", [0, 10]),
    row("b", "wait sync", [0, 8]),
    row("c", "wait sync", [10, 19]),
    row("d", "idle"),
  ];
  expect(totals(all).map((t) => [t.text, t.ns, t.count, t.row.id])).toEqual([
    ["s waiting for the disk (fsync)", 17, 2, "c"],
    ["s call", 10, 1, "a"],
  ]);
});
