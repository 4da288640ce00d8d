import { expect, test } from "vitest";
import { type Page, due, flat, put } from "./pages.ts";

const page = (round: number, next: string | null, ...ids: string[]): Page<{ id: string }, null> => ({
  items: ids.map((id) => ({ id })),
  next,
  round,
  list: null,
});

test("the first page and what is in sight is read, and one beyond", () => {
  expect(due([], 1, 0, 0)).toBe(0);
  expect(due([page(1, "b", "a")], 1, 0, 0)).toBe(1);
  expect(due([page(1, null, "a")], 1, 0, 0)).toBe(-1);
  const three = [page(2, "b", "a"), page(1, "c", "b"), page(1, null, "c")];
  expect(due(three, 2, 0, 0)).toBe(-1); // the page beyond is there, if old
  expect(due(three, 2, 1, 1)).toBe(1);
  expect(due(three, 3, 1, 1)).toBe(0);
  expect(due(three, 2, 2, 5)).toBe(2);
  expect(due([page(1, "b", "a")], 1, 7, 9)).toBe(1); // somebody jumped: one page after the other
});

test("pages behind one that ends elsewhere now are old", () => {
  const pages = [page(1, "b", "a"), page(1, "c", "b"), page(1, null, "c")];
  expect(put(pages, 0, page(2, "b", "x")).map((p) => p.round)).toEqual([2, 1, 1]);
  expect(put(pages, 0, page(2, "x", "x")).map((p) => p.round)).toEqual([2, 0, 0]);
  expect(put(pages, 1, page(2, null, "b")).length).toBe(2);
  expect(put(pages, 3, page(2, null, "d")).length).toBe(4);
});

test("an item is where it was read last", () => {
  const ids = (pages: Page<{ id: string }, null>[]) =>
    flat(pages)
      .map((item) => item.id)
      .join("");
  expect(ids([page(2, "", "a", "c"), page(1, null, "c", "d")])).toBe("acd");
  expect(ids([page(1, "", "a", "c"), page(2, null, "c", "d")])).toBe("acd");
  expect(ids([page(1, "", "c", "a"), page(2, null, "c", "d")])).toBe("acd");
});
