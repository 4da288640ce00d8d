// The URL is the state: what is sorted, filtered and picked stands in the query.
import { useCallback } from "react";
import { useSearchParams } from "wouter";

// useQuery returns a parameter of the query, and what sets it. A value that is the default is left out of the URL.
export function useQuery(name: string, fallback = ""): [string, (value: string) => void] {
  const [params, setParams] = useSearchParams();
  const set = useCallback(
    (value: string) =>
      setParams(
        () => {
          const after = new URLSearchParams(location.search); // not what was rendered: several may be set at once
          if (value === fallback) after.delete(name);
          else after.set(name, value);
          return after;
        },
        { replace: true },
      ),
    [name, fallback, setParams],
  );
  return [params.get(name) ?? fallback, set];
}

// useOneOf is useQuery for one of a few values, of which the first is the default: whatever else a URL says is taken for it.
export function useOneOf<T extends string>(name: string, values: readonly T[]): [T, (value: string) => void] {
  const [value, set] = useQuery(name, values[0]);
  return [values.find((v) => v === value) ?? values[0]!, set];
}

// useID is useQuery for the ID of something; empty: none, or none that can be one.
export function useID(name: string): [string, (value: string) => void] {
  const [value, set] = useQuery(name);
  return [/^[0-9a-f]{32}$/.test(value) ? value : "", set];
}

// useCount is useQuery for a number from 1 to most.
export function useCount(name: string, fallback: number, most: number): [number, (value: number) => void] {
  const [value, set] = useQuery(name, String(fallback));
  const n = Math.floor(Number(value));
  return [n >= 1 ? Math.min(most, n) : fallback, (n) => set(String(Math.min(most, n)))];
}

// query writes parameters that are not empty as a query, with its question mark.
export function query(params: Record<string, string | undefined>): string {
  const text = new URLSearchParams(Object.entries(params).filter((p): p is [string, string] => Boolean(p[1]))).toString();
  return text ? `?${text}` : "";
}
