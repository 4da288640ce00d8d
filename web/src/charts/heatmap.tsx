// HeatMap draws durations over time: a column for each of the uniform bins, darker where more of its requests are. Dots
// are sample traces, vertical lines are marks, the band is the usual range, other lines are percentiles of another day.
// Pointer, touch and arrow keys read the columns. A drag, or the arrow keys with Shift and then Enter, select a time
// range; a diagonal drag selects a box of times and durations.
import { useState } from "react";
import type { Schemas } from "../api/client.ts";
import type { PastPoint } from "../logic/past.ts";
import { count, duration, time } from "../logic/format.ts";
import {
  type Drag,
  type Point,
  type Span,
  axis,
  binsIn,
  cells,
  columnOf,
  quantile,
  selection,
  snapped,
  ticksOf,
} from "../logic/heatmap.ts";
import { useNow, useZone } from "../settings.ts";
import { useSize } from "./use-size.ts";

// Mark is an event, drawn as a vertical line: solid with a triangle for an annotation, dashed for others.
export type Mark = { at: number; text: string; title: string; annotation?: boolean };
export type Dot = { at: number; ns: number; title: string; go: () => void };
export type Usual = Schemas["UsualLatency"];

type Props = {
  span: Span;
  windows: Schemas["Window"][]; // the bins with requests
  marks: Mark[];
  dots: Dot[];
  behind?: PastPoint[];
  usual: Usual | undefined;
  expected: number | null; // mean in ns
  label: string;
  brush: (from: number, to: number, longer: number, shorter: number) => void;
};

// Sizes in px.
const plotRoom = 250; // height of the plot with its margins
const left = 62;
const line = 12; // height of a line of labels
const foot = 20;
const labelDistance = 64; // between time labels, at least
const timeWidth = 50;
const shades = 5; // of cells with requests

