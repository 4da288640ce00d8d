import { expect, test } from "vitest";
import { selection } from "./heatmap.ts";

test("selection: a horizontal drag selects times, a diagonal one a box, a click nothing", () => {
  expect(
    selection([
      [0.9, 0.5],
      [0.4, 0.55],
    ]),
  ).toEqual({ x: [0.4, 0.9], y: [0, 1] });
  expect(
    selection([
      [0.2, 0.8],
      [0.6, 0.1],
    ]),
  ).toEqual({ x: [0.2, 0.6], y: [0.1, 0.8] });
  expect(
    selection([
      [0.5, 0.2],
      [0.51, 0.9],
    ]),
  ).toBeUndefined();
});
