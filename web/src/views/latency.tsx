// Latency: durations of a group's requests over time, and their distribution.
import type { ReactNode } from "react";
import { Link, useLocation } from "wouter";
import { type Schemas, client } from "../api/client.ts";
import { useResource } from "../api/queries.ts";
import { HeatMap, type Mark } from "../charts/heatmap.tsx";
import { Histogram } from "../charts/histogram.tsx";
import { Lines } from "../charts/lines.tsx";
import { deploysByWindow, describeDeploy } from "../logic/deploys.ts";
import { count, duration, ratio, milli, time } from "../logic/format.ts";
import { quantile } from "../logic/heatmap.ts";
import { Choice } from "../components/controls.tsx";
import { Figure } from "../components/figure.tsx";
import { meanBefore, pastPoints, shiftOf } from "../logic/past.ts";
import { RangeSelect, useRange } from "../components/range.tsx";
import { useNow, useZone } from "../settings.ts";
import { query, useEnum } from "../url.ts";
import { BeforeChoice, BeforeNote, PastLatency, behindOf, useBefore, useHistory } from "./past-latency.tsx";

// deploys are those of the services on the path, oldest first; undefined if they could not be loaded.
type Props = {
  group: Schemas["GroupDetail"];
  problem: Schemas["Problem"];
  decisions: Schemas["Decision"][];
  deploys: Schemas["Deploy"][] | undefined;
};

export function Latency({ group, problem, decisions, deploys }: Props) {
  return (
    <div className="columns wide-left" id="latency">
      <OverTimeOf group={group} problem={problem} decisions={decisions} deploys={deploys} />
      <Figure
        title="Duration distribution"
        hint={`${count(group.judged)} requests, CoV ${ratio(group.cov.value)}; logarithmic axis.`}
        table={() => ({
          header: ["above (ms)", "to (ms)", "requests"],
          rows: group.histogram.map((b) => [b.low_ns / 1e6, b.high_ns / 1e6, b.count]),
        })}
      >
        <Histogram
          bins={group.histogram}
          p50={group.p50_ns}
          p99={group.p99_ns}
          label="Distribution of durations; the table has the numbers"
        />
      </Figure>
    </div>
  );
}

const recent = 2 * 3_600_000; // ms, for which windows with histograms are kept at least

// OverTimeOf shows the windows of the time range: the recent ones with their distributions, or those of past days.
function OverTimeOf(props: Props) {
  const [range, setRange] = useRange();
  const select = <RangeSelect value={range} pick={setRange} />;
  if (range.live && range.to - range.from <= recent) return <OverTime {...props} from={range.from} span={select} />;
  return (
    <PastLatency
      group={props.group.group.id}
      from={range.from}
      to={range.to}
      marks={marksOf(props.problem, props.decisions, props.deploys ?? [])}
      tools={select}
    />
  );
}

