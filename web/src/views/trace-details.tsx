// The panel beside a waterfall: details of a span or a gap, or a breakdown of the whole trace.
import { useMemo } from "react";
import type { Schemas } from "../api/client.ts";
import { count, duration, percent, rank } from "../logic/format.ts";
import { spanName, waitedFor } from "../logic/waits.ts";
import { type Row, totals } from "../logic/waterfall.ts";
import { When } from "../components/basics.tsx";

type Trace = Schemas["Trace"];

export function TraceDetails({
  trace,
  row,
  all,
  pick,
}: {
  trace: Trace;
  row: Row | undefined;
  all: Row[];
  pick: (row: Row) => void;
}) {
  if (!row) return <Breakdown trace={trace} all={all} pick={pick} />;
  return (
    <aside className="side" aria-live="polite" aria-label="The span" tabIndex={0}>
      {row.gap ? <GapDetails trace={trace} row={row} /> : <SpanDetails trace={trace} row={row} />}
    </aside>
  );
}

const part = (ns: number, trace: Trace) => `${percent(ns / (trace.duration_ns || 1))} of the request`;

function SpanDetails({ trace, row }: { trace: Trace; row: Row }) {
  const s = row.span;
  const wire = row.wire.reduce((sum, w) => sum + w.to - w.from, 0);
  const wait = waitedFor(s.attributes);
  const facts: [string, string][] = [
    ["Service", s.service],
    ["Kind", s.kind],
    ...(wait ? ([["Waited for", wait]] as [string, string][]) : []),
    ["Starts", duration(s.start_ns)],
    ["Duration", duration(s.duration_ns)],
    ...(s.usual_ns === null ? [] : ([["Usually", `${duration(s.usual_ns)} (median)`]] as [string, string][])),
    ["Self", `${duration(s.exclusive_ns)} on the critical path, ${part(s.exclusive_ns, trace)}`],
    ...(wire > 0 ? ([["Wire", `${duration(wire)} on the wire or in the callee's queue`]] as [string, string][]) : []),
    ...(s.tracepoint ? ([["Tracepoint", s.tracepoint]] as [string, string][]) : []),
    ...(s.error ? ([["Status", "error"]] as [string, string][]) : []),
  ];
  return (
    <>
      <h2>{spanName(s.name)}</h2>
      <p className="rank">
        <Ranked of={s} />
        {trace.ranked_since && s.among > 0 && (
          <span className="dim small">
            {" "}
            Since <When at={trace.ranked_since} />
          </span>
        )}
      </p>
      <dl>{facts.map(pair)}</dl>
      {s.attributes.length > 0 && <h3>Attributes</h3>}
      <dl>{s.attributes.map((a, i) => pair([a.key, a.value], i))}</dl>
    </>
  );
}

function Ranked({ of: s }: { of: Schemas["Span"] }) {
  if (s.percentile === null) {
    return <span className="dim">{spanCount(s.among)} of this operation recently: too few for a comparison.</span>;
  }
  return (
    <>
      Slower than <strong>{rank(s.percentile)}</strong> of {count(s.among)} spans of this operation.
    </>
  );
}

function spanCount(n: number): string {
  if (n === 0) return "No spans";
  return n === 1 ? "One span" : `${n} spans`;
}

function GapDetails({ trace, row }: { trace: Trace; row: Row }) {
  const { span: s } = row;
  const gap = row.gap!;
  const facts: [string, string][] = [
    [gap.wire ? "Caller" : "Within", `${s.service} ${s.name}`],
    ["Starts", duration(gap.from)],
    ["Duration", `${duration(gap.to - gap.from)}, ${part(gap.to - gap.from, trace)}`],
  ];
  return (
    <>
      <h2>{gap.wire ? "Wait" : "Gap"}</h2>
      <dl>{facts.map(pair)}</dl>
      <p>
        {gap.wire
          ? "The caller was waiting, but the callee's span was not running: the request or the response was on the wire or in the callee's queue."
          : "The request was waiting for this span, and no child span was running. A tracepoint inside it could show the cause."}
      </p>
    </>
  );
}

// pair renders a name with its value. i is its key, since names may be duplicate.
const pair = ([name, value]: [string, string], i: number) => (
  <div key={i} style={{ display: "contents" }}>
    <dt>{name}</dt>
    <dd>{value}</dd>
  </div>
);

const maxListed = 6;
const long = (row: Row) => row.gap!.to - row.gap!.from;

// Breakdown lists the spans with the most self time on the critical path, and the longest gaps.
function Breakdown({ trace, all, pick }: { trace: Trace; all: Row[]; pick: (row: Row) => void }) {
  const spans = useMemo(() => totals(all), [all]);
  const gaps = useMemo(() => all.filter((row) => row.gap).sort((a, b) => long(b) - long(a)), [all]);
  return (
    <aside className="side">
      <h2>Time breakdown</h2>
      <Shares of={spans.slice(0, maxListed)} whole={trace.duration_ns} pick={pick} />
      {gaps.length > 0 && <h3>Unaccounted for</h3>}
      <Shares
        of={gaps.slice(0, maxListed).map((row) => ({
          row,
          ns: long(row),
          text: `${row.gap!.wire ? "wait" : "gap"} in ${row.span.service} ${row.span.name}`,
        }))}
        whole={trace.duration_ns}
        pick={pick}
      />
      <p className="dim small">Select a span to see its attributes and how it compares with others of its operation.</p>
    </aside>
  );
}

function Shares({
  of,
  whole,
  pick,
}: {
  of: { row: Row; ns: number; text: string; count?: number }[];
  whole: number;
  pick: (row: Row) => void;
}) {
  return (
    <dl>
      {of.map(({ row, ns, text, count: spans = 1 }) => (
        <div key={row.id} style={{ display: "contents" }}>
          <dt className="number">{percent(ns / (whole || 1))}</dt>
          <dd>
            <button type="button" className="link" onClick={() => pick(row)}>
              {text}
            </button>{" "}
            <span className="dim small">
              {duration(ns)}
              {spans > 1 && ` in ${count(spans)} spans`}
            </span>
          </dd>
        </div>
      ))}
    </dl>
  );
}
