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

// query writes parameters that are not empty as a query, with its question mark.
export function query(params: Record<string, string | undefined>): string {
  const text = new URLSearchParams(Object.entries(params).filter((p): p is [string, string] => Boolean(p[1]))).toString();
  return text ? `?${text}` : "";
}
