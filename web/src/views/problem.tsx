// Problem: a problem with its evidence, from the diagnosis to sample traces.
import { useEffect, useState } from "react";
import { Link } from "wouter";
import { type Schemas, client } from "../api/client.ts";
import type { Mark } from "../charts/heatmap.tsx";
import { type Resource, useIncidents, useResource } from "../api/queries.ts";
import { bySection } from "../logic/diagnosis.ts";
import { type Phrase, namesIn } from "../logic/sentences.ts";
import { annotationsSince, marksOf } from "../logic/annotations.ts";
import { count, duration, lost, ratio, milli, percent, range, rate, factor, span } from "../logic/format.ts";
import { isInIncident, isUnsearched } from "../logic/incidents.ts";
import { markdown } from "../logic/markdown.ts";
import { Bar, type Fact, Facts, When, useTitle } from "../components/basics.tsx";
import { Figure, saveFile } from "../components/figure.tsx";
import { Table } from "../components/table.tsx";
import { Menu } from "../components/menu.tsx";
import { Abbreviated, isAbbreviated } from "../components/abbreviated.tsx";
import { Empty, Async } from "../components/async-state.tsx";
import { copyText } from "../components/toast.tsx";
import { StateBadge, ProblemTags } from "../components/badges.tsx";
import { OpName, Sentence, useSteady } from "../components/names.tsx";
import { useNow } from "../settings.ts";
import { query, useSectionPath } from "../url.ts";
import { Attributes, significant } from "./attributes.tsx";
import { CriticalPath } from "./edges.tsx";
import { Exemplars, type ExemplarsResource, isBefore, traceLink } from "./exemplars.tsx";
import { Causes, Explanations } from "./explanations.tsx";
import { Latency } from "./latency.tsx";
import { LocatedPlace } from "./located.tsx";
import { LatencyOverTime } from "./over-time.tsx";
import { NoteButtons, problemSubject } from "./notes.tsx";
import { ComparisonTable, comparisonData } from "./comparison-table.tsx";
import { Timeline } from "./timeline.tsx";

type Detail = Schemas["ProblemDetail"];
type Problem = Schemas["Problem"];

export default function ProblemView({ id }: { id: string }) {
  const resource = useResource(
    `problem ${id}`,
    (signal) => client.GET("/problems/{problem}", { params: { path: { problem: id } }, signal }),
    true,
  );
  if (resource.failure && [400, 404].includes(resource.failure.status))
    return isAbbreviated(id, idDigits) ? <Beginning of={id} /> : <NotFound was={resource.value?.problem.diagnosis} />;
  return (
    <Async of={resource} what="the problem">
      {(detail) =>
        detail.problem.closed ? (
          <Closed detail={detail} reload={resource.reload} />
        ) : (
          <Content detail={detail} reload={resource.reload} />
        )
      }
    </Async>
  );
}

const idDigits = 32;

// Beginning leads to the open or else the closed problem whose ID begins with some digits.
function Beginning({ of: id }: { of: string }) {
  const search = (closed: boolean) => ({ q: id, muted: "all", closed }) as const;
  const open = useResource(`problems ${id}`, (signal) =>
    client.GET("/problems", { params: { query: search(false) }, signal }),
  );
  const closed = useResource(`closed problems ${id}`, (signal) =>
    client.GET("/problems", { params: { query: search(true) }, signal }),
  );
  return (
    <Abbreviated id={id} among={open} path="/problems/">
      <Abbreviated id={id} among={closed} path="/problems/">
        <NotFound />
      </Abbreviated>
    </Abbreviated>
  );
}

const NotFound = ({ was }: { was?: string | undefined }) => (
  <Empty page title="Problem not found">
    It closed long ago, or never existed. <Link href="/problems">Current problems</Link>,{" "}
    <Link href="/problems?show=closed">closed problems</Link>
    {was && <> · It was: {was}</>}
  </Empty>
);

// useOpenIncident returns the open incident that a problem is part of.
const useOpenIncident = (problem: string) =>
  useIncidents().value?.items.find((x) => x.state === "open" && x.problems.includes(problem));

// useBegan returns when a problem that is a change began, in ms: at the onset of its incident or, without one, when it
// opened; null: it is no change.
function useBegan(p: Problem): number | null {
  const x = useOpenIncident(p.id);
  if (p.onset !== "changed" || p.since === null) return null;
  return Math.min(Date.parse(p.since), x ? Date.parse(x.onset) : Infinity);
}

const hour = 3_600_000;

