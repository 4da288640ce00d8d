// Reading from the API in components: what was read last is shown at once, and read again when an epoch ends.
import { useCallback, useEffect, useRef, useState, useSyncExternalStore } from "react";
import { type Answer, ApiError, unwrap, unauthorized } from "./client.ts";
import { currentConnection, onConnection, onEvent } from "./events.ts";

// Reading is what is known of a resource. With a value and a failure, the value is stale.
export type Reading<T> = { value?: T; failure?: ApiError; again: () => void };

const kept = new Map<string, { value: unknown; items: number }>(); // latest last
const mostKept = 40;
const mostItems = 50_000; // of lists in what is kept: traces and trees are large

// Whoever is not let in any more leaves nothing behind for the next one.
unauthorized.addEventListener("unauthorized", () => kept.clear());

function keep(key: string, value: unknown) {
  kept.delete(key);
  kept.set(key, { value, items: itemsOf(value) });
  let items = 0;
  for (const one of kept.values()) items += one.items;
  for (const [oldest, one] of kept) {
    if (oldest === key || (kept.size <= mostKept && items <= mostItems)) return;
    kept.delete(oldest);
    items -= one.items;
  }
}

const itemsOf = (value: unknown) =>
  Object.values(value ?? {}).reduce<number>((sum, field) => sum + (Array.isArray(field) ? field.length : 0), 0);

// useRead reads a resource that key names; null: nothing. When live it is read again after each epoch, or decision, and when events were missed:
// when that is what is being read has come, however long that takes.
export function useRead<T>(
  key: string | null,
  ask: (signal: AbortSignal) => Answer<T>,
  live: boolean | "decision" = false,
): Reading<T> {
  const [, changed] = useState(0);
  const [failure, setFailure] = useState<{ key: string; failure: ApiError }>();
  const asking = useRef(ask);
  asking.current = ask;
  const work = useRef<AbortController>(undefined); // what is being read
  const due = useRef(false); // it is to be read again then
  const again = useCallback(() => {
    if (key === null) return;
    work.current?.abort();
    due.current = false;
    const mine = (work.current = new AbortController());
    const over = () => {
      work.current = undefined;
      if (due.current) again();
    };
    unwrap(asking.current(mine.signal)).then(
      (value) => {
        if (mine.signal.aborted) return;
        keep(key, value);
        setFailure(undefined);
        changed((n) => n + 1);
        over();
      },
      (error: unknown) => {
        if (mine.signal.aborted) return;
        if (error instanceof ApiError) setFailure({ key, failure: error });
        over();
      },
    );
  }, [key]);
  const later = useCallback(() => {
    if (work.current) due.current = true;
    else again();
  }, [again]);
  useEffect(() => {
    again();
    return () => {
      work.current?.abort();
      work.current = undefined;
    };
  }, [again]);
  useEffect(() => {
    if (!live || key === null) return;
    const on = live === true ? "epoch" : live;
    return onEvent((event) => (event === null || event.type === on) && later());
  }, [live, key, later]);
  useRetry(failure?.failure, later);
  const value = key === null ? undefined : (kept.get(key)?.value as T | undefined);
  return {
    ...(value === undefined ? {} : { value }),
    ...(failure && failure.key === key ? { failure: failure.failure } : {}),
    again,
  };
}

const untilRetry = 3000; // ms

// useRetry tries again after each failure that may pass.
export function useRetry(failure: ApiError | undefined, again: () => void) {
  useEffect(() => {
    if (!failure?.transient) return;
    const timer = setTimeout(again, untilRetry);
    return () => clearTimeout(timer);
  }, [failure, again]);
}

// useConnection returns whether events come.
export const useConnection = () => useSyncExternalStore(onConnection, currentConnection);
