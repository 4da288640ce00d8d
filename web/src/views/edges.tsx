// The critical path of a problem: a drawing, and the list of its edges.
import type { Schemas } from "../api/client.ts";
import { HeatLegend, Icicle, heat } from "../charts/icicle.tsx";
import { duration, milli, percent, range, share, signed } from "../logic/format.ts";
import { boxes } from "../logic/icicle.ts";
import { Bar, ContextPath } from "../components/basics.tsx";
import { Choice, More } from "../components/controls.tsx";
import { Figure } from "../components/figure.tsx";
import { OpName } from "../components/names.tsx";
import { Table } from "../components/table.tsx";
import { useEnum } from "../url.ts";

type Problem = Schemas["Problem"];
type Edge = Schemas["Edge"];

type Measure = "slowdown" | "variance" | "mean" | "tail";

const measures: Record<Measure, { name: string; word: string; of: (e: Edge, tail: number) => number | null }> = {
  slowdown: { name: "Slowdown", word: "of the slowdown", of: (e) => e.score },
  variance: { name: "Variance", word: "of the variance", of: (e) => e.share_variance.value },
  mean: { name: "Mean", word: "of the mean", of: (e) => e.share_mean },
  tail: {
    name: "Slowest tenth",
    word: "of the extra time of the slowest tenth",
    of: (e, tail) => (e.tail_lift_ns === null || tail === 0 ? null : e.tail_lift_ns / tail),
  },
};

// measuresFor returns the measures of the edges of a problem, that of its diagnosis first. Its shares are the scores.
// Another share of the variance would contradict those of a rise of the variance.
function measuresFor({ share_of: whole, onset }: Problem): Measure[] {
  if (whole === "variance") return ["variance", "mean", "tail"];
  return onset === "chronic" ? ["mean", "variance", "tail"] : ["slowdown", "variance", "mean", "tail"];
}

// partOf returns the part of a measure in an edge. A tail is that of all edges.
const partOf = (by: Measure, p: Problem, e: Edge, tail: number) =>
  by === measuresFor(p)[0] ? e.score : measures[by].of(e, tail);

// withScores returns the edges of a group with their scores in a problem; 0 for edges that the problem does not list.
function withScores(edges: Edge[], scored: Edge[]): Edge[] {
  const scores = new Map(scored.map((e) => [e.place.edge, e.score]));
  return edges.map((e) => ({ ...e, score: scores.get(e.place.edge) ?? 0 }));
}

type PathProps = { p: Problem; scored: Edge[]; all: Edge[]; mean: number | null };

// CriticalPath draws the edges as wide as the time that requests spend in them, coloured by their share of the slowdown
// or of another measure, and lists those that matter for the diagnosis.
export function CriticalPath({ p, scored, all, mean }: PathProps) {
  const edges = all.length > 0 ? withScores(all, scored) : scored;
  const offered = measuresFor(p);
  const [by, setBy] = useEnum("by", offered);
  const measure = measures[by];
  const tail = edges.reduce((sum, e) => sum + Math.max(0, e.tail_lift_ns ?? 0), 0);
  const part = (is: number[]) => is.reduce((sum, i) => sum + (partOf(by, p, edges[i]!, tail) ?? 0), 0);
  const time = (is: number[]) => is.reduce((sum, i) => sum + (edges[i]!.mean_ns ?? 0), 0);
  return (
    <Figure
      id="path"
      title="Critical path"
      hint={`Width: time on the critical path; callers above callees. Colour and number: share ${measure.word}, without callees.`}
      tools={<Choice label="Colour by" value={by} pick={setBy} of={offered.map((m) => [m, measures[m].name])} />}
      table={() => edgeTable(edges)}
    >
      <Icicle
        boxes={boxes(
          edges.map((e) => e.place),
          (i) => edges[i]!.mean_ns ?? 0,
        )}
        label={`Critical path of ${duration(mean)} on average; the table has the numbers`}
        look={(b) => ({
          ...heat(part(b.edges)),
          note: part(b.edges) >= 0.005 ? percent(Math.min(1, part(b.edges))) : "",
        })}
        title={(b) =>
          `${b.label}\n${duration(time(b.edges))} self time per request, ${percent(b.width)} of the path with callees\n${percent(Math.min(1, part(b.edges)))} ${measure.word}`
        }
      />
      <HeatLegend share={measure.word} />
      <Edges p={p} edges={scored} />
    </Figure>
  );
}

