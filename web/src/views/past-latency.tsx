// PastLatency: durations of a group's requests in any span that is kept, also of a group or a problem that is gone, and
// the choice of the day that charts show behind the present one.
import type { ReactNode } from "react";
import { type Schemas, client } from "../api/client.ts";
import { type Resource, useResource } from "../api/queries.ts";
import type { Mark } from "../charts/heatmap.tsx";
import { Lines, type Series } from "../charts/lines.tsx";
import { milli } from "../logic/format.ts";
import {
  type Before,
  type PastPoint,
  befores,
  dayBefore,
  pastPoints,
  quantized,
  shiftOf,
  withGaps,
} from "../logic/past.ts";
import { Async } from "../components/async-state.tsx";
import { Select } from "../components/controls.tsx";
import { Figure } from "../components/figure.tsx";
import { useZone } from "../settings.ts";
import { useEnum } from "../url.ts";

const names: Record<Before, string> = { none: "nothing", yesterday: "yesterday", last_week: "last week" };
const options = befores.map((before) => [before, names[before]] as const);

export const useBefore = () => useEnum("before", befores);

export function BeforeChoice({ value, pick }: { value: Before; pick: (value: Before) => void }) {
  return (
    <Select
      label="Behind"
      value={value}
      pick={(name) => pick(befores.find((before) => before === name) ?? "none")}
      of={options}
    />
  );
}

export type History = Schemas["GroupHistory"];

// useHistory reads the windows of a group in a span, in ms, and those to compare with; null: none.
export function useHistory(group: string | null, from: number, to: number, before: Before): Resource<History> {
  const [first, last] = quantized(from, to).map((ms) => new Date(ms).toISOString());
  return useResource(group && `history ${group} ${first} ${last} ${before}`, (signal) =>
    client.GET("/groups/{group}/history", {
      params: { path: { group: group! }, query: { from: first!, to: last!, compare: before } },
      signal,
    }),
  );
}

type Behind = { behind?: { at: number[]; series: Series[] } };

// behindOf returns the properties of a chart that draws points behind its own.
export function behindOf(points: PastPoint[], before: Before): Behind {
  if (points.length === 0) return {};
  const day = names[before];
  return {
    behind: {
      at: points.map((p) => p.at),
      series: [
        { name: `P99 ${day}`, color: "critical", values: points.map((p) => p.p99) },
        { name: `P50 ${day}`, color: "dim", dash: [6, 4], values: points.map((p) => p.p50) },
      ],
    },
  };
}

type NoteProps = { before: Before; end: number; of: Resource<History>; drawn: boolean };

// BeforeNote is the legend of the lines behind a chart that ends at a time.
export function BeforeNote({ before, end, of, drawn }: NoteProps) {
  const [zone] = useZone();
  if (before === "none") return null;
  const day = dayBefore(before, end, zone);
  let text = `Thin lines: P99 and, dashed, P50 ${day}.`;
  if (of.failure) text = `The data for ${day} could not be loaded.`;
  else if (!of.value) text = `Loading ${day} …`;
  else if (!drawn) text = `There is no data for ${day}: no requests arrived, or Sibyl was not running.`;
  return (
    <p className="hint dim small" role="status">
      {text}
    </p>
  );
}

type Props = {
  group: string;
  from: number; // ms
  to: number;
  marks: Mark[];
  tools?: ReactNode;
};

export function PastLatency({ group, from, to, marks, tools }: Props) {
  const [before, setBefore] = useBefore();
  const resource = useHistory(group, from, to, before);
  const windows = (resource.value?.windows ?? []).filter((w) => Date.parse(w.to) > from && Date.parse(w.from) < to);
  const middle = windows.map((w) => (Date.parse(w.from) + Date.parse(w.to)) / 2);
  const drawn = withGaps(windows);
  const points = pastPoints(resource.value?.compared ?? [], shiftOf(before), from, to, middle);
  return (
    <Figure
      title="Latency over time"
      hint="One window is 5 min 20 s long, or 16 min in long ranges and after two days."
      tools={
        <>
          {tools}
          <BeforeChoice value={before} pick={setBefore} />
        </>
      }
      table={() => ({
        header: ["from", "to", "requests", "failed", "mean (ms)", "P50 (ms)", "P99 (ms)", "CoV"],
        rows: windows.map((w) => [
          w.from,
          w.to,
          w.count,
          w.failed,
          milli(w.mean_ns),
          milli(w.p50_ns),
          milli(w.p99_ns),
          w.cov,
        ]),
      })}
    >
      <Async of={resource} what="the windows">
        {() =>
          windows.length === 0 ? (
            <p className="dim">There is no data in this time range.</p>
          ) : (
            <Lines
              label={`Durations in ${windows.length} windows; the table has the numbers`}
              at={drawn.map((w) => (Date.parse(w.from) + Date.parse(w.to)) / 2)}
              series={[
                { name: "P99", color: "critical", values: drawn.map((w) => w.p99_ns) },
                { name: "Mean", color: "bar", dash: [2, 3], values: drawn.map((w) => w.mean_ns) },
                { name: "P50", color: "dim", dash: [6, 4], values: drawn.map((w) => w.p50_ns) },
              ]}
              {...behindOf(points, before)}
              marks={marks}
            />
          )
        }
      </Async>
      <BeforeNote before={before} end={to} of={resource} drawn={points.length > 0} />
    </Figure>
  );
}
