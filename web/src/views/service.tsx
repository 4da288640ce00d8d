// Service: a service with its operations, neighbours, instances and annotations.
import { useMemo } from "react";
import { Link } from "wouter";
import { type Schemas, client } from "../api/client.ts";
import { useIncidents, useResource } from "../api/queries.ts";
import type { Mark } from "../charts/heatmap.tsx";
import { Trend } from "../charts/trend.tsx";
import { describeAnnotation, marksOf } from "../logic/annotations.ts";
import { count, duration, milli, percent, rate } from "../logic/format.ts";
import { incidentMarks, ownerText } from "../logic/incidents.ts";
import { type Range, rangeParameters } from "../logic/range.ts";
import { servicePath, sortedBy, states } from "../logic/services.ts";
import { Async, Empty } from "../components/async-state.tsx";
import { Facts, type Fact, When, useTitle } from "../components/basics.tsx";
import { More } from "../components/controls.tsx";
import { Figure } from "../components/figure.tsx";
import { RangeSelect, useRange } from "../components/range.tsx";
import { Table } from "../components/table.tsx";
import { query, useEnum } from "../url.ts";
import { Beside, CallCells, CallsNote, LoadFigure, ServiceBadge, SinceNote, Time, callColumns } from "./services.tsx";
import { Name, Sentence } from "../components/names.tsx";

type Detail = Schemas["ServiceDetail"];
type Call = Schemas["ServiceCall"];

export default function ServiceView({ id }: { id: string }) {
  const [range, setRange] = useRange();
  const parameters = rangeParameters(range);
  const resource = useResource(
    `service ${id} ${JSON.stringify(parameters)}`,
    (signal) => client.GET("/services/{service}", { params: { path: { service: id }, query: parameters }, signal }),
    "incident",
  );
  useTitle(resource.value?.service.service ?? "Service");
  if (resource.failure?.status === 404)
    return (
      <Empty page title="Service not found">
        It had no calls in the last two hours. <Link href="/services">All services</Link>
      </Empty>
    );
  return (
    <Async of={resource} what="the service">
      {(detail) => <Content detail={detail} range={range} setRange={setRange} />}
    </Async>
  );
}

type Props = { detail: Detail; range: Range; setRange: (text: string) => void };

function Content({ detail: d, range, setRange }: Props) {
  const s = d.service;
  const deploy = d.annotations.find((a) => a.version !== "");
  const facts: Fact[] = [
    ["Rate", <Beside key="rate" now={rate(s.now.rate)} usual={s.usual && rate(s.usual.rate)} notable={false} />],
    ["Errors", <LoadFigure key="errors" of={s} figure="failed" />],
    ["Mean", <Time key="mean" now={s.now.mean_ns} usual={s.usual?.mean_ns} />, "Mean duration of its spans"],
    ["P50", <LoadFigure key="p50" of={s} figure="p50_ns" />, "Median duration of its spans"],
    ["P99", <LoadFigure key="p99" of={s} figure="p99_ns" />],
    ["Own time", <LoadFigure key="own" of={s} figure="own_ns" />, ownMeans],
  ];
  if (s.owner) facts.push(["Owner", <bdi key="owner">{ownerText(s.owner)}</bdi>]);
  if (s.versions.length > 0) facts.push([s.versions.length > 1 ? "Versions" : "Version", s.versions.join(", ")]);
  if (deploy) facts.push(["Deployed", <When key="deploy" at={deploy.at} brief />, deploy.title]);
  return (
    <>
      <div className="crumbs">
        <Link href="/services">Services</Link> <span aria-hidden="true">›</span> <ServiceBadge of={s} />
        {!s.emits_spans && <span>emits no spans; named by its callers</span>}
      </div>
      <h1 className="mono heading">
        <bdi>{s.service}</bdi>
      </h1>
      {s.reason && <p className="reason">{s.reason}</p>}
      {s.changed_calls && (
        <p className="reason dim">
          It <CallsNote of={s.changed_calls} />.
        </p>
      )}
      <Incidents of={s} />
      <Facts of={facts} />
      <p className="under">
        {s.now_from ? (
          <span>
            {s.incidents.length > 0 ? "Since the incident began" : "Since the incident ended"} at{" "}
            <When at={s.now_from} />
          </span>
        ) : (
          <span>
            In the ten minutes to <When at={d.to} />
          </span>
        )}
        <span>· usual values in small print</span>
        <Link href={`/traces${query({ service: s.service })}`}>Traces</Link>
        <Link href={`/map${query({ service: s.service })}`}>On the map</Link>
      </p>
      <Trends of={d} range={range} setRange={setRange} />
      {d.operations.length > 0 && <Operations of={d} />}
      <Inside of={d} />
      <div className="columns tables">
        <Calls title="Called by" of={d.callers} other="caller" />
        <Calls title="Calls" of={d.callees} other="callee" />
      </div>
      <Instances of={d} />
      <Annotations of={d} />
    </>
  );
}

