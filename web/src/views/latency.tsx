// Latency: durations of a group's requests over time, and their distribution.
import { Link } from "wouter";
import type { Schemas } from "../api/client.ts";
import type { Mark } from "../charts/heatmap.tsx";
import { Histogram } from "../charts/histogram.tsx";
import { type Annotation, describeAnnotation, marksOf as annotationMarks } from "../logic/annotations.ts";
import { count, ratio, time } from "../logic/format.ts";
import { Figure } from "../components/figure.tsx";
import { RangeSelect, useRange } from "../components/range.tsx";
import { useNow, useZone } from "../settings.ts";
import { query } from "../url.ts";
import { LatencyOverTime } from "./over-time.tsx";

// annotations are those of the services on the path and of no service, oldest first; undefined if they could not be
// loaded.
type Props = {
  group: Schemas["GroupDetail"];
  problem: Schemas["Problem"];
  began: number | null; // ms
  decisions: Schemas["Decision"][];
  annotations: Annotation[] | undefined;
};

export function Latency({ group, problem, began, decisions, annotations }: Props) {
  return (
    <div className="columns wide-left" id="latency">
      <OverTimeOf group={group} problem={problem} began={began} decisions={decisions} annotations={annotations} />
      <Figure
        title="Duration distribution"
        hint={`${count(group.judged)} requests, CoV ${ratio(group.cov.value)}; logarithmic axis.`}
        tools={<Link href={`/compare${query({ group: group.group.id, by: "duration" })}`}>Select range</Link>}
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

// OverTimeOf shows the durations in the time range.
function OverTimeOf({ group, problem, began, decisions, annotations }: Props) {
  const [range, setRange] = useRange();
  const id = group.group.id;
  return (
    <LatencyOverTime
      group={id}
      times={range}
      edge={began}
      marks={marksOf(problem, decisions, annotations ?? [])}
      expected={problem.expected_ns}
      link={{ problem: problem.id }}
      annotations={annotations ?? []}
      tools={<RangeSelect value={range} pick={setRange} />}
    >
      <Annotations of={annotations} />
    </LatencyOverTime>
  );
}

const maxNamed = 3; // annotations

// Annotations names the latest annotations, since the chart shows them only under the pointer.
function Annotations({ of }: { of: Props["annotations"] }) {
  const [zone] = useZone();
  const now = useNow();
  if (!of) return <p className="hint dim small">Annotations could not be loaded.</p>;
  if (of.length === 0) return null;
  const named = of.slice(-maxNamed).map((d) => `${describeAnnotation(d)}, ${time(d.at, zone, now)}`);
  return (
    <p className="hint dim small">
      ▲ {named.join("; ")}
      {of.length > maxNamed && `; ${count(of.length - maxNamed)} earlier in the table`}
    </p>
  );
}

function decisionLabel(d: Schemas["Decision"]): string {
  if (d.picks.length > 0) return "on";
  return d.off.length > 0 ? "off" : d.to;
}

// marksOf returns the marks of the start of the problem, of annotations and of decisions.
function marksOf(problem: Schemas["Problem"], decisions: Schemas["Decision"][], annotations: Annotation[]): Mark[] {
  const marks: Mark[] = annotationMarks(annotations);
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
