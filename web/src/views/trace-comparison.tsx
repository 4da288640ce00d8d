// Comparison: how a trace differs from normal ones of its request type.
import type { Schemas } from "../api/client.ts";
import { count, duration } from "../logic/format.ts";
import { More } from "../components/controls.tsx";
import { Figure } from "../components/figure.tsx";
import { Table } from "../components/table.tsx";
import { useQuery, useSet } from "../url.ts";
import { Name, Sentence } from "../components/names.tsx";

type Finding = Schemas["TraceFinding"];

const few = 5;

const reasons: Record<Finding["reason"], string> = {
  slow: "◔ longer",
  failed: "✕ failed",
  missing: "∅ missing",
  new: "+ new",
};

const parts: Record<string, string> = {
  own: "own time",
  in: "to it",
  out: "from it",
  calls: "additional calls",
};

export function Comparison({ of: c }: { of: Schemas["TraceComparison"] }) {
  const [picked, setPicked] = useQuery("span");
  const [open, setOpen] = useSet("open");
  const all = open.has("differences");
  return (
    <Figure
      title="What is unusual"
      hint={`Compared with ${count(c.normal)} stored typical traces of the same request type, and with the usual spans of each operation.`}
      table={() => ({
        header: ["difference", "service", "operation", "part", "excess (ms)", "calls", "missing", "span"],
        rows: c.findings.map((f) => [
          f.reason,
          f.service,
          f.operation,
          f.part ?? "",
          f.excess_ns / 1e6,
          f.calls,
          f.missing.join("; "),
          f.span,
        ]),
      })}
      tableOnly
    >
      <p className="reason">
        <Sentence of={c.sentence_parts} />
      </p>
      {c.findings.length === 0 ? (
        <p className="dim">No step took clearly longer than usual, failed, or is missing.</p>
      ) : (
        <Table
          label="Differences from normal traces"
          className="results findings"
          head={["Step", "Difference", { text: "Longer by", number: true }, { text: "Calls", number: true }]}
        >
          {c.findings.slice(0, all ? c.findings.length : few).map((f, i) => (
            <tr key={i} className={f.span === picked ? "picked" : undefined}>
              <td>
                <Name>{f.service}</Name>{" "}
                <button
                  type="button"
                  className="link mono"
                  title="Show it in the waterfall"
                  onClick={() => setPicked(f.span)}
                >
                  <bdi>{f.operation || "(calls)"}</bdi>
                </button>
              </td>
              <td title={f.text}>
                {reasons[f.reason]}
                {f.part && <span className="dim">, {parts[f.part] ?? f.part}</span>}
                {f.missing.length > 0 && <span className="dim">: {f.missing.slice(0, 3).join(", ")}</span>}
              </td>
              <td className="number">{f.excess_ns > 0 ? `+${duration(f.excess_ns)}` : "–"}</td>
              <td className="number">{count(f.calls)}</td>
            </tr>
          ))}
        </Table>
      )}
      <More rest={c.findings.length - few} shown={all} toggle={() => setOpen(all ? [] : ["differences"])} />
    </Figure>
  );
}
