// Exponential backoff of reconnections.

const stableAfter = 20_000; // ms; a connection that lasted longer resets the backoff
const maxFailuresIfOpened = 3; // a proxy that cuts connections must delay events by seconds only
const maxDelay = 5000; // ms

// countFailures returns the number of failures in a row after another connection has ended. ms is its age; opened
// reports whether it was established.
export function countFailures(before: number, ms: number, opened: boolean): number {
  if (ms > stableAfter) return 1;
  return opened ? Math.min(before + 1, maxFailuresIfOpened) : before + 1;
}

// delay returns the time in ms before the next connection.
export const delay = (failures: number) => Math.min(maxDelay, 250 * 2 ** failures);