// Closed shows a problem as it was when it closed, without the comparisons of present requests.
function Closed({ detail, reload }: { detail: Detail; reload: () => void }) {
  const p = detail.problem;
  const began = useBegan(p);
  useTitle(useSteady(p.diagnosis, p.diagnosis_parts, p.id));
  const exemplars = useResource(`kept exemplars ${p.id}`, (signal) =>
    client.GET("/exemplars", { params: { query: { group: p.group, problem: p.id } }, signal }),
  );
  const now = useNow();
  const closed = Date.parse(p.closed!);
  const [until] = useState(Math.min(now, closed + hour)); // the chart stays as it is
  const opened = p.since ? Date.parse(p.since) : closed - hour;
  const span = { from: new Date(opened - hour).toISOString(), to: new Date(until).toISOString() };
  const around = useResource(`annotations ${p.id}`, (signal) =>
    client.GET("/annotations", { params: { query: { limit: 1000, ...span } }, signal }),
  );
  const services = new Set(detail.edges.map((e) => e.place.service));
  const annotations = annotationsSince([span], around.value?.items ?? [], services);
  const marks: Mark[] = [
    { at: opened, text: "problem", title: "The problem opened" },
    { at: closed, text: "closed", title: "The problem closed" },
    ...marksOf(annotations),
  ];
  return (
    <>
      <Head detail={detail} exemplars={exemplars} reload={reload} />
      <LatencyOverTime
        group={p.group}
        times={{ from: opened - hour, to: until, live: false }}
        edge={opened}
        marks={marks}
        expected={p.expected_ns}
        link={{ problem: p.id }}
        annotations={annotations}
      />
      {detail.located && <LocatedPlace of={detail.located} search={{ problem: p.id }} />}
      <CriticalPath p={p} scored={detail.edges} all={[]} mean={p.mean_ns} />
      <div className="causes">
        {detail.explanations.length > 0 && <Explanations detail={detail} />}
        <Causes detail={detail} />
      </div>
      <Exemplars exemplars={exemplars} problem={p} began={began} />
      <Timeline detail={detail} annotations={annotations} changed={reload} />
    </>
  );
}

