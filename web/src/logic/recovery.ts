import type { Schemas } from "../api/client.ts";

const minRecovery = 0.05; // of the mean or of the p99

// matters reports whether a recovery is large enough to be shown.
export const matters = ({ mean_fraction: mean, p99_fraction: p99 }: Schemas["Recovery"]): boolean =>
  (mean ?? 0) >= minRecovery || (p99 ?? 0) >= minRecovery;
