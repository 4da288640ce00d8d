import { expect, test } from "vitest";
import { conditions, matches, weeklyText } from "./silences.ts";

test("the conditions of a silence are told in one line", () => {
  expect(conditions({ service: "cart" })).toBe("cart");
  expect(conditions({ service: "cart*", request_type: "shop POST /checkout", tags: ["zone=a", "env=test"] })).toBe(
    "cart*, requests shop POST /checkout, zone=a, env=test",
  );
  expect(matches({})).toBe(false);
  expect(matches({ tags: ["env=test"] })).toBe(true);
});

test("a weekly window is told with its days, start, length and zone", () => {
  expect(weeklyText({ days: ["friday", "saturday"], start: "22:00", length_ns: 5.4e12, zone: "Europe/Berlin" })).toBe(
    "only Fri, Sat from 22:00 for 1.5 h (Europe/Berlin)",
  );
  expect(weeklyText({ days: ["monday"], start: "00:00", length_ns: 3.6e12 })).toContain("(UTC)");
});
