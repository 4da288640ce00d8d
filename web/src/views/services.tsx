// Services: all services with the rate, errors and durations of the calls to them, beside the usual ones.
import { type Ref, memo, useMemo } from "react";
import { Link } from "wouter";
import { type Schemas, client } from "../api/client.ts";
import { useResource } from "../api/queries.ts";
import { Sparkline } from "../charts/sparkline.tsx";
import { count, duration, keepUnits, milli, percent, rate, stateLabel } from "../logic/format.ts";
import { ownerText } from "../logic/incidents.ts";
import {
  type ServiceState,
  courseOf,
  failsNotably,
  isNotable,
  isUnwell,
  servicePath,
  sortedBy,
  states,
  summary,
} from "../logic/services.ts";
import { type Range, rangeParameters } from "../logic/range.ts";
import { moveFocus, useKeys } from "../use-keys.ts";
import { Async, Empty } from "../components/async-state.tsx";
import { StateBadge, definitions } from "../components/badges.tsx";
import { When, useTitle } from "../components/basics.tsx";
import { Search, Select } from "../components/controls.tsx";
import { type TableData, exportItems } from "../components/figure.tsx";
import { Menu } from "../components/menu.tsx";
import { RangeSelect, useRange } from "../components/range.tsx";
import { Silence } from "../components/silence.tsx";
import { type Column, TruncationNote } from "../components/table.tsx";
import { VirtualTbody } from "../components/virtual-tbody.tsx";
import { useEnum, useSearchText } from "../url.ts";

type Service = Schemas["Service"];
type List = Schemas["ServiceList"];
type Load = Schemas["ServiceLoad"];

const most = 1000; // services of an answer

const sorts = ["state", "name", "rate", "failed", "p50", "p99", "instances", "deploy"] as const;
type Sort = (typeof sorts)[number];

const keys: Record<Sort, (s: Service) => number | string | null> = {
  state: (s) => states.indexOf(s.state),
  name: (s) => s.service,
  rate: (s) => s.now.rate,
  failed: (s) => s.now.failed,
  p50: (s) => s.now.p50_ns,
  p99: (s) => s.now.p99_ns,
  instances: (s) => s.instances,
  deploy: (s) => s.deploy && Date.parse(s.deploy.at),
};

// serviceColumns are the columns of tables of services; one without a key cannot be sorted by.
export const serviceColumns: [name: string, by: Sort | null, title: string, className?: string][] = [
  ["State", "state", "By urgency: suspects of open incidents first"],
  ["Service", "name", "Services that are called, or that call others"],
  ["Trend", null, "In the time range: what is worse than usual, or else calls per second"],
  ["Rate", "rate", "Calls per second by others, and from outside", "number"],
  ["Errors", "failed", "Share of the calls that failed", "number"],
  [
    "P50",
    "p50",
    "Median duration of its spans in the last minutes; without spans, the mean time of the calls to it",
    "number",
  ],
  ["P99", "p99", "99th percentile of their durations", "number"],
  ["Instances", "instances", "Instances, pods or hosts with calls now", "number"],
  ["Deployed", "deploy", "When its latest version appeared"],
];

const direction = (falling: boolean) => (falling ? "descending" : "ascending");

const isFalling = (sort: Sort) => sort !== "state" && sort !== "name";

// useServices reads all services, with trends of a time range.
export function useServices(range?: Range) {
  const query = { limit: most, ...(range && rangeParameters(range)) };
  return useResource(
    `services ${JSON.stringify(query)}`,
    (signal) => client.GET("/services", { params: { query }, signal }),
    "incident",
  );
}

export default function Services() {
  useTitle("Services");
  const [q, setQ] = useSearchText();
  const [state, setState] = useEnum<ServiceState | "" | "unwell">("state", ["", "unwell", ...states]);
  const [sort, setSort] = useEnum("sort", sorts);
  const [range, setRange] = useRange();
  const resource = useServices(range);
  const items = useMemo(() => {
    const kept = (resource.value?.items ?? []).filter(
      (s) =>
        s.service.toLowerCase().includes(q.toLowerCase()) &&
        (state === "" || s.state === state || (state === "unwell" && isUnwell(s.state))),
    );
    return sortedBy(kept, keys[sort], isFalling(sort), (s) => s.service);
  }, [resource.value, q, state, sort]);
  return (
    <>
      <div className="toolbar">
        <h1>Services</h1>
        <Search value={q} pick={setQ} label="Search services ( / )" />
        <RangeSelect value={range} pick={setRange} />
        <Select
          label="State"
          value={state}
          pick={setState}
          of={[["", "any"], ["unwell", "not well"], ...states.map((s) => [s, stateLabel(s)] as const)]}
        />
        {resource.value && (
          <Menu label="Services: table and export" icon="⋯" items={exportItems("Services", () => asTable(items))} />
        )}
      </div>
      <Silence effect="recent figures drop" />
      <Async of={resource} what="services">
        {(list) => <ServiceTable list={list} items={items} sort={sort} setSort={setSort} asked={range.from} />}
      </Async>
    </>
  );
}

