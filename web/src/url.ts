// View state in the URL: sorting, filters and selections are query parameters.
import { useCallback, useMemo } from "react";
import { useSearch, useSearchParams } from "wouter";
import { isRFC3339 } from "./logic/rfc3339.ts";

// useQuery returns a query parameter and its setter. The default value is omitted from the URL.
export function useQuery(name: string, fallback = ""): [string, (value: string) => void] {
  const [params, setParams] = useSearchParams();
  const set = useCallback(
    (value: string) =>
      setParams(
        () => {
          const after = new URLSearchParams(location.search); // not the rendered ones: several may be set at once
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

// maxSearchLength is the API's limit on search texts.
export const maxSearchLength = 256;

// useSearchText is useQuery for the search text, cut to maxSearchLength.
export function useSearchText(): [string, (value: string) => void] {
  const [value, set] = useQuery("q");
  return [value.slice(0, maxSearchLength), set];
}

// useEnum is useQuery for one of a few values. The first is the default and replaces invalid ones.
export function useEnum<T extends string>(name: string, values: readonly T[]): [T, (value: string) => void] {
  const [value, set] = useQuery(name, values[0]);
  return [values.find((v) => v === value) ?? values[0]!, set];
}

const maxMembers = 300; // of a set, so that proxies accept the URL

// useSet is useQuery for a set of words without commas; the last maxMembers are kept.
export function useSet(name: string): [ReadonlySet<string>, (members: Iterable<string>) => void] {
  const [value, set] = useQuery(name);
  const members = useMemo(() => new Set(value ? value.split(",") : []), [value]);
  const put = useCallback((members: Iterable<string>) => set([...members].slice(-maxMembers).join(",")), [set]);
  return [members, put];
}

// toggled returns the set with the member, at its end, or without it.
export function toggled(set: ReadonlySet<string>, member: string, yes: boolean): Set<string> {
  const next = new Set(set);
  next.delete(member);
  return yes ? next.add(member) : next;
}

// useValidated is useQuery for valid values; empty: missing or invalid.
function useValidated(name: string, is: (value: string) => boolean): [string, (value: string) => void] {
  const [value, set] = useQuery(name);
  return [is(value) ? value : "", set];
}

const pattern = (form: RegExp) => (value: string) => form.test(value);
const isID = pattern(/^[0-9a-f]{32}$/);
const isShortID = pattern(/^[0-9a-f]{16}$/);
const isNanos = pattern(/^[1-9]\d{0,14}$/);

// useID reads an ID, useShortID that of an incident, useTimestamp an RFC 3339 time, useNanos a positive number of
// nanoseconds.
export const useID = (name: string) => useValidated(name, isID);
export const useShortID = (name: string) => useValidated(name, isShortID);
export const useTimestamp = (name: string) => useValidated(name, isRFC3339);
export const useNanos = (name: string) => useValidated(name, isNanos);

// useCount is useQuery for a number from 1 to max.
export function useCount(name: string, fallback: number, max: number): [number, (value: number) => void] {
  const [value, set] = useQuery(name, String(fallback));
  const n = Math.floor(Number(value));
  return [n >= 1 ? Math.min(max, n) : fallback, (n) => set(String(Math.min(max, n)))];
}

// query formats the parameters that are not empty as a query string, with its question mark.
export function query(params: Record<string, string | undefined>): string {
  const text = new URLSearchParams(
    Object.entries(params).filter((p): p is [string, string] => Boolean(p[1])),
  ).toString();
  return text ? `?${text}` : "";
}

// useSectionPath returns a function that returns the path of a section of the current view: the base element makes a
// mere fragment one of the first page.
export function useSectionPath(): (id: string) => string {
  const search = useSearch();
  return (id) => `${location.pathname}${search && `?${search}`}#${id}`;
}
