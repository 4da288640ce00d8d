// Sentences of the API: lists of words, names, numbers and times.
import type { Schemas } from "../api/client.ts";
import { type Zone, keepUnits, timeToMinute } from "./format.ts";

export type Phrase = Schemas["Phrase"];

// phraseText returns the text of a phrase, with its time in a zone.
export const phraseText = ({ kind, text, at }: Phrase, zone: Zone, now: number): string => {
  if (kind === "time") return timeToMinute(at, zone, now);
  return kind === "words" || kind === "number" ? keepUnits(text) : text;
};

// sameWords reports whether two sentences differ in their numbers only.
export const sameWords = (a: readonly Phrase[], b: readonly Phrase[]): boolean => wordsOf(a) === wordsOf(b);

const wordsOf = (of: readonly Phrase[]) => JSON.stringify(of.map((p) => (p.kind === "number" ? null : p.text)));

// namesIn returns the names in a sentence.
export const namesIn = (of: readonly Phrase[]): string[] => of.filter((p) => p.kind === "name").map((p) => p.text);
