// The map of services: its layout, and the part of it to show.
import type { Schemas } from "../api/client.ts";
import { isUnwell } from "./services.ts";

export type Service = Schemas["Service"];
export type Call = Schemas["ServiceCall"];
export type Edge = readonly [caller: string, callee: string];

// Spot is the place of a service: its column from the left and its row within it. Rows have a height of 1.
export type Spot = { column: number; row: number };

// Layout places services. The line of a call over several columns passes the lane of its callee in each column between
// the two: lanes has their rows, by callee and column.
export type Layout = {
  spots: Map<string, Spot>;
  lanes: Map<string, Map<number, number>>;
  columns: number;
  rows: number;
};

const sweeps = 8; // over all columns, to put neighbours side by side
const maxPasses = 50; // of the assignment of columns: as many as there are columns
const laneHeight = 0.3; // of a row
const crowded = 60; // services, from which a map has many

// isCrowded reports whether n services are many: their columns are divided so that they fit into a window, and only
// those that are not well are shown at first.
export const isCrowded = (n: number) => n > crowded;

const longestColumn = (n: number) => Math.max(20, Math.ceil(1.6 * Math.sqrt(n))); // services, of n

// layoutOf places callers to the left of those they call, and services near their neighbours. Calls that close a cycle
// may go back. Lines over several columns to the same callee join in its lane, so that none runs behind a service; of
// many services those to the same column join. It takes time linear in the number of calls, times a constant and the
// number of columns. Equal graphs have equal layouts.
export function layoutOf(names: readonly string[], edges: readonly Edge[]): Layout {
  const sorted = [...names].sort();
  const forward = withoutCycles(sorted, edges);
  const column = new Map(sorted.map((name) => [name, 0]));
  for (let pass = 0, moved = true; moved && pass < maxPasses; pass++) {
    moved = false;
    for (const [caller, callee] of forward) {
      const least = Math.min(maxPasses, column.get(caller)! + 1);
      if (column.get(callee)! >= least) continue;
      column.set(callee, least);
      moved = true;
    }
  }
  let columns: Item[][] = [];
  for (const name of sorted) (columns[column.get(name)!] ??= []).push({ key: name, name, lane: false });
  for (let i = 0; i < columns.length; i++) columns[i] ??= [];
  let laneTo = (callee: string) => callee;
  if (isCrowded(names.length)) {
    order(columns, forward);
    columns = divided(columns, longestColumn(names.length));
    columns.forEach((c, at) => c.forEach(({ name }) => column.set(name, at)));
    laneTo = (callee) => `column ${column.get(callee)}`;
  }
  const known = edges.filter(([a, b]) => a !== b && column.has(a) && column.has(b));
  order(columns, withLanes(columns, column, laneTo, [...known].sort(compareEdges)));
  return placed(columns, sorted, laneTo);
}

// Item is a service, or a lane to some, in a column. Keys are unique.
type Item = { key: string; name: string; lane: boolean };

// divided divides columns with more items than most into equal parts.
const divided = (columns: readonly Item[][], most: number): Item[][] =>
  columns.flatMap((c) => {
    const parts = Math.max(1, Math.ceil(c.length / most));
    const size = Math.ceil(c.length / parts);
    return Array.from({ length: parts }, (_, i) => c.slice(i * size, (i + 1) * size));
  });

type LaneTo = (callee: string) => string;

// withLanes adds lanes to the columns, and returns the edges as chains over them, from left to right.
function withLanes(
  columns: Item[][],
  column: ReadonlyMap<string, number>,
  laneTo: LaneTo,
  edges: readonly Edge[],
): Edge[] {
  const chains = new Map<string, Edge>();
  const seen = new Set<string>();
  const link = (from: string, to: string) => chains.set(JSON.stringify([from, to]), [from, to]);
  for (const [caller, callee] of edges) {
    const [left, right] = column.get(caller)! <= column.get(callee)! ? [caller, callee] : [callee, caller];
    let last = left;
    for (let at = column.get(left)! + 1; at < column.get(right)!; at++) {
      const key = `${laneTo(callee)}\n${at}`;
      if (!seen.has(key)) columns[at]!.push({ key, name: laneTo(callee), lane: true });
      seen.add(key);
      link(last, key);
      last = key;
    }
    link(last, right);
  }
  return [...chains.values()];
}

// placed stacks the items of each column around the middle.
function placed(columns: readonly Item[][], names: readonly string[], laneTo: LaneTo): Layout {
  const height = (x: Item) => (x.lane ? laneHeight : 1);
  const heights = columns.map((c) => c.reduce((sum, x) => sum + height(x), 0));
  const rows = Math.max(0, ...heights);
  const layout: Layout = { spots: new Map(), lanes: new Map(), columns: columns.length, rows };
  const lanes = new Map<string, Map<number, number>>();
  columns.forEach((c, at) => {
    let row = (rows - heights[at]!) / 2;
    for (const x of c) {
      if (!x.lane) layout.spots.set(x.name, { column: at, row });
      else lanes.set(x.name, (lanes.get(x.name) ?? new Map<number, number>()).set(at, row + laneHeight / 2));
      row += height(x);
    }
  });
  for (const name of names) {
    const rowsOf = lanes.get(laneTo(name));
    if (rowsOf) layout.lanes.set(name, rowsOf);
  }
  return layout;
}