const ownMeans =
  "Mean time per call on the critical path in the service itself, over all its operations. It includes the time on the wire of calls without a client span";

// Incidents lists the open incidents that suspect the service.
function Incidents({ of: s }: { of: Schemas["Service"] }) {
  const { value } = useIncidents();
  const found = s.incidents
    .filter((x) => x.rank === 1)
    .map((x) => value?.items.find((incident) => incident.id === x.id))
    .filter((x) => x !== undefined);
  if (found.length === 0) return null;
  return (
    <ul className="plain does-list">
      {found.map((x) => (
        <li key={x.id}>
          <Link href={`/incidents/${x.id}`}>
            <Sentence of={x.sentence_parts} />
          </Link>
        </li>
      ))}
    </ul>
  );
}

function Trends({ of: d, range, setRange }: { of: Detail; range: Range; setRange: (text: string) => void }) {
  const s = d.service;
  const { value: incidents } = useIncidents();
  const suspecting = (incidents?.items ?? []).filter((x) => x.suspects.some((y) => y.service === s.service));
  const marks: Mark[] = [...marksOf(d.annotations), ...incidentMarks(suspecting)];
  if (!s.trend) return null;
  const { p50_ns: p50 = [], p99_ns: p99 = [] } = s.trend;
  const common = { from: Date.parse(d.from), bin: d.bin_ns / 1e6, marks };
  return (
    <Figure
      title="Over time"
      tools={<RangeSelect value={range} pick={setRange} />}
      hint="Dashed: usual values. ▲ Deploys and other annotations. Dashed upright: incidents that suspect the service, from onset to end. P50 and P99 are measured every two minutes. Hover over the bars, or use the arrow keys, to read their values."
      table={() => ({
        header: ["from", "rate (1/s)", "failed (of 1)", "P50 (ms)", "P99 (ms)", "own time (ms)"],
        rows: s.trend!.rate.map((r, i) => [
          new Date(common.from + i * common.bin).toISOString(),
          r,
          s.trend!.failed[i] ?? null,
          milli(p50[i]),
          milli(p99[i]),
          milli(s.trend!.own_ns[i]),
        ]),
      })}
    >
      <p className="under">
        <SinceNote from={d.from} asked={range.from} alone />
      </p>
      <div className="trends">
        <section>
          <h3>Calls per second</h3>
          <Trend
            {...common}
            label="Calls per second"
            values={s.trend.rate}
            usual={s.usual?.rate ?? null}
            format={rate}
          />
        </section>
        <section>
          <h3>Failed calls</h3>
          <Trend
            {...common}
            label="Share of failed calls"
            values={s.trend.failed}
            usual={s.usual?.failed ?? null}
            format={percent}
            least={0.01}
          />
        </section>
        {p50.some((x) => x !== null) &&
          (["p50_ns", "p99_ns"] as const).map((figure) => (
            <section key={figure}>
              <h3>{figure === "p50_ns" ? "Median duration" : "99th percentile of the durations"}</h3>
              <Trend
                {...common}
                label={figure === "p50_ns" ? "Median duration" : "99th percentile of the durations"}
                values={figure === "p50_ns" ? p50 : p99}
                usual={s.usual?.[figure] ?? null}
                format={duration}
              />
            </section>
          ))}
        <section>
          <h3>{s.emits_spans ? "Own time of a call" : "Time of a call"}</h3>
          <Trend
            {...common}
            label="Mean own time of a call"
            values={s.trend.own_ns}
            usual={s.usual?.own_ns ?? null}
            format={duration}
          />
        </section>
      </div>
    </Figure>
  );
}

type Operation = Schemas["ServiceOperation"];

const sorts = ["state", "operation", "rate", "failed", "p50", "p99", "own"] as const;
const keys: Record<(typeof sorts)[number], (o: Operation) => number | string | null> = {
  state: (o) => states.indexOf(o.state),
  operation: (o) => o.operation,
  rate: (o) => o.now.rate,
  failed: (o) => o.now.failed,
  p50: (o) => o.now.p50_ns,
  p99: (o) => o.now.p99_ns,
  own: (o) => o.now.own_ns,
};

