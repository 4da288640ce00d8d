// Trace: a request as a waterfall, with what decided how long it took.
import { useMemo, useState } from "react";
import { Link } from "wouter";
import { type Schemas, client } from "../api/client.ts";
import { useRead } from "../api/read.ts";
import { count, duration, percent } from "../compute/format.ts";
import { type Row, type Stretch, rows, shown } from "../compute/waterfall.ts";
import { useKeys } from "../keys.ts";
import { Choice, Empty, Facts, Read, Search, When, useTitle } from "../parts/basics.tsx";
import { Figure } from "../parts/figure.tsx";
import { Virtual, depth } from "../parts/virtual.tsx";
import { useQuery } from "../url.ts";

type Trace = Schemas["Trace"];

export default function TraceView({ id }: { id: string }) {
  useTitle(`Trace ${id.slice(0, 8)}`);
  const reading = useRead(`trace ${id}`, (signal) => client.GET("/traces/{trace}", { params: { path: { trace: id } }, signal }));
  if (reading.failure?.status === 404) {
    return <Empty page title="This trace is not kept any more">Of each group only a few requests are kept: the slowest, some typical and the fastest. Your tracing backend may have it: {id}</Empty>;
  }
  return (
    <Read of={reading} what="the trace">
      {(trace) => <Shown trace={trace} />}
    </Read>
  );
}

function Shown({ trace }: { trace: Trace }) {
  const [problem] = useQuery("problem");
  const root = trace.spans.find((s) => s.id === trace.roots[0]?.span) ?? trace.spans[0];
  const own = trace.roots[0]?.sections.length ?? 0;
  return (
    <>
      <div className="crumbs">
        <Link href="/">Problems</Link>
        {problem && (
          <>
            <span aria-hidden="true">›</span> <Link href={`/problems/${problem}`}>The problem</Link>
          </>
        )}
        <span aria-hidden="true">›</span> Trace <span className="mono">{trace.id}</span>
      </div>
      <h1>{root ? `${root.service} ${root.name}` : "A trace without spans"}</h1>
      <Facts
        of={[
          ["Took", duration(trace.duration_ns)],
          ["Began", <When at={trace.start} />],
          ["Spans", count(trace.spans.length)],
          ["Critical path", `${count(own)} sections`],
          ...(trace.dropped_spans > 0 ? ([["Not shown", `${count(trace.dropped_spans)} spans, beyond the bound`]] as [string, string][]) : []),
          ...(trace.flags.length > 0 ? ([["Unusual", trace.flags.join(", ")]] as [string, string][]) : []),
        ]}
      />
      {trace.links.length > 0 && (
        <p className="toolbar">
          {trace.links.map((link) => (
            <a key={link.name} href={link.url} rel="noreferrer" target="_blank">
              Open in {link.name}
            </a>
          ))}
        </p>
      )}
      <Waterfall trace={trace} />
    </>
  );
}

function Waterfall({ trace }: { trace: Trace }) {
  const hasRefined = trace.roots.some((r) => r.refined.length > 0);
  const [path, setPath] = useQuery("path", "refined");
  const [only, setOnly] = useQuery("only");
  const [q, setQ] = useQuery("q");
  const [picked, setPicked] = useQuery("span");
  const [folded, setFolded] = useState<ReadonlySet<string>>(new Set());
  const all = useMemo(() => rows(trace, path === "refined"), [trace, path]);
  const visible = useMemo(() => shown(all, folded, only === "critical"), [all, folded, only]);
  const found = useMemo(() => (q ? visible.findIndex((i) => label(all[i]!).toLowerCase().includes(q.toLowerCase())) : -1), [all, visible, q]);
  const at = visible.findIndex((i) => all[i]!.span.id === picked);
  const fold = (row: Row, yes: boolean) => {
    const next = new Set(folded);
    if (yes) next.add(row.span.id);
    else next.delete(row.span.id);
    setFolded(next);
  };
  const pickAt = (i: number) => {
    const index = visible[Math.max(0, Math.min(visible.length - 1, i))];
    if (index !== undefined) setPicked(all[index]!.span.id);
  };
  const chosen = at >= 0 ? all[visible[at]!] : undefined;
  useKeys({
    j: () => pickAt(at + 1),
    k: () => pickAt(at < 0 ? 0 : at - 1),
    ArrowLeft: () => chosen && fold(chosen, true),
    ArrowRight: () => chosen && fold(chosen, false),
  });
  return (
    <Figure
      title="Waterfall"
      hint="Solid: on the critical path, where only this span runs. Striped: between a caller and its callee, on the wire or in a queue. Light: waiting for others, or off the path."
      tools={
        <>
          <Search value={q} pick={setQ} label="Find a span ( / )" />
          <Choice label="Spans" value={only} pick={setOnly} of={[["", "All"], ["critical", "Critical path"]]} />
          {hasRefined && <Choice label="Path" value={path} pick={setPath} of={[["refined", "With switched-on"], ["baseline", "Baseline"]]} />}
        </>
      }
      table={() => ({
        header: ["service", "operation", "kind", "start (ms)", "duration (ms)", "own on the critical path (ms)", "error", "tracepoint"],
        rows: all.map(({ span: s }) => [s.service, s.name, s.kind, s.start_ns / 1e6, s.duration_ns / 1e6, s.exclusive_ns / 1e6, s.error ? "error" : "", s.tracepoint]),
      })}
      tableOnly
    >
      <svg width="0" height="0" aria-hidden="true" style={{ position: "absolute" }}>
        <pattern id="wire" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <rect width="3" height="5" fill="var(--wire)" />
        </pattern>
      </svg>
      <div className="split">
        <div className="waterfall">
          <Virtual
            label="Spans" count={visible.length} height={26} focus={q ? found : at}
            head={
              <div className="vhead">
                <span>Span</span> <span className="number">Took</span> <span className="number">Own</span> <Scale of={trace.duration_ns} />
              </div>
            }
            row={(i) => {
              const row = all[visible[i]!]!;
              return <SpanRow key={row.span.id} row={row} total={trace.duration_ns} folded={folded.has(row.span.id)} fold={(yes) => fold(row, yes)} selected={row.span.id === picked || i === found} pick={() => setPicked(row.span.id)} />;
            }}
          />
        </div>
        <Details trace={trace} row={chosen} all={all} />
      </div>
    </Figure>
  );
}

