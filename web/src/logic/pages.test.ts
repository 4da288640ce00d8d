import { expect, test } from "vitest";
import { type Page, mergePages } from "./pages.ts";

const page = (round: number, ...ids: string[]): Page<{ id: string }, null> => ({
  items: ids.map((id) => ({ id })),
  cursor: undefined,
  round,
  list: null,
});

test("mergePages lists a duplicate once, at its position in the newer page", () => {
  const ids = (...pages: Page<{ id: string }, null>[]) =>
    mergePages(pages)
      .map((item) => item.id)
      .join("");
  expect(ids(page(2, "a", "c"), page(1, "c", "d"))).toBe("acd");
  expect(ids(page(1, "a", "c"), page(2, "c", "d"))).toBe("acd");
  expect(ids(page(1, "c", "a"), page(2, "c", "d"))).toBe("acd");
  expect(ids(page(1, "a", "c"), page(1, "c", "d"))).toBe("acd");
});
