// The audit log in words.
import type { Schemas } from "../api/client.ts";

type Entry = Schemas["AuditEntry"];

// outcome tells how the requests of an entry ended, and their number if they are counted.
export function outcome({ status, count }: Pick<Entry, "status" | "count">): string {
  const n = count ? `, ${count} × in a minute` : "";
  if (!status) return `unknown${n}`;
  if (status < 400) return `done${n}`;
  return (status === 401 || status === 403 ? "refused" : `failed: ${status}`) + n;
}

// identity returns what identifies the caller of an entry: people choose their names at many identity providers.
export const identity = (e: Pick<Entry, "who" | "subject" | "issuer">): string => (e.issuer && e.subject) || e.who;
