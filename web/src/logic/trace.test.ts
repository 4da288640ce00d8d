// Rows of a waterfall, search in them, and zoom.
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
import { formatZoom, parseZoom, place, rangeBetween, scaleRange, shiftRange } from "./zoom.ts";

const span = (
  id: string,
  parent: string,
  start_ns: number,
  duration_ns: number,
  kind = "internal",
): Schemas["Span"] => ({
  id,
  parent,
  start_ns,
  duration_ns,
  service: "s",
  name: id,
  kind,
  error: false,
  attributes: [],
  tracepoint: "",
  exclusive_ns: 0,
  percentile: null,
  usual_ns: null,
  among: 0,
});

const traceOf = (spans: Schemas["Span"][], ...sections: [string, number, number][]): Schemas["Trace"] => ({
  id: "0",
  start: "",
  duration_ns: 1000,
  flags: [],
  spans,
  dropped_spans: 0,
  links: [],
  comparison: null,
  ranked_since: null,
  roots: [
    {
      span: "root",
      duration_ns: 1000,
      refined: [],
      sections: sections.map(([s, start_ns, end_ns]) => ({ span: s, start_ns, end_ns })),
    },
  ],
});

const call = [
  span("root", "", 0, 1000),
  span("a", "root", 100, 200),
  span("aside", "root", 320, 100),
  span("b", "root", 600, 300, "client"),
  span("served", "b", 700, 199, "server"),
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

test("parseZoom inverts formatZoom; invalid texts are the whole", () => {
  expect(parseZoom(formatZoom({ from: 10.4, to: 60 }, 100), 100)).toEqual({ from: 10, to: 60 });
  expect(formatZoom({ from: 0, to: 100 }, 100)).toBe("");
  for (const text of ["", "5", "a-b", "60-10", "10-101", "-1-5"])
    expect(parseZoom(text, 100)).toEqual({ from: 0, to: 100 });
});

test("ranges stay within the whole and have a minimum width", () => {
  expect(rangeBetween(700, -5, 1e6)).toEqual({ from: 0, to: 700 });
  expect(rangeBetween(500, 500, 1e6)).toEqual({ from: 400, to: 600 });
  expect(rangeBetween(1e6, 2e6, 1e6)).toEqual({ from: 999_900, to: 1e6 });
  expect(shiftRange({ from: 10, to: 30 }, -50, 100)).toEqual({ from: 0, to: 20 });
  expect(shiftRange({ from: 10, to: 30 }, 80, 100)).toEqual({ from: 80, to: 100 });
  expect(scaleRange({ from: 40, to: 60 }, 0.5, 100)).toEqual({ from: 45, to: 55 });
  expect(scaleRange({ from: 40, to: 60 }, 50, 100)).toEqual({ from: 0, to: 100 });
});

test("place clips an interval to the range", () => {
  expect(place({ from: 0, to: 50 }, { from: 25, to: 75 })).toEqual({ x: 0, width: 0.5 });
  expect(place({ from: 80, to: 90 }, { from: 25, to: 75 })).toBeUndefined();
  expect(place({ from: 50, to: 50 }, { from: 25, to: 75 })).toEqual({ x: 0.5, width: 0 });
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
