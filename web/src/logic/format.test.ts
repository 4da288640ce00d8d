import { describe, expect, test } from "vitest";
import vectors from "../../../internal/units/testdata/format.json";
import {
  ago,
  coarseDuration,
  bytes,
  count,
  digits,
  duration,
  factor,
  lost,
  milli,
  percent,
  rank,
  pValue,
  range,
  rate,
  ratio,
  share,
  abbreviate,
  signed,
  span,
  keepUnits,
  time,
  formatTimesIn,
  unknown,
} from "./format.ts";

const formats = { duration, span, signed, percent, share, percentile: rank, ratio, rate, count };

test("the shared vectors cover these functions", () => {
  expect(Object.keys(vectors).sort()).toEqual(["about", ...Object.keys(formats)].sort());
});

describe.each(Object.keys(formats) as (keyof typeof formats)[])("%s formats like internal/units", (name) => {
  test.each(vectors[name] as [number | null, string][])("%s as %s", (x, text) => expect(formats[name](x)).toBe(text));
});

test("time that requests lose is told in words if there is none", () => {
  expect([lost(undefined), lost(null), lost(0), lost(0.4), lost(2e6)]).toEqual([
    "unknown",
    "unknown",
    "none",
    "none",
    "2 ms/s",
  ]);
});

test("undefined, NaN and infinities are unknown", () => {
  for (const format of [...Object.values(formats), bytes, rate, factor])
    expect([undefined, NaN, Infinity, -Infinity].map((x) => format(x))).toEqual(Array(4).fill(unknown));
});

test("keepUnits joins numbers and their units", () => {
  expect(
    keepUnits(
      "p99 of a 3 s job is 4.5× its median (344 ms against 7 µs); 93 % ± 3 of the variance is step 2 of 5 hosts",
    ),
  ).toBe(
    "p99 of a 3\u00a0s job is 4.5× its median (344\u00a0ms against 7\u00a0µs); 93\u00a0%\u00a0±\u00a03 of the variance is step 2 of 5 hosts",
  );
});

test("digits formats three significant digits without an exponent", () => {
  expect([0, 0.000012345, 0.1, 1.005, 12.34, 123.4, 999.6, 12345, -0.5].map(digits)).toEqual([
    "0",
    "0.0000123",
    "0.1",
    "1",
    "12.3",
    "123",
    "1,000",
    "12,345",
    "−0.5",
  ]);
});

test("bytes, factor and range", () => {
  expect(bytes(16 << 20)).toBe("16 MiB");
  expect([0.5, 1, 1.4444, 123].map(factor)).toEqual(["0.50×", "1.0×", "1.4×", "123×"]);
  expect(range({ value: 0.5, low: 0.43, high: 0.61 }, percent)).toBe("43 % to 61 %");
  expect(range({ value: 0.5, low: null, high: null }, percent)).toBe("");
});

const now = Date.parse("2026-11-21T20:00:00Z");

test("times have a date if it is not today's, and a zone if it is not the local one", () => {
  expect(time("2026-11-21T19:04:05Z", "utc", now)).toBe("19:04:05 UTC");
  expect(time("2026-11-20T19:04:05Z", "utc", now)).toBe("2026-11-20 19:04:05 UTC");
  expect(time("2026-11-21T00:00:05Z", "utc", now)).toBe("00:00:05 UTC");
  expect(formatTimesIn("from 2026-11-20T19:04:05Z to 2026-11-21T19:04:05Z; since 2026", "utc", now)).toBe(
    "from 2026-11-20 19:04:05 UTC to 19:04:05 UTC; since 2026",
  );
  expect([time(null, "utc", now), time("2026-99-99T00:00:00Z", "utc", now)]).toEqual([unknown, unknown]);
});

test("ago and coarseDuration use one unit", () => {
  expect(ago("2026-11-21T19:55:00Z", now)).toBe("5 min ago");
  expect(ago("2026-11-21T20:00:05Z", now)).toBe("now"); // clocks differ
  expect(ago("2026-11-21T22:30:00Z", now)).toBe("in 3 h");
  expect([500, 89_000, 91_000, 7_300_000, 200_000_000].map(coarseDuration)).toEqual([
    "1 s",
    "89 s",
    "2 min",
    "2 h",
    "2 d",
  ]);
});

test("abbreviate keeps both ends of a name", () => {
  expect(["cart", "payment-gateway-eu-west-1", "👍👍👍👍"].map((name) => abbreviate(name, 10))).toEqual([
    "cart",
    "payme…st-1",
    "👍👍👍👍",
  ]);
  expect([1, 2, 5].map((most) => abbreviate("abcdefgh", most))).toEqual(["…", "a…", "ab…gh"]);
});

test("rate, milli and bytes", () => {
  expect(rate(0.0321)).toBe("0.032/s");
  expect([milli(1_234_567), milli(0), milli(null), milli(Number.NaN)]).toEqual([1.235, 0, null, null]);
  expect([1023, 1023.9, 3.5 * 2 ** 40].map(bytes)).toEqual(["1,023 B", "1 KiB", "3.5 TiB"]);
});

test("pValue formats two digits, from 0.001 on", () => {
  expect([0, 0.00099, 0.001, 0.0344, 0.5, 1].map(pValue)).toEqual(["< 0.001", "< 0.001", "0.001", "0.034", "0.5", "1"]);
});