function Content({ detail, reload }: { detail: Detail; reload: () => void }) {
  const p = detail.problem;
  const began = useBegan(p);
  useTitle(useSteady(p.diagnosis, p.diagnosis_parts, p.id));
  const group = useResource(
    `group ${p.group}`,
    (signal) => client.GET("/groups/{group}", { params: { path: { group: p.group } }, signal }),
    true,
  );
  const exemplars = useResource(
    `exemplars ${p.group}`,
    (signal) => client.GET("/exemplars", { params: { query: { group: p.group } }, signal }),
    true,
  );
  const comparison = useResource(
    `slowest ${p.group}`,
    (signal) => client.GET("/groups/{group}/compare", { params: { path: { group: p.group } }, signal }),
    true,
  );
  const attributes = comparison.value?.attributes;
  const differs = attributes !== undefined && attributes.a > 0 && attributes.b > 0;
  const explained = differs && attributes.items.some((x) => x.p_value <= significant);
  const correlated = detail.explanations.length > 0;
  const edges = detail.edges;
  const windows = group.value?.windows.filter((w) => w.count > 0) ?? [];
  const since = windows[0]?.from;
  const recent = useResource(
    since ? `annotations ${p.group}` : null,
    (signal) =>
      client.GET("/annotations", { params: { query: { limit: 1000, ...(since && { from: since }) } }, signal }),
    true,
  );
  const services = new Set([...(group.value?.edges ?? []), ...edges].map((e) => e.place.service));
  const annotations = recent.failure ? undefined : annotationsSince(windows, recent.value?.items ?? [], services);
  const loaded = group.value !== undefined;
  useEffect(() => {
    // The section was missing when the browser looked for it.
    if (loaded && location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
  }, [loaded]);
  return (
    <>
      <Head detail={detail} exemplars={exemplars} reload={reload} />
      <Async of={group} what="the requests">
        {(g) => (
          <>
            <Latency group={g} problem={p} began={began} decisions={detail.decisions} annotations={annotations} />
            {detail.located && <LocatedPlace of={detail.located} search={{ problem: p.id }} />}
            <CriticalPath p={p} scored={edges} all={g.edges} mean={g.group.mean_ns} />
          </>
        )}
      </Async>
      <div className="causes">
        {(correlated || !explained) && <Explanations detail={detail} />}
        <Causes detail={detail} />
      </div>
      {detail.refined.length > 0 && (
        <Refined
          of={detail.refined}
          within={new Map([...(group.value?.edges ?? []), ...edges].map((e) => [e.place.edge, e.place.label]))}
        />
      )}
      <Exemplars exemplars={exemplars} problem={p} began={began} />
      <div className="causes folded">
        <Slowest p={p} comparison={comparison} />
        {differs && (
          <Attributes
            title="Attributes: slowest tenth vs. the rest"
            kind="slowest"
            of={attributes}
            folded={correlated || !explained}
          />
        )}
        <Timeline detail={detail} annotations={annotations ?? []} changed={reload} />
      </div>
    </>
  );
}

function Head({ detail, exemplars, reload }: { detail: Detail; exemplars: ExemplarsResource; reload: () => void }) {
  const p = detail.problem;
  const path = useSectionPath();
  const asFile = () =>
    saveFile(`${p.id}.json`, new Blob([JSON.stringify(detail, null, 1)], { type: "application/json" }));
  const parts = useSteady(p.diagnosis_parts, p.diagnosis_parts, p.id);
  return (
    <>
      <div className="crumbs">
        <Link href="/problems">Problems</Link> <span aria-hidden="true">›</span>{" "}
        {p.closed ? <Link href="/problems?show=closed">closed</Link> : `#${p.rank}`}{" "}
        <ProblemTags onset={p.onset} kind={p.kind} />
        <span>
          {p.level === "group" ? `one group of ${p.request_type_name}` : `all requests of ${p.request_type_name}`}
        </span>
      </div>
      <h1 className="diagnosis">
        {bySection(parts).map(({ section, of }, i) =>
          section ? (
            <a key={i} href={path(section)}>
              <Sentence of={of} />
            </a>
          ) : (
            <Sentence key={i} of={of} />
          ),
        )}
      </h1>
      <Facts
        of={[
          p.since
            ? ["Since", <When key="since" at={p.since} />, "When the problem opened"]
            : ["Since", "unknown", "Sibyl has never seen these requests without it: it is chronic"],
          ...(p.closed
            ? [["Closed", <When key="closed" at={p.closed} />, "All other values are from that time"] satisfies Fact]
            : []),
          [
            "CoV",
            <>
              {ratio(p.cov.value)} <span className="dim small">{range(p.cov, ratio)}</span>
            </>,
            "Coefficient of variation with its 95 % interval",
          ],
          [
            "Mean",
            <>
              {duration(p.mean_ns)}
              {p.expected_ns !== null && (
                <span className="dim small">
                  {" "}
                  {factor(p.mean_ns / p.expected_ns)} the expected {duration(p.expected_ns)}
                </span>
              )}
            </>,
          ],
          ["P50", duration(p.p50_ns)],
          ["P99", duration(p.p99_ns)],
          ["Rate", rate(p.rate)],
          [
            "Impact",
            lost(p.impact),
            "Time that all requests together lose per second, above the expected mean or, if that is unknown, above the median",
          ],
          [
            "Requests",
            `${count(p.requests)}${p.rate ? ` in ${span((p.requests / p.rate) * 1e9)}` : ""}`,
            "Requests that these figures are based on: since they were last normal, for at most an hour",
          ],
        ]}
      />
      <div className="does">
        {!p.closed && !isUnsearched(p) && <StateBadge of={isInIncident(p) ? "joined" : p.state} />}
        <PartOf id={p.id} next={detail.next_parts} joined={!p.closed && isInIncident(p)} />
        {detail.missing.some((m) => !namesIn(detail.next_parts).includes(m)) && (
          <span className="dim">No tracepoints in: {detail.missing.join(", ")}.</span>
        )}
      </div>
      <div className="toolbar">
        {!p.closed && <NoteButtons of={problemSubject(p)} changed={reload} />}
        <SampleLinks p={p} exemplars={exemplars} />
        <Link href={`/trees/${p.request_type}${query({ problem: p.id })}`}>Calling contexts</Link>
        <Link href={`/compare${query({ group: p.group })}`}>Compare</Link>
        <Menu
          label="Share this problem"
          icon="Share"
          items={[
            { text: "Copy the link", act: () => void copyText(location.href) },
            { text: "Copy as Markdown", act: () => void copyText(markdown(detail, location.href)) },
            { text: "Save as JSON", act: asFile },
          ]}
        />
      </div>
    </>
  );
}

// PartOf links to the open incident that a problem belongs to, and tells the next step of a problem without one or with
// a search of its own.
function PartOf({ id, next, joined }: { id: string; next: readonly Phrase[]; joined: boolean }) {
  const x = useOpenIncident(id);
  return (
    <>
      {x && (
        <span>
          Part of an <Link href={`/incidents/${x.id}`}>open incident</Link>
          {joined ? (
            ", which Sibyl investigates as a whole."
          ) : (
            <>
              : <Sentence of={x.sentence_parts} />
            </>
          )}
        </span>
      )}
      {!(x && joined) && <span>{next.length > 0 ? <Sentence of={next} /> : "No action in progress."}</span>}
    </>
  );
}

// SampleLinks links to a slow sample trace, and to a typical one if all requests are slow. A sample from before the
// problem says so: it is typical of healthy times.
function SampleLinks({ p, exemplars }: { p: Problem; exemplars: ExemplarsResource }) {
  const began = useBegan(p);
  const strata = p.kind === "slow" ? ["typical", "slow"] : ["slow"];
  const found = strata
    .map((s) => {
      const all = exemplars.value?.items.filter((e) => e.stratum === s) ?? [];
      return all.find((e) => !isBefore(e, began)) ?? all[0];
    })
    .filter((e) => e !== undefined);
  return (
    <span className="push requests">
      {found.map((e) => (
        <Link key={e.stratum} href={traceLink(e, p.id)}>
          {`A ${e.stratum} request${isBefore(e, began) ? " from before the problem" : ""}, ${duration(e.duration_ns)}`}
        </Link>
      ))}
    </span>
  );
}

// Slowest lists the locations in which the slowest requests spend more time than the others.
function Slowest({ p, comparison }: { p: Problem; comparison: Resource<Schemas["Comparison"]> }) {
  return (
    <Figure
      id="slowest"
      title="Slowest tenth vs. the rest"
      tools={<Link href={`/compare${query({ group: p.group })}`}>Full comparison</Link>}
      table={() => comparisonData(comparison.value)}
      tableOnly
      folded
    >
      <Async of={comparison} what="the comparison">
        {(c) =>
          c.a.requests === 0 || c.b.requests === 0 ? (
            <p className="dim">Too few requests were sampled to compare.</p>
          ) : (
            <>
              <p className="hint dim small">
                Sampled in the last three hours: {duration(c.a.mean_ns)} ({count(c.a.requests)} requests) vs.{" "}
                {duration(c.b.mean_ns)} ({count(c.b.requests)})
              </p>
              <ComparisonTable label="Slowest tenth vs. the rest" kind="slowest" c={c} few={6} />
            </>
          )
        }
      </Async>
    </Figure>
  );
}

// Refined shows the results of the tracepoints that requests reached, and names the others. within maps edges to names.
function Refined({ of: all, within: names }: { of: Schemas["Refined"][]; within: ReadonlyMap<string, string> }) {
  // Arms of the plan with other tracepoints have results of their own: the one with the most requests is listed.
  const of = all.filter(
    (r, i) =>
      r.hits > 0 &&
      !all.some(
        (o, k) =>
          o.tracepoint === r.tracepoint &&
          o.within === r.within &&
          o.operation === r.operation &&
          (o.requests > r.requests || (o.requests === r.requests && k < i)),
      ),
  );
  const reached = new Set(of.map((r) => r.tracepoint));
  const idle = [...new Set(all.filter((r) => r.hits === 0).map((r) => r.tracepoint))].filter((t) => !reached.has(t));
  return (
    <Figure
      id="refined"
      title="Tracepoint results"
      hint="Inside the edges above, for requests with these tracepoints on."
      table={() => ({
        header: [
          "operation",
          "within",
          "requests",
          "hits",
          "share of variance (of 1)",
          "low (of 1)",
          "high (of 1)",
          "mean (ms)",
        ],
        rows: of.map((r) => [
          r.operation,
          names.get(r.within) ?? r.within,
          r.requests,
          r.hits,
          r.share.value,
          r.share.low,
          r.share.high,
          milli(r.mean_ns),
        ]),
      })}
      tableOnly
    >
      {of.length > 0 && <RefinedTable of={of} names={names} />}
      {idle.length > 0 && <p className="under dim small">Not reached by any request: {idle.join(", ")}.</p>}
    </Figure>
  );
}

function RefinedTable({ of, names }: { of: Schemas["Refined"][]; names: ReadonlyMap<string, string> }) {
  return (
    <Table
      label="Tracepoint results"
      className="results"
      head={["Operation", "Share of variance", { text: "Mean", number: true }, { text: "Requests", number: true }]}
    >
      {of.map((r, i) => (
        <tr key={i}>
          <td title={r.context.join(" → ")}>
            <OpName>{r.operation}</OpName>{" "}
            {names.has(r.within) && <span className="dim small">within {names.get(r.within)}</span>}
          </td>
          <td className="bars">
            {percent(r.share.value)} <span className="dim small range">{range(r.share, percent)}</span>
            <Bar of={r.share.value} low={r.share.low} high={r.share.high} />
          </td>
          <td className="number nowrap">{duration(r.mean_ns)}</td>
          <td className="number">{count(r.requests)}</td>
        </tr>
      ))}
    </Table>
  );
}
