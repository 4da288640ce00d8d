import { expect, test } from "vitest";
import { isRFC3339 } from "./rfc3339.ts";

test("isRFC3339 accepts times of the API only", () => {
  for (const text of ["2026-01-31T14:05:00Z", "2024-02-29T23:59:59.123456789Z", "1970-01-01T00:00:00Z"])
    expect(isRFC3339(text), text).toBe(true);
  for (const text of [
    "",
    "x",
    "2026-01-31",
    "2026-01-31T14:05:00",
    "2026-02-30T10:00:00Z",
    "2026-13-01T00:00:00Z",
    "2026-01-01T24:00:01Z",
    "9999-12-31T23:59:59Z",
    "0000-01-01T00:00:00Z",
  ]) {
    expect(isRFC3339(text), text).toBe(false);
  }
});
