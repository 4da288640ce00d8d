// Timeline: the decisions about a problem or an incident, with reasons, results and costs, and annotations.
import { Link } from "wouter";
import type { Schemas } from "../api/client.ts";
import { type Annotation, describeAnnotation } from "../logic/annotations.ts";
import { bytes, count, digits, duration, percent, share, keepUnits } from "../logic/format.ts";
import { When } from "../components/basics.tsx";
import { isInIncident } from "../logic/incidents.ts";
import { Figure } from "../components/figure.tsx";
import { StateBadge } from "../components/badges.tsx";
import { query } from "../url.ts";
import { Steering } from "./steering.tsx";

type Decision = Schemas["Decision"];

type TimelineProps = { detail: Schemas["ProblemDetail"]; annotations: Annotation[]; changed: () => void };

export function Timeline({ detail, annotations, changed }: TimelineProps) {
  const found = detail.investigation;
  const decisions = detail.decisions;
  const steps = [
    ...decisions.map((d) => ({ at: d.at, made: d, annotation: undefined })),
    ...annotations.map((a) => ({ at: a.at, made: undefined, annotation: a })),
  ].sort((a, b) => Date.parse(b.at) - Date.parse(a.at));
  // The page names a located place above, with its share as measured then.
  const suspects = (detail.located ? [] : (found?.investigation.suspects ?? []))
    .filter((x, i) => i === 0 || (x.share.value ?? 0) >= 0.01)
    .slice(0, 3);
  const joined = isInIncident(detail.problem);
  const idle = joined
    ? "Sibyl is investigating its incident: see the incident's page for the decisions."
    : "No investigation in progress.";
  return (
    <Figure
      id="investigation"
      title="Investigation"
      hint={
        found
          ? `Strategy ${found.investigation.strategy}, ${count(found.investigation.epochs)} epochs; ${count(found.investigation.tried)} tracepoints tried, ${count(found.investigation.on)} on now.`
          : idle
      }
      tools={
        <>
          <Link href={`/tracepoints${query({ state: "on" })}`}>Active tracepoints</Link>
          {!detail.problem.closed && (
            <Steering subject={detail.problem.id} investigation={found?.investigation} changed={changed} />
          )}
        </>
      }
      table={() => ({
        header: ["at", "from", "to", "decision", "reason", "on", "off"],
        rows: steps.map(({ at, made: d, annotation }) =>
          d
            ? [
                at,
                d.from,
                d.to,
                d.text,
                d.reason,
                d.picks.map((p) => p.tracepoint_name).join(" "),
                d.off.map((o) => o.tracepoint_name).join(" "),
              ]
            : [at, "", "", describeAnnotation(annotation), "", "", ""],
        ),
      })}
      tableOnly
      folded
    >
      {suspects.length > 0 && (
        <p className="hint">
          So far the slowdown appears to be in{" "}
          {suspects.map((x) => `${x.operation} (${share(x.share.value)})`).join(", ")}.
        </p>
      )}
      {decisions.length === 0 && !joined && (
        <p className="dim">No decisions yet. Sibyl decides at the end of each epoch.</p>
      )}
      {steps.length > 0 && (
        <ol className="timeline">
          {steps.map(({ made, annotation }) =>
            made ? <Step key={made.id} d={made} /> : <Annotated key={annotation.id} a={annotation} />,
          )}
        </ol>
      )}
    </Figure>
  );
}

function Annotated({ a }: { a: Annotation }) {
  return (
    <li className="annotated">
      <div className="dim small">
        <When at={a.at} />
      </div>
      <div className="path">▲ {describeAnnotation(a)}</div>
    </li>
  );
}

// Decisions lists decisions, latest first.
export function Decisions({ of }: { of: Decision[] }) {
  return (
    <ol className="timeline">
      {of.map((d) => (
        <Step key={d.id} d={d} />
      ))}
    </ol>
  );
}

function Step({ d }: { d: Decision }) {
  return (
    <li>
      <div className="dim small">
        <When at={d.at} /> {d.from !== d.to && <StateBadge of={d.to} />}
      </div>
      <div className="path">{keepUnits(d.text)}</div>
      <div className="small dim">
        {cost(d)} · based on {count(d.requests)} requests
        {d.overhead && d.overhead.mean_ns.value !== null && (
          <> · measured overhead {digits(Math.max(0, d.overhead.mean_ns.value) / 1e6)} ms on average</>
        )}
      </div>
      {(d.picks.length > 0 || d.off.length > 0 || d.rejected.length > 0) && (
        <details>
          <summary>Details</summary>
          <Lists d={d} />
        </details>
      )}
    </li>
  );
}

function cost({ estimate: { tracepoints, bytes: data, cpu } }: Decision): string {
  if (tracepoints === 0) return "no tracepoints on afterwards";
  const on = tracepoints === 1 ? "1 tracepoint" : `${count(tracepoints)} tracepoints`;
  return `afterwards ${on} on in total: ${bytes(data)}/s of trace data, ${duration((cpu ?? 0) * 1e9)}/s of CPU`;
}

const maxRejected = 20;

function Lists({ d }: { d: Decision }) {
  return (
    <>
      {d.picks.length > 0 && (
        <>
          <h3>Switched on</h3>
          <ul>
            {d.picks.map((p) => (
              <li key={p.tracepoint}>
                <span className="mono">{p.tracepoint_name}</span> — {p.reason}; expected share {percent(p.score)}, for{" "}
                {bytes(p.cost.bytes)}/s
              </li>
            ))}
          </ul>
        </>
      )}
      {d.off.length > 0 && (
        <>
          <h3>Switched off</h3>
          <ul>
            {d.off.map((o) => (
              <li key={o.tracepoint}>
                <span className="mono">{o.tracepoint_name}</span> — {o.reason}
              </li>
            ))}
          </ul>
        </>
      )}
      {d.rejected.length > 0 && (
        <>
          <h3>Rejected</h3>
          <ul>
            {d.rejected.slice(0, maxRejected).map((r) => (
              <li key={r.tracepoint}>
                <span className="mono">{r.tracepoint_name}</span> — {r.reason}
              </li>
            ))}
            {d.rejected.length > maxRejected && <li>and {count(d.rejected.length - maxRejected)} more</li>}
          </ul>
        </>
      )}
    </>
  );
}
