import { expect, test } from "vitest";
import { csv } from "./csv.ts";
import { heldOrder } from "./order.ts";

test("tables as CSV: quoted, and no formulas", () => {
  expect(csv(["a", "b"], [["x,y", 1.5], ['say "no"', null], ["=HYPERLINK(1)", -3], ["@cmd", undefined]])).toBe(
    'a,b\r\n"x,y",1.5\r\n"say ""no""",\r\n\'=HYPERLINK(1),-3\r\n\'@cmd,\r\n',
  );
});

const items = (text: string) => [...text].map((id) => ({ id, n: 1 }));

test("rows stay in their place while they are held, with what is new in them", () => {
  const now = [{ id: "c", n: 2 }, { id: "a", n: 2 }, { id: "d", n: 2 }];
  const { items: shown, pending } = heldOrder(items("abc"), now);
  expect(shown).toEqual([{ id: "a", n: 2 }, { id: "b", n: 1 }, { id: "c", n: 2 }, { id: "d", n: 2 }]);
  expect(pending).toBe(3); // a and c changed places, b is gone; d moves nothing
  expect(heldOrder(items("ab"), items("xaby"))).toEqual({ items: items("aby"), pending: 1 });
  expect(heldOrder(items("abc"), items("abc")).pending).toBe(0);
});
