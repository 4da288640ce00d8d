import { expect, test } from "vitest";
import { type Fields, attributesOf, isTraceID, parametersOf, parseDuration, problemsOf } from "./trace-search.ts";

const none: Fields = { trace: "", service: "", operation: "", longer: "", shorter: "", error: "", attributes: "" };

test("durations are read as people write them", () => {
  expect(parseDuration("250ms")).toBe(250e6);
  expect(parseDuration(" 1.5 s ")).toBe(1.5e9);
  expect(parseDuration("2m")).toBe(120e9);
  expect(parseDuration("30µs")).toBe(30_000);
  expect(parseDuration("40")).toBe(40e6);
  for (const bad of ["", "fast", "-1s", "1h30", "9e99s", "99999999999999s"]) expect(parseDuration(bad)).toBe(undefined);
});

test("attributes are separated by commas", () => {
  expect(attributesOf("a=1, b ,,c=x\\,y,=z")).toEqual(["a=1", "b", "c=x,y"]);
});

test("a query has only the parameters that were set", () => {
  expect(parametersOf(none)).toEqual({});
  expect(
    parametersOf({ ...none, service: " cart ", longer: "1s", shorter: "0", error: "yes", attributes: "k=v" }),
  ).toEqual({ service: "cart", longer_ns: 1e9, error: true, attribute: ["k=v"] });
  expect(parametersOf({ ...none, error: "no", trace: "ab" })).toEqual({ error: false, trace: "ab" });
});

test("problems name the field", () => {
  expect(problemsOf(none)).toEqual([]);
  expect(problemsOf({ ...none, longer: "soon", trace: "xyz" }).join(" ")).toMatch(/Longer than.*Trace ID/);
  expect(problemsOf({ ...none, attributes: "a,b,c,d,e,f,g,h,i" })).toHaveLength(1);
});

test("a whole trace ID is known", () => {
  expect(isTraceID("0123456789abcdef0123456789ABCDEF")).toBe(true);
  expect(isTraceID("0123")).toBe(false);
});
