import { expect, test } from "vitest";
import { Parser } from "./parser.ts";

test("events come out whole, wherever the stream was cut", () => {
  const text = ": heartbeat\n\nid: r-1\nevent: epoch\ndata: {\"a\":1}\n\nid: r-2\nevent: reset\n\n";
  for (let cut = 0; cut <= text.length; cut++) {
    const found: string[][] = [];
    const parser = new Parser((...event) => found.push(event));
    parser.push(text.slice(0, cut));
    parser.push(text.slice(cut));
    expect(found).toEqual([["r-1", "epoch", '{"a":1}'], ["r-2", "reset", "{}"]]);
  }
});