// asTable returns services for export.
const asTable = (items: Service[]): TableData => ({
  header: [
    "service",
    "state",
    "reason",
    "owner",
    "rate (1/s)",
    "usual rate (1/s)",
    "failed (of 1)",
    "usually failed (of 1)",
    "P50 (ms)",
    "usual P50 (ms)",
    "P99 (ms)",
    "usual P99 (ms)",
    "own time (ms)",
    "usual own time (ms)",
    "operations",
    "instances",
    "versions",
    "deployed",
  ],
  rows: items.map((s) => [
    s.service,
    s.state,
    s.reason,
    s.owner ? ownerText(s.owner) : "",
    s.now.rate,
    s.usual?.rate ?? null,
    s.now.failed,
    s.usual?.failed ?? null,
    milli(s.now.p50_ns),
    milli(s.usual?.p50_ns),
    milli(s.now.p99_ns),
    milli(s.usual?.p99_ns),
    milli(s.now.own_ns),
    milli(s.usual?.own_ns),
    s.operations,
    s.instances,
    s.versions.join(" "),
    s.deploy?.at ?? "",
  ]),
});

// asked is the beginning of the range, in ms.
type TableProps = { list: List; items: Service[]; sort: Sort; setSort: (by: Sort) => void; asked: number };

function ServiceTable({ list, items, sort, setSort, asked }: TableProps) {
  useKeys({
    j: () => moveFocus("a[data-service]", 1),
    k: () => moveFocus("a[data-service]", -1),
  });
  const head = (name: string, by: Sort, title: string, className = "") => (
    <th
      key={by}
      scope="col"
      className={className}
      title={title}
      aria-sort={sort === by ? direction(isFalling(by)) : undefined}
    >
      <button type="button" className="sort" onClick={() => setSort(by)}>
        {name} <span aria-hidden="true">{sort === by && (isFalling(by) ? "▾" : "▴")}</span>
      </button>
    </th>
  );
  if (list.items.length === 0)
    return (
      <Empty title="No services yet">
        Services appear once their spans arrive (OTLP) and the first ten-second epoch ends.
      </Empty>
    );
  return (
    <>
      <p className="under">
        <span role="status">{summary(list.states)}</span>
        <span>
          in the ten minutes to <When at={list.to} />
          {list.items.some((s) => s.now_from) && ", of services of an incident since it began or ended"}
        </span>
        <span>· usual values in small print</span>
        <SinceNote from={list.from} asked={asked} />
        {list.learning && <span>· Usual values appear after a few minutes of history.</span>}
      </p>
      {items.length === 0 ? (
        <Empty title="No matching services">Remove a filter to see more.</Empty>
      ) : (
        <table className="queue fleet" aria-rowcount={items.length + 1}>
          <thead>
            <tr>
              {serviceColumns.map(([name, by, title, className]) =>
                by ? (
                  head(name, by, title, className)
                ) : (
                  <th key={name} scope="col" title={title}>
                    {name}
                  </th>
                ),
              )}
            </tr>
          </thead>
          <VirtualTbody
            count={items.length}
            columns={serviceColumns.length}
            estimate={56}
            setView={noView}
            id={(i) => items[i]!.id}
            row={(i, measure) => <ServiceRow key={items[i]!.id} s={items[i]!} at={i} measure={measure} />}
          />
        </table>
      )}
      <TruncationNote list={list} how="The API lists all." />
    </>
  );
}

const clipped = 120_000; // ms that a trend may begin late

// SinceNote says when trends begin, if that is later than the range. It continues a sentence, or is one, alone.
export function SinceNote({ from, asked, alone }: { from: string; asked: number; alone?: boolean }) {
  if (Date.parse(from) - asked < clipped) return null;
  return (
    <span>
      {alone ? "Trends start" : "· trends start"} <When at={from} brief />: they cover two hours at most
    </span>
  );
}

const noView = () => undefined;

type RowProps = { s: Service; at: number; measure?: Ref<HTMLTableRowElement> };

