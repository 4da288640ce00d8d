// Incidents: the parts of their suspects, their sentences and times, for people.
import type { Schemas } from "../api/client.ts";
import { coarseDuration, count, digits, duration, percent } from "./format.ts";

type Incident = Schemas["Incident"];
type Suspect = Schemas["IncidentSuspect"];
type RequestType = Schemas["IncidentRequestType"];

export type PartKey = Exclude<keyof Schemas["SuspectParts"], "rest" | "shape">;

// parts names the parts of a score, in the order in which they are drawn. Other calls than usual are no part of it.
export const parts: readonly { key: PartKey; name: string; means: string }[] = [
  { key: "own", name: "in it", means: "Time spent in the service itself" },
  { key: "added", name: "in added calls", means: "Time of calls that it makes more often" },
  { key: "in", name: "to it", means: "Time by which it answers late, for all of its callers" },
  { key: "out", name: "from it", means: "Time by which it is late with all services that it calls" },
  { key: "errors", name: "errors", means: "Failures that begin in the service" },
  { key: "unanswered", name: "unanswered", means: "Calls that it did not answer" },
  { key: "silent", name: "missing", means: "Requests that came steadily before and do not come any more" },
];

const leastPart = 0.005; // of the score; smaller parts are not listed

export type Part = (typeof parts)[number] & { value: number };

// partsOf returns the parts of a score that matter. Only in the score of a service without spans, the rest counts as
// time to it.
export const partsOf = ({ parts: of, score, emits_spans }: Suspect): Part[] =>
  parts
    .map((part) => ({ ...part, value: of[part.key] + (part.key === "in" && !emits_spans ? of.rest : 0) }))
    .filter(({ value }) => value > 0 && value >= leastPart * score);

// costOf returns the cost that suspects add together. It is at least a tiny number, so that one can divide by it.
export const costOf = (all: Suspect[]): number =>
  Math.max(
    Number.MIN_VALUE,
    all.reduce((sum, s) => sum + s.score, 0),
  );

const leastSuspicion = 0.05; // of the first suspect's score

// likely returns the suspects that are worth a look: the first, and those with a similar score.
export const likely = (all: Suspect[]): Suspect[] =>
  all.filter((s, i) => i === 0 || (s.score > 0 && s.score >= leastSuspicion * all[0]!.score));

// lasted returns the ms from the onset of an incident to its end, or to now.
export const lasted = (x: Incident, now: number) =>
  Math.max(0, (x.ended ? Date.parse(x.ended) : now) - Date.parse(x.onset));

// incidentMarks returns the marks of incidents in charts: the onset of each and, once it is over, its end.
export const incidentMarks = (all: Incident[]) =>
  all.flatMap((x) => {
    const onset = { at: Date.parse(x.onset), text: "incident", title: `Incident: ${x.sentence}` };
    return x.ended ? [onset, { at: Date.parse(x.ended), text: "end", title: `End of ${onset.title}` }] : [onset];
  });

const onsetPrecision = 180_000; // ms; incidents are noticed by windows of three minutes

// relativeToOnset describes the time of a deploy, such as "4 min before the onset".
export function relativeToOnset(at: string, onset: string): string {
  const ms = Date.parse(at) - Date.parse(onset);
  if (Math.abs(ms) < onsetPrecision) return "about at the onset";
  return `${coarseDuration(Math.abs(ms))} ${ms < 0 ? "before" : "after"} the onset`;
}

const leastLost = 1e6; // ns in a second
const leastFailed = 0.001; // requests in a second

// sizeText compares the mean durations of the affected requests before the onset and since: "10 ms → 32 ms".
export const sizeText = ({ before_ns, now_ns }: { before_ns: number; now_ns: number }) =>
  `${duration(before_ns)} → ${duration(now_ns)}`;

// affectedText says how many requests and types an incident affects: "28 % of all requests, of 2 request types".
export function affectedText({ size, failures, queue, request_types }: Incident): string {
  if (queue && request_types.length === 0) return `messages in ${queue.name}; no request waits for them`;
  const types = affectedTypes(request_types.length);
  const share = (size ?? failures)?.share_of_requests ?? 0;
  return share > 0 ? `${percent(share)} of all requests, of ${types}` : types;
}

// impactText describes what requests lose in a second; "" if it is little.
export function impactText({ lost_ns_per_second: lost, failed_per_second: failed }: Incident["impact"]): string {
  const parts = [
    ...(lost >= leastLost ? [`${duration(lost)} of waiting`] : []),
    ...(failed >= leastFailed ? [`${digits(failed)} failures`] : []),
  ];
  return parts.length > 0 ? `${parts.join(" and ")} per second` : "";
}

// earlierText counts the earlier incidents of a service.
export const earlierText = (n: number): string =>
  ["never before", "once before", "twice before"][n] ?? `${count(n)} times before`;

// affectedTypes counts the request types of an incident, such as "3 request types".
export function affectedTypes(n: number): string {
  if (n === 0) return "no request type yet";
  return n === 1 ? "1 request type" : `${n}${n >= maxTypes ? " or more" : ""} request types`;
}

const maxTypes = 100; // the service lists no more

const leastFailures = 0.005; // share of requests beyond the usual

// failsMore reports whether clearly more requests of a type fail than usual.
export const failsMore = (t: RequestType) => t.failed - t.usual_failed >= leastFailures;

const leastFactor = 1.05;

// isSlower reports whether requests of a type take longer than usual.
export const isSlower = (t: RequestType) => t.usual_ns > 0 && t.mean_ns >= leastFactor * t.usual_ns;

// carrier describes the instance, host or version that carries most of the cost of a suspect; "" if none stands out.
export function carrier(s: Suspect | undefined): string {
  const most = s?.instances[0];
  return most && most.part >= 0.5 ? `${most.key} = ${most.value} (${percent(most.part)} of the cost)` : "";
}

// ownerText names an owner, with the contact if it is known.
export const ownerText = (o: Schemas["Owner"]): string => (o.contact ? `${o.name} (${o.contact})` : o.name);

// isWithin reports whether an incident was open at a time in [from, to], in ms.
export const isWithin = (x: Incident, { from, to }: { from: number; to: number }) =>
  Date.parse(x.onset) <= to && (x.closed === null || Date.parse(x.closed) >= from);

// isMuted reports whether an incident is hidden from the list.
export const isMuted = (x: Incident) => x.notes.muted !== undefined;

// isInIncident reports whether the search of an incident replaces that of a problem.
export const isInIncident = (p: Schemas["Problem"]) => p.state === "none" && p.incident !== undefined;

// isUnsearched reports whether a problem is not searched because its requests are no slower.
export const isUnsearched = (p: Schemas["Problem"]) => p.state === "none" && p.kind === "shifted" && p.leading === "";

// nobodyKnows reports whether an incident closed without a sign that its cause is gone.
export const nobodyKnows = ({ end }: Incident) => end?.reason === "stopped" || end?.reason === "no_traces";

// toldEnds returns the incident that closed last, if any, and then those that may go on, though they closed. A later
// incident of the same service that did not end like this tells what became of it. Muted ones are known.
export function toldEnds(all: Incident[]): Incident[] {
  const closed = all.filter((x) => x.closed !== null).sort((x, y) => Date.parse(y.closed!) - Date.parse(x.closed!));
  const unknown = closed.filter(
    (x) =>
      nobodyKnows(x) &&
      !isMuted(x) &&
      !all.some((y) => y.service === x.service && !nobodyKnows(y) && Date.parse(y.opened) > Date.parse(x.opened)),
  );
  return [...new Set([...closed.slice(0, 1), ...unknown])];
}
