import { expect, test } from "vitest";
import { fieldTime, formatRange, parseRange, presets, rangeParameters, readField } from "./range.ts";

const now = Date.parse("2026-03-01T12:00:30Z");

test("a range is the last hour unless the URL has another", () => {
  for (const text of ["", "1h", "2 weeks", "..", "2026-03-01T10:00:00Z..2026-03-01T09:00:00Z", "x..y"]) {
    const r = parseRange(text, now);
    expect([new Date(r.from).toISOString(), r.to, r.live, r.text]).toEqual([
      "2026-03-01T11:00:00.000Z",
      now,
      true,
      "1h",
    ]);
  }
  expect(presets[0][0]).toBe("1h");
});

test("a fixed time survives the URL", () => {
  const text = formatRange(now - 5_000_000, now);
  const r = parseRange(text, now + 9e9);
  expect(r).toEqual({ from: now - 5_000_000, to: now, live: false, text });
  expect(rangeParameters(r).to).toBe("2026-03-01T12:00:30.000Z");
});

test("a live range has no end, so that answers are as of the last epoch", () => {
  expect(rangeParameters(parseRange("1d", now))).toEqual({ from: "2026-02-28T12:00:00.000Z" });
});

test("fields of dates are inverse to their texts", () => {
  for (const utc of [true, false]) expect(readField(fieldTime(now, utc), utc)).toBe(Math.floor(now / 60_000) * 60_000);
  expect(fieldTime(now, true)).toBe("2026-03-01T12:00");
  expect(readField("", true)).toBeNaN();
});
