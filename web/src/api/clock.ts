// The service's clock. All times in the UI refer to it, since the browser's clock may be wrong.

const tolerated = 30_000; // ms; smaller differences are ignored

let ahead = 0; // ms that the service's clock is ahead

// corrected receives an event when the offset changes.
export const corrected = new EventTarget();

// serverNow returns the service's time in ms.
export const serverNow = () => Date.now() + ahead;

// syncClock sets the clock from the Date header of a response that has just arrived.
export function syncClock(date: string | null) {
  const off = Date.parse(date ?? "") - Date.now();
  const now = Math.abs(off) > tolerated ? off : 0;
  if (Number.isNaN(off) || Math.abs(now - ahead) <= tolerated) return;
  ahead = now;
  corrected.dispatchEvent(new Event("corrected"));
}
