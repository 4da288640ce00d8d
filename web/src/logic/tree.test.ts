// Visible rows of calling-context trees.
import { expect, test } from "vitest";
import type { Schemas } from "../api/client.ts";
import { initiallyFolded, visible } from "./tree.ts";

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
