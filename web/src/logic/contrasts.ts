// Attributes of traces: in which of them slow requests differ from others.
import type { Schemas } from "../api/client.ts";

type Trace = Schemas["Trace"];

// Contrast is a value of an attribute that slow requests have more often, or less, than others.
export type Contrast = { key: string; value: string; service: string; slow: number; rest: number };

// contrasts compares attributes of traces: the part of the slow ones, and of the rest, in which some span of a service has the value; by
// falling difference. What all have alike is left out, and so is what tells every trace from every other.
export function contrastAttributes(slow: Trace[], rest: Trace[]): Contrast[] {
  const tally = new Map<string, Contrast>();
  const add = (trace: Trace, field: "slow" | "rest", of: number) => {
    const seen = new Set<string>();
    for (const span of trace.spans) {
      for (const { key, value } of span.attributes) {
        const name = `${span.service}\n${key}\n${value}`;
        if (key.startsWith("sibyl.") || seen.has(name)) continue;
        seen.add(name);
        const found = tally.get(name) ?? { key, value, service: span.service, slow: 0, rest: 0 };
        found[field] += 1 / of;
        tally.set(name, found);
      }
    }
  };
  slow.forEach((trace) => add(trace, "slow", slow.length));
  rest.forEach((trace) => add(trace, "rest", rest.length));
  const least = 1 / Math.max(1, slow.length) + 1e-9;
  return [...tally.values()]
    .filter((c) => Math.abs(c.slow - c.rest) > least)
    .sort((a, b) => Math.abs(b.slow - b.rest) - Math.abs(a.slow - a.rest) || a.key.localeCompare(b.key));
}
