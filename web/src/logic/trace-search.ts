// Searches for traces: the query in the URL and its meaning.

// typeOf names the request type of a kept trace or, once it is forgotten, the request.
export const typeOf = (t: { request_type_name: string; service: string; operation: string }) =>
  t.request_type_name || `${t.service} ${t.operation}`;

// durationPattern matches durations as people write them: "250ms", "1.5 s", "2m".
const durationPattern = /^\s*(\d+(?:\.\d+)?)\s*(ns|us|µs|ms|s|m|min)\s*$/i;

const nanos: Record<string, number> = { ns: 1, us: 1e3, µs: 1e3, ms: 1e6, s: 1e9, m: 60e9, min: 60e9 };

// parseDuration returns nanoseconds; undefined: not a duration. Without a unit they are milliseconds.
export function parseDuration(text: string): number | undefined {
  if (/^\s*\d+(?:\.\d+)?\s*$/.test(text)) return Math.round(Number(text) * 1e6);
  const match = durationPattern.exec(text);
  if (!match) return undefined;
  const ns = Math.round(Number(match[1]) * nanos[match[2]!.toLowerCase()]!);
  return Number.isSafeInteger(ns) ? ns : undefined;
}

export type Fields = {
  trace: string;
  service: string;
  operation: string;
  longer: string;
  shorter: string;
  error: string;
  attributes: string; // by commas
};

// isTraceID reports whether a text is a whole trace ID.
export const isTraceID = (text: string) => /^[0-9a-f]{32}$/i.test(text.trim());

// attributesOf returns the conditions on attributes, "key=value" or "key". A comma separates them unless a backslash
// precedes it.
export const attributesOf = (text: string): string[] =>
  text
    .split(/(?<!\\),/)
    .map((part) => part.replaceAll("\\,", ",").trim())
    .filter((part) => part !== "" && !part.startsWith("="));

const mostAttributes = 8; // of the API

// problemsOf returns what is wrong with a query, as sentences.
export function problemsOf(f: Fields): string[] {
  const problems: string[] = [];
  for (const [name, text] of [
    ["Longer than", f.longer],
    ["Shorter than", f.shorter],
  ] as const)
    if (text.trim() !== "" && parseDuration(text) === undefined)
      problems.push(`${name}: enter a duration such as 250ms or 1.5s.`);
  if (f.trace.trim() !== "" && !/^[0-9a-f]{1,32}$/i.test(f.trace.trim()))
    problems.push("Trace ID: enter up to 32 hex digits.");
  if (attributesOf(f.attributes).length > mostAttributes) problems.push(`Attributes: at most ${mostAttributes}.`);
  return problems;
}

// parametersOf returns the parameters of the API for a query without problems.
export function parametersOf(f: Fields) {
  const longer = parseDuration(f.longer);
  const shorter = parseDuration(f.shorter);
  const attribute = attributesOf(f.attributes);
  return {
    ...(f.trace.trim() && { trace: f.trace.trim() }),
    ...(f.service.trim() && { service: f.service.trim() }),
    ...(f.operation.trim() && { operation: f.operation.trim() }),
    ...(longer !== undefined && { longer_ns: longer }),
    ...(shorter !== undefined && shorter > 0 && { shorter_ns: shorter }),
    ...(f.error === "yes" && { error: true }),
    ...(f.error === "no" && { error: false }),
    ...(attribute.length > 0 && { attribute }),
  };
}
