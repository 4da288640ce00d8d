// Deploys: which new versions of services matter to some windows of requests, and in which of these they came.
import type { Schemas } from "../api/client.ts";

type Deploy = Schemas["Deploy"];
type Span = { from: string; to: string };

// deployed says it in words.
export const describeDeploy = (d: Deploy) => `${d.service} ${d.version} (${d.before} before)`;

// within returns the deploys of the given services since the first of the windows, the oldest first.
export function deploysSince(windows: Span[], deploys: Deploy[], services: Set<string>): Deploy[] {
  const from = windows[0] ? Date.parse(windows[0].from) : Infinity;
  return deploys
    .filter((d) => services.has(d.service) && Date.parse(d.at) >= from)
    .sort((a, b) => Date.parse(a.at) - Date.parse(b.at));
}

// byWindow returns the deploys, which are ascending, that came in each window, or between it and the one before; those after the last one are its.
export function byWindow(windows: Span[], deploys: Deploy[]): Deploy[][] {
  const rows: Deploy[][] = windows.map(() => []);
  for (const d of deploys) {
    const at = windows.findIndex((w) => Date.parse(d.at) < Date.parse(w.to));
    rows.at(at)?.push(d);
  }
  return rows;
}
