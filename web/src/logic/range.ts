// The time range of the views: the last minutes, hours or days, or a fixed time.

export type Range = {
  from: number; // ms
  to: number;
  live: boolean; // it ends now
  text: string; // its form in the URL
};

const minute = 60_000;
const hour = 60 * minute;

// presets are ranges that end now, by their form in the URL. The first is the default.
export const presets = [
  ["1h", "Last hour", hour],
  ["15m", "Last 15 minutes", 15 * minute],
  ["6h", "Last 6 hours", 6 * hour],
  ["1d", "Last day", 24 * hour],
  ["7d", "Last 7 days", 7 * 24 * hour],
  ["30d", "Last 30 days", 30 * 24 * hour],
] as const;

// rangeWords returns a range that ends now within a sentence: "in the last hour"; "" for a fixed time.
export function rangeWords({ live, text }: Range): string {
  const name = presets.find(([form]) => form === text)?.[1];
  return live && name ? `in the ${name.toLowerCase()}` : "";
}

const separator = "..";

// parseRange returns the range with a form in the URL; the default for an invalid one. Ranges that end now begin at a
// whole minute, so that their requests to the API can be cached.
export function parseRange(text: string, now: number): Range {
  const [first, last] = text.split(separator);
  const [from, to] = [Date.parse(first ?? ""), Date.parse(last ?? "")];
  if (last !== undefined && Number.isFinite(from) && Number.isFinite(to) && from < to)
    return { from, to, live: false, text };
  const preset = presets.find(([name]) => name === text) ?? presets[0];
  return { from: Math.floor((now - preset[2]) / minute) * minute, to: now, live: true, text: preset[0] };
}

// formatRange returns the form of a fixed time in the URL.
export const formatRange = (from: number, to: number) =>
  `${new Date(from).toISOString().slice(0, 19)}Z${separator}${new Date(to).toISOString().slice(0, 19)}Z`;

// parametersOf returns the parameters of the API for a range.
export const rangeParameters = (r: Range) => ({
  from: new Date(r.from).toISOString(),
  ...(r.live ? {} : { to: new Date(r.to).toISOString() }),
});

// fieldTime formats a time for a field of dates and times; readField is its inverse, NaN for an incomplete one.
export function fieldTime(ms: number, utc: boolean): string {
  const shifted = new Date(utc ? ms : ms - new Date(ms).getTimezoneOffset() * minute);
  return shifted.toISOString().slice(0, 16);
}

export const readField = (text: string, utc: boolean) => Date.parse(utc ? `${text}Z` : text);
