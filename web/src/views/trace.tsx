// Trace: a request as a waterfall with its critical path.
import { useMemo, useState } from "react";
import { Link } from "wouter";
import { type Schemas, client } from "../api/client.ts";
import { useIncident, useResource } from "../api/queries.ts";
import { Minimap } from "../charts/minimap.tsx";
import { count, duration, rank, abbreviate } from "../logic/format.ts";
import {
  type Row,
  type Interval,
  extent,
  matchPositions,
  matchingRows,
  nextMatch,
  rowLabel,
  rows,
  visibleRows,
} from "../logic/waterfall.ts";
import { serviceColors } from "../logic/service-colors.ts";
import { spanName } from "../logic/waits.ts";
import { parseZoom, place, formatZoom } from "../logic/zoom.ts";
import { useMedia } from "../settings.ts";
import { useKeys } from "../use-keys.ts";
import { Abbreviated, isAbbreviated } from "../components/abbreviated.tsx";
import { Facts, When, useTitle } from "../components/basics.tsx";
import { Choice, Search } from "../components/controls.tsx";
import { OpName, Sentence } from "../components/names.tsx";
import { Figure } from "../components/figure.tsx";
import { Empty, Async } from "../components/async-state.tsx";
import { VirtualList, indent } from "../components/virtual-list.tsx";
import { toggled, useID, useShortID, useEnum, useQuery, useSet, useSearchText } from "../url.ts";
import { Comparison } from "./trace-comparison.tsx";
import { TraceDetails } from "./trace-details.tsx";

type Trace = Schemas["Trace"];

export default function TraceView({ id }: { id: string }) {
  useTitle(`Trace ${id.slice(0, 8)}`);
  const resource = useResource(`trace ${id}`, (signal) =>
    client.GET("/traces/{trace}", { params: { path: { trace: id } }, signal }),
  );
  if (resource.failure && [400, 404].includes(resource.failure.status))
    return isAbbreviated(id, idDigits) ? <Beginning of={id} /> : <NotFound id={id} />;
  return (
    <Async of={resource} what="the trace">
      {(trace) => <Content trace={trace} />}
    </Async>
  );
}

const idDigits = 32;

// Beginning leads to the kept trace whose ID begins with some digits.
function Beginning({ of: id }: { of: string }) {
  const all = useResource(`traces ${id}`, (signal) =>
    client.GET("/traces", { params: { query: { trace: id, limit: 2 } }, signal }),
  );
  return (
    <Abbreviated id={id} among={all} path="/traces/">
      <NotFound id={id} />
    </Abbreviated>
  );
}

const NotFound = ({ id }: { id: string }) => (
  <Empty page title="Trace not found">
    Sibyl keeps only a few sample traces per group: the slowest, some typical ones and the fastest. Your tracing backend
    may still have it: {id}
  </Empty>
);

function Content({ trace }: { trace: Trace }) {
  const [problem] = useID("problem");
  const [incident] = useShortID("incident");
  const p = useResource(problem ? `problem ${problem}` : null, (signal) =>
    client.GET("/problems/{problem}", { params: { path: { problem } }, signal }),
  ).value?.problem;
  const x = useIncident(incident || null).value?.incident;
  const root = trace.spans.find((s) => s.id === trace.roots[0]?.span) ?? trace.spans[0];
  const own = trace.roots[0]?.sections.length ?? 0;
  return (
    <>
      <div className="crumbs">
        {problem ? (
          <>
            <Link href="/problems">Problems</Link> <span aria-hidden="true">›</span>{" "}
            <Link href={`/problems/${problem}`}>Problem</Link>
          </>
        ) : (
          <Link href="/traces">Traces</Link>
        )}
        {incident && (
          <>
            <span aria-hidden="true">›</span> <Link href={`/incidents/${incident}`}>Incident</Link>
          </>
        )}
        <span aria-hidden="true">›</span> Trace <span className="mono">{trace.id}</span>
      </div>
      <h1>{root ? <OpName>{`${root.service} ${root.name}`}</OpName> : "Trace without spans"}</h1>
      <Facts
        of={[
          [
            "Duration",
            <>
              {duration(trace.duration_ns)}
              {p && <span className="dim small"> {duration(p.p50_ns)} median</span>}
            </>,
          ],
          ["Start", <When key="start" at={trace.start} />],
          ["Spans", count(trace.spans.length)],
          ["Critical path", `${count(own)} ${own === 1 ? "section" : "sections"}`],
          ...(trace.dropped_spans > 0
            ? ([["Not shown", `${count(trace.dropped_spans)} spans beyond the limit`]] as [string, string][])
            : []),
          ...(trace.flags.length > 0
            ? ([["Flags", trace.flags.join(", ").replaceAll("_", " ")]] as [string, string][])
            : []),
        ]}
      />
      {p && (
        <p className="does">
          <span>
            <Link href={`/problems/${problem}`}>Sample trace of a problem</Link>: <Sentence of={p.diagnosis_parts} />
          </span>
        </p>
      )}
      {x && (
        <p className="does">
          <span>
            <Link href={`/incidents/${incident}`}>Sample trace of an incident</Link>: <Sentence of={x.sentence_parts} />
          </span>
        </p>
      )}
      {trace.links.length > 0 && (
        <p className="toolbar">
          {trace.links.map((link) => (
            <a key={link.name} href={link.url} rel="noreferrer" target="_blank">
              Open in {link.name}
            </a>
          ))}
        </p>
      )}
      {trace.comparison && <Comparison of={trace.comparison} />}
      <Waterfall trace={trace} />
    </>
  );
}

