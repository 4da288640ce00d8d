import { expect, test } from "vitest";
import { sectionOf } from "./diagnosis.ts";

test("evidence has a section of the page", () => {
  expect(sectionOf({ kind: "latency" })).toBe("latency");
  expect(sectionOf({ kind: "baseline" })).toBe("latency");
  expect(sectionOf({ kind: "size" })).toBe("latency");
  expect(sectionOf({ kind: "edge", edge: "1" })).toBe("edges");
  expect(sectionOf({ kind: "location", operation: "cart total" })).toBe("investigation");
  expect(sectionOf({ kind: "variable", explanation: 0 })).toBe("explanations");
});

test("a call flow that explains the problem is an explanation; one that is the problem shows in the edges", () => {
  expect(sectionOf({ kind: "call_flow", explanation: 0 })).toBe("explanations");
  expect(sectionOf({ kind: "call_flow" })).toBe("edges");
});

test("parts without evidence, or with a kind that this page does not know, are plain text", () => {
  expect(sectionOf(undefined)).toBeUndefined();
  expect(sectionOf({ kind: "magic" as "edge" })).toBeUndefined();
});
