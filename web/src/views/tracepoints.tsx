// Tracepoints: the budget, all tracepoints with reason, expiry and cost, agents, and the plan.
import { Fragment } from "react";
import { Link } from "wouter";
import { type Schemas, client } from "../api/client.ts";
import { useResource } from "../api/queries.ts";
import { bytes, count, digits, duration, percent, factor } from "../logic/format.ts";
import { spanName } from "../logic/waits.ts";
import { moveFocus, useKeys } from "../use-keys.ts";
import { Bar, When, useTitle } from "../components/basics.tsx";
import { Choice, Search, Select } from "../components/controls.tsx";
import { Figure } from "../components/figure.tsx";
import { Name, OpName } from "../components/names.tsx";
import { TruncationNote, Table } from "../components/table.tsx";
import { Empty, Async } from "../components/async-state.tsx";
import { StateBadge } from "../components/badges.tsx";
import { useCount, useEnum, useSearchText } from "../url.ts";
import { OverrideMenu } from "./override.tsx";

type Tracepoint = Schemas["Tracepoint"];

export default function Tracepoints() {
  useTitle("Tracepoints");
  const [tab, setTab] = useEnum("show", ["tracepoints", "agents", "plan"]);
  const budget = useResource("budget", (signal) => client.GET("/budget", { signal }), true);
  return (
    <>
      <div className="toolbar">
        <h1>Tracepoints</h1>
        <Choice
          label="Show"
          value={tab}
          pick={setTab}
          of={[
            ["tracepoints", "Tracepoints"],
            ["agents", "Agents"],
            ["plan", "Plan"],
          ]}
        />
      </div>
      <Async of={budget} what="the budget">
        {(b) => <Budget b={b} />}
      </Async>
      {tab === "tracepoints" && <TracepointTable />}
      {tab === "agents" && <Agents />}
      {tab === "plan" && <Plan />}
    </>
  );
}

// cores formats CPU use; below a hundredth of a core as time per second.
function cores(x: number | null): string {
  if (x === null) return "–";
  if (x > 0 && x < 0.01) return `${duration(x * 1e9)}/s`;
  return `${digits(x)} ${x === 1 ? "core" : "cores"}`;
}

function Budget({ b }: { b: Schemas["BudgetUse"] }) {
  const gauge = (name: string, used: number | null, limit: number, format: (x: number | null) => string) => (
    <div className="gauge" key={name}>
      <div className="small">
        <span>{name}</span>
        <span className="dim nowrap">
          {format(used)} {limit > 0 ? `of ${format(limit)}, ${percent((used ?? 0) / limit)}` : "no limit"}
        </span>
      </div>
      <Bar of={limit > 0 ? (used ?? 0) / limit : 0} />
    </div>
  );
  return (
    <>
      <div className="gauges">
        {gauge("Tracepoints on", b.estimate.tracepoints, b.total.tracepoints, count)}
        {gauge("Extra trace data", b.estimate.bytes, b.total.bytes, (x) => `${bytes(x)}/s`)}
        {gauge("CPU", b.estimate.cpu, b.total.cpu, cores)}
      </div>
      {b.measured_plan > 0 && b.estimate.tracepoints > 0 && (
        <p className="under">
          {(b.measured.bytes ?? 0) > 0 && (
            <span>
              Agents measure {bytes(b.measured.bytes)}/s and {cores(b.measured.cpu)}.
            </span>
          )}
          <span>
            So far, data and CPU were {factor(b.overrun_bytes)} and {factor(b.overrun_cpu)} the estimates.
          </span>
        </p>
      )}
    </>
  );
}

const states = ["", "on", "pending", "forbidden", "off", "baseline"] as const;
const maxLimit = 1000; // of the API