function OverTime({ group, problem, decisions, deploys, from, span }: Props & { from: number; span: ReactNode }) {
  const [, go] = useLocation();
  const [as, setAs] = useEnum("latency", ["map", "lines"]);
  const id = group.group.id;
  const exemplars = useResource(
    `exemplars ${id}`,
    (signal) => client.GET("/exemplars", { params: { query: { group: id } }, signal }),
    true,
  );
  const windows = group.windows.filter((w) => w.count > 0 && Date.parse(w.to) > from);
  const marks = marksOf(problem, decisions, deploys ?? []);
  const brush = (from: number, to: number, longer = 0, shorter = Infinity) => {
    const at = (ms: number) => new Date(ms).toISOString();
    const box = { group: id, from: at(from), to: at(to) };
    if (longer > 0 || shorter < Infinity) {
      go(
        `/compare${query({ ...box, by: "duration", longer: longer > 0 ? String(Math.round(longer)) : "", shorter: shorter < Infinity ? String(Math.round(shorter)) : "" })}`,
      );
      return;
    }
    go(`/compare${query({ ...box, by: "time", base_from: windows[0]?.from, base_to: box.from })}`);
  };
  const dots = (exemplars.value?.items ?? []).map((e) => ({
    at: Date.parse(e.start),
    ns: e.duration_ns,
    title: `${e.stratum} request of ${duration(e.duration_ns)}: open its trace`,
    go: () => go(`/traces/${e.trace}${query({ problem: problem.id })}`),
  }));
  const deployed = deploysByWindow(windows, deploys ?? []);
  const middle = windows.map((w) => (Date.parse(w.from) + Date.parse(w.to)) / 2);
  const [before, setBefore] = useBefore();
  const first = windows[0] ? Date.parse(windows[0].from) : 0;
  const last = windows.length > 0 ? Date.parse(windows.at(-1)!.to) : 0;
  const past = useHistory(before !== "none" && windows.length > 0 ? id : null, first, last, before);
  const compared = past.value?.compared ?? [];
  const points = pastPoints(compared, shiftOf(before), first, last, middle);
  return (
    <Figure
      title="Latency over time"
      hint={
        as === "map"
          ? "Darker: more requests. Dots: sample traces. Drag across to compare a time range with before, or drag a box to compare the sampled requests in it with the rest; arrow keys read the columns. Recent windows are shorter than older ones."
          : "Drag to compare a time range with before. Recent windows are shorter than older ones."
      }
      tools={
        <>
          <Link href={`/compare${query({ group: id, by: "duration" })}`}>Select range</Link> {span}
          <BeforeChoice value={before} pick={setBefore} />
          <Choice
            label="Show as"
            value={as}
            pick={setAs}
            of={[
              ["map", "Heat map"],
              ["lines", "Lines"],
            ]}
          />
        </>
      }
      table={() => ({
        header: [
          "from",
          "to",
          "requests",
          "failed",
          "mean (ms)",
          "P50 (ms)",
          "P99 (ms)",
          "CoV",
          "deploys",
          ...(before === "none" ? [] : [`mean ${before.replace("_", " ")} (ms)`]),
        ],
        rows: windows.map((w, i) => [
          w.from,
          w.to,
          w.count,
          w.failed,
          milli(w.mean_ns),
          milli(quantile(w.latency, 0.5)),
          milli(quantile(w.latency, 0.99)),
          w.cov,
          deployed[i]!.map(describeDeploy).join("; "),
          ...(before === "none"
            ? []
            : [milli(meanBefore(compared, shiftOf(before), Date.parse(w.from), Date.parse(w.to)))]),
        ]),
      })}
    >
      {windows.length === 0 && <p className="dim">No window has ended yet.</p>}
      {windows.length > 0 && as === "map" && (
        <HeatMap
          windows={windows}
          marks={marks}
          dots={dots}
          behind={points}
          expected={problem.expected_ns ?? null}
          brush={brush}
          label={`Durations in ${windows.length} windows; the table has the numbers`}
        />
      )}
      {windows.length > 0 && as === "lines" && (
        <Lines
          label={`Durations in ${windows.length} windows; the table has the numbers`}
          at={middle}
          series={[
            { name: "P99", color: "critical", values: windows.map((w) => quantile(w.latency, 0.99)) },
            { name: "Mean", color: "bar", dash: [2, 3], values: windows.map((w) => w.mean_ns) },
            { name: "P50", color: "dim", dash: [6, 4], values: windows.map((w) => quantile(w.latency, 0.5)) },
          ]}
          {...behindOf(points, before)}
          marks={marks}
          brush={brush}
        />
      )}
      <BeforeNote before={before} end={last} of={past} drawn={points.length > 0} />
      <Deploys of={deploys} />
    </Figure>
  );
}

const maxNamed = 3; // deploys

// Deploys names the latest deploys, since the chart shows them only under the pointer.
function Deploys({ of }: { of: Props["deploys"] }) {
  const [zone] = useZone();
  const now = useNow();
  if (!of) return <p className="hint dim small">Deploys could not be loaded.</p>;
  if (of.length === 0) return null;
  const named = of.slice(-maxNamed).map((d) => `${describeDeploy(d)}, ${time(d.at, zone, now)}`);
  return (
    <p className="hint dim small">
      ▲ Deploys on the path: {named.join("; ")}
      {of.length > maxNamed && `; ${count(of.length - maxNamed)} earlier in the table`}
    </p>
  );
}

function decisionLabel(d: Schemas["Decision"]): string {
  if (d.picks.length > 0) return "on";
  return d.off.length > 0 ? "off" : d.to;
}

// marksOf returns the marks of the start of the problem, of deploys and of decisions.
function marksOf(problem: Schemas["Problem"], decisions: Schemas["Decision"][], deploys: Schemas["Deploy"][]): Mark[] {
  const marks: Mark[] = deploys.map((d) => ({
    at: Date.parse(d.at),
    text: "deploy",
    title: `Deployed: ${describeDeploy(d)}`,
    deploy: true,
  }));
  marks.push(
    ...decisions.map((d) => ({
      at: Date.parse(d.at),
      text: decisionLabel(d),
      title: d.text,
    })),
  );
  if (problem.since) marks.unshift({ at: Date.parse(problem.since), text: "problem", title: "The problem opened" });
  return marks;
}
