import { expect, test } from "vitest";
import { identity, outcome } from "./audit.ts";

test("the outcome of requests", () => {
  expect([
    outcome({ status: 204 }),
    outcome({}),
    outcome({ status: 403, count: 17 }),
    outcome({ status: 503 }),
    outcome({ status: 200, count: 1 }),
  ]).toEqual(["done", "unknown", "refused, 17 × in a minute", "failed: 503", "done, 1 × in a minute"]);
});

test("people are identified by their subject, tokens by their name", () => {
  expect(identity({ who: "Ann", subject: "u1", issuer: "https://id.example" })).toBe("u1");
  expect(identity({ who: "grafana", subject: "3f2a90c1" })).toBe("grafana");
});
