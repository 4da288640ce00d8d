// Exemplars: sample traces, and attributes in which slow ones differ from the others.
import { useEffect, useState } from "react";
import { Link } from "wouter";
import { type Schemas, unwrap, client } from "../api/client.ts";
import type { Resource } from "../api/queries.ts";
import { type Contrast, contrastAttributes } from "../logic/contrasts.ts";
import { duration, percent } from "../logic/format.ts";
import { When } from "../components/basics.tsx";
import { Figure } from "../components/figure.tsx";
import { Table } from "../components/table.tsx";
import { Async } from "../components/async-state.tsx";
import { query } from "../url.ts";

type Exemplar = Schemas["Exemplar"];

// Kept are those of a group.
export type ExemplarReading = Resource<Schemas["ExemplarList"]>;

// traceOf returns where an exemplar is looked at, as one of a problem.
export const traceLink = (e: Exemplar, problem: string) => `/traces/${e.trace}${query({ problem })}`;

const strata = [
  ["slow", "Slowest"],
  ["typical", "Typical"],
  ["fast", "Fastest"],
] as const;

export function Exemplars({ kept: reading, problem }: { kept: ExemplarReading; problem: Schemas["Problem"] }) {
  return (
    <>
      <Figure
        id="exemplars"
        title="Sample traces"
        hint={
          problem.kind === "slow" &&
          "Typical requests show why this operation is slow; the slowest may be waiting for something else."
        }
        table={() => ({
          header: ["stratum", "trace", "start", "duration (ms)"],
          rows: (reading.value?.items ?? []).map((e) => [e.stratum, e.trace, e.start, e.duration_ns / 1e6]),
        })}
        tableOnly
      >
        <Async of={reading} what="exemplars">
          {({ items }) =>
            items.length === 0 ? (
              <p className="dim">
                No samples yet. They are kept when an epoch ends, if <code>retention.exemplars</code> is above 0.
              </p>
            ) : (
              <div className="exemplars">
                {strata.map(([stratum, name]) => (
                  <div key={stratum}>
                    <h3>{name}</h3>
                    <ul>
                      {items
                        .filter((e) => e.stratum === stratum)
                        .map((e, i) => (
                          <li key={i}>
                            <Link href={traceLink(e, problem.id)}>{duration(e.duration_ns)}</Link>{" "}
                            <span className="dim small">
                              <When at={e.start} brief />
                            </span>
                          </li>
                        ))}
                    </ul>
                  </div>
                ))}
              </div>
            )
          }
        </Async>
      </Figure>
      {reading.value && reading.value.items.length > 3 && <Attributes items={reading.value.items} />}
    </>
  );
}

// tracesOf returns the traces of the slow exemplars, and those of the others alone: one with several requests of a group may be both, and what it
// says of itself tells nothing then.
function tracesOf(items: Exemplar[]): { slow: string[]; rest: string[] } {
  const slow = new Set(items.flatMap((e) => (e.stratum === "slow" ? [e.trace] : [])));
  return { slow: [...slow], rest: [...new Set(items.map((e) => e.trace))].filter((trace) => !slow.has(trace)) };
}

// Attributes compares what the slow exemplars and the others say of themselves.
function Attributes({ items }: { items: Exemplar[] }) {
  const [compared, setCompared] = useState<{ slow: number; rest: number; found: Contrast[] }>(); // not the traces, which may be large
  const traces = JSON.stringify(tracesOf(items)); // by value: read again only if they are others
  useEffect(() => {
    const { slow: slowest, rest: others } = JSON.parse(traces) as ReturnType<typeof tracesOf>;
    const leave = new AbortController();
    const read = (some: string[]) =>
      Promise.all(
        some.map((trace) =>
          unwrap(client.GET("/traces/{trace}", { params: { path: { trace } }, signal: leave.signal })).catch(
            () => undefined,
          ),
        ),
      ).then((all) => all.filter((t) => t !== undefined));
    void Promise.all([read(slowest), read(others)]).then(
      ([slow, rest]) =>
        leave.signal.aborted ||
        setCompared({ slow: slow.length, rest: rest.length, found: contrastAttributes(slow, rest).slice(0, 12) }),
    );
    return () => leave.abort();
  }, [traces]);
  if (!compared || compared.slow === 0 || compared.rest === 0) return null;
  const { slow, rest, found } = compared;
  return (
    <Figure
      id="attributes"
      title="Attributes: slow vs. other requests"
      hint={`From the ${slow} slowest requests above and ${rest} others: a small sample, so only a hint. Tested correlations are under “Correlated attributes”.`}
      table={() => ({
        header: ["service", "attribute", "value", "of the slow (of 1)", "of the others (of 1)"],
        rows: found.map((c) => [c.service, c.key, c.value, c.slow, c.rest]),
      })}
      tableOnly
    >
      {found.length === 0 ? (
        <p className="dim">No attribute differs.</p>
      ) : (
        <Table
          label="Attributes: slow vs. other requests"
          head={["Attribute", { text: "Slow", number: true }, { text: "Others", number: true }]}
        >
          {found.map((c) => (
            <tr key={`${c.service} ${c.key} ${c.value}`}>
              <td>
                <div className="clamp" title={`${c.key} = ${c.value}`}>
                  {c.key} = <strong>{c.value}</strong>
                </div>
                <div className="small dim clamp" title={c.service}>
                  {c.service}
                </div>
              </td>
              <td className="number">{percent(c.slow)}</td>
              <td className="number">{percent(c.rest)}</td>
            </tr>
          ))}
        </Table>
      )}
    </Figure>
  );
}
