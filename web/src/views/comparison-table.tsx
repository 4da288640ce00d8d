// The locations of a comparison as a table.
import type { Schemas } from "../api/client.ts";
import { duration, milli, percent, signed } from "../logic/format.ts";
import { ContextPath } from "../components/basics.tsx";
import type { TableData } from "../components/figure.tsx";
import { OpName } from "../components/names.tsx";
import { type Column, Table } from "../components/table.tsx";

type Comparison = Schemas["Comparison"];

// ComparisonKind is the criterion that divides the requests of a comparison.
export type ComparisonKind = "slowest" | "duration" | "time" | "selection";

export const sideNames: Record<ComparisonKind, [a: string, b: string]> = {
  slowest: ["Slowest", "Rest"],
  duration: ["Selection", "Rest"],
  selection: ["Selection", "Rest"],
  time: ["Selection", "Before"],
};

// comparisonData returns the rows of a comparison for export.
export const comparisonData = (c: Comparison | undefined): TableData => ({
  header: ["place", "context", "a (ms)", "b (ms)", "difference (ms)", "share of the difference"],
  rows: (c?.edges ?? []).map((e) => [
    e.place.label,
    e.place.context.join(" > "),
    milli(e.a_ns),
    milli(e.b_ns),
    milli(e.difference_ns),
    e.part,
  ]),
});

// hasDifference reports whether the means of the sides differ by more than a tenth of the largest difference of a
// location. If not, the differences of locations cancel out, and their shares mean nothing.
export function hasDifference(c: Comparison): boolean {
  const max = Math.max(0, ...c.edges.map((e) => Math.abs(e.difference_ns ?? 0)));
  return Math.abs((c.a.mean_ns ?? 0) - (c.b.mean_ns ?? 0)) > max / 10;
}

type Props = { label: string; kind: ComparisonKind; c: Comparison; few?: number };

// ComparisonTable lists locations, largest difference first. With few, it lists that many of them, without context and
// share.
export function ComparisonTable({ label, kind, c, few }: Props) {
  const [a, b] = sideNames[kind];
  const parts = hasDifference(c);
  const head: Column[] = [
    "Location",
    { text: a, number: true },
    { text: b, number: true },
    { text: "Difference", number: true },
  ];
  return (
    <Table
      label={label}
      className={few ? "slowest" : "locations"}
      head={few ? head : [...head, { text: "Share", number: true, title: "Share of the difference" }]}
    >
      {c.edges.slice(0, few).map((e) => (
        <tr key={e.place.edge}>
          <td title={e.place.context.join(" → ")}>
            <OpName>{e.place.label}</OpName>
            {!few && (
              <div className="small dim">
                <ContextPath of={e.place.context} />
              </div>
            )}
          </td>
          <td className="number nowrap">{duration(e.a_ns)}</td>
          <td className="number nowrap">{duration(e.b_ns)}</td>
          <td className="number nowrap">{signed(e.difference_ns)}</td>
          {!few && <td className="number nowrap">{parts ? percent(e.part) : "–"}</td>}
        </tr>
      ))}
    </Table>
  );
}
