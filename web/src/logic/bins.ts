import type { Schemas } from "../api/client.ts";

export type Bar = { low: number; high: number; count: number };

// mergeBins merges bins, ascending, into at most about forty bars of equal width on a logarithmic axis. It omits empty
// bars.
export function mergeBins(bins: Schemas["Bin"][]): Bar[] {
  const first = bins[0];
  const last = bins.at(-1);
  if (!first || !last) return [];
  const low = Math.log(Math.max(1, first.low_ns || first.high_ns));
  const high = Math.log(Math.max(2, last.high_ns));
  const step = Math.max((high - low) / 40, 0.02);
  const bars = new Map<number, Bar>();
  for (const bin of bins) {
    const i = Math.max(0, Math.floor((Math.log(Math.max(1, bin.high_ns)) - low) / step - 1e-6));
    const bar = bars.get(i) ?? { low: Math.exp(low + i * step), high: Math.exp(low + (i + 1) * step), count: 0 };
    bar.count += bin.count;
    bars.set(i, bar);
  }
  return [...bars.values()].sort((a, b) => a.low - b.low);
}
