import { expect, test } from "vitest";
import { serviceColors } from "./service-colors.ts";

test("services have colours in the order of their spans, further ones a common one", () => {
  const spans = ["a", "b", "a", ..."cdefghij"].map((service) => ({ service }));
  const colors = serviceColors(spans);
  expect(colors.get("a")).toEqual({ color: 1, spans: 2 });
  expect(colors.get("b")?.color).toBe(2);
  expect(colors.get("h")?.color).toBe(8);
  expect(colors.get("i")?.color).toBe(0);
  expect(colors.get("j")?.color).toBe(0);
  expect(serviceColors([]).size).toBe(0);
});
