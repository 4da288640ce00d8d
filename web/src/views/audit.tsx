// Audit: who changed what, when and from where, for admins. Reading it is an entry itself, so it isn't live.
import { useState } from "react";
import { type Schemas, client } from "../api/client.ts";
import { useResource } from "../api/queries.ts";
import { identity, outcome } from "../logic/audit.ts";
import { Async, Empty } from "../components/async-state.tsx";
import { When, useTitle } from "../components/basics.tsx";
import { Search } from "../components/controls.tsx";
import { exportItems } from "../components/figure.tsx";
import { Menu } from "../components/menu.tsx";
import { Table, TruncationNote } from "../components/table.tsx";
import { useQuery } from "../url.ts";

type Entry = Schemas["AuditEntry"];

const few = 100;
const most = 1000; // of an answer

export default function Audit() {
  useTitle("Audit log");
  const [who, setWho] = useQuery("who");
  const [limit, setLimit] = useState(few);
  const resource = useResource(`audit ${limit} ${who}`, (signal) =>
    client.GET("/audit", { params: { query: { limit, ...(who && { who }) } }, signal }),
  );
  return (
    <>
      <div className="toolbar">
        <h1>Audit log</h1>
        <Search value={who} pick={setWho} label="Name or subject ( / )" />
        <button type="button" onClick={resource.reload}>
          Refresh
        </button>
        {resource.value && (
          <Menu
            label="Audit log: table and export"
            icon="⋯"
            items={exportItems("Audit log", () => asTable(resource.value?.items ?? []))}
          />
        )}
      </div>
      <Async of={resource} what="the audit log">
        {(list) =>
          list.items.length === 0 ? (
            <Empty title={who ? "Nobody of this name or subject" : "No entries"}>
              {who
                ? "Remove the filter to see more."
                : "Changes and log-ins stay here for as long as retention.audit says."}
            </Empty>
          ) : (
            <>
              <Table label="Audit log" head={["When", "Who", "What", "Outcome", "From"]}>
                {list.items.map((e) => (
                  <Row key={e.id} e={e} pick={setWho} />
                ))}
              </Table>
              {list.next_cursor !== null && limit < most ? (
                <p className="under">
                  <button type="button" className="link" onClick={() => setLimit(most)}>
                    Show earlier entries
                  </button>
                </p>
              ) : (
                <TruncationNote list={list} how="sibyl audit --limit 0 shows all." />
              )}
              {list.unreadable > 0 && (
                <p className="under">Damaged lines of the log that were skipped: {list.unreadable}</p>
              )}
            </>
          )
        }
      </Async>
    </>
  );
}

function Row({ e, pick }: { e: Entry; pick: (who: string) => void }) {
  const notes = [e.issuer && `subject ${e.subject}`, e.role, e.via].filter(Boolean).join(", ");
  return (
    <tr>
      <td className="nowrap">
        <When at={e.at} />
      </td>
      <td>
        {e.who ? (
          <button type="button" className="link" title={e.issuer} onClick={() => pick(identity(e))}>
            {e.who}
          </button>
        ) : (
          "unknown"
        )}
        <div className="dim small">{notes}</div>
      </td>
      <td>
        {e.operation}
        <div className="dim small">{[e.on, e.detail].filter(Boolean).join(", ")}</div>
      </td>
      <td className="nowrap">{outcome(e)}</td>
      <td>
        {e.from ?? "–"}
        {e.forwarded_for && <div className="dim small">for {e.forwarded_for}</div>}
      </td>
    </tr>
  );
}

const columns = [
  "at",
  "who",
  "subject",
  "issuer",
  "role",
  "via",
  "operation",
  "on",
  "detail",
  "status",
  "count",
] as const;

// asTable returns the entries for export.
const asTable = (items: Entry[]) => ({
  header: [...columns, "from", "forwarded for", "id"],
  rows: items.map((e) => [...columns.map((column) => e[column]), e.from, e.forwarded_for, e.id]),
});
