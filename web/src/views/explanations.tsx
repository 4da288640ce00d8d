// What accounts for a problem: correlated attributes, slow hosts and versions, simulated recoveries, and places that
// rise and fall together.
import type { Schemas } from "../api/client.ts";
import { matters } from "../logic/recovery.ts";
import type { Phrase } from "../logic/sentences.ts";
import { milli, percent, range, ratio } from "../logic/format.ts";
import { Bar } from "../components/basics.tsx";
import { Figure, type TableData } from "../components/figure.tsx";
import { Sentence } from "../components/names.tsx";
import { Table } from "../components/table.tsx";

type Detail = Schemas["ProblemDetail"];

// Explanations lists the attributes that are correlated with a problem and, on demand, those that are not.
export function Explanations({ detail }: { detail: Detail }) {
  const of = detail.explanations;
  const targets = new Map(detail.edges.map(({ place }) => [place.edge, place.label]));
  return (
    <Figure
      id="explanations"
      title="Correlated attributes"
      table={() => ({
        header: [
          "explanation",
          "variable",
          "value",
          "explained place",
          "share of variance (of 1)",
          "low (of 1)",
          "high (of 1)",
          "p",
          "remaining share of the CoV (of 1)",
        ],
        rows: of.map((x) => [
          x.text,
          x.variable,
          x.value,
          x.target && (targets.get(x.target) ?? x.target),
          x.effect.value,
          x.effect.low,
          x.effect.high,
          x.p_value,
          x.remains,
        ]),
      })}
      tableOnly
    >
      {of.length === 0 ? (
        <p className="dim">
          No correlation found so far. The setting <code>keys</code> names the attributes that are tested.
        </p>
      ) : (
        <Table
          label="Correlated attributes"
          className="correlations"
          head={["Attribute", { text: "Explains", title: "Share of the variance that it explains" }]}
        >
          {of.map((x, i) => (
            <tr key={i}>
              <td title={x.where.join(" → ")}>
                <Sentence of={x.text_parts} />
                {targets.has(x.target) && <div className="small dim">variance of {targets.get(x.target)}</div>}
              </td>
              <td className="bars">
                {percent(x.effect.value)} <span className="dim small range">{range(x.effect, percent)}</span>
                <Bar of={x.effect.value} low={x.effect.low} high={x.effect.high} />
              </td>
            </tr>
          ))}
        </Table>
      )}
      <Uncorrelated detail={detail} />
    </Figure>
  );
}

// Uncorrelated shows the joint correlation of the numeric variables, and the attributes that explain almost nothing.
function Uncorrelated({ detail: { joint_correlation: joint, unrelated } }: { detail: Detail }) {
  if (joint === null && unrelated.length === 0) return null;
  return (
    <details className="more">
      <summary>
        {[unrelated.length > 0 && "Unrelated attributes", joint !== null && "Joint correlation"]
          .filter(Boolean)
          .join(" · ")}
      </summary>
      {joint !== null && <p>All numeric variables together correlate with the duration by {ratio(joint)} (0 to 1).</p>}
      {unrelated.length > 0 && (
        <>
          <p>Explain almost nothing:</p>
          <ul>
            {unrelated.map((x, i) => (
              <li key={i} title={x.where.join(" → ")}>
                {x.variable} <span className="dim small">{x.where.at(-1)}</span>
              </li>
            ))}
          </ul>
        </>
      )}
    </details>
  );
}

// Causes shows, as far as they are known: slower hosts and versions, the recoveries that matter, and places that rise
// and fall together. The order is that of sibyl explain.
export function Causes({ detail }: { detail: Detail }) {
  const { contrasts, what_if: recoveries, common } = detail;
  return (
    <>
      <Findings
        title="Slower than others"
        texts={contrasts}
        table={() => ({
          header: [
            "attribute",
            "value",
            "place",
            "requests",
            "other requests",
            "mean (ms)",
            "mean of others (ms)",
            "excess (ms)",
            "low (ms)",
            "high (ms)",
            "p",
          ],
          rows: contrasts.flatMap((c) =>
            [c.duration, ...c.edges].map((d) => [
              c.key,
              c.value,
              d.edge?.label ?? "whole request",
              c.requests,
              c.rest,
              milli(d.mean_ns),
              milli(d.rest_ns),
              milli(d.excess_ns),
              milli(d.low_ns),
              milli(d.high_ns),
              d.p_value,
            ]),
          ),
        })}
      />
      <Findings
        title="What if"
        hint="Simulated with sampled requests. The place still takes its usual time, so they save less than its share of the mean."
        texts={recoveries.filter(matters)}
        table={() => ({
          header: [
            "place",
            "reference (ms)",
            "simulated requests",
            "saved of the mean (ms)",
            "low (ms)",
            "high (ms)",
            "saved of the mean (of 1)",
            "saved of the p99 (ms)",
            "saved of the p99 (of 1)",
          ],
          rows: recoveries.map((r) => [
            r.edge.label,
            milli(r.level_ns),
            r.requests,
            milli(r.mean_ns),
            milli(r.mean_low_ns),
            milli(r.mean_high_ns),
            r.mean_fraction,
            milli(r.p99_ns),
            r.p99_fraction,
          ]),
        })}
      />
      <Findings
        title="Rise and fall together"
        texts={common}
        table={() => ({
          header: ["places", "correlation (of 1)", "p"],
          rows: common.map((c) => [
            c.edges.map((e) => `${e.request_type}: ${e.context.join(" > ")}`).join("; "),
            c.correlation,
            c.p_value,
          ]),
        })}
      />
    </>
  );
}

const shownFindings = 2; // the others are collapsed

type Text = { text: string; text_parts: readonly Phrase[] };

type FindingsProps = { title: string; hint?: string; texts: readonly Text[]; table: () => TableData };

// Findings lists texts of the service; nothing if there are none.
function Findings({ title, hint, texts, table }: FindingsProps) {
  if (texts.length === 0) return null;
  const more = texts.slice(shownFindings);
  return (
    <Figure title={title} hint={hint} table={table} tableOnly>
      <Texts of={texts.slice(0, shownFindings)} />
      {more.length > 0 && (
        <details className="more">
          <summary>{more.length} more</summary>
          <Texts of={more} />
        </details>
      )}
    </Figure>
  );
}

function Texts({ of }: { of: readonly Text[] }) {
  return (
    <ul className="findings">
      {of.map((x, i) => (
        <li key={i} title={x.text}>
          <Sentence of={x.text_parts} />
        </li>
      ))}
    </ul>
  );
}
