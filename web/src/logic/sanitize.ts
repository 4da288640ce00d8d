// Text from traces is untrusted. Invisible characters and those that change the text direction are escaped, so that a
// name cannot imitate another.

// hidden is control characters, those that change the direction of text, and those without a width. Tabs, ends of lines, joiners and variants
// of signs stay: attributes, scripts and emoji are written with them.
const hidden = /(?![\t\n\r]|\u200c|\u200d|[\ufe00-\ufe0f])[\p{Cc}\p{Bidi_C}\p{DI}\u2028\u2029]/gu;

// sanitize escapes hidden characters, such as the right-to-left override as "\u{202e}".
export const sanitize = (text: string) => text.replace(hidden, (sign) => `\\u{${sign.codePointAt(0)!.toString(16)}}`);

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
