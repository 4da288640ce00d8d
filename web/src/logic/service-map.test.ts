import { expect, test } from "vitest";
import { type Call, type Edge, type Service, around, layoutOf, shownOf, widthOf } from "./service-map.ts";

// estate returns n services in layers, each with some callees in the next two layers.
function estate(n: number): { names: string[]; edges: Edge[] } {
  const names = Array.from({ length: n }, (_, i) => `service-${i}`);
  const edges = names.flatMap((name, i) =>
    [2 * i + 1, 2 * i + 2, 3 * i + 7].filter((k) => k < n && k !== i).map((k): Edge => [name, names[k]!]),
  );
  return { names, edges };
}

test("callers are left of those they call, and no two services share a place", () => {
  const { names, edges } = estate(200);
  const { spots, columns, rows } = layoutOf(names, edges);
  for (const [caller, callee] of edges) expect(spots.get(caller)!.column).toBeLessThan(spots.get(callee)!.column);
  const taken = new Set([...spots.values()].map((s) => `${s.column} ${s.row}`));
  expect(taken.size).toBe(200);
  for (const s of spots.values()) {
    expect(s.column).toBeLessThan(columns);
    expect(s.row).toBeLessThanOrEqual(rows - 1 + 1e-9);
    expect(s.row).toBeGreaterThanOrEqual(0);
  }
});

test("lines over several columns run between the services, and those to one service together", () => {
  const { names, edges } = estate(200);
  const { spots, lanes } = layoutOf(names, edges);
  let long = 0;
  for (const [caller, callee] of edges) {
    for (let at = spots.get(caller)!.column + 1; at < spots.get(callee)!.column; at++) {
      const lane = lanes.get(callee)!.get(at)!;
      long++;
      for (const s of spots.values())
        if (s.column === at) expect(lane < s.row || lane > s.row + 1, `${caller} to ${callee} at ${at}`).toBe(true);
    }
  }
  expect(long).toBeGreaterThan(20);
});

test("the layout depends on the graph only", () => {
  const { names, edges } = estate(60);
  expect(layoutOf([...names].reverse(), [...edges].reverse())).toEqual(layoutOf(names, edges));
});

test("cycles, calls to oneself and to unknown services do no harm", () => {
  const { spots, columns } = layoutOf(
    ["a", "b", "c"],
    [
      ["a", "b"],
      ["b", "c"],
      ["c", "a"],
      ["b", "b"],
      ["a", "gone"],
      ["gone", "c"],
    ],
  );
  expect(spots.size).toBe(3);
  expect(columns).toBe(3);
  expect(layoutOf([], []).columns).toBe(0);
});

test("a chain longer than the bound still ends", () => {
  const names = Array.from({ length: 500 }, (_, i) => String(i).padStart(3, "0"));
  const { spots } = layoutOf(
    names,
    names.slice(1).map((name, i): Edge => [names[i]!, name]),
  );
  expect(spots.size).toBe(500);
});

test("neighbours are near", () => {
  // Two independent chains whose names are interleaved: no line crosses another.
  const { spots } = layoutOf(
    ["a", "b", "x", "y"],
    [
      ["a", "y"],
      ["b", "x"],
    ],
  );
  const below = (p: string, q: string) => Math.sign(spots.get(p)!.row - spots.get(q)!.row);
  expect(below("a", "b")).toBe(below("y", "x"));
});

test("around goes in both directions", () => {
  const edges: Edge[] = [
    ["a", "b"],
    ["b", "c"],
    ["c", "d"],
  ];
  expect([...around(["b"], edges, 1)].sort()).toEqual(["a", "b", "c"]);
  expect([...around(["a"], edges, 3)].sort()).toEqual(["a", "b", "c", "d"]);
});

test("many services are reduced to those that are not well, with their neighbours", () => {
  const { names, edges } = estate(200);
  const services = names.map((service, i) => ({ service, state: i === 50 ? "failing" : "well" }) as Service);
  const calls = edges.map(([caller, callee]) => ({ caller, callee }) as Call);
  const shown = shownOf(services, calls, "auto", "");
  expect(shown.as).toBe("unwell");
  expect(shown.names.has("service-50")).toBe(true);
  expect(shown.names.size).toBeLessThan(10);
  expect(shownOf(services.slice(0, 49), calls, "auto", "").as).toBe("all");
  expect(shownOf(services, calls, "near", "service-0").names.has("service-1")).toBe(true);
  expect(shownOf(services, calls, "near", "unknown").names.size).toBe(200);
});

test("lines grow with the logarithm of the rate", () => {
  expect(widthOf(0, 100)).toBe(1);
  expect(widthOf(100, 100)).toBe(5);
  expect(widthOf(1, 100)).toBeGreaterThan(widthOf(0.1, 100));
  expect(widthOf(1e-9, 100)).toBe(1);
});