const label = (row: Row) => `${row.span.service} ${row.span.name}`;

function Scale({ of }: { of: number }) {
  return (
    <span className="scale">
      <span>0</span>
      <span>{duration(of / 2)}</span>
      <span>{duration(of)}</span>
    </span>
  );
}

type SpanRowProps = { row: Row; total: number; folded: boolean; fold: (yes: boolean) => void; selected: boolean; pick: () => void };

function SpanRow({ row, total, folded, fold, selected, pick }: SpanRowProps) {
  const { span } = row;
  const at = (ns: number) => `${(Math.max(0, Math.min(total, ns)) / (total || 1)) * 100}%`;
  const rect = (s: Stretch, className: string, y: number, height: number) => (
    <rect key={`${className} ${s.from}`} className={className} x={at(s.from)} style={{ width: `max(1.5px, ${((s.to - s.from) / (total || 1)) * 100}%)` }} y={y} height={height} />
  );
  return (
    <div className={`vrow${selected ? " selected" : ""}${row.through ? " path-row" : ""}`} onClick={pick}>
      <div className="vname" style={depth(Math.min(row.depth, 30))}>
        {row.parent ? (
          <button type="button" className="fold" aria-expanded={!folded} aria-label={`${folded ? "Unfold" : "Fold"} ${span.name}`} onClick={(e) => (e.stopPropagation(), fold(!folded))}>
            {folded ? "▸" : "▾"}
          </button>
        ) : (
          <span className="fold" />
        )}
        <span title={`${span.service} ${span.name} (${span.kind})`}>
          {row.through && <span aria-label="on the critical path">● </span>}
          {span.error && <span className="bad">✕ error </span>}
          <span className="dim">{span.service}</span> {span.name}
        </span>
      </div>
      <span className="number">{duration(span.duration_ns)}</span>
      <span className="number">{span.exclusive_ns > 0 ? duration(span.exclusive_ns) : ""}</span>
      <svg role="img" aria-label={`from ${duration(span.start_ns)} for ${duration(span.duration_ns)}`}>
        {rect({ from: span.start_ns, to: span.start_ns + span.duration_ns }, `span-bar${span.error ? " span-error" : ""}`, 7, 8)}
        {row.wire.map((s) => rect(s, "span-wire", 5, 12))}
        {row.critical.map((s) => rect(s, "span-critical", 5, 12))}
      </svg>
    </div>
  );
}

function Details({ trace, row, all }: { trace: Trace; row: Row | undefined; all: Row[] }) {
  if (!row) {
    return (
      <aside className="side">
        <h2>Where the time went</h2>
        <Longest trace={trace} all={all} />
        <p className="dim small">Pick a span to see what it says of itself.</p>
      </aside>
    );
  }
  const s = row.span;
  const wire = row.wire.reduce((sum, w) => sum + w.to - w.from, 0);
  const facts: [string, string][] = [
    ["Service", s.service], ["Kind", s.kind], ["Starts", duration(s.start_ns)], ["Took", duration(s.duration_ns)],
    ["Own", `${duration(s.exclusive_ns)} on the critical path, ${percent(s.exclusive_ns / (trace.duration_ns || 1))} of the request`],
    ...(wire > 0 ? ([["Wire", `${duration(wire)} outside of its callee`]] as [string, string][]) : []),
    ...(s.tracepoint ? ([["Tracepoint", s.tracepoint]] as [string, string][]) : []),
    ...(s.error ? ([["Status", "error"]] as [string, string][]) : []),
  ];
  return (
    <aside className="side" aria-live="polite">
      <h2>{s.name}</h2>
      <dl>{facts.map(pair)}</dl>
      {s.attributes.length > 0 && <h3>Attributes</h3>}
      <dl>{s.attributes.map((a) => pair([a.key, a.value]))}</dl>
    </aside>
  );
}

const pair = ([name, value]: [string, string]) => (
  <div key={name} style={{ display: "contents" }}>
    <dt>{name}</dt>
    <dd>{value}</dd>
  </div>
);

// Longest lists the spans with most time of their own on the critical path.
function Longest({ trace, all }: { trace: Trace; all: Row[] }) {
  const own = (row: Row) => row.critical.reduce((sum, c) => sum + c.to - c.from, 0);
  const found = all.filter((row) => row.critical.length > 0).sort((a, b) => own(b) - own(a)).slice(0, 6);
  return (
    <dl>
      {found.map((row) => (
        <div key={row.span.id} style={{ display: "contents" }}>
          <dt className="number">{percent(own(row) / (trace.duration_ns || 1))}</dt>
          <dd>
            {label(row)} <span className="dim small">{duration(own(row))}</span>
          </dd>
        </div>
      ))}
    </dl>
  );
}
