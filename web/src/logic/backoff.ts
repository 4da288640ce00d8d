// Backoff of reconnections.

const lasting = 20_000; // ms after which a connection that ends is no failure
const soon = 3; // failures at most that count where connections are made and cut again: what happens is then shown seconds later, not half a minute
const longest = 5000; // ms: somebody waits for a service that comes back

// failed returns how many failures in a row count after one more: of a connection that took so many ms, and was made, or was not.
export function countFailures(before: number, ms: number, made: boolean): number {
  if (ms > lasting) return 1;
  return made ? Math.min(before + 1, soon) : before + 1;
}

// pause returns how many ms to wait before the next connection.
export const delay = (failures: number) => Math.min(longest, 250 * 2 ** failures);
