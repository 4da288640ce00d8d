// Exemplars: requests to look at, and in what the slow ones differ from the others.
import { useEffect, useState } from "react";
import { Link } from "wouter";
import { type Schemas, unwrap, client } from "../api/client.ts";
import type { Resource } from "../api/queries.ts";
import { type Contrast, contrastAttributes } from "../lib/contrasts.ts";
import { duration, percent } from "../lib/format.ts";
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
        title="Requests to look at"
        hint={
          problem.kind === "slow" &&
          "Typical ones show why these requests are slow; what the slowest wait for may be something else."
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
                None are kept yet. They are when an epoch ends, if the setting <code>retention.exemplars</code> is above
                0.
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
  const { slow: slowest, rest: others } = tracesOf(items);
  const ids = [...slowest, "", ...others].join(" ");
  useEffect(() => {
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
  }, [ids]);
  if (!compared || compared.slow === 0 || compared.rest === 0) return null;
  const { slow, rest, found } = compared;
  return (
    <Figure
      id="attributes"
      title="Attributes of slow requests against the others"
      hint={`Of the ${slow} slowest requests above, and the ${rest} others: few, so take it as a hint; what was tested is under “What goes with it”.`}
      table={() => ({
        header: ["service", "attribute", "value", "of the slow (of 1)", "of the others (of 1)"],
        rows: found.map((c) => [c.service, c.key, c.value, c.slow, c.rest]),
      })}
      tableOnly
    >
      {found.length === 0 ? (
        <p className="dim">They differ in no attribute.</p>
      ) : (
        <Table
          label="Attributes of slow requests against the others"
          head={["Attribute", { text: "Of the slow", number: true }, { text: "Of the others", number: true }]}
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
