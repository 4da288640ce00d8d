// Silence: the note that no traces arrive, and what follows for the figures of a view.
import { useState } from "react";
import { Link } from "wouter";
import { type Schemas, client } from "../api/client.ts";
import { useResource } from "../api/queries.ts";
import { silentFor } from "../logic/health.ts";
import { useNow } from "../settings.ts";

const unnoticed = "Sibyl cannot detect incidents";

// Silence says that no traces arrive, if so, and the effect.
export function Silence({ effect = unnoticed }: { effect?: string }) {
  const { value: status } = useResource("status", (signal) => client.GET("/status", { signal }), true);
  const silent = useSilence(status);
  return silent ? <SilenceNote of={silent} effect={effect} /> : null;
}

export function SilenceNote({ of, effect = unnoticed }: { of: string; effect?: string }) {
  return (
    <p className="bad" role="status">
      No traces have arrived for {of}: {effect}. See <Link href="/status">the status of Sibyl</Link>.
    </p>
  );
}

// useSilence returns, as text, the time without new spans if it is long: since the last ones arrived or, if the service
// does not know when, since the page was opened.
export function useSilence(status: Schemas["Status"] | undefined): string {
  const now = useNow();
  const spans = status?.ingest.spans;
  const [last, setLast] = useState({ spans, at: now });
  if (spans !== last.spans) setLast({ spans, at: now });
  return status ? silentFor(status.ingest.last_arrival ?? last.at, now) : "";
}
