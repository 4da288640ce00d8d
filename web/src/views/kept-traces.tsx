// A summary of kept traces: their durations, and the number of each request type.
import type { Schemas } from "../api/client.ts";
import { Histogram } from "../charts/histogram.tsx";
import { typeOf } from "../logic/trace-search.ts";
import { count, duration, milli } from "../logic/format.ts";
import { Bar } from "../components/basics.tsx";
import { More } from "../components/controls.tsx";
import { Figure } from "../components/figure.tsx";
import { Table } from "../components/table.tsx";
import { useEnum } from "../url.ts";

type Kept = Schemas["KeptTrace"];

// Durations draws the durations of some kept traces. They are no random sample, so it has no percentiles.
export function Durations({ of }: { of: Kept[] }) {
  const traces = [...of].sort((a, b) => a.duration_ns - b.duration_ns);
  return (
    <Figure
      title="Durations"
      hint="Logarithmic axis. Kept traces are chosen, not a random sample."
      table={() => ({ header: ["trace", "duration (ms)"], rows: traces.map((t) => [t.id, milli(t.duration_ns)]) })}
    >
      <Histogram
        bins={traces.map(({ duration_ns: d }) => ({ low_ns: d, high_ns: d, count: 1 }))}
        p50={null}
        p99={null}
        label="Durations of the traces; the table has the numbers"
      />
    </Figure>
  );
}

const fewTypes = 5; // listed at once

// Types counts kept traces by request type, most first. type is the chosen one, if not empty.
export function Types({ of, type, pick }: { of: Kept[]; type: string; pick: (type: string) => void }) {
  const [shown, setShown] = useEnum("types", ["most", "all"]);
  const byType = new Map<string, Kept[]>();
  for (const t of of) byType.set(typeOf(t), [...(byType.get(typeOf(t)) ?? []), t]);
  const types = [...byType].sort(([x, a], [y, b]) => b.length - a.length || (x < y ? -1 : 1));
  const listed = shown === "all" ? types : types.slice(0, fewTypes);
  const longest = (traces: Kept[]) => Math.max(...traces.map((t) => t.duration_ns));
  return (
    <Figure
      title="Request types"
      table={() => ({
        header: ["request type", "traces", "longest (ms)"],
        rows: types.map(([name, traces]) => [name, traces.length, milli(longest(traces))]),
      })}
      tools={
        type !== "" && (
          <button type="button" className="link" onClick={() => pick("")}>
            All types
          </button>
        )
      }
      tableOnly
    >
      <Table label="Request types" className="results" head={["Type", "Traces", { text: "Longest", number: true }]}>
        {listed.map(([name, traces]) => (
          <tr key={name}>
            <td>
              <button
                type="button"
                className="link mono"
                aria-pressed={name === type}
                onClick={() => pick(name === type ? "" : name)}
              >
                <bdi>{name}</bdi>
              </button>
            </td>
            <td className="bars">
              {count(traces.length)}
              <Bar of={traces.length} max={of.length} />
            </td>
            <td className="number nowrap">{duration(longest(traces))}</td>
          </tr>
        ))}
      </Table>
      <More
        rest={types.length - fewTypes}
        shown={shown === "all"}
        toggle={() => setShown(shown === "all" ? "most" : "all")}
      />
    </Figure>
  );
}
