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

// withoutOnlyGroups returns request types and groups without the groups that are the only ones of a listed type: both
// name the same requests. The chosen one stays, instead of the type if it is such a group.
export function withoutOnlyGroups(items: Schemas["Group"][], chosen: string): Schemas["Group"][] {
  const types = new Map(items.filter((g) => g.level === "request_type").map((g) => [g.request_type, g]));
  const only = items.filter((g) => g.level === "group" && types.get(g.request_type)?.count === g.count);
  const omitted = new Set(only.map((g) => (g.id === chosen ? types.get(g.request_type)! : g)));
  return items.filter((g) => !omitted.has(g));
}