// ServiceRow is the row of a service in a table.
export const ServiceRow = memo(function ServiceRow({ s, at, measure }: RowProps) {
  return (
    <tr ref={measure} data-index={at} aria-rowindex={at + 2}>
      <td className="fleet-state">
        <ServiceBadge of={s} />
      </td>
      <td className="problem">
        <Link href={servicePath(s.service, s.id)} data-service={s.service} className="mono">
          <bdi>{s.service}</bdi>
        </Link>
        <div className="where dim">
          {s.changed_calls && <CallsNote of={s.changed_calls} />}
          {s.reason && (isUnwell(s.state) || s.state === "idle") && <span>{keepUnits(s.reason)}</span>}
          {s.owner && <bdi>{ownerText(s.owner)}</bdi>}
          {!s.emits_spans && <span>emits no spans: the mean time of the calls to it</span>}
        </div>
      </td>
      <td data-label="Trend">
        <Course of={s} />
      </td>
      <td data-label="Rate" className="number">
        <Beside now={rate(s.now.rate)} usual={s.usual && rate(s.usual.rate)} notable={s.state === "silent"} />
      </td>
      <td data-label="Errors" className="number">
        <LoadFigure of={s} figure="failed" />
      </td>
      <td data-label="P50" className="number">
        {s.emits_spans || s.now.own_ns === null ? (
          <LoadFigure of={s} figure="p50_ns" />
        ) : (
          <Beside now={duration(s.now.own_ns)} usual={duration(s.usual?.own_ns)} notable={false} />
        )}
      </td>
      <td data-label="P99" className="number">
        <LoadFigure of={s} figure="p99_ns" />
      </td>
      <td data-label="Instances" className="number">
        {s.instances > 0 ? count(s.instances) : "–"}
      </td>
      <td data-label="Deployed">
        {s.deploy ? (
          <span title={`${s.deploy.version}, previously ${s.deploy.before}`}>
            <span className="mono">
              <bdi>{s.deploy.version}</bdi>
            </span>{" "}
            <span className="dim small">
              <When at={s.deploy.at} brief />
            </span>
          </span>
        ) : (
          <span className="mono dim">{s.versions.join(", ") || "–"}</span>
        )}
      </td>
    </tr>
  );
});

// Course draws, with its name, what is worse than usual, or the rate.
function Course({ of: s }: { of: Service }) {
  const { name, values } = courseOf(s);
  if (values.length < 2) return null;
  return (
    <>
      <Sparkline zero of={values} label={`${name} of ${s.service} over time`} />
      <span className="dim small">{name}</span>
    </>
  );
}

// CallsNote says, behind the name of a service, that it makes other calls than before.
export const CallsNote = ({ of: x }: { of: Schemas["ChangedCalls"] }) => (
  <span title="On its own this neither slows requests nor makes them fail, so it is no incident. After ten minutes it counts as normal.">
    {keepUnits(x.text)}; since <When at={x.since} />
  </span>
);

// ServiceBadge shows the state of a service or an operation. A suspect's leads to its incident.
export function ServiceBadge({
  of,
}: {
  of: { state: ServiceState; reason: string; incidents?: Service["incidents"] };
}) {
  const badge = <StateBadge of={of.state} title={of.reason || definitions[of.state]} />;
  const incident = of.state === "incident" && of.incidents?.find((x) => x.rank === 1);
  return incident ? <Link href={`/incidents/${incident.id}`}>{badge}</Link> : badge;
}

// Beside shows a value with the usual one below it. A notable one is strong and marked.
export function Beside({ now, usual, notable }: { now: string; usual: string | null | undefined; notable: boolean }) {
  return (
    <span className={notable ? "beside notable" : "beside"}>
      <span>
        {notable && <span aria-hidden="true">▲ </span>}
        {now}
      </span>
      {usual !== null && usual !== undefined && usual !== "–" && (
        <span className="dim small">
          <span className="hidden">usually </span>
          {usual}
        </span>
      )}
    </span>
  );
}

const Failures = ({ now, usual, notable }: { now: Load; usual: Load | null; notable: boolean }) => (
  <Beside now={percent(now.failed)} usual={usual && percent(usual.failed)} notable={notable} />
);

type Judged = { now: Load; usual: Load | null; worse: Schemas["ServiceFigure"][] };

// LoadFigure shows a figure of a service or an operation, marked if it is worse than usual: then the state is not well.
export const LoadFigure = ({ of: { now, usual, worse }, figure }: { of: Judged; figure: Schemas["ServiceFigure"] }) => {
  const notable = worse.includes(figure);
  if (figure === "failed") return <Failures now={now} usual={usual} notable={notable} />;
  const before = usual?.[figure] ?? null;
  return <Beside now={duration(now[figure])} usual={before === null ? null : duration(before)} notable={notable} />;
};

// CallCells are the cells of a table that show the calls between two services: rate, errors and time between them.
export const CallCells = ({ of: { now, usual } }: { of: { now: Load; usual: Load | null } }) => (
  <>
    <td className="number">
      <Beside now={rate(now.rate)} usual={usual && rate(usual.rate)} notable={false} />
    </td>
    <td className="number">
      <Failures now={now} usual={usual} notable={failsNotably(now, usual)} />
    </td>
    <td className="number">
      <Time now={now.own_ns} usual={usual?.own_ns} />
    </td>
  </>
);

// callColumns are their heads.
export const callColumns: Column[] = [
  { text: "Rate", number: true },
  { text: "Errors", number: true },
  {
    text: "Between them",
    number: true,
    title:
      "Mean time per call between the spans of the two services: on the wire, in a queue, and in the callee if it emits no spans, like a database",
  },
];

export const Time = ({ now, usual }: { now: number | null; usual: number | null | undefined }) => (
  <Beside
    now={duration(now)}
    usual={usual === null || usual === undefined ? null : duration(usual)}
    notable={isNotable(now, usual)}
  />
);
