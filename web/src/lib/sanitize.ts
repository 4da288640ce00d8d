// Text from traces, which anybody may have sent: what does not show, or turns round how the text beside it reads, is written out, so that a
// name looks like no other.

// hidden is control characters, those that change the direction of text, and those without a width. Tabs, ends of lines, joiners and variants
// of signs stay: attributes, scripts and emoji are written with them.
const hidden = /(?![\t\n\r\u200c\u200d\ufe00-\ufe0f])[\p{Cc}\p{Bidi_C}\p{DI}\u2028\u2029]/gu;

// legible writes a text so that all of it shows, such as "\u{202e}" for what would have the rest read backwards.
export const sanitize = (text: string) => text.replace(hidden, (sign) => `\\u{${sign.codePointAt(0)!.toString(16)}}`);

// legibly makes all texts in what was read from JSON legible, in place, and returns it. Names of fields are not looked at.
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
