import { expect, test } from "vitest";
import { sanitize, sanitizeDeep } from "./sanitize.ts";

test("sanitize escapes invisible characters", () => {
  expect(sanitize("GET /\u202etxt.exe\u2066")).toBe("GET /\\u{202e}txt.exe\\u{2066}");
  expect(sanitize("pay\u200bment\u0000\u001b[31m\u0085\ufeff")).toBe(
    "pay\\u{200b}ment\\u{0}\\u{1b}[31m\\u{85}\\u{feff}",
  );
  expect(sanitize("\u3164\u{e0041}\u2028")).toBe("\\u{3164}\\u{e0041}\\u{2028}");
});

test("sanitize keeps characters that scripts, emoji and SQL need", () => {
  for (const text of ["", "SELECT 1\n\tFROM a\r\n", "👩‍👩‍👧‍👦 ❤️ 🇩🇪", "می‌خواهم", "שלום", "Z̵̡"])
    expect(sanitize(text)).toBe(text);
});

test("sanitizeDeep sanitizes all strings of an answer", () => {
  expect(sanitizeDeep({ a: ["\u202e", 1, null, { b: "\u200b", c: true }], d: "x" })).toEqual({
    a: ["\\u{202e}", 1, null, { b: "\\u{200b}", c: true }],
    d: "x",
  });
});
