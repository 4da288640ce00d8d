// Words for silences.
import type { Schemas } from "../api/client.ts";

// conditions returns the conditions of a silence as text.
export const conditions = ({ service, request_type: type, tags }: Schemas["SilenceMatch"]) =>
  [service, type && `requests ${type}`, ...(tags ?? [])].filter(Boolean).join(", ");

// matches reports whether any condition is given.
export const matches = (match: Schemas["SilenceMatch"]) => conditions(match) !== "";

// weeklyText describes the weekly window of a silence.
export function weeklyText({ days, start, length_ns: length, zone }: Schemas["Weekly"]): string {
  const named = days.map((day) => day[0]!.toUpperCase() + day.slice(1, 3));
  return `only ${named.join(", ")} from ${start} for ${+(length / 3.6e12).toFixed(2)} h (${zone || "UTC"})`;
}
