// Text from traces is untrusted. Invisible characters and those that change the text direction are escaped, so that a
// name cannot imitate another.

// hidden matches control characters, those that change the text direction, and those without width. It does not match
// tabs, line ends, joiners and variation selectors, which attributes, scripts and emoji need.
const hidden = /(?![\t\n\r]|\u200c|\u200d|[\ufe00-\ufe0f])[\p{Cc}\p{Bidi_C}\p{DI}\u2028\u2029]/gu;

// sanitize escapes hidden characters, such as the right-to-left override as "\u{202e}".
export const sanitize = (text: string) => text.replace(hidden, (char) => `\\u{${char.codePointAt(0)!.toString(16)}}`);

// sanitizeDeep sanitizes all strings of a JSON value in place, except field names, and returns it.
export function sanitizeDeep<T>(value: T): T {
  if (typeof value === "string") return sanitize(value) as T;
  if (value === null || typeof value !== "object") return value;
  const fields = value as Record<string, unknown>;
  for (const name in fields) {
    const field = fields[name];
    if (typeof field === "string" || (typeof field === "object" && field !== null)) fields[name] = sanitizeDeep(field);
  }
  return value;
}
