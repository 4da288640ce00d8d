// Exemplars: sample traces of a group.
import { Link } from "wouter";
import type { Schemas } from "../api/client.ts";
import type { Resource } from "../api/queries.ts";
import { duration } from "../logic/format.ts";
import { When } from "../components/basics.tsx";
import { Figure } from "../components/figure.tsx";
import { Term } from "../components/tooltip.tsx";
import { Async } from "../components/async-state.tsx";
import { query } from "../url.ts";

type Exemplar = Schemas["Exemplar"];

export type ExemplarsResource = Resource<Schemas["ExemplarList"]>;

// traceLink returns the path of the trace of an exemplar, as a sample of a problem.
export const traceLink = (e: Exemplar, problem: string) => `/traces/${e.trace}${query({ problem })}`;

// isBefore reports whether an exemplar is older than a change that began at a time, in ms; null: there was none.
export const isBefore = (e: Exemplar, began: number | null) => began !== null && Date.parse(e.start) < began;

const strata = [
  ["slow", "Slowest"],
  ["typical", "Typical"],
  ["fast", "Fastest"],
  ["failed", "Failed"],
] as const;

type Props = { exemplars: ExemplarsResource; problem: Schemas["Problem"]; began: number | null };

export function Exemplars({ exemplars, problem, began }: Props) {
  const typical = exemplars.value?.items.some((e) => e.stratum === "typical" && !isBefore(e, began));
  return (
    <Figure
      id="exemplars"
      title="Sample traces"
      table={() => ({
        header: ["stratum", "trace", "start", "duration (ms)"],
        rows: (exemplars.value?.items ?? []).map((e) => [e.stratum, e.trace, e.start, e.duration_ns / 1e6]),
      })}
      tableOnly
    >
      <Async of={exemplars} what="exemplars">
        {({ items }) =>
          items.length === 0 ? (
            <p className="dim">
              No samples yet. They are stored when an epoch ends, if <code>retention.exemplars</code> is above 0.
            </p>
          ) : (
            <div className="exemplars">
              {strata
                .filter(([stratum]) => stratum !== "failed" || items.some((e) => e.stratum === "failed"))
                .map(([stratum, name]) => (
                  <div key={stratum}>
                    <h3>
                      {stratum === "typical" && problem.kind === "slow" && typical ? (
                        <Term title="They show why this operation is slow; the slowest may be waiting for something else">
                          {name}
                        </Term>
                      ) : (
                        name
                      )}
                    </h3>
                    <ul>
                      {items
                        .filter((e) => e.stratum === stratum)
                        .map((e, i) => (
                          <li key={i}>
                            <Link href={traceLink(e, problem.id)}>{duration(e.duration_ns)}</Link>{" "}
                            <span className="dim small">
                              <When at={e.start} brief />
                              {isBefore(e, began) && ", before the problem"}
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
  );
}
