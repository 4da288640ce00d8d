// Deploys of the services that the requests of a group pass, by window.
import type { Schemas } from "../api/client.ts";

type Deploy = Schemas["Deploy"];
type Span = { from: string; to: string };

export const describeDeploy = (d: Deploy) => `${d.service} ${d.version} (${d.before} before)`;

// deploysSince returns the deploys of the given services since the start of the first window, oldest first.
export function deploysSince(windows: Span[], deploys: Deploy[], services: Set<string>): Deploy[] {
  const from = windows[0] ? Date.parse(windows[0].from) : Infinity;
  return deploys
    .filter((d) => services.has(d.service) && Date.parse(d.at) >= from)
    .sort((a, b) => Date.parse(a.at) - Date.parse(b.at));
}

// deploysByWindow returns the deploys, ascending, of each window. A deploy between two windows belongs to the later
// one, a deploy after the last window to that one.
export function deploysByWindow(windows: Span[], deploys: Deploy[]): Deploy[][] {
  const rows: Deploy[][] = windows.map(() => []);
  for (const d of deploys) {
    const at = windows.findIndex((w) => Date.parse(d.at) < Date.parse(w.to));
    rows.at(at)?.push(d);
  }
  return rows;
}
