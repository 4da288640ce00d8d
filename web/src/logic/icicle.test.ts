// Boxes of icicles.
import { expect, test } from "vitest";
import { boxes } from "./icicle.ts";

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
