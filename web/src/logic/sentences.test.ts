import { expect, test } from "vitest";
import { type Phrase, namesIn, phraseText, sameWords } from "./sentences.ts";

const sentence = (name: string, times: string, at = "2026-01-01T02:41:00Z"): Phrase[] => [
  { text: "Requests of ", kind: "words" },
  { text: name, kind: "name" },
  { text: " take ", kind: "words" },
  { text: times, kind: "number" },
  { text: " as long since ", kind: "words" },
  { text: at.slice(11, 16), kind: "time", at },
];

test("times are to the minute, in the zone and with the date unless it is today's", () => {
  const now = Date.parse("2026-01-01T03:00:00Z");
  const text = (of: Phrase[], at: number) => of.map((p) => phraseText(p, "utc", at)).join("");
  const named = sentence("GET since 11:11", "3.1 times");
  expect(text(named, now)).toBe("Requests of GET since 11:11 take 3.1 times as long since 02:41 UTC");
  expect(text(named, now + 86_400_000)).toMatch(/ since 2026-01-01 02:41 UTC$/);
});

test("units stay with their numbers, but names are left alone", () => {
  const shown = (kind: Phrase["kind"]) => phraseText({ text: "5 ms", kind }, "utc", 0);
  expect([shown("number"), shown("words"), shown("name")]).toEqual(["5\u00a0ms", "5\u00a0ms", "5 ms"]);
});

test("a sentence has the same words when only its numbers change", () => {
  const [a, b] = [sentence("GET /2", "5.2 times"), sentence("GET /2", "12 times")];
  expect(sameWords(a, b)).toBe(true);
  expect(sameWords(a, sentence("GET /3", "5.2 times"))).toBe(false);
  expect(sameWords(a, a.slice(1))).toBe(false);
});

test("namesIn returns only names", () => {
  expect(namesIn(sentence("GET /2", "5.2 times"))).toEqual(["GET /2"]);
});
