import { expect, test } from "vitest";
import { countFailures, delay } from "./backoff.ts";
import { eventDecoder } from "./event-stream.ts";

// decode returns the events of a stream that arrives in the given chunks.
function decode(...chunks: string[]): unknown[][] {
  const found: unknown[][] = [];
  const feed = eventDecoder((...event) => found.push(event));
  chunks.forEach(feed);
  return found;
}

const stream = ': heartbeat\n\nid: r-1\nevent: epoch\ndata: {"a":1}\n\nid: r-2\nevent: reset\ndata: {}\n\n';
const events = [
  ["r-1", { a: 1 }],
  ["r-2", null],
];

test("events are decoded wherever the stream is split", () => {
  for (let cut = 0; cut <= stream.length; cut++) {
    expect(decode(stream.slice(0, cut), stream.slice(cut))).toEqual(events);
  }
});

test("lines may end with CRLF, wherever the stream is split", () => {
  const text = stream.replaceAll("\n", "\r\n");
  for (let cut = 0; cut <= text.length; cut++) {
    expect(decode(text.slice(0, cut), text.slice(cut), ":")).toEqual(events);
  }
});

test("the space after the colon is optional", () => {
  expect(decode('id:r-1\nevent:epoch\ndata:{"a":1}\n\n')).toEqual([["r-1", { a: 1 }]]);
});

test("data may span several lines", () => {
  expect(decode('data: {"a":\ndata: 1}\n\n')).toEqual([["", { a: 1 }]]);
});

test("an ID without data is not an event and is not carried over to the next one", () => {
  expect(decode("id: r-1\n\n", 'data: {"a":1}\n\n', 'id: r-3\ndata: {"a":3}\n\n')).toEqual([
    ["", { a: 1 }],
    ["r-3", { a: 3 }],
  ]);
});

test("an event without a final empty line is incomplete", () => {
  expect(decode('data: {"a":1}\n')).toEqual([]);
});

test("established connections reconnect within 2 s, failed ones within 5 s", () => {
  const delays = (opened: boolean, ms: number) => {
    const all = [];
    for (let n = 0, failures = 0; n < 9; n++) all.push(delay((failures = countFailures(failures, ms, opened))));
    return all;
  };
  expect(delays(true, 1000)).toEqual([500, 1000, 2000, 2000, 2000, 2000, 2000, 2000, 2000]);
  expect(delays(false, 1000)).toEqual([500, 1000, 2000, 4000, 5000, 5000, 5000, 5000, 5000]);
  expect(delays(true, 60_000)[8]).toBe(500);
});
