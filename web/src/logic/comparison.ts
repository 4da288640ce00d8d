import type { Schemas } from "../api/client.ts";
import { type Zone, count, duration, formatTimesIn } from "./format.ts";

// sides names the two sides of a comparison, each with its mean and its number of requests.
export function sides({ a, b }: Schemas["Comparison"], zone: Zone, now: number): string {
  const [first, second] = [a, b].map(
    ({ label, mean_ns, requests }) =>
      `${duration(mean_ns)} on average for ${formatTimesIn(label, zone, now)} (${count(requests)})`,
  );
  return `${first}, ${second!.replace(" on average", "")}`;
}

// Selection bounds requests by their start, RFC 3339 or "" for no bound, and by their duration in ns. The lower bounds
// belong to the selection, the upper ones do not.
export type Selection = { from: string; to: string; longer: number; shorter: number };

// samplesIn returns the sample traces of a selection, each once: a failed request may be one of the slowest, too.
export function samplesIn(exemplars: Schemas["Exemplar"][], { from, to, longer, shorter }: Selection) {
  const inTime = (at: number) => (!from || at >= Date.parse(from)) && (!to || at < Date.parse(to));
  const selected = exemplars.filter(
    (e) => e.duration_ns >= longer && e.duration_ns < shorter && inTime(Date.parse(e.start)),
  );
  return [...new Map(selected.map((e) => [e.trace, e])).values()];
}
