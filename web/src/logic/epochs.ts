import type { Schemas } from "../api/client.ts";

const patience = 30_000; // ms; loaded machines end epochs late

// stalledFor returns the ms since the last epoch ended if no other one has ended for far too long, else 0. now is the
// service's time in ms, connected the ms for which the page has received events: an epoch that ended before may be that
// of an earlier run.
export function stalledFor(epoch: Schemas["Epochs"], now: number, connected: number): number {
  if (epoch.ended === null) return 0;
  const since = now - Date.parse(epoch.ended);
  return Math.min(since, connected) > Math.max(patience, (3 * epoch.length_ns) / 1e6) ? since : 0;
}
