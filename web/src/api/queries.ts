// Reading from the API in components, with TanStack Query: cache, refreshing and failures.
import { QueryClient, useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";
import { type Page, mergePages } from "../logic/pages.ts";
import { type Answer, ApiError, client, unauthorized, unwrap } from "./client.ts";
import { type ServerEvent, currentConnection, onConnection, onEvent } from "./events.ts";

// Resource is a value read from the API. With both a value and a failure, the value is stale.
export type Resource<T> = { value?: T; failure?: ApiError; reload: () => void };

const retryDelay = 3000; // ms

export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      gcTime: Infinity, // see evict
      networkMode: "always", // the service may run on this machine
      refetchInterval: ({ state }) => isTransient(state.error) && retryDelay,
      refetchIntervalInBackground: true,
      refetchOnReconnect: false, // events trigger refetches, also in the background
      refetchOnWindowFocus: false,
      retry: false, // failures show at once; refetchInterval retries
      structuralSharing: false, // comparing a tree of 20 000 nodes takes longer than a frame
    },
  },
});

const isTransient = (error: unknown) => error instanceof ApiError && error.transient;

// Log-out clears the cache.
unauthorized.addEventListener("unauthorized", () => queryClient.clear());

const maxCached = 40; // unused values
const maxCachedItems = 50_000; // in lists of unused values: traces and trees are large

// itemCount returns the number of items in the lists of a value, or of its pages.
function itemCount(value: unknown): number {
  if (typeof value !== "object" || value === null) return 0;
  if ("pages" in value && Array.isArray(value.pages))
    return value.pages.reduce<number>((sum, page) => sum + itemCount(page), 0);
  return Object.values(value).reduce<number>((sum, field) => sum + (Array.isArray(field) ? field.length : 0), 0);
}

// evict removes the oldest unused values until the cache is within its bounds. The newest one always stays.
function evict() {
  const cache = queryClient.getQueryCache();
  const unused = cache.getAll().filter((query) => query.getObserversCount() === 0);
  unused.sort((a, b) => b.state.dataUpdatedAt - a.state.dataUpdatedAt);
  let items = 0;
  unused.forEach((query, i) => {
    items += itemCount(query.state.data);
    if (i > 0 && (i >= maxCached || items > maxCachedItems)) cache.remove(query);
  });
}

queryClient.getQueryCache().subscribe((event) => event.type === "observerRemoved" && evict());

const waiting = new Set<string>(); // hashes of the queries to refresh after the fetch in flight

// refresh refetches a query that components use. It does not cancel a fetch in flight, since a slow service would then
// never complete one, but refetches after it.
async function refresh(queryKey: readonly unknown[]) {
  const query = queryClient.getQueryCache().find({ queryKey });
  if (!query || waiting.has(query.queryHash)) return;
  if (query.state.fetchStatus === "fetching") {
    waiting.add(query.queryHash);
    await query.promise?.catch(() => undefined);
    waiting.delete(query.queryHash);
  }
  await queryClient.refetchQueries({ queryKey, exact: true, type: "active" }, { cancelRefetch: false });
}

// Live selects the events after which a resource is refetched: epochs, decisions, or epochs and incidents.
type Live = boolean | "decision" | "incident";

const eventTypes: Record<"epoch" | "decision" | "incident", readonly ServerEvent["type"][]> = {
  epoch: ["epoch"],
  decision: ["decision"],
  incident: ["epoch", "incident.opened", "incident.changed", "incident.located", "incident.closed"],
};

const noEvents: readonly ServerEvent["type"][] = [];

// eventsOf returns the types of events of a choice; none without a resource.
function eventsOf(key: string | null, live: Live): readonly ServerEvent["type"][] {
  if (key === null || live === false) return noEvents;
  return eventTypes[live === true ? "epoch" : live];
}

// useRefresh calls reload after each event of the types, and when events were missed. types must be constant.
function useRefresh(types: readonly ServerEvent["type"][], reload: () => void) {
  useEffect(() => {
    if (types.length === 0) return;
    return onEvent((event) => (event === null || types.includes(event.type)) && reload());
  }, [types, reload]);
}

// useLastFailure returns the failure of a query, also while a query without a value is refetched: TanStack Query then
// resets the error.
function useLastFailure(key: string | null, value: unknown, error: unknown): ApiError | undefined {
  const [last, setLast] = useState<{ key: string | null; failure: ApiError }>();
  const failure = error instanceof ApiError ? error : undefined;
  if (failure && (last?.failure !== failure || last.key !== key)) setLast({ key, failure });
  if (failure) return failure;
  return value === undefined && last?.key === key ? last.failure : undefined;
}

