// Numbers and times for people: three digits, a unit with a space before it, and "–" for what is not known.
type Known = number | null | undefined;

export const unknown = "–";

const absent = (x: Known): x is null | undefined => x === null || x === undefined || !Number.isFinite(x);

// digits writes a number with three significant digits and without an exponent.
export function digits(x: number): string {
  if (x === 0) return "0";
  if (x < 0) return `−${digits(-x)}`;
  const size = Math.floor(Math.log10(x));
  if (size >= 3) return Math.round(x).toLocaleString("en-US");
  const text = x.toFixed(Math.min(12, Math.max(0, 2 - size)));
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

// Step says that so size of a unit make one of the next, which is used from that size of the former on.
type Step = { unit: string; size: number; from: number };

// scaled writes x in the unit that fits.
function scaled(x: number, steps: readonly Step[], last: string): string {
  let rest = x;
  for (const { unit, size, from } of steps) {
    if (Math.abs(rest) < from * 0.9995) return `${digits(rest)} ${unit}`;
    rest /= size;
  }
  return `${digits(rest)} ${last}`;
}

const step = (unit: string, size: number, from = size): Step => ({ unit, size, from });

const durations = [
  step("ns", 1000),
  step("µs", 1000),
  step("ms", 1000),
  step("s", 60, 120),
  step("min", 60, 120),
  step("h", 24, 48),
];
const sizes = [step("B", 1024), step("KiB", 1024), step("MiB", 1024), step("GiB", 1024)];

// duration writes nanoseconds. Less than a hundredth of one is what sums of fractions leave, and nothing.
export function duration(ns: Known): string {
  if (absent(ns)) return unknown;
  if (Math.abs(ns) < 0.01) return "0 ns";
  return scaled(ns, durations, "d");
}

// signed writes a number as f does, with its sign.
export const signed = (x: Known, f: (x: Known) => string) =>
  absent(x) ? unknown : (x < 0 ? "−" : "+") + f(Math.abs(x));

// percent writes a fraction.
export function percent(x: Known): string {
  if (absent(x)) return unknown;
  const p = x * 100;
  if (p !== 0 && Math.abs(p) < 0.1) return "≈0 %";
  return `${Math.abs(p) < 10 ? Number(p.toFixed(1)) : Math.round(p)} %`.replace("-", "−");
}

// share writes a part of what is wrong. Above the whole, because other places got better meanwhile, it is all of it.
export const share = (x: Known) => (!absent(x) && x >= 0.995 ? "all" : percent(x));

// tied keeps the numbers of a sentence beside their units, also where its line ends.
export const keepUnits = (text: string) =>
  text.replace(/(?<=\d) (?=(?:%|ns|µs|ms|s|min|h)(?![\p{L}\d]))|(?<=%) (?=±)|(?<=±) (?=\d)/gu, "\u00a0");

// rank writes how size of 100 others something is slower than, never all of them.
export const rank = (x: Known) =>
  absent(x) ? unknown : `${x < 99 ? Math.floor(x) : Math.min(99.9, Math.floor(x * 10) / 10)} %`;

// milli is nanoseconds in ms, for tables of other programs.
export const milli = (ns: Known) => (absent(ns) ? null : Math.round(ns / 1000) / 1000);

export const bytes = (x: Known) => (absent(x) ? unknown : scaled(x, sizes, "TiB"));

export const count = (x: Known) => (absent(x) ? unknown : x.toLocaleString("en-US"));

export const rate = (x: Known) => (absent(x) ? unknown : `${digits(x)}/s`);

// hundredths writes a number of about 1, such as a coefficient of variation.
export const hundredths = (x: Known) => (absent(x) ? unknown : x.toFixed(2));

// stateWord is a state of an investigation as people read it.
export function stateLabel(state: string): string {
  if (state === "none") return "queued";
  return state === "exhausted" ? "inconclusive" : state;
}

// ratio writes a factor.
export const ratio = (x: Known) => (absent(x) ? unknown : `${digits(Number(x.toPrecision(2)))}×`);

export type Interval = { value: number | null; low: number | null; high: number | null };

// range writes the interval of a value, such as "0.43 to 0.61"; "" for one that is not known.
export const range = (i: Interval, f: (x: Known) => string) =>
  absent(i.low) || absent(i.high) ? "" : `${f(i.low)} to ${f(i.high)}`;

export type Zone = "utc" | "local";

// time writes a time of day, with the date if it is not that of now.
export function time(at: string | number | null | undefined, zone: Zone, now: number): string {
  if (at === null || at === undefined) return unknown;
  const date = new Date(at);
  if (absent(date.getTime())) return unknown;
  const { clock, day } = clocks[zone];
  const on = day.format(date);
  return `${on === day.format(now) ? "" : `${on} `}${clock.format(date)}${zone === "utc" ? " UTC" : ""}`;
}

// timesIn writes the times in a text of the API, those of RFC 3339, as time does.
export const formatTimesIn = (text: string, zone: Zone, now: number) =>
  text.replace(/\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ/g, (at) => time(at, zone, now));

const clockOf = (timeZone: string | undefined) => ({
  clock: new Intl.DateTimeFormat("en-GB", { timeZone, timeStyle: "medium" }),
  day: new Intl.DateTimeFormat("en-CA", { timeZone, dateStyle: "short" }),
});

// clocks are made once: to make one takes longer than to draw what it is for, and a heat map has thousands of times.
const clocks: Record<Zone, ReturnType<typeof clockOf>> = { utc: clockOf("UTC"), local: clockOf(undefined) };

// ago writes how long ago something was, or until it is.
export function ago(at: string | number | null | undefined, now: number): string {
  if (at === null || at === undefined) return unknown;
  const ms = now - new Date(at).getTime();
  const text = coarseDuration(Math.abs(ms));
  if (text === "0 s" || (ms < 0 && ms > -15_000)) return "now"; // clocks differ a little
  return ms < 0 ? `in ${text}` : `${text} ago`;
}

// brief writes milliseconds in one unit, coarsely.
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

// shortened is a name of at most so size signs: what tells long ones apart stands at both of their ends.
export function abbreviate(name: string, most: number): string {
  const signs = [...name];
  if (signs.length <= most) return name;
  const end = Math.floor((most - 1) / 2);
  return `${signs.slice(0, most - 1 - end).join("")}…${signs.slice(signs.length - end).join("")}`;
}
