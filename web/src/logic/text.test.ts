import { expect, test } from "vitest";
import type { Schemas } from "../api/client.ts";
import { csv } from "./csv.ts";
import { markdown } from "./markdown.ts";
import { stableOrder } from "./stable-order.ts";

test("csv quotes fields and disables formulas", () => {
  expect(
    csv(
      ["a", "b"],
      [
        ["x,y", 1.5],
        ['say "no"', null],
        ["=HYPERLINK(1)", -3],
        ["@cmd", undefined],
      ],
    ),
  ).toBe('a,b\r\n"x,y",1.5\r\n"say ""no""",\r\n\'=HYPERLINK(1),-3\r\n\'@cmd,\r\n');
});

test("csv disables formulas after any separator", () => {
  const cell = (text: string) => csv([], [[text]]).slice(2, -2);
  expect(cell("ok\n=1+1")).toBe('"ok\n\'=1+1"');
  expect(cell("ok;=1+1\t-2")).toBe("ok;'=1+1\t'-2");
  expect(cell("  =1")).toBe("'  =1");
  expect(cell("＝1")).toBe("'＝1");
  expect(cell("\t\n=1")).toBe('"\t\n\'=1"');
  expect(cell("a-b; c=d")).toBe("a-b; c=d");
});

test("markdown escapes text from traces and keeps it on one line", () => {
  const detail = {
    problem: { diagnosis: "p99 of a\r\n# b [x](y) @all <i> is", p50_ns: 1, p99_ns: 2, rate: 1, state: "opened" },
    edges: [],
    explanations: [],
    contrasts: [{ text: "host.name = <b>\n# x: 1 s" }],
    what_if: [],
    common: [],
    decisions: [],
    next: "Wait.\n- x",
  };
  const lines = markdown(detail as unknown as Schemas["ProblemDetail"], "http://u").split("\n");
  expect(lines[0]).toBe("**p99 of a \\# b \\[x\\](y) \\@all \\<i\\> is**");
  expect(lines[4]).toBe("- slower than others: host.name = \\<b\\> \\# x: 1 s");
  expect(lines.filter((line) => line !== "").length).toBe(4);
});

const items = (text: string) => [...text].map((id) => ({ id, n: 1 }));

test("stableOrder keeps the order of rows and updates their content", () => {
  const now = [
    { id: "c", n: 2 },
    { id: "a", n: 2 },
    { id: "d", n: 2 },
  ];
  const { items: shown, pending } = stableOrder(items("abc"), now);
  expect(shown).toEqual([
    { id: "a", n: 2 },
    { id: "b", n: 1 },
    { id: "c", n: 2 },
    { id: "d", n: 2 },
  ]);
  expect(pending).toBe(3); // a and c have swapped, b is gone; d is last
  expect(stableOrder(items("ab"), items("xaby"))).toEqual({ items: items("aby"), pending: 1 });
  expect(stableOrder(items("abc"), items("abc")).pending).toBe(0);
});
