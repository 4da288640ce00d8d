// LatencyOverTime: durations of a group's requests as a heat map with uniform bins of time, or as lines; for long spans
// as lines of the past.
import type { ReactNode } from "react";
import { useLocation } from "wouter";
import { client } from "../api/client.ts";
import { useResource } from "../api/queries.ts";
import { type Dot, HeatMap, type Mark } from "../charts/heatmap.tsx";
import { Lines } from "../charts/lines.tsx";
import { type Annotation, annotationsByWindow, describeAnnotation } from "../logic/annotations.ts";
import { duration, milli } from "../logic/format.ts";
import { type Span, quantile } from "../logic/heatmap.ts";
import { meanBefore, pastPoints, shiftOf } from "../logic/past.ts";
import { Async } from "../components/async-state.tsx";
import { Choice } from "../components/controls.tsx";
import { Figure } from "../components/figure.tsx";
import { useNow } from "../settings.ts";
import { query, useEnum } from "../url.ts";
import { BeforeChoice, BeforeNote, PastLatency, behindOf, useBefore, useHistory } from "./past-latency.tsx";

export type Times = { from: number; to: number; live: boolean }; // ms

type Props = {
  group: string;
  times: Times;
  edge: number | null; // ms; a bin begins there
  marks: Mark[];
  expected: number | null; // mean in ns
  link?: Record<string, string | undefined>; // parameters of links to traces
  annotations?: Annotation[];
  tools?: ReactNode;
  children?: ReactNode; // below the chart
};

const longest = 2 * 86_400_000; // ms, for which durations are kept in bins

export function LatencyOverTime(props: Props) {
  const { group, times, marks, tools } = props;
  const now = useNow();
  if (times.to - times.from > longest || times.from < now - longest)
    return <PastLatency group={group} from={times.from} to={times.to} marks={marks} tools={tools} />;
  return <Binned {...props} />;
}

// binLength names the length of a bin in ms, like "10 s" or "5 min 20 s".
function binLength(ms: number): string {
  const [minutes, seconds] = [Math.floor(ms / 60_000), Math.round((ms % 60_000) / 1000)];
  return [minutes > 0 && `${minutes} min`, seconds > 0 && `${seconds} s`].filter(Boolean).join(" ");
}

const instant = (ms: number) => new Date(ms).toISOString();

function Binned({ group, times, edge, marks, expected, link = {}, annotations = [], tools, children }: Props) {
  const parameters = {
    from: instant(times.from),
    ...(!times.live && { to: instant(times.to) }),
    ...(edge !== null && edge > times.from && { edge: instant(edge) }),
  };
  const resource = useResource(
    `latency ${group} ${JSON.stringify(parameters)}`,
    (signal) => client.GET("/groups/{group}/latency", { params: { path: { group }, query: parameters }, signal }),
    times.live,
  );
  const exemplars = useResource(
    `exemplars ${group}`,
    (signal) => client.GET("/exemplars", { params: { query: { group } }, signal }),
    true,
  );
  const [as, setAs] = useEnum("latency", ["map", "lines"]);
  const [before, setBefore] = useBefore();
  const [, go] = useLocation();
  const latency = resource.value;
  const windows = latency?.windows ?? [];
  const span: Span = latency
    ? { from: Date.parse(latency.from), to: Date.parse(latency.to), bin: latency.bin_ns / 1e6 }
    : { from: times.from, to: times.to, bin: 60_000 };
  const middle = windows.map((w) => (Date.parse(w.from) + Date.parse(w.to)) / 2);
  const past = useHistory(before !== "none" && latency ? group : null, span.from, span.to, before);
  const compared = past.value?.compared ?? [];
  const points = pastPoints(compared, shiftOf(before), span.from, span.to, middle);
  const brush = (from: number, to: number, longer = 0, shorter = Infinity) =>
    go(
      `/compare${query({
        group,
        by: "selection",
        from: instant(from),
        to: instant(to),
        longer: longer > 0 ? String(Math.round(longer)) : "",
        shorter: shorter < Infinity ? String(Math.round(shorter)) : "",
      })}`,
    );
  const dots: Dot[] = (exemplars.value?.items ?? []).map((e) => ({
    at: Date.parse(e.start),
    ns: e.duration_ns,
    title: `A ${e.stratum} request of ${duration(e.duration_ns)}: open its trace`,
    go: () => go(`/traces/${e.trace}${query(link)}`),
  }));
  const annotated = annotationsByWindow(windows, annotations);
  const label = `Durations in ${windows.length} bins of ${binLength(span.bin)}; the table has the numbers`;
  const table = () => ({
    header: [
      "from",
      "to",
      "requests",
      "failed",
      "mean (ms)",
      "P50 (ms)",
      "P99 (ms)",
      "CoV",
      "annotations",
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
      annotated[i]!.map(describeAnnotation).join("; "),
      ...(before === "none"
        ? []
        : [milli(meanBefore(compared, shiftOf(before), Date.parse(w.from), Date.parse(w.to)))]),
    ]),
  });
  return (
    <Figure
      title="Latency over time"
      hint={`${binLength(span.bin)} per column. Drag, or select with Shift and the arrow keys, to compare those requests with the rest.`}
      tools={
        <>
          {tools}
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
      table={table}
    >
      <Async of={resource} what="the durations">
        {({ usual }) => (
          <>
            {windows.length === 0 && <p className="dim">No requests are stored in this time range, or not yet.</p>}
            {windows.length > 0 && as === "map" && (
              <>
                <HeatMap
                  span={span}
                  windows={windows}
                  marks={marks}
                  dots={dots}
                  behind={points}
                  usual={usual}
                  expected={expected}
                  brush={brush}
                  label={label}
                />
                <Legend usual={usual !== undefined} expected={expected ?? usual?.mean_ns ?? null} />
              </>
            )}
            {windows.length > 0 && as === "lines" && (
              <Lines
                label={label}
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
          </>
        )}
      </Async>
      <BeforeNote before={before} end={span.to} of={past} drawn={points.length > 0} />
      {children}
    </Figure>
  );
}

const shades = [1, 2, 3, 4, 5];

function Legend({ usual, expected }: { usual: boolean; expected: number | null }) {
  return (
    <div className="legend">
      <span>
        {shades.map((i) => (
          <i key={i} style={{ background: `var(--cell-${i})` }} aria-hidden="true" />
        ))}
        few to many requests
      </span>
      {usual && (
        <span>
          <i className="band" aria-hidden="true" />
          usual: P10 to P90
        </span>
      )}
      {expected !== null && <span>- - expected mean, {duration(expected)}</span>}
      <span>○ sample traces</span>
    </div>
  );
}
