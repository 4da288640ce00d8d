// ClosedProblems: the list of closed problems, the last one first, as they were when they closed.
import { type ReactNode, useState } from "react";
import { Link } from "wouter";
import { type Schemas, client } from "../api/client.ts";
import { useResource } from "../api/queries.ts";
import { count, duration, keepUnits, lost, milli, span } from "../logic/format.ts";
import { Async, Empty } from "../components/async-state.tsx";
import { ProblemTags } from "../components/badges.tsx";
import { When } from "../components/basics.tsx";
import { Search } from "../components/controls.tsx";
import { exportItems } from "../components/figure.tsx";
import { Menu } from "../components/menu.tsx";
import { Table } from "../components/table.tsx";
import { useSearchText } from "../url.ts";

type Problem = Schemas["Problem"];

const few = 100;
const most = 1000; // of an answer

export function ClosedProblems({ choice }: { choice: ReactNode }) {
  const [q, setQ] = useSearchText();
  const [limit, setLimit] = useState(few);
  const resource = useResource(
    `closed problems ${limit} ${q}`,
    (signal) =>
      client.GET("/problems", { params: { query: { closed: true, muted: "all", limit, ...(q && { q }) } }, signal }),
    true,
  );
  return (
    <>
      <div className="toolbar">
        <h1>Problems</h1>
        {choice}
        <Search value={q} pick={setQ} label="Search problems ( / )" />
        {resource.value && (
          <Menu
            label="Closed problems: table and export"
            icon="⋯"
            items={exportItems("Closed problems", () => asTable(resource.value?.items ?? []))}
          />
        )}
      </div>
      <Async of={resource} what="closed problems">
        {({ items, total }) =>
          items.length === 0 ? (
            <Empty title={q ? "No matching problems" : "No closed problems"}>
              {q ? "Remove the filter to see more." : "Closed problems stay here for as long as retention.age says."}
            </Empty>
          ) : (
            <>
              <p className="under" role="status">
                {count(total)} closed {total === 1 ? "problem" : "problems"}
              </p>
              <Table
                label="Closed problems"
                className="closed"
                head={["Problem", "Closed", "Open for", "P50 → P99", { text: "Impact", number: true }]}
              >
                {items.map((p) => (
                  <Row key={`${p.id} ${p.closed}`} p={p} />
                ))}
              </Table>
              {items.length < total && limit < most && (
                <p className="under">
                  <button type="button" className="link" onClick={() => setLimit(most)}>
                    Show {count(Math.min(total, most) - items.length)} earlier problems
                  </button>
                </p>
              )}
            </>
          )
        }
      </Async>
    </>
  );
}

const openFor = (p: Problem) => (p.since && p.closed ? Date.parse(p.closed) - Date.parse(p.since) : null);

function Row({ p }: { p: Problem }) {
  const ms = openFor(p);
  return (
    <tr>
      <td>
        <Link href={`/problems/${p.id}`}>{keepUnits(p.diagnosis)}</Link>
        <div className="where">
          <ProblemTags onset={p.onset} kind={p.kind} />{" "}
          <span className="dim">
            {p.level === "group" ? `one group of ${p.request_type_name}` : p.request_type_name}
          </span>
        </div>
      </td>
      <td className="nowrap">
        <When at={p.closed} brief />
      </td>
      <td className="nowrap">{ms === null ? "–" : span(1e6 * ms)}</td>
      <td className="nowrap">
        {duration(p.p50_ns)} → <strong>{duration(p.p99_ns)}</strong>
      </td>
      <td className="number nowrap">{lost(p.impact)}</td>
    </tr>
  );
}

// asTable returns the problems for export.
const asTable = (items: Problem[]) => ({
  header: ["diagnosis", "onset", "kind", "request type", "since", "closed", "mean (ms)", "P50 (ms)", "P99 (ms)", "id"],
  rows: items.map((p) => [
    p.diagnosis,
    p.onset,
    p.kind,
    p.request_type_name,
    p.since,
    p.closed ?? null,
    milli(p.mean_ns),
    milli(p.p50_ns),
    milli(p.p99_ns),
    p.id,
  ]),
});