export function HeatMap({ span, windows, marks, dots, behind = [], usual, expected, label, brush }: Props) {
  const [svg, { width }] = useSize<SVGSVGElement>({ width: 700, height: 0 });
  const [drag, setDrag] = useState<Drag>();
  const [pointed, setPointed] = useState<number>(); // column
  const [anchor, setAnchor] = useState<number>(); // column at which the keyboard began to select
  const [zone] = useZone();
  const now = useNow();
  const all = cells(windows, span);
  const scale = axis(span);
  const columns = binsIn(span);
  const inside = (ms: number) => ms >= span.from && ms <= span.to;
  const shownDots = dots.filter((d) => inside(d.at));
  const shownMarks = marks.filter((m) => inside(m.at));
  const lines = [
    ...behind.flatMap((p) => [p.p50, p.p99]),
    expected,
    usual?.p10_ns,
    usual?.p90_ns,
    ...shownDots.map((d) => d.ns),
  ].filter((ns) => ns !== null && ns !== undefined);
  const low = Math.log(Math.max(1, Math.min(...all.map((c) => c.low), ...lines)));
  const high = Math.log(Math.max(2, ...all.map((c) => c.high), ...lines));
  const plot = { width: Math.max(1, width - left - 6), height: plotRoom - line - 6 - foot };
  const x = (ms: number) => left + scale.position(ms) * plot.width;
  const labels = labelLines(
    shownMarks.map((m) => ({ x: x(m.at) > width - 40 ? x(m.at) - 26 : x(m.at), always: m.annotation === true })),
  );
  const top = 6 + line * Math.max(1, ...labels);
  const y = (ns: number) => top + plot.height * (1 - (Math.log(Math.max(1, ns)) - low) / (high - low || 1));
  const height = top + plot.height + foot;
  const columnX = (column: number) => left + (column / columns) * plot.width;
  const columnWidth = plot.width / columns;
  const gap = columnWidth > 5 ? 1 : 0;
  const maxShare = Math.max(...all.map((c) => c.share));
  const at = (event: React.PointerEvent): Point => {
    const box = svg.current!.getBoundingClientRect();
    return [
      Math.max(0, Math.min(1, (event.clientX - box.left - left) / plot.width)),
      Math.max(0, Math.min(1, (event.clientY - box.top - top) / plot.height)),
    ];
  };
  const picked = drag && selection(drag);
  const nanos = (y: number) => Math.exp(high - y * (high - low));
  const end = () => {
    if (picked) {
      const [from, to] = snapped(span, scale.time(picked.x[0]), scale.time(picked.x[1]));
      brush(from, to, picked.y[1] < 1 ? nanos(picked.y[1]) : 0, picked.y[0] > 0 ? nanos(picked.y[0]) : Infinity);
    }
    setDrag(undefined);
  };
  const columnAt = (position: number) => Math.min(columns - 1, columnOf(span, scale.time(position)));
  const key = (event: React.KeyboardEvent) => {
    const from = pointed ?? columns;
    if (event.key === "Escape") {
      setPointed(undefined);
      setAnchor(undefined);
    }
    if (event.key === "Enter" && pointed !== undefined) {
      const [first, last] = [Math.min(pointed, anchor ?? pointed), Math.max(pointed, anchor ?? pointed)];
      brush(span.from + first * span.bin, span.from + (last + 1) * span.bin, 0, Infinity);
    }
    const next = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: columns - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    const to = Math.max(0, Math.min(columns - 1, next));
    setAnchor(event.shiftKey ? (anchor ?? pointed ?? to) : undefined);
    setPointed(to);
  };
  const read = (column: number) => {
    const begin = span.from + column * span.bin;
    const times = `${time(begin, zone, now)} to ${time(begin + span.bin, zone, now)}`;
    const w = windows.find((w) => columnOf(span, Date.parse(w.from)) === column);
    if (!w) return `${times}: no requests`;
    return `${times}: ${count(w.count)} ${w.count === 1 ? "request" : "requests"}, mean ${duration(w.mean_ns)}, P50 ${duration(quantile(w.latency, 0.5))}, P99 ${duration(quantile(w.latency, 0.99))}${w.failed > 0 ? `, ${count(w.failed)} failed` : ""}`;
  };
  const readout = pointed === undefined ? "" : read(pointed);
  const selected =
    anchor !== undefined && pointed !== undefined ? [Math.min(anchor, pointed), Math.max(anchor, pointed)] : undefined;
  const drawing = (
    <svg
      ref={svg}
      className="chart"
      height={height}
      role="slider"
      tabIndex={0}
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={columns - 1}
      aria-valuenow={pointed ?? columns - 1}
      aria-valuetext={readout || label}
      style={{ touchAction: "pan-y", cursor: "crosshair" }}
      onPointerDown={(e) => (setPointed(columnAt(at(e)[0])), e.button === 0 && setDrag([at(e), at(e)]))}
      onPointerMove={(e) => (setPointed(columnAt(at(e)[0])), drag && setDrag([drag[0], at(e)]))}
      onPointerUp={end}
      onPointerLeave={(e) => (setDrag(undefined), e.pointerType !== "touch" && setPointed(undefined))}
      onPointerCancel={() => setDrag(undefined)}
      onBlur={() => (setPointed(undefined), setAnchor(undefined))}
      onKeyDown={key}
    >
      <rect className="plot" x={left} y={top} width={plot.width} height={plot.height} />
      {all.map((c) => (
        <rect
          key={`${c.column} ${c.low}`}
          x={columnX(c.column)}
          y={y(c.high)}
          width={Math.max(1, columnWidth - gap)}
          height={Math.max(1, y(c.low) - y(c.high))}
          style={{ fill: `var(--cell-${1 + Math.min(shades - 1, Math.floor((shades * c.share) / maxShare))})` }}
        />
      ))}
      <UsualBand usual={usual} expected={expected} y={y} x={left} width={plot.width} />
      {pointed !== undefined && (
        <rect
          className="column-pointed"
          x={columnX(pointed) - 1}
          width={columnWidth + 1}
          y={top}
          height={plot.height}
        />
      )}
      {[0.04, 0.35, 0.66, 0.96].map((part) => {
        const ns = Number(Math.exp(low + (high - low) * part).toPrecision(2));
        return (
          <text key={part} className="axis" x={left - 6} y={y(ns) + 4} textAnchor="end">
            {duration(ns)}
          </text>
        );
      })}
      {ticksOf(span.from, span.to, Math.max(2, Math.floor(plot.width / labelDistance) - 1))
        .filter((ms) => x(ms) < width - timeWidth)
        .map((ms) => (
          <g key={ms}>
            <line className="tick" x1={x(ms)} x2={x(ms)} y1={top + plot.height} y2={top + plot.height + 4} />
            <text className="axis" x={x(ms)} y={height - 5}>
              {time(ms, zone, now).replace(" UTC", "").slice(-8, -3)}
            </text>
          </g>
        ))}
      {(["p99", "p50"] as const).map((of) => (
        <polyline
          key={of}
          className="past"
          points={behind
            .filter((p) => p[of] !== null)
            .map((p) => `${x(p.at).toFixed(1)},${y(p[of]!).toFixed(1)}`)
            .join(" ")}
          strokeDasharray={of === "p50" ? "6 4" : "none"}
        />
      ))}
      {shownMarks.map((m, i) => (
        <g key={i} data-tip={m.title}>
          <line
            x1={x(m.at)}
            x2={x(m.at)}
            y1={top - 4}
            y2={top + plot.height}
            style={{ stroke: "var(--text)", strokeDasharray: m.annotation ? "none" : "3 3", opacity: 0.7 }}
          />
          {m.annotation && (
            <path
              d={`M${x(m.at)} ${top + plot.height - 7} l5 8 h-10 z`}
              style={{ fill: "var(--text)", stroke: "var(--raised)" }}
            />
          )}
          {labels[i]! > 0 && (
            <text
              className="axis"
              x={x(m.at)}
              y={line * labels[i]! - 1}
              textAnchor={x(m.at) > width - 40 ? "end" : "middle"}
            >
              {m.text}
            </text>
          )}
        </g>
      ))}
      {shownDots.map((d) => (
        <circle
          key={`${d.at} ${d.ns}`}
          cx={x(d.at)}
          cy={y(d.ns)}
          r="4.5"
          style={{ fill: "var(--raised)", stroke: "var(--text)", strokeWidth: 1.6, cursor: "pointer" }}
          onPointerDown={(e) => e.stopPropagation()}
          onClick={d.go}
          data-tip={d.title}
        />
      ))}
      {selected && (
        <rect
          className="selection"
          x={columnX(selected[0]!)}
          width={(selected[1]! - selected[0]! + 1) * columnWidth}
          y={top}
          height={plot.height}
        />
      )}
      {picked && (
        <rect
          className="selection"
          x={left + picked.x[0] * plot.width}
          width={(picked.x[1] - picked.x[0]) * plot.width}
          y={top + picked.y[0] * plot.height}
          height={(picked.y[1] - picked.y[0]) * plot.height}
        />
      )}
    </svg>
  );
  return (
    <div className="heat">
      <p className="readout small" role="status">
        {readout}
        {selected && ". Enter compares the selection with the rest."}
      </p>
      {drawing}
    </div>
  );
}

