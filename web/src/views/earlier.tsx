// The earlier incidents of the service that an incident suspects first.
import { Link } from "wouter";
import type { Schemas } from "../api/client.ts";
import { count, keepUnits, span } from "../logic/format.ts";
import { query } from "../url.ts";
import { SeverityBadge } from "../components/badges.tsx";
import { When } from "../components/basics.tsx";
import { Figure } from "../components/figure.tsx";
import { Sentence } from "../components/names.tsx";

const ms = (e: Schemas["EarlierIncident"]) => Date.parse(e.ended) - Date.parse(e.onset);

// EarlierIncidents shows nothing if there were none.
export function EarlierIncidents({ of: { incident: x, earlier } }: { of: Schemas["IncidentDetail"] }) {
  if (earlier.length === 0) return null;
  return (
    <Figure
      id="earlier"
      title="Earlier incidents of this service"
      table={() => ({
        header: ["began", "lasted (s)", "end", "severity", "sentence", "place", "alike", "helped", "id"],
        rows: earlier.map((e) => [
          e.onset,
          Math.round(ms(e) / 1000),
          e.end.text,
          e.severity,
          e.sentence,
          e.place ?? "",
          String(e.alike),
          e.helped ?? "",
          e.id,
        ]),
      })}
      tableOnly
    >
      <ul className="plain earlier">
        {earlier.map((e) => (
          <li key={e.id}>
            <div className="crumbs">
              <SeverityBadge of={e.severity} />
              <span>
                <When at={e.onset} />, lasted {keepUnits(span(1e6 * ms(e)))}: <Sentence of={e.end.text_parts} />
              </span>
            </div>
            <Link href={`/incidents/${e.id}`}>{e.sentence}</Link>
            {e.alike && <p className="hint dim">Of the same kind, in the same place.</p>}
            {e.helped && (
              <p className="comment">
                <b>Helped:</b> <bdi>{e.helped}</bdi>
              </p>
            )}
          </li>
        ))}
      </ul>
      {x.earlier > earlier.length && (
        <p className="under">
          <Link href={`/${query({ service: x.service, earlier: "shown" })}`}>All {count(x.earlier)}</Link>
        </p>
      )}
    </Figure>
  );
}