// Heights of a span in px, as in style.css: on phones it has two lines.
const rowHeight = 26;
const phoneRowHeight = 48;

function Waterfall({ trace }: { trace: Trace }) {
  const height = useMedia("(max-width: 760px)") ? phoneRowHeight : rowHeight;
  const hasRefined = trace.roots.some((r) => r.refined.length > 0);
  const [path, setPath] = useEnum("path", ["refined", "baseline"]);
  const [only, setOnly] = useEnum("only", ["", "critical"]);
  const [q, setQ] = useSearchText();
  const [picked, setPicked] = useQuery("span");
  const [zoom, setZoom] = useQuery("zoom");
  const [dragged, setDragged] = useState<Interval>(); // during a drag on the overview
  const [folded, setFolded] = useSet("folded");
  const all = useMemo(() => rows(trace, path === "refined"), [trace, path]);
  const zoomed = useMemo(() => parseZoom(zoom, trace.duration_ns), [zoom, trace]);
  const range = dragged ?? zoomed;
  const visible = useMemo(() => visibleRows(all, folded, only === "critical", range), [all, folded, only, range]);
  const matched = useMemo(() => matchingRows(all, q), [all, q]);
  const found = useMemo(() => matchPositions(visible, matched), [visible, matched]);
  const at = visible.findIndex((i) => all[i]!.id === picked);
  const fold = (row: Row, yes: boolean) => row.parent && setFolded(toggled(folded, row.id, yes));
  const pickAt = (i: number) => {
    const index = visible[Math.max(0, Math.min(visible.length - 1, i))];
    if (index !== undefined) setPicked(all[index]!.id);
  };
  const go = (by: 1 | -1) => {
    const next = nextMatch(found, at, by);
    if (next !== undefined) pickAt(next);
  };
  const seek = (text: string) => {
    setQ(text);
    const [first] = matchPositions(visible, matchingRows(all, text));
    if (first !== undefined) pickAt(first);
  };
  const changeRange = (range: Interval) => {
    setDragged(undefined);
    setZoom(formatZoom(range, trace.duration_ns));
  };
  const chosen = useMemo(() => all.find((row) => row.id === picked), [all, picked]);
  const colors = useMemo(() => serviceColors(trace.spans), [trace]);
  // reveal selects a row. If it is hidden, it expands its ancestors, clears the filter and resets the zoom.
  const reveal = (row: Row) => {
    setPicked(row.id);
    const i = all.indexOf(row);
    if (visible.includes(i)) return;
    setFolded([...folded].filter((id) => !all.some((above, k) => above.id === id && k < i && above.end > i)));
    setOnly("");
    changeRange({ from: 0, to: trace.duration_ns });
  };
  const move = (by: 1 | -1) => {
    // If the selected row is hidden, start from the row that hides it.
    const from = chosen && at < 0 ? visible.findLastIndex((i) => i <= all.indexOf(chosen)) : at;
    pickAt(from < 0 ? 0 : from + by);
  };
  useKeys({
    j: () => move(1),
    k: () => move(-1),
    ArrowLeft: () => chosen && fold(chosen, true),
    ArrowRight: () => chosen && fold(chosen, false),
  });
  return (
    <Figure
      title="Waterfall"
      hint="Solid: self time on the critical path. Striped: between caller and callee, on the wire or in a queue. Framed: a gap in which nothing instrumented ran. Light, in the colour of the service: waiting for other spans, or off the critical path."
      tools={
        <>
          <Search value={q} pick={seek} label="Find a span ( / )" step={go} />
          {q && <Found of={found} at={at} hidden={matched.size - found.length} step={go} />}
          <Choice
            label="Spans"
            value={only}
            pick={setOnly}
            of={[
              ["", "All"],
              ["critical", "Critical path"],
            ]}
          />
          {zoom && (
            <button type="button" onClick={() => setZoom("")}>
              Reset zoom
            </button>
          )}
          {hasRefined && (
            <Choice
              label="Path"
              value={path}
              pick={setPath}
              of={[
                ["refined", "With tracepoints"],
                ["baseline", "Baseline"],
              ]}
            />
          )}
        </>
      }
      table={() => ({
        header: [
          "service",
          "operation",
          "kind",
          "start (ms)",
          "duration (ms)",
          "self time on the critical path (ms)",
          "percentile",
          "spans compared",
          "error",
          "tracepoint",
        ],
        rows: all.map(({ span: s, gap }) =>
          gap
            ? [
                s.service,
                `${gap.wire ? "wire or queue" : "nothing instrumented ran"} in ${s.name}`,
                gap.wire ? "wait" : "gap",
                gap.from / 1e6,
                (gap.to - gap.from) / 1e6,
                null,
                null,
                null,
                "",
                "",
              ]
            : [
                s.service,
                s.name,
                s.kind,
                s.start_ns / 1e6,
                s.duration_ns / 1e6,
                s.exclusive_ns / 1e6,
                s.percentile,
                s.among,
                s.error ? "error" : "",
                s.tracepoint,
              ],
        ),
      })}
      tableOnly
      image
    >
      <ServiceLegend of={colors} find={seek} />
      <svg width="0" height="0" aria-hidden="true" style={{ position: "absolute" }}>
        <pattern id="wire" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <rect width="3" height="5" fill="var(--wire)" />
        </pattern>
        <pattern id="gap" width="4" height="4" patternUnits="userSpaceOnUse">
          <circle cx="1" cy="1" r="0.8" fill="var(--critical)" />
        </pattern>
      </svg>
      <div className="split">
        <div className="waterfall">
          <Minimap rows={all} whole={trace.duration_ns} range={range} onDrag={setDragged} onChange={changeRange} />
          <VirtualList
            key={height}
            label="Spans"
            count={visible.length}
            height={height}
            focus={{ id: [picked, q, only, zoom].join(" "), at: chosen ? at : (found[0] ?? -1) }}
            head={
              <div className="vhead">
                <span>Span</span> <span className="number">Duration</span> <span className="number">Self</span>
                <span className="number" title="Percentage of recent spans of the same operation that were shorter">
                  {" "}
                  Percentile{" "}
                </span>
                <Scale of={range} />
              </div>
            }
            row={(i) => {
              const row = all[visible[i]!]!;
              return (
                <SpanRow
                  key={row.id}
                  row={row}
                  color={colors.get(row.span.service)?.color ?? 0}
                  range={range}
                  folded={folded.has(row.id)}
                  fold={(yes) => fold(row, yes)}
                  selected={row.id === picked}
                  hit={matched.has(visible[i]!)}
                  pick={() => setPicked(row.id)}
                />
              );
            }}
          />
        </div>
        <TraceDetails trace={trace} row={chosen} all={all} pick={reveal} />
      </div>
    </Figure>
  );
}

