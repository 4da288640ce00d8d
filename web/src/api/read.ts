// Reading from the API in components: what was read last is shown at once, and read again when an epoch ends.
import { useCallback, useEffect, useRef, useState, useSyncExternalStore } from "react";
import { type Answer, Failure, answered } from "./client.ts";
import { currentConnection, onConnection, onEvent } from "./events.ts";

// Reading is what is known of a resource. With a value and a failure, the value is stale.
export type Reading<T> = { value?: T; failure?: Failure; again: () => void };

const kept = new Map<string, unknown>(); // latest last
const mostKept = 40;

function keep(key: string, value: unknown) {
  kept.delete(key);
  kept.set(key, value);
  for (const oldest of kept.keys()) {
    if (kept.size <= mostKept) return;
    kept.delete(oldest);
  }
}

// useRead reads a resource that key names; null: nothing. When live it is read again after each epoch, and when events were missed.
export function useRead<T>(
  key: string | null,
  ask: (signal: AbortSignal) => Answer<T>,
  live = false,
): Reading<T> {
  const [, changed] = useState(0);
  const [failure, setFailure] = useState<{ key: string; failure: Failure }>();
  const asking = useRef(ask);
  asking.current = ask;
  const abort = useRef<AbortController>(undefined);
  const again = useCallback(() => {
    if (key === null) return;
    abort.current?.abort();
    const mine = (abort.current = new AbortController());
    answered(asking.current(mine.signal)).then(
      (value) => {
        if (mine.signal.aborted) return;
        keep(key, value);
        setFailure(undefined);
        changed((n) => n + 1);
      },
      (error: unknown) => {
        if (!mine.signal.aborted && error instanceof Failure) setFailure({ key, failure: error });
      },
    );
  }, [key]);
  useEffect(() => {
    again();
    return () => abort.current?.abort();
  }, [again]);
  useEffect(() => {
    if (!live || key === null) return;
    return onEvent((event) => (event === null || event.type === "epoch") && again());
  }, [live, key, again]);
  useRetry(failure?.failure, again);
  const value = key === null ? undefined : (kept.get(key) as T | undefined);
  return {
    ...(value === undefined ? {} : { value }),
    ...(failure && failure.key === key ? { failure: failure.failure } : {}),
    again,
  };
}

const untilRetry = 3000; // ms

// useRetry tries again after each failure that may pass.
export function useRetry(failure: Failure | undefined, again: () => void) {
  useEffect(() => {
    if (!failure?.passes) return;
    const timer = setTimeout(again, untilRetry);
    return () => clearTimeout(timer);
  }, [failure, again]);
}

// useConnection returns whether events come.
export const useConnection = () => useSyncExternalStore(onConnection, currentConnection);