// useResource reads the resource that key names; null: none. It returns a cached value at once and refetches it. If
// live, it refetches after each of the selected events, and when events were missed.
export function useResource<T>(
  key: string | null,
  request: (signal: AbortSignal) => Answer<T>,
  live: Live = false,
): Resource<T> {
  const { data, error, refetch } = useQuery({
    queryKey: [key],
    queryFn: ({ signal }) => unwrap(request(signal)),
    enabled: key !== null,
  });
  useRefresh(
    eventsOf(key, live),
    useCallback(() => void refresh([key]), [key]),
  );
  const failure = useLastFailure(key, data, error);
  const reload = useCallback(() => void refetch(), [refetch]);
  return { ...(data !== undefined && { value: data }), ...(failure && { failure }), reload };
}

const listedIncidents = 100;

// useIncidents reads the incidents, muted ones too.
export const useIncidents = () =>
  useResource(
    "incidents",
    (signal) => client.GET("/incidents", { params: { query: { limit: listedIncidents, muted: "all" } }, signal }),
    "incident",
  );

// useIncident reads an incident with its evidence; null: none.
export const useIncident = (id: string | null) =>
  useResource(
    id && `incident ${id}`,
    (signal) => client.GET("/incidents/{incident}", { params: { path: { incident: id! } }, signal }),
    "incident",
  );

type List<T> = { items: T[]; next_cursor: string | null };

// PagedList is the part of a list that has been read: its first page, and the items of all pages.
export type PagedList<T, L> = { first: L; items: T[]; more: boolean };

let round = 1; // pages of earlier rounds are out of date

// usePages reads a list in pages of the given size. After each epoch it refetches the first page and those in view,
// others when they come into view. setView takes the first and the last item in view.
export function usePages<T extends { id: string }, L extends List<T>>(
  key: string,
  size: number,
  request: (cursor: string | undefined, signal: AbortSignal) => Answer<L>,
): Resource<PagedList<T, L>> & { setView: (first: number, last: number) => void } {
  const view = useRef<[first: number, last: number]>([0, 0]); // pages
  const queryKey = useMemo(() => [key, "pages"], [key]);
  const { data, error, hasNextPage, fetchNextPage, refetch, isFetching } = useInfiniteQuery({
    queryKey,
    queryFn: async ({ pageParam: { at, cursor }, signal }): Promise<Page<T, L>> => {
      const before = pagesOf<T, L>(queryKey)[at];
      if (before && !isDue(before, at, cursor, view.current)) return before;
      const startedIn = round;
      const list = await unwrap(request(cursor, signal));
      return { list, items: list.items, cursor, round: startedIn };
    },
    initialPageParam: { at: 0, cursor: undefined as string | undefined },
    getNextPageParam: ({ list }, pages) =>
      list.next_cursor === null ? undefined : { at: pages.length, cursor: list.next_cursor },
    staleTime: Infinity, // see isDue
  });
  const read = useCallback(() => {
    const pages = pagesOf<T, L>(queryKey);
    const [first, last] = view.current;
    const due = pages.some(
      (page, at) => at >= first && at <= last && isDue(page, at, nextCursor(pages, at), [first, last]),
    );
    if (due) void refresh(queryKey);
    else if (last + 1 >= pages.length && pages.length > 0) void fetchNextPage({ cancelRefetch: false });
  }, [queryKey, fetchNextPage]);
  const reload = useCallback(() => {
    round++;
    void refetch();
  }, [refetch]);
  useEffect(() => {
    view.current = [0, 0];
    if (pagesOf(queryKey).length === 0) return; // the first fetch is in flight
    round++;
    void refresh(queryKey);
  }, [queryKey]);
  useRefresh(
    eventTypes.epoch,
    useCallback(() => {
      round++;
      void refresh(queryKey);
    }, [queryKey]),
  );
  useEffect(() => {
    if (!isFetching && !error && hasNextPage) read(); // prefetch the page after the view
  }, [isFetching, error, hasNextPage, read]);
  const setView = useCallback(
    (first: number, last: number) => {
      view.current = [Math.floor(first / size), Math.floor(last / size)];
      read();
    },
    [read, size],
  );
  const value = useMemo(() => {
    const first = data?.pages[0]?.list;
    return first && { first, items: mergePages(data.pages), more: data.pages.at(-1)!.list.next_cursor !== null };
  }, [data]);
  const failure = useLastFailure(key, value, error);
  return { ...(value && { value }), ...(failure && { failure }), reload, setView };
}

const pagesOf = <T, L>(queryKey: readonly unknown[]) =>
  queryClient.getQueryData<{ pages: Page<T, L>[] }>(queryKey)?.pages ?? [];

const nextCursor = <L extends List<unknown>>(pages: Page<unknown, L>[], at: number) =>
  pages[at - 1]?.list.next_cursor ?? undefined;

// isDue reports whether a page must be refetched: the first one and those in view, if they are of an earlier round or
// now begin at another cursor.
function isDue(page: Page<unknown, unknown>, at: number, cursor: string | undefined, [first, last]: [number, number]) {
  if (at > 0 && (at < first || at > last)) return false;
  return page.round < round || page.cursor !== cursor;
}

// useConnection returns the state of the event stream.
export const useConnection = () => useSyncExternalStore(onConnection, currentConnection);
