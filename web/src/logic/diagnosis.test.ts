import { expect, test } from "vitest";
import { parseDiagnosis } from "./diagnosis.ts";

const linked = (text: string) =>
  parseDiagnosis(text)
    .filter((p) => p.evidence)
    .map((p) => [p.text, p.evidence]);

test("every number of a sentence leads to its evidence", () => {
  const text =
    "p99 of payment UpdateToken is 4.3× its median (324 ms against 74.9 ms); 92 % ± 4 of the variance is search DeleteSession; most where inventory POST maps is called.";
  expect(linked(text)).toEqual([
    ["4.3×", "latency"],
    ["324 ms", "latency"],
    ["74.9 ms", "latency"],
    ["92 % ± 4", "edges"],
    ["most where inventory POST maps is called.", "explanations"],
  ]);
  expect(
    parseDiagnosis(text)
      .map((p) => p.text)
      .join(""),
  ).toBe(text);
});

test("a mean against what was expected", () => {
  expect(
    linked(
      "stock UpdateBatch takes 74.3 ms on average, 1.1× the expected 68.2 ms; 100 % of what is wrong is stock POST maps.",
    ),
  ).toEqual([
    ["74.3 ms", "latency"],
    ["1.1×", "latency"],
    ["68.2 ms", "latency"],
    ["100 %", "edges"],
  ]);
});

test("all is a number, too", () => {
  expect(
    linked("gateway POST /home takes 21.3 ms on average; all of what is wrong is reviews shop.Reviews/Top."),
  ).toEqual([
    ["21.3 ms", "latency"],
    ["all", "edges"],
  ]);
});

test("names with digits are no numbers", () => {
  expect(linked("p99 of api GET /v2/users/7 is bad")).toEqual([]);
});

test("what was located leads to the investigation, not to what goes with it", () => {
  expect(
    linked(
      "gateway POST /restock takes 220 ms on average; 98 % of what is wrong is inventory Restock; located: inventory movements.append; it goes with shop.items.",
    ),
  ).toEqual([
    ["220 ms", "latency"],
    ["98 %", "edges"],
    ["located: inventory movements.append;", "investigation"],
    ["it goes with shop.items.", "explanations"],
  ]);
});

test("a coefficient of variation is a number, a name with semicolons and numbers is none", () => {
  const text =
    "few requests of api GET /a; b take far longer than its p99 of 3 ms (CoV 4.31); all of the variance is api c; 7 ms; d.";
  expect(linked(text)).toEqual([
    ["3 ms", "latency"],
    ["4.31", "latency"],
    ["all", "edges"],
  ]);
  expect(
    parseDiagnosis(text)
      .map((p) => p.text)
      .join(""),
  ).toBe(text);
});
