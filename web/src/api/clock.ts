// The present, as the service has it: the clock of a browser may be wrong, and what is shown and asked for are times of the service.

const tolerated = 30_000; // ms by which clocks differ that are right

let ahead = 0; // ms that the service's clock is ahead

// corrected is told when the present is found to be another.
export const corrected = new EventTarget();

// present returns the time in ms.
export const serverNow = () => Date.now() + ahead;

// told takes the time from the Date header of an answer that has just come.
export function syncClock(date: string | null) {
  const off = Date.parse(date ?? "") - Date.now();
  const now = Math.abs(off) > tolerated ? off : 0;
  if (Number.isNaN(off) || Math.abs(now - ahead) <= tolerated) return;
  ahead = now;
  corrected.dispatchEvent(new Event("corrected"));
}
