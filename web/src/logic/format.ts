// Numbers and times for people. Numbers follow the rules of internal/units, so that the CLI and the UI print the same;
// internal/units/testdata/format.json states them. null, undefined, NaN and infinities are unknown and print as a dash.
type Optional = number | null | undefined;

export const unknown = "–";

const absent = (x: Optional): x is null | undefined => x === null || x === undefined || !Number.isFinite(x);

// digits formats x with three significant digits, without trailing zeros and without an exponent; from 1,000 on as a
// whole number.
export function digits(x: number): string {
  if (x < 0) return `−${digits(-x)}`;
  if (x >= 999.5) return count(Math.round(x));
  let decimals = 0;
  for (let bound = 100; x < bound && decimals < 12; bound /= 10) decimals++;
  return trimZeros(x.toFixed(decimals));
}

// trimZeros removes trailing zeros after the decimal point.
const trimZeros = (text: string) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);

// Unit is a unit, its size in the smallest one, and the number of it below which it is used.
type Unit = { name: string; size: number; below: number };

const unit = (name: string, size: number, below: number): Unit => ({ name, size, below });

const nanoUnits = [
  unit("ns", 1, 1000),
  unit("µs", 1e3, 1000),
  unit("ms", 1e6, 1000),
  unit("s", 1e9, 120),
  unit("min", 60e9, 120),
  unit("h", 3600e9, 48),
  unit("d", 86_400e9, Infinity),
];
const byteUnits = [
  unit("B", 1, 1024),
  unit("KiB", 2 ** 10, 1024),
  unit("MiB", 2 ** 20, 1024),
  unit("GiB", 2 ** 30, 1024),
  unit("TiB", 2 ** 40, Infinity),
];

const roundsUp = 0.9995; // part of a unit's bound from which three significant digits round to the bound

// scaled formats x, in the smallest of the units, in the unit that keeps it short.
function scaled(x: number, units: readonly Unit[]): string {
  const { name, size } = units.find(({ size, below }) => Math.abs(x) / size < below * roundsUp) ?? units.at(-1)!;
  return `${digits(x / size)} ${name}`;
}

const minute = 60e9; // ns
const hour = 60 * minute;
const day = 24 * hour;

// span formats nanoseconds that have passed, in two units from two minutes on: "4 min 40 s".
export function span(ns: Optional): string {
  if (absent(ns)) return unknown;
  if (ns < 2 * minute) return duration(Math.max(0, ns));
  let [least, step, names] = [minute, 1e9, ["min", "s"]];
  if (Math.round(ns / minute) * minute >= 2 * day) [least, step, names] = [day, hour, ["days", "h"]];
  else if (Math.round(ns / 1e9) * 1e9 >= 2 * hour) [least, step, names] = [hour, minute, ["h", "min"]];
  const rounded = Math.round(ns / step) * step;
  const rest = Math.round((rounded % least) / step);
  return `${Math.floor(rounded / least)} ${names[0]}${rest > 0 ? ` ${rest} ${names[1]}` : ""}`;
}

const leastNanos = 0.01; // the shortest duration that is not written as 0: sums of fractions leave less

// duration formats nanoseconds.
export function duration(ns: Optional): string {
  if (absent(ns)) return unknown;
  return scaled(Math.abs(ns) < leastNanos ? 0 : ns, nanoUnits);
}

// lost describes ns that requests lose in a second.
export function lost(ns: Optional): string {
  if (absent(ns)) return "unknown";
  return ns < 1 ? "none" : `${duration(ns)}/s`;
}

// signed is duration with a plus sign for positive values.
export const signed = (ns: Optional) => `${!absent(ns) && ns >= leastNanos ? "+" : ""}${duration(ns)}`;

// percent formats a fraction.
export function percent(x: Optional): string {
  if (absent(x)) return unknown;
  const p = Math.abs(x * 100);
  if (p < 0.05) return x === 0 ? "0 %" : "≈0 %";
  return `${x < 0 ? "−" : ""}${p < 10 ? trimZeros(p.toFixed(1)) : p.toFixed(0)} %`;
}

// share is percent for a part of a whole. Noise can estimate it as more than the whole, which is "all".
export const share = (x: Optional) => (!absent(x) && x >= 0.995 ? "all" : percent(x));

// keepUnits replaces the spaces between numbers and their units by no-break spaces.
export const keepUnits = (text: string) =>
  text.replace(/(?<=\d) (?=(?:%|ns|µs|ms|s|min|h)(?![\p{L}\d]))|(?<=%) (?=±)|(?<=±) (?=\d)/gu, "\u00a0");

// rank formats a percentile as the share of others that are faster, rounded down and never 100 %.
export const rank = (x: Optional) =>
  absent(x) ? unknown : `${x < 99 ? Math.floor(x) : Math.min(99.9, Math.floor(x * 10) / 10)} %`;

// milli converts nanoseconds to milliseconds, for exports.
export const milli = (ns: Optional) => (absent(ns) ? null : Math.round(ns / 1000) / 1000);

export const bytes = (x: Optional) => (absent(x) ? unknown : scaled(x, byteUnits));