type BandProps = {
  usual: Usual | undefined;
  expected: number | null;
  y: (ns: number) => number;
  x: number;
  width: number;
};

// UsualBand draws the range of most healthy requests, and the expected mean.
function UsualBand({ usual, expected, y, x, width }: BandProps) {
  const mean = expected ?? usual?.mean_ns ?? null;
  const band = usual && usual.p10_ns !== null && usual.p90_ns !== null ? [y(usual.p90_ns), y(usual.p10_ns)] : undefined;
  if (mean === null && !band) return null;
  return (
    <g className="usual">
      {band && <rect className="band" x={x} width={width} y={band[0]} height={Math.max(2, band[1]! - band[0]!)} />}
      {mean !== null && (
        <line className="expected" x1={x} x2={x + width} y1={y(mean)} y2={y(mean)} strokeDasharray="5 4" />
      )}
    </g>
  );
}

const maxLines = 3;

// labelLines returns the line above the chart for the label of each mark, from 1 on; 0: no label. Labels that are
// always shown move to further lines if the first is full.
function labelLines(marks: { x: number; always: boolean }[]): number[] {
  const taken: number[][] = Array.from({ length: maxLines }, () => []);
  return marks.map(({ x, always }) => {
    const at = taken
      .slice(0, always ? maxLines : 1)
      .findIndex((line) => line.every((other) => Math.abs(other - x) > 56));
    if (at >= 0) taken[at]!.push(x);
    return at + 1;
  });
}
