const form = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?Z$/;
const first = Date.UTC(1970);
const last = Date.UTC(2254); // later times overflow 64-bit nanoseconds

// isRFC3339 reports whether a text is a valid time of the API: RFC 3339 in UTC, from 1970 to 2253.
export function isRFC3339(text: string): boolean {
  const at = Date.parse(form.exec(text)?.[1] + "Z"); // browsers parse February 30 as a day of March
  return at >= first && at < last && new Date(at).toISOString().startsWith(text.slice(0, 19));
}