// count formats an integer with commas between groups of three digits.
export const count = (x: Optional) => (absent(x) ? unknown : x.toLocaleString("en-US").replace("-", "−"));

// rate formats a number a second. A small one has two digits, since it stands in narrow columns.
export const rate = (x: Optional) => (absent(x) ? unknown : `${digits(x < 0.1 ? Number(x.toPrecision(2)) : x)}/s`);

// ratio formats a number of about 1, such as a coefficient of variation: "0.82", "1.4", "14".
export function ratio(x: Optional): string {
  if (absent(x)) return unknown;
  if (x < 0) return `−${ratio(-x)}`;
  if (x >= 1000) return count(Math.round(x));
  if (x >= 9.95) return x.toFixed(0);
  return x.toFixed(x >= 0.995 ? 1 : 2);
}

// factor is ratio with a multiplication sign: "1.4×".
export const factor = (x: Optional) => (absent(x) ? unknown : `${ratio(x)}×`);

// pValue formats a probability.
export const pValue = (x: number) => (x < 0.001 ? "< 0.001" : digits(Number(x.toPrecision(2))));

// stateLabel returns the words for a state of an investigation, a service or a tracepoint.
export function stateLabel(state: string): string {
  if (state === "none") return "queued";
  if (state === "joined") return "in an incident";
  if (state === "incident") return "suspected";
  if (state === "idle") return "not judged";
  if (state === "gone") return "ended";
  return state === "exhausted" ? "inconclusive" : state;
}

export type Interval = { value: number | null; low: number | null; high: number | null };

// range formats the interval of a value, such as "0.43 to 0.61"; "" if it is unknown.
export const range = (i: Interval, f: (x: Optional) => string) =>
  absent(i.low) || absent(i.high) ? "" : `${f(i.low)} to ${f(i.high)}`;

export type Zone = "utc" | "local";

type At = string | number | null | undefined;

// time formats a time of day, with the date if it is not today's.
export const time = (at: At, zone: Zone, now: number): string => timeBy(clocks[zone].clock, at, zone, now);

// timeToMinute is time without seconds.
export const timeToMinute = (at: At, zone: Zone, now: number): string => timeBy(clocks[zone].minute, at, zone, now);

function timeBy(clock: Intl.DateTimeFormat, at: At, zone: Zone, now: number): string {
  if (at === null || at === undefined) return unknown;
  const date = new Date(at);
  if (absent(date.getTime())) return unknown;
  const { day } = clocks[zone];
  const on = day.format(date);
  return `${on === day.format(now) ? "" : `${on} `}${clock.format(date)}${zone === "utc" ? " UTC" : ""}`;
}

// dayAndTime formats a time without seconds, for the axis of some days: "24 Nov 06:00".
export const dayAndTime = (ms: number, zone: Zone): string => dated[zone].format(ms).replaceAll(",", "");

const datedOf = (timeZone: string | undefined) =>
  new Intl.DateTimeFormat("en-GB", { timeZone, day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const dated: Record<Zone, Intl.DateTimeFormat> = { utc: datedOf("UTC"), local: datedOf(undefined) };

// formatTimesIn replaces the RFC 3339 times in a text of the API by those of time.
export const formatTimesIn = (text: string, zone: Zone, now: number) =>
  text.replace(/\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ/g, (at) => time(at, zone, now));

const clockOf = (timeZone: string | undefined) => ({
  clock: new Intl.DateTimeFormat("en-GB", { timeZone, timeStyle: "medium" }),
  minute: new Intl.DateTimeFormat("en-GB", { timeZone, timeStyle: "short" }),
  day: new Intl.DateTimeFormat("en-CA", { timeZone, dateStyle: "short" }),
});

// Formatters are shared: creating one takes longer than drawing its text, and a heat map has thousands of times.
const clocks: Record<Zone, ReturnType<typeof clockOf>> = { utc: clockOf("UTC"), local: clockOf(undefined) };

// ago formats the distance of a time from now: "5 min ago", "in 3 h", "now".
export function ago(at: string | number | null | undefined, now: number): string {
  if (at === null || at === undefined) return unknown;
  const ms = now - new Date(at).getTime();
  const text = coarseDuration(Math.abs(ms));
  if (text === "0 s" || (ms < 0 && ms > -15_000)) return "now"; // clocks differ a little
  return ms < 0 ? `in ${text}` : `${text} ago`;
}

// coarseDuration formats milliseconds as a whole number of one unit.
export function coarseDuration(ms: number): string {
  for (const [unit, size] of [
    ["d", 86_400_000],
    ["h", 3_600_000],
    ["min", 60_000],
  ] as const) {
    if (ms >= 2 * size || (unit === "min" && ms >= 90_000)) return `${Math.round(ms / size)} ${unit}`;
  }
  return `${Math.round(ms / 1000)} s`;
}

// abbreviate shortens a name to at most the given number of characters. It keeps both ends, where long names differ.
export function abbreviate(name: string, most: number): string {
  const characters = [...name];
  if (characters.length <= most) return name;
  const end = Math.floor((most - 1) / 2);
  return `${characters.slice(0, most - 1 - end).join("")}…${characters.slice(characters.length - end).join("")}`;
}
