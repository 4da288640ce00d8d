// Abbreviated: leads from the beginning of an ID, as the CLI prints it, to the page of the only item with such an ID.
import type { ReactNode } from "react";
import { Redirect } from "wouter";
import type { Resource } from "../api/queries.ts";

// isAbbreviated reports whether an ID may be the beginning of one with a number of digits.
export const isAbbreviated = (id: string, digits: number) => /^[0-9a-f]{4,}$/.test(id) && id.length < digits;

type Props = { id: string; among: Resource<{ items: { id: string }[] }>; path: string; children: ReactNode };

// Abbreviated shows its children if there is no such item, or more than one.
export function Abbreviated({ id, among, path, children }: Props) {
  const found = new Set(among.value?.items.map((x) => x.id).filter((full) => full.startsWith(id)));
  if (found.size === 1) return <Redirect to={path + [...found][0]!} replace />;
  return among.value || among.failure ? children : null;
}
