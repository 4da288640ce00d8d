// The service's clock. The browser's may be wrong, and all times in the UI are times of the service.

const tolerated = 30_000; // ms by which clocks differ that are right

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
