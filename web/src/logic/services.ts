// Services: words, sorting and the layout-independent numbers of the views of services.
import type { Schemas } from "../api/client.ts";
import { duration, percent, rate, stateLabel } from "./format.ts";

export type ServiceState = Schemas["ServiceState"];
type Load = Schemas["ServiceLoad"];

// states are the states in the order of urgency.
export const states: readonly ServiceState[] = ["incident", "failing", "silent", "slower", "new", "well", "idle"];

// isUnwell reports whether somebody should look at a service in a state.
export const isUnwell = (state: ServiceState) => ["incident", "failing", "silent", "slower"].includes(state);

// summary says how many services are in which state: "2 suspected, 6 well".
export const summary = (counts: Record<string, number>): string =>
  states
    .filter((state) => (counts[state] ?? 0) > 0)
    .map((state) => `${counts[state]} ${stateLabel(state)}`)
    .join(", ");

type Attention = Pick<Schemas["ServiceAttention"], "state">;

// quietHeadline says how things are while no incident is open that is not muted. All is well only if no service is
// failing, silent or slower, no incident closed that may go on, no instance was unlike its siblings from the start, so
// that it is no incident, and enough spans are judged.
export function quietHeadline(
  attention: readonly Attention[],
  muted: number,
  { unknown, unequal, uncovered }: { unknown: boolean; unequal: boolean; uncovered: boolean },
): string {
  const n = attention.length;
  const open = muted > 0 ? "No open incident but muted ones" : "No open incident";
  if (n > 0) return `${open}; ${n} ${n === 1 ? "service needs" : "services need"} attention`;
  if (unknown) return open;
  if (muted > 0) return `No incident but ${muted === 1 ? "a muted one" : "muted ones"}`;
  if (uncovered) return "No incident in what is judged";
  return unequal ? "Nothing got worse" : "All is well";
}

// change returns a number now in relation to the usual one; null: unknown.
export function change(now: number | null, usual: number | null | undefined): number | null {
  if (now === null || usual === null || usual === undefined || usual <= 0) return null;
  return now / usual;
}

const notable = 1.25; // times the usual

// isNotable reports whether a time is clearly above the usual.
export const isNotable = (now: number | null, usual: number | null | undefined) =>
  (change(now, usual) ?? 1) >= notable && (now ?? 0) - (usual ?? 0) >= 1e6;

// failsNotably reports whether clearly more calls fail than usual.
export const failsNotably = (now: Load, usual: Load | null) =>
  now.calls >= 20 && (now.failed ?? 0) - (usual?.failed ?? 0) >= 0.02;

// telling returns the quantile of durations that tells most about a service: the P99 if only that is clearly longer than
// usual, since the median hides a fault that slows a part of the calls, such as those of one instance.
export const telling = ({ now, usual }: { now: Load; usual: Load | null }): "p50_ns" | "p99_ns" =>
  isNotable(now.p99_ns, usual?.p99_ns) && !isNotable(now.p50_ns, usual?.p50_ns) ? "p99_ns" : "p50_ns";

// courseOf returns what is drawn over time for a service, with its name: what is worse than usual, or the rate. Two minutes
// have one value of a quantile; bins without one are left out.
export function courseOf({ trend, worse }: Pick<Schemas["Service"], "trend" | "worse">) {
  const of = (["p99_ns", "p50_ns", "failed"] as const).find((figure) => worse.includes(figure)) ?? "rate";
  const name = { rate: "calls/s", failed: "errors", p50_ns: "P50", p99_ns: "P99" }[of];
  return { name, values: (trend?.[of] ?? []).filter((v) => v !== null) };
}

// servicePath is the path of the page of a service: by name or, if that cannot be part of a path, by ID.
export const servicePath = (name: string, id?: string) =>
  `/services/${id !== undefined && /[/%]/.test(name) ? id : encodeURIComponent(name)}`;

// sortedBy returns rows by a key; unknown ones last, ties in the order of names.
export function sortedBy<T>(
  rows: readonly T[],
  key: (row: T) => number | string | null,
  falling: boolean,
  name: (row: T) => string,
): T[] {
  const sign = falling ? -1 : 1;
  return [...rows].sort((a, b) => {
    const [x, y] = [key(a), key(b)];
    if (x === null || y === null) return Number(x === null) - Number(y === null) || name(a).localeCompare(name(b));
    if (x === y) return name(a).localeCompare(name(b));
    return (x < y ? -1 : 1) * sign;
  });
}

// figuresOf returns the rate, failures and a duration of a service, as many as fit into a number of characters: the first
// ones or, if the duration is worse than usual, the last ones.
export function figuresOf(s: Pick<Schemas["Service"], "now" | "usual" | "worse">, most: number): string {
  const { now } = s;
  const all = [rate(now.rate)];
  if ((now.failed ?? 0) > 0) all.push(`${percent(now.failed)} fail`);
  const quantile = telling(s);
  if (now[quantile] !== null) all.push(`${quantile === "p99_ns" ? "P99 " : ""}${duration(now[quantile])}`);
  const slow = s.worse.some((figure) => figure !== "failed");
  while (all.length > 1 && all.join(" · ").length > most) {
    if (slow) all.shift();
    else all.pop();
  }
  return all.join(" · ");
}