function Operations({ of: d }: { of: Detail }) {
  const [sort, setSort] = useEnum("sort", sorts);
  const falling = sort !== "state" && sort !== "operation";
  const rows = useMemo(
    () => sortedBy(d.operations, keys[sort], falling, (o) => o.operation),
    [d.operations, sort, falling],
  );
  const head = (text: string, by: (typeof sorts)[number], number = true, title?: string) => ({
    text,
    number,
    ...(title && { title }),
    sort: {
      by: () => setSort(by),
      ...(sort === by && { is: falling ? ("descending" as const) : ("ascending" as const) }),
    },
  });
  return (
    <Figure
      title="Operations"
      hint="Operations that others call, over all callers. Usual values are in small print."
      table={() => ({
        header: ["operation", "kind", "state", "rate (1/s)", "failed (of 1)", "P50 (ms)", "P99 (ms)", "own time (ms)"],
        rows: d.operations.map((o) => [
          o.operation,
          o.kind,
          o.state,
          o.now.rate,
          o.now.failed,
          milli(o.now.p50_ns),
          milli(o.now.p99_ns),
          milli(o.now.own_ns),
        ]),
      })}
      tableOnly
    >
      <Table
        label="Operations"
        className="operations"
        head={[
          head("Operation", "operation", false),
          head("State", "state", false),
          head("Rate", "rate"),
          head("Errors", "failed"),
          head("P50", "p50"),
          head("P99", "p99"),
          head(
            "Span alone",
            "own",
            true,
            "Mean time per call on the critical path in this span alone. The service's own time above also includes the operations inside it",
          ),
        ]}
      >
        {rows.map((o) => (
          <tr key={`${o.operation} ${o.kind}`}>
            <td>
              <Link
                className="mono"
                href={`/traces${query({ service: d.service.service, operation: o.operation })}`}
                title="Kept traces with this operation"
              >
                <bdi>{o.operation}</bdi>
              </Link>
            </td>
            <td title={o.reason}>
              <ServiceBadge of={o} />
            </td>
            <td className="number">
              <Beside now={rate(o.now.rate)} usual={o.usual && rate(o.usual.rate)} notable={o.state === "silent"} />
            </td>
            <td className="number">
              <LoadFigure of={o} figure="failed" />
            </td>
            <td className="number">
              <LoadFigure of={o} figure="p50_ns" />
            </td>
            <td className="number">
              <LoadFigure of={o} figure="p99_ns" />
            </td>
            <td className="number">
              <LoadFigure of={o} figure="own_ns" />
            </td>
          </tr>
        ))}
      </Table>
      {d.more_operations > 0 && <p className="under">{count(d.more_operations)} more with fewer calls.</p>}
    </Figure>
  );
}

const shownInside = 10;
const tick = 120_000; // ms; durations are measured by it

// Inside lists the operations inside the service that no other service calls, and the calls that it makes.
function Inside({ of: d }: { of: Detail }) {
  const [inside, setInside] = useEnum("inside", ["few", "all"]);
  const all = inside === "all";
  if (d.inside.length === 0) return null;
  return (
    <Figure
      title="Inside it"
      hint="Operations that no other service calls, and calls to other services; those that take the most time first. Usual values are in small print."
      table={() => ({
        header: [
          "operation",
          "kind",
          "spans",
          "from",
          "to",
          "mean (ms)",
          "P50 (ms)",
          "usual P50 (ms)",
          "P99 (ms)",
          "usual P99 (ms)",
        ],
        rows: d.inside.map((o) => [
          o.name,
          o.kind,
          o.spans,
          o.from,
          o.to,
          milli(o.mean_ns),
          milli(o.p50_ns),
          milli(o.usual_p50_ns),
          milli(o.p99_ns),
          milli(o.usual_p99_ns),
        ]),
      })}
      tableOnly
    >
      <Table
        label="Inside it"
        className="results"
        head={[
          "Operation",
          { text: "Mean", number: true },
          { text: "P50", number: true },
          { text: "P99", number: true },
        ]}
      >
        {d.inside.slice(0, all ? d.inside.length : shownInside).map((o) => (
          <tr key={`${o.name} ${o.kind}`}>
            <td>
              <Link
                className="mono"
                href={`/traces${query({ service: d.service.service, operation: o.operation })}`}
                title="Kept traces with this operation"
              >
                <bdi>{o.name}</bdi>
              </Link>
              {Date.parse(d.to) - Date.parse(o.to) > tick && (
                <span className="dim small">
                  {" "}
                  measured <When at={o.from} brief /> to <When at={o.to} brief />, no spans since
                </span>
              )}
            </td>
            <td className="number">{duration(o.mean_ns)}</td>
            <td className="number">
              <Time now={o.p50_ns} usual={o.usual_p50_ns} />
            </td>
            <td className="number">
              <Time now={o.p99_ns} usual={o.usual_p99_ns} />
            </td>
          </tr>
        ))}
      </Table>
      <More rest={d.inside.length - shownInside} shown={all} toggle={() => setInside(all ? "few" : "all")} />
    </Figure>
  );
}