// Found shows the number of matches and which one is selected, with buttons for the others.
function Found({ of, at, hidden, step }: { of: number[]; at: number; hidden: number; step: (by: 1 | -1) => void }) {
  const place = of.indexOf(at) + 1;
  return (
    <span className="found">
      <span role="status">
        {place > 0 && `${count(place)} of `}
        {of.length === 0 ? "none" : count(of.length)}
        {hidden > 0 && <span className="dim"> ({count(hidden)} not shown)</span>}
      </span>
      <button
        type="button"
        className="quiet"
        disabled={of.length === 0}
        aria-label="Previous match"
        title="Previous match (Shift+Enter)"
        onClick={() => step(-1)}
      >
        ↑
      </button>
      <button
        type="button"
        className="quiet"
        disabled={of.length === 0}
        aria-label="Next match"
        title="Next match (Enter)"
        onClick={() => step(1)}
      >
        ↓
      </button>
    </span>
  );
}

function Scale({ of }: { of: Interval }) {
  return (
    <span className="scale">
      <span>{of.from > 0 ? duration(of.from) : "0"}</span>
      <span>{duration((of.from + of.to) / 2)}</span>
      <span>{duration(of.to)}</span>
    </span>
  );
}

// ServiceLegend names the services of a trace with their colours. A service finds its spans.
function ServiceLegend({ of, find }: { of: ReturnType<typeof serviceColors>; find: (text: string) => void }) {
  return (
    <ul className="legend plain" aria-label="Services">
      {[...of].map(([service, { color, spans }]) => (
        <li key={service}>
          <button type="button" className="link" title="Find its spans" onClick={() => find(service)}>
            <i className={`service-${color}`} aria-hidden="true" />
            <bdi className="mono">{service}</bdi>
          </button>{" "}
          <span className="dim small">{count(spans)}</span>
        </li>
      ))}
    </ul>
  );
}

