// Reading lists that have many pages: those in sight, and the first, are read again when an epoch ends; others when they come into sight.
import { useCallback, useEffect, useRef, useState } from "react";
import { type Answer, ApiError, unwrap, unauthorized } from "./client.ts";
import { onEvent } from "./events.ts";
import { type Reading, useRetry } from "./read.ts";
import { type Page, due, flat, put } from "../lib/pages.ts";

type List<T> = { items: T[]; next_cursor: string | null };
type Ask<L> = (cursor: string | undefined, signal: AbortSignal) => Answer<L>;

// Paged is a list as far as it was read: its first page, and the items of all.
export type Paged<T, L> = { first: L; items: T[]; more: boolean };

const kept = new Map<string, Page<unknown, unknown>[]>(); // latest last: what was read is there at once when somebody comes back
const mostKept = 3;

unauthorized.addEventListener("unauthorized", () => kept.clear());

// usePages reads the list that key names. see says which items are in sight, so that pages there are read; pages hold size items.
export function usePages<T extends { id: string }, L extends List<T>>(
  key: string,
  size: number,
  ask: Ask<L>,
): Reading<Paged<T, L>> & { see: (first: number, last: number) => void } {
  const [, changed] = useState(0);
  const [failure, setFailure] = useState<{ key: string; failure: ApiError }>();
  const asking = useRef(ask);
  asking.current = ask;
  const round = useRef(1); // how often everything became old
  const sight = useRef<[number, number]>([0, 0]); // pages
  const work = useRef<{ key: string; abort: AbortController }>(undefined);
  const read = useCallback(async () => {
    if (work.current?.key === key && !work.current.abort.signal.aborted) return; // it sees what else is due
    const mine = { key, abort: new AbortController() };
    work.current = mine;
    try {
      for (;;) {
        const pages = (kept.get(key) ?? []) as Page<T, L>[];
        const at = due(pages, round.current, ...sight.current);
        if (at < 0) return;
        const as = round.current;
        const list = await unwrap(asking.current(at === 0 ? undefined : pages[at - 1]!.next!, mine.abort.signal));
        if (mine.abort.signal.aborted) return;
        kept.delete(key);
        kept.set(key, put(pages, at, { items: list.items, next: list.next_cursor, round: as, list }));
        for (const oldest of kept.keys()) if (kept.size > mostKept) kept.delete(oldest);
        setFailure(undefined);
        changed((n) => n + 1);
      }
    } catch (error) {
      if (!mine.abort.signal.aborted && error instanceof ApiError) setFailure({ key, failure: error });
    } finally {
      if (work.current === mine) work.current = undefined;
    }
  }, [key]);
  const again = useCallback(() => {
    round.current++;
    void read();
  }, [read]);
  useEffect(() => {
    sight.current = [0, 0];
    again();
    return () => work.current?.abort.abort();
  }, [again]);
  useEffect(() => onEvent((event) => (event === null || event.type === "epoch") && again()), [again]);
  useRetry(failure?.failure, again);
  const see = useCallback(
    (first: number, last: number) => {
      sight.current = [Math.floor(first / size), Math.floor(last / size)];
      void read();
    },
    [read, size],
  );
  const pages = kept.get(key) as Page<T, L>[] | undefined;
  return {
    ...(pages?.[0] && { value: { first: pages[0].list, items: flat(pages), more: pages.at(-1)!.next !== null } }),
    ...(failure && failure.key === key && { failure: failure.failure }),
    again,
    see,
  };
}
