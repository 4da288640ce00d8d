// Latency: how the requests of a group were over time, and how they are distributed now.
import { useLocation } from "wouter";
import type { Schemas } from "../api/client.ts";
import { Histogram } from "../charts/histogram.tsx";
import { Lines, type Mark } from "../charts/lines.tsx";
import { count, hundredths } from "../compute/format.ts";
import { Figure } from "../parts/figure.tsx";
import { query } from "../url.ts";

type Props = { group: Schemas["GroupDetail"]; problem: Schemas["Problem"]; decisions: Schemas["Decision"][] };

export function Latency({ group, problem, decisions }: Props) {
  const [, go] = useLocation();
  const windows = group.windows.filter((w) => w.mean_ns !== null);
  const marks: Mark[] = decisions.map((d) => ({ at: Date.parse(d.at), text: d.picks.length > 0 ? "on" : d.off.length > 0 ? "off" : d.to }));
  if (problem.since) marks.push({ at: Date.parse(problem.since), text: "problem" });
  const brush = (from: number, to: number) => {
    const at = (ms: number) => new Date(ms).toISOString();
    const first = windows[0];
    go(`/compare${query({ group: group.group.id, by: "time", from: at(from), to: at(to), base_from: first?.from, base_to: at(from) })}`);
  };
  return (
    <div className="columns" id="latency">
      <Figure
        title="Latency over time"
        hint="Mean of a request in windows that are short lately and ever longer further back. Drag over a time to compare it with what was before."
        table={() => ({ header: ["from", "to", "requests", "failed", "mean (ms)", "CoV"], rows: windows.map((w) => [w.from, w.to, w.count, w.failed, Math.round(w.mean_ns! / 1000) / 1000, w.cov]) })}
      >
        <Lines
          label={`Mean duration in ${windows.length} windows; the table has the numbers`}
          at={windows.map((w) => (Date.parse(w.from) + Date.parse(w.to)) / 2)}
          series={[{ name: "Mean", color: "bar", values: windows.map((w) => w.mean_ns) }]}
          marks={marks}
          brush={brush}
        />
      </Figure>
      <Figure
        title="Durations of the requests judged"
        hint={`${count(group.judged)} requests, CoV ${hundredths(group.cov.value)}; logarithmic axis.`}
        table={() => ({ header: ["above (ms)", "to (ms)", "requests"], rows: group.histogram.map((b) => [b.low_ns / 1e6, b.high_ns / 1e6, b.count]) })}
      >
        <Histogram bins={group.histogram} p50={group.p50_ns} p99={group.p99_ns} label="Distribution of durations; the table has the numbers" />
      </Figure>
    </div>
  );
}