function TracepointTable() {
  const [q, setQ] = useSearchText();
  const [state, setState] = useEnum("state", states);
  const [sort, setSort] = useEnum("sort", ["state", "name", "bytes", "cpu"]);
  const [limit, setLimit] = useCount("limit", 100, maxLimit);
  useKeys({ j: () => moveFocus("tbody button", 1), k: () => moveFocus("tbody button", -1) });
  const byService = sort === "state" || sort === "name";
  const query = { limit, sort, ...(q && { q }), ...(state && { state }) };
  const resource = useResource(
    `tracepoints ${JSON.stringify(query)}`,
    (signal) => client.GET("/tracepoints", { params: { query }, signal }),
    true,
  );
  return (
    <Figure
      title="All tracepoints"
      tools={
        <>
          <Search value={q} pick={setQ} label="Search tracepoints ( / )" />
          <Select label="State" value={state} pick={setState} of={states.map((s) => [s, s || "any"])} />
          <Select
            label="By"
            value={sort}
            pick={setSort}
            of={[
              ["state", "state"],
              ["name", "name"],
              ["bytes", "data"],
              ["cpu", "CPU"],
            ]}
          />
        </>
      }
      table={() => ({
        header: [
          "tracepoint",
          "operation",
          "layer",
          "kind",
          "state",
          "share of requests (of 1)",
          "data (bytes/s)",
          "CPU (cores)",
          "since",
          "expires",
          "cause",
          "problem",
          "incident",
        ],
        rows: (resource.value?.items ?? []).map((t) => [
          t.name,
          t.operation,
          t.layer,
          t.kind,
          t.state,
          t.share,
          t.cost.bytes,
          t.cost.cpu,
          t.leases[0]?.since,
          t.leases[0]?.expires,
          t.leases[0]?.cause,
          t.leases[0]?.owner,
          t.leases[0]?.incident,
        ]),
      })}
      tableOnly
    >
      <Async of={resource} what="tracepoints">
        {(list) =>
          list.items.length === 0 ? (
            <NoTracepoints q={q} state={state} />
          ) : (
            <>
              <Table
                label="Tracepoints"
                className="tracepoints"
                head={[
                  "Tracepoint",
                  "State",
                  "Reason",
                  "Until",
                  { text: "Sampled", number: true, title: "Share of requests that have it on" },
                  { text: "Data", number: true, title: "Cost if on for all requests" },
                  {
                    text: "CPU",
                    number: true,
                    title: "CPU time per second if on for all requests",
                  },
                  "Action",
                ]}
              >
                {list.items.map((t, i) => {
                  const service = byService ? serviceOf(t) : "";
                  const begins = service !== "" && (i === 0 || serviceOf(list.items[i - 1]!) !== service);
                  return (
                    <Fragment key={t.id}>
                      {begins && <GroupRow of={service} columns={8} />}
                      <TracepointRow t={t} service={service} changed={resource.reload} />
                    </Fragment>
                  );
                })}
              </Table>
              {list.next_cursor && limit < maxLimit ? (
                <p className="under">
                  <button type="button" onClick={() => setLimit(limit + 300)}>
                    Show more
                  </button>
                </p>
              ) : (
                <TruncationNote list={list} how="Search to see them." />
              )}
            </>
          )
        }
      </Async>
    </Figure>
  );
}

// serviceOf returns the service with which the names of a tracepoint begin, "" if they do not.
function serviceOf(t: Tracepoint): string {
  const service = t.name.slice(0, Math.max(0, t.name.indexOf("/")));
  return t.operation.startsWith(`${service} `) ? service : "";
}

function NoTracepoints({ q, state }: { q: string; state: string }) {
  if (state === "on" && !q)
    return (
      <Empty title="No active tracepoints">
        Tracepoints are switched on while an incident or a problem is being investigated.
      </Empty>
    );
  if (state || q) return <Empty title="No matching tracepoints">Remove a filter to see more.</Empty>;
  return (
    <Empty title="No tracepoints yet">
      They are announced by agents, and by spans with the attribute sibyl.tracepoint.id.
    </Empty>
  );
}

// GroupRow is a row with the service of the rows that follow.
const GroupRow = ({ of: service, columns }: { of: string; columns: number }) => (
  <tr className="group">
    <th scope="rowgroup" colSpan={columns}>
      <Name>{service}</Name>
    </th>
  </tr>
);

// TracepointRow shows a tracepoint. A service, if it is given, stands above the row and not in its names.
function TracepointRow({ t, service, changed }: { t: Tracepoint; service: string; changed: () => void }) {
  const lease = t.leases[0];
  const [operation, name] = service
    ? [t.operation, t.name].map((n) => n.slice(service.length + 1))
    : [t.operation, t.name];
  return (
    <tr>
      <td>
        <OpName>{spanName(operation!)}</OpName>
        {name !== operation && !name!.endsWith(`/${operation}`) && <div className="small dim mono path">{name}</div>}
      </td>
      <td>
        <StateBadge of={t.state} />
        {lease?.pinned && <span className="tag">pinned</span>}
      </td>
      <td className="small">
        <Reason t={t} />
      </td>
      <td className="small nowrap">{lease ? <When at={lease.expires} brief /> : <span className="dim">–</span>}</td>
      <td className="number">{lease ? percent(t.share) : "–"}</td>
      <td className="number nowrap">{t.cost.bytes === null ? "–" : `${bytes(t.cost.bytes)}/s`}</td>
      <td className="number nowrap">{cores(t.cost.cpu)}</td>
      <td>
        {t.state === "baseline" ? (
          <span className="dim small">always on</span>
        ) : (
          <OverrideMenu t={t} changed={changed} />
        )}
      </td>
    </tr>
  );
}

function Reason({ t }: { t: Tracepoint }) {
  const lease = t.leases[0];
  if (lease) {
    return (
      <>
        {lease.cause}
        <div className="dim">
          <Owner of={lease} />, <When at={lease.since} brief />
        </div>
      </>
    );
  }
  return t.override ? `${t.override.by}: ${t.override.kind}` : <span className="dim">–</span>;
}