// Calls lists the calls from or to other services.
function Calls({ title, of, other }: { title: string; of: Call[]; other: "caller" | "callee" }) {
  return (
    <Figure
      title={title}
      table={() => ({
        header: [other, "rate (1/s)", "usual rate (1/s)", "failed (of 1)", "time between them (ms)"],
        rows: of.map((c) => [c[other], c.now.rate, c.usual?.rate ?? null, c.now.failed, milli(c.now.own_ns)]),
      })}
      tableOnly
    >
      {of.length === 0 ? (
        <p className="dim">
          {other === "caller" ? "Its spans show only calls from outside." : "It calls no other service."}
        </p>
      ) : (
        <Table label={title} className="results" head={["Service", ...callColumns]}>
          {of.map((c) => (
            <tr key={c[other]}>
              <td>
                <Link href={servicePath(c[other])}>
                  <Name>{c[other]}</Name>
                </Link>
              </td>
              <CallCells of={c} />
            </tr>
          ))}
        </Table>
      )}
    </Figure>
  );
}

function Instances({ of: d }: { of: Detail }) {
  const groups = [...new Set(d.instances.map((x) => x.key))];
  return (
    <Figure
      title="Instances"
      table={() => ({
        header: [
          "attribute",
          "value",
          "rate (1/s)",
          "failed (of 1)",
          "mean (ms)",
          "P50 (ms)",
          "P99 (ms)",
          "own time (ms)",
          "first seen",
          "last seen",
        ],
        rows: d.instances.map((x) => [
          x.key,
          x.value,
          x.now.rate,
          x.now.failed,
          milli(x.now.mean_ns),
          milli(x.now.p50_ns),
          milli(x.now.p99_ns),
          milli(x.now.own_ns),
          x.first_seen,
          x.last_seen,
        ]),
      })}
      tableOnly
    >
      {groups.length === 0 ? (
        <p className="dim">
          Its spans have no <code>service.instance.id</code>, <code>k8s.pod.name</code> or <code>host.name</code>.
        </p>
      ) : (
        groups.map((key) => (
          <Table
            key={key}
            label={key}
            className="results instances"
            head={[
              key,
              { text: "Rate", number: true },
              { text: "Errors", number: true },
              { text: "Mean", number: true, title: "Mean duration of the spans that answer calls there" },
              { text: "P50", number: true },
              { text: "P99", number: true },
              { text: "Own time", number: true, title: "Mean own time per call there, including time on the wire" },
            ]}
          >
            {d.instances
              .filter((x) => x.key === key)
              .map((x) => (
                <tr key={x.value}>
                  <td className="mono">
                    <bdi>{x.value}</bdi>{" "}
                    {x.now.calls === 0 && (
                      <span className="dim small">
                        last seen <When at={x.last_seen} brief />
                      </span>
                    )}
                  </td>
                  <td className="number">{rate(x.now.rate)}</td>
                  <td className="number">{percent(x.now.failed)}</td>
                  <td className="number">{duration(x.now.mean_ns)}</td>
                  <td className="number">{duration(x.now.p50_ns)}</td>
                  <td className="number">{duration(x.now.p99_ns)}</td>
                  <td className="number">{duration(x.now.own_ns)}</td>
                </tr>
              ))}
          </Table>
        ))
      )}
    </Figure>
  );
}

function Annotations({ of: d }: { of: Detail }) {
  return (
    <Figure
      title="Annotations"
      table={() => ({
        header: ["at", "kind", "title", "link"],
        rows: d.annotations.map((x) => [x.at, x.kind, x.title, x.link]),
      })}
      tableOnly
    >
      {d.annotations.length === 0 ? (
        <p className="dim">
          No new <code>service.version</code> since Sibyl first saw this service, and no reported deploys or changes.
        </p>
      ) : (
        <ul className="plain">
          {d.annotations.map((x) => (
            <li key={x.id}>
              {x.link ? (
                <a href={x.link} rel="noreferrer">
                  <bdi>{describeAnnotation(x)}</bdi>
                </a>
              ) : (
                <bdi>{describeAnnotation(x)}</bdi>
              )}
              , <When at={x.at} />
              {x.tags.length > 0 && <span className="dim"> {x.tags.join(", ")}</span>}
            </li>
          ))}
        </ul>
      )}
    </Figure>
  );
}