// withoutCycles returns the edges between different names, without those that lead back to a caller of their caller.
function withoutCycles(names: readonly string[], edges: readonly Edge[]): Edge[] {
  const callees = new Map<string, string[]>(names.map((name) => [name, []]));
  const called = new Set<string>();
  for (const [caller, callee] of [...edges].sort(compareEdges)) {
    if (caller === callee || !callees.has(caller) || !callees.has(callee)) continue;
    callees.get(caller)!.push(callee);
    called.add(callee);
  }
  const state = new Map<string, "open" | "done">();
  const forward: Edge[] = [];
  const starts = [...names.filter((name) => !called.has(name)), ...names];
  for (const start of starts) {
    if (state.has(start)) continue;
    state.set(start, "open");
    const stack = [{ name: start, next: 0 }];
    while (stack.length > 0) {
      const top = stack.at(-1)!;
      const callee = callees.get(top.name)![top.next++];
      if (callee === undefined) {
        state.set(top.name, "done");
        stack.pop();
      } else if (state.get(callee) !== "open") {
        forward.push([top.name, callee]);
        if (!state.has(callee)) {
          state.set(callee, "open");
          stack.push({ name: callee, next: 0 });
        }
      }
    }
  }
  return forward;
}

const compare = (a: string, b: string) => (a < b ? -1 : Number(a > b));
const compareEdges = (a: Edge, b: Edge) => compare(a[0], b[0]) || compare(a[1], b[1]);

// order sorts each column by the mean place of the neighbours in other columns, some times in both directions.
function order(columns: Item[][], edges: readonly Edge[]) {
  const before = new Map<string, string[]>();
  const after = new Map<string, string[]>();
  for (const [caller, callee] of edges) {
    put(before, callee, caller);
    put(after, caller, callee);
  }
  const place = new Map<string, number>();
  const settle = (c: Item[]) => c.forEach(({ key }, i) => place.set(key, (i + 0.5) / c.length));
  columns.forEach(settle);
  for (let sweep = 0; sweep < sweeps; sweep++) {
    const neighbours = sweep % 2 === 0 ? before : after;
    for (const c of sweep % 2 === 0 ? columns : [...columns].reverse()) {
      const means = new Map(c.map(({ key }) => [key, mean(neighbours.get(key) ?? [], place) ?? place.get(key)!]));
      c.sort((a, b) => means.get(a.key)! - means.get(b.key)! || compare(a.key, b.key));
      settle(c);
    }
  }
}

function put(into: Map<string, string[]>, key: string, value: string) {
  const list = into.get(key);
  if (list) list.push(value);
  else into.set(key, [value]);
}

function mean(names: string[], place: Map<string, number>): number | null {
  if (names.length === 0) return null;
  return names.reduce((sum, name) => sum + place.get(name)!, 0) / names.length;
}

// around returns the services within a number of calls of some, in either direction.
export function around(start: Iterable<string>, edges: readonly Edge[], steps: number): Set<string> {
  const found = new Set(start);
  for (let step = 0; step < steps; step++) {
    const reached = new Set(found);
    for (const [a, b] of edges) {
      if (reached.has(a)) found.add(b);
      if (reached.has(b)) found.add(a);
    }
  }
  return found;
}

export type Scope = "auto" | "all" | "unwell" | "near";

// shownOf returns the services to show: all; those that are not well and their neighbours; or those near a selected
// one. auto is all while they are few.
export function shownOf(services: readonly Service[], calls: readonly Call[], scope: Scope, selected: string) {
  const edges = calls.map((c): Edge => [c.caller, c.callee]);
  const names = services.map((s) => s.service);
  const unwell = services.filter((s) => isUnwell(s.state)).map((s) => s.service);
  const as = scope === "auto" ? (isCrowded(names.length) && unwell.length > 0 && "unwell") || "all" : scope;
  if (as === "near" && names.includes(selected)) return { as, names: around([selected], edges, 1) };
  if (as === "unwell") {
    const shown = around(unwell, edges, 1);
    if (selected) shown.add(selected);
    return { as, names: new Set(names.filter((name) => shown.has(name))) };
  }
  return { as: "all" as const, names: new Set(names) };
}

// widthOf returns the width of the line of a call in px, by the logarithm of its rate.
export const widthOf = (rate: number, most: number) =>
  rate <= 0 ? 1 : 1 + 4 * Math.max(0, Math.min(1, 1 + Math.log10(rate / most) / 3));

// share returns the largest share of an open incident that a service has as a suspect; null if it is none.
export const shareOf = (s: Service) => (s.incidents.length === 0 ? null : Math.max(...s.incidents.map((x) => x.share)));