type SpanRowProps = {
  row: Row;
  color: number; // of the service
  range: Interval;
  folded: boolean;
  fold: (yes: boolean) => void;
  selected: boolean;
  hit: boolean;
  pick: () => void;
};

const maxServiceLength = 28; // characters

function SpanRow({ row, color, range, folded, fold, selected, hit, pick }: SpanRowProps) {
  const { span, gap } = row;
  const { from, to } = extent(row);
  const rect = (s: Interval, className: string, y: number, height: number, key = 0) => {
    const placed = place(s, range);
    return (
      placed && (
        <rect
          key={`${className} ${key}`}
          className={className}
          x={`${placed.x * 100}%`}
          style={{ width: `max(1.5px, ${placed.width * 100}%)` }}
          y={y}
          height={height}
        />
      )
    );
  };
  return (
    // eslint-disable-next-line jsx-a11y/click-events-have-key-events, jsx-a11y/no-static-element-interactions -- j and k select rows
    <div
      className={`vrow${selected ? " selected" : ""}${hit ? " hit" : ""}${row.onPath ? " path-row" : ""}${gap ? " gap-row" : ""}`}
      onClick={pick}
    >
      <div className="vname" style={indent(Math.min(row.depth, 30))}>
        {row.parent ? (
          <button
            type="button"
            className="fold"
            aria-expanded={!folded}
            aria-label={`${folded ? "Expand" : "Collapse"} ${span.name}`}
            onClick={(e) => (e.stopPropagation(), fold(!folded))}
          >
            {folded ? "▸" : "▾"}
          </button>
        ) : (
          <span className="fold" />
        )}
        {gap ? (
          <span title={`${rowLabel(row)}, in ${span.service} ${span.name}`}>{rowLabel(row)}</span>
        ) : (
          <span title={`${span.name}, ${span.service} (${span.kind})`}>
            <i className={`swatch service-${color}`} aria-hidden="true" />
            {row.onPath && <span aria-label="on the critical path">● </span>}
            {span.error && <span className="bad">✕ error </span>}
            {spanName(span.name)} <span className="dim">{abbreviate(span.service, maxServiceLength)}</span>
          </span>
        )}
      </div>
      {!gap && (
        <>
          <span className="number">{duration(to - from)}</span>
          <span className="number">{span.exclusive_ns > 0 ? duration(span.exclusive_ns) : ""}</span>
          <span className="number">
            <Rank of={span} />
          </span>
        </>
      )}
      <svg role="img" aria-label={`from ${duration(from)} for ${duration(to - from)}`}>
        {gap ? (
          rect(gap, gap.wire ? "span-wire" : "span-gap", 5, 12)
        ) : (
          <>
            {rect({ from, to }, `span-bar service-${color}${span.error ? " span-error" : ""}`, 7, 8)}
            {row.wire.map((s, i) => rect(s, "span-wire", 5, 12, i))}
            {row.critical.map((s, i) => rect(s, "span-critical", 5, 12, i))}
          </>
        )}
      </svg>
    </div>
  );
}

const slowRank = 95; // percentile from which a span is highlighted

// Rank shows the percentile of a span, as a number and as a mark on a line.
function Rank({ of: { percentile, among } }: { of: Schemas["Span"] }) {
  if (percentile === null)
    return (
      <span className="dim" title={`too few spans of this operation: ${among}`}>
        –
      </span>
    );
  const slow = percentile >= slowRank;
  return (
    <span
      className={slow ? "rank-slow" : ""}
      title={`slower than ${rank(percentile)} of ${count(among)} spans of this operation`}
    >
      {rank(percentile)}
      <svg className="rank-mark" width="30" height="10" aria-hidden="true">
        <line x1="0" x2="30" y1="5" y2="5" />
        <rect x={(percentile / 100) * 27} y={slow ? 0 : 2} width="3" height={slow ? 10 : 6} />
      </svg>
    </span>
  );
}