// Owner says for what a tracepoint is on.
function Owner({ of: lease }: { of: Schemas["Lease"] }) {
  if (lease.incident) return <Link href={`/incidents/${lease.incident}`}>for an incident</Link>;
  if (lease.owner) return <Link href={`/problems/${lease.owner}`}>for a problem</Link>;
  return <>requested manually</>;
}

function agentIssue(a: Schemas["Agent"]): string {
  if (a.problem) return a.problem;
  if (a.failed > 0) return `${count(a.failed)} could not be switched on`;
  if (a.conflicts > 0) return "another agent uses its ID";
  return a.drops > 0 ? `${count(a.drops)} hits dropped` : "–";
}

function Agents() {
  const [q, setQ] = useSearchText();
  const query = { limit: 500, ...(q && { q }) };
  const resource = useResource(`agents ${q}`, (signal) => client.GET("/agents", { params: { query }, signal }), true);
  return (
    <Figure
      title="Agents"
      tools={<Search value={q} pick={setQ} label="Search agents ( / )" />}
      table={() => ({
        header: ["service", "id", "state", "seen", "plan", "applied", "failed", "problem"],
        rows: (resource.value?.items ?? []).map((a) => [
          a.service,
          a.id,
          a.state,
          a.seen,
          a.plan,
          a.applied,
          a.failed,
          a.problem,
        ]),
      })}
      tableOnly
    >
      <Async of={resource} what="agents">
        {(list) =>
          list.items.length === 0 ? (
            <Empty title={q ? "No matching agents" : "No agents"}>
              {q
                ? "Try a shorter search."
                : "Sibyl finds problems without agents, but cannot switch tracepoints. Add the Go module agents/tracepoint to a service."}
            </Empty>
          ) : (
            <>
              <p className="under">
                {count(list.total.current)} current, {count(list.total.behind)} behind, {count(list.total.lost)} lost
              </p>
              <Table
                label="Agents"
                className="agents"
                head={[
                  "Service",
                  "State",
                  "Seen",
                  { text: "Plan", number: true },
                  { text: "On", number: true, title: "Tracepoints of its plan that are on" },
                  { text: "Available", number: true, title: "Tracepoints that it can switch" },
                  { text: "Data", number: true },
                  "Issue",
                ]}
              >
                {list.items.map((a) => (
                  <tr key={`${a.service} ${a.id}`}>
                    <td>
                      {a.service}
                      <div className="small dim mono path">{a.id}</div>
                    </td>
                    <td>
                      <StateBadge of={a.state} />
                    </td>
                    <td className="small nowrap">
                      <When at={a.seen} brief />
                    </td>
                    <td className="number">{a.plan || "–"}</td>
                    <td className="number">{count(a.applied)}</td>
                    <td className="number">{count(a.catalogue)}</td>
                    <td className="number nowrap">{bytes(a.usage.bytes)}/s</td>
                    <td className="small">{agentIssue(a)}</td>
                  </tr>
                ))}
              </Table>
              <TruncationNote list={list} how="Search to see them." />
            </>
          )
        }
      </Async>
    </Figure>
  );
}

function Plan() {
  const resource = useResource("plan", (signal) => client.GET("/plan", { signal }), true);
  return (
    <Figure
      title="The plan"
      hint="Requests are assigned to arms at random; an arm's requests have its tracepoints on. Comparing arms shows the overhead."
      table={() => ({
        header: ["arm", "share of requests (of 1)", "tracepoint", "since", "expires", "cause"],
        rows: (resource.value?.arms ?? []).flatMap((a) =>
          a.tracepoints.map((t) => [a.name, a.share, t.name, t.lease.since, t.lease.expires, t.lease.cause]),
        ),
      })}
      tableOnly
    >
      <Async of={resource} what="the plan">
        {(p) => (
          <>
            <p className="under">
              Version {count(p.version)}; agents: {count(p.agents.current)} current, {count(p.agents.behind)} behind,{" "}
              {count(p.agents.lost)} lost
            </p>
            {p.arms.length === 0 ? (
              <Empty title="No active tracepoints">
                Tracepoints are switched on while a problem is being investigated.
              </Empty>
            ) : (
              <Table label="The plan" head={["Arm", { text: "Sampled", number: true }, "Tracepoints"]}>
                {p.arms.map((a) => (
                  <tr key={a.name}>
                    <td>{a.name}</td>
                    <td className="number">{percent(a.share)}</td>
                    <td className="small path">
                      <details>
                        <summary>{count(a.tracepoints.length)} on</summary>
                        {a.tracepoints.map((t) => (
                          <div key={t.id} className="mono">
                            {t.name}
                          </div>
                        ))}
                      </details>
                    </td>
                  </tr>
                ))}
              </Table>
            )}
          </>
        )}
      </Async>
    </Figure>
  );
}
