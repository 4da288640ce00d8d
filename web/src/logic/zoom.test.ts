// Zoom into a waterfall.
import { expect, test } from "vitest";
import { formatZoom, parseZoom, place, rangeBetween, scaleRange, shiftRange } from "./zoom.ts";

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
