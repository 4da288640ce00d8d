import { expect, test } from "vitest";
import {
  ago,
  coarseDuration,
  bytes,
  count,
  digits,
  duration,
  hundredths,
  milli,
  percent,
  range,
  rate,
  ratio,
  share,
  abbreviate,
  signed,
  keepUnits,
  time,
  formatTimesIn,
  unknown,
} from "./format.ts";

test.each([
  [0, "0 ns"],
  [8.7e-11, "0 ns"],
  [-0.004, "0 ns"],
  [0.25, "0.25 ns"],
  [999, "999 ns"],
  [1000, "1 µs"],
  [324_224_350, "324 ms"],
  [999_600, "1 ms"],
  [1_500_000_000, "1.5 s"],
  [119e9, "119 s"],
  [120e9, "2 min"],
  [-2_000_000, "−2 ms"],
  [null, unknown],
  [undefined, unknown],
  [Number.NaN, unknown],
])("duration %s is %s", (ns, text) => expect(duration(ns)).toBe(text));

test.each([
  [1, "100 %"],
  [0.834, "83 %"],
  [0.0345, "3.5 %"],
  [0.0001, "≈0 %"],
  [-0.0002, "≈0 %"],
  [0, "0 %"],
  [-0.25, "−25 %"],
  [null, unknown],
])("percent %s is %s", (x, text) => expect(percent(x)).toBe(text));

test.each([
  [1.03, "all"],
  [0.9951, "all"],
  [0.994, "99 %"],
  [0.004, "0.4 %"],
  [-0.03, "−3 %"],
  [null, unknown],
])("share %s is %s", (x, text) => expect(share(x)).toBe(text));

test("numbers stay beside their units, whatever else is said", () => {
  expect(
    keepUnits(
      "p99 of a 3 s job is 4.5× its median (344 ms against 7 µs); 93 % ± 3 of the variance is step 2 of 5 hosts",
    ),
  ).toBe(
    "p99 of a 3\u00a0s job is 4.5× its median (344\u00a0ms against 7\u00a0µs); 93\u00a0%\u00a0±\u00a03 of the variance is step 2 of 5 hosts",
  );
});

test("numbers have three digits and no exponent", () => {
  expect([0, 0.000012345, 0.1, 1.005, 12.34, 123.4, 12345].map(digits)).toEqual([
    "0",
    "0.0000123",
    "0.1",
    "1",
    "12.3",
    "123",
    "12,345",
  ]);
});

test("sizes, factors, signs and intervals", () => {
  expect(bytes(16 << 20)).toBe("16 MiB");
  expect(ratio(1.4444)).toBe("1.4×");
  expect(hundredths(0.5)).toBe("0.50");
  expect(signed(-2e6, duration)).toBe("−2 ms");
  expect(range({ value: 0.5, low: 0.43, high: 0.61 }, percent)).toBe("43 % to 61 %");
  expect(range({ value: 0.5, low: null, high: null }, percent)).toBe("");
});

const now = Date.parse("2026-11-21T20:00:00Z");

test("times say their day when it is another one, and their zone when it is not the reader's", () => {
  expect(time("2026-11-21T19:04:05Z", "utc", now)).toBe("19:04:05 UTC");
  expect(time("2026-11-20T19:04:05Z", "utc", now)).toBe("2026-11-20 19:04:05 UTC");
  expect(time("2026-11-21T00:00:05Z", "utc", now)).toBe("00:00:05 UTC");
  expect(formatTimesIn("from 2026-11-20T19:04:05Z to 2026-11-21T19:04:05Z; since 2026", "utc", now)).toBe(
    "from 2026-11-20 19:04:05 UTC to 19:04:05 UTC; since 2026",
  );
  expect([time(null, "utc", now), time("2026-99-99T00:00:00Z", "utc", now)]).toEqual([unknown, unknown]);
});

test("how long ago", () => {
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

test("long names keep both of their ends", () => {
  expect(["cart", "payment-gateway-eu-west-1", "👍👍👍👍"].map((name) => abbreviate(name, 10))).toEqual([
    "cart",
    "payme…st-1",
    "👍👍👍👍",
  ]);
  expect([1, 2, 5].map((most) => abbreviate("abcdefgh", most))).toEqual(["…", "a…", "ab…gh"]);
});

test("counts, rates, and nanoseconds for other programs", () => {
  expect([count(1_234_567), count(null), rate(0.0321), rate(undefined)]).toEqual([
    "1,234,567",
    unknown,
    "0.0321/s",
    unknown,
  ]);
  expect([milli(1_234_567), milli(0), milli(null), milli(Number.NaN)]).toEqual([1.235, 0, null, null]);
  expect([bytes(null), bytes(1023), bytes(3.5 * 2 ** 40)]).toEqual([unknown, "1,023 B", "3.5 TiB"]);
});
