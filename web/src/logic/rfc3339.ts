const form = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?Z$/;
const first = Date.UTC(1970);
const last = Date.UTC(2254); // nanoseconds since 1970 have no room for later times

// isMoment reports whether a text is a time as the API has it: one that was or will be, within the times that it knows.
export function isRFC3339(text: string): boolean {
  const at = Date.parse(form.exec(text)?.[1] + "Z"); // browsers take the 30th of February for a day of March
  return at >= first && at < last && new Date(at).toISOString().startsWith(text.slice(0, 19));
}
