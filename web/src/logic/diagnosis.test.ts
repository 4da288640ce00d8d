import { expect, test } from "vitest";
import { bySection, firstAtPlaces, sectionOf } from "./diagnosis.ts";

test("sectionOf maps evidence to sections", () => {
  expect(sectionOf({ kind: "latency" })).toBe("latency");
  expect(sectionOf({ kind: "baseline" })).toBe("latency");
  expect(sectionOf({ kind: "size" })).toBe("latency");
  expect(sectionOf({ kind: "edge", edge: "1" })).toBe("edges");
  expect(sectionOf({ kind: "location", operation: "cart total" })).toBe("located");
  expect(sectionOf({ kind: "variable", explanation: 0 })).toBe("explanations");
});

test("a call flow links to its explanation, or to the edges if the problem is the call flow", () => {
  expect(sectionOf({ kind: "call_flow", explanation: 0 })).toBe("explanations");
  expect(sectionOf({ kind: "call_flow" })).toBe("edges");
});

test("parts without evidence or of an unknown kind have no section", () => {
  expect(sectionOf(undefined)).toBeUndefined();
  expect(sectionOf({ kind: "magic" as "edge" })).toBeUndefined();
});

test("the first problem of each place is the one with the lowest rank, in any order", () => {
  const at = (rank: number, leading: string) => ({ rank, leading });
  const first = firstAtPlaces([at(3, "pool"), at(4, ""), at(1, "disk"), at(2, "pool"), at(5, "pool")]);
  expect([...first]).toEqual([
    ["pool", 2],
    ["disk", 1],
  ]);
});

test("bySection joins neighbouring parts of one section", () => {
  const part = (text: string, kind?: "latency" | "baseline" | "edge") => ({
    text,
    kind: "words" as const,
    ...(kind && { evidence: { kind } }),
  });
  const parts = [part("a"), part("b", "latency"), part("c", "baseline"), part("d", "edge"), part("e")];
  expect(bySection(parts).map(({ section, of }) => [section, of.map((p) => p.text).join("")])).toEqual([
    [undefined, "a"],
    ["latency", "bc"],
    ["edges", "d"],
    [undefined, "e"],
  ]);
});
