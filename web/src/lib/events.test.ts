import { expect, test } from "vitest";
import { Parser } from "./parser.ts";
import { countFailures, delay } from "./backoff.ts";

test("events come out whole, wherever the stream was cut", () => {
  const text = ': heartbeat\n\nid: r-1\nevent: epoch\ndata: {"a":1}\n\nid: r-2\nevent: reset\n\n';
  for (let cut = 0; cut <= text.length; cut++) {
    const found: string[][] = [];
    const parser = new Parser((...event) => found.push(event));
    parser.push(text.slice(0, cut));
    parser.push(text.slice(cut));
    expect(found).toEqual([
      ["r-1", "epoch", '{"a":1}'],
      ["r-2", "reset", "{}"],
    ]);
  }
});

test("a connection that is cut again and again comes back within seconds, one that is not made ever more seldom, but in seconds, too", () => {
  const pauses = (made: boolean, ms: number) => {
    const all = [];
    for (let n = 0, failures = 0; n < 9; n++) all.push(delay((failures = countFailures(failures, ms, made))));
    return all;
  };
  expect(pauses(true, 1000)).toEqual([500, 1000, 2000, 2000, 2000, 2000, 2000, 2000, 2000]);
  expect(pauses(false, 1000)).toEqual([500, 1000, 2000, 4000, 5000, 5000, 5000, 5000, 5000]);
  expect(pauses(true, 60_000)[8]).toBe(500);
});