const edgeTable = (edges: Edge[]) => ({
  header: [
    "place",
    "context",
    "share of variance (of 1)",
    "low (of 1)",
    "high (of 1)",
    "share of mean (of 1)",
    "mean (ms)",
    "tail lift (ms)",
    "excess (ms)",
  ],
  rows: edges.map((e) => [
    e.place.label,
    e.place.context.join(" > "),
    e.share_variance.value,
    e.share_variance.low,
    e.share_variance.high,
    e.share_mean,
    milli(e.mean_ns),
    milli(e.tail_lift_ns),
    milli(e.excess_ns.value),
  ]),
});

const minShare = 0.02; // share from which an edge is coloured, and listed at once
const alwaysListed = 1; // edges that are listed at once in any case: the critical path shows all

// Edges lists edges by the measure of the diagnosis, so that its numbers appear in the list.
function Edges({ p, edges }: { p: Problem; edges: Edge[] }) {
  const [shown, setShown] = useEnum("edges", ["most", "all"]);
  const expanded = shown === "all";
  const by = measuresFor(p)[0]!;
  // The interval is that of the share of all variance.
  const ranged = by === "variance" && p.onset === "chronic";
  const listed = p.leading === "" ? 0 : alwaysListed; // no place has a share
  const few = edges.filter((e, i) => i < listed || Math.abs(e.score ?? 0) >= minShare);
  const max = Math.max(1, ...edges.map((e) => e.score ?? 0));
  return (
    <div id="edges">
      <Table
        label="Edges"
        className="edges"
        head={[
          "Location",
          {
            text: by === "slowdown" ? "Share of the slowdown" : `Share of ${by}`,
            ...(by === "variance" && { title: "Shares add up to 100\u00a0%; a share can be negative" }),
          },
          by === "mean" ? { text: "Share of variance", number: true } : { text: "Share of mean", number: true },
          { text: "Mean", number: true },
          {
            text: "Slowest tenth",
            number: true,
            title: "Extra time that the slowest tenth of requests spends there, since they were last normal",
          },
          { text: "Excess", number: true, title: "Time above normal, with its 95 % interval" },
        ]}
      >
        {(expanded ? edges : few).map((e) => (
          <tr key={e.place.edge}>
            <td>
              <OpName>{e.place.label}</OpName>
              <div className="small dim">
                <ContextPath of={e.place.context} />
              </div>
            </td>
            <td className="bars">
              {ranged ? (
                <>
                  {percent(e.score)} <span className="dim small range">{range(e.share_variance, percent)}</span>
                  <Bar of={e.score} low={e.share_variance.low} high={e.share_variance.high} max={max} />
                </>
              ) : (
                <>
                  {share(e.score)}
                  <Bar of={e.score} max={max} />
                </>
              )}
            </td>
            <td className="number nowrap">{percent(by === "mean" ? e.share_variance.value : e.share_mean)}</td>
            <td className="number nowrap">{duration(e.mean_ns)}</td>
            <td className="number nowrap">{signed(e.tail_lift_ns)}</td>
            <td className="number nowrap" title={range(e.excess_ns, duration)}>
              {signed(e.excess_ns.value)}
            </td>
          </tr>
        ))}
      </Table>
      <More
        rest={edges.length - few.length}
        what={`, with less than ${percent(minShare)} each`}
        shown={expanded}
        toggle={() => setShown(expanded ? "most" : "all")}
      />
    </div>
  );
}
